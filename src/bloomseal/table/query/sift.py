"""Files and row groups that indexes rule out, whoever asks: a table's read, or Spark's planning of one.

What is asked of a covered file is said by the caller, who is shown a file of the same schema without rows, as the index
remembers it. Every doubt keeps the file.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ...core.errors import UsageError
from ...core.exclusion import Exclusion, of_unopened
from ...core.text import counted
from ...index.facts.sameness import Kept, Sighting
from ...index.lookup import GROUP_BITS, SLOT_BITS, ghost
from ...index.numbers import distinct, within
from ...read.plan import ReadStats
from .indexes import Held, Indexes, UnreadableError, UseIndex

if TYPE_CHECKING:
    from ...core.parquet.schema import Leaf
    from ...core.sbbf import ProbeSet
    from ...index.manifest import FileState
    from ...read.file import SealedFile

T = TypeVar("T")
I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
States = Sequence["FileState | None"]


class Equal(Protocol):
    """A part of what is asked: that a leaf equals one of some values; `Term` is one.

    Attributes:
        leaf: of the file.
        probe_set: the values; None: nothing is said of equality.
    """

    @property
    def leaf(self) -> Leaf: ...
    @property
    def probe_set(self) -> ProbeSet | None: ...


Ways = Sequence[Sequence[Equal]]
Ask = Callable[[int, "SealedFile"], Ways]
"""What is asked of a file, given its number, and a file of its schema: all parts of any of these hold for a row that is
wanted. ``[[]]`` says nothing, ``[]`` that there is none.
"""


@dataclass
class Sifted:
    """What indexes leave.

    Attributes:
        left: number of each file to open → the row groups to look at; None: all of them.
        excluded: the files that are ruled out; those of one schema together, behind the one for which `ask` was
            called.
        row_groups: of each covered file, by its number.
        stats: what was ruled out.
        sighting: of the covered file of this number.
    """

    left: dict[int, Kept | None]
    excluded: list[tuple[int, Mapping[int, Exclusion]]] = field(default_factory=list)
    row_groups: Mapping[int, int] = field(default_factory=dict)
    stats: ReadStats = field(default_factory=ReadStats)
    sighting: Callable[[int], Sighting] | None = None


def sifted(
    numbers: Sequence[int],
    indexes: Indexes,
    columns: list[str],
    ask: Ask,
    signature: Callable[[int], Hashable] | None = None,
) -> Sifted:
    """Rule out files and row groups by the indexes of these columns.

    Args:
        numbers: the files in question.
        signature: files of one schema and one signature are asked the same; None: those of one schema are.

    Raises:
        UsageError: an index is required, and does not answer for every file. And whatever `ask` raises.
    """
    found = with_indexes(indexes, columns, lambda held, states: _sifted(numbers, indexes, held, states, ask, signature))
    if found is None:
        need_all(indexes, len(numbers))
        # Of an index that can't be read it is told; where there is none, there is nothing to tell.
        uncovered = len(numbers) if indexes.names(columns) else 0
        return Sifted(dict.fromkeys(numbers), stats=ReadStats(files_not_covered=uncovered))
    need_all(indexes, found.stats.files_not_covered)
    return found


def need_all(indexes: Indexes, uncovered: int) -> None:
    """Where an index is required, it answers for every file.

    Raises:
        UsageError: it does not.
    """
    if indexes.use is UseIndex.REQUIRE and uncovered:
        raise UsageError(
            f"an index is required, and {counted(uncovered, 'file')} covered by none of the columns asked",
            hint="index build, or index update",
        )


def with_indexes(indexes: Indexes, columns: list[str] | None, work: Callable[[list[Held], States], T]) -> T | None:
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


def alike(
    numbers: Sequence[int], held: Sequence[Held], signature: Callable[[int], Hashable] | None
) -> tuple[list[tuple[bytes, list[int]]], list[int]]:
    """Those of the files that are covered, by schema and signature; and the others."""
    found: dict[tuple[bytes, Hashable], list[int]] = {}
    others = np.array(numbers, dtype=np.int64)
    for one in held:
        asked, docs = others, one.coverage.docs[others]
        mine, others = np.flatnonzero(docs >= 0), others[docs < 0]
        mine = mine[np.argsort(docs[mine], kind="stable")]
        cuts = np.flatnonzero(np.diff(docs[mine])) + 1
        for of in np.split(mine, cuts) if len(mine) else ():
            known, listed = one.coverage.doc(int(docs[of[0]])), asked[of].tolist()
            if signature is None:
                found.setdefault((known, None), []).extend(listed)
                continue
            for number in listed:
                found.setdefault((known, signature(number)), []).append(number)
    return [(doc, of) for (doc, _), of in found.items()], others.tolist()


_Asked = dict[tuple[int, tuple[int, str]], "tuple[ProbeSet, _Places | None]"]
"""The values of a part, and an index's place → the values, and where it found them."""
_MOST_PAGES: Final = 64
"""Of a row group in which values are on more pages, all pages are looked at."""


class _Places(NamedTuple):
    """Where an index found the values of a part.

    Attributes:
        codes: of row groups, ascending.
        slots: ``code << 8 | slot``, ascending.
    """

    codes: I64
    slots: I64


def _sifted(
    numbers: Sequence[int],
    indexes: Indexes,
    held: list[Held],
    states: States,
    ask: Ask,
    signature: Callable[[int], Hashable] | None,
) -> Sifted:
    same, others = alike(numbers, held, signature)

    def seen_as(number: int) -> Sighting:
        return indexes.sighting(number, held, states)

    result = Sifted(dict.fromkeys(others), stats=ReadStats(files_not_covered=len(others)), sighting=seen_as)
    groups = np.maximum.reduce([one.coverage.groups for one in held])
    covered = np.logical_or.reduce([one.coverage.covered for one in held])
    asked: _Asked = {}
    for doc, mine in same:
        ways = ask(mine[0], ghost(doc, indexes.path(mine[0])))
        left = _left(ways, np.sort(np.array(mine)), held, asked)
        pages = _pages(ways, left, held, asked)
        for number, kept in left.items():
            found = pages.get(number, {})
            result.left[number] = None if kept is None else Kept(kept, int(groups[number]), seen_as(number), found)
        if excluded := of_unopened(covered, mine, left):
            result.excluded.append((mine[0], excluded))
            total = int(groups[[*excluded]].sum())
            result.stats.count(row_groups=total, files_unopened=len(excluded))
            result.stats.exclude([*excluded.values()][:1], total)
    result.left = dict(sorted(result.left.items()))
    result.row_groups = dict(enumerate(groups.tolist()))
    return result


def _left(ways: Ways, numbers: I64, held: list[Held], asked: _Asked) -> dict[int, tuple[int, ...] | None]:
    """Of files that share a schema: those in which rows can be, and in which row groups; None: in all."""
    whole, codes = _any_of(ways, numbers, held, asked)
    left: dict[int, tuple[int, ...] | None] = dict.fromkeys(numbers[whole].tolist())
    found: dict[int, list[int]] = {}
    for code in codes.tolist():
        found.setdefault(code >> GROUP_BITS, []).append(code & ((1 << GROUP_BITS) - 1))
    for number, kept in found.items():
        left.setdefault(number, tuple(kept))
    return left


def _any_of(ways: Ways, numbers: I64, held: list[Held], asked: _Asked) -> tuple[Bools, I64]:
    """Which files are left as a whole, and the codes of row groups of the others."""
    whole = np.zeros(len(numbers), dtype=np.bool_)
    codes = np.empty(0, dtype=np.int64)
    for conjunction in ways:
        every, some = _all_of(conjunction, numbers, held, asked)
        whole |= every
        codes = distinct(np.concatenate([codes, some]))
    return whole, codes


def _all_of(conjunction: Iterable[Equal], numbers: I64, held: list[Held], asked: _Asked) -> tuple[Bools, I64]:
    whole = np.ones(len(numbers), dtype=np.bool_)
    codes = np.empty(0, dtype=np.int64)
    for term in conjunction:
        for one in held:
            if (places := _places(term, one, asked)) is None:
                continue
            found = places.codes
            covered = one.coverage.covered[numbers]
            # Of files that this index covers only what it found is left, in what other terms have left.
            mine = within(codes >> GROUP_BITS, numbers[covered & ~whole])
            found = found[within(found >> GROUP_BITS, numbers[covered])]
            fresh = found[within(found >> GROUP_BITS, numbers[covered & whole])]
            both = codes[mine][within(codes[mine], found)]
            codes = distinct(np.concatenate([codes[~mine], both, fresh]))
            whole &= ~covered
    return whole, codes


def _pages(
    ways: Ways, left: dict[int, tuple[int, ...] | None], held: list[Held], asked: _Asked
) -> dict[int, dict[int, dict[str, tuple[int, ...]]]]:
    """Of the files that are left, by row group and column, the only pages on which values can be, where an index tells
    pages.
    """
    result: dict[int, dict[int, dict[str, tuple[int, ...]]]] = {}
    for one in held:
        files = [(number, kept) for number, kept in left.items() if kept and one.coverage.strides[number] > 1]
        # A row is there by one of the ways, and each of them says of which values the column then has one.
        told = [next((found for term in way if (found := _places(term, one, asked))), None) for way in ways]
        if not files or not all(told):
            continue
        slots = distinct(np.concatenate([found.slots for found in told if found]))
        named = [(number << GROUP_BITS) | group for number, kept in files for group in kept or ()]
        codes = np.array(named, dtype=np.int64)
        begin, end = (np.searchsorted(slots, edge << SLOT_BITS).tolist() for edge in (codes, codes + 1))
        for code, first, after in zip(codes.tolist(), begin, end, strict=True):
            mine = slots[first:after] & ((1 << SLOT_BITS) - 1)
            if 0 < len(mine) <= _MOST_PAGES and mine[0]:
                groups = result.setdefault(code >> GROUP_BITS, {})
                groups.setdefault(code & ((1 << GROUP_BITS) - 1), {})[one.column] = tuple((mine - 1).tolist())
    return result


def _places(term: Equal, held: Held, asked: _Asked) -> _Places | None:
    """Where values of the term can be; None where the index does not say."""
    if term.leaf.name != held.column or (probes := term.probe_set) is None:
        return None
    name = id(probes), held.place
    if name not in asked:
        hashes, _, undecided = probes.hashes()
        places = None
        if not undecided.any() and not held.too_many(len(hashes)):
            _, codes, slots = held.find(hashes)
            places = _Places(distinct(codes), distinct((codes << SLOT_BITS) | slots))
        # Held, so that no other values are given the same id.
        asked[name] = probes, places
    return asked[name][1]
