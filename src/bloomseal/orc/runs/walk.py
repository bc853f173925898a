"""Walks through run-length encoded streams (ORC specification, "Run Length Encoding").

Plain Python that `kernels` compiles, so both are one rule. A number is believed only below `_GREAT`, where Python and
64 bits agree. A walk ends at the first thing over which a decoder could stumble, with a number below zero.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ["CLOSEST", "CUT", "MALFORMED", "OUTSIDE", "WIDTHS", "bytes_walk", "lz4_walk", "runs_v1", "runs_v2", "varint"]

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
    """A number in groups of seven bits, the lowest first, and the place behind it; there `CUT` or `MALFORMED`."""
    value, shift, byte = 0, 0, 128
    while byte > 127:
        if at >= len(data):
            return value, CUT
        if shift > 63:
            return value, MALFORMED
        byte = data[at] + 0
        at += 1
        # What is greater is no value to believe.
        value |= ((byte & 127) << shift) if shift < 56 else _GREAT * min(byte & 127, 1)
        shift += 7
    return value, at


def runs_v1(data: Any, wanted: Any, signed: Any, most: Any, out: Any) -> Any:
    """Integer run length encoding, version 1: the sum of `wanted` values.

    Args:
        signed: they are zigzag encoded.
        most: each must lie between 0 and this, which is below 2^32; below 0: they may be anything, and the sum is 0.
        out: takes the values, where it is not empty.
    """
    at, size, done, total = 0, len(data), 0, 0
    while done < wanted:
        if size - at < 2:
            return CUT
        control = data[at] + 0
        at += 1
        delta, times, literals = 0, 1, 256 - control
        if control < 128:
            delta, times, literals = data[at] + 0, min(control + 3, wanted - done), 1
            delta -= 256 * (delta >> 7)
            at += 1
        for _ in range(literals):
            value, at = varint(data, at)
            if at < 0:
                return at
            if most >= 0 and done < wanted:
                if signed:
                    value = value >> 1 ^ -(value & 1)
                end = value + delta * (times - 1)
                if value < 0 or value > most or end < 0 or end > most:
                    return OUTSIDE
                total += (value + end) * times // 2
                for place in range(min(times, len(out))):
                    out[done + place] = value + delta * place
            done += times
    return total


def runs_v2(data: Any, wanted: Any, signed: Any, most: Any, out: Any) -> Any:
    """As `runs_v1`, of version 2."""
    at, size, done, total = 0, len(data), 0, 0
    places, patches = [0] * 32, [0] * 32
    while done < wanted:
        if size - at < 2:
            return CUT
        first = data[at] + 0
        kind, width = first >> 6, WIDTHS[first >> 1 & 31] + 0
        value = delta = entries = 0
        if kind == 0:  # short repeat: one value of `width` whole bytes
            count, packed, width = (first & 7) + 3, 1, 8 * ((first >> 3 & 7) + 1)
            at += 1
        else:
            count = ((first & 1) << 8 | data[at + 1]) + 1
            packed = count
            at += 2
        if kind == 2:  # patched base
            if size - at < 2:
                return CUT
            base_bytes, patch_width = (data[at] >> 5) + 1, WIDTHS[data[at] & 31] + 0
            gap_width, entries = (data[at + 1] >> 5) + 1, data[at + 1] & 31
            at += 2
            if entries == 0 or patch_width + gap_width > 64:
                return MALFORMED
            entry_width = CLOSEST[patch_width + gap_width] + 0
            bits = at + base_bytes + (count * width + 7) // 8
            if size - bits < (entries * entry_width + 7) // 8:
                return CUT
            value = data[at] & 127
            for place in range(at + 1, at + base_bytes):
                value = value << 8 | data[place]
            value = -value if data[at] > 127 else value
            at += base_bytes
            # A decoder that looks for the end of a gap finds it in the list, or reads beyond it.
            gap, patch, where = 0, 0, 0
            for place in range(entries):
                number = 0
                for bit in range(place * entry_width, (place + 1) * entry_width):
                    number = number << 1 | (data[bits + (bit >> 3)] >> 7 - (bit & 7) & 1)
                gap = number >> patch_width & (1 << 64 - patch_width) - 1
                patch = number & (1 << patch_width) - 1
                if gap > 255 or (gap == 0 and place > 0):
                    return MALFORMED
                where += gap
                places[place], patches[place] = where, patch
            if gap == 255 and patch == 0:
                return MALFORMED
            end = bits + (entries * entry_width + 7) // 8
        elif kind == 3:  # delta: the first value, the first delta, and then the others
            width = 0 if first >> 1 & 31 == 0 else width
            number = 0
            value, at = varint(data, at)
            if at < 0:
                return at
            if signed:
                value = value >> 1 ^ -(value & 1)
            delta, at = varint(data, at)
            if at < 0:
                return at
            delta = delta >> 1 ^ -(delta & 1)
            packed = max(count - 2, 0) if width else 0
            if width and count < 2:
                return MALFORMED
            end = at + (packed * width + 7) // 8
        else:
            end = at + (packed * width + 7) // 8
        if end > size:
            return CUT
        needed = min(count, wanted - done)
        stored, done = done, done + count
        if most < 0:
            at = end
            continue
        if kind == 3:
            if needed > 1 and (delta > most or delta < -most):
                return OUTSIDE
            ahead = value + delta * ((needed - 1) if width == 0 else min(needed - 1, 1))
            if value < 0 or value > most or ahead < 0 or ahead > most:
                return OUTSIDE
            times = needed if width == 0 else min(needed, 2)
            total += (value + ahead) * times // 2
            for place in range(min(times, len(out))):
                out[stored + place] = value + delta * place
            stored += times
            value, needed = ahead, max(needed - times, 0) if width else 0
        if value > _GREAT or value < -_GREAT:
            return OUTSIDE
        word = bits = next_patch = 0
        for place in range(min(packed, needed)):
            while bits < width:
                word = word << 8 | data[at]
                at += 1
                bits += 8
            bits -= width
            number = word >> bits
            word &= (1 << bits) - 1
            if number < 0 or number > _GREAT:
                return OUTSIDE
            if kind == 3:
                value = value - number if delta < 0 else value + number
                number = value
            elif kind == 2:
                while next_patch < entries and places[next_patch] <= place:
                    if places[next_patch] == place and patches[next_patch]:
                        if width > 32 or patches[next_patch] > most + abs(value) >> width:
                            return OUTSIDE
                        number |= patches[next_patch] << width
                    next_patch += 1
                number += value
            elif signed:
                number = number >> 1 ^ -(number & 1)
            if number < 0 or number > most:
                return OUTSIDE
            times = needed if kind == 0 else 1
            total += number * times
            for _ in range(min(times, len(out))):
                out[stored] = number
                stored += 1
        at = end
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
