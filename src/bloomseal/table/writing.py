"""Writing one file, which then counts in the sealed indexes of its table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from ..core.storage.ref import FileRef
from ..policy import TablePolicy
from ..specs import EncryptionSpec
from ..storage.places import FilePlace
from ..write.rows_in import rows_in
from ..write.writer import DEFAULT_ROW_GROUP_SIZE, FileWriter, FilterLayout, FilterRequest
from .by_policy import add_by_policy

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem
    from pyarrow.fs import FileSystem

    from ..policy import PolicyChoice
    from ..write.arguments import WriterOptions


class SealedWriter(FileWriter):
    """A streaming writer that holds at most one row group (and one more for each thread above one).

    Leave the ``with`` block normally to complete the file; an exception inside it leaves no file. Arguments are those
    of `write_table`. Once writing has failed, rows are missing, and the writer refuses all but `abort`; a table that
    was refused before any of its rows were taken changes nothing. A writer that is dropped without `close` or `abort`
    leaves no file, and a BloomsealWarning.

    With a table's policy that wants indexes, a complete file is added to those that its folder, or one above it, has
    (docs/sealed-index.md). Where that fails, the file is there all the same, and a BloomsealWarning tells why.
    """

    def close(self) -> None:
        """Write what is pending, the footer, reopen, check, and give the file its name; then add it to the indexes of
        its table. A second time does nothing.

        Raises:
            UsageError: the writer has failed, or was aborted: rows would be missing.
            BloomsealError: as `write_table`.
        """
        done = self.complete
        super().close()
        if not done and isinstance(self._policy, TablePolicy) and self._ref.named:
            add_by_policy(self._ref, self._policy)


def write_table(
    data: Any,
    path: FilePlace | FileRef,
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
    """Write rows as one Parquet file, its sensitive columns' filters sealed.

    The file takes its name only when it is complete and has been reopened and probed. A file object has no name to
    take: the file is built and checked aside, in an anonymous temporary file, and then written to it once. A stream is
    written as it comes, with one row group in memory. See `SealedWriter` for the indexes of its table.

    Args:
        data: a Table, RecordBatch, RecordBatchReader, Dataset or Scanner of pyarrow; a frame of pandas or Polars; a
            DuckDB relation; anything with ``__arrow_c_stream__``; or an iterator of those. A pandas frame's index is
            stored if it has a name.
        path: local path, URI, path on `filesystem`, or an empty file object opened to write bytes.
        encryption: keys and modes, or a policy; None, without ``policy=`` too, writes a plaintext file.
        bloom_filters: dotted column path → `FilterSpec` (or a dict of its options, or True), or a list of such paths.
            Filters of encrypted columns are sealed with the column's key; those of plaintext columns stand in clear, as
            asked. None: those of the policy.
        row_group_size: rows per row group, at most.
        filter_layout: ``row_group`` writes each row group's filters behind it, ``end`` all after the last row group
            (Parquet Bloom filter specification, "File Format").
        threads: row groups that are encoded and hashed at the same time; each one more holds one more row group in
            memory.
        check_keys: have the KMS open each key that it has wrapped, before the file takes its name: whatever it wrapped
            wrongly would be lost with the file. None: where the file takes another one's place, and somebody here
            opens what is sealed to recipients. Who may only wrap writes to new places, or says False.
        filesystem: of pyarrow or fsspec, on which `path` lies; None: local, or a URI.
        options: ``policy=`` and ``table=``, see `bloomseal.specs.PolicyArguments`. And what
            `pyarrow.parquet.ParquetWriter` takes for encoding: compression, use_dictionary, ... The page index, which
            lets a lookup open single pages, is written (and sealed) unless ``write_page_index=False``, or the footer is
            plaintext: readers without keys (arrow-rs) take a sealed index for a clear one. Without ``use_dictionary=``,
            columns whose dictionary overflows in the first row group get none in the others.

    Raises:
        UsageError: an argument of the wrong type, no such column, a column that can't carry a filter, contradicting
            options, an overfilled filter whose size is to be hidden.
        KeyAccessError: a data key could not be made or wrapped; or the KMS does not open what it has wrapped
            (`check_keys`).
        BloomsealError: the storage failed. The old file, if any, is still there; or the new one, complete, where it had
            taken its name already (the folder can't be synced, the old file's key material can't be dropped).
    """
    rows = rows_in(data)
    with SealedWriter(
        path,
        rows.schema,
        encryption=encryption,
        bloom_filters=bloom_filters,
        row_group_size=row_group_size,
        filter_layout=filter_layout,
        filesystem=filesystem,
        threads=threads,
        check_keys=check_keys,
        **options,
    ) as writer:
        for piece in rows.pieces:
            writer.write_table(piece)
