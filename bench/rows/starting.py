"""Fresh processes: importing, a cold probe, the first batch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import bloomseal as bs

from .. import data
from ..timing import Ceiling, Comparison, Contender, Goal, Timed
from ..workspace import Workspace, fresh_process, row

_FIRST_BATCH = """
import time
import numpy as np, pyarrow as pa
values = pa.array(np.arange(1_000_000))
start = time.perf_counter()
import bloomseal as bs
from bloomseal.sbbf import ColumnType, PhysicalType, hash_array
bloom = bs.FilterSpec(ndv=len(values)).build(hash_array(values, ColumnType(PhysicalType.INT64)))
print(time.perf_counter() - start)
"""
_LIBRARIES = (
    "import pyarrow.parquet, thrift.protocol.fastbinary; from cryptography.hazmat.primitives.ciphers.aead import AESGCM"
)
# numba is left with the one way to a cache directory that knows none outside notebooks.
_NO_CACHE = {"NUMBA_CACHE_LOCATOR_CLASSES": "numba.core.caching._IPythonCacheLocator"}


@row("import")
def importing(work: Workspace) -> Iterator[Comparison]:
    """Importing the package, and the coldest probe: a new process from its start to the verdict."""
    ring, path, value = work.path("keyring.json"), work.path("cold.parquet"), data.absent_ssns(1)[0]
    keys = bs.Keyring(ring, create=True)
    if not keys.list():
        keys.create("footer")
        keys.create("pii")
    rows = 10_000
    bs.write_table(
        data.people(0, rows),
        path,
        encryption=bs.EncryptionSpec(footer_key="footer", column_keys={"ssn": "pii"}, keys=keys),
        bloom_filters={"ssn": bs.FilterSpec(fpp=0.0001)},
    )
    arrow = "python -c 'import pyarrow.parquet'"
    names, command = "from bloomseal import open_file, write_table", "bloomseal probe, cold"
    bloomseal, fresh = Path(sys.executable).parent / "bloomseal", fresh_process(work.folder)
    yield Comparison(
        "a new process",
        [
            Contender("python -c 'import bloomseal'", python("import bloomseal", fresh), ours=True),
            Contender(names, python(names, fresh), ours=True),
            Contender(
                command,
                _exits(1, [str(bloomseal), "probe", str(path), "ssn", value, "--keyring", str(ring)], fresh),
                ours=True,
            ),
            Contender(arrow, python("import pyarrow.parquet", fresh)),
            Contender(_LIBRARIES, python(_LIBRARIES, fresh)),
            Contender("python -c pass", python("pass", fresh)),
        ],
        [
            Goal("python -c 'import bloomseal'", arrow, 1.3, True, "import ≤ 1.3× pyarrow.parquet"),
            Goal(names, arrow, 1.3, True, "import with the main names loaded ≤ 1.3× pyarrow.parquet", _LIBRARIES),
            Goal(command, arrow, 2, True, "cold probe ≤ 2× importing pyarrow.parquet"),
        ],
        repetitions=work.size.short_repetitions,
        note="`import bloomseal` loads names when they are used; the second line uses them. All find their bytecode compiled.",
    )
    yield Comparison(
        "the first batch of 1,000,000 values in a new process, import included, kernels cached",
        [Contender("Bloomseal", lambda: _first_batch(fresh), ours=True)],
        [Ceiling("Bloomseal", 1.0, "≤ 1 s")],
        repetitions=work.size.repetitions,
    )
    yield Comparison(
        "the first batch in a fresh process without a writable cache directory",
        [Contender("Bloomseal", lambda: _first_batch({**fresh, **_NO_CACHE}), ours=True)],
        [Ceiling("Bloomseal", 1.0, "≤ 1 s without a cache")],
        repetitions=work.size.repetitions,
        note="The same 1,000,000 values; nothing can be kept from one process to the next.",
    )


def python(code: str, environment: Mapping[str, str]) -> Callable[[], None]:
    """A new process that runs this."""
    return _exits(0, [sys.executable, "-c", code], environment)


def _exits(status: int, command: list[str], environment: Mapping[str, str]) -> Callable[[], None]:
    def run() -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode != status:
            raise RuntimeError(f"{command[0]} exited with {done.returncode}: {done.stderr[-300:]}")

    return run


def _first_batch(environment: Mapping[str, str]) -> Timed:
    done = subprocess.run(
        [sys.executable, "-c", _FIRST_BATCH],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    return Timed(float(done.stdout))
