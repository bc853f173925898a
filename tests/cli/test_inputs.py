"""Inputs of every kind: no row and no value is lost on the way, and the line that does not read is named."""

from __future__ import annotations

import bz2
import contextlib
import datetime as dt
import gzip
import io
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bloomseal as bs
from bloomseal.cli.arguments.inputs import InputOptions, open_input
from bloomseal.cli.arguments.json_input import JsonReader
from bloomseal.cli.arguments.text_input import TextInput
from bloomseal.core.errors import FormatError

from .conftest import Run

UTC = dt.UTC


@pytest.fixture(params=["file", "standard input"])
def written(request: pytest.FixtureRequest, run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes text by a name, or through standard input, and gives the outcome."""

    def write(data: str | bytes, kind: str, *options: str) -> Any:
        raw = data if isinstance(data, bytes) else data.encode()
        if request.param == "file":
            (folder / f"in.{kind}").write_bytes(raw)
            return run("write", f"in.{kind}", "out.parquet", "--plaintext", *options)
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(raw))))
        return run("write", "-", "out.parquet", "--plaintext", "--input-format", kind, *options)

    return write


# CSV


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a\n1\n\n2\n", [1, None, 2]),
        ("a\n1\n\n\n", [1, None, None]),
        ("a\r\n1\r\n\r\n2\r\n", [1, None, 2]),
        ("a\rx\r\ry", ["x", "", "y"]),
        ("\n\na\n1\n\n2", [1, None, 2]),
        ('\ufeff"a\nb"\n1\n\n2\n', [1, None, 2]),
        ("a\n\n", [None]),
        ("a\n", []),
    ],
)
def test_an_empty_line_of_one_column_is_a_row(written: Any, text: str, values: list[Any]) -> None:
    """As for DuckDB: it is an empty value. In several columns no row is an empty line."""
    done = written(text, "csv")
    assert (done.code, done.err) == (0, "")
    assert pq.read_table("out.parquet").columns[0].to_pylist() == values


def test_a_column_of_nulls_comes_back_from_csv(run: Run, folder: Path) -> None:
    bs.write_table(pa.table({"n": pa.array([1, None, 2])}), folder / "first.parquet")
    assert run("read", "first.parquet", "--output", "n.csv").code == 0
    assert run("write", "n.csv", "second.parquet", "--plaintext").code == 0
    assert bs.read_table(folder / "second.parquet").column("n").to_pylist() == [1, None, 2]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('id,t\n1,x\n2,"a\n3,b\n', "line 3 "),
        ('id,t\n1,"a', "line 2 "),
        ('id,t\n1,"', "line 2 "),
        ('id,t\n1,"a""', "line 2 "),
        ('id,t\r\n1,"a\r\n2,b\r\n', "line 2 "),
        ('t\n"a\nb\n', "line 2 "),
        ('id,t\n1,"a\n' + "2,b\n" * 20_000, "line 2 "),
    ],
)
def test_an_open_quote_swallows_no_lines(written: Any, folder: Path, text: str, line: str) -> None:
    done = written(text, "csv")
    assert done.code == 2
    assert "quote" in done.err
    assert "is not closed" in done.err
    assert line in done.err
    assert not (folder / "out.parquet").exists()


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ('id,t\n1,"a\n"\n', "a\n"),
        ('id,t\n1,"a"', "a"),
        ('id,t\n1,""\n', None),
        ('id,t\n1,"""a"""', '"a"'),
        ('id,t\n1,"a\n"""\n\n', 'a\n"'),
        ('id,t\n1,a"b', 'a"b'),
    ],
)
def test_a_closed_quote_is_none(written: Any, text: str, last: str) -> None:
    done = written(text, "csv")
    assert (done.code, done.err) == (0, "")
    assert pq.read_table("out.parquet").column("t").to_pylist() == [last]


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress])
def test_open_quotes_in_packed_files(run: Run, folder: Path, pack: Any) -> None:
    suffix = "gz" if pack is gzip.compress else "bz2"
    (folder / f"in.csv.{suffix}").write_bytes(pack(b'id,t\n1,"a\n2,b\n'))
    done = run("write", f"in.csv.{suffix}", "out.parquet", "--plaintext")
    assert done.code == 2
    assert "line 2 " in done.err


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("in.csv", "a,b\n1,é\n".encode("latin-1"), ["line 2 ", "not UTF-8", "iconv"]),
        ("in.csv", "a,b\n1,é\n".encode("utf-16"), ["UTF-16", "iconv"]),
        ("in.csv", b"a,b\n1,2\n3," + b"x" * 3_000_000 + b"\n", ["line 3 ", "MiB"]),
        ("in.csv.gz", b"a,b\n1,2\n", ["does not inflate", "without .gz"]),
        ("in.csv.gz", gzip.compress(b"a,b\n" + b"1,2\n" * 10_000, mtime=0)[:-20], ["does not inflate", "cut off"]),
        ("in.ndjson.gz", b'{"a":1}\n', ["does not inflate"]),
        ("in.ndjson", b'{"a":1}\n{"a":}\n', ["line 2 ", "no JSON object"]),
        ("in.json", b'[{"a":1}]\n', ["line 1 ", "no JSON object", "one object in each line"]),
        ("in.json", b'{"a": 1}\n{\n  "a":\n}\n', ["line 2 ", "one object in each line"]),
        ("in.ndjson", b'{"a":1}\n{"a":"x"}\n', ["line 2 ", "column a"]),
        ("in.ndjson", b'{"a":1}\n{"a":1,"a":2}\n', ["line 2 ", "stands in it twice"]),
        ("in.ndjson", b'{"a":1}\n' * 300_000 + b'{"a":1.5}\n', ["line 300001 ", "column a", "--type"]),
        ("in.ndjson", b'{"a":1}\n' * 300_000 + b'{"a":1,"b":2}\n', ["line 300001 ", "no such column"]),
        ("in.ndjson", b"", ["the input is empty"]),
    ],
)
def test_what_does_not_read_is_named(run: Run, folder: Path, name: str, data: bytes, said: list[str]) -> None:
    (folder / name).write_bytes(data)
    done = run("write", name, "out.parquet", "--plaintext")
    assert done.code == 2
    for words in said:
        assert words in done.err
    assert not (folder / "out.parquet").exists()


def test_a_file_that_is_changed_meanwhile_is_held_to_what_was_seen(folder: Path) -> None:
    """Its values would else be those of a type that nobody gave: 7495."""
    for later in ("zip\n07495\n", "other\n12345\n"):
        Path("in.csv").write_text("zip\n12345\n")
        with open_input("in.csv", InputOptions(types={})) as found:
            assert found.schema.types == [pa.int64()]
            Path("in.csv").write_text(later)
            with pytest.raises(FormatError):
                list(found.batches)


# Line-delimited JSON


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (["2024-01-01", None], pa.date32(), [dt.date(2024, 1, 1), None]),
        (["2024-01-01 10:00:00"], pa.timestamp("ms"), [dt.datetime(2024, 1, 1, 10)]),
        (["2024-01-01T10:00:00+01:00"], pa.timestamp("ms", "UTC"), [dt.datetime(2024, 1, 1, 9, tzinfo=UTC)]),
        (["2024-01-01T10:00:00Z", "2024-01-01T10:00:00"], pa.string(), None),
        (["2024-01-01T10:00:00.5"], pa.timestamp("ns"), [pd.Timestamp("2024-01-01T10:00:00.5")]),
        (["2024", "2025"], pa.string(), None),
        (["07495", "+49"], pa.string(), None),
        (["12", "13"], pa.string(), None),
        ([1, 2.5], pa.float64(), None),
        ([1, 2], pa.int64(), None),
    ],
)
def test_json_keeps_its_values(written: Any, values: list[Any], kind: pa.DataType, expected: Any) -> None:
    done = written("".join(json.dumps({"a": value}) + "\n" for value in values), "ndjson")
    assert (done.code, done.err) == (0, "")
    found = pq.read_table("out.parquet").column("a")
    assert found.type == kind
    assert found.to_pylist() == (expected or values)


def test_texts_inside_of_structs_and_lists_stay_texts(written: Any) -> None:
    row = {"n": {"when": "2024-01-01T10:00:00+01:00", "all": ["2024-01-01"]}}
    assert written(json.dumps(row) + "\n", "ndjson").code == 0
    assert pq.read_table("out.parquet").to_pylist() == [row]


@pytest.mark.parametrize(
    "rows",
    [
        ['{"a":123456789012345678901}'],
        ['{"a":18446744073709551615}'],
        ['{"a":9007199254740993}', '{"a":0.5}'],
        ['{"a":[0.5,9007199254740993]}'],
        ['{"a":{"b":[{"c":-123456789012345678901}]}}'],
    ],
)
def test_numbers_that_no_double_holds_are_refused(written: Any, folder: Path, rows: list[str]) -> None:
    """An account's number was rounded without a word."""
    done = written("\n".join(rows) + "\n", "ndjson")
    assert done.code == 2
    assert "column a" in done.err
    assert "--type" in done.err
    assert not (folder / "out.parquet").exists()


def test_such_numbers_are_refused_in_several_files_too(run: Run, folder: Path) -> None:
    (folder / "a.ndjson").write_text('{"a":0.5}\n')
    (folder / "b.ndjson").write_text('{"a":0.25}\n{"a":9007199254740993}\n')
    done = run("write", "a.ndjson", "b.ndjson", "out.parquet", "--plaintext")
    assert done.code == 2
    assert "b.ndjson" in done.err
    assert "column a" in done.err


def test_types_of_json_that_are_said(written: Any) -> None:
    text = '{"n":123456789012345678901,"d":"2024-01-01","x":9007199254740993}\n'
    given = ["n=decimal(38,0)", "d=date32", "x=double"]
    assert written(text, "ndjson", *(word for one in given for word in ("--type", one))).code == 0
    found = pq.read_table("out.parquet").to_pylist()[0]
    assert (str(found["n"]), found["d"], found["x"]) == ("123456789012345678901", dt.date(2024, 1, 1), 2.0**53)
    assert written(text, "ndjson", "--type", "nobody=string").code == 2


@pytest.mark.parametrize("kind", ["csv", "ndjson", "parquet"])
def test_a_pipe_by_its_name_is_answered_with_standard_input(run: Run, folder: Path, kind: str) -> None:
    """As a shell's ``<(program)`` is one: read a second time, it would have no rows."""
    reading, writing = os.pipe()
    os.write(writing, b"a\n1\n")
    os.close(writing)
    try:
        done = run("write", f"/dev/fd/{reading}", "out.parquet", "--plaintext", "--input-format", kind)
    finally:
        os.close(reading)
    assert done.code == 2
    assert "- for standard input" in done.err


@pytest.mark.parametrize("late", [False, True])
def test_an_empty_text_in_json_is_no_null(tmp_path: Path, late: bool) -> None:
    path = tmp_path / "in.ndjson"
    days = ['{"day":"2024-01-01"}\n'] * (60_000 if late else 1)
    path.write_text("".join([*days, '{"day":""}\n']))
    with contextlib.ExitStack() as stack:
        if late:
            with pytest.raises(bs.FormatError, match="later values are something else"):
                list(JsonReader(TextInput(str(path), "ndjson", stack), {}, {}).batches)
            return
        (batch,) = JsonReader(TextInput(str(path), "ndjson", stack), {}, {}).batches
    assert batch.to_pylist() == [{"day": "2024-01-01"}, {"day": ""}]


def test_a_text_in_json_that_is_not_of_its_type(tmp_path: Path) -> None:
    path = tmp_path / "in.ndjson"
    path.write_text('{"day":"a secret"}\n')
    with contextlib.ExitStack() as stack, pytest.raises(bs.FormatError, match="column day") as failed:
        list(JsonReader(TextInput(str(path), "ndjson", stack), {"day": pa.date32()}, {}).batches)
    assert "secret" not in str(failed.value)
