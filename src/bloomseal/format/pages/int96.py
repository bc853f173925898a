"""INT96 moments: nanoseconds of a day and a Julian day, which together reach further than any of Arrow's timestamps.

Arrow wraps what its unit can't hold, without a word. So whoever decodes INT96 asks here first.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from ...core.errors import Hint, UnsupportedError

_EPOCH_JULIAN_DAY: Final = 2_440_588
_JULIAN_1900: Final = 2_415_021
_DAY_NANOS: Final = 86_400 * 10**9
_NANOS: Final = {"us": 1_000, "ns": 1}
_LAYOUT: Final = np.dtype([("nanos", "<i8"), ("day", "<i4")])


def check_moments(values: pa.ChunkedArray, unit: str, *, cut: bool = False, old: bool = False) -> None:
    """Refuse INT96 values (as 12 bytes each, or null) that a decoder would not turn into the same instants.

    Args:
        unit: of the decoded timestamps: ``ns`` or ``us``.
        cut: what is finer than the unit is cut off, as the caller wants it.
        old: those before 1900 are by an older calendar (`..calendar`).

    Raises:
        UnsupportedError: a moment that the unit can't hold, or only in part, or by another calendar.
    """
    step = _NANOS[unit]
    for chunk in values.chunks:
        known = chunk.drop_null()
        if not len(known):
            continue
        _, data = known.buffers()
        raw = np.frombuffer(data, dtype=_LAYOUT, count=len(known), offset=known.offset * _LAYOUT.itemsize)
        nanos, stored = raw["nanos"], raw["day"]
        day = stored.astype(np.int64) - _EPOCH_JULIAN_DAY + nanos // _DAY_NANOS
        rest = nanos % _DAY_NANOS
        (first, earliest), (last, latest) = (
            divmod(-(1 << 63) * step, _DAY_NANOS),
            divmod(((1 << 63) - 1) * step, _DAY_NANOS),
        )
        held = (day > first) | ((day == first) & (rest >= earliest))
        held &= (day < last) | ((day == last) & (rest <= latest))
        if old and (stored < _JULIAN_1900).any():
            raise UnsupportedError("INT96 moments before 1900 by an older calendar", hint=Hint.WITHOUT_COLUMN)
        # Arrow takes days as unsigned, and nanoseconds too before it divides them.
        held &= stored >= 0
        if step > 1:
            held &= nanos >= 0
        if not held.all():
            raise UnsupportedError(
                "INT96 moments outside of the years 1677 to 2262, which nanoseconds can't hold"
                if unit == "ns"
                else "INT96 moments that microseconds can't hold",
                hint=Hint.INT96_US if unit == "ns" else Hint.WITHOUT_COLUMN,
            )
        if not cut and (rest % step).any():
            raise UnsupportedError("INT96 moments finer than a microsecond", hint=Hint.INT96_NS)
