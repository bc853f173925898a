"""Values of nested leaves, row group by row group; sizes as the Java writer has them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bloomseal.orc.rewrite.build import Size, leaf_values
from bloomseal.orc.schema import OrcColumn, OrcKind

MAPS = [[("a", 1), ("b", 2)], None, [], [("c", 3)], [("d", 4), ("e", None)]]


@pytest.mark.parametrize("start", range(5))
def test_values_of_a_slice_are_those_of_its_rows(start: int) -> None:
    maps = pa.table({"m": pa.array(MAPS, pa.map_(pa.string(), pa.int64()))})
    lists = pa.table({"l": pa.array([one and [{"q": value} for _, value in one] for one in MAPS])})
    for count in range(1, 6):
        rows = [entry for one in MAPS[start : start + count] if one for entry in one]
        top = OrcColumn(1, 3, "m", OrcKind.MAP)
        keys = leaf_values(maps.slice(start, count), [top, OrcColumn(2, 2, "m._key", OrcKind.STRING)])
        values = leaf_values(maps.slice(start, count), [top, OrcColumn(3, 3, "m._value", OrcKind.LONG)])
        assert (keys.to_pylist(), values.to_pylist()) == ([key for key, _ in rows], [value for _, value in rows])
        way = [
            OrcColumn(1, 3, "l", OrcKind.LIST),
            OrcColumn(2, 3, "l._elem", OrcKind.STRUCT),
            OrcColumn(3, 3, "l._elem.q", OrcKind.LONG),
        ]
        assert leaf_values(lists.slice(start, count), way).to_pylist() == [value for _, value in rows]


def test_sizes_are_java_ones() -> None:
    assert Size.of(1000, 0.01) == (9600, 7)
    assert Size.of(1000, 0.001) == (14400, 10)
    assert Size.of(1, 0.5) == (64, 44)
