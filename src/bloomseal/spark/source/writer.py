"""The writing half of ``format("bloomseal")``: each task seals its own files, the driver puts them into place."""

from __future__ import annotations

import pickle
import posixpath
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ...core.errors import BloomsealError, UnsupportedError, UsageError
from ...core.storage.ref import FileRef
from ...core.text import articled
from ...specs import encryption_for
from ...table.hive import check_partitioning, folders
from ...write.writer import DEFAULT_ROW_GROUP_SIZE, FileWriter
from ..given import PARTITION_OVERWRITE, absolute_kms
from ..listing import in_folder, open_filesystem
from ..opening import table_of
from ..settings import has_plain_text, leaves, promised
from ..versions import arrow_schema_of
from .commit.placing import Job, Staged, TableFolder, recover
from .files.logs import refuse_logs
from .files.tree import check_folders
from .options import SourceOptions, choice, positive

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["TableWriter", "Written"]

_TARGET_BYTES: Final = 128 * 1024 * 1024
_GROUP_BYTES: Final = 128 * 1024 * 1024
"""What a row group takes in memory before it is encoded, where its number of rows is not given; and what all that wait
may take.
"""
_OPEN_FILES: Final = 16
_UNSTORABLE: Final = ("void", "interval", "yearmonthinterval", "geometry", "geography")
_ROW_METADATA: Final = "org.apache.spark.sql.parquet.row.metadata"
"""Where Spark's own writer keeps the frame's schema, and its reader looks for it."""


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task wrote.

    Attributes:
        dynamic: the session says that an overwrite replaces only the folders that it writes to.
    """

    files: tuple[Staged, ...]
    dynamic: bool = False


class TableWriter(DataSourceArrowWriter):
    """One job, made on the driver and sent to the executors. It holds no key.

    Args:
        settings: the options.
        schema: the frame's.
        overwrite: the mode; ``append`` if not.
        begin: make the job's folder now.

    Attributes:
        place: where the files wait, and go to.

    Raises:
        UsageError: options that don't fit the frame or one another; columns of the policy that the frame lacks.
        PolicyError: protected values would become folder names.
        UnsupportedError: a type that Parquet files of Spark can't hold.
    """

    def __init__(self, settings: SourceOptions, schema: StructType, overwrite: bool, *, begin: bool = True) -> None:
        table, said = settings.table, settings.writing
        if table is None:
            raise UsageError("writing needs a policy", hint="the option policy, a policy file's path")
        if settings.aad_prefix is not None:
            raise UsageError("the policy says what the AAD prefix is", hint="aad_prefix in the policy")
        if len(settings.paths) != 1:
            raise UsageError("a table is written to one path")
        self._columns = settings.partition_by
        check_partitioning(schema.names, table, self._columns)
        for name in self._columns:
            if not has_plain_text(schema[name].dataType):
                raise UsageError(
                    f"{articled(schema[name].dataType.simpleString())} can't become a folder's name here",
                    column=name,
                    hint=f'df.withColumn("{name}", col("{name}").cast("string"))',
                )
        stored = type(schema)([one for one in schema.fields if one.name not in self._columns])
        # Leaf by leaf, as the bridge does it: a policy's filter for a group is one for each column below it.
        self._filters = promised(table, stored)
        self._rows = _arrow_schema(schema)
        # Spark's own reader takes the frame's types from there.
        self._stored = _arrow_schema(stored).with_metadata({_ROW_METADATA: stored.json()})
        refuse_logs(settings.paths[0])
        folder = TableFolder.at(settings.paths[0])
        # Files are sealed for their final places, whatever folder they wait in.
        table = in_folder(replace(table, kms=absolute_kms(table.kms)), settings.paths[0])
        table.prefix(FileRef(folder.path("part"), folder.filesystem))
        self._policy = pickle.dumps(table)
        mode = choice("partition_overwrite_mode", said.get("partition_overwrite_mode", "static"), ("static", "dynamic"))
        self._overwrite, self._dynamic = overwrite, mode == "dynamic"
        # Where nobody says it, the session's setting holds, of which tasks are told, and this process is not.
        self._asks_session = bool(overwrite and self._columns and "partition_overwrite_mode" not in said)
        if self._dynamic and not self._columns:
            raise UsageError("partition_overwrite_mode=dynamic without partition_by")
        self._path = settings.paths[0]
        if self._dynamic or not overwrite:
            check_folders(self._path, self._columns)
        self._compression = _compression(said.get("compression", "snappy"))
        self._group_rows = positive("row_group_size", said["row_group_size"]) if "row_group_size" in said else None
        self._target = positive("target_file_bytes", said.get("target_file_bytes", str(_TARGET_BYTES)))
        self._keeps_indexes = choice("keep_indexes", said.get("keep_indexes", "true"), ("true", "false")) == "true"
        self._open_files = positive("max_open_files", said.get("max_open_files", str(_OPEN_FILES)))
        self.place = Job(folder, uuid.uuid4().hex, table_of(self._policy))
        if begin:
            self.place.begin()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """On an executor: the rows of one partition, as complete files in the job's folder."""
        from pyspark import TaskContext

        context = TaskContext.get()
        told = context.getLocalProperty(PARTITION_OVERWRITE) if context else None
        dynamic = self._asks_session and (told or "").lower() == "dynamic"
        partition, number = (context.partitionId(), context.taskAttemptId()) if context else (0, 0)
        attempt = _Attempt(self, partition, str(number))
        try:
            for batch in iterator:
                attempt.add(batch)
            return Written(attempt.close(), dynamic)
        except BaseException:
            attempt.abort()
            raise

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver, when all tasks are done."""
        if not all(isinstance(message, Written) for message in messages):
            raise BloomsealError("a task did not say what it wrote", file=self.place.table.folder)
        written = [message for message in messages if isinstance(message, Written)]
        files = [file for message in written for file in message.files]
        table = self.place.table
        if any(message.dynamic for message in written):
            self._dynamic = True
            check_folders(self._path, self._columns)
        with table.alone():
            recover(table, self.place.policy)
            with table.errors("list the table"):
                replaced = self.replaced(files)
                # Without a single file a table has no schema. Folders give none either, but then there would be a file
                # beside them.
                bare = not files and not self._columns and not (set(table.files()) - replaced)
            if bare:
                files = [self._empty()]
            self.place.commit(files, replaced)
        self.keep_indexes()

    def keep_indexes(self) -> None:
        """Bring the table's sealed indexes up to date, or build them, as the policy has it."""
        if self._keeps_indexes and self.place.policy.indexes():
            from ...table.by_policy import index_by_policy

            table = self.place.table
            index_by_policy(FileRef(table.folder, open_filesystem(table.base)), self.place.policy)

    def replaced(self, files: Sequence[Staged]) -> set[str]:
        """The table's files that go when these come."""
        table = self.place.table
        if not self._overwrite:
            return set()
        if self._dynamic:
            written = {posixpath.dirname(file.name) for file in files}
            return {name for folder in written for name in table.files(folder)}
        return set(table.files())

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:  # noqa: ARG002  # failed tasks' are None
        """On the driver, when a task failed for good or `commit` did."""
        self.place.abort()

    def _empty(self) -> Staged:
        attempt = _Attempt(self, 0, "empty")
        attempt.start("")
        return attempt.close()[0]

    def __repr__(self) -> str:
        return f"<TableWriter {self.place.table.folder}>"


@dataclass(slots=True)
class _OpenFile:
    name: str
    writer: FileWriter
    rows: int = 0
    waiting: int = 0  # bytes of rows that are in no row group yet


class _Attempt:
    """The files of one task attempt, of which `max_open_files` are open at most."""

    def __init__(self, job: TableWriter, partition: int, name: str) -> None:
        self._job = job
        self._place = job.place
        self._stem = f"part-{partition:05d}-{self._place.name}-{name}"
        self._name = f"{partition:05d}-{name}"
        self._open: OrderedDict[str, _OpenFile] = OrderedDict()
        self._done: list[Staged] = []
        self._started = 0
        self._group_rows = job._group_rows or 0

    def add(self, batch: pa.RecordBatch) -> None:
        rows = pa.Table.from_batches([batch])
        if not rows.num_rows:
            return
        rows = rows.rename_columns(self._job._rows.names)
        if not rows.schema.equals(self._job._rows):
            rows = rows.cast(self._job._rows)
        if not self._group_rows:
            width = max(1, rows.nbytes // rows.num_rows)
            self._group_rows = max(1, min(DEFAULT_ROW_GROUP_SIZE, _GROUP_BYTES // width))
        columns = self._job._columns
        for folder, piece in folders(rows, columns) if columns else [("", rows)]:
            self._write(folder, piece)

    def start(self, folder: str) -> _OpenFile:
        """Begin a file. It is sealed for its final place, which AAD prefixes go by, and key material by its name."""
        name = posixpath.join(folder, f"{self._stem}-{self._started:03d}.parquet")
        self._started += 1
        table = self._place.table
        path = posixpath.join(self._place.folder, self._name, name)
        with table.errors("make a folder"):
            table.make_folder(posixpath.dirname(path), below=self._place.folder)
        policy = table_of(self._job._policy)
        writer = FileWriter(
            path,
            self._job._stored,
            encryption=encryption_for(policy, FileRef(table.path(name), table.filesystem)),
            bloom_filters=self._job._filters,
            row_group_size=self._group_rows or DEFAULT_ROW_GROUP_SIZE,
            filesystem=table.filesystem,
            check_keys=True if self._job._overwrite else None,
            compression=self._job._compression,
            store_decimal_as_integer=True,
        )
        file = self._open[folder] = _OpenFile(name, writer)
        return file

    def close(self) -> tuple[Staged, ...]:
        while self._open:
            self._finish(next(iter(self._open)))
        return tuple(self._done)

    def abort(self) -> None:
        for file in self._open.values():
            file.writer.abort()
        # The job's folder goes in the end anyway; a task that failed need not wait for that.
        table = self._place.table
        try:
            table.filesystem.delete_dir(posixpath.join(self._place.folder, self._name))
        except OSError:
            return

    def _write(self, folder: str, rows: pa.Table) -> None:
        while rows.num_rows:
            file = self._open.get(folder) or self.start(folder)
            self._open.move_to_end(folder)
            piece = rows.slice(0, self._group_rows - file.rows % self._group_rows)
            rows = rows.slice(piece.num_rows)
            file.writer.write_table(piece)
            file.rows += piece.num_rows
            file.waiting = 0 if file.rows % self._group_rows == 0 else file.waiting + piece.nbytes
            if file.writer.bytes_written >= self._job._target:
                self._finish(folder)
        while len(self._open) > self._job._open_files or (
            len(self._open) > 1 and sum(file.waiting for file in self._open.values()) > _GROUP_BYTES
        ):
            self._finish(next(iter(self._open)))

    def _finish(self, folder: str) -> None:
        file = self._open[folder]
        file.writer.close()
        self._done.append(Staged(self._name, file.name, file.writer.bytes_written))
        del self._open[folder]


def _arrow_schema(schema: StructType) -> pa.Schema:
    """As the files have it: moments in UTC, whatever the session's time zone."""
    for name, kind in leaves(schema).items():
        if kind.typeName() in _UNSTORABLE:
            raise UnsupportedError(f"{articled(kind.simpleString())} can't be stored in Parquet files", column=name)
    try:
        found = arrow_schema_of(schema)
    except Exception as error:
        raise UnsupportedError(f"a type that Spark does not hand to Python: {type(error).__name__}") from None
    return pa.schema([one.with_type(_stored_type(one.type)) for one in found])


def _stored_type(kind: pa.DataType) -> pa.DataType:
    """Times of day come in nanoseconds, while Spark knows and stores microseconds. And inside a null struct Arrow has
    nulls for its fields too, those that may not be null included, which no cast allows: they are stored as if they
    might.
    """

    def inner(one: pa.Field) -> pa.Field:
        return one.with_type(_stored_type(one.type)).with_nullable(True)

    if pa.types.is_time64(kind):
        return pa.time64("us")
    if pa.types.is_struct(kind):
        return pa.struct([inner(one) for one in kind])
    if pa.types.is_map(kind):
        return pa.map_(inner(kind.key_field).with_nullable(False), inner(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(inner(kind.value_field))
    return kind


def _compression(name: str) -> str:
    name = {"uncompressed": "none"}.get(name.lower(), name.lower())
    if name != "none" and not (name in ("snappy", "gzip", "zstd", "lz4", "brotli") and pa.Codec.is_available(name)):
        raise UsageError("an unknown compression", hint="snappy, zstd, gzip, lz4, brotli or none")
    return name
