"""Whole modules in each other's place: within a file, between files under the same keys, from an older version."""

from __future__ import annotations

from itertools import combinations

import pytest

from bloomseal.core.encryption import ModuleType
from support.small_files import KINDS, Module, SmallFile, judge, small_file

_FILTER = (ModuleType.BLOOM_FILTER_HEADER, ModuleType.BLOOM_FILTER_BITSET)


def _exchanged(data: bytes, first: Module, second: Module) -> bytes:
    """The two modules in each other's place; what stands between them moves where their lengths differ."""
    first, second = sorted((first, second), key=lambda module: module.start)
    return b"".join(
        (
            data[: first.start],
            data[second.start : second.end],
            data[first.end : second.start],
            data[first.start : first.end],
            data[second.end :],
        )
    )


def _judge_exchange(small: SmallFile, first: Module, second: Module) -> None:
    what = f"{small.kind}: {first} exchanged with {second}"
    outcome = judge(small, _exchanged(small.data, first, second), what, pages_too=not small.counter_pages)
    if first in small.authenticated() and second in small.authenticated():
        assert outcome != "unnoticed", what


def _cases(small: SmallFile, how: str) -> list[tuple[Module, Module]]:
    """Pairs to exchange, those of equal length first among equals: no offset gives them away."""
    pairs = []
    for first, second in combinations(small.modules, 2):
        here = (first.row_group, first.column), (second.row_group, second.column)
        match how:
            case "filter header and bitset":
                wanted = here[0] == here[1] and (first.kind, second.kind) == _FILTER
            case "row groups":
                same = (first.kind, first.column, first.page) == (second.kind, second.column, second.page)
                wanted = same and first.row_group != second.row_group
            case "columns":
                same = (first.kind, first.row_group, first.page) == (second.kind, second.row_group, second.page)
                wanted = same and first.column != second.column
            case _:
                same_length = first.end - first.start == second.end - second.start
                wanted = here[0] == here[1] and first.kind is not second.kind and same_length
        if wanted:
            pairs.append((first, second))
    return pairs


@pytest.mark.parametrize("how", ["filter header and bitset", "row groups", "columns", "kinds of one chunk"])
@pytest.mark.parametrize("kind", KINDS)
def test_modules_exchanged_between(kind: str, how: str) -> None:
    small = small_file(kind)
    pairs = _cases(small, how)
    if how != "kinds of one chunk":
        assert pairs
    for first, second in pairs:
        _judge_exchange(small, first, second)


@pytest.mark.parametrize("kind", KINDS)
def test_both_filter_modules_of_another_row_group_or_column(kind: str) -> None:
    """Header and bitset together, a filter that is whole and authentic elsewhere."""
    small = small_file(kind)
    filters: dict[tuple[int, str], tuple[int, int]] = {}
    for module in small.modules:
        if module.kind in _FILTER:
            start, end = filters.get((module.row_group, module.column), (module.start, module.end))
            filters[module.row_group, module.column] = min(start, module.start), max(end, module.end)
    for (here, (start, end)), (there, (other, stop)) in combinations(filters.items(), 2):
        mutated = bytearray(small.data)
        mutated[start:end], mutated[other:stop] = small.data[other:stop], small.data[start:end]
        what = f"{kind}: the filters of {here} and {there} exchanged"
        outcome = judge(small, bytes(mutated), what, pages_too=not small.counter_pages)
        assert outcome != "unnoticed", what


@pytest.mark.parametrize("kind", KINDS)
def test_a_module_of_another_file_under_the_same_keys(kind: str) -> None:
    """The same place in a file of the same shape and keys, so that only aad_file_unique tells them apart."""
    small, other = small_file(kind), small_file(kind, version=1)
    donors = {(m.kind, m.row_group, m.column, m.page): m for m in other.modules}
    tried = 0
    for module in small.authenticated():
        donor = donors[module.kind, module.row_group, module.column, module.page]
        if donor.end - donor.start != module.end - module.start:
            continue
        mutated = bytearray(small.data)
        mutated[module.start : module.end] = other.data[donor.start : donor.end]
        what = f"{kind}: {module} taken from another file"
        assert judge(small, bytes(mutated), what, pages_too=not small.counter_pages) != "unnoticed", what
        tried += 1
    assert tried > len(small.authenticated()) // 2


@pytest.mark.parametrize("kind", KINDS)
def test_the_footer_of_another_file_under_the_same_keys(kind: str) -> None:
    """It authenticates, being whole; what it leads to does not."""
    small, other = small_file(kind), small_file(kind, version=1)
    footers = [len(f.data) - 8 - int.from_bytes(f.data[-8:-4], "little") for f in (small, other)]
    mutated = small.data[: footers[0]] + other.data[footers[1] :]
    what = f"{kind}: the footer taken from another file"
    # A footer says which file this is: its values are asked for, and its body is missing.
    assert judge(other, mutated, what, pages_too=not small.counter_pages) == "noticed", what


@pytest.mark.parametrize("kind", KINDS)
def test_row_groups_bodies_exchanged_whole(kind: str) -> None:
    """All pages, filters and indexes of two row groups in each other's place."""
    small = small_file(kind)
    mutated = bytearray(small.data)
    donors = {(m.kind, m.row_group, m.column, m.page): m for m in small.modules}
    for module in small.modules:
        donor = donors.get((module.kind, 1 - module.row_group, module.column, module.page))
        if module.row_group < 2 and donor and donor.end - donor.start == module.end - module.start:
            mutated[module.start : module.end] = small.data[donor.start : donor.end]
    what = f"{kind}: row groups 0 and 1 exchanged"
    assert judge(small, bytes(mutated), what, pages_too=not small.counter_pages) != "unnoticed", what
