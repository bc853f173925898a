"""Rows as values that JSON and tables show, each as exact as the file has it.

Python's moments end at microseconds and the year 9999. Arrow gives pandas' own beyond the first, where pandas is
installed, and nothing beyond the second; times lose their nanoseconds without a word.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ..core.errors import UsageError
from ..core.text import safe_text
from .render import plain

_BATCH_ROWS: Final = 8192
_FORMULA: Final = ("=", "+", "-", "@")
_TOLD_DAYS: Final = 30_000 * 365
"""So far from 1970 Arrow's texts of moments are right. Beyond the year 32767 they are another year's, or none."""
_PER_DAY: Final = {"D": 1, "s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def rows_of(batches: Iterable[pa.RecordBatch | pa.Table]) -> Iterator[dict[str, Any]]:
    """Row by row: name → value. What Python can't hold comes as text."""
    for batch in batches:
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            part = batch.slice(start, _BATCH_ROWS)
            names, columns = part.schema.names, [_values(column) for column in part.columns]
            for row in range(part.num_rows):
                yield {name: column[row] for name, column in zip(names, columns, strict=True)}


def flat(rows: pa.Table) -> pa.Table:
    """Nested values, bytes and extensions as JSON text: CSV has none of them.

    Raises:
        UsageError: moments of which Arrow writes no text.
    """
    for index, field in enumerate(rows.schema):
        kind, types = field.type, pa.types
        if types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType) or types.is_binary(kind):
            texts = [None if value is None else _text(value) for value in _values(rows.column(index))]
            rows = rows.set_column(index, field.name, pa.array(texts, pa.string()))
        elif (types.is_timestamp(kind) or types.is_date(kind)) and _beyond(rows.column(index)):
            what = f"moments in years that CSV can't be given as {kind}"
            raise UsageError(
                what, column=field.name, hint="--columns without it, --format json, or an output in .parquet"
            )
    return rows


def shown_flat(rows: pa.Table) -> pa.Table:
    """As `flat`, for a terminal: a text shows what it holds, and no spreadsheet that it is pasted into computes it.

    Raises:
        UsageError: as `flat`.
    """
    rows = flat(rows)
    for index, field in enumerate(rows.schema):
        column = rows.column(index)
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            texts = [None if value is None else _harmless(value) for value in column.to_pylist()]
            column = pa.array(texts, pa.string())
        rows = rows.set_column(index, _harmless(field.name), column)
    return rows


def _harmless(text: str) -> str:
    # A spreadsheet looks at the first character; a tab or an end of line there is escaped.
    return f"'{safe_text(text)}" if text.startswith(_FORMULA) else safe_text(text)


def _text(value: Any) -> str:
    value = plain(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _beyond(column: pa.ChunkedArray) -> bool:
    import pyarrow.compute as pc

    ends = pc.min_max(column)
    per_day = _PER_DAY["ms" if pa.types.is_date64(column.type) else getattr(column.type, "unit", "D")]
    return any(ends[end].is_valid and abs(ends[end].value) > _TOLD_DAYS * per_day for end in ("min", "max"))


def _values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    if not _has_nanos(column.type):
        try:
            return column.to_pylist()  # type: ignore[no-any-return]
        except (ValueError, OverflowError):
            pass
    return [_value(scalar) for scalar in column]


def _has_nanos(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _has_nanos(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return _has_nanos(kind.value_type)
    if pa.types.is_temporal(kind):
        return getattr(kind, "unit", "") == "ns"
    return any(_has_nanos(kind.field(number).type) for number in range(kind.num_fields))


def _value(scalar: Any) -> Any:
    if not scalar.is_valid:
        return None
    kind, types = scalar.type, pa.types
    if types.is_dictionary(kind):
        return _value(scalar.value)
    if isinstance(kind, pa.BaseExtensionType):
        return _value(scalar.value) if _has_nanos(kind) else scalar.as_py()
    if types.is_struct(kind):
        return {kind.field(number).name: _value(scalar[number]) for number in range(kind.num_fields)}
    if types.is_map(kind):
        return [(_value(entry[0]), _value(entry[1])) for entry in scalar.values]
    if isinstance(scalar, pa.ListScalar | pa.LargeListScalar | pa.FixedSizeListScalar):
        return [_value(item) for item in scalar.values]
    if types.is_temporal(kind):
        return _moment(scalar, kind)
    return scalar.as_py()


def _moment(scalar: Any, kind: pa.DataType) -> Any:
    unit: Any = getattr(kind, "unit", "D")
    if unit == "ns":
        seconds, nanos = divmod(scalar.value, 1_000_000_000)
        if pa.types.is_duration(kind):
            return f"{dt.timedelta(seconds=seconds)}{_fraction(nanos)}"
        if pa.types.is_time(kind):
            return f"{pa.scalar(seconds, pa.time32('s')).as_py().isoformat()}{_fraction(nanos)}"
        whole = pa.scalar(seconds, pa.timestamp("s", kind.tz)).as_py()
        begin = whole.replace(tzinfo=None).isoformat()
        return f"{begin}{_fraction(nanos)}{whole.isoformat()[len(begin) :]}"
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        if pa.types.is_duration(kind):
            return str(np.timedelta64(scalar.value, unit))
        zone = "+00:00" if getattr(kind, "tz", None) else ""
        return f"{np.datetime64(scalar.value, 'ms' if pa.types.is_date64(kind) else unit)}{zone}"


def _fraction(nanos: int) -> str:
    """As `isoformat` has it, and longer only where it has to be."""
    if not nanos:
        return ""
    return f".{nanos:09}" if nanos % 1_000 else f".{nanos // 1_000:06}"
