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
    from ..format.inspect import ColumnFacts, Inspection
    from .query.indexes import Indexes
    from .query.parts import TableParts


@dataclass
class TableInspection(ShownInNotebooks):
    """The facts of a table, as far as they are seen.

    Attributes:
        format: of its files.
        version: of a Delta or Iceberg table.
        files, bytes: how many, and their size.
        rows, row_groups: of the files whose footers were seen, without rows that the table has deleted; None: of none.
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
            found = inspect_file(parts.files[number].ref, decryption=parts.decryption_of(number))
            if parts.files[number].deletes and found.num_rows is not None:
                with parts.open(number) as file:
                    found.num_rows = file.num_rows
            return found
        except BloomsealError as error:
            return error

    looks = side_by_side(look, range(len(parts.files)), None)
    seen = [one for one in looks if not isinstance(one, BloomsealError)]
    whys = [one.what if isinstance(one, BloomsealError) else one.refused for one in looks]
    paths = [found.ref.path for found in parts.files]
    footed = [one for one in seen if one.columns is not None]
    hidden = [f"{what} ({counted(n, 'file')})" for what, n in Counter(w for one in footed for w in one.hidden).items()]
    if closed := [one.size for one in seen if one.columns is None]:
        files = f"footer encrypted: {counted(len(closed), 'file')}, {sum(closed):,} bytes"
        hidden.insert(0, f"{files}: rows and columns are in it")
    given = dict.fromkeys(name for found in parts.files for name in columns_of_folders(found.relative, found.ref.path))
    return TableInspection(
        ", ".join(sorted({one.file_format for one in seen})),
        None if parts.snapshot is None else parts.snapshot.version,
        len(parts.files),
        sum(one.size for one in seen),
        sum(one.num_rows or 0 for one in footed) if footed else None,
        sum(one.num_row_groups or 0 for one in footed) if footed else None,
        _footers(seen),
        _columns(footed, _indexed(indexes, len(parts.files))),
        list(parts.partitions.values or given),
        hidden,
        [{"file": path, "why": why} for path, why in zip(paths, whys, strict=True) if why],
        seen,
    )


def _footers(seen: list[Inspection]) -> list[dict[str, Any]]:
    groups: dict[tuple[Any, ...], list[int]] = {}
    for one in seen:
        groups.setdefault((one.footer, one.algorithm, one.footer_key, one.aad_prefix), []).append(one.size)
    names = ("footer", "algorithm", "key", "aad_prefix", "files", "bytes")
    return [dict(zip(names, (*kind, len(sizes), sum(sizes)), strict=True)) for kind, sizes in groups.items()]


def _columns(seen: list[Inspection], indexed: dict[str, str]) -> list[dict[str, Any]]:
    columns: dict[str, list[ColumnFacts]] = {}
    for facts in (facts for one in seen for facts in one.columns or ()):
        columns.setdefault(facts.column, []).append(facts)
    return [
        {
            "column": column,
            **{
                name: _told(Counter(getattr(one, name) for one in of))
                for name in ("type", "protection", "key", "filter")
            },
            "index": indexed.get(column),
            "exposed": list(dict.fromkeys(text for one in of for text in one.exposed)),
            "files": None if len(of) == len(seen) else len(of),
        }
        for column, of in columns.items()
    ]


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
