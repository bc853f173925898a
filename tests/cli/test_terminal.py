"""What reaches a terminal, what a command loads, and that the examples in the help run."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from bloomseal.cli.arguments.inputs import InputOptions, open_input
from bloomseal.cli.main import cli, main

from .conftest import Run, bloomseal

PROGRAM = Path(sys.executable).with_name("bloomseal")


def examples() -> list[str]:
    """The command lines under "Example" in every command's help, in the order of a working day."""
    found = []
    for name in ("keyring", "write", "attach", "probe", "read", "head", "count", "verify", "show", "demo"):
        command = cli.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        help_text = click.unstyle(command.help or "").replace("\\\n", " ")
        found += [line.strip() for line in help_text.splitlines() if line.strip().startswith("bloomseal ")]
    return found


def test_the_examples_in_the_help_run(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = examples()
    assert len(lines) >= 12
    (folder / "wanted.txt").write_text("078-05-1120\n")
    (folder / "customers.csv").write_text("ssn,country\n078-05-1120,DE\n219-09-9999,FR\n")
    (folder / "policy.toml").write_text(
        'version = 1\nkms = "keyring:keys.json"\n[tables.customers]\nfooter_key = "footer"\n'
        'aad_prefix = "{table}/{path}/"\n[tables.customers.columns.ssn]\nkey = "pii"\nfilter = true\n'
    )
    monkeypatch.setenv("FOOTER_KEY", "00" * 16)
    for line in lines:
        arguments = shlex.split(line.replace("demo --rows 100000", "demo --rows 5000"))
        if " - " not in line:
            done = run(*arguments[1:])
            assert done.code == 0, f"{line}\n{done.err}"
            continue
        stdin = '{"user": "ada"}\n{"user": "bob"}\n'
        piped = subprocess.run([PROGRAM, *arguments[1:]], input=stdin, capture_output=True, text=True, timeout=300)
        assert piped.returncode == 0, f"{line}\n{piped.stderr}"


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        (["--help"], ["numba", "rich", "pyspark", "pyarrow", "cryptography"]),
        (
            ["probe", "people.parquet", "ssn", "078-05-1120", "--format", "json"],
            ["numba", "rich", "pyspark"],
        ),
        (["probe", "people.parquet", "ssn", "078-05-1120"], ["numba", "pyspark"]),
        (["show", "people.parquet", "--format", "json"], ["numba", "rich", "pyspark"]),
    ],
)
def test_commands_load_only_what_they_need(sealed: Run, arguments: list[str], absent: list[str]) -> None:
    script = (
        "import sys; from bloomseal.cli.main import main\n"
        f"assert main({arguments!r}) == 0\n"
        f"print('loaded:', [name for name in {absent!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "loaded: []", done.stderr


def test_no_progress_where_no_terminal_is(sealed: Run) -> None:
    done = bloomseal("attach", "people.parquet", "--bloom-filter", "token")
    assert done.returncode == 0
    assert done.stderr == ""


def test_progress_on_a_terminal(sealed: Run) -> None:
    primary, secondary = pty.openpty()
    try:
        environment = {**os.environ, "TERM": "xterm"}
        with subprocess.Popen(
            [PROGRAM, "attach", "people.parquet", "--bloom-filter", "token"],
            stdout=subprocess.DEVNULL, stderr=secondary, stdin=subprocess.DEVNULL, env=environment,
        ) as process:  # fmt: skip
            assert process.wait(timeout=60) == 0
        shown = os.read(primary, 1 << 16).decode()
    finally:
        os.close(secondary)
        os.close(primary)
    assert "Building filters" in shown


def test_a_passphrase_is_asked_for_on_a_terminal_and_not_echoed(sealed: Run, folder: Path) -> None:
    (folder / "secret").write_text("open sesame")
    assert sealed("keyring", "create", "k", "--keyring", "locked.json", "--passphrase-file", "secret").code == 0
    primary, secondary = pty.openpty()
    try:
        with subprocess.Popen(
            [PROGRAM, "keyring", "list", "--keyring", "locked.json", "--format", "json"],
            stdin=secondary, stderr=secondary, stdout=subprocess.PIPE, start_new_session=True,
        ) as process:  # fmt: skip
            shown = os.read(primary, 1000).decode()
            assert "Passphrase" in shown
            os.write(primary, b"open sesame\n")
            assert process.stdout is not None
            keys = json.loads(process.stdout.read())
            assert process.wait(timeout=60) == 0
        shown = os.read(primary, 1000).decode()
    finally:
        os.close(secondary)
        os.close(primary)
    assert [key["key"] for key in keys] == ["k"]
    assert "sesame" not in shown


HOSTILE = "na\x1b]0;owned\x07me\x9b31m\n  failed: forged\u2028\u202egnp\u200b\U000e0041"
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2028\u202e\U000e0041]|^ *failed: forged", re.MULTILINE)


@pytest.mark.parametrize(
    "command", [["show"], ["read"], ["verify"], ["show", "--format", "json"], ["read", "--format", "json"]]
)
def test_names_and_values_from_a_file_steer_no_terminal(run: Run, command: list[str]) -> None:
    pq.write_table(pa.table({HOSTILE: [HOSTILE]}), "hostile.parquet")
    outcome = run(command[0], "hostile.parquet", *command[1:])
    assert outcome.code == 0
    assert not UNSAFE.search(outcome.out + outcome.err)
    if "--format" in command:
        # JSON says exactly what is there, by its own escapes.
        told = outcome.rows if command[0] == "read" else json.loads(outcome.out)
        assert repr(HOSTILE)[1:-1] in repr(told)


FORMULAS = ["=cmd|'/c calc'!A1", "+1", "-1", "@sum", "plain", None]


@pytest.mark.parametrize("dictionary", [False, True])
def test_csv_on_a_terminal_is_harmless_and_in_a_file_exact(folder: Path, dictionary: bool) -> None:
    column = pa.array([HOSTILE, *FORMULAS])
    table = pa.table({HOSTILE: column.dictionary_encode() if dictionary else column, "n": list(range(-3, 4))})
    pq.write_table(table, "hostile.parquet")
    command = [PROGRAM, "read", "hostile.parquet", "--format", "csv"]
    primary, secondary = pty.openpty()
    try:
        with subprocess.Popen(command, stdout=secondary, stdin=subprocess.DEVNULL) as process:
            assert process.wait(timeout=60) == 0
        shown = os.read(primary, 1 << 16).decode().replace("\r\n", "\n")
    finally:
        os.close(secondary)
        os.close(primary)
    assert not UNSAFE.search(shown)
    lines = shown.splitlines()
    assert lines[1].endswith(",-3")  # a number is no formula
    assert [line.split(",")[0] for line in lines[2:]] == [
        '"\'=cmd|\'/c calc\'!A1"', '"\'+1"', '"\'-1"', '"\'@sum"', '"plain"', ""
    ]  # fmt: skip
    piped = subprocess.run(command, capture_output=True, check=True).stdout
    exact = pa.csv.read_csv(
        io.BytesIO(piped), parse_options=pa.csv.ParseOptions(newlines_in_values=True),
        convert_options=pa.csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False),
    )  # fmt: skip
    assert exact.column_names == [HOSTILE, "n"]
    assert exact[0].to_pylist() == [HOSTILE, *FORMULAS]


def test_errors_about_hostile_names_steer_no_terminal(run: Run) -> None:
    pq.write_table(pa.table({HOSTILE: ["x"]}), "hostile.parquet")
    for style in ("table", "json"):
        outcome = run("probe", "hostile.parquet", "nowhere", "x", "--format", style)
        assert outcome.code == 2
        assert not UNSAFE.search(outcome.err)


def test_names_that_are_no_text(run: Run, folder: Path) -> None:
    odd = folder / os.fsdecode(b"\xff.parquet")
    pq.write_table(pa.table({"a": [1]}), folder / "a.parquet")
    (folder / "a.parquet").rename(odd)
    answer = run("show", str(odd), "--format", "json")
    assert os.fsencode(json.loads(answer.out)["path"]).endswith(b"\xff.parquet")
    assert "\\udcff.parquet" in run("show", str(odd)).out.encode().decode()
    assert "\\udcff.parquet" in run("verify", f"{odd}.gone").err.encode().decode()


def test_rows_as_json_are_json_whatever_they_hold(run: Run) -> None:
    pq.write_table(
        pa.table(
            {"f": [float("nan"), float("inf"), -0.0], "b": [b"\xff", None, b""], "n": [{"x": [1]}, None, {"x": []}]}
        ),
        "odd.parquet",
    )
    outcome = run("read", "odd.parquet", "--format", "json")
    assert outcome.rows == [
        {"f": "nan", "b": "/w==", "n": {"x": [1]}},
        {"f": "inf", "b": None, "n": None},
        {"f": -0.0, "b": "", "n": {"x": []}},
    ]
    assert run("read", "odd.parquet", "--format", "csv").code == 0
    assert run("read", "odd.parquet").code == 0


def test_a_reader_that_goes_away_is_no_answer(sealed: Run) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [PROGRAM, "probe", "people.parquet", "ssn", "000-00-0000"],
            stdout=writing,
            stderr=subprocess.PIPE,
            timeout=60,
        )
    finally:
        os.close(writing)
    assert done.returncode == 141  # not 1, which would mean: absent
    assert b"Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("form", ["csv", "json", "table"])
def test_a_full_disk_is_told_in_the_systems_words(sealed: Run, form: str) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [PROGRAM, "read", "people.parquet", "--format", form], stdout=full, stderr=subprocess.PIPE, timeout=60
        )
    assert done.returncode == 2
    told = done.stderr.decode().strip()
    assert "No space left on device" in told
    assert len(told.splitlines()) == 1
    assert json.loads(told)["error"] if form == "json" else told.startswith("bloomseal: ")


def test_input_is_a_stream(folder: Path) -> None:
    rows = 400_000
    with open("long.csv", "w") as file:
        file.write("id,text\n")
        file.writelines(f"{i},some text to make the line longer {i:020d}\n" for i in range(rows))
    with open_input("long.csv", InputOptions(types={})) as found:
        sizes = [batch.num_rows for batch, _ in found.batches]
    assert sum(sizes) == rows
    assert max(sizes) < rows / 2


def test_warnings_are_one_line_each(sealed: Run) -> None:
    outcome = sealed("--version")
    assert (outcome.code, outcome.err) == (0, "")
    assert main(["show", "people.parquet"]) == 0


def test_the_demonstration_measures_and_finds_what_it_wrote(run: Run) -> None:
    outcome = run("demo", "--rows", "20000", "--row-groups", "8", "--output", "demo", "--format", "json", "--no-spark")
    assert outcome.code == 0
    results = outcome.json
    assert (results["write"]["rows"], results["write"]["row_groups"], results["write"]["filters"]) == (20000, 8, 16)
    assert results["verify"]["complete"] is True
    present, absent = results["look_up_present"], results["look_up_absent"]
    assert present["rows_found"] == present["values"]
    assert absent["rows_found"] == 0
    assert present["same_rows_as_pyarrow"]
    assert absent["same_rows_as_pyarrow"]
    for attack in (results["attack_clear_emails"], results["attack_clear_ssn"]):
        assert attack["rightly"] == attack["in_the_table"]  # every person in the table is given away
    sealed = results["attack_sealed"]
    assert (sealed["opened_without_keys"], sealed["opened_with_a_wrong_key"]) == ("KeyAccessError", "IntegrityError")
    assert sealed["filter_headers_found_in_sealed_file"] == 0
    assert sealed["filter_headers_found_in_clear_file"] == results["write"]["filters"]
    table = run("demo", "--rows", "5000", "--no-spark")
    assert table.code == 0
    assert "a thief asks" in table.out
    assert table.out.count("█") >= 6
    grown = results["index"]
    assert [one["files"] for one in grown] == [2, 10, 40]
    # Forty footers against one small index.
    assert grown[-1]["with_index"] < grown[-1]["without"]
    assert not list(Path("demo").glob("index-*"))


def test_the_demonstrations_people_are_the_same_for_a_seed(run: Run) -> None:
    from bloomseal.demo.people import People

    first, again, other = (list(People(seed).tables(1000, 300)) for seed in (7, 7, 8))
    assert pa.concat_tables(first).equals(pa.concat_tables(again))
    assert not pa.concat_tables(first).equals(pa.concat_tables(other))
    everybody = pa.concat_tables(first)
    for name in ("ssn", "email", "id"):
        assert len(everybody.column(name).unique()) == 1000
