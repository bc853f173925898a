"""Compressed streams of chunks that are stored or shrunk, and the filters in them asked in one step."""

from __future__ import annotations

import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bloomseal.core.errors import FormatError
from bloomseal.orc.chunks import Compression, deflate, inflate
from bloomseal.orc.filters import Filters, parsed_filter
from bloomseal.orc.hashing import maybe_in


def _stored(data: bytes, size: int, shrunk: bool = False) -> bytes:
    """Chunks stored as they are; of `shrunk` ones the last is deflated."""
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    heads = [(len(part) << 1 | 1).to_bytes(3, "little") for part in parts]
    if shrunk:
        deflater = zlib.compressobj(wbits=-15)
        parts[-1] = deflater.compress(parts[-1]) + deflater.flush()
        heads[-1] = (len(parts[-1]) << 1).to_bytes(3, "little")
    return b"".join(head + part for head, part in zip(heads, parts, strict=True))


@given(st.binary(min_size=8, max_size=300), st.integers(1, 400), st.booleans())
def test_stored_and_shrunk_chunks_are_put_together(data: bytes, size: int, shrunk: bool) -> None:
    assert bytes(inflate(memoryview(_stored(data, size, shrunk)), Compression.ZLIB, 400, 1000)) == data


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZLIB, Compression.SNAPPY, Compression.ZSTD])
def test_deflated_bytes_inflate_to_the_same(compression: Compression) -> None:
    chance = np.random.default_rng(3)
    noise = chance.integers(0, 256, 1000, np.uint8).tobytes()
    for data in (b"", b"a", noise, noise[:96], noise + bytes(500), bytes(500) + noise, bytes(2000)):
        stored = memoryview(deflate(data, compression, 96))
        assert bytes(inflate(stored, compression, 96, 5000)) == data


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_stream_that_ends_within_a_chunk_is_refused(cut: int) -> None:
    stored = _stored(bytes(range(90)), 40)
    if cut == 90 % 40 + 3:
        return
    with pytest.raises(FormatError):
        inflate(memoryview(stored)[:-cut], Compression.ZLIB, 400, 1000)


def test_limits_hold_for_stored_chunks_too() -> None:
    for block, limit in ((39, 1000), (400, 80)):
        with pytest.raises(FormatError, match="beyond its limit"):
            inflate(memoryview(_stored(bytes(90), 40)), Compression.ZLIB, block, limit)


def test_many_small_chunks_take_no_more_memory_than_they_hold() -> None:
    stored = memoryview((b"\x03\x00\x00a" + b"\x05\x00\x00ab") * 40_000)
    tracemalloc.start()
    try:
        whole = inflate(stored, Compression.ZLIB, 400, 1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert bytes(whole) == b"aab" * 40_000


@settings(max_examples=60)
@given(
    st.integers(2, 12),
    st.integers(1, 9),
    st.integers(1, 6),
    st.integers(9, 200),
    st.integers(0, 1 << 30),
    st.booleans(),
)
def test_stacked_filters_answer_as_each_alone(
    count: int, words: int, k: int, size: int, seed: int, shrunk: bool
) -> None:
    chance = np.random.default_rng(seed)
    bitsets = chance.integers(0, 256, (count, 8 * words), np.uint8) | chance.integers(
        0, 256, (count, 8 * words), np.uint8
    )
    bitsets[chance.integers(0, count), :8] = 0
    bitsets[chance.integers(0, count)] = 0
    entries = [bytes([8, k, 0x1A, 8 * words]) + one.tobytes() for one in bitsets]
    data = b"".join(bytes([0x0A, len(one)]) + one for one in entries)
    stored = memoryview(_stored(data, size, shrunk))
    found = Filters.stacked(inflate(stored, Compression.ZLIB, 400, 1 << 20), count)
    assert found is not None
    assert [one.bitset.tolist() for one in found] == bitsets.tolist()
    assert found.empty.tolist() == [not one.any() for one in bitsets]
    chosen = chance.integers(0, 64 * words, (20, k))
    alone = [maybe_in(parsed_filter(memoryview(one)).bitset, chosen).tolist() for one in entries]
    assert found.hits(chosen).tolist() == alone


def test_one_entry_of_another_head_is_asked_alone() -> None:
    entry = bytes([8, 2, 0x1A, 8]) + bytes(8)
    data = [bytes([0x0A, len(entry)]) + entry for _ in range(9)]
    assert Filters.stacked(memoryview(b"".join(data)), 9) is not None
    for place in range(9):
        for at in (0, 1, 2, 3, 4, 5):
            other = list(data)
            other[place] = bytes(byte ^ (1 if at == where else 0) for where, byte in enumerate(other[place]))
            try:
                found = Filters.stacked(memoryview(b"".join(other)), 9)
            except FormatError:
                continue
            assert found is None, (place, at)
