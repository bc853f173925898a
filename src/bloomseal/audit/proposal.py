"""A policy proposed for a folder of plaintext files, from the names of its columns and from samples of their values.

Every proposal says its reason, and no reason holds a value.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ..core.errors import BloomsealError, KeyAccessError, UsageError
from ..core.text import counted, safe_text
from ..format.decode import leaf_values
from ..notebook import ShownInNotebooks
from ..policy import Sensitivity
from ..policy.personal import by_name, by_values
from ..read.open import open_file
from ..storage.discovery.tables import find_files
from ..storage.formats import Format
from ..storage.places import is_folder, resolve_path
from ..table.query.partitions import columns_of_folders

if TYPE_CHECKING:
    from ..core.parquet.schema import Leaf
    from ..read.file import SealedFile
    from ..storage.discovery.tables import TableFiles

FOOTER_KEY: Final = "footer"
_PARTS, _ROWS = 8, 1_200
"""Looked at, in all files: row groups, and rows of them."""
_DISTINCT: Final = 0.1
_ID: Final = re.compile(r"(?:^|[_\W]|(?<=[a-z]))(?:id|ID|Id|uuid|guid|key|number|no|nr)$")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


@dataclass
class ColumnProposal:
    """What is proposed for one column.

    Attributes:
        column: dotted path.
        why: the reason, in words.
        key: name of the master key; None: the column stays under the table's rule for all others.
        sensitivity: as in the policy.
        filter: why to write a Bloom filter; None: none.
    """

    column: str
    why: str
    key: str | None = None
    sensitivity: Sensitivity = Sensitivity.INTERNAL
    filter: str | None = None


@dataclass
class TableProposal(ShownInNotebooks):
    """What is proposed for one table.

    Attributes:
        table: its name, that of the folder.
        path: the folder.
        files, rows_sampled: what was looked at.
        columns: those that get an entry.
        others: those that get none.
        partition_by: columns in the names of folders.
        remarks: what a person has to decide.
    """

    table: str
    path: str
    files: int = 0
    rows_sampled: int = 0
    columns: list[ColumnProposal] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    partition_by: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @property
    def master_keys(self) -> list[str]:
        """The names of all master keys, the footer's first."""
        return list(dict.fromkeys([FOOTER_KEY, *(one.key for one in self.columns if one.key is not None)]))


def propose(path: str | os.PathLike[str]) -> TableProposal:
    """Look at a sample of a folder's files.

    Args:
        path: a folder of plaintext Parquet files, or a Delta or Iceberg table of them.

    Raises:
        UsageError: nothing to look at. FormatError, UnsupportedError: a file that can't be read.
    """
    place = os.fspath(path)
    found = find_files(place)
    if not is_folder(resolve_path(place)):
        raise UsageError("a policy is proposed for a folder of files", file=place, hint="the folder")
    made = TableProposal(_table_name(place), place, partition_by=_in_folders(found))
    samples: dict[str, list[str]] = {}
    sealed = 0
    for number in (chosen := _spread(len(found.files), _PARTS)):
        try:
            with open_file(found.files[number].ref) as file:
                if file.format is not Format.PARQUET:
                    raise UsageError("only Parquet files can be sealed", file=file.path)
                _sample(file, len(chosen), samples, made)
                made.files += 1
        except KeyAccessError:
            sealed += 1
    if sealed:
        made.remarks.append(f"{sealed} of {len(chosen)} files looked at are sealed already, and were not looked into")
    if not made.files:
        raise UsageError("every file is sealed already", file=place, hint="bloomseal audit tells by which keys")
    for column, values in samples.items():
        proposal = _proposed(column, values)
        if column in made.partition_by:
            continue
        if proposal is None:
            made.others.append(column)
        else:
            made.columns.append(proposal)
    for column in made.partition_by:
        if (kind := by_name(column)) is not None:
            made.remarks.append(f"{column} sounds like {kind.what}; nothing seals the names of folders")
    made.columns.sort(key=lambda one: one.key is None)
    return made


def _spread(total: int, most: int) -> list[int]:
    """So many numbers below `total`, evenly apart."""
    return sorted({one * total // most for one in range(most)}) if total else []


def _sample(file: SealedFile, files: int, samples: dict[str, list[str]], made: TableProposal) -> None:
    """The first rows of some row groups, as texts by column: a share of what is looked at in all files."""
    parts = _spread(file.num_parts, max(_PARTS // files, 1))
    most = _ROWS // max(files * len(parts), 1)
    for leaf in file.leaves.leaves:
        values = samples.setdefault(leaf.name, [])
        try:
            values += [text for part in parts for text in _texts(file, leaf, part, most)]
        except KeyAccessError:
            raise
        except BloomsealError as error:
            if (told := f"{leaf.name} was not sampled: {error.what}") not in made.remarks:
                made.remarks.append(told)
    made.rows_sampled += sum(min(file.rows_in_part(part), most) for part in parts)


def _texts(file: SealedFile, leaf: Leaf, part: int, most: int) -> list[str]:
    """Values of a column as texts; none of a type that no rule looks at."""
    piece = next(iter(file.pieces(file.plan([leaf.name]), part)), None)
    if piece is None:
        return []
    column = leaf_values(piece.slice(0, most).column(0)).slice(0, most)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (_is_text(kind) or pa.types.is_integer(kind) or pa.types.is_date(kind)):
        return []
    return [text for text in column.cast(pa.string()).to_pylist() if text]


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _proposed(column: str, values: Sequence[str]) -> ColumnProposal | None:
    named, seen = by_name(column), by_values(values)
    different = len(set(values))
    many = f"{different:,} different values in {len(values):,}" if different > _DISTINCT * len(values) else None
    if named is None and seen is None:
        return (
            ColumnProposal(column, "an identifier, by its name", filter=many) if many and _ID.search(column) else None
        )
    # Of what the values show more is known than of a name.
    kind = seen[0] if seen is not None else named
    assert kind is not None  # noqa: S101
    by = ["by its name"] if named is kind else []
    if seen is not None:
        by.append(f"by {seen[1]:,} of {len(values):,} sampled values")
    why = f"{kind.what}, {' and '.join(by)}"
    return ColumnProposal(column, why, kind.key, kind.sensitivity, many if kind.identifier else None)


def policy_text(proposals: Sequence[TableProposal], kms: str, folder: str | os.PathLike[str] = ".") -> str:
    """The policy file, commented.

    Args:
        proposals: one for each table.
        kms: where the master keys are, or are to be.
        folder: where the file is to be: the tables' folders count from there.
    """
    lines = [
        "# Proposed by bloomseal policy init, from names of columns and samples of values. Rules see no meaning:",
        "# look at every line. docs/kms.md and keys/policy.example.toml have all settings.",
        "version = 1",
        f"kms = {_quoted(kms)}",
    ]
    for one in proposals:
        lines += ["", *_table_lines(one, folder)]
    return "\n".join(lines) + "\n"


def _table_lines(one: TableProposal, folder: str | os.PathLike[str]) -> Iterator[str]:
    table = f"tables.{_toml_key(one.table)}"
    yield f"# {counted(one.files, 'file')} looked at, {one.rows_sampled:,} rows in all."
    for remark in one.remarks:
        yield f"# To decide: {safe_text(remark)}."
    yield f"[{table}]"
    root = one.path if "://" in one.path else os.path.relpath(one.path, folder)
    yield f"root = {_quoted(root)}"
    yield f'footer_key = "{FOOTER_KEY}"'
    yield "complete = true                   # columns without a key of their own are sealed under the footer key"
    yield 'aad_prefix = "{table}/{path}/"    # a file opens in its own place only'
    yield "store_aad_prefix = false"
    if one.partition_by:
        names = ", ".join(map(_quoted, one.partition_by))
        yield f"partition_by = [{names}]          # in the names of folders, which nothing seals"
    for column in one.columns:
        yield ""
        yield f"# {safe_text(column.column)}: {safe_text(column.why)}."
        yield f"[{table}.columns.{_toml_key(column.column)}]"
        if column.key is not None:
            yield f"key = {_quoted(column.key)}"
            yield f'sensitivity = "{column.sensitivity}"'
        if column.filter:
            yield f"filter = true                     # for look-ups: {column.filter}"
    if one.others:
        yield ""
        yield f"# Nothing personal was found in: {safe_text(', '.join(one.others))}."


def _in_folders(found: TableFiles) -> list[str]:
    if found.snapshot is not None:
        return sorted({name for live in found.live.values() for name in live.partition})
    return sorted({name for one in found.files for name in columns_of_folders(one.relative, one.ref.path)})


def _table_name(path: str) -> str:
    name = PurePosixPath(os.path.abspath(path) if "://" not in path else path).name  # noqa: PTH100
    return name.partition(".")[0] or "table"


def _quoted(text: str) -> str:
    """A text as TOML has it."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _quoted(name)
