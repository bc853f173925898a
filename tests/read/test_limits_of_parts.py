"""Many columns of one row group, each of which may be decoded, and all of which together may not."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bloomseal as bs
from bloomseal.format import decode
from bloomseal.format.pages import decoded


def test_a_wide_row_group_is_read_by_a_filter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flags, an eighth of a byte each as they are stored: no row of a table is refused for its other columns."""
    count = 40_000
    column = pa.array([i % 7 == i % 3 for i in range(count)]).cast(pa.int64())
    table = pa.table({f"c{index}": column for index in range(24)})
    path = tmp_path / "t.parquet"
    pq.write_table(table, path, compression="none", row_group_size=count)
    monkeypatch.setattr(decoded, "MAX_DECODED_BYTES", 1 << 20)
    monkeypatch.setattr(decode, "_PART_BYTES", 4 << 10, raising=False)
    with bs.open_file(path) as file:
        found = file.read(where=[("c0", "==", 1)])
    assert found.equals(table.filter(pa.compute.equal(table["c0"], 1)))
