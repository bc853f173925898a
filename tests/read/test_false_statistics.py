"""Statistics and indexes that contradict themselves or the schema hide no row: some writers leave such."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.surgery import booleans, change_chunk, change_column_index, statistics, written

import bloomseal as bs
from bloomseal.format.layout import Meta
from bloomseal.thrift import Struct, WireType

ROWS = 12
REQUIRED = pa.table(
    {"x": pa.array(range(ROWS), pa.int32()), "y": [f"v{i:02}" for i in range(ROWS)]},
    schema=pa.schema([pa.field("x", pa.int32(), nullable=False), pa.field("y", pa.string(), nullable=False)]),
)
OPTIONAL = REQUIRED.cast(pa.schema([pa.field("x", pa.int32()), pa.field("y", pa.string())]))


def _paged(table: pa.Table) -> bytes:
    return written(table, max_rows_per_page=4, use_dictionary=False, write_page_index=True, write_batch_size=1)


def _file(folder: Path, data: bytes) -> bs.SealedFile:
    (folder / "t.parquet").write_bytes(data)
    return bs.open_file(folder / "t.parquet")


def _all_found(file: bs.SealedFile, table: pa.Table) -> None:
    """Every value is found by each operator, and == and != add up."""
    for name in table.column_names:
        for value in table.column(name).drop_null().unique().to_pylist():
            equal = file.read(filters=[(name, "==", value)])
            assert value in equal.column(name).to_pylist()
            assert file.read(filters=[(name, "in", [value])]) == equal
            unequal = file.read(filters=[(name, "!=", value)])
            assert equal.num_rows + unequal.num_rows == table.num_rows - table.column(name).null_count
            for low, high in (("<", ">="), ("<=", ">")):
                below, above = (file.read(filters=[(name, op, value)]) for op in (low, high))
                assert below.num_rows + above.num_rows == table.num_rows - table.column(name).null_count
            keys = file.key_set(name, [value])
            assert file.survivors(name, keys).row_groups
    file.close()


def _null_pages(counts: list[int] | None) -> Callable[[Struct], None]:
    def change(index: Struct) -> None:
        pages = len(index.elements(2, WireType.BINARY))
        assert pages == 3
        index.fields[1] = (WireType.LIST, booleans([True] * pages))
        for field in (2, 3):
            index.set_list(field, [b"\x00"] * pages, WireType.BINARY)
        index.remove(5)
        if counts is not None:
            index.set_list(5, [bytes([2 * count]) for count in counts], WireType.I64)

    return change


@pytest.mark.parametrize("column", [0, 1])
@pytest.mark.parametrize("counts", [None, [0, 0, 0], [4, 4, 4]])
def test_null_pages_of_a_required_column(tmp_path: Path, column: int, counts: list[int] | None) -> None:
    """A column index without statistics that calls every page null: the column has no definition levels."""
    _all_found(_file(tmp_path, change_column_index(_paged(REQUIRED), _null_pages(counts), column)), REQUIRED)


@pytest.mark.parametrize("column", [0, 1])
@pytest.mark.parametrize("counts", [None, [0, 0, 0], [3, 0, 5], [4, 4], [4, 4, 4, 4], [-4, -4, -4]])
def test_null_pages_whose_nulls_are_not_their_rows(tmp_path: Path, column: int, counts: list[int] | None) -> None:
    if counts is not None and min(counts) < 0:
        counts = [-count * 2 - 1 for count in counts]  # zigzag of what set_list doubles: odd bytes are negative
    _all_found(_file(tmp_path, change_column_index(_paged(OPTIONAL), _null_pages(counts), column)), OPTIONAL)


def test_true_null_pages_are_passed_over(tmp_path: Path) -> None:
    """Pages that are null, and counted so, are still not read."""
    table = pa.table({"x": pa.array([None] * 4 + list(range(8)), pa.int32())})
    raw = bytearray(_paged(table))
    with _file(tmp_path, bytes(raw)) as file:
        chunk = file.walk.chunk(0, 0)
        null = next(iter(file.walk.pages(chunk)))
    # Nobody may look at the null page: it is damaged.
    raw[null.offset : null.offset + null.length] = b"\xff" * null.length
    with _file(tmp_path, bytes(raw)) as file:
        assert file.read(filters=[("x", "<", 3)]).column("x").to_pylist() == [0, 1, 2]


@pytest.mark.parametrize("field", [2, 3])
def test_bounds_of_pages_upside_down_or_of_another_length(tmp_path: Path, field: int) -> None:
    def bound(value: bytes) -> Callable[[Struct], None]:
        return lambda index: index.set_list(field, [bytes([len(value)]) + value] * 3, WireType.BINARY)

    low_or_high = (b"\xff\xff\xff\x7f", b"\x00\x00\x00\x80")[field - 2]
    for column, value in (
        (0, low_or_high),
        (0, b"\x01"),
        (0, b""),
        (1, (b"zzz", b"a")[field - 2]),
        (1, (b"z", b"")[field - 2]),
    ):
        _all_found(_file(tmp_path, change_column_index(_paged(OPTIONAL), bound(value), column)), OPTIONAL)


STATISTICS: list[dict[str, Any]] = [
    {"null_count": ROWS},
    {"null_count": ROWS, "min_value": b"", "max_value": b""},
    {"null_count": ROWS + 1, "min_value": b"\xff\xff\xff\x7f", "max_value": b"\xff\xff\xff\x7f"},
    {"null_count": -1, "min_value": b"\xff\xff\xff\x7f", "max_value": b"\xff\xff\xff\x7f"},
    {"null_count": 1, "min_value": b"\xff\xff\xff\x7f", "max_value": b"\xff\xff\xff\x7f"},
    {"min_value": b"\xff\xff\xff\x7f", "max_value": b"\x00\x00\x00\x80"},
    {"min_value": b"\xff\xff\x7f", "max_value": b"\xff\xff\x7f"},
    {"min_value": b"", "max_value": b""},
    {"min": b"\xff\xff\xff\x7f", "max": b"\xff\xff\xff\x7f"},
]


@pytest.mark.parametrize("column", [0, 1])
@pytest.mark.parametrize("fields", STATISTICS)
def test_statistics_of_a_required_column(tmp_path: Path, column: int, fields: dict[str, Any]) -> None:
    if column and fields.get("min_value") == b"\xff\xff\x7f":
        fields = {"min_value": b"z", "max_value": b"a"}
    _all_found(_file(tmp_path, change_chunk(_paged(REQUIRED), statistics(**fields), column)), REQUIRED)


@pytest.mark.parametrize("column", [0, 1])
def test_nulls_only_beside_bounds_are_not_believed(tmp_path: Path, column: int) -> None:
    for fields in ({"min_value": b"\x00" * 4, "max_value": b"\x09\x00\x00\x00"}, {"max_value": b"v99"}):
        change = statistics(null_count=ROWS, **fields)
        _all_found(_file(tmp_path, change_chunk(_paged(OPTIONAL), change, column)), OPTIONAL)


def test_nulls_only_are_believed_where_they_can_be(tmp_path: Path) -> None:
    """So that the cases above are refused for their own reason."""
    file = _file(tmp_path, change_chunk(_paged(OPTIONAL), statistics(null_count=ROWS)))
    assert not file.read(filters=[("x", "==", 3)]).num_rows
    assert file.stats.pruned_by_statistics == 1
    file.close()


def test_longer_bounds_than_the_values_of_fixed_bytes(tmp_path: Path) -> None:
    table = pa.table({"x": pa.array([b"aa", b"bb", b"cc"], pa.binary(2))})
    change = statistics(min_value=b"bbb", max_value=b"bbb")
    _all_found(_file(tmp_path, change_chunk(written(table), change)), table)


def test_offset_index_with_pages_out_of_their_place(tmp_path: Path) -> None:
    """Two pages of as many rows exchanged: the whole column is read instead."""
    data = _paged(OPTIONAL)
    with _file(tmp_path, data) as file:
        chunk = file.walk.chunk(0, 0)
        start, length = chunk.view.offset_index_offset or 0, chunk.view.offset_index_length or 0
    index = Struct.parse(data[start : start + length])
    places = [Struct.parse(raw) for raw in index.elements(1)]
    first, second = (place.integer(1) or 0 for place in places[:2])
    places[0].set_i64(1, second)
    places[1].set_i64(1, first)
    index.set_list(1, [place.to_bytes() for place in places])
    raw = index.to_bytes()
    assert len(raw) == length
    _all_found(_file(tmp_path, data[:start] + raw + data[start + length :]), OPTIONAL)


def test_row_groups_that_say_nothing_of_nulls(tmp_path: Path) -> None:
    data = change_chunk(_paged(OPTIONAL), lambda meta: meta.remove(Meta.STATISTICS))
    _all_found(_file(tmp_path, data), OPTIONAL)
