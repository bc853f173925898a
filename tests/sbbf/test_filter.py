"""The filter object: sizes, ownership of memory, folding, merging."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from bloomseal.core import limits
from bloomseal.core.errors import FormatError, UsageError
from bloomseal.core.sbbf import ColumnType, LogicalType, PhysicalType, SplitBlockBloomFilter

INT64 = ColumnType(PhysicalType.INT64)


def filled(num_bytes: int, count: int, seed: int = 7) -> SplitBlockBloomFilter:
    made = SplitBlockBloomFilter(num_bytes)
    made.insert_hashes(np.random.default_rng(seed).integers(0, 1 << 64, count, dtype=np.uint64))
    return made


@pytest.mark.parametrize("size", [0, 31, 33, -32, limits.MAX_BITSET_BYTES + 32, 64.0, True])
def test_sizes_that_are_not_written(size: int) -> None:
    with pytest.raises(UsageError, match="multiple of 32"):
        SplitBlockBloomFilter(size)


def test_new_filter_is_empty() -> None:
    made = SplitBlockBloomFilter(96)
    assert (made.num_bytes, made.num_blocks, made.fill, made.estimated_ndv()) == (96, 3, 0.0, 0)
    assert made.is_empty
    assert made.false_positive_probability() == 0.0
    assert not made.check(1, INT64)


@pytest.mark.parametrize("size", [0, 1, 31])
def test_bitset_shorter_than_a_block(size: int) -> None:
    with pytest.raises(FormatError, match="shorter than one block"):
        SplitBlockBloomFilter.from_bitset(bytes(size))


def test_bitset_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_BITSET_BYTES", 64)
    SplitBlockBloomFilter.from_bitset(bytes(64))
    with pytest.raises(FormatError, match="longer than 64"):
        SplitBlockBloomFilter.from_bitset(bytes(65))


def test_bitset_of_an_odd_size_is_kept_whole() -> None:
    whole = filled(96, 20)
    stored = bytes(whole.bitset) + b"\xff" * 31
    read = SplitBlockBloomFilter.from_bitset(stored)
    assert (read.num_bytes, read.num_blocks) == (127, 3)
    assert bytes(read.bitset) == stored
    assert read.fill == whole.fill
    read.insert(5, INT64)
    assert bytes(read.bitset[-31:]) == b"\xff" * 31
    assert read.check(5, INT64)
    assert SplitBlockBloomFilter.from_bitset(b"\0" * 32 + b"\xff").is_empty


@pytest.mark.parametrize("make", [bytes, bytearray, lambda data: memoryview(b"x" + data)[1:]])
def test_buffer_handed_in_is_never_changed(make: object) -> None:
    original = bytes(filled(64, 5).bitset)
    buffer = make(original)
    read = SplitBlockBloomFilter.from_bitset(buffer)
    read.insert_hashes(np.arange(1 << 32, (1 << 32) + 500, dtype=np.uint64))
    read.merge(filled(64, 100))
    assert bytes(buffer) == original != bytes(read.bitset)


def test_bitset_is_not_copied_and_not_writable() -> None:
    stored = bytes(4096)
    read = SplitBlockBloomFilter.from_bitset(stored)
    assert np.frombuffer(read.bitset, np.uint8).ctypes.data == np.frombuffer(stored, np.uint8).ctypes.data
    assert read.bitset.readonly
    assert SplitBlockBloomFilter(32).bitset.readonly


def test_hash_by_hash_is_the_same_as_all_at_once() -> None:
    hashes = np.random.default_rng(3).integers(0, 1 << 64, 50, dtype=np.uint64)
    single, batch = SplitBlockBloomFilter(160), SplitBlockBloomFilter(160)
    for value in hashes.tolist():
        single.insert_hash(value)
    batch.insert_hashes(hashes)
    assert single == batch
    assert all(single.check_hash(value) for value in hashes.tolist())
    assert batch.check_hashes(hashes[::-2]).all()


@pytest.mark.parametrize("size", [32, 64, 1024])
def test_signed_hashes_are_refused_and_numpy_s_are_taken(size: int) -> None:
    """A negative number would be looked for in another block, and said to be absent."""
    made, hashes = SplitBlockBloomFilter(size), np.random.default_rng(5).integers(0, 1 << 64, 99, dtype=np.uint64)
    made.insert_hashes(hashes)
    assert all(map(made.check_hash, hashes))
    for wrong in (*hashes.view(np.int64)[hashes >> np.uint64(63) == 1], -1, 1 << 64):
        for act in (made.check_hash, made.insert_hash):
            with pytest.raises(UsageError, match="unsigned"):
                act(wrong)


@pytest.mark.parametrize("odd", [memoryview(bytes(128))[::2], memoryview(bytes(64))[::-1], np.zeros((8, 8), order="F")])
def test_bitset_in_pieces(odd: Any) -> None:
    with pytest.raises(UsageError, match="one behind the other"):
        SplitBlockBloomFilter.from_bitset(odd)


def test_hashes_at_an_odd_address() -> None:
    data = np.zeros(8 * 10 + 1, dtype=np.uint8)
    hashes = data[1:].view(np.uint64)
    hashes[:] = np.random.default_rng(4).integers(0, 1 << 64, 10, dtype=np.uint64)
    made = SplitBlockBloomFilter(64)
    made.insert_hashes(hashes)
    assert made.check_hashes(hashes).all()


@pytest.mark.parametrize("hashes", [[1, 2], np.zeros(3, np.int64), np.zeros((2, 2), np.uint64), np.uint64(1)])
def test_what_is_no_array_of_hashes(hashes: object) -> None:
    made = SplitBlockBloomFilter(32)
    for function in (made.insert_hashes, made.check_hashes):
        with pytest.raises(UsageError, match="uint64"):
            function(hashes)


@pytest.mark.parametrize("factor", [0, -1, 4, 5])
def test_factors_that_do_not_divide(factor: int) -> None:
    with pytest.raises(UsageError, match="folded"):
        filled(32 * 6, 5).fold(factor)


def test_fold_to_stops_at_the_probability() -> None:
    big = filled(1 << 16, 500)
    small = big.fold_to(0.01)
    assert small.false_positive_probability() <= 0.01 < small.fold().false_positive_probability()
    assert small == filled(small.num_bytes, 500)
    crowded = filled(64, 500)
    assert crowded.fold_to(0.01) is crowded


def test_merge_is_union() -> None:
    left, right = filled(128, 10, seed=1), filled(128, 10, seed=2)
    both = filled(128, 10, seed=1)
    both.insert_hashes(np.random.default_rng(2).integers(0, 1 << 64, 10, dtype=np.uint64))
    left.merge(right)
    assert left == both
    with pytest.raises(UsageError, match="merged"):
        left.merge(SplitBlockBloomFilter(64))


def test_values_that_do_not_fit_are_not_inserted() -> None:
    made = SplitBlockBloomFilter(32)
    with pytest.raises(UsageError, match="cannot hold"):
        made.insert(1 << 40, ColumnType(PhysicalType.INT32))
    made.insert(None, INT64)
    made.insert(float("nan"), ColumnType(PhysicalType.DOUBLE))
    assert made.is_empty
    assert made.check(None, INT64)


def test_zeros_are_found_whatever_their_sign() -> None:
    double = ColumnType(PhysicalType.DOUBLE)
    for stored, asked in ((0.0, -0.0), (-0.0, 0.0), (-0.0, 0)):
        made = SplitBlockBloomFilter(1024)
        made.insert(stored, double)
        assert made.check(asked, double)
    assert made != SplitBlockBloomFilter(1024)
    positive = SplitBlockBloomFilter(1024)
    positive.insert(0.0, double)
    assert positive != made  # each sign is inserted as itself


def test_full_filter_has_a_finite_estimate() -> None:
    full = SplitBlockBloomFilter.from_bitset(b"\xff" * 320)
    assert full.fill == full.false_positive_probability() == 1.0
    assert full.estimated_ndv() > 320


def test_it_says_its_size_and_survives_a_pickle() -> None:
    made = filled(64, 3)
    assert repr(made) == "<SplitBlockBloomFilter of 64 bytes>"
    again = pickle.loads(pickle.dumps(made))  # noqa: S301
    again.insert(9, ColumnType(PhysicalType.INT32, None, LogicalType("int", 8)))
    assert again != made
    assert again.check_hashes(np.zeros(0, np.uint64)).shape == (0,)
    assert (made == 5) is False
