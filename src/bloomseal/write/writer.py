"""Writing tables with sealed filters: pyarrow encodes pages in memory, every module is sealed on its way out."""

from __future__ import annotations

import functools
import inspect
import os
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import BloomsealError, FormatError, UsageError
from ..format.footer import Footer
from ..format.layout import Meta, read_tail
from ..format.opening import KeysAtHand, open_footer
from ..format.schema import Leaf, Schema
from ..format.walk import Walk
from ..sbbf import FilterSpec, SplitBlockBloomFilter
from ..specs import EncryptionSpec, encryption_for
from ..spelling import nearest
from ..storage.atomic import AtomicFile
from ..storage.source import Source, resolve_path
from ..thrift import Struct
from .assemble import Assembler
from .chunk_hashes import carries_filter, chunk_hashes
from .output_keys import OutputKeys

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

    from ..policy import TablePolicy

__all__ = [
    "DEFAULT_ROW_GROUP_SIZE",
    "FilterLayout",
    "FilterRequest",
    "SealedWriter",
    "check_filter",
    "resolve_filters",
    "write_table",
]

DEFAULT_ROW_GROUP_SIZE: Final = 1 << 20
FilterLayout = Literal["row_group", "end"]
FilterRequest = Mapping[str, FilterSpec | bool]

_DATA_PAGE, _PLAIN = 0, 0
_SPARE_BYTES: Final = 1 << 20
_SAMPLE_ROWS: Final = 20_000
_LEAST_SAMPLE: Final = 1_000
_DIFFERENT: Final = 0.95
_ARGUMENTS: Final = ("encryption", "bloom_filters", "row_group_size", "filter_layout", "filesystem", "threads")
_PASSED_THROUGH: Final = ("data_page_size", "coerce_timestamps", "allow_truncated_timestamps")
_OURS = {
    "encryption_properties",
    "bloom_filter_options",
    "row_group_size",
    "where",
    "sink",
    "filesystem",
    "memory_pool",
}


def write_table(
    table: pa.Table,
    path: str | os.PathLike[str],
    *,
    encryption: EncryptionSpec | TablePolicy | None = None,
    bloom_filters: FilterRequest | None = None,
    row_group_size: int = DEFAULT_ROW_GROUP_SIZE,
    filter_layout: FilterLayout = "row_group",
    filesystem: FileSystem | None = None,
    threads: int = 1,
    **options: Any,
) -> None:
    """Write a table as one Parquet file, its sensitive columns' filters sealed.

    The file takes its name only when it is complete and has been reopened and probed.

    Args:
        table: the data.
        path: local path, URI, or path on `filesystem`.
        encryption: keys and modes, or a table's policy (`Policy.for_table`); None writes a plaintext file.
        bloom_filters: dotted column path → `FilterSpec` (or True for the default one). Filters of encrypted columns are
            sealed with the column's key; those of plaintext columns stand in clear, as asked. None: those of the policy.
        row_group_size: rows per row group, at most.
        filter_layout: ``row_group`` writes each row group's filters behind it, ``end`` all after the last row group
            (Parquet Bloom filter specification, "File Format").
        threads: row groups that are encoded and hashed at the same time; each one more holds one more row group in
            memory.
        options: what `pyarrow.parquet.ParquetWriter` takes for encoding: compression, use_dictionary, ... The page index,
            which lets a lookup open single pages, is written (and sealed) unless ``write_page_index=False``, or the footer
            is plaintext: readers without keys (arrow-rs) take a sealed index for a clear one. Without ``use_dictionary=``, columns whose dictionary overflows in the first row group get none in the others.

    Raises:
        UsageError: no such column, a column that can't carry a filter, contradicting options, an overfilled filter
            whose size is to be hidden.
        KeyAccessError: a data key could not be made or wrapped.
        BloomsealError: the storage failed. The old file, if any, is still there; or the new one, complete, where it had
            taken its name already (the folder can't be synced, the old file's key material can't be dropped).
    """
    with SealedWriter(
        path,
        table.schema,
        encryption=encryption,
        bloom_filters=bloom_filters,
        row_group_size=row_group_size,
        filter_layout=filter_layout,
        filesystem=filesystem,
        threads=threads,
        **options,
    ) as writer:
        writer.write_table(table)


@dataclass(frozen=True, slots=True)
class _Encoded:
    """One row group in memory: its plaintext pages, its filters, and a value's hash of each."""

    ordinal: int
    walk: Walk
    filters: dict[int, SplitBlockBloomFilter]
    samples: dict[int, int]


class SealedWriter:
    """A streaming writer that holds at most one row group (and one more for each thread above one).

    Leave the ``with`` block normally to complete the file; an exception inside it leaves no file. Arguments are those
    of `write_table`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: pa.Schema,
        *,
        encryption: EncryptionSpec | TablePolicy | None = None,
        bloom_filters: FilterRequest | None = None,
        row_group_size: int = DEFAULT_ROW_GROUP_SIZE,
        filter_layout: FilterLayout = "row_group",
        filesystem: FileSystem | None = None,
        threads: int = 1,
        **options: Any,
    ) -> None:
        self._ref = resolve_path(path, filesystem)
        policy, encryption = encryption, encryption_for(encryption, self._ref)
        if bloom_filters is None and policy is not None and not isinstance(policy, EncryptionSpec):
            bloom_filters = policy.bloom_filters()
        _check_options(options, encryption)
        if row_group_size < 1:
            raise UsageError(f"a row group of {row_group_size} rows", hint="row_group_size= of at least 1")
        if threads < 1:
            raise UsageError(f"{threads} threads", hint="threads= of at least 1")
        if filter_layout not in ("row_group", "end"):
            raise UsageError(f"unknown filter layout {filter_layout!r}", hint="'row_group' or 'end'")
        self._arrow = schema
        self._options = {"write_page_index": encryption is None or not encryption.plaintext_footer, **options}
        self._choose_dictionaries = not {"use_dictionary", "column_encoding"} & options.keys()
        self._row_group_size = row_group_size
        if len(set(schema.names)) < len(schema.names):
            raise UsageError("several columns have the same name", file=self._ref.path)
        try:
            empty = schema.empty_table()
        except pa.ArrowException as error:
            raise UsageError(f"pyarrow can't encode this schema: {error}", file=self._ref.path) from None
        # Bytes that Parquet makes of one of Arrow's, at most; learnt from row group to row group.
        self._swelling = 1.25
        self._template = self._encode(empty).footer
        self._specs = resolve_filters(self._template.schema, bloom_filters or {})
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self._samples: dict[tuple[int, int], int] = {}
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self._ahead: deque[Future[_Encoded]] = deque()
        self._flushed = 0
        self._keys = OutputKeys(encryption, self._template.schema, self._ref) if encryption else None
        try:
            self._file = AtomicFile(self._ref)
        except BaseException:
            self._discard_keys()
            raise
        self._out = Assembler(self._file, self._keys, filters_at_end=filter_layout == "end")

    @property
    def bytes_written(self) -> int:
        """The file's size so far; rows of a row group that is not full yet are not in it."""
        return self._out.position

    def write_table(self, table: pa.Table) -> None:
        """Append rows. They are written whenever a row group is full."""
        if not table.schema.equals(self._arrow):
            raise UsageError("the table's schema is not the writer's", hint="table.cast(schema)")
        position = 0
        while position < table.num_rows:
            piece = table.slice(position, self._row_group_size - self._pending_rows)
            position += piece.num_rows
            self._pending.append(piece)
            self._pending_rows += piece.num_rows
            if self._pending_rows == self._row_group_size:
                self._flush()

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Append a record batch."""
        self.write_table(pa.Table.from_batches([batch], schema=batch.schema))

    def write_batches(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Append all batches of a stream, such as a RecordBatchReader."""
        for batch in batches:
            self.write_batch(batch)

    def close(self) -> None:
        """Write what is pending, the footer, reopen, check, and give the file its name."""
        self._flush()
        while self._ahead:
            self._take_over(self._ahead.popleft().result())
        self._out.finish(self._template.struct)
        self._out.close()
        if self._keys is not None:
            self._keys.store()
        if self._pool is not None:
            self._pool.shutdown()
        self._file.commit(self._check)
        if self._keys is not None:
            self._keys.committed()

    def abort(self) -> None:
        """Drop everything that was written."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._out.close()
        self._file.abort()
        if not self._file.placed:
            self._discard_keys()

    def _flush(self) -> None:
        if not self._pending:
            return
        rows = pa.concat_tables(self._pending)
        self._pending, self._pending_rows = [], 0
        ordinal, self._flushed = self._flushed, self._flushed + 1
        if self._pool is None or ordinal == 0:
            if ordinal == 0 and self._choose_dictionaries:
                # A dictionary of values that hardly ever repeat fits its page in a small row group, and is a burden: the
                # file is larger for it, and parquet-java expands it at every look-up before it asks the filter.
                different = _all_different(rows)
                leaves = self._template.schema.leaves
                self._options["use_dictionary"] = [leaf.name for leaf in leaves if leaf.name not in different]
            encoded = self._prepare(rows, ordinal)
            if ordinal == 0 and self._choose_dictionaries:
                # A dictionary that outgrew its page was built for nothing, which takes half of the encoder's time. The first
                # row group tells which columns are like that, whatever the number of threads.
                self._options["use_dictionary"] = _with_dictionary(encoded.walk)
            self._take_over(encoded)
            return
        # Encoding and hashing run side by side, in Arrow and numba without the interpreter's lock; sealing and writing
        # stay in order, here.
        self._ahead.append(self._pool.submit(self._prepare, rows, ordinal))
        if len(self._ahead) >= self._threads:
            self._take_over(self._ahead.popleft().result())

    def _prepare(self, rows: pa.Table, ordinal: int) -> _Encoded:
        walk = self._encode(rows)
        encoded = _Encoded(ordinal, walk, {}, {})
        for leaf, spec in self._specs:
            array = rows.column(leaf.name) if len(leaf.path) == 1 else None
            try:
                hashes = chunk_hashes(walk, 0, leaf, array)
                encoded.filters[leaf.index] = spec.build(hashes)
            except BloomsealError as error:
                error.row_group = ordinal
                raise error.at(file=self._ref.path, column=leaf.name) from error.__cause__
            if len(hashes):
                encoded.samples[leaf.index] = int(hashes[len(hashes) // 2])
        return encoded

    def _take_over(self, encoded: _Encoded) -> None:
        for column, sample in encoded.samples.items():
            self._samples[encoded.ordinal, column] = sample
        self._out.add_row_group(encoded.walk, 0, encoded.filters)

    def _encode(self, rows: pa.Table) -> Walk:
        """The rows as a plaintext Parquet file of one row group, in memory only."""
        try:
            data = self._encoded(rows)
        except (pa.ArrowException, OSError, ValueError, TypeError) as error:
            # OSError is what Parquet's own refusals come as; no storage is concerned.
            raise UsageError(f"pyarrow can't encode this table: {error}", file=self._ref.path) from None
        source = Source.memory(data, self._ref.path)
        walk = Walk(source, Footer(read_tail(source).data, 0, None, True), KeysAtHand(None, None))
        if len(walk.footer.row_groups) != (1 if rows.num_rows else 0):
            raise UsageError("the options split the row group", hint="row_group_size= alone decides its rows")
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
        """The rows in memory of a fixed size, of which only what is written to is ever there; a stream that grows by doubling
        holds its bytes twice, for a moment. None where that is too little: Parquet may write out what Arrow holds once, in a
        dictionary or a run. Or where Parquet refuses the rows, as it will again.
        """
        try:
            room = np.empty(size, dtype=np.uint8)
            sink = pa.FixedSizeBufferWriter(pa.py_buffer(room))
            self._encode_into(sink, rows)
        except (OSError, MemoryError):
            return None
        return room.data[: sink.tell()]

    def _encode_into(self, sink: pa.NativeFile, rows: pa.Table) -> None:
        with pq.ParquetWriter(sink, self._arrow, **self._options) as writer:
            if rows.num_rows:
                writer.write_table(rows, row_group_size=rows.num_rows)

    def _check(self, reopened: Source) -> None:
        """Before the file gets its name: the footer opens and every filter finds a value that went into it."""
        decryption = self._keys.decryption() if self._keys else None
        footer, keys = open_footer(reopened, decryption)
        walk = Walk(reopened, footer, keys)
        for group in range(len(footer.row_groups)):
            for leaf, _ in self._specs:
                check_filter(walk, group, leaf, self._samples.get((group, leaf.index)))

    def _discard_keys(self) -> None:
        if self._keys is not None:
            self._keys.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.close()
        except BaseException:
            self.abort()
            raise
        if kind is not None:
            self.abort()


def _all_different(rows: pa.Table) -> set[str]:
    """Flat columns whose values hardly ever repeat, by those of the first rows.

    Where 95 % of 20,000 values are different, there are some 200,000 of them at least: more than a dictionary page holds, or
    nearly one per row.
    """
    import pyarrow.compute as pc

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


def check_filter(walk: Walk, row_group: int, leaf: Leaf, sample: int | None) -> None:
    """A filter just written must open, sealed where its column is, and find a value's hash that went into it.

    Raises:
        FormatError: it does not; the file must not take its name.
    """
    chunk = walk.chunk(row_group, leaf.index)
    found = walk.filter(chunk)
    if found is None or found.sealed != chunk.encrypted:
        raise FormatError("the filter just written is missing or not sealed", row_group=row_group, column=leaf.name)
    if sample is not None and not SplitBlockBloomFilter.from_bitset(found.bitset).check_hash(sample):
        raise FormatError("the filter just written does not find its values", row_group=row_group, column=leaf.name)


@functools.cache
def _encoding_options() -> tuple[str, ...]:
    """The options of this pyarrow's writer, with those that only its C++ part knows."""
    named = inspect.signature(pq.ParquetWriter.__init__).parameters.values()
    taken = [one.name for one in named if one.kind is not one.VAR_KEYWORD and one.name not in ("self", "schema")]
    return (*taken, *_PASSED_THROUGH)


def _check_options(options: dict[str, Any], encryption: EncryptionSpec | None) -> None:
    if taken := _OURS & options.keys():
        raise UsageError(f"{', '.join(sorted(taken))} can't be passed on to pyarrow here")
    known = [*_ARGUMENTS, *(name for name in _encoding_options() if name not in _OURS)]
    if unknown := [name for name in options if name not in known]:
        raise UsageError(
            f"the writer has no option {unknown[0]!r}", hint=f"one of {', '.join(nearest(unknown[0], known))}"
        )
    if encryption is not None and options.get("data_page_version", "1.0") != "1.0":
        # parquet-java leaves the levels of encrypted V2 pages in clear, Arrow C++ seals them: no V2 page suits both.
        raise UsageError("encrypted files are written with V1 data pages", hint='data_page_version="1.0"')


def resolve_filters(schema: Schema, wanted: FilterRequest) -> list[tuple[Leaf, FilterSpec]]:
    """The leaves and specifications of a ``bloom_filters=`` argument, in schema order.

    Raises:
        UsageError: no such column, one asked for under two names, a column that can't carry a filter, or neither a
            FilterSpec nor a bool.
    """
    specs: dict[int, tuple[Leaf, FilterSpec]] = {}
    for name, spec in wanted.items():
        if spec is False or spec is None:
            continue
        if not isinstance(spec, FilterSpec) and spec is not True:
            raise UsageError(
                f"a FilterSpec or True, not {type(spec).__name__}",
                column=name,
                hint=f"FilterSpec with any of {', '.join(one.name for one in fields(FilterSpec))}",
            )
        leaf = schema.leaf(name)
        carries_filter(leaf)
        if leaf.index in specs:
            # One of the two would win unseen, though the other may be the one that hides its size.
            raise UsageError(
                "two filters for the same column", column=leaf.name, hint=f"leave out {name} or the other name"
            )
        specs[leaf.index] = (leaf, FilterSpec() if spec is True else spec)
    return [specs[index] for index in sorted(specs)]
