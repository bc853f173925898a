"""What ORC's statistics prove about a column (ORC specification, "Column Statistics"), in the plain encoding that terms
compare themselves with. Nobody authenticates them; where a writer is known to get them wrong, they prove nothing.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Final

from ...core.parquet.schema import Leaf
from ...core.parquet.statistics import PartBounds
from ...core.writers import Claim
from ...orc.asking.trust import timestamps_untrusted
from ...orc.index import nanoseconds
from ...orc.protobuf import Message, signed, zigzag
from ...orc.schema import INTEGER_BITS, MOMENTS, OrcColumn, OrcKind
from ...orc.tail import OrcTail

_SURE_FROM: Final = -2_208_988_800_000
"""1900-01-01 in milliseconds: before it writers differ in calendars and local mean times."""
_SLACK: Final = 2 * 3_600_000
"""Milliseconds by which bounds of moments are widened: writers round them, and differ where clocks were changed."""
_LONGEST_NUMBER: Final = 200


def bounds_of_part(statistics: Message | None, column: OrcColumn, leaf: Leaf, tail: OrcTail, zone: str) -> PartBounds:
    """Take a ``ColumnStatistics`` apart.

    Args:
        statistics: None where there are none that fit the rows (`bloomseal.orc.statistics`).
        leaf: the column, as terms know it.
        zone: the stripe's writer time zone.
    """
    if statistics is None:
        return PartBounds()
    values = signed(statistics.number(1))
    nulls = statistics.number(10, 1)
    # A null struct is no null to what is inside it.
    no_nulls = not nulls and len(leaf.path) == 1 and values > 0
    return PartBounds(values == 0, no_nulls, _between(statistics, values, column, leaf, tail, zone))


def _between(
    statistics: Message, values: int, column: OrcColumn, leaf: Leaf, tail: OrcTail, zone: str
) -> tuple[bytes, bytes] | None:
    # None for floats: where the first value is NaN, so are both bounds, and merging leaves those values out.
    kind = column.kind
    if kind in INTEGER_BITS or kind is OrcKind.DATE:
        ends = Message(statistics.bytes(7 if kind is OrcKind.DATE else 2))
        return _encoded(ends, 8 if leaf.type.physical.name == "INT64" else 4)
    if kind in (OrcKind.STRING, OrcKind.VARCHAR):
        ends = Message(statistics.bytes(4))
        least, greatest = bytes(ends.bytes(1)), bytes(ends.bytes(2))
        claims = (Claim.ORC_TEXT_BOUNDS, *((Claim.ORC_NUL_BOUNDS,) if b"\0" in least + greatest else ()))
        sure = not any(tail.known_wrong(claim) for claim in claims)
        return (least, greatest) if sure and 1 in ends and 2 in ends and least <= greatest else None
    if kind is OrcKind.BOOLEAN:
        true = Message(statistics.bytes(5)).numbers(1)
        if len(true) != 1 or not 0 <= true[0] <= values or not values:
            return None
        return bytes([true[0] == values]), bytes([true[0] > 0])
    if kind is OrcKind.DECIMAL:
        return _decimals(Message(statistics.bytes(6)), column, leaf)
    if kind in MOMENTS and timestamps_untrusted(column, tail, zone) is None:
        return _moments(statistics)
    return None


def _encoded(ends: Message, width: int) -> tuple[bytes, bytes] | None:
    if 1 not in ends or 2 not in ends:
        return None
    least, greatest = (zigzag(ends.number(field)) for field in (1, 2))
    half = 1 << 8 * width - 1
    if not -half <= least <= greatest < half:
        return None
    return least.to_bytes(width, "little", signed=True), greatest.to_bytes(width, "little", signed=True)


def _decimals(ends: Message, column: OrcColumn, leaf: Leaf) -> tuple[bytes, bytes] | None:
    found: list[int] = []
    width = leaf.type.type_length or 16
    for field in (1, 2):
        text = bytes(ends.bytes(field))
        try:
            value = Decimal(text.decode("ascii")) if 0 < len(text) <= _LONGEST_NUMBER else None
        except (InvalidOperation, UnicodeDecodeError):
            return None
        if value is None or not value.is_finite() or abs(value.adjusted()) > _LONGEST_NUMBER:
            return None
        sign, digits, exponent = value.as_tuple()
        shift = int(exponent) + column.scale
        if shift < 0 and any(digits[shift:]):
            return None
        unscaled = int("".join(map(str, digits))) * 10 ** max(shift, 0) // 10 ** max(-shift, 0)
        if unscaled >> 8 * width - 1:
            return None
        found.append(-unscaled if sign else unscaled)
    least, greatest = found
    if least > greatest:
        return None
    return least.to_bytes(width, "big", signed=True), greatest.to_bytes(width, "big", signed=True)


def _moments(statistics: Message) -> tuple[bytes, bytes] | None:
    if (ends := nanoseconds(statistics)) is None:
        return None
    least, greatest = ends[0] // 1_000_000 - _SLACK, ends[1] // 1_000_000 + _SLACK
    if least < _SURE_FROM or ends[0] > ends[1] or greatest * 1_000_000 >= 1 << 63:
        return None
    return tuple((end * 1_000_000).to_bytes(8, "little", signed=True) for end in (least, greatest))  # type: ignore[return-value]
