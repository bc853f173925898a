"""The hashes against a reading of the specification in plain Python, and against filters of the C++ writer."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.orc
from hypothesis import given, settings
from hypothesis import strategies as st

from bloomseal import orc
from bloomseal.orc.hashing import hash_bytes, hash_longs, maybe_in, positions

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
    with orc.open_file(sink.getvalue()) as file:
        for column, hashed in (("n", _wang(number)), ("d", _murmur(data))):
            filters = file.filter(0, column)
            assert filters is not None
            (one,) = filters
            found = set(np.flatnonzero(np.unpackbits(one.bitset, bitorder="little")).tolist())
            assert found == _positions(hashed, one.num_hashes, one.num_bits)
