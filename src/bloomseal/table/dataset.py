"""Many files from one stream of rows: partitions as folders, files of a size, old ones removed at the end."""

from __future__ import annotations

import os
import posixpath
import secrets
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack

import pyarrow as pa

from ..core.errors import BloomsealError, BloomsealWarning, UsageError
from ..core.text import counted
from ..format.plain import plain_schema, plain_table
from ..notebook import ShownInNotebooks
from ..policy import TablePolicy
from ..specs import EncryptionSpec, resolve_policy
from ..storage.atomic import AtomicFile
from ..write.arguments import FilterRequest, WriterOptions, a_count, policy_apart
from ..write.rows_in import Rows, rows_in
from ..write.writer import DEFAULT_ROW_GROUP_SIZE, FileWriter
from .by_policy import index_by_policy
from .folder import Existing, TargetFolder
from .hive import check_partitioning, check_values, folders
from .query.partitions import misread

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem
    from pyarrow.fs import FileSystem

    from ..index.update import UpdateReport
    from ..policy import PolicyChoice

Progress = Callable[[int, int | None], None]

_TEXTS: Final = {pa.string(), pa.large_string()}
_FILE_NAME: Final = "part-{i}-{token}.parquet"
_WAITING_BYTES: Final = 256 << 20
"""What all rows may take that are in no row group yet."""
_PIECE_BYTES: Final = 512
"""What a column of a piece takes beside its values."""
_MOST_PIECES: Final = 64
_PORTION_ROWS: Final = 1 << 18
_NAMED: Final = 10


@dataclass
class DatasetReport(ShownInNotebooks):
    """What `write_dataset` did.

    Attributes:
        path: the folder.
        files: one entry per file, in the order in which they took their names: path, rows, bytes.
        rows: in all of them.
        removed: old files that are gone.
        kept: old files that somebody exchanged while the new ones were written; they are still there.
        indexes: column → what was done to the sealed index that the policy wants of it, see `SealedIndex.update`.
    """

    path: str
    files: list[dict[str, Any]] = field(default_factory=list)
    rows: int = 0
    removed: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    indexes: dict[str, UpdateReport] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "indexes": {name: one.to_dict() for name, one in self.indexes.items()}}


def write_dataset(
    data: Any,
    folder: str | os.PathLike[str],
    *,
    encryption: EncryptionSpec | PolicyChoice | None = None,
    partition_by: Sequence[str] = (),
    rows_per_file: int | None = None,
    bytes_per_file: int | None = None,
    row_group_size: int = DEFAULT_ROW_GROUP_SIZE,
    bloom_filters: FilterRequest | None = None,
    mode: Literal["error", "append", "overwrite"] = "error",
    file_name: str = _FILE_NAME,
    filesystem: FileSystem | AbstractFileSystem | None = None,
    max_open_files: int = 64,
    threads: int = 1,
    check_keys: bool | None = None,
    progress: Progress | None = None,
    **options: Unpack[WriterOptions],
) -> DatasetReport:
    """Write rows as a table of many files, in folders by the values of columns.

    Each file takes its name when it is complete and has been reopened and probed. Rows are taken as they come; of each
    partition at most one row group waits in memory, of all of them 256 MiB. Where more would wait, or more files be
    open than may be, a file is completed early, and its partition goes on in another one.

    The sealed indexes that a policy wants are built or brought up to date at the end (docs/sealed-index.md). Where that
    fails, the rows are there all the same, and a BloomsealWarning tells why.

    An AAD prefix with ``{path}`` is made of the place in `folder`, unless the policy's ``root`` says another.

    Args:
        data: as for `write_table`.
        folder: the table's folder: path, URI or path on `filesystem`. It is made.
        encryption: keys and modes, or a policy; None, without ``policy=`` too, writes plaintext files.
        partition_by: columns that become folders, as Hive, Spark and pyarrow name them (``country=DE``), and are in no
            file: texts, whole numbers, booleans, dates. Their values stand in clear. Null becomes
            ``__HIVE_DEFAULT_PARTITION__``. A BloomsealWarning tells of texts that readers take for something else.
        rows_per_file: rows per file, at most.
        bytes_per_file: size of a file, about; the size of sealed rows is estimated by that of files already written.
        row_group_size, bloom_filters, filesystem, threads, options: as for `write_table`.
        mode: ``error`` refuses a folder that holds files, ``append`` leaves them, ``overwrite`` removes the Parquet
            files that were there at the beginning, after all new ones have their names. Readers see both until then.
        file_name: with ``{i}``, the file's number, and ``{token}``, 16 random characters, the same in all files.
        max_open_files: files that are open at the same time; only those with a full row group are.
        check_keys: as for `write_table`; None: where old files go.
        progress: called with (rows in files so far, rows in all or None for a stream).

    Raises:
        UsageError: arguments that are wrong or contradict each other; a folder with files; a name that is taken;
            a text to partition by that readers would take for null.
        PolicyError: a column to partition by is protected: it has a key, is confidential, or the policy seals all
            columns and does not name it in `partition_by`.
        UnsupportedError: the folder is a Delta, Iceberg or Hudi table.
        KeyAccessError, BloomsealError: as `write_table`. Files without a name are dropped; those that have theirs
            stay and are named by the error. All old files are still there, unless it was their removal that failed.
    """
    by = _columns(partition_by)
    named, encoding = policy_apart(options)
    sealing = resolve_policy(EncryptionSpec, encryption, folder, filesystem, **named)
    settings = _Settings(
        None if rows_per_file is None else a_count(rows_per_file, "rows_per_file", "files of {} rows"),
        None if bytes_per_file is None else a_count(bytes_per_file, "bytes_per_file", "files of {} bytes"),
        a_count(row_group_size, "row_group_size", "a row group of {} rows"),
        a_count(max_open_files, "max_open_files", "{} open files"),
    )
    _check_name(file_name)
    try:
        existing = Existing(mode)
    except ValueError:
        raise UsageError(f"unknown mode={mode!r}", hint=" or ".join(Existing)) from None
    rows = rows_in(data)
    _check_columns(plain_schema(rows.schema), sealing, by, bloom_filters or ())
    target = TargetFolder(folder, filesystem, existing)
    arguments = {"encryption": sealing, "bloom_filters": bloom_filters, "threads": threads, **encoding}
    arguments["check_keys"] = check_keys
    writing = _DatasetWrite(target, by, settings, file_name, rows, arguments, progress)
    try:
        writing.run()
        report = writing.report
        report.removed, report.kept = target.remove_old()
        writing.warn()
        if isinstance(sealing, TablePolicy):
            report.indexes = index_by_policy(target.ref, sealing)
    except BaseException as error:
        writing.abort()
        _name_placed(error, writing.report)
        raise
    return report


def _check_columns(
    schema: pa.Schema, encryption: EncryptionSpec | TablePolicy | None, by: Sequence[str], filtered: Iterable[str]
) -> None:
    """Refuse columns to partition by that are protected, have a filter, or hold what no folder can be named by."""
    check_partitioning(schema.names, encryption, by)
    check_values(schema, by)
    if asked := {*by}.intersection(filtered):
        raise UsageError("a column to partition by is in no file, and has no filter", column=min(asked))


@dataclass(frozen=True, slots=True)
class _Settings:
    rows_per_file: int | None
    bytes_per_file: int | None
    row_group_size: int
    max_open_files: int


@dataclass(slots=True)
class _FolderFile:
    """The rows of one folder on their way into a file.

    Attributes:
        rows, arrow_bytes: in all, and what they took in Arrow.
        pending, pending_rows, waiting: those that no row group holds yet, and what they take.
        writer, path: from the first full row group on.
    """

    rows: int = 0
    arrow_bytes: int = 0
    pending: list[pa.Table] = field(default_factory=list)
    pending_rows: int = 0
    waiting: int = 0
    writer: FileWriter | None = None
    path: str = ""

    def take(self, piece: pa.Table) -> None:
        self.pending.append(piece)
        self.pending_rows += piece.num_rows
        self.rows += piece.num_rows
        self.arrow_bytes += piece.nbytes
        self.waiting += piece.nbytes + _PIECE_BYTES * piece.num_columns
        if len(self.pending) >= _MOST_PIECES:
            self.pending = [pa.concat_tables(self.pending).combine_chunks()]
            self.waiting = self.pending[0].nbytes


class _ReplacingFile(FileWriter):
    """One for which the table's old files go."""

    def _replaces(self, file: AtomicFile) -> bool:  # noqa: ARG002
        return True


class _DatasetWrite:
    def __init__(
        self,
        target: TargetFolder,
        by: list[str],
        settings: _Settings,
        file_name: str,
        rows: Rows,
        arguments: dict[str, Any],
        progress: Progress | None,
    ) -> None:
        self.report = DatasetReport(target.ref.path)
        self._target = target
        self._by = by
        self._settings = settings
        self._name = file_name
        self._token = secrets.token_hex(8)
        self._rows = rows
        self._schema = plain_schema(rows.schema) if by else rows.schema
        self._stored = pa.schema([one for one in self._schema if one.name not in by], self._schema.metadata)
        self._arguments = arguments
        self._progress = progress
        self._files: dict[str, _FolderFile] = {}
        self._folders: set[str] = set()
        self._written: OrderedDict[str, None] = OrderedDict()
        """Folders whose file is open, the one that was longest without rows first."""
        self._waiting = 0
        self._started = 0
        # What a file takes for each of Arrow's bytes.
        self._density = 1.0

    def run(self) -> None:
        for piece in self._rows.pieces:
            if not piece.schema.equals(self._rows.schema):
                raise UsageError("rows whose schema is not that of the first ones", file=self.report.path)
            for portion in _portions(piece):
                if not self._by:
                    self._put("", portion)
                    continue
                for folder, rows in folders(plain_table(portion, self._schema), self._by):
                    self._folders.add(folder)
                    self._put(folder, rows)
        if not self._started and not self._by:
            # Without a file a table has no columns.
            self._files.setdefault("", _FolderFile())
        while self._files:
            self._finish(next(iter(self._files)))

    def warn(self) -> None:
        """Of texts that come back as something else: every reader infers a partition column's type from the names."""
        # A dictionary, as of a frame's categories, holds texts as its values.
        texts = [
            name for name in self._by if getattr(kind := self._schema.field(name).type, "value_type", kind) in _TEXTS
        ]
        for name, (text, other) in misread(self._folders, texts).items():
            warnings.warn(
                f"column {name}: readers take the folders' names for numbers or times, and {text!r} for {other}; read it "
                "with partition_types=, or Spark with a schema",
                BloomsealWarning,
                stacklevel=3,
            )

    def abort(self) -> None:
        for file in self._files.values():
            if file.writer is not None:
                if file.writer.placed:
                    self._note(file, file.writer)
                file.writer.abort()
        self._target.abort()

    def _put(self, folder: str, rows: pa.Table) -> None:
        while rows.num_rows:
            file = self._files.setdefault(folder, _FolderFile())
            piece = rows.slice(0, self._room(file, rows))
            rows = rows.slice(piece.num_rows)
            self._waiting -= file.waiting
            file.take(piece)
            self._waiting += file.waiting
            if self._is_full(file):
                self._finish(folder)
            elif file.pending_rows == self._settings.row_group_size:
                self._pour(folder, file)
        while self._waiting > _WAITING_BYTES and len(self._files) > 1:
            self._finish(max(self._files, key=lambda name: self._files[name].waiting))

    def _room(self, file: _FolderFile, rows: pa.Table) -> int:
        """How many of these rows the file takes before a row group, or the file, is full."""
        room = self._settings.row_group_size - file.pending_rows
        if self._settings.rows_per_file is not None:
            room = min(room, self._settings.rows_per_file - file.rows)
        if self._settings.bytes_per_file is not None:
            left = (self._settings.bytes_per_file - self._size(file)) / self._density
            room = min(room, max(1, int(left * rows.num_rows / max(rows.nbytes, 1))))
        return room

    def _is_full(self, file: _FolderFile) -> bool:
        rows, size = self._settings.rows_per_file, self._settings.bytes_per_file
        return (rows is not None and file.rows >= rows) or (size is not None and self._size(file) >= size)

    def _size(self, file: _FolderFile) -> float:
        return (0 if file.writer is None else file.writer.bytes_written) + file.waiting * self._density

    def _pour(self, folder: str, file: _FolderFile) -> FileWriter:
        """Hand the rows that wait to the file's writer."""
        writer = file.writer or self._start(folder, file)
        self._written.move_to_end(folder)
        if file.pending:
            writer.write_table(pa.concat_tables(file.pending))
        self._waiting -= file.waiting
        file.pending, file.pending_rows, file.waiting = [], 0, 0
        return writer

    def _start(self, folder: str, file: _FolderFile) -> FileWriter:
        while len(self._written) >= self._settings.max_open_files:
            self._finish(next(iter(self._written)))
        name = self._name.format(i=self._started, token=self._token)
        self._started += 1
        place = self._target.new(posixpath.join(folder, name))
        # Sealed for its final place, which AAD prefixes and key material beside the file go by.
        kind = _ReplacingFile if self._target.replaces else FileWriter
        writer = kind(place, self._stored, row_group_size=self._settings.row_group_size, **self._arguments)
        file.writer, file.path = writer, place.path
        self._written[folder] = None
        return writer

    def _finish(self, folder: str) -> None:
        file = self._files[folder]
        writer = self._pour(folder, file)
        writer.close()
        del self._files[folder], self._written[folder]
        self._note(file, writer)
        if file.arrow_bytes:
            self._density = writer.bytes_written / file.arrow_bytes
        if self._progress is not None:
            self._progress(self.report.rows, self._rows.total)

    def _note(self, file: _FolderFile, writer: FileWriter) -> None:
        self.report.files.append({"path": file.path, "rows": file.rows, "bytes": writer.bytes_written})
        self.report.rows += file.rows


def _portions(rows: pa.Table) -> Iterator[pa.Table]:
    """Few enough rows at a time that sorting them into folders takes little memory beside them."""
    for start in range(0, rows.num_rows, _PORTION_ROWS):
        yield rows.slice(start, _PORTION_ROWS)


def _columns(partition_by: Any) -> list[str]:
    if (
        not isinstance(partition_by, Iterable)
        or isinstance(partition_by, str)
        or not all(isinstance(name, str) for name in partition_by)
    ):
        raise UsageError("partition_by= takes a list of columns", hint='partition_by=["country"]')
    return list(partition_by)


def _check_name(file_name: Any) -> None:
    """A name that readers take for data's, and different for each file."""
    try:
        first, second = (file_name.format_map({"i": i, "token": "0"}) for i in range(2))
    except (AttributeError, KeyError, IndexError, ValueError):
        raise UsageError("file_name= takes a text with {i} and {token}, and nothing else", hint=_FILE_NAME) from None
    if first == second:
        raise UsageError("file_name= gives all files one name", hint=_FILE_NAME)
    if "/" in first or first[0] in "._" or not first.endswith(".parquet"):
        raise UsageError("file_name= is no name that readers of a folder take for data's", hint=_FILE_NAME)


def _name_placed(error: BaseException, report: DatasetReport) -> None:
    if not report.files:
        return
    names = [one["path"] for one in report.files[:_NAMED]]
    more = len(report.files) - len(names)
    said = f"{counted(len(report.files), 'new file')} had been placed, and stay: {', '.join(names)}{f' and {more} more' * (more > 0)}"
    if isinstance(error, BloomsealError):
        error.what = f"{error.what}; {said}"
    else:
        error.add_note(said)
