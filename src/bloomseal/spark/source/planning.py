"""What a read opens: the files, and of each the row groups, that folders' names and sealed indexes leave of a table.

Planned on the driver, each time that a read is planned, without opening a file. What rules out more, statistics and
filters, is in the files: tasks ask those (`.scan`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from ...core.errors import BloomsealError
from ...core.exclusion import Exclusion, by_folder
from ...index.place import columns_in
from .pushdown import admitted
from .scan import Scan
from .search import mark, replaced
from .stats import SourceStats

if TYPE_CHECKING:
    from ...index.manifest import FileState
    from ...read.file import SealedFile
    from ...read.predicate.condition import Compare
    from ...storage.logs.snapshot import Snapshot
    from ...table.query.indexes import Indexes
    from ...table.query.sift import Ask
    from .files.piece import Piece
    from .files.tree import Tree
    from .options import SourceOptions
    from .search import KeySearch

_FILE_COST: Final = 1024 * 1024
"""What opening a file costs, in bytes that could be read instead."""
_LEAST_TASK: Final = 4 * 1024 * 1024
_SELECTIVE: Final = 16
"""How much more of a table a task is given where a column must equal something: filters will rule out most of it."""


@dataclass
class Plan:
    """What is left of a table.

    Attributes:
        pieces: the files to open; each says which row groups of it indexes leave.
        stats: what was ruled out.
        gone: files that indexes rule out.
    """

    pieces: list[Piece]
    stats: SourceStats = field(default_factory=SourceStats)
    gone: list[Piece] = field(default_factory=list)

    @property
    def ruled_out(self) -> float:
        """The share of the row groups that indexes rule out, about: nobody has counted those of files without one."""
        kept = [piece.kept for piece in (*self.gone, *self.pieces) if piece.kept is not None]
        known, left = sum(one.seen for one in kept), sum(len(one.groups) for one in kept)
        covered = len(kept) / max(len(self.gone) + len(self.pieces), 1)
        return covered * (1 - left / known) if known else 0.0


@dataclass(frozen=True)
class Files:
    """A table's files, before any of them is opened.

    Attributes:
        pieces: in order.
        settings: how they, and the table's indexes, are opened.
        log: what keeps the list of files; None: their folder.
    """

    pieces: Sequence[Piece]
    settings: SourceOptions
    log: Snapshot | None

    @property
    def without_index(self) -> bool:
        """None of their folders has an index, as far as that is told at once, on this machine: a plan need not list
        thousands of files again to learn that nobody is to be asked about them.
        """
        roots = {(one.base, one.root_in(self.settings.folder)) for one in self.pieces}
        return not any(base is not None or (root is not None and columns_in(root)) for base, root in roots)

    def indexes(self) -> Indexes | None:
        """Those of the table; None where nobody is to be asked."""
        settings = self.settings
        if settings.use_index == "never" or settings.kms is None:
            return None
        if settings.use_index == "auto" and self.without_index:
            return None
        # Reads that ask none need not load this.
        from ...table.query.indexes import Indexes

        return Indexes(settings.parts(self.pieces, self.log), settings.use_index, settings.trust)


def changed(gone: Sequence[Piece], settings: SourceOptions) -> list[Piece]:
    """Of files that indexes have ruled out those that are others by now, to be read as a whole. Spark plans a frame
    once, and runs it as often as it is asked to: so that each run gives what is there, its first task asks this.
    """
    from ...table.query.indexes import Indexes

    states = Indexes(settings.parts(gone), "auto", settings.trust).states()
    told = zip(gone, states, strict=True)
    return [piece._replace(kept=None) for piece, state in told if not _is_same(settings, piece, state)]


def _is_same(settings: SourceOptions, piece: Piece, state: FileState | None) -> bool:
    assert piece.kept is not None  # noqa: S101 - `by_indexes` says of each what was seen
    if not (seen := piece.kept.sighting).by_identity:
        return state == seen.state
    try:
        with settings.open(piece) as file:
            return seen.is_same(file)
    except BloomsealError:
        return False  # whoever reads it says why


def planned(scan: Scan, tree: Tree) -> Plan:
    """What a read opens of these files.

    Raises:
        UsageError: an index is required, and does not answer for every file; or a column that the table's log does not
            name.
    """
    _need_logged(scan, tree.log)
    pieces, pruned = by_folders(tree, scan.conditions)
    settings, search = scan.settings, scan.search
    asked = {one.column for one in scan.conditions if one.by_equality}
    if search is not None:
        asked.add(search.column)
    plan = Plan(pieces)
    if scan.conditions or search is not None:
        before = settings.kms_counters()
        plan = by_indexes(Files(pieces, settings, tree.log), asked, scan.ways)
        plan.stats.add_kms(before, settings.kms_counters())
        if search is not None:
            need_marks(search, plan)
    plan.stats.files_pruned_by_partition = len(pruned)
    plan.stats.bytes_pruned += sum(file.size for file, _ in pruned)
    return plan


def _need_logged(scan: Scan, log: Snapshot | None) -> None:
    """Refuse columns, and fields in them, that somebody asks for and that the log does not name: files still hold what
    was dropped.
    """
    if log is None:
        return
    from ...storage.logs.snapshot import fields_in  # folders without a log need not load it
    from ...table.query.logged import no_such_column

    known = {path.lower() for path, _ in fields_in(log.schema)}
    if lacking := [path for path, _ in fields_in(scan.target) if path.lower() not in known]:
        raise no_such_column(lacking[0], log.schema.names)


def need_marks(search: KeySearch, plan: Plan) -> None:
    """Where keys were narrowed to those that an index knows, each file is the one that it was held against.

    Raises:
        UnsupportedError: one is not.
    """
    every = [(piece.name, piece.kept) for piece in (*plan.pieces, *plan.gone)]
    marks = {None if kept is None else mark(name, kept.sighting.state) for name, kept in every}
    if search.marks is not None and not search.marks.issuperset(marks):
        raise replaced()


def by_folders(tree: Tree, asked: Sequence[Compare]) -> tuple[list[Piece], list[tuple[Piece, Exclusion]]]:
    """The files that may hold wanted rows, and those that their partition values rule out."""
    wanted = admitted(asked, tree.columns, [file.values for file in tree.files])
    if all(wanted):
        return [*tree.files], []
    rejected = by_folder(tree.expected, {one.column for one in asked}.intersection(tree.columns.names))
    split = list(zip(tree.files, wanted, strict=True))
    return [file for file, kept in split if kept], [(file, rejected) for file, kept in split if not kept]


def by_indexes(files: Files, columns: Collection[str], ask: Callable[[SealedFile], Any]) -> Plan:
    """What the sealed indexes of these columns leave.

    Args:
        ask: what is asked of a file, or of one of its schema, see `bloomseal.table.query.sift.Ask`.

    Raises:
        UsageError: an index is required, and does not answer for every file. And whatever `ask` raises.
    """
    pieces = files.pieces
    if (indexes := files.indexes()) is None:
        return Plan([*pieces])
    from ...index.facts.sameness import Kept
    from ...table.query.sift import sifted

    of_number: Ask = lambda _, stand_in: ask(stand_in)  # noqa: E731
    found = sifted(range(len(pieces)), indexes, spelled(indexes, columns), of_number)
    plan = Plan([pieces[number]._replace(kept=kept) for number, kept in found.left.items()])
    for number in (number for _, gone in found.excluded for number in gone):
        assert found.sighting is not None  # noqa: S101 - an index covers the file
        kept = Kept((), found.row_groups[number], found.sighting(number))
        plan.gone.append(pieces[number]._replace(kept=kept))
    plan.stats.add(found.stats)
    plan.stats.bytes_pruned = sum(piece.size for piece in plan.gone)
    return plan


def spelled(indexes: Indexes, columns: Collection[str]) -> list[str]:
    """The columns as indexes call them: Spark spells a column in another case than a file does."""
    wanted = {column.lower() for column in columns}
    return list({column: None for _, name in indexes.names(None) if (column := unquote(name)).lower() in wanted})


def packed(scan: Scan, pieces: Sequence[Piece], parallelism: int | None) -> Iterator[list[Piece]]:
    """Pieces for one task each: about as many bytes in all, big files in parts."""
    cores, most = parallelism or os.cpu_count() or 1, scan.settings.max_partition_bytes
    total = sum(piece.weight + _FILE_COST for piece in pieces)
    if scan.is_selective:
        # Little of such a file is read, so that starting tasks would be most of the work: two for each core will do.
        most = max(most, min(_SELECTIVE * most, total // (2 * cores)))
    target = min(most, max(_LEAST_TASK, -(-total // cores)))
    pack: list[Piece] = []
    filled = 0
    for piece in pieces:
        parts = max(1, -(-piece.weight // target))
        for part in range(parts):
            cost = piece.weight // parts + _FILE_COST
            if pack and filled + cost // 2 > target:
                yield pack
                pack, filled = [], 0
            pack.append(piece if parts == 1 else piece._replace(part=part, parts=parts))
            filled += cost
    if pack:
        yield pack
