"""A collector writes people into a table that it can't read, under its own signature. The reader's side does everything
else, and signs what it changes.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bloomseal as bs
from bloomseal.audit import audit
from bloomseal.rotation import Rekey, Rewrap, rotate
from journeys.conftest import Shell

POLICY = """
version = 1
{kms}
[keys.pii]
recipients = {recipients}
[tables.people]
root = "people"
footer_key = "pii"
complete = true
columns.ssn = {{ key = "pii", filter = true, index = true }}
signers = {signers}
"""


def rows(first: int, number: int) -> pa.Table:
    return pa.table(
        {"ssn": [f"{i:03}-45-6789" for i in range(first, first + number)], "n": range(first, first + number)}
    )


def ssn(number: int) -> str:
    return f"ssn = '{number:03}-45-6789'"


@pytest.fixture
def people(folder: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Policies of writer, reader, and of a reader who comes later; three files that the collector has written."""
    for ring, name, kind in (
        ("reader", "pii", "hpke"), ("later", "pii", "hpke"), ("collector", "me", "ed25519"),
        ("operator", "me", "ed25519"),
    ):  # fmt: skip
        shell(f"keyring create --keyring {ring}.json --kind {kind} {name}")
    lines = {ring: shell(f"keyring recipient --keyring {ring}.json pii").out.strip() for ring in ("reader", "later")}
    signers = [
        f'{who} = "{shell(f"keyring signer --keyring {who}.json me").out.strip()}"' for who in ("collector", "operator")
    ]
    for policy, kms, recipients in (
        ("writer", None, ["reader"]), ("reader", "reader", ["reader"]), ("both", "reader", ["reader", "later"]),
        ("later", "later", ["reader", "later"]),
    ):  # fmt: skip
        text = POLICY.format(
            kms=f'kms = "keyring:{kms}.json"' if kms else "", recipients=json.dumps([lines[one] for one in recipients]),
            signers="{" + ", ".join(signers) + "}",
        )  # fmt: skip
        Path(f"{policy}.toml").write_text(text)
    signs(monkeypatch, "collector")
    for number in range(3):
        bs.write_dataset(rows(10 * number, 10), "people", policy="writer.toml", mode="append")
    monkeypatch.delenv("BLOOMSEAL_SIGNER")
    return folder / "people"


def signs(monkeypatch: pytest.MonkeyPatch, who: str) -> None:
    monkeypatch.setenv("BLOOMSEAL_SIGNER", f"keyring:{who}.json#me")


def signers_of(people: Path, policy: str) -> set[str | None]:
    found = set()
    for path in people.glob("*.parquet"):
        with bs.open_file(path, policy=policy) as file:
            report = file.verify()
            assert report.ok
            assert report.complete
            found.add(report.signed_by)
    return found


def read(policy: str, **options: Any) -> int:
    return bs.read_table("people", policy=policy, **options).num_rows


def test_who_writes_reads_nothing_and_who_reads_signs_nothing_by_himself(people: Path) -> None:
    for ask in (
        lambda: read("writer.toml"),
        lambda: bs.probe("people", "ssn", ["005-45-6789"], policy="writer.toml"),
        lambda: bs.open_table("people", policy="writer.toml").read(where=ssn(5)),
    ):
        with pytest.raises(bs.KeyAccessError, match="only writes"):
            ask()
    assert not bs.verify("people", policy="writer.toml").ok
    assert read("reader.toml") == 30
    found = bs.probe("people", "ssn", ["005-45-6789"], policy="reader.toml")
    assert [group[0] for groups in found.values() for group in groups].count(bs.Verdict.MAYBE_PRESENT) == 1
    assert signers_of(people, "reader.toml") == {"collector"}
    for change in (
        lambda: bs.write_dataset(rows(90, 1), "people", policy="writer.toml", mode="append"),
        lambda: bs.open_table("people", policy="reader.toml").index("ssn").build(),
        lambda: rotate("people", Rewrap(bs.Policy.load("both.toml").for_table())),
    ):
        with pytest.raises(bs.PolicyError, match="no key to sign with"):
            change()


def test_what_the_reader_s_side_does_with_the_table(
    people: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    signs(monkeypatch, "operator")
    assert bs.open_table("people", policy="reader.toml").index("ssn").build().covered == 3
    look_up = {"where": ssn(15), "use_index": "require"}
    assert read("reader.toml", **look_up) == 1

    both = bs.Policy.load("both.toml").for_table()
    report = rotate("people", Rewrap(both))
    data = [one for one in report.files if "_bloomseal_index" not in one.path]
    assert [(str(one.status), one.signed_by) for one in data] == [("rewrapped", "operator")] * 3
    assert read("later.toml", where=ssn(15), use_index="never") == 1
    assert read("both.toml", **look_up) == 1, "the index is as it was"
    assert signers_of(people, "later.toml") == {"operator"}

    assert rotate("people", Rekey(both)).ok
    shell("erase people --policy both.toml", "--where", "n = 3")
    signs(monkeypatch, "collector")
    bs.write_dataset(rows(30, 10), "people", policy="writer.toml", mode="append")
    table = bs.open_table("people", policy="both.toml", use_index="require")
    with pytest.raises(bs.UsageError, match="1 file covered by none"):
        table.read(where=ssn(35))
    signs(monkeypatch, "operator")
    assert bs.open_table("people", policy="both.toml").compact().ok
    assert bs.open_table("people", policy="both.toml").index("ssn").update().covered == 1
    assert [read("both.toml", where=ssn(number), use_index="require") for number in (3, 15, 35)] == [0, 1, 1]
    assert signers_of(people, "both.toml") == {"operator"}
    report = audit("people", policy="both.toml")
    assert (report.findings, report.unseen) == ([], [])
    assert read("both.toml") == 39


def test_files_that_nobody_signed_are_signed_by_who_has_opened_them(
    people: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in people.glob("_SIGNATURE_*"):
        path.unlink()
    assert "BS317" in {one.rule.id for one in audit("people", policy="reader.toml").findings}
    signs(monkeypatch, "operator")
    shell("sign people --policy writer.toml", code=1)  # who can't open them answers for nothing
    with pytest.raises(bs.PolicyError, match="nobody signed"):
        read("reader.toml")
    shell("sign people --policy reader.toml")
    assert signers_of(people, "reader.toml") == {"operator"}
    pq.write_table(rows(30, 5), people / "plain.parquet")
    shell("seal people/plain.parquet --policy writer.toml")
    assert read("reader.toml") == 35
    assert shell("head people --policy reader.toml --columns n --format json").rows
    assert shell("count people --policy reader.toml").out.split()[0] == "35"


def test_orc_files_are_repaired_for_no_recipients(people: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their keys are local ones, which no public key wraps, and their tails are signed by nobody."""
    signs(monkeypatch, "operator")
    vector = Path(__file__).parents[1] / "vectors/orc/encrypted.orc"
    shutil.copy(vector, people / "a.orc")
    told = shell("repair people --policy reader.toml --allow-ctr --format json", code=1)
    why = {Path(one["path"]).suffix: one["why"] for one in told.json["files"]}
    assert "ORC" in why[".orc"]
    assert "only filters of ORC files" in why[".parquet"]
    assert (people / "a.orc").read_bytes() == vector.read_bytes()
    with pytest.raises(bs.PolicyError, match="ORC"):
        bs.read_table(people / "a.orc", policy="reader.toml")
