"""What a single look-up loads: never the compiler."""

from __future__ import annotations

import subprocess
import sys

PROBE = """
import sys
from bloomseal.sbbf import ColumnType, FilterSpec, PhysicalType, ProbeSet, hash_array
import pyarrow as pa
kind = ColumnType(PhysicalType.BYTE_ARRAY)
hashes = hash_array(pa.array([b"%d" % i for i in range(10_000)]), kind)
found = FilterSpec().build(hashes)
assert ProbeSet.of([b"5", b"77"], kind).check(found).all()
print(*sorted({"numba", "llvmlite", "cryptography", "thrift"} & set(sys.modules)))
"""


def test_small_batches_load_no_compiler() -> None:
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_large_batches_load_the_kernels() -> None:
    larger = PROBE.replace("10_000", "10_000_000 // 4")
    done = subprocess.run([sys.executable, "-c", larger], capture_output=True, text=True, check=True)
    assert "numba" in done.stdout
