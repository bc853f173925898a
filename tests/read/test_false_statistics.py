"""Statistics and indexes that contradict themselves or the schema hide no row: some writers leave such."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support.surgery import booleans, change_chunk, change_column_index, created_by, statistics, written

import bloomseal as bs
from bloomseal.core.parquet.layout import Meta
from bloomseal.core.thrift import Struct, WireType

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
            equal = file.read(where=[(name, "==", value)])
            assert value in equal.column(name).to_pylist()
            assert file.read(where=[(name, "in", [value])]) == equal
            unequal = file.read(where=[(name, "!=", value)])
            assert equal.num_rows + unequal.num_rows == table.num_rows - table.column(name).null_count
            for low, high in (("<", ">="), ("<=", ">")):
                below, above = (file.read(where=[(name, op, value)]) for op in (low, high))
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
        assert file.read(where=[("x", "<", 3)]).column("x").to_pylist() == [0, 1, 2]


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
    assert not file.read(where=[("x", "==", 3)]).num_rows
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


def _false_bounds_but(counts: list[int]) -> Callable[[Struct], None]:
    """Bounds that no value lies between, beside these numbers of nulls."""

    def change(index: Struct) -> None:
        for field in (2, 3):
            index.set_list(field, [b"\x04\xff\xff\xff\x7f"] * 3, WireType.BINARY)
        index.set_list(5, [_zigzag(count) for count in counts], WireType.I64)

    return change


def _zigzag(number: int) -> bytes:
    return bytes([number << 1 ^ number >> 31])


@pytest.mark.parametrize("counts", [[0, 0, 4], [0, 5, 0], [-1, 0, 0], [4, 4, 4], [0, 1, 0]])
@pytest.mark.parametrize("table", [REQUIRED, OPTIONAL])
def test_bounds_beside_nulls_that_are_not_there_hide_nothing(
    tmp_path: Path, table: pa.Table, counts: list[int]
) -> None:
    """The chunk's statistics count none, and a page of four rows has no five, and with bounds not four."""
    _all_found(_file(tmp_path, change_column_index(_paged(table), _false_bounds_but(counts))), table)


def test_bounds_of_pages_are_believed_where_their_nulls_fit(tmp_path: Path) -> None:
    """So that the cases above are refused for their own reason."""
    with _file(tmp_path, change_column_index(_paged(OPTIONAL), _false_bounds_but([0, 0, 0]))) as file:
        assert not file.read(where=[("x", "==", 3)]).num_rows


# Writers that count nulls wrongly ---------------------------------------------------------------------------------

DICTIONARY = pa.table({"c": pa.array(["a", None, "b", None]).dictionary_encode(), "n": [1, 2, 3, 4]})
NULLS = pc.field("c").is_null()
BAD = ["parquet-cpp-arrow version 4.0.1", "parquet-cpp version 1.5.1-SNAPSHOT", "Polars"]
KEYS = bs.ExplicitKeys(footer_key=b"f" * 16, column_keys={"c": b"c" * 16})
SPEC = bs.EncryptionSpec(footer_key=b"f" * 16, column_keys={"c": b"c" * 16})


def _miscounted(folder: Path, writer: str, nulls: int = 0, **bounds: bytes) -> Path:
    """Statistics that count other nulls than are there."""
    data = change_chunk(written(DICTIONARY), statistics(null_count=nulls, **bounds))
    (folder / "t.parquet").write_bytes(created_by(data, writer))
    return folder / "t.parquet"


@pytest.mark.parametrize("writer", BAD)
def test_nulls_that_a_writer_did_not_count(tmp_path: Path, writer: str) -> None:
    path = _miscounted(tmp_path, writer, min_value=b"a", max_value=b"b")
    keys = bs.DecryptionSpec(KEYS)
    assert bs.read_table(path, where=NULLS).column("n").to_pylist() == [2, 4]
    sealed, again = tmp_path / "sealed.parquet", tmp_path / "again.parquet"
    bs.seal_file(path, sealed, encryption=SPEC)
    bs.rekey(sealed, again, decryption=keys, encryption=SPEC)
    for file in (sealed, again):
        for _ in range(2):
            with bs.open_file(file, decryption=keys) as opened:
                assert opened.walk.footer.created_by == writer
                assert opened.read(where=NULLS).column("n").to_pylist() == [2, 4]
            bs.attach_filters(file, {"c": bs.FilterSpec()}, decryption=keys)


@pytest.mark.parametrize("writer", BAD)
def test_nulls_that_a_writer_counted_too_often(tmp_path: Path, writer: str) -> None:
    """As many as there are values, and no bounds that contradict it."""
    path = _miscounted(tmp_path, writer, 4)
    assert bs.read_table(path, where=[("c", "==", "b")]).column("n").to_pylist() == [3]
    with bs.open_file(path) as file:
        assert file.survivors("c", file.key_set("c", ["b"])).row_groups == (0,)


def test_nulls_that_a_writer_counted_are_believed(tmp_path: Path) -> None:
    """So that the cases above are refused for their own reason."""
    path = _miscounted(tmp_path, "parquet-cpp-arrow version 5.0.0", min_value=b"a", max_value=b"b")
    assert not bs.read_table(path, where=NULLS).num_rows
    path = _miscounted(tmp_path, "Polars (python) version 2.1.0", 4)
    assert not bs.read_table(path, where=[("c", "==", "b")]).num_rows


def test_nulls_of_a_struct_are_nulls_of_its_fields(tmp_path: Path) -> None:
    """Arrow's writer leaves them out of a dictionary's count: here it counts none."""
    fields = [pa.array(["a", "b", "a"]).dictionary_encode()]
    struct = pa.StructArray.from_arrays(fields, ["c"], mask=pa.array([False, True, False]))
    (tmp_path / "t.parquet").write_bytes(written(pa.table({"s": struct, "n": [1, 2, 3]})))
    nulls = pc.field("s", "c").is_null()
    assert bs.read_table(tmp_path / "t.parquet", where=nulls).column("n").to_pylist() == [2]


def test_nulls_that_a_writer_did_not_count_behind_an_index(tmp_path: Path) -> None:
    _miscounted(tmp_path, BAD[0], min_value=b"a", max_value=b"b")
    (tmp_path / "t").mkdir()
    bs.seal_file(tmp_path / "t.parquet", tmp_path / "t" / "t.parquet", encryption=SPEC)
    table = bs.open_table(tmp_path / "t", decryption=bs.DecryptionSpec(KEYS))
    assert table.index("c", encryption=SPEC).build().ok
    either = NULLS | (pc.field("c") == "b")
    assert table.read(where=NULLS).column("n").to_pylist() == [2, 4]
    assert table.read(where=either).column("n").to_pylist() == [2, 3, 4]
