"""What makes the command line pleasant: pipes that end, completion, names that are the library's own."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import bloomseal as bs
from bloomseal import cli as bloomseal_cli
from bloomseal.cli.hints import _IN_OPTIONS, hint_for
from bloomseal.cli.main import cli, main
from bloomseal.core.errors import Hint, UsageError

from .conftest import Run, bloomseal

PROGRAM = Path(sys.executable).with_name("bloomseal")


@pytest.mark.parametrize(
    "arguments",
    [
        ["read", "people.parquet", "--format", "json"],
        ["read", "people.parquet", "--format", "csv"],
        ["read", "people.parquet"],
        ["show", "people.parquet"],
        ["verify", "people.parquet", "--format", "json"],
        ["audit", "people.parquet", "--format", "json"],
        ["--help"],
    ],
)
def test_a_reader_that_goes_away_ends_the_command_as_documented(sealed: Run, arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        # Unbuffered: the pipe is found broken while the command writes, not when it ends.
        done = subprocess.run(
            [PROGRAM, *arguments], stdout=writing, stderr=subprocess.PIPE, timeout=60,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
    finally:
        os.close(writing)
    assert done.returncode == 141  # not 1, which is an answer
    assert b"Traceback" not in done.stderr


def test_many_rows_into_a_reader_of_one(sealed: Run, folder: Path) -> None:
    import pyarrow as pa

    bs.write_table(pa.table({"text": ["x" * 60] * 100_000}), "long.parquet")
    with subprocess.Popen(
        [PROGRAM, "read", "long.parquet", "--format", "json", "--allow-plaintext"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b'{"text": "xxx')
        process.stdout.close()
        assert process.wait(timeout=60) == 141


def completed(*words: str) -> list[str]:
    """What bash is offered for the last word."""
    environment = {
        **os.environ,
        "_BLOOMSEAL_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("bloomseal", *words)),
        "COMP_CWORD": str(len(words)),
    }
    done = subprocess.run([PROGRAM], capture_output=True, text=True, env=environment, timeout=60, check=True)
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["re"], ["plain,read", "plain,rewrap", "plain,rekey", "plain,repair"]),
        (["keyring", "rot"], ["plain,rotate"]),
        (["read", "--enc"], ["plain,--encrypted-column"]),
        (["read", "--format", "c"], ["plain,csv"]),
        (["read", "peo"], ["file,peo"]),
        (["read", "x", "--keyring", "k"], ["file,k"]),
        (["audit", "x", "--policy", "p"], ["file,p"]),
    ],
)
def test_shells_complete_commands_options_choices_and_files(folder: Path, words: list[str], offered: list[str]) -> None:
    assert completed(*words) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_is_there(folder: Path, shell: str) -> None:
    done = bloomseal(env={**os.environ, "_BLOOMSEAL_COMPLETE": f"{shell}_source"})
    if shell == "bash" and "version" in done.stderr:
        pytest.skip("click writes no script for this bash")
    assert done.returncode == 0
    assert "_BLOOMSEAL_COMPLETE" in done.stdout


def test_the_completion_of_a_name_loads_no_command() -> None:
    script = (
        "import sys, click; from bloomseal.cli.main import cli\n"
        "found = cli.shell_complete(click.Context(cli), 're')\n"
        "print([one.value for one in found], sorted({'pyarrow', 'numba', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['read', 'rewrap', 'rekey', 'repair'] []"


@pytest.mark.parametrize(("given", "threads"), [(None, "1"), ("7", "7")])
def test_a_command_starts_no_threads_for_matrices(given: str | None, threads: str) -> None:
    """numpy's OpenBLAS starts one for each core when it is loaded; who says how many there are to be is obeyed."""
    name = "OPENBLAS_NUM_THREADS"
    script = (
        "import atexit, os, sys; from bloomseal.cli.main import main; "
        f"atexit.register(lambda: print(os.environ.get({name!r}))); main(sys.argv[2:] or None)"
    )
    env = {one: value for one, value in os.environ.items() if one != name} | ({} if given is None else {name: given})

    def told(*arguments: str) -> str:
        command = [sys.executable, "-c", script, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout.split()[-1]

    assert told("--version") == threads
    # Called by somebody else's program, it leaves that program's environment as it is.
    assert told("call", "--version") == str(given)


def test_a_misspelt_filter_setting_is_answered_with_the_settings(sealed: Run) -> None:
    outcome = sealed("attach", "people.parquet", "--bloom-filter", "ssn:fp=0.1")
    assert outcome.code == 2
    assert "no setting 'fp'" in outcome.err
    assert "one of fpp, ndv, num_bytes, max_bytes, hide_size" in outcome.err


def test_a_path_given_for_a_kms_is_answered_with_the_uri(sealed: Run) -> None:
    outcome = sealed("read", "people.parquet", "--kms", "keys.json")
    assert outcome.code == 2
    assert "keyring:keys.json" in outcome.err


def everything(command: click.Command) -> Iterator[click.Command]:
    """The command, and all below it."""
    yield command
    for name in command.list_commands(None) if isinstance(command, click.Group) else ():  # type: ignore[arg-type]
        found = command.get_command(None, name)  # type: ignore[arg-type]
        assert found is not None
        yield from everything(found)


def contexts(command: click.Command, parent: click.Context | None = None) -> Iterator[click.Context]:
    """The command as a terminal of 80 columns runs it, and all below it."""
    name = "bloomseal" if parent is None else command.name
    context = click.Context(command, parent, name, terminal_width=80, help_option_names=["-h", "--help"])
    yield context
    for below in command.list_commands(context) if isinstance(command, click.Group) else ():
        found = command.get_command(context, below)
        assert found is not None
        yield from contexts(found, context)


def test_each_help_fits_a_screen_and_begins_with_the_options_in_use() -> None:
    for context in contexts(cli):
        shown = context.get_help()
        assert len(shown.splitlines()) <= 50, context.command_path
        if "More options" in shown and context.parent is not None:
            explained = shown.partition("\nOptions:\n")[2].partition("\nMore options")[0]
            assert re.findall(r"^  (?:-\w, )?(--[a-z-]+)", explained, re.MULTILINE) == list(context.command.first)  # type: ignore[attr-defined]
            assert len(context.command.first) == 5, context.command_path  # type: ignore[attr-defined]
        flags = {
            next(one for one in option.opts if one.startswith("--"))
            for option in context.command.get_params(context)
            if isinstance(option, click.Option)
        }
        assert flags - set(re.findall(r"--?[a-z0-9-]+", shown)) == set(), context.command_path


def test_help_all_explains_every_option_under_its_heading(run: Run) -> None:
    shown = "Options:" + run("rekey", "--help-all").out.partition("\nOptions:")[2]
    sections = re.findall(r"^(\w[\w ]*):$", shown, re.MULTILINE)
    assert sections[0] == "Options"
    assert sections[-1] == "Options of all commands"
    assert {"Encryption", "Run", "Keys", "Policy", "Expectations of the files"} == set(sections[1:-1])
    assert shown.index("--policy") < shown.index("--from") < shown.index("Encryption:") < shown.index("--algorithm")
    assert shown.index(sections[-1]) < shown.index("--format") < shown.index("--help")
    assert "How long to wait for a KMS" in shown


@pytest.mark.parametrize(
    "command", [["show"], ["attach", "--bloom-filter", "token", "--dry-run"], ["rekey", "--dry-run"]]
)
def test_the_terminal_shows_what_json_tells(sealed: Run, command: list[str]) -> None:
    told = sealed(command[0], "people.parquet", *command[1:], "--format", "json").json
    shown = sealed(command[0], "people.parquet", *command[1:]).out
    lists = [one for value in told.values() if isinstance(value, list) for one in value if isinstance(one, dict)]
    for name, value in (pair for one in (told, *lists) for pair in one.items()):
        if value not in (None, [], {}) and not isinstance(value, list) and name != "path":
            assert name.replace("_", " ") in shown


def test_hints_name_options_that_there_are() -> None:
    """Each run of these tests holds the hints that it sees against the command's own options (conftest.py)."""
    known = {name for command in everything(cli) for option in command.params
             for name in (*option.opts, *option.secondary_opts)} | {"--help"}  # fmt: skip
    room = Path(bloomseal_cli.__file__).parent
    for source in room.rglob("*.py"):
        texts = [node.value for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.Constant)]
        named = {word for text in texts if isinstance(text, str) for word in re.findall(r"--[a-z][a-z0-9-]+", text)}
        assert named <= known, source


# An option of the command line → where the library says the same. Singular where it is given once for each.
SINGULAR = {"column_key": "column_keys", "encrypted_column": "encrypted_columns", "bloom_filter": "bloom_filters"}


@pytest.mark.parametrize(
    ("command", "functions", "own"),
    [
        (
            "write",
            [bs.EncryptionSpec, bs.write_table, bs.write_dataset],
            {"input_format", "type", "plaintext", "dry_run", "compression", "delimiter"},
        ),
        ("attach", [bs.DecryptionSpec, bs.attach_filters], set()),
        ("read", [bs.DecryptionSpec, bs.open_table, bs.read_table], {"where", "where_in", "limit", "output", "stats"}),
        ("probe", [bs.DecryptionSpec, bs.open_table, bs.probe], {"values_from", "quiet", "per_file", "version"}),
        ("verify", [bs.DecryptionSpec, bs.verify], {"strict"}),
    ],
)
def test_the_same_option_is_called_the_same_in_python(command: str, functions: list[object], own: set[str]) -> None:
    known: set[str] = set()
    for function in functions:
        known |= (
            {one.name for one in dataclasses.fields(function)}  # type: ignore[arg-type]
            if dataclasses.is_dataclass(function)
            else set(inspect.signature(function).parameters)  # type: ignore[arg-type]
        )
    shared = {"keyring", "passphrase_file", "kms", "key_file", "key_env", "format", "verbose", "debug", "help_all"}
    shared |= {"policy", "table", "table_root", "signer"}
    found = cli.get_command(None, command)  # type: ignore[arg-type]
    assert found is not None
    options = {
        option.opts[0].removeprefix("--").removeprefix("no-").replace("-", "_")
        for option in found.params
        if isinstance(option, click.Option)
    }
    strange = {SINGULAR.get(name, name) for name in options} - known - shared - own
    assert strange == set()
    assert own <= options


def test_a_key_that_is_there_is_left_as_it_is_where_that_is_said(sealed: Run) -> None:
    refused = sealed("keyring", "add", "pii")
    assert refused.code == 2
    assert "--exist-ok" in refused.err
    added = sealed("keyring", "add", "pii", "new", "--exist-ok", "--format", "json")
    assert (added.code, [row["version"] for row in added.json]) == (0, [1, 1])


def test_main_leaves_the_streams_as_they_were(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout, sys.stderr
    assert main(["--version"]) == 0
    assert (sys.stdout, sys.stderr) == before


def test_every_hint_that_names_python_has_words_for_the_command_line() -> None:
    assert set(_IN_OPTIONS) == set(Hint)
    for hint in Hint:
        error = UsageError("no", hint=hint)
        assert pickle.loads(pickle.dumps(error)).hint is hint  # noqa: S301  # executors send errors to drivers
        assert "()" not in str(hint_for(error)).replace("probe() ", "")
        assert "Spec(" not in str(hint_for(error))
    assert hint_for(UsageError("no", hint="as it stands")) == "as it stands"
    assert hint_for(UsageError("no")) is None
