"""A partner gets some columns of some rows, under keys of their own; neither side opens the other's files."""

from __future__ import annotations

from pathlib import Path

import pytest

import bloomseal as bs

from .conftest import Shell, email, people

PARTNER = """
version = 1
kms = "keyring:partner.json"
[tables.shared]
footer_key = "partner-footer"
complete = true
aad_prefix = "{table}/{path}/"
store_aad_prefix = false
[tables.shared.columns.email]
key = "partner-pii"
sensitivity = "confidential"
filter = true
"""


def test_a_partner_gets_a_copy(sealed: Path, folder: Path, shell: Shell) -> None:
    (folder / "partner.toml").write_text(PARTNER, encoding="utf-8")
    shell("keyring create --keyring partner.json partner-footer partner-pii")
    ours = bs.Policy.load("policy.toml").for_table("customers", root="customers")
    theirs = bs.Policy.load("partner.toml").for_table("shared", root="shared")
    rows = bs.open_table("customers", decryption=ours).scan(["customer_id", "email"], [("plan", "==", "pro")])
    report = bs.write_dataset(rows, "shared", encryption=theirs)
    assert report.rows == 200

    partner = "shared --policy partner.toml --table shared"
    assert shell.read(partner, email(300)) == [{"customer_id": 300, "email": "person300@mail.example"}]
    assert shell.read(partner, email(301)) == []  # of another plan
    shell(f"verify {partner} --strict --filters")
    shell("audit shared --policy partner.toml --deep")
    # Neither keyring serves the other's files, by whatever policy.
    shell("read shared --policy partner.toml --table shared --keyring keys.json --limit 1", code=2)
    shell("read customers POLICY --keyring partner.json --limit 1", code=2)
    with pytest.raises(bs.BloomsealError):
        bs.read_table("shared", decryption=bs.DecryptionSpec(keys=bs.Keyring("keys.json"), aad_prefix="shared/"))
    everywhere = b"".join(path.read_bytes() for path in (folder / "shared").rglob("*") if path.is_file())
    assert not [value for value in people(0, 600)["email"] if value.encode() in everywhere]
    # A file that leaves its place opens nowhere else.
    part = next((folder / "shared").glob("*.parquet"))
    part.rename(folder / "shared" / f"other-{part.name}")
    shell(f"read {partner} --limit 1", code=2)
