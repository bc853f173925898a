"""Command lines that were meant otherwise: an error by exit code 2 that speaks the command line's language, and nothing
is lost.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pyarrow as pa
import pytest

import bloomseal as bs

from .conftest import Run

_ONLY_PYTHON = {"duckdb.py", "polars.py", "notebook.py", "specs.py", "spelling.py", "write", "sbbf", "spark", "storage"}
_ONLY_PYTHON |= {"keytools", "orc", "predicate", "table/dataset.py", "table/folder.py", "table/query/workers.py"}
"""Rooms whose hints about arguments the command line never shows: it gives these arguments itself, and rightly."""
_ARGUMENT = re.compile(r"\b[a-z][a-z_0-9]+=(?![\w.%>'])")


@pytest.fixture
def places(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    rows = pa.table({"id": [1, 2], "f": pa.array([1.0, float("inf")], pa.float32()), "country": ["DE", "FR"]})
    bs.write_table(rows, folder / "p.parquet")
    bs.write_dataset(rows, folder / "lake", partition_by=["country"])
    (folder / "a.csv").write_text("id\n1\n")
    (folder / "b.csv").write_text("id\n2\n")
    (folder / "empty").mkdir()
    monkeypatch.setenv("BLOOMSEAL_KEYRING", "keys.json")
    assert run("keyring", "create", "footer").code == 0
    return run


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["write", "a.csv", "b.csv", "--plaintext"], "OUTPUT comes last"),
        (["write", "a.csv", "new.ndjson.gz", "--plaintext"], "OUTPUT comes last"),
        (["write", "nobody.csv", "x.parquet", "--plaintext"], "can't be read: No such file or directory (file"),
        (["read", "-"], "standard input"),
        (["probe", "-", "id", "1"], "standard input"),
        (["verify", "-"], "standard input"),
        (["attach", "-", "--bloom-filter", "id"], "standard input"),
        (["read", "p.parquet", "--allow-plaintext", "--columns", ""], "--columns without a name"),
        (["read", "p.parquet", "--allow-plaintext", "--version", "3"], "versions are for Delta"),
        (["probe", "lake", "country", "DE", "--allow-plaintext"], "bloomseal read --where"),
        (["unseal", "p.parquet"], "--output FOLDER, or --in-place"),
        (["read", "p.parquet", "--allow-plaintext", "--where", "f = 1e39"], "a number such as"),
        (["read", "p.parquet", "--allow-plaintext", "--where", "f < 1e400"], "a number such as"),
        (["read", "p.parquet", "--allow-plaintext", "--columns", "nobody", "--debug"], "Traceback"),
        (["read", "--nobody", "--debug"], "Error: No such option"),
    ],
)
def test_it_is_refused_and_says_what_to_try(places: Run, folder: Path, arguments: list[str], said: str) -> None:
    done = places(*arguments)
    assert done.code == 2
    assert said in done.err
    assert (folder / "b.csv").read_text() == "id\n2\n"


def test_infinity_is_asked_for_by_its_name(places: Run) -> None:
    assert places(
        "read", "p.parquet", "--allow-plaintext", "--where", "f = 'inf'", "-c", "id", "--format", "json"
    ).rows == [{"id": 2}]
    assert places(
        "read", "p.parquet", "--allow-plaintext", "--where", "f < 3.4e38", "-c", "id", "--format", "json"
    ).rows == [{"id": 1}]


@pytest.mark.parametrize("text", ["1\r\n2\r\n", "\ufeff1\n2\n", "1\r2\r", "\ufeff1\r2", "1\n\n2"])
def test_values_from_any_machines_file(places: Run, folder: Path, text: str) -> None:
    (folder / "wanted.txt").write_bytes(text.encode())
    found = places("read", "p.parquet", "--allow-plaintext", "--where-in", "id=wanted.txt", "--format", "json").rows
    assert [row["id"] for row in found] == [1, 2]


def test_a_list_that_a_shell_made_of_a_pattern_is_told_of(places: Run) -> None:
    files = sorted(map(str, Path("lake").rglob("*.parquet")))
    done = places("read", *files, "--allow-plaintext", "--format", "csv")
    assert (done.code, done.out) == (0, '"id","f"\n1,1\n2,inf\n')
    assert "country in the names of folders above" in done.err
    assert places("read", "lake/*/*.parquet", "--allow-plaintext", "--format", "csv").out.startswith(
        '"id","f","country"\n'
    )


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_a_rotation_of_nothing_says_so(places: Run, dry: list[str]) -> None:
    done = places("rewrap", "empty", *dry)
    assert (done.code, "no data file was found" in done.err) == (0, True)


def test_hints_that_name_arguments_of_python_have_words_for_the_command_line() -> None:
    """`Hint` has them; a hint by itself would send who stands at a shell to an option that is not there."""
    source, wrong = Path(bs.__file__).parent, []
    for path in sorted(source.rglob("*.py")):
        place = path.relative_to(source)
        if {*place.parts, str(place)} & (_ONLY_PYTHON | {"cli"}):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "hint":
                texts = [one.value for one in ast.walk(node.value) if isinstance(one, ast.Constant)]
                wrong += [f"{place}: {text}" for text in texts if isinstance(text, str) and _ARGUMENT.search(text)]
    assert wrong == []
