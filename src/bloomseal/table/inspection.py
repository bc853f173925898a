"""What a table is, in one look: files, rows, columns, keys, filters and indexes, as far as the keys at hand allow."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ..core.errors import BloomsealError, BloomsealWarning
from ..core.text import counted
from ..index.place import columns_in
from ..notebook import ShownInNotebooks
from ..read.open import inspect_file
from .query.partitions import columns_of_folders
from .query.workers import side_by_side

if TYPE_CHECKING:
    from ..format.inspect import Inspection
    from .query.indexes import Indexes
    from .query.parts import TableParts

__all__ = ["TableInspection", "inspect_table"]


@dataclass
class TableInspection(ShownInNotebooks):
    """The facts of a table, as far as they are seen.

    Attributes:
        format: of its files.
        version: of a Delta or Iceberg table.
        files, bytes: how many, and their size.
        rows, row_groups: of the files whose footers were seen; None: of none.
        footers: for each kind of footer ``footer``, ``algorithm``, ``key``, ``aad_prefix``, ``files`` and ``bytes``.
        columns: for each column `ColumnFacts`' fields, and its ``index``; where files differ, with their numbers.
        folders: columns that the names of folders, or the table's log, give.
        hidden: what can't be seen, in words.
        refused: files that the keys at hand did not open as they should, and why.
        inspections: the facts of each file.
    """

    format: str
    version: int | str | None
    files: int
    bytes: int
    rows: int | None
    row_groups: int | None
    footers: list[dict[str, Any]]
    columns: list[dict[str, Any]]
    folders: list[str]
    hidden: list[str]
    refused: list[dict[str, Any]]
    inspections: list[Inspection] = field(default_factory=list, repr=False)

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "inspections"}


def inspect_table(parts: TableParts, indexes: Indexes) -> TableInspection:
    """Look at every file; see `SealedTable.inspect`."""

    def look(number: int) -> Inspection | BloomsealError:
        try:
            return inspect_file(parts.files[number].ref, decryption=parts.decryption_of(number))
        except BloomsealError as error:
            return error

    looks = side_by_side(look, range(len(parts.files)), None)
    paths = [found.ref.path for found in parts.files]
    failed = [(path, one.what) for path, one in zip(paths, looks, strict=True) if isinstance(one, BloomsealError)]
    seen = [one for one in looks if not isinstance(one, BloomsealError)]
    refused = [*failed, *((one.path, one.refused) for one in seen if one.refused)]
    open_ = [one for one in seen if one.columns is not None]
    closed = [one for one in seen if one.columns is None]
    hidden = Counter(text for one in open_ for text in one.hidden)
    told = [f"{text} ({counted(number, 'file')})" for text, number in hidden.items()]
    if closed:
        size = sum(one.size for one in closed)
        told.insert(0, f"footer encrypted: {counted(len(closed), 'file')}, {size:,} bytes: rows and columns are in it")
    given = dict.fromkeys(name for found in parts.files for name in columns_of_folders(found.relative, found.ref.path))
    return TableInspection(
        ", ".join(sorted({one.file_format for one in seen})),
        None if parts.snapshot is None else parts.snapshot.version,
        len(parts.files),
        sum(one.size for one in seen),
        sum(one.num_rows or 0 for one in open_) if open_ else None,
        sum(one.num_row_groups or 0 for one in open_) if open_ else None,
        _footers(seen),
        _columns(open_, _indexed(indexes, len(parts.files))),
        list(parts.partitions.values or given),
        told,
        [{"file": path, "why": why} for path, why in refused],
        seen,
    )


def _footers(seen: list[Inspection]) -> list[dict[str, Any]]:
    groups: dict[tuple[Any, ...], list[int]] = {}
    for one in seen:
        groups.setdefault((one.footer, one.algorithm, one.footer_key, one.aad_prefix), []).append(one.size)
    names = ("footer", "algorithm", "key", "aad_prefix", "files", "bytes")
    return [dict(zip(names, (*kind, len(sizes), sum(sizes)), strict=True)) for kind, sizes in groups.items()]


def _columns(seen: list[Inspection], indexed: dict[str, str]) -> list[dict[str, Any]]:
    columns: dict[str, dict[str, Counter[Any]]] = {}
    for one in seen:
        for facts in one.columns or ():
            kinds = columns.setdefault(facts.column, {})
            for name in ("type", "protection", "key", "filter"):
                kinds.setdefault(name, Counter())[getattr(facts, name)] += 1
            kinds.setdefault("exposed", Counter()).update(facts.exposed)
    told = []
    for column, kinds in columns.items():
        exposed = list(kinds.pop("exposed"))
        files = sum(kinds["type"].values())
        row = {"column": column, **{name: _told(values) for name, values in kinds.items()}}
        row |= {"index": indexed.get(column), "exposed": exposed}
        told.append(row | ({} if files == len(seen) else {"files": files}))
    return told


def _told(values: Counter[Any]) -> Any:
    """The one value; of several, each with the number of its files."""
    if len(values) == 1:
        return next(iter(values))
    return ", ".join(f"{value or 'none'} in {counted(number, 'file')}" for value, number in values.most_common())


def _indexed(indexes: Indexes, files: int) -> dict[str, str]:
    """Column → how much of the table its index covers, where that can be opened."""
    found: dict[str, str] = {}
    for members, _ in indexes.folders:
        names = columns_in(members.root.path, members.root.filesystem)
        found |= {unquote(name): "there, not opened" for name in names}
    if found:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BloomsealWarning)  # that one can't be opened is told
            for one in indexes.held(None, indexes.states()):
                found[one.column] = f"covers {int(one.coverage.covered.sum())} of {counted(files, 'file')}"
    return found
