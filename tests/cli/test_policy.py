"""`bloomseal policy`: a proposal that works as it is, on files of three writers, and what a check finds."""

from __future__ import annotations

import datetime as dt
import shlex
import tomllib
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bloomseal import Policy
from bloomseal.policy.check import check
from support.outcome import Outcome

from .conftest import Run

ROWS = 30
VALUES: dict[str, list[Any]] = {
    "customer_id": list(range(ROWS)),
    "contact": [f"person{i}@mail.example" for i in range(ROWS)],
    "ssn": [f"{i:03}-05-1120" for i in range(ROWS)],
    "day": [dt.date(1950 + i, 3, 7) for i in range(ROWS)],
    "plan": ["free", "pro"] * (ROWS // 2),
    "score": [i / 7 for i in range(ROWS)],
}


@pytest.fixture
def customers(folder: Path) -> Path:
    """A folder with a file of pandas, one of Polars, and one of DuckDB."""
    (folder / "customers").mkdir()
    frame = pl.DataFrame(VALUES)
    pd.DataFrame(VALUES).to_parquet(folder / "customers/pandas.parquet")
    frame.write_parquet(folder / "customers/polars.parquet")
    duckdb.sql(f"copy (from frame) to '{folder}/customers/duckdb.parquet'")
    return folder / "customers"


def found(outcome: Outcome) -> dict[str, str]:
    return {check["name"]: check["state"] for check in outcome.json["checks"]}


def test_a_proposal_seals_as_it_is(customers: Path, run: Run) -> None:
    outcome = run("policy", "init", "customers", "--format", "json")
    assert outcome.code == 0
    (table,) = outcome.json["tables"]
    assert {one["column"]: (one["key"], one["filter"] is not None) for one in table["columns"]} == {
        "contact": ("pii", True), "ssn": ("pii", True), "day": ("pii", False), "customer_id": (None, True),
    }  # fmt: skip
    assert (table["files"], table["others"]) == (3, ["plan", "score"])
    for command in outcome.json["next"]:
        assert run(*command.split()[1:]).code == 0, command
    read = run("read", "customers", "--policy", "policy.toml", "--table", "customers", "--format", "json",
               "--columns", "customer_id", "--where", "contact = 'person7@mail.example'")  # fmt: skip
    assert read.rows == [{"customer_id": 7}] * 3
    checked = run("policy", "check", "--against", "customers", "--format", "json")
    assert (checked.code, found(checked)) == (0, {"policy.toml": "ok", "customers": "ok"})


def test_a_proposal_holds_no_value(customers: Path, run: Run, folder: Path) -> None:
    outcome = run("policy", "init", "customers")
    told = outcome.out + outcome.err + (folder / "policy.toml").read_text(encoding="utf-8")
    assert not [value for name in ("contact", "ssn", "day") for value in VALUES[name] if str(value) in told]


def test_a_policy_that_is_there_stays(customers: Path, run: Run, folder: Path) -> None:
    (folder / "policy.toml").write_text("mine", encoding="utf-8")
    refused = run("policy", "init", "customers")
    assert (refused.code, (folder / "policy.toml").read_text(encoding="utf-8")) == (2, "mine")
    assert "--overwrite" in refused.err
    assert run("policy", "init", "customers", "--overwrite").code == 0
    assert list(Policy.load(folder / "policy.toml").tables) == ["customers"]


def test_names_that_toml_and_comments_cant_hold(run: Run, folder: Path) -> None:
    odd = 'e-mail "x"\n[keys]\x7f'
    place = folder / "my table"
    place.mkdir()
    pq.write_table(pa.table({odd: ["a@mail.example"], "nested": [{"Email": "b@mail.example"}]}), place / "a.parquet")
    done = run("policy", "init", "my table", "--output", "-")
    document = tomllib.loads(done.out)
    assert set(document["tables"]["my table"]["columns"]) == {odd, "nested.Email"}
    assert "keys" not in document


def test_folders_that_name_columns(run: Run, folder: Path) -> None:
    place = folder / "t" / "country=DE" / "name=Ada"
    place.mkdir(parents=True)
    pq.write_table(pa.table({"ssn": ["078-05-1120"]}), place / "a.parquet")
    done = run("policy", "init", "t", "--format", "json")
    (table,) = done.json["tables"]
    assert table["partition_by"] == ["country", "name"]
    assert ["name sounds like" in said for said in table["remarks"]] == [True]
    checked = run("policy", "check", "--against", "t", "--format", "json")
    assert (checked.code, found(checked)["t.name"]) == (1, "problem")


def test_folders_count_from_the_policy(run: Run, folder: Path) -> None:
    """Two tables, and a policy in a folder of its own: the commands that are printed work, and find each table."""
    for name, column, value in [("a", "email", "x@mail.example"), ("b c", "iban", "DE89370400440532013000")]:
        (folder / "lake" / name).mkdir(parents=True)
        pq.write_table(pa.table({column: [value]}), folder / "lake" / name / "1.parquet")
    (folder / "policies").mkdir()
    done = run("policy", "init", "lake/a", "lake/b c", "--output", "policies/lake.toml", "--format", "json")
    policy = folder / "policies/lake.toml"
    assert [table["root"] for table in tomllib.loads(policy.read_text())["tables"].values()] == [
        "../lake/a",
        "../lake/b c",
    ]
    for command in done.json["next"]:
        assert run(*shlex.split(command)[1:]).code == 0, command
    read = run("read", "lake/b c", "--policy", "policies/lake.toml", "--format", "json")
    assert read.rows == [{"iban": "DE89370400440532013000"}]
    assert list(check(Policy.load(policy))) == []


def test_what_is_no_folder_of_plaintext_parquet(customers: Path, run: Run, folder: Path) -> None:
    assert run("policy", "init", "people.csv").code == 2
    assert run("policy", "init", "customers", "--format", "json").code == 0
    assert run("keyring", "create", "--keyring", "keys.json", "footer", "pii").code == 0
    assert run("seal", "customers", "--policy", "policy.toml", "--table", "customers").code == 0
    again = run("policy", "init", "customers", "--overwrite")
    assert (again.code, "sealed already" in again.err) == (2, True)


POLICY = """
version = 1
kms = "keyring:keys.json"
[tables.customers]
footer_key = "footer"
[tables.customers.columns.ssn]
key = "pii"
[tables.customers.columns.emial]
key = "pii"
[tables.customers.columns.email]
filter = true
[tables.customers.columns.plan]
filter = true
"""


def test_a_check_tells_column_and_remedy(customers: Path, run: Run, folder: Path) -> None:
    (folder / "policy.toml").write_text(POLICY, encoding="utf-8")
    alone = run("policy", "check", "--format", "json")
    assert alone.code == 1
    assert found(alone) == {
        "policy.toml": "ok", "customers": "note", "customers.email": "problem", "customers.plan": "note",
    }  # fmt: skip
    beside = run("policy", "check", "--against", "customers", "--format", "json")
    told = {check["name"]: (check["found"], check["hint"]) for check in beside.json["checks"]}
    assert told["customers.emial"][0] == told["customers.email"][0] == "no file has the column"
    assert told["customers.contact"][0].startswith("looks personal (values like an e-mail address)")
    assert all(hint for what, hint in told.values() if what.startswith(("looks", "no file", "sounds")))


def test_a_policy_that_cant_be_read(run: Run, folder: Path) -> None:
    (folder / "policy.toml").write_text(POLICY.replace("footer_key", "footer_kye"), encoding="utf-8")
    outcome = run("policy", "check", "--format", "json")
    (told,) = outcome.json["checks"]
    assert (outcome.code, told["state"]) == (1, "problem")
    assert "tables.customers" in told["found"]


def test_columns_that_nobody_could_see_are_unknown(customers: Path, run: Run, folder: Path) -> None:
    assert run("policy", "init", "customers", "--format", "json").code == 0
    assert run("keyring", "create", "--keyring", "keys.json", "footer", "pii").code == 0
    assert run("seal", "customers", "--policy", "policy.toml", "--table", "customers").code == 0
    (folder / "keys.json").unlink()
    outcome = run("policy", "check", "--against", "customers", "--format", "json")
    assert (outcome.code, found(outcome)["customers"]) == (1, "unknown")
