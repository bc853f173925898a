"""A folder of plaintext files by three writers → audited, sealed, looked up by every means, indexed, audited again."""

from __future__ import annotations

from pathlib import Path

import duckdb
import polars as pl
import pyarrow.dataset as ds

import bloomseal as bs
import bloomseal.duckdb
import bloomseal.polars

from .conftest import Shell, email, people


def test_an_existing_folder_is_sealed_and_looked_up(customers: Path, shell: Shell) -> None:
    before = ds.dataset(customers).to_table().sort_by("customer_id").to_pylist()
    personal = shell("audit customers --format json", code=4).json["looks_personal"]
    assert set(personal) == {"born", "email", "iban"}

    shell("policy init customers")
    shell("policy check --against customers")
    shell("keyring create --keyring keys.json footer pii payment")
    shell("seal customers POLICY --dry-run")
    shell("audit customers --policy policy.toml --fail-on error", code=1)
    shell("seal customers POLICY")
    shell("verify customers POLICY --strict --filters")
    shell("audit customers --policy policy.toml --deep")

    table = bs.Policy.load("policy.toml").for_table("customers", root="customers")
    assert bs.read_table("customers", decryption=table).sort_by("customer_id").to_pylist() == before
    assert [row["customer_id"] for row in shell.read("customers POLICY", email(314))] == [314]
    assert shell.read("customers POLICY", email(601)) == []
    shell("probe customers email POLICY", "person601@mail.example", code=1)
    lazy = bloomseal.polars.scan("customers", decryption=table).filter(pl.col("email") == "person599@mail.example")
    assert lazy.select("customer_id", "plan").collect().rows() == [(599, "free")]
    database = duckdb.connect()
    view = bloomseal.duckdb.register(database, "customers", "customers", decryption=table)
    assert database.sql("select count(*), count(iban) from customers").fetchall() == [(600, 450)]
    wanted = database.sql("select unnest(['person7@mail.example', 'nobody@mail.example'])")
    assert bloomseal.duckdb.lookup(database, view, "email", wanted).select("customer_id").fetchall() == [(7,)]

    shell("index build customers --column email POLICY")
    assert [row["customer_id"] for row in shell.read("customers POLICY --use-index require", email(0))] == [0]
    assert shell.read("customers POLICY --use-index require", email(601)) == []
    shell("index check customers --column email POLICY")
    shell("audit customers --policy policy.toml --deep")


def test_nothing_of_it_is_left_in_clear(sealed: Path, shell: Shell) -> None:
    values = [one.encode() for one in [*people(0, 600)["email"][::50], *filter(None, people(0, 600)["iban"][::7])]]
    left = [
        path for path in sealed.rglob("*") if path.is_file() and any(value in path.read_bytes() for value in values)
    ]
    assert left == []
    shell("read customers --limit 1", code=2)
    assert "email" not in shell("show customers --format json").out
