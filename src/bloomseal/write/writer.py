"""Writing tables with sealed filters: pyarrow encodes pages in memory, every module is sealed on its way out."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, Unpack

import pyarrow as pa

from ..core.errors import BloomsealError, BloomsealWarning, FormatError, KeyAccessError, UsageError
from ..core.parquet.schema import Leaf
from ..core.parquet.walk import Walk
from ..core.sbbf import SplitBlockBloomFilter
from ..core.storage.ref import FileRef
from ..core.storage.source import Source
from ..format.hashes.chunk_hashes import chunk_hashes
from ..format.opening import open_footer
from ..keytools.signatures.signers import tail_signer
from ..policy import TablePolicy
from ..sbbf import FilterSpec
from ..specs import EncryptionSpec, encryption_for, resolve_policy
from ..storage.atomic import AtomicFile
from ..storage.places import FilePlace, resolve_path
from .arguments import (
    FilterLayout,
    FilterRequest,
    WriterOptions,
    a_count,
    check_options,
    is_a,
    policy_apart,
    resolve_filters,
)
from .assemble import Assembler
from .encode import Encoder
from .output_keys import OutputKeys
from .rows_in import rows_in

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem
    from pyarrow.fs import FileSystem

    from ..policy import PolicyChoice

__all__ = [
    "DEFAULT_ROW_GROUP_SIZE",
    "FileWriter",
    "FilterLayout",
    "FilterRequest",
    "check_filters",
    "resolve_filters",
]

DEFAULT_ROW_GROUP_SIZE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class _Encoded:
    """One row group in memory: its plaintext pages, its filters, and a value's hash of each."""

    ordinal: int
    walk: Walk
    filters: dict[int, SplitBlockBloomFilter]
    samples: dict[int, int]


class _WriterState(StrEnum):
    OPEN = "open"
    FAILED = "failed"
    COMPLETE = "complete"
    ABORTED = "aborted"


class FileWriter:
    """A streaming writer that holds at most one row group (and one more for each thread above one).

    Leave the ``with`` block normally to complete the file; an exception inside it leaves no file. Arguments are those
    of `write_table`. Once writing has failed, rows are missing, and the writer refuses all but `abort`; a table that
    was refused before any of its rows were taken changes nothing. A writer that is dropped without `close` or `abort`
    leaves no file, and a BloomsealWarning.
    """

    _state = _WriterState.ABORTED  # until it is whole

    def __init__(
        self,
        path: FilePlace | FileRef,
        schema: pa.Schema,
        *,
        encryption: EncryptionSpec | PolicyChoice | None = None,
        bloom_filters: FilterRequest | None = None,
        row_group_size: int = DEFAULT_ROW_GROUP_SIZE,
        filter_layout: FilterLayout = "row_group",
        filesystem: FileSystem | AbstractFileSystem | None = None,
        threads: int = 1,
        check_keys: bool | None = None,
        **options: Unpack[WriterOptions],
    ) -> None:
        self._owner = os.getpid()
        self._ref = resolve_path(path, filesystem)
        schema = is_a(pa.Schema, schema, "schema")
        row_group_size = a_count(row_group_size, "row_group_size", "a row group of {} rows")
        threads = a_count(threads, "threads", "{} threads")
        named, encoding = policy_apart(options)
        self._policy = resolve_policy(EncryptionSpec, encryption, self._ref, **named)
        if isinstance(self._policy, TablePolicy):
            if self._policy.iceberg is not None:
                what = "a file of an encrypted Iceberg table, which only the engine of its catalog writes"
                raise UsageError(what, file=self._ref.path)
            bloom_filters = self._policy.bloom_filters() if bloom_filters is None else bloom_filters
        spec = encryption_for(self._policy, self._ref)
        check_options(encoding, spec)
        if filter_layout not in ("row_group", "end"):
            raise UsageError(f"unknown filter layout {filter_layout!r}", hint="'row_group' or 'end'")
        encoding = {"write_page_index": spec is None or not spec.plaintext_footer, **encoding}
        self._row_group_size = row_group_size
        self._encoder = Encoder(schema, encoding, self._ref.path)
        self._template = self._encoder.template
        self._specs = resolve_filters(self._template.schema, {} if bloom_filters is None else bloom_filters)
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self._samples: dict[tuple[int, int], int] = {}
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self._ahead: deque[Future[_Encoded]] = deque()
        self._flushed = 0
        self._sign = tail_signer(spec, self._ref)
        self._keys = OutputKeys(spec, self._template.schema, self._ref) if spec else None
        self._check_keys = check_keys
        self._file = self._begun()
        self._out = Assembler(self._file, self._keys, filters_at_end=filter_layout == "end")
        self._state = _WriterState.OPEN

    def _begun(self) -> AtomicFile:
        """The temporary file."""
        try:
            file = AtomicFile(self._ref, sign=self._sign)
            try:
                self._confirm_keys(file)  # rather than after the last row
            except BaseException:
                file.abort()
                raise
        except BaseException:
            self._discard_keys()
            raise
        return file

    @property
    def bytes_written(self) -> int:
        """The file's size so far; rows of a row group that is not full yet are not in it."""
        return self._out.position

    @property
    def placed(self) -> bool:
        """The final place may hold the file."""
        return self._file.placed

    @property
    def signed_by(self) -> str | None:
        """Who signs the file, by his name in the policy; None where nobody has to."""
        return None if self._sign is None else self._sign.name

    @property
    def complete(self) -> bool:
        """The file has its name."""
        return self._state is _WriterState.COMPLETE

    def write(self, data: Any) -> None:
        """Append rows of any kind that `bloomseal.write_table` takes; otherwise as `write_table`.

        What a stream gave before it failed has been taken.
        """
        self._need_open()
        for piece in rows_in(data).pieces:
            self.write_table(piece)

    def write_table(self, table: pa.Table) -> None:
        """Append rows. They are written whenever a row group is full.

        Raises:
            UsageError: no table, another schema, or the writer has failed or ended.
            BloomsealError: writing failed; all but `abort` is refused from then on.
        """
        self._need_open()
        if not is_a(pa.Table, table, "table").schema.equals(self._encoder.schema):
            raise UsageError("the table's schema is not the writer's", file=self._ref.path, hint="table.cast(schema)")
        if table.num_rows and not table.num_columns:
            raise UsageError(f"{table.num_rows} rows without columns: no file can hold those", file=self._ref.path)
        with self._at_work():
            position = 0
            while position < table.num_rows:
                piece = table.slice(position, self._row_group_size - self._pending_rows)
                position += piece.num_rows
                self._pending.append(piece)
                self._pending_rows += piece.num_rows
                if self._pending_rows == self._row_group_size:
                    self._flush()

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Append a record batch; otherwise as `write_table`."""
        self.write_table(pa.Table.from_batches([is_a(pa.RecordBatch, batch, "batch")]))

    def write_batches(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Append all batches of a stream, such as a RecordBatchReader; otherwise as `write_table`."""
        self._need_open()
        for batch in is_a(Iterable, batches, "batches"):
            self.write_batch(batch)

    def close(self) -> None:
        """Write what is pending, the footer, reopen, check, and give the file its name. A second time does nothing.

        Raises:
            UsageError: the writer has failed, or was aborted: rows would be missing.
            BloomsealError: as `write_table`.
        """
        if self._state is _WriterState.COMPLETE:
            return
        self._need_open()
        with self._at_work():
            self._flush(last=True)
            while self._ahead:
                self._take_over(self._ahead.popleft().result())
            self._out.finish(self._template.struct)
            self._out.close()
            self._confirm_keys(self._file)  # what is there now may have come meanwhile
            if self._keys is not None:
                self._keys.store()
            if self._pool is not None:
                self._pool.shutdown()
            self._file.commit(self._check)
            if self._keys is not None:
                self._keys.committed()
        self._state = _WriterState.COMPLETE

    def abort(self) -> None:
        """Drop everything that was written; after `close`, or a second time, it does nothing."""
        if self._state in (_WriterState.COMPLETE, _WriterState.ABORTED):
            return
        self._state = _WriterState.ABORTED
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._out.close()
        self._file.abort()
        if not self._file.placed:
            self._discard_keys()

    def _need_open(self) -> None:
        """Rows taken now would be lost, or others are."""
        match self._state:
            case _WriterState.FAILED:
                what, hint = (
                    "the writer has failed, and rows that it took are missing",
                    "abort, and write the file again",
                )
            case _WriterState.COMPLETE:
                what, hint = "the writer is closed, its file complete", "a writer of its own for another file"
            case _WriterState.ABORTED:
                what, hint = "the writer was aborted, and its rows dropped", "a new writer"
            case _:
                return
        raise UsageError(what, file=self._ref.path, hint=hint)

    @contextlib.contextmanager
    def _at_work(self) -> Iterator[None]:
        self._state = _WriterState.FAILED
        yield
        self._state = _WriterState.OPEN

    def _flush(self, *, last: bool = False) -> None:
        if not self._pending:
            return
        rows = pa.concat_tables(self._pending)
        self._pending, self._pending_rows = [], 0
        ordinal, self._flushed = self._flushed, self._flushed + 1
        if self._pool is None or ordinal == 0:
            # The first row group is what the encoder learns from, whatever the number of threads.
            if ordinal == 0:
                self._encoder.look_at(rows)
            encoded = self._prepare(rows, ordinal)
            if ordinal == 0 and not last:
                self._encoder.learn(encoded.walk)
            self._take_over(encoded)
            return
        # Encoding and hashing run side by side, in Arrow and numba without the interpreter's lock; sealing and writing
        # stay in order, here.
        self._ahead.append(self._pool.submit(self._prepare, rows, ordinal))
        if len(self._ahead) >= self._threads:
            self._take_over(self._ahead.popleft().result())

    def _prepare(self, rows: pa.Table, ordinal: int) -> _Encoded:
        walk = self._encoder.encode(rows)
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

    def _check(self, reopened: Source) -> Walk:
        """Before the file gets its name: the footer opens and every filter finds a value that went into it."""
        walk = Walk(reopened, *open_footer(reopened, self._keys.decryption() if self._keys else None))
        check_filters(walk, self._specs, self._samples)
        return walk

    def _confirm_keys(self, file: AtomicFile) -> None:
        """What would be replaced is lost where the KMS has wrapped wrongly: nobody could open the new file."""
        if self._keys is None or self._check_keys is False:
            return
        if not (self._check_keys or self._replaces(file)):
            return
        try:
            unseen = self._keys.confirm()
        except KeyAccessError as error:
            error.what += ", asked for what it has wrapped before a file is replaced"
            raise
        if unseen and self._check_keys:
            raise KeyAccessError(
                f"nothing here opens what is sealed to the recipients of {min(unseen)}, so that it can't be checked",
                file=self._ref.path,
                hint="without check_keys; or with a recipient's keyring",
            )

    def _replaces(self, file: AtomicFile) -> bool:
        """Whether something goes for the new file."""
        return file.takes_a_place()

    def _discard_keys(self) -> None:
        if self._keys is not None:
            self._keys.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._state is not _WriterState.ABORTED:
                self.close()
        finally:
            self.abort()

    def __del__(self) -> None:
        # A process that was forked holds a copy, and has no say about the file.
        if self._state in (_WriterState.OPEN, _WriterState.FAILED) and self._owner == os.getpid():
            if self._pool is not None:
                # This may be one of its threads, which held the writer last.
                self._pool.shutdown(wait=False, cancel_futures=True)
                self._pool = None
            self.abort()
            warnings.warn(
                f"{self._ref.path}: a writer was dropped before close(); no file was written",
                BloomsealWarning,
                stacklevel=2,
                source=self,
            )

    def __reduce__(self) -> NoReturn:
        # It has keys, and a file that a copy would end.
        raise TypeError("a writer is neither copied nor pickled; let each process open its own")


def check_filters(walk: Walk, specs: list[tuple[Leaf, FilterSpec]], samples: Mapping[tuple[int, int], int]) -> None:
    """Filters just written must open, sealed where their columns are, and find a value's hash that went into them.

    Args:
        samples: row group and column → such a hash.

    Raises:
        FormatError: one does not; the file must not take its name.
    """
    for group in range(len(walk.footer.row_groups)):
        for leaf, _ in specs:
            chunk, sample = walk.chunk(group, leaf.index), samples.get((group, leaf.index))
            found = walk.filter(chunk)
            if found is None or found.sealed != chunk.encrypted:
                raise FormatError("the filter just written is missing or not sealed", row_group=group, column=leaf.name)
            if sample is not None and not SplitBlockBloomFilter.from_bitset(found.bitset).check_hash(sample):
                raise FormatError("the filter just written does not find its values", row_group=group, column=leaf.name)
