"""What rules a row group out, and what is asked for it: statistics before filters, each filter once, doubt keeps."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import bloomseal as bs
from bloomseal.core import exclusion
from bloomseal.core.exclusion import Reason
from bloomseal.core.parquet.belief import believed_filter
from bloomseal.core.parquet.walk import Chunk, Walk
from bloomseal.core.sbbf import SplitBlockBloomFilter
from bloomseal.read.parquet import ParquetFile
from bloomseal.read.predicate.predicate import Predicate
from bloomseal.read.prune import ruled_out
from bloomseal.sbbf import batch

STATISTICS, FILTER = Reason.STATISTICS, Reason.FILTER
a, n = pc.field("a"), pc.field("n")


@pytest.fixture(autouse=True)
def _no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """With them hashes tell the rows, and no values need to be left: see `test_many_values`."""
    monkeypatch.setattr(batch, "worthwhile", lambda _: False)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> ParquetFile:
    """Row group 0: `a` is 0, 10, … 90, `b` is b0, b1, …; 1: 1000 more; 2: nulls alone. `n`, half null, has no
    filter.
    """
    table = pa.table(
        {
            "a": pa.array([*range(0, 100, 10), *range(1_000, 1_100, 10), *[None] * 10], pa.int64()),
            "b": [*(f"b{i}" for i in range(10)), *(f"c{i}" for i in range(10)), *[None] * 10],
            "n": pa.array([i if i % 2 else None for i in range(30)], pa.int32()),
            "f": pa.array([float(i % 10) for i in range(30)], pa.float64()),
        }
    )
    path = tmp_path_factory.mktemp("prune") / "t.parquet"
    bs.write_table(
        table, path, bloom_filters={"a": bs.FilterSpec(num_bytes=4096), "b": True, "f": True}, row_group_size=10
    )
    return bs.open_file(path)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The columns whose filters are opened, in order."""
    found: list[str] = []

    def recorded(walk: Walk, chunk: Chunk) -> SplitBlockBloomFilter | None:
        found.append(chunk.leaf.name)
        return believed_filter(walk, chunk)

    monkeypatch.setattr(exclusion, "believed_filter", recorded)
    return found


def reason(file: ParquetFile, predicate: Predicate, group: int = 0, left: Any = None) -> Reason | None:
    """What ruled the row group out."""
    found = ruled_out(file.walk, group, predicate, left)
    return None if found is None else found.reason


@pytest.mark.parametrize(
    ("filters", "group", "expected"),
    [
        ([("a", "==", -1)], 0, (STATISTICS, [])),
        ([("a", "==", 91)], 0, (STATISTICS, [])),
        ([("a", "==", 55)], 0, (FILTER, ["a"])),
        ([("a", "==", 50)], 0, (None, ["a"])),
        ([("a", "==", 50)], 1, (STATISTICS, [])),
        ([("a", "==", 50)], 2, (STATISTICS, [])),
        ([("a", "in", [50, 55])], 0, (None, ["a"])),
        ([("a", "in", [54, 55])], 0, (FILTER, ["a"])),
        ([("a", "in", [])], 0, (STATISTICS, [])),
        # One part that fails is enough; the filters of the others are left alone.
        ([("a", "==", 55), ("b", "==", "b1")], 0, (FILTER, ["a"])),
        ([("a", "==", 50), ("b", "==", "b0x")], 0, (FILTER, ["a", "b"])),
        ([("a", "==", 50), ("b", "==", "b1")], 0, (None, ["a", "b"])),
        ([("a", "==", 55), ("b", "==", "zz")], 0, (STATISTICS, [])),
        ([("a", ">", 20), ("a", "==", 55)], 0, (FILTER, ["a"])),
        # Of several ways every one has to fail.
        ([[("a", "==", 55)], [("b", "==", "b1")]], 0, (None, ["a", "b"])),
        ([[("b", "==", "b1")], [("a", "==", 55)]], 0, (None, ["b"])),
        ([[("a", "==", 55)], [("b", "==", "b0x")]], 0, (FILTER, ["a", "b"])),
        ([[("a", "==", -1)], [("b", "==", "b0x")]], 0, (FILTER, ["b"])),
        ([[("a", "==", -1)], [("b", "==", "zz")]], 0, (STATISTICS, [])),
        ([[("a", "==", 55)], [("a", "==", 56)]], 0, (FILTER, ["a"])),
        ([[("a", "==", 55)], [("a", "==", 50)]], 0, (None, ["a"])),
        ([[("a", "==", 50)], [("a", "==", 55)]], 0, (None, ["a"])),
        ([[("a", "==", 55), ("b", "==", "b1")], [("a", "==", 56), ("b", "==", "b2")]], 0, (FILTER, ["a"])),
        ([[("a", "==", 50), ("b", "==", "b0x")], [("a", "==", 60), ("b", "==", "b3x")]], 0, (FILTER, ["a", "b"])),
        ([[("a", "==", 55)], [("a", ">", 30)]], 0, (None, ["a"])),
        # Order is no affair of filters, and a column without one proves nothing.
        ([("a", ">", 50)], 0, (None, [])),
        ([("a", ">", 90)], 0, (STATISTICS, [])),
        ([("a", "!=", 50)], 0, (None, [])),
        ([("n", "==", 4)], 0, (None, ["n"])),
        ([("n", "==", 10)], 0, (STATISTICS, [])),
        ([("f", "==", 4.5)], 0, (FILTER, ["f"])),
        ([("f", "in", [4.5, float("nan")])], 0, (None, ["f"])),  # NaN has no hash
        ([("f", "in", [4.0, float("nan")])], 0, (None, ["f"])),
        ([("n", "==", 4), ("a", "==", 55)], 0, (FILTER, ["n", "a"])),
        # Nulls: no statistics that count some, or none, are taken for the other.
        (a.is_null(), 0, (STATISTICS, [])),
        (a.is_null(), 2, (None, [])),
        (n.is_null(), 0, (None, [])),
        (a.is_valid(), 0, (None, [])),
        (a.is_valid(), 2, (STATISTICS, [])),
        (a.is_null() & (n == 1), 0, (STATISTICS, [])),
        (a.is_null() | (n == 1), 0, (None, ["n"])),
    ],
)  # fmt: skip
def test_what_rules_a_row_group_out(
    file: ParquetFile, opened: list[str], filters: Any, group: int, expected: tuple[Reason | None, list[str]]
) -> None:
    assert (reason(file, Predicate(filters, file.walk.footer.schema), group), opened) == expected


@pytest.mark.parametrize(("extra", "expected"), [([50], None), ([], FILTER)])
def test_of_many_values_those_are_left_that_may_be_there(
    file: ParquetFile, opened: list[str], extra: list[int], expected: Reason | None
) -> None:
    strangers = [value for value in range(-20_000, 20_000) if value % 10 and not 0 <= value % 1_000 <= 100]
    inside = [value for value in range(1, 90) if value % 10]
    predicate = Predicate([("a", "in", [*strangers, *inside, *extra])], file.walk.footer.schema)
    left: dict[Any, Any] = {}
    assert reason(file, predicate, 0, left) is expected
    assert opened == ["a"]
    ((term,),) = predicate.any_of
    assert [*left] == [id(term)]
    values = left[id(term)]
    assert set(extra) <= set(values.to_pylist()) <= {*inside, *extra}
    assert len(values) <= len(extra) + 3, "the filter has few false positives"
    assert reason(file, predicate) is expected


def test_without_a_filter_the_bounds_leave_values(file: ParquetFile) -> None:
    predicate = Predicate([("n", "in", list(range(-30_000, 30_000)))], file.walk.footer.schema)
    left: dict[Any, Any] = {}
    assert reason(file, predicate, 1, left) is None
    (values,) = left.values()
    assert set(values.to_pylist()) == set(range(11, 20))


def test_survivors_are_counted(file: ParquetFile) -> None:
    def left(column: str, values: list[Any]) -> tuple[Any, ...]:
        found = file.survivors(column, file.key_set(column, values))
        assert sorted([*found.row_groups, *found.excluded]) == [0, 1, 2]
        return found.row_groups, found.by_statistics, found.by_filter, found.without_filter

    assert left("a", [50, 1_050]) == ((0, 1), 1, 0, 0)
    assert left("a", [50]) == ((0,), 2, 0, 0)
    assert left("a", [55, 1_050]) == ((1,), 1, 1, 0)
    assert left("a", [55, 1_055]) == ((), 1, 2, 0)
    assert left("a", []) == ((), 3, 0, 0)
    assert left("n", [4]) == ((0,), 2, 0, 1)
    assert left("n", [4, 14, 24]) == ((0, 1, 2), 0, 0, 3)
    # NaN is in no interval and has no hash: no filter is asked for it.
    assert left("f", [float("nan")]) == ((0, 1, 2), 0, 0, 3)
