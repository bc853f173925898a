"""--where: what SQL says is what is read, and what is not understood is an error, never an empty answer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.read.predicate.where import parse_where

from .conftest import Run


@pytest.mark.parametrize(
    ("condition", "names"),
    [
        ("ssn = '457-55-5462'", ["Eve"]),
        ("'457-55-5462' = ssn", ["Eve"]),
        ("ssn in ('457-55-5462', '078-05-1120')", ["Ada", "Eve"]),
        ("ssn = '457-55-5462' and balance < 3", ["Eve"]),
        ("ssn = '457-55-5462' or balance between 7 and 8", ["Bob", "Eve"]),
        ("born >= '1990-01-01'", ["Bob", "Zoë"]),
        ("not born >= date '1990-01-01'", ["Ada", "Eve"]),
        ("balance < -2.5", ["Eve"]),
        ("name not in ('Ada', 'Eve')", ["Bob", "Zoë"]),
        ("name <> 'Ada'", ["Bob", "Eve", "Zoë"]),
        ("score == 0", ["Zoë"]),
        ("score is null", ["Eve"]),
        ("score is not null and seen is null", ["Zoë"]),
        ("name like '%o%'", ["Bob", "Zoë"]),
        ("\"name\" like 'A%' or \"name\" not like '_o_'", ["Ada", "Eve"]),
        ("seen = timestamptz '2025-01-02T03:04:05Z'", ["Ada"]),
        ("seen > '2025-02-01T00:00:00Z' and (name = 'Eve' or name = 'Bob')", ["Bob", "Eve"]),
        ("name = null", []),
        ("score not in (1.5, null)", []),
    ],
)
def test_conditions_in_sql(sealed: Run, condition: str, names: list[str]) -> None:
    answer = sealed("read", "people.parquet", "-w", condition, "-c", "name", "--format", "json")
    assert (answer.code, answer.err) == (0, "")
    assert [row["name"] for row in answer.rows] == names


@pytest.mark.parametrize(
    "condition",
    [
        "ssn = 457-55-5462",  # a subtraction
        "ssn in 457-55-5462, 078-05-1120",
        "name = Eve",
        'name = "Eve"',
        "name = 4711",
        "born >= 1990-01-01",
        "born > 4711",
        "balance = '47_11'",
        "balance = '4711 euros'",
        "balance + 1 = 4711",
        "name = 'Eve' 'Bob'",
        "name = E'Eve'",
        "name = lower('EVE')",
        "name = born",
        "lower(name) = 'eve'",
        "name ilike 'eve'",
        "name similar to 'eve'",
        "name glob 'eve'",
        "name like any ('eve', 'bob')",
        "name like 'eve!' escape '!'",
        "name like born",
        "balance like '4711'",
        "name in (select 'Eve')",
        "name in (lower('EVE'))",
        "balance between symmetric 8 and 7",
        "name is true",
        "name is not distinct from 'Eve'",
        "name",
        "not name",
        "4711 = 4711",
        "true",
        "exists (select 1)",
        "name = 'Eve' order by name",
        "name = 'Eve'; select 1",
        "name = 'Eve",
        "name::int = 4711",
        "name = '4711'::int",
        "born = '2020-01-01 10:00:00'::timestamp",
        "seen = timestamp '2025-01-02 03:04:05'",
        "seen = '2025-01-02 03:04:05'",
        "balance = interval '4711 days'",
        "name collate nocase = 'eve'",
        "name = ?",
        "case when name = 'Eve' then true else false end",
        "nobody = 'Eve'",
        "people.name = 'Eve'",
        "",
        "(" * 5000 + "name = 'Eve'" + ")" * 5000,
    ],
)
def test_what_is_not_understood_is_an_error(sealed: Run, condition: str) -> None:
    answer = sealed("read", "people.parquet", "-w", condition, "-c", "name")
    assert (answer.code, answer.out) == (2, "")
    for secret in ("457", "4711", "078"):
        assert secret not in answer.err


def test_the_old_form_is_told_the_new_one(sealed: Run) -> None:
    answer = sealed("read", "people.parquet", "-w", "ssn = 078-05-1120")
    assert answer.code == 2
    assert "single quotes" in answer.err


def test_nested_quoted_and_dotted_names(tmp_path: Path) -> None:
    table = pa.table(
        {"my col": ["x", "y"], "a": [{"b": {"c": 1}}, {"b": None}], 'q"q': [1, 2], "select": [1, 2], "e.f": [1, 2]}
    )
    bs.write_table(table, tmp_path / "t")
    with bs.open_file(tmp_path / "t") as file:
        for condition in (
            "\"my col\" = 'x'",
            "a.b.c = 1",
            "a.b.c is not null",
            '"q""q" = 1',
            '"select" < 2',
            '"e.f" = 1',
        ):
            found = file.read(["my col"], parse_where(condition, file.walk.footer.schema))
            assert found.column(0).to_pylist() == ["x"], condition
        with pytest.raises(bs.UsageError, match="a single field"):
            file.read(["my col"], parse_where("a is null", file.walk.footer.schema))


def test_many_files_have_one_csv_header(sealed: Run, folder: Path) -> None:
    (folder / "again").mkdir()
    (folder / "people.parquet").rename(folder / "again" / "people.parquet")
    (folder / "again" / "b.parquet").write_bytes((folder / "again" / "people.parquet").read_bytes())
    for paths in (["again"], ["again/people.parquet", "again/b.parquet"]):
        answer = sealed("read", *paths, "-w", "name like 'A%'", "-c", "name,born", "--format", "csv", "--stats")
        assert answer.out.splitlines() == ['"name","born"', '"Ada",1984-03-07', '"Ada",1984-03-07']
        assert "4 row groups" in answer.err
    empty = sealed("read", "again", "-w", "name = 'Nobody'", "-c", "name", "--format", "csv")
    assert (empty.code, empty.out.splitlines()) == (0, ['"name"'])


def test_files_of_other_columns_are_refused(sealed: Run, folder: Path) -> None:
    bs.write_table(
        pa.table({"name": [1]}), "other.parquet", encryption=bs.EncryptionSpec("footer", keys=bs.Keyring("keys.json"))
    )
    answer = sealed("read", "people.parquet", "other.parquet", "-c", "name")
    assert answer.code == 2
    assert "other.parquet" in answer.err


def test_the_parser_is_loaded_for_conditions_only(sealed: Run) -> None:
    script = (
        "import sys; from bloomseal.cli.main import main\n"
        "main(['read', 'people.parquet', '--where-in', 'ssn=-']); main(['probe', 'people.parquet', 'ssn', 'x', '-q'])\n"
        "print('sqlglot' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, input="078-05-1120\n", check=True
    )
    assert done.stdout.splitlines()[-1] == "False"
