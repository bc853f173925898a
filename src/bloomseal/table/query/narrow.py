"""What a table's indexes leave of a query: the files to open, and of each the row groups to look at.

The predicate is bound to the schema that a covered file has, as its index remembers it, so that types, encodings and
mistakes are those that the file itself would show. Every doubt keeps the file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...core.errors import UsageError
from ...core.exclusion import Exclusion, of_unopened
from ...core.sbbf import ProbeSet
from ...core.text import counted
from ...index.lookup import GROUP_BITS, ghost
from ...read.plan import ReadStats
from ...read.predicate.condition import columns_of
from .indexes import Held, Indexes, UseIndex
from .query import Fragment, Query, Shape
from .sift import I64, Bools, States, alike, sifted, with_indexes
from .workers import side_by_side

if TYPE_CHECKING:
    from ...read.file import SealedFile
    from ...read.predicate.term import Ways


@dataclass
class Narrowed:
    """What is left of a query.

    Attributes:
        numbers: the files to open, in order.
        shapes: number and shape of files that are ruled out, one for each shape.
        stats: what was ruled out.
    """

    numbers: list[int]
    shapes: list[tuple[int, Shape]] = field(default_factory=list)
    stats: ReadStats = field(default_factory=ReadStats)


class Known(NamedTuple):
    """What an index says of some values and one file.

    Attributes:
        groups: the file's row groups.
        maybe: bools of shape (row groups, values); None: no value is in any of them.
        excluded: why no value is in any of them.
        has: the file has the column.
        is_same: whether an open file is the one that the index is about.
    """

    groups: int
    maybe: Bools | None
    excluded: Exclusion | None
    has: bool
    is_same: Callable[[SealedFile], bool]


def narrowed(query: Query, indexes: Indexes) -> Narrowed:
    """Rule out files and row groups by the indexes of the columns that the predicate is about. Sets ``query.kept``.

    Raises:
        UsageError: of the predicate, as the files themselves would raise it; an index is required, and does not answer
            for every file.
    """
    tree = query.condition.tree
    if tree is None:
        return Narrowed(list(query.numbers))
    shapes: dict[int, Shape] = {}

    def ask(number: int, stand_in: SealedFile) -> Ways:
        fragment = Fragment(query, number, stand_in)
        shapes[number] = fragment.shape
        if isinstance(fragment.left, Exclusion):
            return []
        predicate = fragment.plan.predicate
        return [[]] if predicate is None else predicate.any_of

    found = sifted(query.numbers, indexes, columns_of(tree), ask, query.condition.signature)
    query.kept |= {number: kept for number, kept in found.left.items() if kept is not None}
    return Narrowed(list(found.left), [(min(of), shapes[first]) for first, of in found.excluded], found.stats)


def shapes_of(query: Query, indexes: Indexes) -> list[tuple[int, Shape]]:
    """Number and shape of the files that the query may touch, one for each shape that an index knows: its files are
    not opened.
    """
    found = with_indexes(indexes, None, lambda held, _: alike(query.numbers, held, query.condition.signature))
    same, unknown = found or ([], list(query.numbers))
    shapes = [(of[0], Fragment(query, of[0], ghost(doc, indexes.path(of[0]))).shape) for doc, of in same]
    shapes += zip(unknown, side_by_side(query.shape_of, unknown, None), strict=True)
    return sorted(shapes, key=lambda one: one[0])


def known_values(indexes: Indexes, column: str, values: Any, paths: Sequence[str]) -> dict[int, Known]:
    """What an index of the column says of values, by the number of each file that it covers.

    Raises:
        UsageError: a value of the wrong kind; an index is required, and does not cover a file.
    """
    found = (
        with_indexes(
            indexes,
            [column],
            lambda held, states: _known(indexes, held, states, column, values, paths),
        )
        or {}
    )
    if indexes.use is UseIndex.REQUIRE and len(found) < len(paths):
        raise UsageError(
            f"an index is required, and covers {len(found)} of {counted(len(paths), 'file')}",
            column=column,
            hint="index update",
        )
    return found


# Values --------------------------------------------------------------------------------------------------------------


def _known(
    indexes: Indexes, held: list[Held], states: States, column: str, values: Any, paths: Sequence[str]
) -> dict[int, Known]:
    known: dict[int, Known] = {}
    for one in held:
        if one.too_many(len(values)):
            continue
        docs = one.coverage.docs
        for doc in np.unique(docs[docs >= 0]).tolist():
            numbers = np.flatnonzero(docs == doc)
            path = paths[int(numbers[0])]
            schema = ghost(one.coverage.doc(doc), path).leaves
            found: dict[int, Bools] = {}
            if schema.has(column):
                leaf = schema.leaf(column)
                if leaf.name != one.column:
                    continue
                found = _per_file(one, ProbeSet.of(values, leaf.type), numbers)
            elif schema.may_hide(column):
                continue
            excluded = of_unopened(one.coverage.covered, numbers.tolist(), found)
            for number in numbers.tolist():
                same = indexes.sighting(number, held, states).is_same
                count, nowhere = int(one.coverage.groups[number]), excluded.get(number)
                known[number] = Known(count, found.get(number), nowhere, schema.has(column), same)
    return known


def _per_file(held: Held, probes: ProbeSet, numbers: I64) -> dict[int, Bools]:
    """Per file, where values can be; files with none are left out."""
    hashes, owners, undecided = probes.hashes()
    which, codes, _ = held.find(hashes)
    mine = np.isin(codes >> GROUP_BITS, numbers)
    which, codes = which[mine], codes[mine]
    open_to = numbers if undecided.any() else np.unique(codes >> GROUP_BITS)
    found = {number: np.tile(undecided, (int(held.coverage.groups[number]), 1)) for number in open_to.tolist()}
    for hashed, code in zip(which.tolist(), codes.tolist(), strict=True):
        found[code >> GROUP_BITS][code & ((1 << GROUP_BITS) - 1), owners[hashed]] = True
    return found
