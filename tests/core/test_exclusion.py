"""Whatever is left out of a read is an `Exclusion`, which the core alone makes, and only where the proof holds."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.core.exclusion import (
    BelievedFilter,
    Exclusion,
    Reason,
    by_bounds,
    by_column,
    by_condition,
    by_filter,
    by_folder,
    by_index,
    by_page_index,
    by_statistics,
    of_unopened,
)
from bloomseal.core.parquet.expectation import Expectation
from bloomseal.core.parquet.statistics import PartBounds
from bloomseal.core.sbbf import ColumnType, PhysicalType, ProbeSet
from bloomseal.read.predicate.predicate import Predicate, Term

PACKAGE = Path(bs.__file__).parent
CORE = PACKAGE / "core"
SOURCES = {str(path.relative_to(PACKAGE)): path for path in sorted(PACKAGE.rglob("*.py"))}

PROOFS = {
    # What a proof is made of → the rooms outside of the core that look at it, and leave nothing out by it.
    "part_bounds": [],
    "bounds_of_pages": [],
    "outside": ["read/predicate/term.py", "table/advice.py"],  # compares for `Comparison`; counts for advice
    "believed_filter": ["read/parquet.py"],  # verdicts of probes
    "all_null": ["format/calendar.py", "format/verify.py", "spark/writing/frames.py"],  # refuse, verify, write
}
"""Imported by name."""
METHODS = {
    "none_in": ["read/orc/prune.py"],  # for `by_orc_filters`
    "is_same": [
        "index/check.py",  # counts
        "index/facts/sameness.py",
        "spark/source/planning.py",
        "table/query/narrow.py",
        "table/sealed.py",
    ],
    "could_hold": ["read/rows.py"],  # handed to `by_page_search`
}
"""Called or handed on."""
PRUNING = [
    ("read/prune.py", "ruled_out"),
    ("read/prune.py", "select_row_groups"),
    ("read/orc/prune.py", "ruled_out"),
    ("read/parquet.py", "rules_out"),
    ("read/parquet.py", "survivors"),
    ("table/query/conditions.py", "excluded"),
    ("table/query/conditions.py", "left"),
    ("spark/source/pushdown.py", "bind"),
    ("spark/source/planning.py", "by_folders"),
]


def nodes(kind: type[ast.AST], *, core: bool = False) -> Iterator[tuple[str, Any]]:
    for name, path in SOURCES.items():
        if core or not name.startswith("core/"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            yield from ((name, node) for node in ast.walk(tree) if isinstance(node, kind))


def test_one_module_makes_exclusions() -> None:
    """By whatever name: nobody else calls the type, takes it for another, or changes one."""
    called = {
        name
        for name, node in nodes(ast.Call, core=True)
        if ast.unparse(node.func).split(".")[-1] in ("Exclusion", "replace")
        and any("Exclusion" in ast.unparse(one) for one in (node.func, *node.args))
    }
    renamed = {name for name, node in nodes(ast.alias, core=True) if node.name == "Exclusion" and node.asname}
    derived = {
        name
        for name, node in nodes(ast.ClassDef, core=True)
        if any(ast.unparse(one) == "Exclusion" for one in node.bases)
    }
    assert (called, renamed, derived) == ({"core/exclusion.py"}, set(), set())


@pytest.mark.parametrize("proof", PROOFS)
def test_proofs_are_looked_at_by_the_core(proof: str) -> None:
    found = {
        name
        for name, node in nodes(ast.ImportFrom)
        if (node.module or "").split(".")[-1] in ("statistics", "page_bounds", "belief")
        and any(alias.name == proof for alias in node.names)
    }
    assert sorted(found) == sorted(PROOFS[proof])


@pytest.mark.parametrize("method", METHODS)
def test_proofs_are_asked_by_the_core(method: str) -> None:
    found = {name for name, node in nodes(ast.Attribute) if node.attr == method}
    assert sorted(found) == sorted(METHODS[method])


@pytest.mark.parametrize(("file", "function"), PRUNING)
def test_what_prunes_gives_exclusions(file: str, function: str) -> None:
    tree = ast.parse(SOURCES[file].read_text(encoding="utf-8"))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == function]
    assert found
    for node in found:
        assert node.returns is not None
        told = ast.unparse(node.returns)
        assert "Exclusion" in told or "RowGroupSelection" in told


def test_what_is_left_out_is_counted_by_its_exclusion() -> None:
    counters = ("pruned_by_statistics", "pruned_by_filter", "pruned_by_index")
    counted = [name for name, node in nodes(ast.keyword) if node.arg in counters]
    counted += [name for name, node in nodes(ast.AugAssign) if ast.unparse(node.target).endswith(counters)]
    assert counted == []


# Each looks at its proof ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> bs.SealedFile:
    path = tmp_path_factory.mktemp("exclusion") / "t.parquet"
    table = pa.table({"a": pa.array(range(0, 20, 2), pa.int64()), "b": pa.array([*range(9), None], pa.int64())})
    bs.write_table(table, path, bloom_filters={"a": True})
    return bs.open_file(path)


def term(file: bs.SealedFile, *filters: Any) -> Term:
    (((found,),),) = (Predicate([filters], file.leaves).any_of,)
    return found


def test_by_statistics(file: bs.SealedFile) -> None:
    chunk = file.walk.chunk(0, 0)
    assert by_statistics(file.walk, chunk, term(file, "a", ">", 18)) == Exclusion(Reason.STATISTICS, "a")
    assert by_statistics(file.walk, chunk, term(file, "a", ">", 17)) is None
    assert by_bounds(PartBounds(), term(file, "a", ">", 18)) is None
    assert by_bounds(PartBounds(only_nulls=True), term(file, "a", "!=", 18)) is not None


def test_by_filter(file: bs.SealedFile) -> None:
    sets = [ProbeSet.of([value], ColumnType(PhysicalType.INT64)) for value in (4, 5)]
    a, b = (BelievedFilter(file.walk, file.walk.chunk(0, column)) for column in (0, 1))
    assert [by_filter(a, one) for one in sets] == [None, Exclusion(Reason.FILTER, "a")]
    assert [by_filter(b, one) for one in sets] == [None, None]
    assert (a.exists, b.exists) == (True, False)


def test_by_page_index(file: bs.SealedFile) -> None:
    chunk, asked = file.walk.chunk(0, 0), term(file, "a", "<", 0)
    assert by_page_index(file.walk, chunk, asked, lambda: [10]) == [Exclusion(Reason.PAGE_INDEX, "a")]
    assert by_page_index(file.walk, chunk, asked, lambda: None) == []
    assert by_page_index(file.walk, chunk, asked, lambda: [5, 5]) == []
    assert by_page_index(file.walk, chunk, asked, lambda: [0]) == [], "a page without rows has no bounds"


def test_by_folder() -> None:
    assert by_folder(Expectation(), ["country"]) == Exclusion(Reason.FOLDER, "country")
    assert by_folder(Expectation(), []) == Exclusion(Reason.CONDITION)
    for sealed in (Expectation(encrypted_columns=frozenset({"ssn"})), Expectation(complete=True)):
        with pytest.raises(bs.PolicyError):
            by_folder(sealed, ["ssn"])
    assert by_folder(Expectation(complete=True, partition_by=frozenset({"day"})), ["day"]).column == "day"


def test_by_column(file: bs.SealedFile) -> None:
    assert by_column(file.leaves, ["c"]) == Exclusion(Reason.COLUMN, "c")
    assert by_column(file.leaves, ["a", "c"]) is None
    assert by_column(file.leaves, []) is None


def test_by_index(file: bs.SealedFile) -> None:
    class Entry:
        def __init__(self, same: bool) -> None:
            self.same = same

        def is_same(self, one: Any) -> bool:
            assert one is file
            return self.same

    assert by_index(Entry(True), file, 4, (1, 3)) == {0: Exclusion(Reason.INDEX), 2: Exclusion(Reason.INDEX)}
    assert by_index(Entry(True), file, 2, (0, 1)) == {}
    assert by_index(Entry(False), file, 4, ()) is None
    covered = np.array([True, False, True, True])
    assert of_unopened(covered, [0, 1, 2], {2: None}) == {0: Exclusion(Reason.INDEX)}


def test_by_condition() -> None:
    early, late = Exclusion(Reason.STATISTICS, "a"), Exclusion(Reason.FILTER, "b")
    assert by_condition([late, early]) == by_condition([early, late]) == late
    assert by_condition([late, None]) is None
    assert by_condition([]) == Exclusion(Reason.CONDITION)
