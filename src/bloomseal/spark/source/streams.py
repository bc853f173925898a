"""Streams over tables: new files as micro-batches, micro-batches as sealed files, each exactly once.

**Reading.** An offset is the set of files seen, as 12 bytes of SHA-256 of each name below the table. Names are never
used twice, while times are: a file that is moved into place keeps an older one. So no file is missed, and one that is
replaced under its name (`attach`, `rekey`) is not read again.

**Writing.** The names of a batch's files say which query and which batch they are of. A batch that Spark repeats, since
the driver died between our commit and its own note of it, finds them and is dropped. Each commit finishes first what a
driver that died had planned.
"""

from __future__ import annotations

import copy
import hashlib
import posixpath
import uuid
from base64 import b85decode, b85encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, WriterCommitMessage

from ...errors import BloomsealError, UnsupportedError
from ..versions import stream_writer_class
from .commit.placing import Job, jobs_in, recover
from .files.tree import DataFile, Tree, find_files
from .reader import TableReader
from .writer import TableWriter, Written

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

    from .options import Defaults, SourceOptions

__all__ = ["TableStreamReader", "TableStreamWriter"]

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"
_DIGEST_BYTES: Final = 12


class TableStreamReader(DataSourceStreamReader):
    """A table's files as they come, each once.

    Args:
        settings, schema, defaults: as `reader.TableReader`.
    """

    def __init__(self, settings: SourceOptions, schema: StructType, defaults: Defaults | None = None) -> None:
        self._settings = settings
        self._schema = schema
        self._reader = TableReader(settings, schema, defaults)

    def initialOffset(self) -> dict[str, str]:  # noqa: N802
        return {"seen": ""}

    def latestOffset(self) -> dict[str, str]:  # type: ignore[override]  # noqa: N802  # the form that all versions call
        return {"seen": _text({_digest(file) for file in self._tree().files})}

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """The tasks of one batch.

        Raises:
            UnsupportedError: a file of the batch is gone: its rows would be lost silently.
        """
        wanted = _digests(end) - _digests(start)
        if not wanted:
            return []
        tree = self._tree()
        files = tuple(file for file in tree.files if _digest(file) in wanted)
        if len(files) != len(wanted):
            raise UnsupportedError(
                f"{len(wanted) - len(files)} files of the batch are gone",
                file=self._settings.paths[0],
                hint="put them back, or begin a new checkpoint",
            )
        return self._reader.tasks(Tree(files, tree.columns))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reader.read(partition)

    def _tree(self) -> Tree:
        tree = find_files(self._settings.paths, self._schema, infer=self._settings.infer_partition_types)
        if tree.schema is not None:
            # Its files are written anew by OPTIMIZE and MERGE: the same rows would come again.
            raise UnsupportedError("a table with a log is no stream", file=self._settings.paths[0], hint="bss.read")
        return tree


@dataclass(frozen=True)
class _WrittenBatch(WriterCommitMessage):
    """What one task wrote of a batch."""

    job: str
    query: str
    written: Written


class TableStreamWriter(stream_writer_class()):  # type: ignore[misc]
    """Each batch as one commit of `writer.TableWriter`. In complete mode a batch replaces what is there.

    Args:
        settings, schema, overwrite: as `writer.TableWriter`.
    """

    def __init__(self, settings: SourceOptions, schema: StructType, overwrite: bool) -> None:
        self._writer = TableWriter(settings, schema, overwrite, begin=False)
        self._own = uuid.uuid4().hex[:12]

    def write(self, iterator: Iterator[pa.RecordBatch]) -> _WrittenBatch:
        from pyspark import TaskContext

        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY) if context else None
        batch = context.getLocalProperty(_BATCH) if context else None
        if query is None or batch is None:
            raise BloomsealError("Spark does not say which batch this is", file=self._writer.place.table.folder)
        job = f"{uuid.UUID(query).hex}-{int(batch)}-{self._own}"
        place = Job(self._writer.place.table, job, self._writer.place.policy)
        place.begin()
        writer = copy.copy(self._writer)
        writer.place = place
        return _WrittenBatch(job, uuid.UUID(query).hex, writer.write(iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        table, policy = self._writer.place.table, self._writer.place.policy
        if not all(isinstance(message, _WrittenBatch) for message in messages):
            raise BloomsealError("a task did not say what it wrote", file=table.folder)
        done: list[Any] = list(messages)
        recover(table, policy)
        writer = copy.copy(self._writer)
        for name, query in {(one.job, one.query) for one in done}:
            writer.place = Job(table, name, policy)
            files = [file for one in done if one.job == name for file in one.written.files]
            with table.errors("list the table"):
                there = [posixpath.basename(known) for known in table.files()]
            if files and not any(f"-{query}-{batchId}-" in known for known in there):
                writer.place.commit(files, writer.replaced(files))
                writer.keep_indexes()
            else:
                writer.place.abort()

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        table, policy = self._writer.place.table, self._writer.place.policy
        for name in jobs_in(table):
            if name.endswith(f"-{batchId}-{self._own}"):
                Job(table, name, policy).abort()


def _digest(file: DataFile) -> bytes:
    below = file.name if file.root is None else posixpath.relpath(file.name, file.root)
    return hashlib.sha256(below.encode()).digest()[:_DIGEST_BYTES]


def _text(digests: set[bytes]) -> str:
    return b85encode(b"".join(sorted(digests))).decode()


def _digests(offset: dict[str, str]) -> set[bytes]:
    data = b85decode(offset["seen"])
    return {data[start : start + _DIGEST_BYTES] for start in range(0, len(data), _DIGEST_BYTES)}
