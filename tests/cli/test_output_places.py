"""An output that would take an input's place, or become its data, is refused, and everything stays as it was."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from .conftest import Run

_KEYS = ("--keyring", "keys.json")


@pytest.fixture
def table(folder: Path, run: Run) -> Path:
    """A folder of one sealed file."""
    run("keyring", "create", *_KEYS, "footer")
    (folder / "lake").mkdir()
    assert run("write", "people.csv", "lake/a.parquet", *_KEYS, "--footer-key", "footer").code == 0
    return folder / "lake"


def _link(source: Path, name: str) -> str:
    Path(name).symlink_to(source)
    return name


def _hard(source: Path, name: str) -> str:
    os.link(source, name)
    return name


@pytest.mark.parametrize("named", [lambda path, _: str(path), lambda path, _: f"lake/../{path}", _link, _hard])
@pytest.mark.parametrize("read", ["lake/a.parquet", "lake", "la*/*.parquet"])
def test_rows_read_never_replace_the_sealed_file(
    table: Path, run: Run, named: Callable[[Path, str], str], read: str
) -> None:
    """Some of its rows, in plaintext, would be all that is left."""
    path = Path("lake/a.parquet")
    before = path.read_bytes()
    outcome = run("read", read, "--where", "name = 'Ada'", "--output", named(path, "other.parquet"), *_KEYS)
    if read == "lake" and named is _hard:  # not a name of the folder, and the folder's own name keeps the old file
        assert outcome.code == 0
    else:
        assert outcome.code == 2
        assert "would" in outcome.err
    assert path.read_bytes() == before
    assert [one.name for one in Path("lake").iterdir()] == ["a.parquet"]


def test_rows_read_are_not_put_among_the_data(table: Path, run: Run) -> None:
    outcome = run("read", "lake", "--output", "lake/new/b.parquet", *_KEYS)
    assert outcome.code == 2
    assert "would be data of lake" in outcome.err
    assert run("read", "lake", "--output", "lake/rows.csv", *_KEYS).code == 0  # no data by its name


def test_rows_read_never_replace_a_list_of_values(table: Path, run: Run) -> None:
    names = Path("names.csv")
    names.write_text("Ada\n")
    outcome = run("read", "lake", "--where-in", "name=names.csv", "--output", "names.csv", *_KEYS)
    assert (outcome.code, names.read_text()) == (2, "Ada\n")


@pytest.mark.parametrize("name", ["people.csv", "plain.parquet"])
def test_write_never_replaces_its_input(table: Path, run: Run, folder: Path, name: str) -> None:
    assert run("write", "people.csv", "plain.parquet", "--plaintext").code == 0
    before = (folder / name).read_bytes()
    outcome = run("write", name, f"./{name}", *_KEYS, "--footer-key", "footer")
    assert outcome.code == 2
    assert "the output is an input" in outcome.err
    assert "bloomseal seal" in outcome.err
    assert (folder / name).read_bytes() == before
    # One of several, or a name in the folder that is read.
    shutil.copytree(table, folder / "open")
    shutil.copy("plain.parquet", "open/a.parquet")
    assert run("write", "open", "open/all.parquet", *_KEYS, "--footer-key", "footer").code == 2
    assert run("write", "plain.parquet", "open/a.parquet", "plain.parquet", "--plaintext").code == 2
    assert run("write", "open", "all.parquet", *_KEYS, "--footer-key", "footer").code == 0
    assert pq.read_table("open").num_rows == 4


def test_arrow_of_several_dictionaries(folder: Path, run: Run) -> None:
    """A file of Arrow's has one dictionary for each column, and each row group brings its own."""
    columns = [pa.array(values).dictionary_encode() for values in (["a", "b"], ["c", None, "a"])]
    pq.write_table(pa.table({"d": pa.chunked_array(columns), "i": range(5)}), "a.parquet", row_group_size=2)
    assert pa.types.is_dictionary(pq.read_table("a.parquet").schema.field("d").type)
    outcome = run("read", "a.parquet", "--output", "a.arrow")
    assert outcome.code == 0, outcome.err
    found = pa.ipc.open_file("a.arrow").read_all()
    assert found.schema.field("d").type == pa.string()
    assert found["d"].to_pylist() == ["a", "b", "c", None, "a"]
