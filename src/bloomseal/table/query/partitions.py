"""Columns that stand in the names of folders: ``country=DE/day=2024-02-29``.

Values are typed as Spark types them (`PartitioningUtils`): whole numbers, decimals (``1e3``, too), doubles (``1f``),
dates, timestamps (wall-clock time here, an instant of the session's zone there), else text. pyarrow agrees about int32
and text, and leaves the others as text. A file outside the folders has null there, as in pyarrow; Spark refuses such a
table or passes the file over.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pyarrow as pa

from ..._lazy import deferred
from ...core.errors import FormatError, UsageError
from ..hive import NULL

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from ...read.file import SealedFile
    from ...storage.discovery.kinds import FoundFile
    from ...storage.logs.snapshot import LiveFile, Snapshot
else:
    pc = deferred("pyarrow.compute")

_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,9})?", re.ASCII)
_FLOAT: Final = re.compile(r"\s*[+-]?(NaN|Infinity|(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[fFdD]?)\s*", re.ASCII)
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_MOMENT: Final = re.compile(r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}(\.\d{1,6})?", re.ASCII)
_MOST_DIGITS: Final = 38
_TEXT: Final = pa.string()


@dataclass(frozen=True)
class Partitions:
    """What is known of every file's rows beforehand.

    Attributes:
        values: column → one value per file, in the order of the files.
        stored: the files hold these columns as a rule, and then their own values count.
        everywhere: each file's place says a value for each column.
        texts: of folders' names, the values as they are spelt there.
        authentic: whoever wrote the values has the table's keys, as in the manifests of an encrypted Iceberg table.
    """

    values: Mapping[str, pa.Array]
    stored: bool = False
    everywhere: bool = True
    texts: Mapping[str, Sequence[str | None]] = field(default_factory=dict)
    authentic: bool = False
    _typed: dict[tuple[str, pa.DataType], pa.Array] = field(default_factory=dict, repr=False, compare=False)

    def typed(self, name: str, kind: pa.DataType) -> pa.Array:
        """The values of a column as this type: of folders' names not by way of another one, where ``07495`` may have
        become a number.

        Raises:
            UsageError: one of them is none.
        """
        if (values := self.values[name]).type == kind:
            return values
        if (known := self._typed.get((name, kind))) is None:
            try:
                known = typed_values(self.texts[name], kind) if name in self.texts else values.cast(kind)
            except (ValueError, ArithmeticError, pa.ArrowException):
                raise UsageError(f"a folder's name holds no {kind}", column=name, hint="look at the folders") from None
            self._typed[name, kind] = known
        return known

    @classmethod
    def of_folders(cls, files: Sequence[FoundFile], types: pa.Schema | None = None) -> Partitions:
        """From the folders' names.

        Args:
            types: of columns whose type shall not be inferred.

        Raises:
            UsageError: a name that stands twice on one way, or a value that is none of the given type.
        """
        known: dict[str, dict[str, str | None]] = {}
        rows = []
        for found in files:
            folder = found.relative.rpartition("/")[0]
            if folder not in known:
                known[folder] = columns_of_folders(found.relative, found.ref.path)
            rows.append(known[folder])
        names = list(dict.fromkeys(name for row in known.values() for name in row))
        values, texts = {}, {}
        for name in names:
            texts[name] = raws = [row.get(name) for row in rows]
            kind = types.field(name).type if types is not None and name in types.names else common_type(raws)
            try:
                values[name] = typed_values(raws, kind)
            except (ValueError, ArithmeticError, pa.ArrowException):
                raise UsageError(f"a folder's name holds no {kind}", column=name, hint="another type") from None
        return cls(values, everywhere=all(name in row for row in known.values() for name in names), texts=texts)

    @classmethod
    def of_log(cls, files: Sequence[FoundFile], live: Mapping[str, LiveFile], snapshot: Snapshot) -> Partitions:
        """From a table's log: `live` is what it says about each file, by path."""
        rows = [live[found.ref.path].partition for found in files]
        names = dict.fromkeys(name for row in rows for name in row)
        schema, values = snapshot.compared or snapshot.schema, {}
        for name in filter(schema.names.__contains__, names):
            kind = schema.field(name).type
            try:
                values[name] = pa.array([row.get(name) for row in rows], type=kind)
            except (ValueError, TypeError, ArithmeticError, pa.ArrowException):
                raise FormatError(f"the table's log has partition values that are no {kind}", column=name) from None
        everywhere = all(name in row for row in rows for name in values)
        return cls(values, bool(snapshot.stored), everywhere, authentic=all(found.key is not None for found in files))


def misread(folders: Iterable[str], texts: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Columns of texts whose folders' names are taken for something else, and not written the same: one text of each,
    and what becomes of it, as in ``07495`` and ``7495``.

    Args:
        folders: places of folders below a table's root.
        texts: columns that were texts.
    """
    known = [columns_of_folders(f"{folder}/", folder) for folder in folders]
    found = {}
    for name in texts:
        raws = sorted({raw for one in known if (raw := one.get(name)) is not None})
        taken = typed_values(raws, common_type(raws)).cast(_TEXT).to_pylist()
        if (other := next((pair for pair in zip(raws, taken, strict=True) if pair[0] != pair[1]), None)) is not None:
            found[name] = other
    return found


def columns_of_folders(relative: str, path: str) -> dict[str, str | None]:
    """The columns that the folders on the way to a file give, and their values.

    Args:
        relative: the file's place below the table's root.
        path: as errors name it.

    Raises:
        UsageError: two of them give the same column.
    """
    found: dict[str, str | None] = {}
    for part in relative.split("/")[:-1]:
        name, equals, value = part.partition("=")
        if not (equals and name):
            continue
        if (name := _decoded(name)) in found:
            raise UsageError("two folders on the way give the same column", file=path, column=name)
        found[name] = None if value in ("", NULL) else _decoded(value)
    return found


def holds_only(file: SealedFile, name: str, text: str | None) -> bool:
    """Whether a column of a file has this value, as folders spell it, in every row. Polars leaves columns in the files
    that it makes folders of.
    """
    plan = file.plan([name])
    for part in range(file.num_parts):
        for rows in file.pieces(plan, part):
            values = pc.unique(rows.column(name))
            if pa.types.is_dictionary(values.type):
                values = values.dictionary_decode()
            try:
                if len(values) and not values.equals(typed_values([text], values.type)):
                    return False
            except (ValueError, ArithmeticError, pa.ArrowException):
                return False
    return True


def _decoded(text: str) -> str:
    """Without percent signs. pyarrow encodes UTF-8, Spark ASCII alone; other bytes are taken for Latin-1."""
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return unquote(text, encoding="latin-1")


def common_type(raws: Iterable[str | None]) -> pa.DataType:
    """The type that the values of one column have in common; None is one of Hive's nulls."""
    kinds = {_inferred(raw) for raw in raws if raw is not None}
    return reduce(_wider, sorted(kinds, key=str)) if kinds else pa.null()


def _inferred(raw: str) -> pa.DataType:
    if _NUMBER.fullmatch(raw):
        _, figures, scale = Decimal(raw).as_tuple()
        if raw.lstrip("+-").isdecimal():
            number = int(raw)
            for kind, bits in ((pa.int32(), 31), (pa.int64(), 63)):
                if -(1 << bits) <= number < 1 << bits:
                    return kind
        # As Java's BigDecimal has it, which holds 1e3 and 1. without a fraction.
        if isinstance(scale, int) and scale >= 0 and len(figures) + scale <= _MOST_DIGITS:
            return pa.decimal128(len(figures) + scale, 0)
    if _FLOAT.fullmatch(raw):
        return pa.float64()
    for pattern, kind, read in ((_DAY, pa.date32(), dt.date), (_MOMENT, pa.timestamp("us"), dt.datetime)):
        if pattern.fullmatch(raw):
            try:
                read.fromisoformat(raw)
            except ValueError:
                continue
            return kind
    return _TEXT


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if one == other:
        return one
    if min(_digits(one), _digits(other)):
        digits = max(_digits(one), _digits(other))
        return pa.decimal128(digits, 0) if pa.types.is_decimal(one) or pa.types.is_decimal(other) else pa.int64()
    if {one, other} == {pa.int32(), pa.float64()}:
        return pa.float64()
    if {one, other} == {pa.date32(), pa.timestamp("us")}:
        return pa.timestamp("us")
    return _TEXT


def _digits(kind: pa.DataType) -> int:
    """Digits that a type of whole numbers takes; 0 for others."""
    return kind.precision if pa.types.is_decimal(kind) else {pa.int32(): 10, pa.int64(): 20}.get(kind, 0)


def typed_values(raws: Sequence[str | None], kind: pa.DataType) -> pa.Array:
    """Values of one column as this type.

    Raises:
        ValueError, ArithmeticError, pyarrow.ArrowException: one of them is none.
    """
    if pa.types.is_dictionary(kind):
        return typed_values(raws, kind.value_type).dictionary_encode().cast(kind)
    if kind == _TEXT or pa.types.is_null(kind):
        return pa.array(raws, type=kind)
    read: Any = str
    if pa.types.is_integer(kind):
        read = int
    elif pa.types.is_floating(kind):
        read = _float
    elif pa.types.is_decimal(kind):
        read = Decimal
    elif pa.types.is_date(kind):
        read = dt.date.fromisoformat
    elif pa.types.is_timestamp(kind):
        read = dt.datetime.fromisoformat
    else:
        return pa.array(raws, type=_TEXT).cast(kind)
    return pa.array([None if raw is None else read(raw) for raw in raws], type=kind)


def _float(raw: str) -> float:
    return float(raw if raw.lower().endswith("inf") else raw.strip().rstrip("fFdD"))
