"""What a single look-up loads: never the compiler."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROBE = """
import sys

import pytest
from bloomseal.core.sbbf import ColumnType, PhysicalType, ProbeSet, hash_array
from bloomseal.sbbf import FilterSpec
import numpy as np
import pyarrow as pa
kind, count = ColumnType(PhysicalType.BYTE_ARRAY), 10_000
# pa.array would load pandas.
ends, values = np.arange(0, 7 * count + 1, 7, dtype=np.int32), b"".join(b"%07d" % i for i in range(count))
hashes = hash_array(pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(values)]), kind)
found = FilterSpec().build(hashes)
assert ProbeSet.of([b"0000005", b"0000077"], kind).check(found).all()
print(*sorted({"numba", "llvmlite", "pandas", "cryptography", "thrift"} & set(sys.modules)))
"""


def test_small_batches_load_no_compiler() -> None:
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_large_batches_load_the_kernels() -> None:
    larger = PROBE.replace("10_000", "10_000_000 // 4")
    done = subprocess.run([sys.executable, "-c", larger], capture_output=True, text=True, check=True)
    assert "numba" in done.stdout


INTERRUPTED = """
import sys, _thread
from importlib.abc import MetaPathFinder
from bloomseal.sbbf import batch

class Impatient(MetaPathFinder):
    "Somebody presses Ctrl-C when so many modules of numba were looked for."
    left = %d
    def find_spec(self, name, path, target=None):
        if name.startswith("numba."):
            self.left -= 1
            if not self.left:
                _thread.interrupt_main()

sys.meta_path.insert(0, Impatient())
try:
    batch.expect(10_000_000)
except KeyboardInterrupt:
    print("interrupted")
batch.expect(10_000_000)
print(batch._kernels.__name__)
"""


@pytest.mark.parametrize("modules", [1, 60, 150])
def test_kernels_can_be_loaded_after_an_interrupt(modules: int) -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED % modules], capture_output=True, text=True)
    assert done.stdout.split() == ["interrupted", "bloomseal.sbbf.kernels"], done.stderr
