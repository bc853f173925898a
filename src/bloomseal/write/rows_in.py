"""Rows from whatever speaks Arrow: one function makes a schema and a stream of tables of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final, NamedTuple, TypeVar

import pyarrow as pa

from ..core.errors import BloomsealError, UsageError
from ..format.plain import plain_schema, plain_table

T = TypeVar("T")

_FITS: Final = (
    "a pyarrow Table, RecordBatch, RecordBatchReader, Dataset or Scanner, a data frame of pandas or Polars, a DuckDB "
    "relation, anything with __arrow_c_stream__, or an iterator of those"
)
_ADVICE: Final = {
    "LazyFrame": "lazy.collect_batches(), which streams, or lazy.collect()",
    "Series": "series.to_frame()",
    "dict": "pyarrow.table(data)",
    "list": "pyarrow.Table.from_pylist(rows)",
}


class Rows(NamedTuple):
    """Rows that were handed in.

    Attributes:
        schema: of all pieces, but for its metadata.
        pieces: the rows in their order; a stream is read as it is asked, and holds one piece.
        total: how many rows there are; None for a stream, which says so at its end.
    """

    schema: pa.Schema
    pieces: Iterator[pa.Table]
    total: int | None


def rows_in(data: Any) -> Rows:
    """What `data` holds.

    A pandas frame's unnamed index, such as filtering leaves, is not taken; a named one becomes a column. Views of texts
    and lists from outside pyarrow come as the types that every reader of Parquet knows.

    Args:
        data: a Table, RecordBatch, RecordBatchReader, Dataset or Scanner of pyarrow, a pandas frame, anything with
            ``__arrow_c_stream__`` or ``__arrow_c_array__``, or an iterable of those, all of one schema.

    Raises:
        UsageError: nothing of these, an iterable without items, or a frame whose columns Arrow has no type for.
    """
    if (found := _tabular(data)) is not None:
        return found
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | bytearray | memoryview | Mapping):
        return _chained(data)
    raise _refused(data)


def _tabular(data: Any) -> Rows | None:
    """One thing with rows; None where `data` is none."""
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    elif _is(data, "pandas", "DataFrame"):
        data = _from_pandas(data)
    if isinstance(data, pa.Table):
        return Rows(data.schema, iter((data,)), data.num_rows)
    if _is(data, "pyarrow.dataset", "Dataset"):
        data = data.scanner()
    if _is(data, "pyarrow.dataset", "Scanner"):
        data = data.to_reader()
    if isinstance(data, pa.RecordBatchReader):
        return Rows(data.schema, _read(data), None)
    if hasattr(data, "__arrow_c_stream__"):
        _no_objects(data)
        reader = _taken_in(pa.RecordBatchReader.from_stream, data)
        schema = plain_schema(reader.schema)
        # A stream does not know its length; to ask a relation for its own runs the query once more.
        length = data.height if _is(data, "polars", "DataFrame") else None
        return Rows(schema, (plain_table(piece, schema) for piece in _read(reader)), length)
    if hasattr(data, "__arrow_c_array__"):
        table = pa.Table.from_batches([_taken_in(pa.record_batch, data)])
        return _tabular(plain_table(table, plain_schema(table.schema)))
    return None


def _chained(data: Iterable[Any]) -> Rows:
    items = iter(data)
    try:
        first = next(items)
    except StopIteration:
        raise UsageError("data= is an iterator without items: the columns are unknown") from None
    if (head := _tabular(first)) is None:
        raise _refused(data if isinstance(data, list) else first)

    def rest() -> Iterator[pa.Table]:
        for item in items:
            if (found := _tabular(item)) is None:
                raise _refused(item)
            yield from found.pieces

    return Rows(head.schema, chain(head.pieces, rest()), None)


def _read(reader: pa.RecordBatchReader) -> Iterator[pa.Table]:
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        except (pa.ArrowException, OSError) as error:
            # The engine behind the stream failed; its message may hold values.
            raise UsageError(f"the source of the rows failed: {type(error).__name__}") from error
        yield pa.Table.from_batches([batch])


def _from_pandas(frame: Any) -> pa.Table:
    if not frame.columns.is_unique:
        raise UsageError("several columns have the same name")
    unnamed = [level for level, name in enumerate(frame.index.names) if name is None]
    named = len(unnamed) < frame.index.nlevels
    if named and unnamed:
        frame = frame.reset_index(level=unnamed, drop=True)
    try:
        return pa.Table.from_pandas(frame, preserve_index=named)
    except (pa.ArrowException, TypeError, ValueError) as error:
        # The first argument of Arrow's error holds the value, the second one the column.
        what = error.args[1] if len(error.args) > 1 else type(error).__name__
        raise UsageError(f"the pandas frame can't become Arrow: {what}", hint="frame.astype(...)") from None


def _no_objects(data: Any) -> None:
    """Polars hands out a column of Python's objects as bytes: the addresses that they have in this process."""
    if _is(data, "polars", "DataFrame"):
        for name, kind in data.schema.items():
            if kind.is_object():
                raise UsageError("a column of Python objects can't become Arrow", column=name, hint="cast it before")


def _taken_in(take: Callable[[Any], T], data: Any) -> T:
    try:
        return take(data)
    except BloomsealError:
        raise
    except (pa.ArrowException, TypeError, ValueError) as error:
        # A single column streams too, and is no table.
        raise _refused(data) from error


def _is(data: Any, module: str, name: str) -> bool:
    """Whose class it is, without loading a library that nobody has used."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(data, kind)


def _refused(data: Any) -> UsageError:
    kind = type(data).__name__
    if hasattr(data, "__arrow_c_stream__") and hasattr(data, "columns"):
        return UsageError(f"the {kind} can't become Arrow: a column's type is none of Arrow's", hint="cast it before")
    return UsageError(f"data= takes {_FITS}; not {kind}", hint=_ADVICE.get(kind))
