"""Rows as plaintext Parquet pages, in memory only; what one row group teaches serves the next."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..core.errors import Hint, UsageError
from ..core.parquet.footer import Footer
from ..core.parquet.keys_at_hand import KeysAtHand
from ..core.parquet.layout import Meta, read_tail
from ..core.parquet.walk import Walk
from ..core.storage.source import Buffer, Source
from ..core.thrift import Struct

_DATA_PAGE, _PLAIN = 0, 0
_SPARE_BYTES: Final = 1 << 20
_SAMPLE_ROWS: Final = 20_000
_LEAST_SAMPLE: Final = 1_000
_DIFFERENT: Final = 0.95


class Encoder:
    """Encodes row group after row group of one file.

    Args:
        schema: of the rows.
        options: for `pyarrow.parquet.ParquetWriter`.
        path: the file, for errors.

    Attributes:
        template: the footer of a file without rows.

    Raises:
        UsageError: pyarrow can't encode this schema, or does not know an option.
    """

    def __init__(self, schema: pa.Schema, options: dict[str, Any], path: str) -> None:
        self.schema = schema
        self._options = options
        self._path = path
        self._choose_dictionaries = not {"use_dictionary", "column_encoding"} & options.keys()
        # Bytes that Parquet makes of one of Arrow's, at most; learnt from row group to row group.
        self._swelling = 1.25
        if len(set(schema.names)) < len(schema.names):
            raise UsageError("several columns have the same name", file=path)
        # Of no batches: `empty_table` knows no lists and structs of extension types.
        self.template = self._parsed(self._refusing(pa.Table.from_batches([], schema)), 0).footer

    def look_at(self, rows: pa.Table) -> None:
        """Before the first row group is encoded: which columns get no dictionary, unless the options say it."""
        if self._choose_dictionaries:
            # A dictionary of values that hardly ever repeat fits its page in a small row group, and is a burden: the
            # file is larger for it, and parquet-java expands it at every look-up before it asks the filter.
            different = _all_different(rows)
            leaves = self.template.schema.leaves
            self._options["use_dictionary"] = [leaf.name for leaf in leaves if leaf.name not in different]

    def learn(self, walk: Walk) -> None:
        """After the first row group: a dictionary that outgrew its page took half of the time, for nothing."""
        if self._choose_dictionaries:
            self._options["use_dictionary"] = _with_dictionary(walk)

    def encode(self, rows: pa.Table) -> Walk:
        """The rows as a plaintext Parquet file of one row group, in memory only."""
        return self._parsed(self._refusing(rows), rows.num_rows)

    def _refusing(self, rows: pa.Table) -> memoryview:
        """As `_encoded`, with pyarrow's errors as ours."""
        try:
            return self._encoded(rows)
        except (pa.ArrowException, OSError, ValueError, TypeError, AttributeError, LookupError) as error:
            # OSError is what Parquet's own refusals come as; no storage is concerned.
            raise UsageError(f"pyarrow can't encode this table: {error}", file=self._path) from None

    def _parsed(self, data: Buffer, rows: int) -> Walk:
        source = Source.memory(data, self._path)
        walk = Walk(source, Footer(read_tail(source).data, 0, None, True), KeysAtHand(None, None))
        if len(walk.footer.row_groups) != (1 if rows else 0):
            raise UsageError("the options split the row group", hint=Hint.ROW_GROUP_SIZE)
        return walk

    def _encoded(self, rows: pa.Table) -> memoryview:
        # The two sums differ where chunks share a dictionary, or where rows are a slice of many.
        size = min(rows.nbytes, rows.get_total_buffer_size())
        data = self._within(int(size * self._swelling) + _SPARE_BYTES, rows)
        if data is None:
            sink = pa.BufferOutputStream()
            self._encode_into(sink, rows)
            data = memoryview(sink.getvalue())
        self._swelling = max(self._swelling, 1.1 * (len(data) - _SPARE_BYTES) / max(size, 1))
        return data

    def _within(self, size: int, rows: pa.Table) -> memoryview | None:
        """The rows in memory of a fixed size, of which only what is written to is ever there; a stream that grows by
        doubling holds its bytes twice, for a moment. None where that is too little: Parquet may write out what Arrow
        holds once, in a dictionary or a run. Or where Parquet refuses the rows, as it will again.
        """
        try:
            room = np.empty(size, dtype=np.uint8)
            sink = pa.FixedSizeBufferWriter(pa.py_buffer(room))
            self._encode_into(sink, rows)
        except (OSError, MemoryError):
            return None
        return room.data[: sink.tell()]

    def _encode_into(self, sink: pa.NativeFile, rows: pa.Table) -> None:
        with pq.ParquetWriter(sink, self.schema, **self._options) as writer:
            if rows.num_rows:
                writer.write_table(rows, row_group_size=rows.num_rows)


def _all_different(rows: pa.Table) -> set[str]:
    """Flat columns whose values hardly ever repeat, by those of the first rows.

    Where 95 % of 20,000 values are different, there are some 200,000 of them at least: more than a dictionary page
    holds, or nearly one per row.
    """
    import pyarrow.compute as pc

    if rows.num_rows < _LEAST_SAMPLE:
        return set()
    found = set()
    for field in rows.schema:
        if pa.types.is_nested(field.type) or pa.types.is_dictionary(field.type):
            continue
        try:
            sample = rows.column(field.name).slice(0, _SAMPLE_ROWS).drop_null()
            different = len(pc.unique(sample))
        except pa.ArrowNotImplementedError:
            continue  # half floats, views, extension types: not told, not dropped
        if len(sample) >= _LEAST_SAMPLE and different >= _DIFFERENT * len(sample):
            found.add(field.name)
    # The tables of values seen would lie there for as long as the pool is not idle: as much as a small row group.
    pa.default_memory_pool().release_unused()
    return found


def _with_dictionary(walk: Walk) -> list[str]:
    """The columns of a row group just encoded whose dictionary held all values."""
    kept = []
    for chunk in walk.chunks(0):
        pages = [Struct.parse(raw) for raw in Struct.parse(walk.meta_raw(chunk)).elements(Meta.ENCODING_STATS)]
        plain = any(page.integer(1) == _DATA_PAGE and page.integer(2) == _PLAIN for page in pages)
        if not plain:
            kept.append(chunk.leaf.name)
    return kept
