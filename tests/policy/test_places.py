"""What a policy file says of places: the folders of its tables, and the keyring beside it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pytest

import bloomseal as bs

ROWS = pa.table({"ssn": ["078-05-1120", "219-09-9999"], "day": [1, 2]})
DOCUMENT = """\
version = 1
kms = "keyring:keys.json"
[defaults]
aad_prefix = "{table}/{path}/"
store_aad_prefix = false
[tables.people]
footer_key = "footer"
root = "lake/people"
partition_by = ["day"]
[tables.visits]
footer_key = "footer"
root = "lake/people/visits"
partition_by = ["day"]
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a policy, which is not the working folder."""
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    bs.Keyring(home / "keys.json", create=True).create("footer")
    (home / "policy.toml").write_text(DOCUMENT)
    monkeypatch.chdir(elsewhere)
    return home


def test_a_part_of_a_table_and_a_single_file_are_known_by_the_tables_root(home: Path) -> None:
    policy = bs.Policy.load(home / "policy.toml")
    root = home / "lake" / "people"
    bs.write_dataset(ROWS, root, partition_by=["day"], encryption=policy.for_table("people"))
    part = root / "day=1"
    people = policy.for_table(place=part)
    assert people.name == "people"
    assert bs.read_table(part, decryption=people)["ssn"].to_pylist() == ["078-05-1120"]
    (file,) = part.glob("*.parquet")
    assert bs.read_table(file, decryption=policy.for_table(place=file)).num_rows == 1
    assert policy.for_table(place=[root / "visits" / "day=1"]).name == "visits"  # the innermost


def test_a_file_in_another_part_does_not_open_though_that_part_is_named(home: Path) -> None:
    policy = bs.Policy.load(home / "policy.toml")
    root = home / "lake" / "people"
    bs.write_dataset(ROWS, root, partition_by=["day"], encryption=policy.for_table("people"))
    (file,) = (root / "day=1").glob("*.parquet")
    shutil.move(file, root / "day=2" / file.name)
    with pytest.raises(bs.IntegrityError):
        bs.read_table(root / "day=2", decryption=policy.for_table(place=root / "day=2"))


def test_a_copy_elsewhere_needs_its_root_said(home: Path, tmp_path: Path) -> None:
    policy = bs.Policy.load(home / "policy.toml")
    (home / "lake/people").mkdir(parents=True)
    bs.write_table(ROWS, home / "lake/people/a.parquet", encryption=policy.for_table("people"))
    shutil.copytree(home / "lake/people", tmp_path / "backup")
    with pytest.raises(bs.PolicyError, match="not in the folder of table people") as caught:
        bs.read_table(tmp_path / "backup", decryption=policy.for_table("people"))
    assert "root=" in str(caught.value.hint)
    restored = policy.for_table("people", root=tmp_path / "backup")
    assert bs.read_table(tmp_path / "backup", decryption=restored).equals(ROWS)


def test_of_several_tables_one_is_named_or_known_by_its_root(home: Path) -> None:
    policy = bs.Policy.load(home / "policy.toml")
    for place in ((), home, [home / "lake/people", home / "lake/people/visits"], b"bytes", "s3-like/lake/people"):
        with pytest.raises(bs.UsageError, match="it has several: people, visits") as caught:
            policy.for_table(place=place)
        assert "table=" in str(caught.value.hint)
    # A path of a store is in no local root, whatever the working folder is.
    store = pafs.SubTreeFileSystem(str(home), pafs.LocalFileSystem())
    with pytest.raises(bs.UsageError, match="several"):
        policy.for_table(place=str(home / "lake/people"), filesystem=store)


def test_the_only_table_needs_no_name(home: Path) -> None:
    policy = bs.Policy.from_dict({"version": 1, "tables": {"people": {"footer_key": "footer"}}})
    assert policy.for_table().name == "people"
    with pytest.raises(bs.UsageError, match="several: none"):
        bs.Policy.from_dict({"version": 1}).for_table()


def test_a_root_may_be_absolute_or_a_uri(home: Path) -> None:
    text = DOCUMENT.replace('"lake/people"', f'"{home}/lake/people"').replace(
        '"lake/people/visits"', '"file:///visits"'
    )
    (home / "policy.toml").write_text(text)
    tables = bs.Policy.load(home / "policy.toml").tables
    assert (tables["people"].root, tables["visits"].root) == (f"{home}/lake/people", "/visits")


def test_the_keyring_counts_from_the_policy(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bs.Policy.load(home / "policy.toml").tables["people"].kms == f"keyring://{home}/keys.json"
    monkeypatch.chdir(home)
    assert bs.Policy.load("policy.toml").tables["people"].kms == f"keyring://{home}/keys.json"


@pytest.mark.parametrize("beside", [True, False])
def test_another_keyring_in_the_working_folder_is_refused_not_chosen(home: Path, beside: bool) -> None:
    bs.Keyring("keys.json", create=True).create("footer")
    if not beside:
        (home / "keys.json").unlink()
    with pytest.raises(bs.PolicyError, match="counts from the policy's folder") as caught:
        bs.Policy.load(home / "policy.toml")
    assert f"keyring://{home}/keys.json" in str(caught.value.hint)
    assert bs.Policy.load(home / "policy.toml", kms=bs.Keyring("keys.json")).tables
    Path("keys.json").unlink()
    assert bs.Policy.load(home / "policy.toml").tables  # whether there is one, whoever asks it for keys is told


def test_an_audit_knows_a_file_by_its_tables_root(home: Path, tmp_path: Path) -> None:
    from bloomseal.audit import audit

    policy = bs.Policy.load(home / "policy.toml")
    root = home / "lake" / "people"
    bs.write_dataset(ROWS, root, partition_by=["day"], encryption=policy.for_table("people"))
    root.rename(home / "lake" / "moved")
    # By no root, and not by a name either: nobody claims them.
    assert any("no table of the policy claims" in text for text in audit(home / "lake" / "moved", policy=policy).unseen)
    text = DOCUMENT.replace('"lake/people"', '"lake/moved"')
    (home / "policy.toml").write_text(text)
    assert audit(home / "lake" / "moved", policy=home / "policy.toml").ok
    # A copy by its name is a table of its own, whose paths count from itself.
    shutil.copytree(home / "lake" / "moved", tmp_path / "people")
    report = audit(tmp_path / "people", policy=home / "policy.toml")
    assert not report.unseen
    assert report.ok
