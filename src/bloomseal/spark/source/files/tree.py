"""A table's files and the partition values in the names of their folders, found as Spark finds them
(`PartitioningUtils`).

Without a JVM: the Python process that plans a read has none. Which files a folder has is said by
`...listing.listing_of`, for jobs too; of those this takes what Spark would read.

Values are typed here as Spark types them to the letter, and not as in `bloomseal.table.query.partitions`: timestamps
are instants of the session's zone, ``1e3`` is a decimal, ``1f`` a double, and a column of nulls has a type of its own.
Other values have the same type there, which a test holds.
"""

from __future__ import annotations

import datetime as dt
import os
import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import reduce
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from pyspark.sql import types as st

from ....core.errors import FormatError, UnsupportedError, UsageError
from ....core.parquet.expectation import NO_EXPECTATION, Expectation
from ....core.text import articled
from ....storage.discovery.kinds import FileKind, Listing, NothingThereError, TableLayout
from ....table.hive import NULL
from ...listing import listing_of
from .live import LiveTable, Rules
from .logs import sink_files

__all__ = ["TableFile", "Tree", "check_folders", "find_files", "typed"]

_MOMENT: Final = re.compile(r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}(\.\d)?", re.ASCII)
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_WHOLE: Final = re.compile(r"[+-]?\d+")
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d\d?)(?::?([0-5]\d))?", re.ASCII)
_FLOAT: Final = re.compile(r"\s*[+-]?(NaN|Infinity|(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[fFdD]?)\s*", re.ASCII)

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
    try:
        return _READ[type(kind)](raw, zone)
    except (KeyError, ValueError, ArithmeticError):
        raise UsageError(
            f"a folder's name holds no {kind.simpleString()}", hint="another type in .schema(...)"
        ) from None


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


# Types of partition values ----------------------------------------------------------------------------------------


def _common(raws: Iterable[str], infer: bool) -> st.DataType:
    kinds = {kind.simpleString(): kind for raw in raws if (kind := _inferred(raw)) is not None}
    if kinds and not infer:
        return st.StringType()
    return reduce(_wider, [kinds[name] for name in sorted(kinds)]) if kinds else st.NullType()


def _inferred(raw: str) -> st.DataType | None:
    if raw == NULL:
        return None
    if _WHOLE.fullmatch(raw):
        number = int(raw)
        if -(1 << 31) <= number < 1 << 31:
            return st.IntegerType()
        if -(1 << 63) <= number < 1 << 63:
            return st.LongType()
    if _NUMBER.fullmatch(raw) and 0 < (digits := _whole_digits(raw)) <= 38:
        return st.DecimalType(digits, 0)
    if _FLOAT.fullmatch(raw):
        return st.DoubleType()
    # Not TIME, as in Spark 4.3: unless a session switches that type on, a data source's frame can't have it.
    for pattern, kind, read in ((_MOMENT, st.TimestampType(), _wall_clock), (_DAY, st.DateType(), _day)):
        if pattern.fullmatch(raw):
            try:
                read(raw, None)
            except (ValueError, OverflowError):
                continue
            return kind
    return st.StringType()


def _whole_digits(raw: str) -> int:
    """Digits of a number that Java's BigDecimal holds without a fraction, such as ``1e3`` and ``1.``; 0 for others."""
    _, digits, scale = Decimal(raw).as_tuple()
    return len(digits) + scale if isinstance(scale, int) and scale >= 0 else 0


def _wider(one: st.DataType, other: st.DataType) -> st.DataType:
    if one == other:
        return one
    kinds = {type(one), type(other)}
    digits = [_digits(one), _digits(other)]
    if min(digits):
        return st.DecimalType(max(digits), 0) if st.DecimalType in kinds else st.LongType()
    if kinds == {st.IntegerType, st.DoubleType}:
        return st.DoubleType()
    if kinds == {st.DateType, st.TimestampType}:
        return st.TimestampType()
    return st.StringType()


def _digits(kind: st.DataType) -> int:
    """Digits of a type of whole numbers; 0 for others."""
    if isinstance(kind, st.DecimalType):
        return int(kind.precision)
    return 10 if isinstance(kind, st.IntegerType) else 20 if isinstance(kind, st.LongType) else 0


def _int(raw: str, zone: str | None) -> int:  # noqa: ARG001
    return int(raw)


def _float(raw: str, zone: str | None) -> float:  # noqa: ARG001
    return float(raw.strip().rstrip("fFdD") if "inf" not in raw.lower() else raw)


def _day(raw: str, zone: str | None) -> dt.date:  # noqa: ARG001
    return dt.date.fromisoformat(raw)


def _wall_clock(raw: str, zone: str | None) -> dt.datetime:  # noqa: ARG001
    return dt.datetime.fromisoformat(raw)


def _moment(raw: str, zone: str | None) -> dt.datetime:
    local = dt.datetime.fromisoformat(raw)
    # In UTC: where a clock is put back, Python calls instants of two zones unequal whatever they are (PEP 495).
    return (local.replace(tzinfo=_zone(zone)) if zone else local).astimezone(dt.UTC)


def _zone(name: str) -> dt.tzinfo:
    if found := _OFFSET.fullmatch(name):
        sign = -1 if found[1] == "-" else 1
        return dt.timezone(sign * dt.timedelta(hours=int(found[2]), minutes=int(found[3] or 0)))
    return ZoneInfo("UTC" if name == "Z" else name)


def _flag(raw: str, zone: str | None) -> bool:  # noqa: ARG001
    return {"true": True, "false": False}[raw.lower()]


_READ: Final[dict[type[st.DataType], Any]] = {
    st.ByteType: _int,
    st.ShortType: _int,
    st.IntegerType: _int,
    st.LongType: _int,
    st.FloatType: _float,
    st.DoubleType: _float,
    st.DecimalType: lambda raw, zone: Decimal(raw),  # noqa: ARG005
    st.DateType: _day,
    st.TimestampType: _moment,
    st.TimestampNTZType: _wall_clock,
    st.BooleanType: _flag,
    st.NullType: lambda raw, zone: None,  # noqa: ARG005
    st.StringType: lambda raw, zone: raw,  # noqa: ARG005
    st.BinaryType: lambda raw, zone: raw.encode(),  # noqa: ARG005
}
