"""CSV in and out: no value changes that nobody gave a type, and what does not read is named by its line."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from .conftest import Run, bloomseal

_BLOCK = "".join(f"{i}\n" for i in range(10_000, 300_000))
"""More lines than one block of the reader's holds."""


def written(run: Run, text: str, *options: str, name: str = "in.csv") -> pa.Table:
    Path(name).write_text(text, encoding="utf-8")
    done = run("write", name, "out.parquet", "--plaintext", *options)
    assert (done.code, done.err) == (0, "")
    return pq.read_table("out.parquet")


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["+19657594211"], pa.string()),
        (["07495", "12345"], pa.string()),
        (["12345", "07495"], pa.string()),
        (["00"], pa.string()),
        (["-07"], pa.string()),
        (["007.5"], pa.string()),
        (["12345678901234567890"], pa.string()),
        (["1.2345678901234567890"], pa.string()),
        (["12345678901234567.5"], pa.string()),
        (["12e4567"], pa.string()),
        (["1e-999"], pa.string()),
        (["0x10"], pa.string()),
        (["1_000"], pa.string()),
        (["nan", "inf"], pa.string()),
        (["NA", "NA"], pa.string()),
        (["1", "NA"], pa.string()),
        (["10:00"], pa.string()),
        (["2024-1-2"], pa.string()),
        (["2024-01-02 03:04:05.1234567891"], pa.string()),
        (["1", "-5", "9223372036854775807", ""], pa.int64()),
        (["1", "2.50", "-0", ".5", "1e3", "0.30000000000000004", "-1.7976931348623157e+308"], pa.float64()),
        (["true", "False", ""], pa.bool_()),
        (["2024-01-02", "1600-02-29"], pa.date32()),
        (["10:00:00", "23:59:59"], pa.time32("ms")),
        (["2024-01-02 03:04:05", "2024-01-02T03:04"], pa.timestamp("ms")),
        (["2024-01-02 03:04:05.123456789"], pa.timestamp("ns")),
        (["2024-01-02T03:04:05Z", "2024-01-02T03:04:05+02:00"], pa.timestamp("ms", "UTC")),
        (["9999-12-31 00:00:00.5"], pa.string()),
        (["", ""], pa.null()),
    ],
)
def test_types_that_change_no_value(run: Run, texts: list[str], kind: pa.DataType) -> None:
    found = written(run, "row,a\n" + "".join(f"r{i},{text}\n" for i, text in enumerate(texts)))
    assert found.schema.field("a").type == kind  # as Parquet stores it: it has no seconds
    if pa.types.is_string(kind):
        assert found.column("a").to_pylist() == texts
    elif pa.types.is_floating(kind):
        assert found.column("a").to_pylist() == [float(text) for text in texts]
    elif pa.types.is_integer(kind):
        assert found.column("a").to_pylist() == [int(text) if text else None for text in texts]


@pytest.mark.parametrize(("last", "kind"), [("07495", pa.string()), ("2.5", pa.float64()), ("300000", pa.int64())])
def test_the_whole_column_is_looked_at(run: Run, last: str, kind: pa.DataType) -> None:
    found = written(run, f"a\n{_BLOCK}{last}\n")
    assert found.schema.field("a").type == kind
    if pa.types.is_string(kind):
        assert found.column("a").to_pylist() == (_BLOCK + last).split("\n")


def test_a_given_type_wins(run: Run) -> None:
    found = written(
        run, "zip,x,y\n07495,NA,nan\n00001,1,2\n", "--type", "zip=int64", "--type", "x=int64", "--type", "y=float"
    )
    assert found.column("zip").to_pylist() == [7495, 1]
    assert found.column("x").to_pylist() == [None, 1]
    assert str(found.column("y").to_pylist()[0]) == "nan"


def test_standard_input_is_refused_where_it_turns_into_something_else(folder: Path) -> None:
    def write(text: str, *options: str) -> subprocess.CompletedProcess[str]:
        return bloomseal("write", "-", "out.parquet", "--input-format", "csv", "--plaintext", *options, input=text)

    assert write("zip,when,x\n07495,2024-01-02,5\n1,2024-01-03,\n").returncode == 0
    found = pq.read_table("out.parquet")
    assert found.schema.types == [pa.string(), pa.date32(), pa.int64()]
    assert found.to_pylist()[1] == {"zip": "1", "when": found.to_pylist()[1]["when"], "x": None}
    Path("out.parquet").unlink()
    late = write(f"a\n{_BLOCK}07495\n")
    assert late.returncode == 2
    assert "--type 'a=string'" in late.stderr
    assert "07495" not in late.stderr
    assert not Path("out.parquet").exists()
    assert write(f"a\n{_BLOCK}07495\n", "--type", "a=string").returncode == 0
    assert pq.read_table("out.parquet").column("a")[-1].as_py() == "07495"


@pytest.mark.parametrize("name", ["in.tsv", "in.csv.gz", "in.CSV.bz2", "in.tsv.gz", "in.txt"])
def test_names_tell_delimiter_and_compression(run: Run, name: str) -> None:
    text = 'a;b\n1;"x\n,y"\n'.replace(";", "\t" if "tsv" in name else ";" if name == "in.txt" else ",")
    packed: dict[str, Any] = {".gz": gzip.compress, ".bz2": bz2.compress}
    Path(name).write_bytes(packed.get(Path(name).suffix, bytes)(text.encode()))
    more = ["--input-format", "csv", "--delimiter", ";"] if name == "in.txt" else []
    done = run("write", name, "out.parquet", "--plaintext", *more)
    assert (done.code, done.err) == (0, "")
    assert pq.read_table("out.parquet").to_pylist() == [{"a": 1, "b": "x\n,y"}]


def test_another_delimiter_is_proposed(run: Run) -> None:
    Path("in.csv").write_text("id;name\n1;2,5\n")
    done = run("write", "in.csv", "out.parquet", "--plaintext")
    assert (done.code, "--delimiter ';'" in done.err) == (2, True)


@pytest.mark.parametrize("delimiter", ["", ";;", '"', "é", "\n"])
def test_what_is_no_delimiter(run: Run, delimiter: str) -> None:
    assert run("write", "people.csv", "out.parquet", "--plaintext", "--delimiter", delimiter).code == 2


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("a,b\n1,2\n\n3,4711,5\n", [], ["line 4 "]),
        ("\n\na,b\n1,2\n3,4711,5\n", [], ["line 5 "]),
        ('a,b\n"x\ny",2\n3\n', [], ["line 4 "]),
        ('a,b\n"1,4711\n', [], ["line 2 "]),
        ("a,a\n1,2\n", [], ["several columns have the same name", "column a"]),
        ("", [], ["the input is empty"]),
        ("a,b\n" + "1,2\n" * 400_000 + "3\n", [], ["line 400002 "]),
        ("a,b\n" + "1,2\n" * 9000 + "3,x4711\n" + "1,2\n", ["--type", "b=int64"], ["line 9002 ", "column b"]),
        ("a,b\n1,2024-01-01\n2,4711\n", ["--type", "b=date32"], ["line 3 ", "column b"]),
    ],
)
def test_a_bad_line_is_named(run: Run, folder: Path, text: str, options: list[str], said: list[str]) -> None:
    (folder / "bad.csv").write_text(text)
    done = run("write", "bad.csv", "out.parquet", "--plaintext", *options)
    assert done.code == 2
    for words in said:
        assert words in done.err
    assert "4711" not in done.err
    assert not (folder / "out.parquet").exists()


def test_a_line_that_is_no_text_is_named(run: Run, folder: Path) -> None:
    (folder / "bad.csv").write_bytes(b"a,b\n1,x\n2,\xff\n")
    done = run("write", "bad.csv", "out.parquet", "--plaintext")
    assert done.code == 2
    assert "line 3 " in done.err
    assert run("write", "bad.csv", "out.parquet", "--plaintext", "--type", "b=binary").code == 0


@pytest.mark.parametrize("target", ["out", "out/", "new/"])
def test_a_folder_is_refused_before_anything_is_read(run: Run, folder: Path, target: str) -> None:
    (folder / "out").mkdir()
    done = run("write", "no such input.csv", target, "--plaintext")
    assert done.code == 2
    assert "the output is a folder" in done.err


def test_standard_output_takes_the_file(sealed: Run, folder: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "bloomseal",
        "write",
        "people.csv",
        "-",
        "--footer-key",
        "footer",
        "--bloom-filter",
        "ssn",
    ]
    done = subprocess.run(command, capture_output=True, check=True)
    (folder / "piped.parquet").write_bytes(done.stdout)
    assert sealed("read", "piped.parquet", "-w", "ssn = '078-05-1120'", "-c", "name", "--format", "json").rows == [
        {"name": "Ada"}
    ]


def test_rows_go_out_as_they_came_in(sealed: Run, folder: Path) -> None:
    for name, opened in (("out.csv", open), ("out.tsv", open), ("out.csv.gz", gzip.open)):
        assert sealed("read", "people.parquet", "-c", "name,ssn", "-o", name).code == 0
        with opened(name, "rt", encoding="utf-8") as file:
            assert file.read().splitlines()[0] == '"name"{}"ssn"'.format("\t" if "tsv" in name else ",")
    assert sealed("read", "people.parquet", "-o", "out.parquet.gz").code == 2
    assert sealed("read", "people.parquet", "-o", "-").code == 2
    piped = sealed("read", "people.parquet", "-c", "name", "-o", "-", "--format", "csv")
    assert piped.out.splitlines()[:2] == ['"name"', '"Ada"']


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("packed", [False, True])
def test_an_empty_file_is_called_empty(run: Run, content: bytes, packed: bool) -> None:
    name = "in.csv.gz" if packed else "in.csv"
    Path(name).write_bytes(gzip.compress(content) if packed else content)
    done = run("write", name, "out.parquet", "--plaintext")
    assert done.code
    assert "the input is empty" in done.err
    assert "--type" not in done.err
    assert not Path("out.parquet").exists()


def test_so_is_an_empty_standard_input(run: Run) -> None:
    done = bloomseal("write", "-", "out.parquet", "--input-format", "csv", "--plaintext", input="")
    assert done.returncode
    assert "the input is empty" in done.stderr


@pytest.mark.parametrize(
    "text",
    [
        "zip,n\r07495,1\r",
        "\nzip,n\n07495,1\n",
        "\r\n\r\nzip,n\r\n07495,1\r\n",
        '"zip",n\n07495,1\n',
        "\ufeffzip,n\r07495,1",
    ],
)
def test_standard_input_begins_as_a_file_may(folder: Path, text: str) -> None:
    """Line breaks of old Macs, and empty lines in front."""
    done = bloomseal("write", "-", "out.parquet", "--input-format", "csv", "--plaintext", input=text)
    assert done.returncode == 0, done.stderr
    assert pq.read_table("out.parquet").to_pylist() == [{"zip": "07495", "n": 1}]


def test_a_long_name_moves_no_value_of_another_column(folder: Path) -> None:
    text = f"{'x' * 140_000},zip\n1,07495\n"
    done = bloomseal("write", "-", "out.parquet", "--input-format", "csv", "--plaintext", input=text)
    assert done.returncode == 0, done.stderr
    assert pq.read_table("out.parquet").column("zip").to_pylist() == ["07495"]


@pytest.mark.parametrize(
    ("kind", "begin", "bad"), [("csv", "a,b\n", "1\n"), ("ndjson", '{"a": 1}\n' * 200_000, '{"a": "x"}\n')]
)
def test_an_error_does_not_wait_for_the_end_of_a_pipe(folder: Path, kind: str, begin: str, bad: str) -> None:
    """A thread that reads ahead is told to go; the interpreter would end by a signal otherwise."""
    command = [sys.executable, "-m", "bloomseal", "write", "-", "out.parquet", "--input-format", kind, "--plaintext"]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, text=True, **pipes) as running:
        assert running.stdin is not None
        assert running.stderr is not None
        with contextlib.suppress(BrokenPipeError):
            running.stdin.write(begin + bad * (4_000_000 // len(bad)))
            running.stdin.flush()
        # The pipe stays open.
        assert running.wait(timeout=120) == 2
        assert "Traceback" not in (told := running.stderr.read())
        assert "does not read" in told


def test_arrow_batches_come_whole_through_a_pipe(folder: Path) -> None:
    rows = pa.table({"a": range(300_000)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    command = [sys.executable, "-m", "bloomseal", "write", "-", "out.parquet", "--input-format", "arrow", "--plaintext"]
    subprocess.run(command, input=sink.getvalue().to_pybytes(), check=True, stdout=subprocess.DEVNULL)
    assert pq.read_table("out.parquet").equals(rows)


@pytest.mark.parametrize("content", [b"zip,n", b"\n\nzip", b"\xef\xbb\xbfzip,n"])
def test_names_without_an_end_are_told(run: Run, content: bytes) -> None:
    Path("in.csv").write_bytes(content)
    done = run("write", "in.csv", "out.parquet", "--plaintext")
    piped = bloomseal("write", "-", "out.parquet", "--input-format", "csv", "--plaintext", input=content.decode())
    for code, told in ((done.code, done.err), (piped.returncode, piped.stderr)):
        assert code == 2
        assert "the input ends within its first line" in told
        assert "--type" not in told


@pytest.mark.parametrize(
    "text",
    [
        b"\n\r\nzip,empty\n07495,\n",
        b"zip,empty\r07495,\r",
        b'\xef\xbb\xbf"zip",empty\r\n"07495",""\r\n',
        b'"zip","two\nlines"\n07495,\n',
    ],
    ids=["empty lines first", "ends of lines of old", "a byte order mark", "a name of two lines"],
)
@pytest.mark.parametrize("at_a_time", [1, 1 << 20])
def test_standard_input_reads_as_a_file_does(
    run: Run, monkeypatch: pytest.MonkeyPatch, text: bytes, at_a_time: int
) -> None:
    Path("in.csv").write_bytes(text)
    assert run("write", "in.csv", "file.parquet", "--plaintext").code == 0
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BufferedReader(_Slow(text, at_a_time))))
    piped = run("write", "-", "piped.parquet", "--plaintext", "--input-format", "csv")
    assert (piped.code, piped.err) == (0, "")
    found = pq.read_table("piped.parquet")
    assert found.equals(pq.read_table("file.parquet"))
    assert found.column("zip").to_pylist() == ["07495"]


def test_types_are_guessed_from_no_fewer_rows_where_somebody_writes_slowly(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BufferedReader(_Slow(b"a,b\n1,\n07495,2\n", 9))))
    assert run("write", "-", "out.parquet", "--plaintext", "--input-format", "csv").code == 0
    assert pq.read_table("out.parquet").to_pylist() == [{"a": "1", "b": None}, {"a": "07495", "b": 2}]


class _Slow(io.RawIOBase):
    """A pipe into which somebody writes so many bytes at a time."""

    def __init__(self, data: bytes, at_a_time: int) -> None:
        self._data, self._at_a_time = io.BytesIO(data), at_a_time

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._data.readinto(memoryview(buffer)[: self._at_a_time])
