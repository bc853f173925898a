"""The hashes against a reading of the specification in plain Python, and against filters of the C++ writer."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.orc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bloomseal as bs
from bloomseal.orc.asking.values import OrcProbeSet
from bloomseal.orc.filters import BloomFilter, Filters
from bloomseal.orc.hashing import hash_bytes, hash_longs, maybe_in, positions
from bloomseal.orc.index import Bounds
from bloomseal.orc.schema import OrcColumn, OrcKind

_64 = (1 << 64) - 1


def _signed(value: int, bits: int = 64) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def _wang(key: int) -> int:
    key = _signed(~key + (key << 21))
    key = _signed(key ^ (key >> 24))
    key = _signed(key + (key << 3) + (key << 8))
    key = _signed(key ^ (key >> 14))
    key = _signed(key + (key << 2) + (key << 4))
    key = _signed(key ^ (key >> 28))
    return _signed(key + (key << 31))


def _rotl(value: int, by: int) -> int:
    return (value << by | value >> 64 - by) & _64


def _murmur(data: bytes) -> int:
    state = 104_729
    whole = len(data) // 8 * 8
    for at in range(0, whole, 8):
        word = int.from_bytes(data[at : at + 8], "little")
        state ^= _rotl(word * 0x87C37B91114253D5 & _64, 31) * 0x4CF5AD432745937F & _64
        state = (_rotl(state, 27) * 5 + 0x52DCE729) & _64
    if data[whole:]:
        word = int.from_bytes(data[whole:], "little")
        state ^= _rotl(word * 0x87C37B91114253D5 & _64, 31) * 0x4CF5AD432745937F & _64
    state ^= len(data)
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        state = (state ^ state >> 33) * factor & _64
    return _signed(state ^ state >> 33)


def _positions(hashed: int, num_hashes: int, bits: int) -> set[int]:
    first, second = _signed(hashed, 32), _signed(hashed >> 32, 32)
    combined = [_signed(first + number * second, 32) for number in range(1, num_hashes + 1)]
    return {(~one if one < 0 else one) % bits for one in combined}


_LONGS = st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=50)
_TEXTS = st.lists(st.binary(max_size=40), max_size=50)


@given(_LONGS, _TEXTS)
def test_hashes_are_those_of_the_specification(longs: list[int], texts: list[bytes]) -> None:
    assert hash_longs(np.array(longs, np.int64)).tolist() == [_wang(value) for value in longs]
    assert hash_bytes(texts).tolist() == [_murmur(value) for value in texts]


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(1, 50), st.integers(1, 300))
def test_bits_are_those_of_the_specification(hashed: int, num_hashes: int, words: int) -> None:
    bits = np.zeros(64 * words, np.uint8)
    bits[list(_positions(hashed, num_hashes, len(bits)))] = 1
    bitset = np.packbits(bits, bitorder="little")
    hashes = np.array([hashed], np.int64)
    chosen = positions(hashes, num_hashes, len(bits))
    assert maybe_in(bitset, chosen).tolist() == [True]
    for place in np.flatnonzero(bits):
        without = bits.copy()
        without[place] = 0
        assert maybe_in(np.packbits(without, bitorder="little"), chosen).tolist() == [False]


@settings(max_examples=20, deadline=None)
@given(st.integers(-(1 << 63), (1 << 63) - 1), st.binary(max_size=40))
def test_the_writer_sets_these_bits_and_no_others(number: int, data: bytes) -> None:
    sink = io.BytesIO()
    table = pa.table({"n": pa.array([number], pa.int64()), "d": pa.array([data], pa.binary())})
    pyarrow.orc.write_table(table, sink, bloom_filter_columns=[1, 2], bloom_filter_fpp=0.001)
    with bs.open_file(sink.getvalue()) as file:
        for column, hashed in (("n", _wang(number)), ("d", _murmur(data))):
            filters = file.filter(0, column)
            assert filters is not None
            (one,) = filters
            found = set(np.flatnonzero(np.unpackbits(one.bitset, bitorder="little")).tolist())
            assert found == _positions(hashed, one.num_hashes, one.num_bits)


def test_kernels_do_what_numpy_does() -> None:
    from bloomseal.orc import kernels

    chance = np.random.default_rng(7)
    hashes = chance.integers(-(1 << 63), (1 << 63) - 1, 5_000)
    hashes[:4] = [0, -1, -(1 << 63), (1 << 63) - 1]
    for num_hashes, words in ((1, 1), (7, 3), (13, 1_000), (1_200, 17)):
        bitset = chance.integers(0, 256, 8 * words).astype(np.uint8)
        bitset |= chance.integers(0, 256, 8 * words).astype(np.uint8)
        found = np.empty(len(hashes), np.bool_)
        kernels.check(hashes, num_hashes, 8 * len(bitset), bitset, found)
        assert (found == maybe_in(bitset, positions(hashes, num_hashes, 8 * len(bitset)))).all()
        assert words == 1_000 or num_hashes > 7 or found.any()
    texts = [chance.bytes(int(length)) for length in chance.integers(0, 40, 500)]
    ends = np.cumsum([0, *map(len, texts)]).astype(np.int64)
    made = np.empty(len(texts), np.uint64)
    kernels.hash_spans(np.frombuffer(b"".join(texts), np.uint8), ends, made)
    assert (made.view(np.int64) == hash_bytes(texts)).all()


@pytest.mark.parametrize("compiled", [False, True])
def test_arrays_are_asked_as_their_values_are(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("asking.values", "filters"):
        monkeypatch.setattr(f"bloomseal.orc.{module}.worthwhile", lambda _: compiled)
    chance = np.random.default_rng(3)
    numbers = chance.integers(-300, 300, 400)
    texts = pa.array([f"t{number}" * (number % 5) for number in numbers])
    floats = np.array([0.0, -0.0, 1.5, -2.25, np.inf, 1e300])
    given: list[tuple[OrcKind, Any]] = [
        (OrcKind.BYTE, numbers), (OrcKind.SHORT, numbers.astype(np.int16)), (OrcKind.LONG, pa.array(numbers)),
        (OrcKind.INT, pa.chunked_array([numbers[:100], numbers[100:]])), (OrcKind.LONG, numbers.astype(np.uint64) >> 1),
        (OrcKind.STRING, texts), (OrcKind.STRING, texts.cast(pa.large_string())[7:]), (OrcKind.VARCHAR, texts[3:90]),
        (OrcKind.BINARY, texts.cast(pa.binary())), (OrcKind.STRING, texts[:0]), (OrcKind.DOUBLE, floats),
        (OrcKind.FLOAT, floats.astype(np.float32)), (OrcKind.DOUBLE, pa.array([1.0, None, float("nan")])),
        (OrcKind.LONG, pa.array([1, None])), (OrcKind.DOUBLE, numbers),
    ]  # fmt: skip
    for kind, values in given:
        column = OrcColumn(1, 1, "a", kind)
        one = OrcProbeSet.of_column(values, column, zone="", hybrid=False)
        other = OrcProbeSet.of_column(list(values), column, zone="", hybrid=False)
        bitset = chance.integers(0, 256, 24).astype(np.uint8) | chance.integers(0, 256, 24).astype(np.uint8)
        asked = BloomFilter(2, bitset)
        assert len(one) == len(other) == len(values)
        assert (one.check(asked) == other.check(asked)).all(), kind
        for bounds in (Bounds(False, -20, 100), Bounds(True), Bounds(False, 0, None), None):
            assert (one.within(bounds) == other.within(bounds)).all(), kind


def _with_field(entry: bytes) -> bytes:
    return bytes([entry[0], entry[1] + 2]) + entry[2:] + b"\x48\x05"


def test_filters_of_one_size_are_asked_at_once() -> None:
    column, chance = OrcColumn(1, 1, "a", OrcKind.LONG), np.random.default_rng(5)
    asked = OrcProbeSet.of_column([1, 2, None, 3], column, zone="", hybrid=False)
    entries = []
    for _ in range(9):
        bits = bytes(2) + (chance.integers(0, 256, 14) | chance.integers(0, 256, 14)).astype(np.uint8).tobytes()
        entry = b"\x08\x03\x1a\x10" + bits
        entries.append(b"\x0a" + bytes([len(entry)]) + entry)
    stacked = Filters.stacked(memoryview(b"".join(entries)), 9)
    assert stacked is not None
    every = asked.check_all(stacked)
    assert every is not None
    assert [row.tolist() for row in every] == [asked.check(one).tolist() for one in stacked]
    assert Filters.stacked(memoryview(b"".join(entries)), 3) is None
    # A field of a younger writer behind each entry, or behind its bits: these are no longer a row's end,
    # and seen two bytes later they deny values; beginnings that are alike, as all are here, hide it.
    for later in ([entry + b"\x48\x05" for entry in entries], [_with_field(entry) for entry in entries]):
        alike = Filters.stacked(memoryview(b"".join(later)), 9)
        if alike is not None:
            assert [one.bitset.tolist() for one in alike] == [one.bitset.tolist() for one in stacked]
    entries[4] = entries[4].replace(b"\x08\x03", b"\x08\x04", 1)  # another number of hash functions
    assert Filters.stacked(memoryview(b"".join(entries)), 9) is None
