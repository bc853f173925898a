"""A table grows by a file a day, and its index with it; no day's rows are missed before the index knows them."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from .conftest import Shell, email, people

DAYS = 5


def test_a_table_grows_by_the_day(folder: Path, shell: Shell) -> None:
    (folder / "customers" / "day=2026-01-01").mkdir(parents=True)
    pl.DataFrame(people(0, 100)).write_parquet(folder / "customers" / "day=2026-01-01" / "first.parquet")
    for command in shell("policy init customers --format json").json["next"]:
        shell(command.removeprefix("bloomseal "))
    shell("index build customers --column email POLICY")
    for day in range(1, DAYS + 1):
        rows = people(day * 100, 100)
        pl.DataFrame(rows | {"day": [f"2026-01-{day + 1:02}"] * 100}).write_csv("today.csv")
        shell("write today.csv customers --partition-by day --mode append POLICY")
        # Not in the index yet, and found all the same.
        assert [row["customer_id"] for row in shell.read("customers POLICY", email(day * 100))] == [day * 100]
        shell("read customers --use-index require POLICY", "--where", email(0), code=2)
        shell("index update customers --column email POLICY")
        assert len(shell.read("customers --use-index require POLICY", email(day * 100 + 99))) == 1

    shell("index compact customers --column email POLICY")
    shell("index check customers --column email POLICY")
    for number in range(0, 100 * (DAYS + 1), 97):
        found = shell.read("customers --use-index require POLICY", email(number))
        assert [(row["customer_id"], row["day"]) for row in found] == [(number, f"2026-01-{number // 100 + 1:02}")]
    assert shell.read("customers --use-index require POLICY", email(100 * (DAYS + 1))) == []

    # A day is dropped, as retention wants it.
    for path in (folder / "customers" / "day=2026-01-02").iterdir():
        path.unlink()
    assert shell.read("customers POLICY", email(150)) == []
    assert len(shell.read("customers POLICY", email(250))) == 1
    shell("index update customers --column email POLICY")
    shell("audit customers --policy policy.toml")
