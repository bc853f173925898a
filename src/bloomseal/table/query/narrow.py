"""What a table's indexes leave of a query: the files to open, and of each the row groups to look at.

The predicate is bound to the schema that a covered file has, as its index remembers it, so that types, encodings and
mistakes are those that the file itself would show. Every doubt keeps the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from ...errors import UsageError
from ...index.lookup import GROUP_BITS, ghost
from ...read.plan import ReadStats
from ...sbbf import ProbeSet
from .conditions import columns_of
from .indexes import Held, Indexes, UnreadableError, UseIndex
from .query import Fragment, Kept, Query, Shape, side_by_side

if TYPE_CHECKING:
    from ...index.manifest import FileState
    from ...read.file import SealedFile
    from ...read.predicate.term import Term, Ways

__all__ = ["Known", "Narrowed", "known_values", "narrowed", "shapes_of"]

T = TypeVar("T")
I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
States = Sequence["FileState | None"]


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
        has: the file has the column.
        is_same: whether an open file is the one that the index is about.
    """

    groups: int
    maybe: Bools | None
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
    result = _with_indexes(
        indexes, columns_of(tree), lambda held, states: _rule_out(query, held, _Same(indexes, held, states))
    )
    if result is None:
        result = Narrowed(list(query.numbers), stats=ReadStats(files_not_covered=len(query.numbers)))
    if indexes.use is UseIndex.REQUIRE and result.stats.files_not_covered:
        raise UsageError(
            f"an index is required, and {result.stats.files_not_covered} files are covered by none of the columns asked",
            hint="index build, or index update",
        )
    return result


def shapes_of(query: Query, indexes: Indexes) -> list[tuple[int, Shape]]:
    """Number and shape of the files that the query may touch, one for each shape that an index knows: its files are
    not opened.
    """
    found = _with_indexes(indexes, None, lambda held, _: _by_schema(query, held))
    same, unknown = found or ({}, list(query.numbers))
    shapes = [(numbers[0], _ghost(query, numbers[0], doc).shape) for (doc, _), numbers in same.items()]
    shapes += zip(unknown, side_by_side(query.shape_of, unknown, None), strict=True)
    return sorted(shapes, key=lambda one: one[0])


def known_values(indexes: Indexes, column: str, values: Any, paths: Sequence[str]) -> dict[int, Known]:
    """What an index of the column says of values, by the number of each file that it covers.

    Raises:
        UsageError: a value of the wrong kind; an index is required, and does not cover a file.
    """
    found = (
        _with_indexes(
            indexes,
            [column],
            lambda held, states: _known(held, _Same(indexes, held, states), column, values, paths),
        )
        or {}
    )
    if indexes.use is UseIndex.REQUIRE and len(found) < len(paths):
        raise UsageError(
            f"an index is required, and covers {len(found)} files of {len(paths)}", column=column, hint="index update"
        )
    return found


def _with_indexes(indexes: Indexes, columns: list[str] | None, work: Callable[[list[Held], States], T]) -> T | None:
    """What `work` makes of the indexes of these columns that can be asked; None where there are none."""
    if not indexes.names(columns):
        return None
    states = indexes.states()
    held = indexes.held(columns, states)
    while held:
        try:
            return work(held, states)
        except UnreadableError as failed:
            again = indexes.recovered(failed, states)
            held = [one for one in held if one is not failed.held] + ([] if again is None else [again])
    return None


# Predicates ----------------------------------------------------------------------------------------------------------

_Asked = dict[tuple[int, tuple[int, str]], "I64 | None"]
"""The values of a term, and an index's place → the codes that it found."""
_Alike = dict[tuple[bytes, tuple[bool, ...]], list[int]]
"""Schema, and what folders' names say of the predicate → the files that share both."""


def _by_schema(query: Query, held: list[Held]) -> tuple[_Alike, list[int]]:
    """The files that the query may touch: those that are covered, by what they share; and the others."""
    alike: _Alike = {}
    others: list[int] = []
    docs = [one.coverage.docs.tolist() for one in held]
    for number in query.numbers:
        covering = next((i for i, of in enumerate(docs) if of[number] >= 0), None)
        if covering is None:
            others.append(number)
        else:
            name = held[covering].coverage.doc(docs[covering][number]), query.condition.signature(number)
            alike.setdefault(name, []).append(number)
    return alike, others


def _ghost(query: Query, number: int, doc: bytes) -> Fragment:
    return Fragment(query, number, ghost(doc, query.parts.files[number].ref.path))


class _Same:
    """Tells, later, whether files that were opened are those that indexes were asked about."""

    def __init__(self, indexes: Indexes, held: list[Held], states: States) -> None:
        self._indexes, self._held, self._states = indexes, held, states

    def of(self, number: int) -> Callable[[SealedFile], bool]:
        """For the file of this number, which an index covers."""
        state = self._states[number]
        assert state is not None  # noqa: S101
        told = [(one.column, one.coverage.content(number)) for one in self._held if one.coverage.covered[number]]
        return lambda file: self._indexes.is_same(file, state, told)


def _rule_out(query: Query, held: list[Held], same: _Same) -> Narrowed:
    alike, others = _by_schema(query, held)
    result = Narrowed(others, stats=ReadStats(files_not_covered=len(others)))
    groups = np.maximum.reduce([one.coverage.groups for one in held])
    for (doc, _), numbers in alike.items():
        fragment = _ghost(query, numbers[0], doc)
        left = _left(fragment, np.array(numbers), held)
        gone = [number for number in numbers if number not in left]
        if gone:
            result.shapes.append((gone[0], fragment.shape))
            count = int(groups[gone].sum())
            result.stats.add(ReadStats(row_groups=count, pruned_by_index=count, files_unopened=len(gone)))
        for number, kept in left.items():
            result.numbers.append(number)
            if kept is not None:
                query.kept[number] = Kept(kept, same.of(number))
    result.numbers.sort()
    return result


def _left(fragment: Fragment, numbers: I64, held: list[Held]) -> dict[int, tuple[int, ...] | None]:
    """Of files that share a schema: those in which rows can be, and in which row groups; None: in all."""
    if fragment.left is None:
        return {}
    predicate = fragment.plan.predicate
    if predicate is None:
        return dict.fromkeys(numbers.tolist())
    whole, codes = _any_of(predicate.any_of, numbers, held)
    left: dict[int, tuple[int, ...] | None] = dict.fromkeys(numbers[whole].tolist())
    found: dict[int, list[int]] = {}
    for code in codes.tolist():
        found.setdefault(code >> GROUP_BITS, []).append(code & ((1 << GROUP_BITS) - 1))
    for number, kept in found.items():
        left.setdefault(number, tuple(kept))
    return left


def _any_of(ways: Ways, numbers: I64, held: list[Held]) -> tuple[Bools, I64]:
    """Which files are left as a whole, and the codes of row groups of the others."""
    whole = np.zeros(len(numbers), dtype=np.bool_)
    codes = np.empty(0, dtype=np.int64)
    asked: _Asked = {}
    for conjunction in ways:
        every, some = _all_of(conjunction, numbers, held, asked)
        whole |= every
        codes = np.union1d(codes, some)
    return whole, codes


def _all_of(conjunction: Iterable[Term], numbers: I64, held: list[Held], asked: _Asked) -> tuple[Bools, I64]:
    whole = np.ones(len(numbers), dtype=np.bool_)
    codes = np.empty(0, dtype=np.int64)
    for term in conjunction:
        for one in held:
            if term.leaf.name != one.column or (found := _codes(term, one, asked)) is None:
                continue
            covered = one.coverage.covered[numbers]
            # Of files that this index covers only what it found is left, in what other terms have left.
            mine = np.isin(codes >> GROUP_BITS, numbers[covered & ~whole])
            found = found[np.isin(found >> GROUP_BITS, numbers[covered])]
            fresh = found[np.isin(found >> GROUP_BITS, numbers[covered & whole])]
            codes = np.union1d(np.concatenate([codes[~mine], np.intersect1d(codes[mine], found)]), fresh)
            whole &= ~covered
    return whole, codes


def _codes(term: Term, held: Held, asked: _Asked) -> I64 | None:
    """Where values of the term can be, ascending; None where the index does not say."""
    if (probes := term.probe_set) is None:
        return None
    name = id(probes), held.place
    if name not in asked:
        hashes, _, undecided = probes.hashes()
        says = not undecided.any() and not held.too_many(len(hashes))
        asked[name] = np.unique(held.find(hashes).codes) if says else None
    return asked[name]


# Values --------------------------------------------------------------------------------------------------------------


def _known(held: list[Held], same: _Same, column: str, values: Any, paths: Sequence[str]) -> dict[int, Known]:
    known: dict[int, Known] = {}
    for one in held:
        if one.too_many(len(values)):
            continue
        docs = one.coverage.docs
        for doc in np.unique(docs[docs >= 0]).tolist():
            numbers = np.flatnonzero(docs == doc)
            path = paths[int(numbers[0])]
            schema = ghost(one.coverage.doc(doc), path).walk.footer.schema
            found: dict[int, Bools] | None = {}
            if schema.has(column):
                leaf = schema.leaf(column)
                if leaf.name != one.column:
                    continue
                found = _per_file(one, ProbeSet.of(values, leaf.type), numbers)
            for number in numbers.tolist():
                maybe = None if found is None else found.get(number)
                known[number] = Known(int(one.coverage.groups[number]), maybe, schema.has(column), same.of(number))
    return known


def _per_file(held: Held, probes: ProbeSet, numbers: I64) -> dict[int, Bools]:
    """Per file, where values can be; files with none are left out."""
    hashes, owners, undecided = probes.hashes()
    which, codes = held.find(hashes)
    mine = np.isin(codes >> GROUP_BITS, numbers)
    which, codes = which[mine], codes[mine]
    open_to = numbers if undecided.any() else np.unique(codes >> GROUP_BITS)
    found = {number: np.tile(undecided, (int(held.coverage.groups[number]), 1)) for number in open_to.tolist()}
    for hashed, code in zip(which.tolist(), codes.tolist(), strict=True):
        found[code >> GROUP_BITS][code & ((1 << GROUP_BITS) - 1), owners[hashed]] = True
    return found
