"""``policy=`` and ``table=`` in every call that opens or seals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bloomseal as bs
import bloomseal.duckdb
import bloomseal.polars
from bloomseal.rotation import Rekey, Rewrap, Seal, plan
from bloomseal.rotation.erase import erase

ROWS = pa.table({"id": [1, 2], "ssn": ["078-05-1120", "219-09-9999"]})
ONE = """\
version = 1
kms = "keyring:keys.json"
[tables.people]
footer_key = "footer"
aad_prefix = "{table}/{path}/"
store_aad_prefix = false
root = "people"
[tables.people.columns.ssn]
key = "pii"
filter = true
index = true
"""
OTHER = '\n[tables.visits]\nfooter_key = "pii"\n'


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    ring = bs.Keyring(tmp_path / "keys.json", create=True)
    for name in ("footer", "pii"):
        ring.create(name)
    (tmp_path / "one.toml").write_text(ONE)
    (tmp_path / "two.toml").write_text(ONE + OTHER)
    (tmp_path / "people").mkdir()
    monkeypatch.chdir(tmp_path)
    bs.write_table(ROWS, "people/a.parquet", policy="one.toml")
    return tmp_path


READS: dict[str, Callable[..., Any]] = {
    "open_file": lambda **by: bs.open_file("people/a.parquet", **by).read().num_rows,
    "read_file": lambda **by: bs.read_table("people/a.parquet", **by).num_rows,
    "read_table": lambda **by: bs.read_table("people", **by).num_rows,
    "open_table": lambda **by: bs.open_table("people", **by).read().num_rows,
    "probe_file": lambda **by: sum(
        one != "absent" for one in bs.probe("people/a.parquet", "ssn", ROWS["ssn"], **by)[0]
    ),
    "probe": lambda **by: sum(one != "absent" for one in bs.probe("people", "ssn", ROWS["ssn"], **by).popitem()[1][0]),
    "verify_file": lambda **by: 2 * bs.verify("people/a.parquet", **by).ok,
    "verify": lambda **by: 2 * bs.verify("people", **by).ok,
    "inspect": lambda **by: bs.inspect("people/a.parquet", **by).num_rows,
    "polars": lambda **by: bs.polars.scan("people", **by).collect().height,
    "duckdb": lambda **by: len(bs.duckdb.lookup(duckdb.connect(), "people", "ssn", ROWS["ssn"], **by).fetchall()),
    "attach": lambda **by: 2 * len(bs.attach_filters("people/a.parquet", ["id"], **by).filters),
    "attach_all": lambda **by: 2 * len(bs.attach_filters("people", ["id"], **by)),
    "index": lambda **by: bs.open_table("people").index("ssn", **by) and 2,
    "erase": lambda **by: erase("people", "id > 0", dry_run=True, **by).rows,
    "compact": lambda **by: bs.open_table("people", policy="one.toml").compact(dry_run=True, **by) and 2,
    "rewrap": lambda **by: len(bs.rewrap("people/a.parquet", dry_run=True, **by).keys) + 2,
    "rekey": lambda **by: 2 * bs.rekey("people/a.parquet", **by).row_groups,
    "unseal": lambda **by: 2 * bs.unseal_file("people/a.parquet", "plain.parquet", **by).row_groups,
}


@pytest.mark.parametrize("call", READS.values(), ids=READS)
def test_every_call_takes_a_policy_and_its_table(home: Path, call: Callable[..., Any]) -> None:
    assert call(policy="one.toml") == 2
    assert call(policy=home / "two.toml", table="people") == 2
    assert call(policy="two.toml") == 2  # known by the root
    assert call(policy=bs.Policy.load("two.toml")) == 2
    assert call(policy=bs.Policy.load("two.toml").for_table("people"), table="people") == 2
    with pytest.raises(bs.PolicyError, match="no table 'person'"):
        call(policy="two.toml", table="person")
    with pytest.raises(bs.UsageError, match="that of table people"):
        call(policy=bs.Policy.load("one.toml").for_table(), table="visits")
    with pytest.raises(bs.UsageError):
        call(table="people")
    with pytest.raises((TypeError, bs.UsageError)):
        call(pollicy="one.toml")


def test_specifications_and_policies_are_taken_by_one_name(home: Path) -> None:
    for given in ("one.toml", Path("one.toml"), bs.Policy.load("one.toml")):
        assert bs.read_table("people/a.parquet", decryption=given).equals(ROWS)
        bs.write_table(ROWS, "people/b.parquet", encryption=given)
        bs.rekey("people/b.parquet", decryption=given, encryption=given)
    # What opens the file is no secret of the policy, and what seals it is.
    bs.rekey(
        "people/b.parquet",
        decryption=bs.DecryptionSpec("keyring:keys.json", aad_prefix="people/b.parquet/"),
        policy="one.toml",
    )
    both: Any = {"decryption": bs.DecryptionSpec("keyring:keys.json"), "policy": "one.toml"}
    with pytest.raises(bs.UsageError, match="policy= says all"):
        bs.read_table("people", **both)
    with pytest.raises(bs.UsageError):
        bs.rekey("people/b.parquet", encryption="one.toml", **both)
    for wrong in (bs.EncryptionSpec(b"f" * 16), bs.ExplicitKeys(b"f" * 16)):
        with pytest.raises(bs.UsageError, match="decryption= takes"):
            bs.read_table("people", decryption=wrong)  # type: ignore[arg-type]
    with pytest.raises(bs.UsageError, match="a DecryptionSpec or a policy, not str") as caught:
        bs.read_table("people", decryption="keyring:keys.json")
    assert "DecryptionSpec(keys=" in str(caught.value.hint)


def test_writing_takes_them_too(home: Path) -> None:
    bs.write_dataset(ROWS, "people", mode="overwrite", policy="two.toml")
    assert bs.read_table("people", policy="one.toml").equals(ROWS)
    with bs.SealedWriter(
        "people/c.parquet", ROWS.schema, policy="two.toml", table="people", compression="zstd"
    ) as writer:
        writer.write_table(ROWS)
    pq.write_table(ROWS, "people/plain.parquet")
    bs.seal_file("people/plain.parquet", policy="one.toml")
    assert bs.read_table("people", policy="one.toml").num_rows == 6
    with pytest.raises(bs.UsageError, match="encryption="):
        bs.seal_file("people/plain.parquet")
    with pytest.raises(bs.UsageError, match="several"):
        bs.write_table(ROWS, "elsewhere.parquet", policy="two.toml")
    assert not Path("elsewhere.parquet").exists()


def test_jobs_of_many_files_take_them(home: Path) -> None:
    policy = bs.Policy.load("one.toml")
    for job in (Rewrap("one.toml"), Rekey(policy), Rekey(policy, Path("one.toml")), Seal("one.toml")):
        assert plan("people", job).ok
    with pytest.raises(bs.UsageError, match="several"):
        Rewrap("two.toml")
