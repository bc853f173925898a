"""Run-length encoded streams that begin with a value within a run (ORC specification, "Run Length Encoding").

A position in the row index names a run and how many values come before the wanted one. Whoever decodes takes whole runs
only: the wanted rest of that run is written anew, as literals, and the runs behind it stay byte for byte.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ...core.errors import FormatError
from ...core.limits import MAX_ORC_VALUES
from ..protobuf import number, varint, zigzag
from .walk import CLOSEST, WIDTHS

__all__ = ["bits_from", "bytes_from", "integers_from"]

_ALL: Final = (1 << 64) - 1
_LITERALS: Final = 128
_MOST_RUNS: Final = 1 << 20
"""Runs of bits that are written anew, half a second's work: of more the stripe is read from its beginning."""
_SIXTY_FOUR_BITS: Final = 0x40 | 31 << 1
"""The first byte of a DIRECT run of version 2 with values of 64 bits."""


def bytes_from(data: memoryview, skipped: int) -> bytes | memoryview:
    """A byte stream without its first values.

    Raises:
        FormatError: it ends before.
    """
    at = 0
    while skipped:
        value, count, end = _byte_run(data, at)
        if skipped < count:
            return _literals(value * (count - skipped) if len(value) == 1 else value[skipped:]) + data[end:]
        skipped, at = skipped - count, end
    return data[at:]


def bits_from(data: memoryview, skipped: int, bits: int) -> bytes | memoryview:
    """A stream of bits without its first bytes, and without so many bits of the next one.

    Raises:
        FormatError: it ends before, or has more bits than a stripe may have.
    """
    rest = bytes_from(data, skipped)
    if not bits:
        return rest
    data, at, runs, found = memoryview(rest), 0, 0, bytearray()
    while len(data) - at >= 2 and at + 1 + max(1, (256 - data[at]) * (data[at] > 127)) <= len(data):
        value, count, at = _byte_run(data, at)
        found += value * count if len(value) == 1 else value
        runs += 1
        if 8 * len(found) > MAX_ORC_VALUES or runs > _MOST_RUNS:
            raise FormatError(f"more than {MAX_ORC_VALUES} bits in a stripe, or {_MOST_RUNS} runs of them")
    whole = np.frombuffer(bytes(found) + b"\0", np.uint8)
    return _literals(((whole[:-1] << bits) | (whole[1:] >> 8 - bits)).astype(np.uint8).tobytes())


def integers_from(data: memoryview, skipped: int, *, version: int, signed: bool) -> bytes | memoryview:
    """An integer stream of this version of the encoding without its first values.

    Raises:
        FormatError: it ends before, or has a run that no writer makes.
    """
    run, literals = (_run_v1, _literals_v1) if version == 1 else (_run_v2, _literals_v2)
    at = 0
    while skipped:
        values, count, end = run(data, at, signed, skipped)
        if values:
            return literals(values) + data[end:]
        skipped, at = skipped - count, end
    return data[at:]


def _byte_run(data: memoryview, at: int) -> tuple[bytes, int, int]:
    """One byte or several, how many values they are, and where the next run begins."""
    control = _byte(data, at)
    length = 1 if control < 128 else 256 - control
    end = at + 1 + length
    if end > len(data):
        raise _cut()
    return bytes(data[at + 1 : end]), control + 3 if control < 128 else length, end


def _literals(values: bytes) -> bytes:
    parts = [values[at : at + _LITERALS] for at in range(0, len(values), _LITERALS)]
    return b"".join(bytes([256 - len(part)]) + part for part in parts)


def _run_v1(data: memoryview, at: int, signed: bool, skipped: int) -> tuple[list[int], int, int]:
    """The values of a run from number `skipped` on, as they are stored; how many it has; where the next one begins."""
    control = _byte(data, at)
    if control < 128:
        delta = _byte(data, at + 1)
        first, end = varint(data, at + 2)
        count = control + 3
        delta -= delta >> 7 << 8
        return _stored(range(skipped, count), _value(first, signed), delta, signed), count, end
    count, at = 256 - control, at + 1
    found = []
    for _ in range(count):
        value, at = varint(data, at)
        found.append(value)
    return found[skipped:], count, at


def _literals_v1(values: list[int]) -> bytes:
    parts = [values[at : at + _LITERALS] for at in range(0, len(values), _LITERALS)]
    return b"".join(bytes([256 - len(part)]) + b"".join(map(number, part)) for part in parts)


def _run_v2(data: memoryview, at: int, signed: bool, skipped: int) -> tuple[list[int], int, int]:
    first = _byte(data, at)
    kind, code = first >> 6, first >> 1 & 31
    if kind == 0:  # short repeat
        count, end = (first & 7) + 3, at + 2 + (first >> 3 & 7)
        return [int.from_bytes(_span(data, at + 1, end))] * (count - skipped), count, end
    count, width, at = ((first & 1) << 8 | _byte(data, at + 1)) + 1, WIDTHS[code], at + 2
    if kind == 1:  # direct
        end = at + (count * width + 7) // 8
        return _unpacked(_span(data, at, end), count, width)[skipped:], count, end
    if kind == 3:
        return _delta_run(data, at, signed, skipped, count, width if code else 0)
    return _patched_run(data, at, signed, skipped, count, width)


def _delta_run(
    data: memoryview, at: int, signed: bool, skipped: int, count: int, width: int
) -> tuple[list[int], int, int]:
    raw, at = varint(data, at)
    change, at = varint(data, at)
    value, delta = _value(raw, signed), zigzag(change)
    if not width:
        return _stored(range(skipped, count), value, delta, signed), count, at
    if count < 2:
        raise FormatError("a run that no writer makes: corrupt")
    end = at + ((count - 2) * width + 7) // 8
    values = [value, value + delta]
    for more in _unpacked(_span(data, at, end), count - 2, width):
        values.append(values[-1] - more if delta < 0 else values[-1] + more)
    return [_raw(one, signed) for one in values[skipped:]], count, end


def _patched_run(
    data: memoryview, at: int, signed: bool, skipped: int, count: int, width: int
) -> tuple[list[int], int, int]:
    third, fourth = _byte(data, at), _byte(data, at + 1)
    base_end = at + 2 + (third >> 5) + 1
    patch_width, gap_width, entries = WIDTHS[third & 31], (fourth >> 5) + 1, fourth & 31
    if not entries or patch_width + gap_width > 64:
        raise FormatError("a run that no writer makes: corrupt")
    base = int.from_bytes(_span(data, at + 2, base_end))
    sign = 1 << 8 * (base_end - at - 2) - 1
    base = -(base ^ sign) if base & sign else base
    packed_end = base_end + (count * width + 7) // 8
    values = _unpacked(_span(data, base_end, packed_end), count, width)
    entry_width = CLOSEST[patch_width + gap_width]
    end = packed_end + (entries * entry_width + 7) // 8
    place = 0
    for entry in _unpacked(_span(data, packed_end, end), entries, entry_width):
        place += entry >> patch_width
        patch = entry & (1 << patch_width) - 1
        if place >= count:
            if patch:
                raise FormatError("a run that no writer makes: corrupt")
            continue
        values[place] |= patch << width
    return [_raw(base + one, signed) for one in values[skipped:]], count, end


def _literals_v2(values: list[int]) -> bytes:
    packed = b"".join(value.to_bytes(8) for value in values)
    return bytes([_SIXTY_FOUR_BITS | len(values) - 1 >> 8, len(values) - 1 & 255]) + packed


def _unpacked(data: memoryview, count: int, width: int) -> list[int]:
    bits, mask = int.from_bytes(data) >> -count * width % 8, (1 << width) - 1
    return [bits >> place * width & mask for place in range(count - 1, -1, -1)]


def _stored(places: range, first: int, delta: int, signed: bool) -> list[int]:
    return [_raw(first + delta * place, signed) for place in places]


def _value(raw: int, signed: bool) -> int:
    return zigzag(raw) if signed else raw


def _raw(value: int, signed: bool) -> int:
    """As it is stored, in 64 bits that wrap around as they do in decoders."""
    value &= _ALL
    return (value << 1 & _ALL) ^ (_ALL if value >> 63 else 0) if signed else value


def _byte(data: memoryview, at: int) -> int:
    if at >= len(data):
        raise _cut()
    return data[at]


def _span(data: memoryview, at: int, end: int) -> memoryview:
    if end > len(data):
        raise _cut()
    return data[at:end]


def _cut() -> FormatError:
    return FormatError("a stream ends within a run: truncated or corrupt")
