"""Run-length encoded streams that begin with a value within a run (ORC specification, "Run Length Encoding").

A position in the row index names a run and how many values come before the wanted one. Whoever decodes takes whole runs
only: the wanted rest of that run is written anew, as literals, and the runs behind it stay byte for byte.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ...core.errors import FormatError
from ...core.limits import MAX_ORC_VALUES
from ..protobuf import number
from . import walk

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
    at = 0
    while skipped:
        values, count, end = _values(data, at, version=version, signed=signed, skipped=skipped)
        if values:
            return (_literals_v1 if version == 1 else _literals_v2)(values) + data[end:]
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


def _values(data: memoryview, at: int, *, version: int, signed: bool, skipped: int) -> tuple[list[int], int, int]:
    """The values of a run from number `skipped` on, as they are stored; how many it has; where the next one begins."""
    values = [0] * walk.LONGEST_RUN
    if version == 1:
        count, end, sound = walk.decode_v1(data, at, signed, _ALL, values)
    else:
        count, end = walk.frame_v2(data, at)
        sound = end < 0 or skipped >= count or walk.decode_v2(data, at, count, signed, _ALL, values)
    if end == walk.CUT:
        raise _cut()
    if end < 0 or not sound:
        raise FormatError("a run that no writer makes: corrupt")
    return [_raw(value, signed) for value in values[skipped:count]], count, end


def _literals_v1(values: list[int]) -> bytes:
    parts = [values[at : at + _LITERALS] for at in range(0, len(values), _LITERALS)]
    return b"".join(bytes([256 - len(part)]) + b"".join(map(number, part)) for part in parts)


def _literals_v2(values: list[int]) -> bytes:
    packed = b"".join(value.to_bytes(8) for value in values)
    return bytes([_SIXTY_FOUR_BITS | len(values) - 1 >> 8, len(values) - 1 & 255]) + packed


def _raw(value: int, signed: bool) -> int:
    """As it is stored, in 64 bits that wrap around as they do in decoders."""
    value &= _ALL
    return (value << 1 & _ALL) ^ (_ALL if value >> 63 else 0) if signed else value


def _byte(data: memoryview, at: int) -> int:
    if at >= len(data):
        raise _cut()
    return data[at]


def _cut() -> FormatError:
    return FormatError("a stream ends within a run: truncated or corrupt")
