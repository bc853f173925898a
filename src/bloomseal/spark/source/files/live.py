"""Tables whose log says which files are live: Delta and Iceberg, by the rule of `bloomseal.storage.discovery.tables`.

Spark's own connectors, and their jars, are not needed: the log is read by the libraries that `bloomseal.open_table`
reads it with. What makes a table's rows others than its files' (deletion vectors, delete files, mapped columns) is
refused there.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as st

from ....core.errors import UnsupportedError
from ....table.hive import NULL
from ...listing import open_filesystem

if TYPE_CHECKING:
    from ....read.file import SealedFile
    from ....storage.logs.snapshot import Naming

__all__ = ["LiveTable", "Rules"]


@dataclass(frozen=True)
class Rules:
    """What must hold for each file of a table with a log.

    Attributes:
        naming: how the log finds its columns in a file.
        stored: partition columns that the files hold themselves: their own values count, not the log's.
        told: path → what the log tells of the file beside its name, for indexes; tasks do without it.
    """

    naming: Naming
    stored: tuple[str, ...] = ()
    told: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "told": {}}

    def check(self, file: SealedFile) -> None:
        """Refuse a file whose rows are not the table's as they are.

        Raises:
            UnsupportedError: a column that was renamed; or whose value only the log has.
        """
        # Executors of other tables' reads need not load this.
        from ....table.query.naming import need_names

        need_names(file, self.naming)
        tops = {name.partition(".")[0] for name in file.columns}
        if lacking := [name for name in self.stored if name not in tops]:
            raise UnsupportedError(
                "only the table's log has the column's value for this file", column=lacking[0],
                hint="bloomseal.open_table",
            )  # fmt: skip


@dataclass(frozen=True)
class LiveTable:
    """One version of a table with a log.

    Attributes:
        files: path → size in bytes and raw partition values, where these stand in the log alone.
        schema: the table's, partition columns in their places.
        folders: the columns that the log has the values of.
        rules: for each file.
    """

    files: Mapping[str, tuple[int | None, tuple[tuple[str, str], ...]]]
    schema: st.StructType
    folders: tuple[str, ...]
    rules: Rules

    @classmethod
    def of(cls, base: str | None, root: str) -> LiveTable:
        """The current version of the table in this folder.

        Raises:
            UsageError, UnsupportedError, MissingDependencyError: as `bloomseal.storage.discovery.tables.find_files`;
                and partition columns of types whose values have no plain text.
        """
        from pyspark.errors import PySparkException
        from pyspark.sql.pandas.types import from_arrow_schema

        from ....storage.discovery.tables import find_files

        found = find_files(root, open_filesystem(base))
        snapshot = found.snapshot
        assert snapshot is not None  # noqa: S101 - there is a log, so there is what it says
        try:
            schema: Any = from_arrow_schema(snapshot.schema, prefer_timestamp_ntz=True)
        except PySparkException as error:
            raise UnsupportedError(
                f"Spark has no types for the table's schema ({error.getCondition()})", file=root
            ) from None
        schema = st.StructType([st.StructField(one.name, one.dataType, True) for one in schema.fields])
        values = {one.ref.path: found.live[one.ref.path].partition for one in found.files}
        names = tuple(name for name in schema.names if any(name in value for value in values.values()))
        folders = () if snapshot.stored else names
        files = {
            one.ref.path: (
                one.size,
                tuple((name, _text(values[one.ref.path].get(name), name, root)) for name in folders),
            )
            for one in found.files
        }
        rules = Rules(
            snapshot.naming, names if snapshot.stored else (), {one.ref.path: one.told for one in found.files}
        )
        return cls(files, schema, folders, rules)


def _text(value: Any, name: str, root: str) -> str:
    """A value as `.tree.typed` reads it."""
    if value is None:
        return NULL
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value.isoformat()
    if isinstance(value, str | int | Decimal) and value != NULL:
        return str(value)
    raise UnsupportedError(
        f"a partition column of {type(value).__name__} in a table with a log", file=root, column=name,
        hint="bloomseal.open_table",
    )  # fmt: skip
