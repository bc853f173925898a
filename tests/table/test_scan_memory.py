"""A full scan holds a few row groups' pages, whatever the table's size; measured in bytes, in a process of its own."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bloomseal as bs

KEYS: dict[str, Any] = {"footer_key": b"f" * 16, "column_keys": {"c0": b"c" * 16}}
ROWS, GROUPS, COLUMNS = 500_000, 4, 8
GROUP = ROWS * COLUMNS * 8
MIB = 1 << 20

SCAN = """
import json, pathlib, sys
import pyarrow as pa
import bloomseal as bs
import bloomseal.polars as bp
import polars as pl

keys = bs.ExplicitKeys(footer_key=b"f" * 16, column_keys={"c0": b"c" * 16})

def status(field):
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))

def by_stream(table):
    return sum(batch.num_rows for batch in table.scan(threads=2))

def by_polars(table):
    return bp.scan(table).select(pl.all().sum(), n=pl.len()).collect(engine="streaming")["n"].item()

run = {"stream": by_stream, "polars": by_polars}[sys.argv[1]]
for path in sys.argv[2:]:
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    before, arrow = status("VmRSS"), pa.total_allocated_bytes()
    rows = run(bs.open_table(path, decryption=bs.DecryptionSpec(keys)))
    grown, most = status("VmHWM") - before, pa.default_memory_pool().max_memory() - arrow
print(json.dumps({"rows": rows, "resident": grown, "arrow": most}))
"""


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A table of a hundred rows, to warm up with, one of row groups of 30 MiB, and one of row groups of 15 MiB, half of
    whose columns are dictionaries.
    """
    folder, chance = tmp_path_factory.mktemp("memory"), np.random.default_rng(5)
    found = {}
    for name, rows, groups, most in (
        ("small", 100, 1, [1 << 31]), ("large", ROWS, GROUPS, [1 << 31]), ("middle", ROWS // 2, GROUPS, [1 << 31, 100])
    ):  # fmt: skip
        path = folder / f"{name}.parquet"
        values = {f"c{i}": chance.integers(0, most[i % len(most)], rows) for i in range(COLUMNS)}
        with bs.SealedWriter(
            path, pa.table(values).schema, encryption=bs.EncryptionSpec(**KEYS), row_group_size=rows
        ) as writer:
            for _ in range(groups):
                writer.write_table(pa.table(values))
        found[name] = str(path)
    # One column that does not compress: its chunk is the row group, sealed and opened.
    path, rows = folder / "text.parquet", GROUP // 2 // 100
    schema, spec = pa.schema({"c0": pa.string()}), bs.EncryptionSpec(**KEYS)
    with bs.SealedWriter(path, schema, encryption=spec, row_group_size=rows) as writer:
        for _ in range(GROUPS):
            letters = pa.py_buffer(base64.b64encode(chance.bytes(rows * 75)))
            offsets = pa.py_buffer(np.arange(0, 100 * rows + 1, 100, dtype=np.int32))
            column = pa.StringArray.from_buffers(rows, offsets, letters)
            writer.write_table(pa.table({"c0": column}))
    found["text"] = str(path)
    return found


def scanned(how: str, *paths: str) -> dict[str, int]:
    done = subprocess.run([sys.executable, "-c", SCAN, how, *paths], capture_output=True, text=True, check=True)
    found: dict[str, int] = json.loads(done.stdout)
    return found


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux tells the peak of a process")
@pytest.mark.parametrize("how", ["stream", "polars"])
def test_a_full_scan_holds_less_than_three_row_groups(paths: dict[str, str], how: str) -> None:
    found = scanned(how, paths["small"], paths["large"])
    assert found["rows"] == ROWS * GROUPS
    # Decoded: a portion of half a MiB for each of two threads and for whoever takes them, and the next pieces beside.
    assert found["arrow"] < 0.75 * GROUP
    # With the stored pages of two row groups. Slack for what allocators keep, which does not grow with row groups.
    assert found["resident"] < 3 * GROUP + 16 * MIB


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux tells the peak of a process")
def test_so_does_one_of_smaller_row_groups(paths: dict[str, str]) -> None:
    found = scanned("stream", paths["small"], paths["middle"])
    assert found["rows"] == ROWS // 2 * GROUPS
    # Here the rows that are decoded at a time count, and what allocators keep of them.
    assert found["arrow"] < 0.5 * GROUP // 2
    assert found["resident"] < 3 * GROUP // 2


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux tells the peak of a process")
def test_so_does_one_of_a_column_that_does_not_compress(paths: dict[str, str]) -> None:
    found = scanned("stream", paths["small"], paths["text"])
    assert found["rows"] == GROUP // 2 // 100 * GROUPS
    # With slack, as above, for what allocators keep.
    assert found["resident"] < 3 * GROUP // 2 + 16 * MIB
