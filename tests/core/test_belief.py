"""Which filter is believed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import bloomseal as bs

VALUES = ["a", "b", "c"]


def zeroed(path: Path) -> Path:
    """The file with a filter of zeros, as writers leave that build filters and insert nothing."""
    with bs.open_file(path) as file:
        found = file.walk.filter(file.walk.chunk(0, 0))
        assert found is not None
        end, size = found.offset + found.length, len(found.bitset)
    data = bytearray(path.read_bytes())
    data[end - size : end] = bytes(size)
    path.write_bytes(data)
    return path


def test_an_empty_filter_over_values_proves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    bs.write_table(pa.table({"v": VALUES}), path, bloom_filters={"v": True})
    assert set(bs.probe(path, "v", ["x"])[0]) == {bs.Verdict.ABSENT}
    assert bs.Verdict.ABSENT not in bs.probe(zeroed(path), "v", VALUES)[0]
    assert bs.read_table(path, where=[("v", "in", VALUES)]).num_rows == len(VALUES)


def test_an_empty_filter_over_nulls_proves_that_no_value_is_there(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    bs.write_table(pa.table({"v": pa.nulls(3, pa.string())}), path, bloom_filters={"v": True})
    assert set(bs.probe(path, "v", VALUES)[0]) == {bs.Verdict.ABSENT}
