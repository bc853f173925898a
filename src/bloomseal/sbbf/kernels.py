"""Compiled batch operations (numba). `batch` imports this module when a batch is large enough to earn it back.

Kernels that read Arrow data take addresses, not arrays: strings start at any byte, and an unaligned eight-byte load
is one instruction. Every address is checked against its buffer's size first; offsets may come from a hostile file.
All of them stand in one file: numba's cache does not see that another one has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from .._compiled import compiled_for, frozen
from ..core.sbbf.block import SALT, WORDS


def _inline(function: Any) -> Any:
    return numba.njit(inline="always")(function)


def _intrinsic(function: Callable[..., Any]) -> Any:
    return intrinsic(function)


def _loader(bits: int) -> Any:
    """An unaligned little-endian load of `bits` bits from an address, widened to 64."""

    @_intrinsic
    def load(_typing: Any, _address: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], ir.IntType(bits).as_pointer())
            value = builder.load(pointer, align=1)
            return value if bits == 64 else builder.zext(value, ir.IntType(64))

        return types.uint64(types.intp), generate

    return load


_load64, _load32, _load8 = _loader(64), _loader(32), _loader(8)


# XXH64 with seed 0 -----------------------------------------------------------------------------------------------

_P1: Final = np.uint64(0x9E3779B185EBCA87)
_P2: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_P3: Final = np.uint64(0x165667B19E3779F9)
_P4: Final = np.uint64(0x85EBCA77C2B2AE63)
_P5: Final = np.uint64(0x27D4EB2F165667C5)
_START1: Final = np.uint64((int(_P1) + int(_P2)) % (1 << 64))
_START4: Final = np.uint64(-int(_P1) % (1 << 64))


@_inline
def _rotl(x: Any, bits: Any) -> Any:
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


@_inline
def _round(accumulator: Any, lane: Any) -> Any:
    return _rotl(accumulator + lane * _P2, 31) * _P1


@_inline
def _take64(h: Any, lane: Any) -> Any:
    return _rotl(h ^ _round(np.uint64(0), lane), 27) * _P1 + _P4


@_inline
def _take32(h: Any, lane: Any) -> Any:
    return _rotl(h ^ (lane * _P1), 23) * _P2 + _P3


@_inline
def _avalanche(h: Any) -> Any:
    h = (h ^ (h >> np.uint64(33))) * _P2
    h = (h ^ (h >> np.uint64(29))) * _P3
    return h ^ (h >> np.uint64(32))


@numba.njit
def _xxh64(address: Any, length: Any) -> Any:
    """XXH64 of `length` bytes at `address`; the caller has checked that they are there."""
    at, end = address, address + length
    if length >= 32:
        lane1, lane2, lane3, lane4 = _START1, _P2, np.uint64(0), _START4
        while at + 32 <= end:
            lane1 = _round(lane1, _load64(at))
            lane2 = _round(lane2, _load64(at + 8))
            lane3 = _round(lane3, _load64(at + 16))
            lane4 = _round(lane4, _load64(at + 24))
            at += 32
        h = _rotl(lane1, 1) + _rotl(lane2, 7) + _rotl(lane3, 12) + _rotl(lane4, 18)
        h = (h ^ _round(np.uint64(0), lane1)) * _P1 + _P4
        h = (h ^ _round(np.uint64(0), lane2)) * _P1 + _P4
        h = (h ^ _round(np.uint64(0), lane3)) * _P1 + _P4
        h = (h ^ _round(np.uint64(0), lane4)) * _P1 + _P4
        h += np.uint64(length)
    else:
        h = _P5 + np.uint64(length)
    while at + 8 <= end:
        h = _take64(h, _load64(at))
        at += 8
    if at + 4 <= end:
        h = _take32(h, _load32(at))
        at += 4
    while at < end:
        h = _rotl(h ^ (_load8(at) * _P5), 11) * _P1
        at += 1
    return _avalanche(h)


@compiled_for(types.intp, types.intp, types.uint64[::1])
def hash_width(address: Any, width: Any, out: Any) -> None:
    """XXH64 of ``len(out)`` values of `width` bytes, one after the other from `address`."""
    for i in range(len(out)):
        out[i] = _xxh64(address + i * width, width)


def _hash_spans(address: Any, size: Any, offsets: Any, out: Any) -> Any:
    start = np.int64(offsets[0])
    if start < 0:
        return False
    for i in range(len(out)):
        end = np.int64(offsets[i + 1])
        if end < start or end > size:  # the only guard between an offset and foreign memory
            return False
        out[i] = _xxh64(address + start, end - start)
        start = end
    return True


def _spans_kernel(offset: Any) -> Any:
    return compiled_for(types.intp, types.intp, frozen(offset), types.uint64[::1], result=types.boolean)(_hash_spans)


hash_spans32 = _spans_kernel(types.int32)
hash_spans64 = _spans_kernel(types.int64)


@compiled_for(types.intp, types.intp, types.uint64[::1], result=types.intp)
def hash_prefixed(address: Any, size: Any, out: Any) -> Any:
    """XXH64 of values that each stand behind their length (u32le); returns how many there are.

    −1 where they do not fill the `size` bytes exactly, or are more than ``len(out)``.
    """
    at, count = np.int64(0), 0
    while at + 4 <= size:
        length = np.int64(_load32(address + at))
        at += 4
        if length > size - at or count == len(out):  # the only guard between a length and foreign memory
            return -1
        out[count] = _xxh64(address + at, length)
        at += length
        count += 1
    return count if at == size else -1


_TOO_LONG: Final = np.uint64(1 << 32)


@compiled_for(types.intp, types.intp, types.intp, types.intp, types.int64[::1], result=types.boolean)
def tally(address: Any, size: Any, width: Any, count: Any, tallies: Any) -> Any:
    """Add to ``tallies[v]`` how often v is among `count` numbers in the RLE/bit-packing hybrid (Parquet encodings).

    False where the `size` bytes hold fewer of them, or one beyond `tallies`.
    """
    at, limit = np.int64(0), np.uint64(len(tallies))
    ones = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    while count > 0:
        header, shift = np.uint64(0), np.uint64(0)
        while True:
            if at >= size or shift > np.uint64(28):
                return False
            byte = _load8(address + at)
            header |= (byte & np.uint64(0x7F)) << shift
            shift += np.uint64(7)
            at += 1
            if byte < np.uint64(0x80):
                break
        if header < np.uint64(2) or header >= _TOO_LONG:  # an empty run, or one that decoders cut to 32 bits
            return False
        repeats, packed = np.int64(header >> np.uint64(1)), header & np.uint64(1)
        needed = repeats * width if packed else (width + 7) // 8
        if needed > size - at:  # the only guard between a run's header and foreign memory
            return False
        run = min(8 * repeats if packed else repeats, count)
        count -= run
        if packed and width:
            held, bits, byte_at = np.uint64(0), 0, address + at
            for _ in range(run):
                while bits < width:
                    held |= _load8(byte_at) << np.uint64(bits)
                    byte_at += 1
                    bits += 8
                value = held & ones
                if value >= limit:
                    return False
                tallies[value] += 1
                held >>= np.uint64(width)
                bits -= width
        else:
            value = np.uint64(0)
            for i in range(needed):
                value |= _load8(address + at + i) << np.uint64(8 * i)
            if value >= limit:
                return False
            tallies[value] += run
        at += needed
    return True


# Blocks ----------------------------------------------------------------------------------------------------------
#
# A block is one vector of eight 32-bit words, which is how the specification means it and how AVX2 holds it. numba's
# own loops do not vectorise here (it widens 32-bit arithmetic to 64), at a fifth of the speed; hence LLVM's words.

_WORD: Final = ir.IntType(32)
_BLOCK: Final = ir.VectorType(_WORD, WORDS)


def _block_of(words: Sequence[int]) -> Any:
    return ir.Constant(_BLOCK, [_WORD(word) for word in words])


def _mask(builder: Any, x: Any) -> Any:
    """The specification's mask(x), all eight words at once."""
    unset = ir.Constant(_BLOCK, ir.Undefined)
    repeated = builder.shuffle_vector(builder.insert_element(unset, x, _WORD(0)), unset, _block_of([0] * WORDS))
    y = builder.mul(repeated, _block_of(SALT))
    return builder.shl(_block_of([1] * WORDS), builder.lshr(y, _block_of([27] * WORDS)))


def _block_pointer(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    array = context.make_array(signature.args[0])(context, builder, args[0])
    return builder.bitcast(builder.gep(array.data, [args[1]]), _BLOCK.as_pointer())


@_intrinsic
def _block_insert(_typing: Any, words: Any, _at: Any, _x: Any) -> Any:
    """block_insert of `_x` into the block whose first word is ``words[_at]``."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _block_pointer(context, builder, signature, args)
        builder.store(builder.or_(builder.load(pointer, align=4), _mask(builder, args[2])), pointer, align=4)
        return context.get_dummy_value()

    return types.void(words, types.uint64, types.uint32), generate


@_intrinsic
def _block_check(_typing: Any, words: Any, _at: Any, _x: Any) -> Any:
    """block_check of `_x` in the block whose first word is ``words[_at]``."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        block = builder.load(_block_pointer(context, builder, signature, args), align=4)
        missing = builder.and_(builder.not_(block), _mask(builder, args[2]))
        whole = ir.IntType(32 * WORDS)
        return builder.icmp_unsigned("==", builder.bitcast(missing, whole), whole(0))

    return types.boolean(words, types.uint64, types.uint32), generate


@_inline
def _first_word(h: Any, number_of_blocks: Any) -> Any:
    return (((h >> np.uint64(32)) * number_of_blocks) >> np.uint64(32)) * np.uint64(WORDS)


@compiled_for(types.uint32[::1], frozen(types.uint64))
def insert(words: Any, hashes: Any) -> None:
    """Insert hashes into words (blocks × 8)."""
    number_of_blocks = np.uint64(len(words) // WORDS)
    for i in range(len(hashes)):
        _block_insert(words, _first_word(hashes[i], number_of_blocks), np.uint32(hashes[i]))


@compiled_for(frozen(types.uint32), frozen(types.uint64), types.boolean[::1])
def check(words: Any, hashes: Any, out: Any) -> None:
    """Look hashes up in words (blocks × 8)."""
    number_of_blocks = np.uint64(len(words) // WORDS)
    for i in range(len(hashes)):
        out[i] = _block_check(words, _first_word(hashes[i], number_of_blocks), np.uint32(hashes[i]))


@numba.njit
def _differ(one: Any, other: Any, length: Any) -> Any:
    """The first of so many bytes at two addresses that is not the same; `length` where all are."""
    at = np.int64(0)
    while at < length and _load8(one + at) == _load8(other + at):
        at += 1
    return at


@compiled_for(
    types.intp,
    types.intp,
    frozen(types.uint32),
    frozen(types.uint64, 2),
    types.intp,
    frozen(types.int64),
    types.int64[:, ::1],
    result=types.intp,
)
def find_prefixed(address: Any, size: Any, words: Any, known: Any, texts: Any, offsets: Any, found: Any) -> Any:
    """Which of values that each stand behind their length (u32le) are among some texts: their numbers into
    ``found[0]``, and the numbers of the texts into ``found[1]``; returns how many.

    `words` is a filter of the hashes in ``known[0]``, which ascend. Each is of the text ``known[1, i]``, which
    `offsets` find at address `texts`. −1 where the values are not exactly as many as `found` has room for, or do not
    fill the `size` bytes.
    """
    number_of_blocks = np.uint64(len(words) // WORDS)
    hashes = known[0]
    at, count = np.int64(0), 0
    for row in range(found.shape[1]):
        if at + 4 > size:
            return -1
        length = np.int64(_load32(address + at))
        at += 4
        if length > size - at:  # the only guard between a length and foreign memory
            return -1
        h = _xxh64(address + at, length)
        if _block_check(words, _first_word(h, number_of_blocks), np.uint32(h)):
            low, high = 0, len(hashes)
            while low < high:
                middle = (low + high) >> 1
                if hashes[middle] < h:
                    low = middle + 1
                else:
                    high = middle
            if low < len(hashes) and hashes[low] == h:
                owner = np.int64(known[1, low])
                begin = offsets[owner]
                if offsets[owner + 1] - begin == length and _differ(address + at, texts + begin, length) == length:
                    found[0, count], found[1, count] = row, owner
                    count += 1
        at += length
    return count if at == size else -1
