"""A sealed table as a Polars lazy frame: columns, equality, ``is_in`` and ranges reach the filters and statistics.

Only what is proved to be understood is pushed. Unless that is all of a predicate, and means the same to both sides,
Polars evaluates the whole predicate on whatever rows come back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, Unpack

import pyarrow as pa

from .core.errors import MissingDependencyError, UnsupportedError
from .read.predicate.condition import AllOf, AnyOf, Compare
from .read.predicate.values import Values
from .table.open import as_table
from .table.sealed import SealedTable

try:
    import polars as pl
    from polars.io.plugins import register_io_source
except ImportError:
    raise MissingDependencyError("this needs the library polars", hint="pip install 'bloomseal[polars]'") from None

if TYPE_CHECKING:
    from .storage.discovery.tables import Places
    from .table.open import OpenTableOptions

__all__ = ["scan"]


class _Pushed(NamedTuple):
    """Terms that are true of every row for which a predicate is.

    Attributes:
        any_of: any of these, each being all of those.
        whole: and they are true of no other row.
    """

    any_of: list[list[Compare]]
    whole: bool


_MOST_TERMS: Final = 64
_MOST_DIGITS: Final = 38
"""Of a decimal number in Polars."""
_EXACT: Final = (pl.String, pl.Binary, pl.Date)
"""Types whose values both sides compare alike, beside whole numbers."""
_COMPARED: Final[tuple[tuple[str, str, Callable[[pl.Expr, pl.Expr], pl.Expr]], ...]] = (
    ("==", "==", lambda left, right: left == right),
    ("<", ">", lambda left, right: left < right),
    ("<=", ">=", lambda left, right: left <= right),
    (">", "<", lambda left, right: left > right),
    (">=", "<=", lambda left, right: left >= right),
    ("!=", "!=", lambda left, right: left != right),
)
"""An operator, the same with its sides exchanged, and how Polars spells it."""
_BETWEEN: Final = {"both": (">=", "<="), "left": (">=", "<"), "right": (">", "<="), "none": (">", "<")}


def scan(table: SealedTable | Places, /, **options: Unpack[OpenTableOptions]) -> pl.LazyFrame:
    """The table, lazily: nothing but its footers is read until the frame is collected.

    ``==``, ``!=``, ``is_in``, ``<``, ``<=``, ``>``, ``>=`` and ``is_between`` of a column with literals, ``is_null``
    and ``is_not_null``, and ``&`` and ``|`` of those, are pushed down for texts, bytes, whole numbers and dates; of
    floating point numbers ``==``, ``!=``, ``is_in``, ``<`` and ``<=``, since Polars takes NaN for the greatest number,
    and for equal to itself. All other predicates read every row group.

    Args:
        table: a table that was opened, or whatever `bloomseal.open_table` takes.
        options: for `bloomseal.open_table`: policy, decryption, version, filesystem, ...

    Raises:
        UsageError: options for a table that is open already.
        UnsupportedError: a column of decimals of more than 38 digits, which Polars has not.
        BloomsealError: as `SealedTable.schema`. While rows are read, it reaches the caller as Polars hands it on.
    """
    opened = as_table(table, options)
    taken = pa.schema([field.with_type(_taken(field.type, field.name)) for field in opened.schema])
    empty = _frame(pa.RecordBatchReader.from_batches(taken, []))
    schema = empty.schema

    def rows(
        columns: list[str] | None, predicate: pl.Expr | None, most: int | None, _size: int | None
    ) -> Iterator[pl.DataFrame]:
        # A limit counts rows in front of the predicate: then there is nothing to prune by.
        pushed = None if predicate is None or most is not None else _pushed(predicate, schema)
        # Where no column is asked for, their number is.
        names = schema.names() if columns is None else columns or schema.names()[:1]
        condition = None if pushed is None else AnyOf(tuple(AllOf(tuple(one)) for one in pushed.any_of))
        rest = None if pushed is not None and pushed.whole else predicate
        read = opened.scan_in(pa.schema([taken.field(name) for name in names]), condition)
        none = True
        for batch in read:
            frame = _frame(pa.RecordBatchReader.from_batches(batch.schema, [batch]))
            if most is not None:
                frame = frame.head(most)
                most -= frame.height
            if rest is not None:
                frame = frame.filter(rest)
            none = False
            yield frame if columns is None else frame.select(columns)
            if most == 0:
                return
        if none:
            yield empty if columns is None else empty.select(columns)

    return register_io_source(rows, schema=schema, is_pure=True)


def _frame(rows: pa.RecordBatchReader) -> pl.DataFrame:
    # As a stream, which Polars takes as it is: a batch or a table it takes apart in Python first.
    return pl.DataFrame(rows)


def _taken(kind: pa.DataType, column: str) -> pa.DataType:
    """The same type, its decimals in 128 bits, the one width that Polars takes out of a stream as it is
    (pola-rs/polars issue 22946).
    """
    types = pa.types
    if types.is_decimal(kind):
        if kind.precision > _MOST_DIGITS:
            raise UnsupportedError(
                f"Polars has no decimals of {kind.precision} digits",
                column=column,
                hint="bloomseal.read_table(columns=[...]) without it, and polars.from_arrow",
            )
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_struct(kind):
        return pa.struct([field.with_type(_taken(field.type, column)) for field in kind])
    if types.is_map(kind):
        key, item = (field.with_type(_taken(field.type, column)) for field in (kind.key_field, kind.item_field))
        return pa.map_(key, item, kind.keys_sorted)
    made = {pa.ListType: pa.list_, pa.LargeListType: pa.large_list}.get(type(kind))
    if made is not None or types.is_fixed_size_list(kind):
        value = kind.value_field.with_type(_taken(kind.value_type, column))
        return made(value) if made is not None else pa.list_(value, kind.list_size)
    return kind


def _pushed(predicate: pl.Expr, schema: pl.Schema) -> _Pushed | None:
    """The predicate as terms; None where nothing is understood.

    How an expression is stored belongs to Polars. So it is taken apart, put together again in each way that is
    understood here, and believed where Polars says that the result is the same expression.
    """
    parts = predicate.meta.pop(schema=schema)[::-1]
    if len(parts) == 1 and parts[0].meta.is_column():
        for op, alone in (("null", parts[0].is_null()), ("valid", parts[0].is_not_null())):
            name = parts[0].meta.output_name()
            if predicate.meta.eq(alone) and "." not in name and not schema.get(name, pl.Null()).is_nested():
                return _Pushed([[Compare(name, op, Values(()))]], True)
    if len(parts) == 2:
        left, right = parts
        one, other = left.meta, right.meta
        if one.is_column() and other.is_literal():
            for op, _, spelt in _COMPARED:
                if predicate.meta.eq(spelt(left, right)):
                    return _term(left, op, right, schema)
            return _term(left, "in", right, schema) if predicate.meta.eq(left.is_in(right)) else None
        if one.is_literal() and other.is_column():
            found = [mirrored for _, mirrored, spelt in _COMPARED if predicate.meta.eq(spelt(left, right))]
            return _term(right, found[0], left, schema) if found else None
        if predicate.meta.eq(left & right):
            return _both(_pushed(left, schema), _pushed(right, schema))
        if predicate.meta.eq(left | right):
            some, others = _pushed(left, schema), _pushed(right, schema)
            if some is None or others is None or len(some.any_of) + len(others.any_of) > _MOST_TERMS:
                return None
            return _Pushed(some.any_of + others.any_of, some.whole and others.whole)
    if len(parts) == 3 and parts[0].meta.is_column() and all(part.meta.is_literal() for part in parts[1:]):
        column, low, high = parts
        for closed, (above, below) in _BETWEEN.items():
            if predicate.meta.eq(column.is_between(low, high, closed=closed)):  # type: ignore[arg-type]
                return _both(_term(column, above, low, schema), _term(column, below, high, schema))
    return None


def _both(one: _Pushed | None, other: _Pushed | None) -> _Pushed | None:
    """Both hold. One that is not understood may be left out: more rows come back then, and none is missed."""
    if one is None or other is None or len(one.any_of) * len(other.any_of) > _MOST_TERMS:
        left = other if one is None else one
        return None if left is None else _Pushed(left.any_of, False)
    return _Pushed([[*some, *more] for some in one.any_of for more in other.any_of], one.whole and other.whole)


def _term(column: pl.Expr, op: str, literal: pl.Expr, schema: pl.Schema) -> _Pushed | None:
    name = column.meta.output_name()
    kind = schema.get(name)
    if kind is None or "." in name:
        return None
    values = pl.select(literal).to_series()
    if op == "in":
        if not isinstance(values.dtype, pl.List):
            return None
        values = values.explode().drop_nulls()
    if not (values.dtype == kind or (values.dtype.is_integer() and kind.is_integer())) or values.null_count():
        return None
    floating = kind.is_float() and op in ("==", "!=", "in", "<", "<=") and not values.is_nan().any()
    exact = kind in _EXACT or kind.is_integer()
    if not len(values) or not (exact or floating):
        return None
    return _Pushed([[Compare(name, op, Values(values.to_arrow() if op == "in" else (values.item(),)))]], exact)
