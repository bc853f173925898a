"""The core's reference and the compiled kernels: one result, the specification's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from bloomseal.core.sbbf import SplitBlockBloomFilter, block, reference
from bloomseal.sbbf import batch, kernels

HASHES = st.lists(st.integers(0, (1 << 64) - 1), max_size=60)
BLOCKS = st.integers(1, 70)


def as_array(hashes: list[int]) -> np.ndarray:
    return np.array(hashes, dtype=np.uint64)


# The specification's pseudocode


def block_insert(of: list[int], x: int) -> None:
    for i, word in enumerate(block.mask(x)):
        of[i] |= word


def block_check(of: list[int], x: int) -> bool:
    return all(of[i] & word == word for i, word in enumerate(block.mask(x)))


def filter_check(blocks: list[list[int]], h: int) -> bool:
    return block_check(blocks[block.block_index(len(blocks), h)], h & 0xFFFFFFFF)


def in_plain_python(blocks: int, hashes: list[int]) -> list[list[int]]:
    made = [[0] * block.WORDS for _ in range(blocks)]
    for h in hashes:
        block_insert(made[block.block_index(blocks, h)], h & 0xFFFFFFFF)
    return made


@given(BLOCKS, HASHES, HASHES)
@settings(deadline=None)
def test_inserting_and_checking(blocks: int, inserted: list[int], asked: list[int]) -> None:
    specified = in_plain_python(blocks, inserted)
    everything = [*inserted, *asked]
    answers = [filter_check(specified, value) for value in everything]
    assert all(answers[: len(inserted)])
    for way in (reference, kernels):
        words = np.zeros(blocks * block.WORDS, dtype=np.uint32)
        way.insert(words, as_array(inserted))
        assert words.reshape(-1, block.WORDS).tolist() == specified
    assert reference.check(words, as_array(everything)).tolist() == answers
    bloom_filter = SplitBlockBloomFilter.from_bitset(words.tobytes())
    assert [bloom_filter.check_hash(value) for value in everything] == answers
    found = np.empty(len(everything), dtype=np.bool_)
    kernels.check(words, as_array(everything), found)
    assert found.tolist() == answers


@given(st.integers(0, (1 << 32) - 1))
def test_masks(x: int) -> None:
    assert reference.masks(as_array([x]))[0].tolist() == block.mask(x)
    assert all(word.bit_count() == 1 for word in block.mask(x))


@given(st.integers(1, (1 << 31) - 1), st.lists(st.integers(0, (1 << 64) - 1), min_size=1))
def test_block_numbers(blocks: int, hashes: list[int]) -> None:
    """Up to the greatest z of the specification, where the product needs all of its 64 bits."""
    specified = [block.block_index(blocks, value) for value in hashes]
    assert reference.block_indices(as_array(hashes), blocks).tolist() == specified
    assert max(specified) < blocks


def test_more_values_than_one_step_takes() -> None:
    hashes = np.random.default_rng(1).integers(0, 1 << 64, 100_000, dtype=np.uint64)
    by_numpy, by_numba = np.zeros(1 << 16, np.uint32), np.zeros(1 << 16, np.uint32)
    reference.insert(by_numpy, hashes)
    kernels.insert(by_numba, hashes)
    assert (by_numpy == by_numba).all()
    strangers = ~hashes
    found = np.empty(len(hashes), np.bool_)
    kernels.check(by_numba, strangers, found)
    assert (reference.check(by_numpy, strangers) == found).all()
    assert 0 < np.count_nonzero(found) < len(hashes)


@given(st.integers(0, 100).flatmap(lambda width: st.lists(st.binary(min_size=width, max_size=width), min_size=1)))
@settings(deadline=None)
def test_hashing_values_of_one_width(values: list[bytes]) -> None:
    expected = [xxhash.xxh64_intdigest(value) for value in values]
    data, width = np.frombuffer(b"".join(values), dtype=np.uint8), len(values[0])
    out = np.empty(len(values), dtype=np.uint64)
    kernels.hash_width(data.ctypes.data, width, out)
    assert out.tolist() == expected


@given(st.lists(st.one_of(st.none(), st.binary(max_size=100)), min_size=1), st.booleans())
@settings(deadline=None)
def test_hashing_values_of_any_width(values: list[bytes | None], wide: bool) -> None:
    expected = [xxhash.xxh64_intdigest(value or b"") for value in values]
    array = pa.array(values, type=pa.large_binary() if wide else pa.binary())
    _, offsets, data = array.buffers()
    out = np.empty(len(values), dtype=np.uint64)
    kernel, dtype = (kernels.hash_spans64, np.int64) if wide else (kernels.hash_spans32, np.int32)
    assert kernel(
        data.address if data else 0, data.size if data else 0, np.frombuffer(offsets, dtype)[: len(values) + 1], out
    )
    assert out.tolist() == expected


@given(st.lists(st.binary(max_size=40)), st.integers(-3, 3), st.integers(0, 300), st.integers(-2, 2))
@settings(deadline=None)
def test_hashing_values_behind_their_lengths(values: list[bytes], cut: int, at: int, change: int) -> None:
    """Whole, too short, too long, and with a byte changed: the two ways agree on what is no such row of values."""
    raw = bytearray(b"".join(len(value).to_bytes(4, "little") + value for value in values))
    raw = raw[:cut] if cut < 0 else raw + bytes(cut)
    if change and at < len(raw):
        raw[at] = (raw[at] + change) % 256
    data = np.frombuffer(bytes(raw), np.uint8) if raw else np.empty(0, np.uint8)
    out = np.empty(len(data) // 4, dtype=np.uint64)
    count = kernels.hash_prefixed(data.ctypes.data, len(data), out)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch, "_kernels_for", lambda _: None)
        found = batch.hash_prefixed(data, 1 << 20)
        assert (None if count < 0 else out[:count].tolist()) == (None if found is None else found.tolist())
        if not change and not cut:
            assert found is not None
            assert found.tolist() == [xxhash.xxh64_intdigest(value) for value in values]
            assert (batch.hash_prefixed(data, len(values) - 1) is None) == bool(values)
            assert kernels.hash_prefixed(data.ctypes.data, len(data), out[: len(values) - 1] if values else out) == (
                -1 if values else 0
            )


@st.composite
def _hybrids(draw: st.DrawFn) -> tuple[int, bytes, list[int]]:
    """Bit width, the RLE/bit-packing hybrid, and the indices in it (Parquet encodings)."""
    width = draw(st.integers(0, 32))
    index = st.integers(0, min((1 << width) - 1, 300))
    raw, indices = b"", []
    for packed in draw(st.lists(st.booleans(), max_size=6)):
        count = draw(st.integers(1, 20))
        if packed:
            run = draw(st.lists(index, min_size=8 * count, max_size=8 * count))
            bits = sum(value << i * width for i, value in enumerate(run))
            raw += _varint(count << 1 | 1) + bits.to_bytes(count * width, "little")
        else:
            count *= draw(st.sampled_from([1, 1000]))
            run = [draw(index)] * count
            raw += _varint(count << 1) + run[0].to_bytes((width + 7) // 8, "little")
        indices += run
    return width, raw, indices


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + _varint(value >> 7)


def _tallied(way: Any, data: bytes, width: int, count: int, most: int) -> list[int] | None:
    raw, tallies = np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8), np.zeros(most, np.int64)
    done = way.tally(*((raw,) if way is reference else (raw.ctypes.data, len(raw))), width, count, tallies)
    return tallies.tolist() if done else None


@given(_hybrids(), st.integers(0, 9))
@settings(deadline=None)
def test_tallying_levels_and_indices(case: tuple[int, bytes, list[int]], short: int) -> None:
    width, raw, numbers = case
    count = max(len(numbers) - short, 0)
    expected = np.bincount(numbers[:count], minlength=301).tolist() if count else [0] * 301
    for way in (reference, kernels):
        assert _tallied(way, raw, width, count, 301) == expected
        assert _tallied(way, raw, width, len(numbers) + 1, 301) is None
        assert (_tallied(way, raw, width, len(numbers), max(numbers, default=0)) is None) == bool(numbers)
        if numbers and width:
            assert _tallied(way, raw[:-1], width, len(numbers), 301) is None


@pytest.mark.parametrize("way", [reference, kernels])
@pytest.mark.parametrize(
    "header", [b"\x00", b"\x01", b"\x90\x80\x80\x80\x10"], ids=["no repeats", "no group", "33 bits"]
)
def test_runs_that_decoders_read_otherwise(way: Any, header: bytes) -> None:
    """Empty runs cost time and hold nothing; of a header beyond 32 bits others read only the lower 32."""
    assert _tallied(way, header + b"\0" + bytes([16, 1]), 1, 8, 2) is None


def test_tallying_more_than_one_step_takes() -> None:
    numbers = np.random.default_rng(1).integers(0, 1 << 11, 200_000)
    bits = np.unpackbits(numbers.astype("<u2").view(np.uint8).reshape(-1, 2), axis=1, bitorder="little")[:, :11]
    raw = _varint(len(numbers) // 8 << 1 | 1) + np.packbits(bits.reshape(-1), bitorder="little").tobytes()
    for count in (len(numbers), len(numbers) - 3, 1 << 15, (1 << 15) + 1):
        expected = np.bincount(numbers[:count], minlength=1 << 11).tolist()
        for way in (reference, kernels):
            assert _tallied(way, raw, 11, count, 1 << 11) == expected


@given(st.binary(max_size=60), st.integers(0, 32), st.integers(0, 200), st.integers(0, 40))
@settings(deadline=None, max_examples=500)
def test_any_bytes_for_levels_and_indices(raw: bytes, width: int, count: int, most: int) -> None:
    assert _tallied(reference, raw, width, count, most) == _tallied(kernels, raw, width, count, most)


@given(BLOCKS, HASHES)
def test_exact_probability(blocks: int, hashes: list[int]) -> None:
    expected = 0.0
    for words in in_plain_python(blocks, hashes):
        product = 1.0
        for word in words:
            product *= word.bit_count() / 32
        expected += product / blocks
    words = np.array(in_plain_python(blocks, hashes), dtype=np.uint32).reshape(-1)
    assert abs(reference.false_positive_probability(words) - expected) < 1e-12


@given(st.lists(st.binary(max_size=40), max_size=60))
def test_kernels_that_are_handed_in_hash_as_the_reference_does(values: list[bytes]) -> None:
    data = np.frombuffer(b"".join(values) or b"\0", dtype=np.uint8)
    offsets = np.cumsum([0, *map(len, values)]).astype(np.int64)
    expected = [xxhash.xxh64_intdigest(value) for value in values]
    for compiled in (None, kernels):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(batch, "_kernels_for", lambda _, compiled=compiled: compiled)
            for way in (reference, batch):
                assert way.hash_spans(data, offsets).tolist() == expected
                rows = np.frombuffer(b"".join(value.ljust(40, b"\0") for value in values), dtype=np.uint8)
                padded = [xxhash.xxh64_intdigest(value.ljust(40, b"\0")) for value in values]
                assert way.hash_fixed(rows, 40, len(values)).tolist() == padded
