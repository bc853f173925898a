"""``bloomseal index``: build, update, check, show, compact, rebuild and drop; reads and probes that use it."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Run
from .test_tables import lake

NAMED = ("--policy", "policy.toml", "--table", "people")
INDEX = ("lake", "--column", "ssn", *NAMED, "--format", "json")

__all__ = ["lake"]


def test_an_index_from_birth_to_end(lake: Run, folder: Path) -> None:
    planned = lake("index", "build", *INDEX, "--dry-run")
    assert (planned.code, len(planned.json["left"])) == (0, 3)
    assert not (folder / "lake" / "_bloomseal_index").exists()
    built = lake("index", "build", *INDEX)
    assert (built.code, built.json["covered"], built.json["entries"]) == (0, 3, 30)
    shown = lake("index", "show", *INDEX)
    assert (shown.json["covered"], shown.json["entries"], shown.json["pad"]) == (3, 30, False)
    checked = lake("index", "check", *INDEX)
    assert (checked.code, checked.json["values"], checked.json["ok"]) == (0, 30, True)
    found = lake(
        "read",
        "lake",
        "--where",
        "ssn = '012-11-0000'",
        "--stats",
        "--use-index",
        "require",
        *NAMED,
        "--format",
        "json",
    )
    assert [row["id"] for row in found.rows] == [12]
    assert "5 ruled out by an index (2 files unopened)" in found.err
    asked = lake("probe", "lake", "ssn", "012-11-0000", "x", "--use-index", "require", *NAMED, "--format", "json")
    assert [value["row_groups_to_read"] for value in asked.json["values"]] == [1, 0]
    assert lake("index", "compact", *INDEX).json["merged"] == 0
    assert lake("index", "compact", *INDEX, "--everything").json["merged"] == 1
    (folder / "lake" / "country=DE" / "0.parquet").touch()
    refused = lake("read", "lake", "--where", "ssn = 'x'", "--use-index", "require", *NAMED)
    assert refused.code == 2
    assert "index update" in refused.err
    updated = lake("index", "update", *INDEX)
    assert (updated.code, updated.json["refreshed"], updated.json["hashed"]) == (0, 1, 0)
    (folder / "lake" / "country=DE" / "0.parquet").unlink()
    compacted = lake("index", "compact", *INDEX).json
    assert (compacted["entries_before"], compacted["entries"]) == (30, 20)
    assert lake("index", "rebuild", *INDEX, "--pad").json["entries"] == 32
    assert lake("index", "drop", "lake", "--column", "ssn", "--dry-run", "--format", "json").json["there"]
    removed = lake("index", "drop", "lake", "--column", "ssn", "--format", "json").json["removed"]
    assert len(removed) == 2  # the manifest first, and its run
    assert (removed[0], (folder / "lake" / "_bloomseal_index").exists()) == ("manifest.parquet", False)
    gone = lake("index", "show", *INDEX)
    assert gone.code == 2
    assert "has no index" in gone.err


def test_tables_for_people(lake: Run) -> None:
    named = ("lake", "--column", "ssn", *NAMED)
    assert "covered" in lake("index", "build", *named).out
    for command in ("show", "check", "update", "compact"):
        done = lake("index", command, *named)
        assert (done.code, done.out.startswith("index of ssn")) == (0, True)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--column", "nope", *NAMED), "no such column"),
        (("--column", "ssn"), "no keys were named"),
        (("--column", "ssn", *NAMED, "--footer-key", "pii"), "the policy says which keys"),
        (("--column", "ssn", *NAMED, "--false-places", "3"), "false_places"),
    ],
)
def test_mistakes(lake: Run, options: tuple[str, ...], told: str) -> None:
    done = lake("index", "build", "lake", *options)
    assert done.code == 2
    assert told in done.err


def test_advice_is_told_by_what_queries_ask(lake: Run, folder: Path) -> None:
    told = lake("advise", "lake", *NAMED, "--format", "json")
    assert told.code == 0
    assert {one["verdict"] for one in told.json} <= {"index", "filter", "neither"}
    assert all(one["why"] for one in told.json)
    (folder / "queries.log").write_text("ssn = '012-11-0000'\n\"ssn in ('a', 'b')\"\nnot sql at all (\n")
    asked = lake("advise", "lake", "--queries", "queries.log", *NAMED, "--format", "json")
    counted = {one["column"]: one["queries"] for one in asked.json}
    assert counted.pop("ssn") == 3
    assert not any(counted.values())
    shown = lake("advise", "lake", "--column", "ssn", "--queries", "queries.log", *NAMED)
    assert "1 line of the queries" in shown.err + shown.out
    assert lake("advise", "lake", "--column", "nope", *NAMED).code == 2
    assert not (folder / "lake" / "_bloomseal_index").exists()
