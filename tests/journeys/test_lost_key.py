"""The key of one column is lost for good: everything else is read, told apart, and carried over."""

from __future__ import annotations

from pathlib import Path

import pytest

import bloomseal as bs

from .conftest import Shell, email


def test_a_lost_key_costs_its_own_column(sealed: Path, folder: Path, shell: Shell) -> None:
    shell("keyring destroy --keyring keys.json payment --without-evidence --yes")

    refused = shell("read customers POLICY --format json", "--where", email(7), code=2)
    assert '"column": "iban"' in refused.err
    assert shell.read("customers POLICY --columns customer_id,plan", email(7)) == [{"customer_id": 7, "plan": "free"}]
    shell("read customers POLICY --columns plan", "--where", "iban is null", code=2)  # no guess about its rows
    shell("read customers POLICY --columns-without-key null", "--where", "iban is null", code=2)
    (nulls,) = shell.read("customers POLICY --columns-without-key null", email(7))
    (dropped,) = shell.read("customers POLICY --columns-without-key drop", email(7))
    assert (nulls.pop("iban"), nulls, dropped["customer_id"]) == (None, dropped, 7)
    shell("probe customers email POLICY", "person601@mail.example", code=1)
    shell("doctor --policy policy.toml", code=1)
    shell("audit customers --policy policy.toml", code=1)
    verified = shell("verify customers POLICY --format json").out
    assert "iban" in verified  # named as not opened
    shell("verify customers POLICY --strict", code=1)

    # What is left goes to a new table, under a policy without the column.
    table = bs.Policy.load("policy.toml").for_table("customers", root="customers")
    with pytest.raises(bs.KeyAccessError, match="iban"):
        bs.read_table("customers", decryption=table)
    policy = (folder / "policy.toml").read_text(encoding="utf-8")
    before, _, after = policy.partition("[tables.customers.columns.iban]")
    left = before + after[after.index("[tables.") :]
    (folder / "left.toml").write_text(left.replace("tables.customers", "tables.left"), encoding="utf-8")
    shell("policy check left.toml")
    target = bs.Policy.load("left.toml").for_table("left", root="left")
    rest = bs.open_table("customers", decryption=table, columns_without_key="drop").scan()
    assert bs.write_dataset(rest, "left", encryption=target).rows == 600
    assert bs.read_table("left", decryption=target).column_names == ["customer_id", "email", "born", "plan"]
    shell("audit left --policy left.toml --deep")
