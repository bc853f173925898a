"""Columns that Arrow holds as views, as delta-rs writes them: few of Arrow's own functions take them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import bloomseal as bs

VIEWS = pa.table(
    {
        "id": [1, 2, 3],
        "text": pa.array(["a", "b", None], pa.string_view()),
        "bytes": pa.array([b"a", b"b", None], pa.binary_view()),
        "inside": pa.StructArray.from_arrays([pa.array(["x", "y", "z"], pa.string_view())], ["q"]),
        "list": pa.array([["x"], ["y"], None], pa.list_(pa.string_view())),
    }
)
ASKED: list[tuple[Any, list[int]]] = [
    ([("text", "==", "a")], [1, 11]),
    ([("text", ">", "a")], [2, 12]),
    ([("bytes", "in", [b"b"])], [2, 12]),
    ([("inside.q", "==", "x"), ("id", "<", 5)], [1]),
    (pc.field("text") == "a", [1, 11]),
    (pc.field("bytes") == b"b", [2, 12]),
    (pc.field("inside", "q") != "x", [2, 3, 12, 13]),
    (pc.starts_with(pc.field("text"), "a") & (pc.field("id") > 5), [11]),
    (pc.field("text").isin(["b", "c"]), [2, 12]),
    (pc.field("text").is_null(), [3, 13]),
]


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize(("filters", "expected"), ASKED)
def test_conditions_on_views(tmp_path: Path, filters: Any, expected: list[int], alone: bool) -> None:
    """Another file has the column otherwise, so that rows are asked once they are read."""
    pq.write_table(VIEWS, tmp_path / "views.parquet")
    assert pq.read_schema(tmp_path / "views.parquet").types == VIEWS.schema.types
    if not alone:
        kinds = {"id": pa.int32(), "text": pa.string(), "bytes": pa.binary(), "inside": pa.struct({"q": pa.string()})}
        rows = [one | {"id": one["id"] + 10} for one in VIEWS.to_pylist()]
        other = pa.Table.from_pylist(rows, pa.schema(kinds | {"list": pa.list_(pa.string())}))
        pq.write_table(other, tmp_path / "with.parquet")
    table = bs.open_table(tmp_path)
    wanted = [one for one in expected if one < 10 or not alone]
    assert table.read(where=filters)["id"].to_pylist() == wanted
    assert table.scan(where=filters).read_all()["id"].to_pylist() == wanted


class Stream:
    """What an engine hands over."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


class Batch(Stream):
    """Likewise, a single one."""

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self._table.combine_chunks().to_batches()[0].__arrow_c_array__(requested_schema)


@pytest.mark.parametrize("made", [Stream, Batch])
@pytest.mark.parametrize("wide", [False, True])
def test_views_of_lists_are_written_as_the_lists(tmp_path: Path, made: Any, wide: bool) -> None:
    """Arrow's own cast leaves the last offset out."""
    view = pa.large_list_view if wide else pa.list_view
    lists: list[Any] = [["a"], None, ["b", None, "c"], []]
    nested = [None if one is None else [one, one[:1]] for one in lists]
    rows = pa.table(
        {
            "list": pa.array(lists, view(pa.string_view())),
            "nested": pa.array(nested, view(view(pa.string()))),
            "inside": pa.array([{"l": one} for one in lists], pa.struct({"l": view(pa.string())})),
        }
    )
    for begin, length in ((0, 4), (1, 3), (1, 2), (3, 1)):
        some = rows.slice(begin, length)
        bs.write_table(made(some), tmp_path / "a.parquet")
        assert pq.read_table(tmp_path / "a.parquet").to_pylist() == some.to_pylist()
    parts = pa.table({"p": ["x", "y", "x", "y"]} | {name: rows[name] for name in rows.column_names})
    bs.write_dataset(parts, tmp_path / "parts", partition_by=["p"])
    found = bs.read_table(tmp_path / "parts", columns=["p", *rows.column_names]).to_pylist()
    assert sorted(map(str, found)) == sorted(map(str, parts.to_pylist()))
