"""Key sets: the hashes between two bounds are never too few, and hardly too many."""

from __future__ import annotations

import datetime as dt
import pickle
import uuid

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomseal.core.errors import FormatError, UsageError
from bloomseal.core.sbbf import (
    ColumnType,
    LogicalType,
    PhysicalType,
    SplitBlockBloomFilter,
    encode_value,
    hash_bytes,
    probe,
)
from bloomseal.sbbf import KeySet, batch

TEXT = ColumnType(PhysicalType.BYTE_ARRAY, logical=LogicalType("string"))
BYTES = ColumnType(PhysicalType.BYTE_ARRAY)
INT64 = ColumnType(PhysicalType.INT64)
INT32 = ColumnType(PhysicalType.INT32)
UINT64 = ColumnType(PhysicalType.INT64, logical=LogicalType("int", bit_width=64, signed=False))
DATE = ColumnType(PhysicalType.INT32, logical=LogicalType("date"))
MICROS = ColumnType(PhysicalType.INT64, logical=LogicalType("timestamp", unit="us", utc=True))
DOUBLE = ColumnType(PhysicalType.DOUBLE)
UUID = ColumnType(PhysicalType.FIXED_LEN_BYTE_ARRAY, 16, LogicalType("uuid"))


def hashes(values: list[object], kind: ColumnType) -> set[int]:
    return {hash_bytes(data) for value in values for data in encode_value(value, kind) or ()}


@given(
    st.lists(st.binary(max_size=12), max_size=100),
    st.binary(max_size=12),
    st.binary(max_size=12),
    st.binary(max_size=20),
)
def test_byte_strings_between_bounds_are_all_there(tails: list[bytes], low: bytes, high: bytes, common: bytes) -> None:
    values = [common + tail for tail in tails]
    keys = KeySet.of(values, BYTES)
    for below, above in ((low, high), (common + low, common + high)):
        inside = [value for value in values if below <= value <= above]
        assert hashes(inside, BYTES) <= set(keys.between(below, above).tolist())


@given(st.data(), st.sampled_from([INT32, INT64, UINT64]))
def test_integers_between_bounds_are_exactly_there(data: st.DataObject, kind: ColumnType) -> None:
    signed, width = kind is not UINT64, 4 if kind is INT32 else 8
    least, greatest = (-(1 << 8 * width - 1), (1 << 8 * width - 1) - 1) if signed else (0, (1 << 64) - 1)
    numbers = st.integers(least, greatest)
    values = data.draw(st.lists(numbers, max_size=100))
    low, high = data.draw(numbers), data.draw(numbers)
    found = KeySet.of(values, kind).between(
        low.to_bytes(width, "little", signed=signed), high.to_bytes(width, "little", signed=signed)
    )
    # Bounds upside down bound nothing.
    assert set(found.tolist()) == hashes([value for value in values if low > high or low <= value <= high], kind)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pa.array(["b", None, "a", "a"]), TEXT),
        (pa.array(["b", None, "a" * 20, "c"], pa.string_view()), TEXT),
        (pa.chunked_array([["b"], ["a", None]]), TEXT),
        (pa.array(["b", "a", None]).dictionary_encode(), TEXT),
        (pa.array([3, None, -1]), INT64),
        (pa.array([1 << 63, 5, None], pa.uint64()), UINT64),
        (np.array([3, -1, 2**40]), INT32),
        ([dt.date(2024, 1, 1), None, dt.date(1960, 1, 1)], DATE),
        (pa.array([dt.date(2024, 1, 1), None, dt.date(1960, 1, 1)]), DATE),
        (pa.array([5, None, -7], pa.timestamp("us", "UTC")), MICROS),
        (np.array(["2024-01-01", "NaT", "1960-01-01"], dtype="M8[us]"), ColumnType(
            PhysicalType.INT64, logical=LogicalType("timestamp", unit="us", utc=False))),
        ([uuid.UUID(int=7), uuid.UUID(int=5)], UUID),
        (pa.array([uuid.UUID(int=7).bytes, uuid.UUID(int=5).bytes], pa.uuid()), UUID),
        ([0.0, 1.5, None], DOUBLE),
        ([], TEXT),
        (pa.nulls(3), TEXT),
    ],
    ids=str,
)  # fmt: skip
def test_every_kind_of_sequence_gives_the_same_hashes(values: object, kind: ColumnType) -> None:
    keys = KeySet.of(values, kind)  # type: ignore[arg-type]
    plain = values.tolist() if isinstance(values, np.ndarray) else list(values)  # type: ignore[call-overload]
    plain = [value for value in plain if value is not None and (not isinstance(value, pa.Scalar) or value.is_valid)]
    wanted = hashes(plain, kind)
    assert set(keys.between(None, None).tolist()) == wanted
    assert len(keys) == len(wanted)
    assert not keys.undecided
    for value in plain:
        for data in encode_value(value, kind) or ():
            assert hash_bytes(data) in keys.between(data, data)


def test_bounds_of_long_common_beginnings_still_narrow() -> None:
    keys = KeySet.of([f"urn:customer:{i:09}" for i in range(10_000)], TEXT)
    assert len(keys.between(b"urn:customer:000000100", b"urn:customer:000000199")) == 100
    assert len(keys.between(b"a", b"b")) == 0
    assert len(keys.between(b"urn:customer", b"v")) == 10_000


def test_floats_are_not_narrowed_and_nan_is_never_decided() -> None:
    keys = KeySet.of([1.0, 0.0, float("nan")], DOUBLE)
    assert keys.undecided
    assert len(keys.between(b"\0" * 8, b"\0" * 8)) == 3  # 0.0 is asked for as -0.0 too


def test_what_was_dumped_is_loaded_and_nothing_is_pickled_or_shown() -> None:
    for kind, values in ((TEXT, ["x1", "x2", "y"]), (DOUBLE, [1.0, float("nan")]), (INT64, [])):
        keys = KeySet.of(values, kind)
        again = KeySet.load(keys.dump(), kind)
        assert set(again.between(None, None).tolist()) == set(keys.between(None, None).tolist())
        assert again.undecided == keys.undecided
    assert len(KeySet.load(KeySet.of(["x1", "x2", "y"], TEXT).dump(), TEXT).between(b"x1", b"x1")) == 1
    with pytest.raises(UsageError):
        pickle.dumps(keys)
    with pytest.raises(FormatError):
        KeySet.load(b"\x10\0\0\0[]", INT64)
    assert "x1" not in repr(KeySet.of(["x1"], TEXT))


@pytest.mark.parametrize("kind", [INT64, TEXT])
def test_what_bounds_and_a_filter_leave_holds_every_value_that_may_be_there(
    kind: ColumnType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "worthwhile", lambda _: False)  # with kernels, hashes tell the rows
    numbers = [*range(0, 5000, 2), *range(0, 500, 2)]
    values = [f"v{number:05}" for number in numbers] if kind is TEXT else numbers
    encoded = {value: encode_value(value, kind)[0] for value in values}  # type: ignore[index]
    keys = KeySet.of([*values, None], kind)
    bloom_filter = SplitBlockBloomFilter(4096)
    there = values[100:200]
    for value in there:
        bloom_filter.insert_hash(hash_bytes(encoded[value]))
    assert keys.left(None, None)[0] == len(set(values))
    for bounds in (None, (encoded[values[100]], encoded[values[199]])):
        count, left = keys.left(bounds, bloom_filter)
        assert left is not None
        assert count == len(left) < 200
        assert {*there} <= {*left.to_pylist()}
    assert keys.left((encoded[values[0]], encoded[values[9]]), None)[1].to_pylist() == values[:10]  # type: ignore[union-attr]


def test_values_whose_hashes_are_equal_are_both_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """XXH64 has no key: whoever writes the rows may choose values that collide, and a row must not get lost for it."""
    monkeypatch.setattr(probe, "hash_array", lambda array, _: np.zeros(len(array), dtype=np.uint64))
    numbers = list(range(100))
    count, left = KeySet.of(numbers, INT64).left(None, None)
    assert count == 100
    assert left is not None
    assert sorted(left.to_pylist()) == numbers


def test_values_whose_hashes_are_equal_keep_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or bounds around the one would say that the other is in no row group."""
    monkeypatch.setattr(probe, "hash_bytes", lambda _: 0)
    numbers = [*range(20), *range(5)]
    keys = KeySet.of(numbers, INT64)
    assert len(keys) == 20
    for number in numbers:
        (data,) = encode_value(number, INT64) or ()
        assert len(keys.between(data, data)) == 1


@pytest.mark.parametrize(
    "values", [pa.array([[1]]), pa.array([{"a": 1}]), pa.array([[("a", 1)]], pa.map_("string", "int8"))]
)
def test_values_that_have_no_order_are_refused_as_all_others_of_the_wrong_kind(values: pa.Array) -> None:
    for kind in (INT64, TEXT):
        for keys in (values, pa.chunked_array([values, values])):
            with pytest.raises(UsageError, match="cannot be asked"):
                KeySet.of(keys, kind)


def test_values_within_bounds_are_asked_of_a_filter() -> None:
    bloom_filter = SplitBlockBloomFilter(1024)
    bloom_filter.insert_hashes(np.array([hash_bytes((7).to_bytes(8, "little"))], dtype=np.uint64))
    keys = KeySet.of([3, 5, 7], INT64)
    low, high = ((n).to_bytes(8, "little") for n in (4, 6))
    assert len(keys.within(None)) == 3
    assert not keys.within(None).none_in(bloom_filter)
    assert keys.within((low, high)).none_in(bloom_filter)
    # Of NaN no hash decides, so the filter excludes nothing.
    doubtful = KeySet.of([3.0, float("nan")], DOUBLE).within(None)
    assert not doubtful.none_in(bloom_filter)
    assert doubtful.hashes()[2].any()
