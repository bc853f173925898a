"""Streams over tables: new files as micro-batches, each exactly once.

An offset is the set of files seen, as 12 bytes of SHA-256 of each name below the table. Names are never
used twice, while times are: a file that is moved into place keeps an older one. So no file is missed, and one that is
replaced under its name (`attach`, `rekey`) is not read again.
"""

from __future__ import annotations

import hashlib
import posixpath
from base64 import b85decode, b85encode
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceStreamReader

from ...core.errors import UnsupportedError
from .files.tree import TableFile, Tree
from .reader import TableReader

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

    from .options import Defaults, SourceOptions

__all__ = ["TableStreamReader"]

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
        tree = self._settings.find_files(self._schema)
        if tree.schema is not None:
            # Its files are written anew by OPTIMIZE and MERGE: the same rows would come again.
            raise UnsupportedError("a table with a log is no stream", file=self._settings.paths[0], hint="bss.read")
        return tree


def _digest(file: TableFile) -> bytes:
    below = file.name if file.root is None else posixpath.relpath(file.name, file.root)
    return hashlib.sha256(below.encode()).digest()[:_DIGEST_BYTES]


def _text(digests: set[bytes]) -> str:
    return b85encode(b"".join(sorted(digests))).decode()


def _digests(offset: dict[str, str]) -> set[bytes]:
    data = b85decode(offset["seen"])
    return {data[start : start + _DIGEST_BYTES] for start in range(0, len(data), _DIGEST_BYTES)}
