"""The run-length decoder (ORC specification, "Run Length Encoding").

Plain Python that `kernels` compiles, so both are one rule. Sums are taken of numbers up to `_GREAT` only, where Python
and 64 bits agree. A walk ends at the first thing over which another decoder could stumble, with a number below zero.
"""

from __future__ import annotations

from typing import Any, Final

CUT: Final = -1
"""The stream ends before its values."""
MALFORMED: Final = -2
"""A run that the specification does not have."""
OUTSIDE: Final = -3
"""A value outside of its bounds."""

WIDTHS: Final = bytes((*range(1, 25), 26, 28, 30, 32, 40, 48, 56, 64))
"""Bits of a value, by the five bits that name them in a run of version 2."""
CLOSEST: Final = bytes(min(width for width in WIDTHS if width >= bits) for bits in range(65))
"""In so many bits is an entry of a patch list packed, by the bits that it has. Tuples would take longer to compile.
"""
LONGEST_RUN: Final = 512
"""Values."""
_GREAT: Final = 1 << 56


def bytes_walk(data: Any, wanted: Any, counts: Any) -> Any:
    """Byte run length encoding: count each of `wanted` bytes in ``counts[byte]``. Returns the last one of them."""
    at, size, done, last = 0, len(data), 0, 0
    while done < wanted:
        if size - at < 2:
            return CUT
        control = data[at] + 0
        at += 1
        if control < 128:
            times, literals = min(control + 3, wanted - done), 1
        else:
            times, literals = 1, 256 - control
        if literals > size - at:
            return CUT
        for place in range(at, at + min(literals, wanted - done)):
            last = data[place] + 0
            counts[last] += times
        at += literals
        done += times * literals
    return last


def varint(data: Any, at: Any) -> Any:
    """A number in groups of seven bits, the lowest first, and the place behind it; there `CUT` or `MALFORMED`. One of
    64 bits is below zero once it is compiled.
    """
    value, shift, byte = 0, 0, 128
    while byte > 127:
        if at >= len(data):
            return value, CUT
        byte = data[at] + 0
        if shift > 63 or (shift == 63 and byte & 126):
            return value, MALFORMED
        at += 1
        value |= (byte & 127) << shift
        shift += 7
    return value, at


def unzigzag(value: Any) -> Any:
    """A signed number of one that is stored with its sign in the lowest bit."""
    return value >> 1 ^ -(value & 1)


def unpack(data: Any, at: Any, width: Any, values: Any, first: Any, end: Any, most: Any) -> Any:
    """Numbers of `width` bits, put into ``values[first:end]``; False: one is greater than `most`."""
    word, bits = 0, 0
    for place in range(first, end):
        while bits < width:
            word = word << 8 | data[at]
            at += 1
            bits += 8
        bits -= width
        number = word >> bits
        word &= (1 << bits) - 1
        if number < 0 or number > most:
            return False
        values[place] = number
    return True


def decode_v1(data: Any, at: Any, signed: Any, most: Any, values: Any) -> Any:
    """Put the values of a run of version 1 into `values`: how many there are; the place behind it, or there `CUT` or
    `MALFORMED`; and whether each number in it is at most `most`.
    """
    if len(data) - at < 2:
        return 0, CUT, True
    control = data[at] + 0
    at += 1
    delta, count, stored = 0, 256 - control, 256 - control
    if control < 128:
        delta, count, stored = data[at] + 0, control + 3, 1
        delta -= 256 * (delta >> 7)
        at += 1
    sound = True
    for place in range(stored):
        value, at = varint(data, at)
        if at < 0:
            return count, at, True
        sound = sound and 0 <= value <= most
        values[place] = unzigzag(value) if signed else value
    for place in range(stored, count):
        values[place] = values[place - 1] + delta
    return count, at, sound


def frame_v2(data: Any, at: Any) -> Any:
    """One run of version 2, not decoded: how many values it has; the place behind it, or there `CUT` or `MALFORMED`."""
    if len(data) - at < 2:
        return 0, CUT
    first = data[at] + 0
    kind, width = first >> 6, WIDTHS[first >> 1 & 31] + 0
    if kind == 0:  # short repeat: one value of whole bytes
        count, end = (first & 7) + 3, at + 2 + (first >> 3 & 7)
        return count, end if end <= len(data) else CUT
    count = ((first & 1) << 8 | data[at + 1]) + 1
    at += 2
    packed = count
    if kind == 2:  # patched base
        if len(data) - at < 2:
            return count, CUT
        patch_width, gap_width, entries = WIDTHS[data[at] & 31] + 0, (data[at + 1] >> 5) + 1, data[at + 1] & 31
        if entries == 0 or patch_width + gap_width > 64:
            return count, MALFORMED
        at += 3 + (data[at] >> 5) + (count * width + 7) // 8
        end = at + (entries * CLOSEST[patch_width + gap_width] + 7) // 8
        if end > len(data):
            return count, CUT
        return count, end if gaps_are_sound(data, at, entries, patch_width, gap_width) else MALFORMED
    if kind == 3:  # delta: the first value, the first delta, and then the others
        for _ in range(2):
            _, at = varint(data, at)
            if at < 0:
                return count, at
        packed = count - 2 if first >> 1 & 31 else 0
        if packed < 0:
            return count, MALFORMED
    end = at + (packed * width + 7) // 8
    return count, end if end <= len(data) else CUT


def patch_at(data: Any, at: Any, place: Any, patch_width: Any, gap_width: Any) -> Any:
    """An entry of a patch list: how many values on from the last one, and the bits on top."""
    width, number = CLOSEST[patch_width + gap_width] + 0, 0
    for bit in range(place * width, (place + 1) * width):
        number = number << 1 | (data[at + (bit >> 3)] >> 7 - (bit & 7) & 1)
    return number >> patch_width & (1 << 64 - patch_width) - 1, number & (1 << patch_width) - 1


def gaps_are_sound(data: Any, at: Any, entries: Any, patch_width: Any, gap_width: Any) -> Any:
    """A decoder that looks for the end of a gap finds it in the list, or reads beyond it."""
    gap = patch = 0
    for place in range(entries):
        gap, patch = patch_at(data, at, place, patch_width, gap_width)
        if gap > 255 or (gap == 0 and place > 0):
            return False
    return gap < 255 or patch != 0


def decode_v2(data: Any, at: Any, count: Any, signed: Any, most: Any, values: Any) -> Any:
    """Put the values of a run that `frame_v2` let pass into `values`; False: a number in it is greater than `most`."""
    first = data[at] + 0
    kind, width = first >> 6, WIDTHS[first >> 1 & 31] + 0
    if kind == 0:
        if not unpack(data, at + 1, 8 * ((first >> 3 & 7) + 1), values, 0, 1, most):
            return False
        value = unzigzag(values[0]) if signed else values[0]
        for place in range(count):
            values[place] = value
        return True
    if kind == 2:
        return decode_patched(data, at + 2, count, width, most, values)
    if kind == 1:
        if not unpack(data, at + 2, width, values, 0, count, most):
            return False
        if signed:
            for place in range(count):
                values[place] = unzigzag(values[place])
        return True
    value, at = varint(data, at + 2)
    delta, at = varint(data, at)
    if value < 0 or value > most or delta < 0 or delta > most:
        return False
    value, delta = unzigzag(value) if signed else value, unzigzag(delta)
    packed = first >> 1 & 31 != 0
    if packed and not unpack(data, at, width, values, 2, count, most):
        return False
    for place in range(count):
        step = 0 if place == 0 else values[place] if packed and place > 1 else abs(delta)
        value += -step if delta < 0 else step
        values[place] = value
    return True


def decode_patched(data: Any, at: Any, count: Any, width: Any, most: Any, values: Any) -> Any:
    """As `decode_v2`, of a run whose greatest values have their upper bits in a list behind it."""
    patch_width, gap_width, entries = WIDTHS[data[at] & 31] + 0, (data[at + 1] >> 5) + 1, data[at + 1] & 31
    packed = at + 3 + (data[at] >> 5)
    base = data[at + 2] & 127
    for place in range(at + 3, packed):
        base = base << 8 | data[place]
    if base > most or not unpack(data, packed, width, values, 0, count, most):
        return False
    base, patches, where = -base if data[at + 2] > 127 else base, packed + (count * width + 7) // 8, 0
    for entry in range(entries):
        gap, patch = patch_at(data, patches, entry, patch_width, gap_width)
        where += gap
        if patch and where < count:
            if width > 56 or patch < 0 or patch > most >> width:
                return False
            values[where] |= patch << width
    for place in range(count):
        values[place] += base
    return True


def runs_v1(data: Any, wanted: Any, signed: Any, most: Any, out: Any) -> Any:
    """The sum of `wanted` values of version 1.

    Args:
        signed: they are zigzag encoded.
        most: each must lie between 0 and this, which is below 2^32; below 0: they may be anything, and the sum is 0.
        out: takes the values, where it is not empty.
    """
    at, done, total, values = 0, 0, 0, [0] * LONGEST_RUN
    while done < wanted:
        count, at, sound = decode_v1(data, at, signed, _GREAT, values)
        if at < 0:
            return at
        if most >= 0:
            added = added_up(values, min(count, wanted - done), most, out, done) if sound else OUTSIDE
            if added < 0:
                return added
            total += added
        done += count
    return total


def runs_v2(data: Any, wanted: Any, signed: Any, most: Any, out: Any) -> Any:
    """As `runs_v1`, of version 2."""
    at, done, total, values = 0, 0, 0, [0] * LONGEST_RUN
    while done < wanted:
        count, end = frame_v2(data, at)
        if end < 0:
            return end
        if most >= 0:
            sound = decode_v2(data, at, count, signed, _GREAT, values)
            added = added_up(values, min(count, wanted - done), most, out, done) if sound else OUTSIDE
            if added < 0:
                return added
            total += added
        at, done = end, done + count
    return total


def added_up(values: Any, count: Any, most: Any, out: Any, place: Any) -> Any:
    """The sum of the first `count` values, which go to ``out[place:]`` where that is not empty."""
    total = 0
    for one in range(count):
        value = values[one]
        if value < 0 or value > most:
            return OUTSIDE
        total += value
        if len(out):
            out[place + one] = value
    return total


def lz4_walk(data: Any) -> Any:
    """The length to which an LZ4 block inflates, which nothing tells but its sequences (LZ4 block format)."""
    at, size, total = 0, len(data), 0
    while at < size:
        token = data[at] + 0
        at += 1
        for turn in range(2):  # literals, and then a match, which the last sequence lacks
            length = token & 15 if turn else token >> 4
            more = 255 if length == 15 else 0
            while more == 255:
                if at >= size:
                    return CUT
                more = data[at] + 0
                at += 1
                length += more
            total += length
            if turn:
                total += 4
                continue
            at += length
            if at >= size:
                break
            at += 2
    return total if at == size else CUT
