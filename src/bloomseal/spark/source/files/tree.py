"""A table's files and the partition values in the names of their folders, found as Spark finds them
(`PartitioningUtils`).

Without a JVM: the Python process that plans a read has none. Which files a folder has is said by
`...listing.listing_of`, for jobs too; of those this takes what Spark would read.

Values have the types that `bloomseal.table.query.partitions` gives them, but that timestamps are instants of the
session's zone, with one digit behind the point at most.
"""

from __future__ import annotations

import datetime as dt
import os
import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

import pyarrow as pa
from pyspark.sql import types as st
from pyspark.sql.pandas.types import from_arrow_type

from ....core.errors import FormatError, UnsupportedError, UsageError
from ....core.parquet.expectation import NO_EXPECTATION, Expectation
from ....core.text import articled
from ....storage.discovery.kinds import FileKind, Listing, NothingThereError, TableLayout
from ....table.hive import NULL
from ....table.query.partitions import common_type, typed_values
from ...listing import listing_of
from ..types import arrow_type
from .live import LiveTable, Rules
from .logs import sink_files

__all__ = ["TableFile", "Tree", "check_folders", "find_files", "typed"]

_MOMENT: Final = len("2024-01-01 10:00:00.0")
"""Of longer ones Spark makes texts."""
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d\d?)(?::?([0-5]\d))?", re.ASCII)

Folders = tuple[tuple[str, str], ...]
"""Partition columns and their raw values, outermost first."""


class TableFile(NamedTuple):
    """A file of a table. A plain tuple, as is `.scan.Piece`: a table has tens of thousands.

    Attributes:
        base: its file system, as `...listing.SparkTableFiles.base`.
        name: its path on it.
        size: bytes.
        folders: the partition values in its path.
        root: the folder that it was found below; None where it was named itself.
    """

    base: str | None
    name: str
    size: int
    folders: Folders
    root: str | None = None


@dataclass(frozen=True, slots=True)
class Tree:
    """A table's files, in the order of their names.

    Attributes:
        files: without those that Spark takes for hidden, and without empty ones that no data file would be called like.
        columns: the partition columns, with the types that their values have in common.
        schema: the table's, where it has a log that says it.
        rules: of that log, for each file.
        expected: which columns folders may speak of.
    """

    files: tuple[TableFile, ...]
    columns: st.StructType
    schema: st.StructType | None = None
    rules: Rules | None = None
    expected: Expectation = NO_EXPECTATION


def find_files(
    paths: Iterable[str],
    types: st.StructType | None = None,
    *,
    infer: bool = True,
    expected: Expectation = NO_EXPECTATION,
) -> Tree:
    """The files of these folders, or these files.

    Below a folder Spark reads what lies in it, or, where there are ``name=value`` folders, what lies in those.

    Args:
        types: types that the user gave for the partition columns; the values' own otherwise.
        infer: False: values are texts, as under ``spark.sql.sources.partitionColumnTypeInference.enabled=false``.
        expected: which columns must be encrypted (`Expectation.of_table`).

    Raises:
        UsageError: there is no such path; a part of it can't be listed, or a link leads out of it; folders whose
            partition columns differ; a table with a log among other paths.
        PolicyError: a folder's name, or a log, gives the values of a column that must be encrypted.
        FormatError: a data file without a byte.
        UnsupportedError: a table of Hudi; one of Delta or Iceberg below the folder; and as `LiveTable.of`.
    """
    tree = _found(paths, types, infer)
    for name in tree.columns.names:
        expected.outside(name)
    return replace(tree, expected=expected)


def _found(paths: Iterable[str], types: st.StructType | None, infer: bool) -> Tree:
    listed = [(path, *listing_of(path)) for path in paths]
    for one in listed:
        if (table := _with_log(*one, alone=len(listed) == 1)) is not None:
            return table
    found = [file for one in listed for file in _below(*one)]
    partitioned = [file for file in found if file.folders]
    files = partitioned or found
    shapes = {tuple(name for name, _ in file.folders) for file in partitioned}
    if len(shapes) > 1:
        raise UsageError(
            f"folders of different partition columns: {' and '.join('/'.join(shape) for shape in sorted(shapes)[:2])}",
            file=next(file.name for file in partitioned if tuple(name for name, _ in file.folders) == max(shapes)),
        )
    names = next(iter(shapes), ())
    given = {field.name.lower(): field.dataType for field in types or ()}
    columns = st.StructType()
    for place, name in enumerate(names):
        kind = given.get(name.lower()) or _common({file.folders[place][1] for file in partitioned}, infer)
        columns.add(name, kind, True)
    files.sort(key=lambda file: (file.base or "", file.name))
    return Tree(tuple(files), columns)


def check_folders(path: str, partition_by: Sequence[str]) -> None:
    """Refuse to add rows to a table of other folders: of files beside folders and files in them, Spark reads the
    latter only.

    Args:
        path: the table's folder, as Spark names it; it need not be there.

    Raises:
        UsageError: its partition columns are others. And as `find_files`.
    """
    try:
        tree = find_files([path])
    except NothingThereError:
        return
    if tree.files and tree.columns.names != list(partition_by):
        has = f"is partitioned by {', '.join(tree.columns.names)}" if tree.columns.names else "has no partition columns"
        raise UsageError(
            f"the table {has}, and some of its rows would not be seen any more", file=path, hint="the same partition_by"
        )


def typed(raw: str, kind: st.DataType, zone: str | None) -> Any:
    """A raw partition value as a Python value of this type; None for Hive's null.

    Raises:
        UsageError: it is none of that type.
    """
    if raw == NULL:
        return None
    moment = isinstance(kind, st.TimestampType)
    try:
        (value,) = typed_values([raw], pa.timestamp("us") if moment else arrow_type(kind)).to_pylist()
    except (ValueError, ArithmeticError, pa.ArrowException):
        raise UsageError(
            f"a folder's name holds no {kind.simpleString()}", hint="another type in .schema(...)"
        ) from None
    if not moment:
        return value
    # In UTC: where a clock is put back, Python calls instants of two zones unequal whatever they are (PEP 495).
    return (value.replace(tzinfo=_zone(zone)) if zone else value).astimezone(dt.UTC)


def _below(path: str, base: str | None, listing: Listing) -> list[TableFile]:
    for folder, layout in sorted(listing.tables.items()):
        raise UnsupportedError(
            f"{articled(layout)} table: its log says which files are live",
            file=f"{path}/{folder}",
            hint="read it by its own path",
        )
    root = None if listing.root is None else listing.root.path
    parsed: dict[str, Folders | None] = {"": ()}
    live = None if root is None else sink_files(base, root)
    files = []
    for found in listing.files:
        name = found.ref.path
        if live is not None and name not in live:
            continue
        folder = "" if root is None else posixpath.dirname(found.relative)
        if folder not in parsed:
            parsed[folder] = _folders(folder) or None
        if (folders := parsed[folder]) is None:
            continue
        size = os.stat(name).st_size if found.size is None else found.size  # noqa: PTH116
        if not size and found.kind is FileKind.DATA:
            # As `open_table` has it: passed over, the rows that were in it would be missing without a word.
            raise FormatError(
                "an empty file, which is no data file any more", file=name, hint="restore it, or remove it"
            )
        if size:
            files.append(TableFile(base, name, size, folders, root))
    return files


def _with_log(path: str, base: str | None, listing: Listing, *, alone: bool) -> Tree | None:
    """A table of Delta or Iceberg: the files that its log calls live; None where the folder is none."""
    if listing.root is None or listing.tables.get("") not in (TableLayout.DELTA, TableLayout.ICEBERG):
        return None
    if not alone:
        raise UsageError("a table with a log is read alone", file=path)
    live = LiveTable.of(base, listing.root.path)
    files = [
        TableFile(base, name, os.stat(name).st_size if size is None else size, folders, listing.root.path)  # noqa: PTH116
        for name, (size, folders) in sorted(live.files.items())
    ]
    return Tree(tuple(files), st.StructType([live.schema[name] for name in live.folders]), live.schema, live.rules)


def _folders(path: str) -> Folders:
    """The unbroken run of ``name=value`` folders that ends lowest, as Spark looks for it from below."""
    run: list[tuple[str, str]] = []
    for part in reversed(path.split("/")):
        name, equals, value = part.partition("=")
        if equals and name and value:
            run.append((_unescaped(name), _unescaped(value)))
        elif run:
            break
    return tuple(reversed(run))


def _unescaped(text: str) -> str:
    return re.sub("%([0-9A-Fa-f]{2})", lambda found: chr(int(found[1], 16)), text)


def _common(raws: Iterable[str], infer: bool) -> st.DataType:
    known = [raw for raw in raws if raw != NULL]
    if known and not infer:
        return st.StringType()
    kind = common_type(known)
    if pa.types.is_timestamp(kind):
        return st.StringType() if max(map(len, known)) > _MOMENT else st.TimestampType()
    found: st.DataType = from_arrow_type(kind)
    return found


def _zone(name: str) -> dt.tzinfo:
    if found := _OFFSET.fullmatch(name):
        sign = -1 if found[1] == "-" else 1
        return dt.timezone(sign * dt.timedelta(hours=int(found[2]), minutes=int(found[3] or 0)))
    return ZoneInfo("UTC" if name == "Z" else name)
