"""Micro-batches of a stream as sealed files, each exactly once.

The names of a batch's files say which query and which batch they are of. A batch that Spark repeats, since the driver
died between our commit and its own note of it, finds them and is dropped. Each commit finishes first what a driver that
died had planned.
"""

from __future__ import annotations

import copy
import posixpath
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import WriterCommitMessage

from ...core.errors import BloomsealError
from ..versions import stream_writer_class
from .commit.placing import Job, jobs_in, recover
from .writer import TableWriter, Written

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from .options import SourceOptions

__all__ = ["TableStreamWriter"]

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"


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
        if not done:
            recover(table, policy)
            return
        writer, placed = copy.copy(self._writer), False
        with table.alone():
            recover(table, policy)
            for name, query in {(one.job, one.query) for one in done}:
                writer.place = Job(table, name, policy)
                files = [file for one in done if one.job == name for file in one.written.files]
                with table.errors("list the table"):
                    there = [posixpath.basename(known) for known in table.files()]
                if files and not any(f"-{query}-{batchId}-" in known for known in there):
                    writer.place.commit(files, writer.replaced(files))
                    placed = True
                else:
                    writer.place.abort()
        if placed:
            writer.keep_indexes()

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        table, policy = self._writer.place.table, self._writer.place.policy
        for name in jobs_in(table):
            if name.endswith(f"-{batchId}-{self._own}"):
                Job(table, name, policy).abort()
