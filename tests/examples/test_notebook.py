"""The notebook runs, cell by cell, and finds what its words say."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

import bloomseal as bs

NOTEBOOK = Path(__file__).parents[2] / "examples" / "lookup.ipynb"


@pytest.fixture(scope="module")
def cells() -> list[dict[str, Any]]:
    return [one for one in json.loads(NOTEBOOK.read_text("utf-8"))["cells"] if one["cell_type"] == "code"]


def test_the_notebook_is_stored_without_outputs(cells: list[dict[str, Any]]) -> None:
    assert [one for one in cells if one["outputs"] or one["execution_count"] is not None] == []


def test_the_notebook_runs(cells: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    names: dict[str, Any] = {}
    shown = []
    for cell in cells:
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, str(NOTEBOOK), "exec"), names)  # noqa: S102 - it is ours
        if isinstance(last, ast.Expr):
            shown.append(eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names))  # noqa: S307
    files, found, stats, table, answers, named, refused = shown
    assert files == 4
    assert found == [{"email": "person4711@example.com", "country": "FR"}]
    assert (stats.row_groups, stats.pruned_by_filter, stats.decoded) == (4, 3, 1)
    assert "<td>column key</td>" in table._repr_html_()
    assert answers == [[bs.Verdict.MAYBE_PRESENT, bs.Verdict.ABSENT]]
    assert named[0] == 1_000
    assert named[1] < 40
    assert refused == "no keys were given"
