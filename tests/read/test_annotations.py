"""Logical types that do not fit their physical type: what Arrow passes over, filters, bounds and comparisons pass over
too.
"""

from __future__ import annotations

import datetime as dt
import math
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.surgery import change_element, written

import bloomseal as bs
from bloomseal import Verdict
from bloomseal.core.thrift import Struct


def _of(**fields: Any) -> Struct:
    made = Struct()
    for name, value in fields.items():
        number = int(name[1:])
        if isinstance(value, bool):
            made.set_boolean(number, value)
        elif isinstance(value, Struct):
            made.set_struct(number, value)
        elif isinstance(value, bytes):
            made.fields[number] = (3, value)  # a single byte
        else:
            made.set_i32(number, value)
    return made


def _decimal(precision: int, scale: int) -> Struct:
    return _of(f1=scale, f2=precision)


def _moment(unit: int) -> Struct:
    return _of(f1=True, f2=_of(**{f"f{unit}": Struct()}))


def _int(bits: int, signed: bool) -> Struct:
    return _of(f1=bytes([bits]), f2=signed)


ARRAYS: dict[str, pa.Array] = {
    "BOOLEAN": pa.array([True, False]),
    "INT32": pa.array([7, -9, 0, 2**31 - 1], pa.int32()),
    "INT64": pa.array([7, -9, 0, 2**63 - 1], pa.int64()),
    "FLOAT": pa.array([1.5, -2.0, 0.0], pa.float32()),
    "DOUBLE": pa.array([1.5, -2.0, 0.0]),
    "BYTE_ARRAY": pa.array([b"ab", b"\x00\x07", b"7"]),
    **{f"FLBA({n})": pa.array([bytes(range(n)), b"7" * n], pa.binary(n)) for n in (2, 9, 12, 16)},
}
LOGICAL: dict[str, tuple[int, Struct]] = {
    "string": (1, Struct()),
    "map": (2, Struct()),
    "list": (3, Struct()),
    "enum": (4, Struct()),
    **{f"decimal({p}, {s})": (5, _decimal(p, s)) for p, s in ((4, 2), (5, 2), (10, 2), (19, 0), (40, 2), (2615, 2), (0, 0), (5, 7))},
    "date": (6, Struct()),
    **{f"time {unit}": (7, _moment(unit)) for unit in (1, 2, 3)},
    **{f"timestamp {unit}": (8, _moment(unit)) for unit in (1, 2, 3)},
    **{f"int({bits}, {signed})": (10, _int(bits, signed)) for bits in (7, 8, 16, 32, 64) for signed in (True, False)},
    "unknown": (11, Struct()),
    "json": (12, Struct()),
    "bson": (13, Struct()),
    "uuid": (14, Struct()),
    "float16": (15, Struct()),
    "variant": (16, Struct()),
    "geometry": (17, Struct()),
    "younger than us": (40, Struct()),
}  # fmt: skip


NARROW = {name for name in LOGICAL if name.startswith(("time ", "int("))}


def _annotated() -> Iterator[Any]:
    for physical, array in ARRAYS.items():
        yield from _annotations(physical, array)


def _annotations(physical: str, array: pa.Array) -> Iterator[Any]:
    """Files of these values under every annotation."""
    wide = written(pa.table({"x": array}), bloom_filter_options=_filters(array))
    # Numbers beyond 8 bits, and times beyond a day, have no meaning that the specification gives them.
    few = [7, 0, 100] if pa.types.is_int32(array.type) else [7_000, 0, 100_000]  # nor has Python nanoseconds
    lawful = pa.array(few, array.type) if pa.types.is_integer(array.type) else array
    narrow = written(pa.table({"x": lawful}), bloom_filter_options=_filters(lawful))
    for data, names, converted_types in ((wide, LOGICAL.keys() - NARROW, (0, 1, 2, 3, 4, 5, 6, 9, 10, 19, 20, 21)),
                                         (narrow, NARROW, (7, 8, *range(11, 19)))):  # fmt: skip
        for name in sorted(names):
            member, inner = LOGICAL[name]

            def logical(element: Struct, member: int = member, inner: Struct = inner) -> None:
                element.remove(6, 7, 8, 10)
                element.set_struct(10, _of(**{f"f{member}": inner}))

            yield pytest.param(change_element(data, logical), id=f"{name} on {physical}")
        for old in converted_types:

            def converted(element: Struct, old: int = old) -> None:
                element.remove(6, 7, 8, 10)
                element.set_i32(6, old)
                element.set_i32(7, 2)
                element.set_i32(8, 12)

            yield pytest.param(change_element(data, converted), id=f"converted type {old} on {physical}")


def _filters(array: pa.Array) -> dict[str, Any] | None:
    return None if pa.types.is_boolean(array.type) else {"x": {"ndv": 10, "fpp": 0.001}}


NEEDLES: list[Any] = [
    0, 7, -9, 2_000_000_000, 2**64, True, 1.5, math.nan, Decimal("0.07"), Decimal(7), Decimal("1E+40"), b"ab", b"7777", "ab", "\ud800",
    b"\xff", bytes(16), dt.date(1970, 1, 8), dt.datetime(1970, 1, 1, tzinfo=dt.UTC), dt.time(0), uuid.UUID(int=7),
    np.timedelta64(5, "D"), None,
]  # fmt: skip


@pytest.mark.parametrize("data", list(_annotated()))
def test_rows_are_found_as_arrow_shows_them_and_nothing_foreign_is_raised(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "t.parquet").write_bytes(data)
    try:
        rows = pq.read_table(pa.BufferReader(data)).column("x")
    except (pa.ArrowException, OSError):
        rows = None
    shown = [] if rows is None or rows.type == pa.null() else _python(rows)
    with bs.open_file(tmp_path / "t.parquet") as file:
        for needle in [*NEEDLES, *shown, *(rows or [])]:
            try:
                verdict = file.probe("x", [needle])[0][0]
                found, others = (file.read(where=[("x", op, needle)]).num_rows for op in ("==", "!="))
                file.read(where=[("x", "<", needle)])
            except bs.UsageError:
                assert not any(needle is one for one in shown), "a value that Arrow shows can't be asked for"
                continue
            except bs.FormatError:
                assert rows is None
                continue
            equal = sum(_equal(needle, one) for one in shown)
            assert found == equal or not shown
            assert others == (len(shown) - equal if needle is not None else 0) or not shown
            assert not equal or verdict is not Verdict.ABSENT


def _python(rows: pa.ChunkedArray) -> list[Any]:
    try:
        return list(rows.to_pylist())
    except (ValueError, OverflowError):  # moments that Python does not have
        return []


def _equal(needle: Any, one: Any) -> bool:
    if isinstance(needle, pa.Scalar):
        needle = needle.as_py()
    if isinstance(needle, bytes) and isinstance(one, str):  # text may be asked for as its bytes
        return needle == one.encode()
    if isinstance(needle, str) and isinstance(one, bytes):  # as may an enum, which Arrow shows as bytes
        return needle.encode(errors="replace") == one
    if isinstance(needle, bytes) and isinstance(one, uuid.UUID):
        return needle == one.bytes
    if isinstance(one, float | np.floating) and isinstance(needle, int):
        return float(needle) == one
    return isinstance(needle, bool) is isinstance(one, bool) and bool(needle == one)


def test_an_annotation_that_does_not_fit_is_named_so(tmp_path: Path) -> None:
    def wide(element: Struct) -> None:
        element.remove(6, 7, 8, 10)
        element.set_struct(10, _of(f5=_decimal(2615, 2)))

    (tmp_path / "t.parquet").write_bytes(change_element(written(pa.table({"x": ARRAYS["FLBA(9)"]})), wide))
    with bs.open_file(tmp_path / "t.parquet") as file:
        assert file.column_type("x") == "FIXED_LEN_BYTE_ARRAY(9) unrecognised"
        # An integer must not become the size of an allocation.
        with pytest.raises(bs.UsageError, match="cannot be asked for an int"):
            file.read(where=[("x", "<", 1_900_000_000)])


def test_two_logical_types_at_once_are_refused(tmp_path: Path) -> None:
    both = lambda element: element.set_struct(10, _of(f6=Struct(), f10=_int(32, True)))  # noqa: E731
    (tmp_path / "t.parquet").write_bytes(change_element(written(pa.table({"x": ARRAYS["INT32"]})), both))
    with pytest.raises(bs.FormatError, match="several at once"):
        bs.open_file(tmp_path / "t.parquet").read()


@pytest.mark.parametrize("physical", ["INT32", "INT64", "FLBA(4)", "BYTE_ARRAY"])
def test_decimals_beyond_their_precision_are_found(tmp_path: Path, physical: str) -> None:
    numbers = [12_345_678, -12_345_678, 5, 99_999]
    if physical.startswith("INT"):
        array = pa.array(numbers, pa.int32() if physical == "INT32" else pa.int64())
    elif physical == "BYTE_ARRAY":  # not the fewest bytes either
        array = pa.array([number.to_bytes(9, "big", signed=True) for number in numbers])
    else:
        array = pa.array([number.to_bytes(4, "big", signed=True) for number in numbers], pa.binary(4))

    def decimal(element: Struct) -> None:
        element.remove(6, 7, 8, 10)
        element.set_struct(10, _of(f5=_decimal(5, 2)))

    data = written(
        pa.table({"x": array}), bloom_filter_options=_filters(array), write_page_index=True, use_dictionary=False
    )
    (tmp_path / "t.parquet").write_bytes(change_element(data, decimal))
    assert pq.read_schema(tmp_path / "t.parquet").field("x").type == pa.decimal128(5, 2)
    with bs.open_file(tmp_path / "t.parquet") as file:
        for number in numbers:
            value = Decimal(number).scaleb(-2)
            assert file.probe("x", [value]) == [[Verdict.MAYBE_PRESENT]]
            assert file.read(where=[("x", "==", value)]).column("x").to_pylist() == [value]
            assert file.read(where=[("x", "in", [value, Decimal(1)])]).num_rows == 1
            for op, expected in (("<", sum(n < number for n in numbers)), (">=", sum(n >= number for n in numbers))):
                assert file.read(where=[("x", op, value)]).num_rows == expected
        assert file.probe("x", [Decimal("77.77")]) == [[Verdict.ABSENT]]
        assert not file.read(where=[("x", "==", Decimal(10**36))]).num_rows
        assert file.read(where=[("x", "<", Decimal(10**36))]).num_rows == len(numbers)


def test_odd_needles_of_text(tmp_path: Path) -> None:
    table = pa.table({"s": ["a", "b\0", ""]})
    pq.write_table(table, tmp_path / "t.parquet", bloom_filter_options={"s": {"ndv": 9}})
    bad = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(bytes([0, 0, 0, 0, 1, 0, 0, 0])), pa.py_buffer(b"\xff")]
    )
    with bs.open_file(tmp_path / "t.parquet") as file:
        assert file.read(where=[("s", "==", "b\0")]).num_rows == 1
        for needle in (
            "\ud800",
            b"\xff",
            bad[0],
            5,
            10**5000,
            float("inf"),
            object(),
            [1],
            ("a",),
            {"a"},
            np.str_("\ud800"),
        ):
            for op in ("==", "!=", "<", ">="):
                with pytest.raises(bs.UsageError) as caught:
                    file.read(where=[("s", op, needle)])
                assert "ud800" not in repr(caught.value)
            with pytest.raises(bs.UsageError):
                file.read(where=[("s", "in", ["a", needle])])
            with pytest.raises(bs.UsageError):
                file.probe("s", [needle])
            with pytest.raises(bs.UsageError):
                file.probe("s", ["a"] * 100 + [needle])
        for values in (bad, pa.chunked_array([bad])):
            assert file.probe("s", values) == [[Verdict.ABSENT]]
