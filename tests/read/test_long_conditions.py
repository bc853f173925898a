"""Conditions of any length, in every form: the rows that they ask for, or an error of ours, by name."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support.surgery import written

import bloomseal as bs
import bloomseal.polars
from bloomseal.cli.main import main
from bloomseal.read.predicate.condition import AllOf, AnyOf, Compare, Like, Not
from bloomseal.read.predicate.values import Values
from bloomseal.read.predicate.where import parse_where

LONG = 800
N = pc.field("n")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    table = pa.table({"n": [1, 2, 3, 4_000, None], "t": ["a", "ab", "b", "a" * 50, None]})
    (tmp_path / "t.parquet").write_bytes(written(table))
    return tmp_path / "t.parquet"


def _where(text: str) -> Callable[[Path], pa.Table]:
    def read(path: Path) -> pa.Table:
        with bs.open_file(path) as file:
            return file.read(where=parse_where(text, file.leaves))

    return read


def _expression(expression: pc.Expression) -> Callable[[Path], pa.Table]:
    return lambda path: bs.read_table(path, where=expression)


def _polars(expression: pl.Expr) -> Callable[[Path], pa.Table]:
    return lambda path: bs.polars.scan(str(path)).filter(expression).collect().to_arrow()


def _nested(numbers: Iterator[int]) -> Any:
    return functools.reduce(lambda left, n: AnyOf((left, n)), [Compare("n", "==", Values((n,))) for n in numbers])


FORMS: dict[str, Callable[[Path], pa.Table]] = {
    "where": _where(" or ".join(f"n = {i}" for i in range(LONG))),
    "expression": _expression(functools.reduce(operator.or_, [i == N for i in range(LONG)])),
    "expression to the right": _expression(functools.reduce(lambda left, i: (i == N) | left, range(LONG), N == 0)),
    "tuples": lambda path: bs.read_table(path, where=[[("n", "==", i)] for i in range(LONG)]),
    "nested": lambda path: bs.read_table(path, where=_nested(iter(range(20 * LONG)))).slice(0, 3),
    "nested over a table": lambda path: (
        bs.open_table(path.parent).read(where=_nested(iter(range(20 * LONG)))).slice(0, 3)
    ),
    "polars": _polars(functools.reduce(operator.or_, [pl.col("n") == i for i in range(LONG // 4)])),
}


@pytest.mark.parametrize("form", FORMS)
def test_many_alternatives(path: Path, form: str) -> None:
    assert FORMS[form](path).column("n").to_pylist() == [1, 2, 3]


def test_many_conditions_that_all_hold(path: Path) -> None:
    either = " and ".join(f"n <> {i}" for i in range(3, LONG))
    assert _where(either)(path).column("n").to_pylist() == [1, 2, 4_000]
    expression = functools.reduce(operator.and_, [pc.field("n") != i for i in range(3, LONG)])
    assert bs.read_table(path, where=expression).column("n").to_pylist() == [1, 2, 4_000]
    tree = functools.reduce(lambda inner, _: Not(AllOf((inner,))), range(100), Compare("n", "==", Values((1,))))
    assert bs.read_table(path, where=tree).column("n").to_pylist() == [1]


def test_turns_without_an_end(path: Path) -> None:
    """Of `AllOf` in `AnyOf` in `AllOf`, far beyond what Python calls itself."""
    tree: Any = Compare("n", "==", Values((2,)))
    for i in range(4 * LONG):
        other = Compare("n", "==", Values((i,)))
        tree = AnyOf((tree, other)) if i % 2 else AllOf((tree, Not(other)))
    for read in (lambda: bs.read_table(path, where=tree), lambda: bs.open_table(path.parent).read(where=tree)):
        assert read().column("n").to_pylist() == [1, 3]


def test_turns_of_and_and_or(path: Path) -> None:
    tree = functools.reduce(lambda left, i: (left | (i == N)) if i % 2 else (left & (i != N)), range(100), N == 2)
    expected = [n for n in (1, 2, 3, 4_000) if functools.reduce(
        lambda left, i: (left or n == i) if i % 2 else (left and n != i), range(100), n == 2)]  # fmt: skip
    assert bs.read_table(path, where=tree).column("n").to_pylist() == expected


def test_an_expression_that_would_end_the_process(path: Path) -> None:
    """pyarrow evaluates by recursion, without a limit."""
    for expression in (
        functools.reduce(operator.or_, [i == N for i in range(20_000)]),
        functools.reduce(lambda left, i: left | (i == N) if i % 2 else left & (i != N), range(2_000), N == 2),
    ):
        with pytest.raises(bs.UsageError, match="nested too deeply"):
            bs.read_table(path, where=expression)


@pytest.mark.parametrize("negated", [False, True])
@pytest.mark.parametrize("pattern", ["_" * 100_000, "%a" * 100_000])
def test_a_pattern_of_too_many_parts(path: Path, pattern: str, negated: bool) -> None:
    like = Not(Like("t", pattern)) if negated else Like("t", pattern)
    with pytest.raises(bs.UsageError, match="too many parts") as raised:
        bs.read_table(path, where=like)
    assert raised.value.column == "t"


def test_a_pattern_of_many_wildcards(path: Path) -> None:
    assert bs.read_table(path, where=Like("t", "%" * 100_000)).num_rows == 4
    assert bs.read_table(path, where=Like("t", "a_" * 25)).column("n").to_pylist() == [4_000]


def test_the_command_line_names_its_error(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = " or ".join(f"n = {i}" for i in range(400))
    assert main(["read", str(path), "--where", long, "--format", "json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert main(["read", str(path), "--where", f"t like '{'_' * 100_000}'"]) == 2
    told = capsys.readouterr().err
    assert "too many parts" in told
    assert "unexpected" not in told
