"""A table's files and the partition values in the names of their folders, found as Spark finds them
(`PartitioningUtils`).

Without a JVM: the Python process that plans a read has none. Which files a folder has is said by
`...listing.listing_of`, for jobs too; of those this takes what Spark would read.

Values have the types that `bloomseal.table.query.partitions` gives them, but that timestamps are instants of the
session's zone, with one digit behind the point at most.
"""

from __future__ import annotations

import datetime as dt
import itertools
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import types as st
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type

from ....core.errors import BloomsealError, FormatError, PolicyError, UnsupportedError, UsageError
from ....core.parquet.expectation import NO_EXPECTATION, Expectation
from ....core.text import articled
from ....storage.discovery import tables
from ....storage.discovery.kinds import FileKind, FoundFile, Listing, NothingThereError, TableLayout
from ....table.hive import NULL
from ....table.query.partitions import Partitions, common_type, typed_values
from ...listing import listing_of, open_filesystem
from ..types import arrow_type
from .logs import sink_files
from .piece import Piece

if TYPE_CHECKING:
    from ....storage.logs.iceberg_encrypted import IcebergOpening
    from ....storage.logs.snapshot import Snapshot

_MOMENT: Final = len("2024-01-01 10:00:00.0")
"""Of longer ones Spark makes texts."""
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d\d?)(?::?([0-5]\d))?", re.ASCII)

Folders = tuple[tuple[str, str], ...]
"""Partition columns and their raw values, outermost first."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A table's files, in the order of their names.

    Attributes:
        files: without those that Spark takes for hidden, and without empty ones that no data file would be called like.
        columns: the partition columns, with the types that their values have in common.
        schema: the table's, where it has a log that says it.
        log: what it says of all files.
        expected: which columns folders may speak of.
    """

    files: tuple[Piece, ...]
    columns: st.StructType
    schema: st.StructType | None = None
    log: Snapshot | None = None
    expected: Expectation = NO_EXPECTATION


def find_files(
    paths: Iterable[str],
    types: st.StructType | None = None,
    *,
    zone: str | None = None,
    infer: bool = True,
    expected: Expectation = NO_EXPECTATION,
    iceberg: IcebergOpening | None = None,
) -> Tree:
    """The files of these folders, or these files.

    Below a folder Spark reads what lies in it, or, where there are ``name=value`` folders, what lies in those.

    Args:
        types: types that the user gave for the partition columns; the values' own otherwise.
        zone: in which folders name timestamps.
        infer: False: values are texts, as under ``spark.sql.sources.partitionColumnTypeInference.enabled=false``.
        expected: which columns must be encrypted (`Expectation.of_table`).
        iceberg: the path is an encrypted Iceberg table.

    Raises:
        UsageError: there is no such path; a part of it can't be listed, or a link leads out of it; folders whose
            partition columns differ; a table with a log among other paths.
        PolicyError: a folder's name, or a log, gives the values of a column that must be encrypted.
        FormatError: a data file without a byte.
        UnsupportedError: a table of Hudi; one of Delta or Iceberg below the folder, or one that Spark has no types for.
        MissingDependencyError: a table with a log, and not the library that reads it.
    """
    tree = _found(paths, types, zone, infer) if iceberg is None else _encrypted(paths, iceberg)
    for name in tree.columns.names:
        expected.outside(name)
    return replace(tree, expected=expected)


def _found(paths: Iterable[str], types: st.StructType | None, zone: str | None, infer: bool) -> Tree:
    listed = [(path, *listing_of(path)) for path in paths]
    for one in listed:
        if (table := _with_log(*one, alone=len(listed) == 1)) is not None:
            return table
    found = [file for one in listed for file in _below(*one)]
    partitioned = [file for file in found if file.values]
    files = sorted(partitioned or found, key=lambda file: (file.base or "", file.name))
    shapes = {tuple(name for name, _ in file.values) for file in partitioned}
    if len(shapes) > 1:
        raise UsageError(
            f"folders of different partition columns: {' and '.join('/'.join(shape) for shape in sorted(shapes)[:2])}",
            file=next(file.name for file in files if tuple(name for name, _ in file.values) == max(shapes)),
        )
    given = {field.name.lower(): field.dataType for field in types or ()}
    columns = st.StructType()
    known: list[dict[str, Any]] = []
    for place, name in enumerate(next(iter(shapes), ())):
        first = {file.values[place][1]: file.name for file in reversed(files)}
        kind = given.get(name.lower()) or _common(first, infer)
        columns.add(name, kind, True)
        known.append(values := {})
        for raw, file in first.items():
            try:
                values[raw] = _typed(raw, kind, zone)
            except BloomsealError as error:
                raise error.at(file=file, column=name) from None
    if known:
        files = [
            file._replace(values=tuple(of[raw] for of, (_, raw) in zip(known, file.values, strict=True)))
            for file in files
        ]
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
        tree = find_files([path], zone="UTC")
    except NothingThereError:
        return
    if tree.files and tree.columns.names != list(partition_by):
        has = f"is partitioned by {', '.join(tree.columns.names)}" if tree.columns.names else "has no partition columns"
        raise UsageError(
            f"the table {has}, and some of its rows would not be seen any more", file=path, hint="the same partition_by"
        )


def _typed(raw: str, kind: st.DataType, zone: str | None) -> Any:
    """A raw partition value as a Python value of this type; None for Hive's null.

    Raises:
        UsageError: it is none of that type.
    """
    if raw == NULL:
        return None
    moment = isinstance(kind, st.TimestampType)
    try:
        (value,) = typed_values([raw], pa.timestamp("us") if moment else arrow_type(kind)).to_pylist()
        # In UTC: where a clock is put back, Python calls instants of two zones unequal whatever they are (PEP 495).
        return (value.replace(tzinfo=_zone(zone)) if zone else value).astimezone(dt.UTC) if moment else value
    except (ValueError, ArithmeticError, pa.ArrowException):
        raise UsageError(
            f"a folder's name holds no {kind.simpleString()}", hint="another type in .schema(...)"
        ) from None


def _below(path: str, base: str | None, listing: Listing) -> list[Piece]:
    """Files with the raw values of their folders, which get their types when all are known."""
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
        one = Piece.of(found, base, root, folders)
        if not one.size and found.kind is FileKind.DATA:
            # As `open_table` has it: passed over, the rows that were in it would be missing without a word.
            raise FormatError(
                "an empty file, which is no data file any more", file=name, hint="restore it, or remove it"
            )
        if one.size:
            files.append(one)
    return files


def _encrypted(paths: Iterable[str], iceberg: IcebergOpening) -> Tree:
    path, *others = paths
    if (tree := _with_log(path, *listing_of(path), alone=not others, iceberg=iceberg)) is None:
        raise PolicyError("no Iceberg table, and an encrypted one is expected", file=path)
    return tree


def _with_log(
    path: str, base: str | None, listing: Listing, *, alone: bool, iceberg: IcebergOpening | None = None
) -> Tree | None:
    """A table of Delta or Iceberg: the files that its log calls live; None where the folder is none.

    Spark's own connectors, and their jars, are not needed: the log is read as `bloomseal.open_table` reads it, and
    refused where that refuses it. Tasks find the deletes of a file by their places.
    """
    if listing.root is None or listing.tables.get("") not in (TableLayout.DELTA, TableLayout.ICEBERG):
        return None
    if not alone:
        raise UsageError("a table with a log is read alone", file=path)
    root = listing.root.path
    found = tables.find_files(root, open_filesystem(base), iceberg=iceberg)
    snapshot = found.snapshot
    assert snapshot is not None  # noqa: S101 - there is a log, so there is what it says
    try:
        schema: Any = from_arrow_schema(snapshot.schema, prefer_timestamp_ntz=True)
    except PySparkException as error:
        raise UnsupportedError(
            f"Spark has no types for the table's schema ({error.getCondition()})", file=root
        ) from None
    schema = st.StructType([st.StructField(one.name, one.dataType, True) for one in schema.fields])
    known = Partitions.of_log(found.files, found.live, snapshot).values
    folders = () if snapshot.stored else tuple(name for name in schema.names if name in known)
    values = [known[name].cast(arrow_type(schema[name].dataType)).to_pylist() for name in folders]
    rows: Iterable[tuple[Any, ...]] = zip(*values, strict=True) if folders else itertools.repeat(())
    if snapshot.stored:
        rows = (_compared(one, found.live[one.ref.path].partition, snapshot.stored) for one in found.files)
    files = [Piece.of(one, base, root, row) for one, row in zip(found.files, rows, strict=False)]
    files.sort(key=lambda file: file.name)
    columns = st.StructType([schema[name] for name in folders])
    return Tree(tuple(files), columns, schema, snapshot.without_files())


def _compared(file: FoundFile, partition: Mapping[str, Any], stored: Sequence[str]) -> tuple[Any, ...]:
    """The values of these columns that deletes compare. No others travel: those of an encrypted table are sealed."""
    asked = {name for delete in file.deletes for name in delete.columns}
    return tuple(partition.get(name) if name in asked else None for name in stored)


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
