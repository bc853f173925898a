"""Arrow arrays to hashes: layouts, refusals, and arrays that point outside their buffers; with and without kernels."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash

from bloomseal.core.errors import FormatError, UsageError
from bloomseal.core.sbbf import ColumnType, LogicalType, PhysicalType, hash_array, hash_bytes
from bloomseal.sbbf import batch, kernels

BINARY = ColumnType(PhysicalType.BYTE_ARRAY)
LAYOUTS = [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()]


@pytest.fixture(params=["numpy", "numba"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways that a batch can take, whatever its size."""
    monkeypatch.setattr(batch, "_kernels", kernels if request.param == "numba" else None)
    monkeypatch.setattr(batch, "_spent", -(1 << 60))


def column(physical: str, length: int | None = None, kind: str = "", **rest: Any) -> ColumnType:
    return ColumnType(PhysicalType[physical], length, LogicalType(kind, **rest) if kind else None)


def digests(values: list[bytes]) -> list[int]:
    return [xxhash.xxh64_intdigest(value) for value in values]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_every_length_in_every_layout(layout: pa.DataType) -> None:
    words = [bytes(97 + (i * j) % 26 for j in range(i)) for i in range(101)]
    values = [None if i % 7 == 1 else word for i, word in enumerate(words)]
    array = pa.array(values, type=pa.binary()).cast(layout)
    assert hash_array(array, BINARY).tolist() == digests([value for value in values if value is not None])
    assert hash_array(array[7:60], BINARY).tolist() == digests([value for value in values[7:60] if value is not None])
    nested = pa.chunked_array([array[:10], array[10:10], array[40:]])
    kept = [*values[:10], *values[40:]]
    assert hash_array(nested, BINARY).tolist() == digests([value for value in kept if value is not None])
    assert hash_array(array[:0], BINARY).tolist() == []


@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 20, 31, 32, 33, 63, 64, 100])
def test_fixed_widths(width: int) -> None:
    values = [np.random.default_rng(i).bytes(width) for i in range(9)] + [None]
    array = pa.array(values, type=pa.binary(width))
    column_type = column("FIXED_LEN_BYTE_ARRAY", width)
    assert hash_array(array, column_type).tolist() == digests(values[:-1])
    assert hash_array(array[3:], column_type).tolist() == digests(values[3:-1])


def test_values_of_no_bytes() -> None:
    assert hash_array(pa.array([b""], type=pa.binary(0)), column("FIXED_LEN_BYTE_ARRAY", 0)).tolist() == digests([b""])


def test_int96_as_twelve_bytes() -> None:
    values = [struct.pack("<qi", 5, 2440588), struct.pack("<qi", 6, 2440589)]
    assert hash_array(pa.array(values, type=pa.binary(12)), column("INT96")).tolist() == digests(values)


def test_memory_at_an_odd_address() -> None:
    numbers = np.arange(10, dtype="<i8").tobytes()
    shifted = pa.py_buffer(b"x" + numbers).slice(1)
    array = pa.Array.from_buffers(pa.int64(), 10, [None, shifted])
    assert hash_array(array, column("INT64")).tolist() == digests([numbers[i : i + 8] for i in range(0, 80, 8)])
    offsets = pa.py_buffer(b"x" + np.array([0, 1, 3], dtype="<i4").tobytes()).slice(1)
    words = pa.Array.from_buffers(pa.binary(), 2, [None, offsets, pa.py_buffer(b"abc")])
    assert hash_array(words, BINARY).tolist() == digests([b"a", b"bc"])


def test_dictionaries_hash_only_what_is_used() -> None:
    indices = pa.array([3, None, 1, 3, 1], type=pa.int8())
    array = pa.DictionaryArray.from_arrays(indices, pa.array(["never", "a", "neither", None, "b"]))
    assert hash_array(array, BINARY).tolist() == digests([b"a"])
    assert hash_array(array[:2], BINARY).tolist() == []
    chunks = pa.chunked_array([array[:2], array[2:]])
    assert hash_array(chunks, BINARY).tolist() == digests([b"a"])


def test_nothing_to_hash() -> None:
    for array in (pa.nulls(5), pa.nulls(5, pa.string()), pa.chunked_array([], type=pa.string())):
        found = hash_array(array, BINARY)
        assert (found.dtype, found.shape) == (np.uint64, (0,))


def test_units_are_converted_where_no_digit_is_lost() -> None:
    micros = column("INT64", None, "timestamp", unit="us")
    assert hash_array(pa.array([5], pa.timestamp("ms")), micros).tolist() == [hash_bytes(struct.pack("<q", 5000))]
    assert hash_array(pa.array([7000], pa.timestamp("ns")), micros).tolist() == [hash_bytes(struct.pack("<q", 7))]
    with pytest.raises(UsageError) as caught:
        hash_array(pa.array([7001], pa.timestamp("ns")), micros)
    assert "7001" not in str(caught.value)


@pytest.mark.parametrize("offsets", [[0, 5], [2, 1], [-1, 1], [0, 3, 2], [0, 5, 3], [0, -1, 3]], ids=str)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_offsets_that_leave_the_buffer(offsets: list[int], dtype: Any) -> None:
    """A hostile offset must not read foreign memory, nor hash less than it says."""
    with pytest.raises(FormatError, match="outside its own buffers"):
        batch.hash_spans(np.frombuffer(b"abc", np.uint8), np.array(offsets, dtype=dtype))


def test_array_with_an_offset_that_leaves_its_buffer() -> None:
    offsets = pa.py_buffer(np.array([0, 1 << 30, 3], dtype=np.int32))  # pyarrow itself looks at the first and last
    array = pa.Array.from_buffers(pa.binary(), 2, [None, offsets, pa.py_buffer(b"abc")])
    with pytest.raises(FormatError, match="outside its own buffers"):
        hash_array(array, BINARY)


@pytest.mark.parametrize("index", [-1, 2, 1 << 30])
def test_indices_that_leave_their_dictionary(index: int) -> None:
    indices = pa.array([0, None, index], pa.int32())
    array = pa.DictionaryArray.from_arrays(indices, pa.array([b"a", b"b"]), safe=False)
    with pytest.raises(FormatError, match="outside its dictionary"):
        hash_array(array, BINARY)


def test_buffers_shorter_than_their_values() -> None:
    data = np.zeros(31, dtype=np.uint8)
    with pytest.raises(FormatError, match="outside its own buffers"):
        batch.hash_fixed(data, 8, 4)


def test_durations_are_their_bits() -> None:
    array = pa.array([5, None, -5], pa.duration("us"))
    assert hash_array(array, column("INT64")).tolist() == digests([struct.pack("<q", 5), struct.pack("<q", -5)])


@pytest.mark.parametrize(
    ("length", "index", "start"), [(13, 0, 1), (13, 1, 0), (13, -1, 0), (13, 0, -5), (-1, 0, 0), ((1 << 31) - 1, 0, 0)]
)
def test_views_that_leave_their_buffers(length: int, index: int, start: int) -> None:
    view = struct.pack("<i4sii", length, b"abcd", index, start)
    array = pa.Array.from_buffers(pa.binary_view(), 1, [None, pa.py_buffer(view), pa.py_buffer(b"abcdefghijklm")])
    with pytest.raises(FormatError, match="outside its own buffers"):
        hash_array(array, BINARY)


def test_what_stands_in_a_null_view_is_not_looked_at() -> None:
    views = struct.pack("<i4sii", 1 << 30, b"abcd", 99, 99) + struct.pack("<i12s", 2, b"ok")
    array = pa.Array.from_buffers(pa.binary_view(), 2, [pa.py_buffer(b"\x02"), pa.py_buffer(views)])
    assert hash_array(array, BINARY).tolist() == digests([b"ok"])


@pytest.mark.parametrize(
    ("array", "column_type"),
    [
        (pa.array([1], pa.int64()), column("INT32")),
        (pa.array([1], pa.int32()), column("INT64")),
        (pa.array([1], pa.uint64()), column("INT32")),
        (pa.array([1.0], pa.float32()), column("DOUBLE")),
        (pa.array([1.0], pa.float64()), column("FLOAT")),
        (pa.array([1.0], pa.float16()), column("FIXED_LEN_BYTE_ARRAY", 4)),
        (pa.array([True]), column("BOOLEAN")),
        (pa.array([b"12"], pa.binary(2)), column("FIXED_LEN_BYTE_ARRAY", 3)),
        (pa.array([b"12"], pa.binary(2)), BINARY),
        (pa.array([b"12"]), column("FIXED_LEN_BYTE_ARRAY", 2)),
        (pa.array([b"12"]), column("INT96")),
        (pa.array([5], pa.timestamp("us")), column("INT96")),
        (pa.array([5], pa.timestamp("us", "UTC")), column("INT64", None, "timestamp", unit="us")),
        (pa.array([5], pa.timestamp("us")), column("INT64", None, "timestamp", unit="us", utc=True)),
        (pa.array([5], pa.time32("ms")), column("INT64")),
        (pa.array([5], pa.date64()), column("INT64")),
        (pa.array([Decimal("1.5")]), BINARY),
        (pa.array([Decimal("1.5")], pa.decimal128(9, 1)), column("INT32", None, "decimal", precision=9, scale=2)),
        (pa.array([Decimal("1.5")], pa.decimal128(10, 2)), column("INT32", None, "decimal", precision=9, scale=2)),
        (pa.array([Decimal("1.5")], pa.decimal128(9, 2)), column("INT32")),
        (pa.array([[1]]), column("INT32")),
        (pa.array([{"a": 1}]), column("INT32")),
    ],
    ids=lambda part: str(getattr(part, "type", part)),
)
def test_arrays_that_are_not_what_the_column_stores(array: pa.Array, column_type: ColumnType) -> None:
    with pytest.raises(UsageError, match="are not what a"):
        hash_array(array, column_type)
