"""Attack: by whoever may write to the storage, on what lies around an encrypted table: other files in its place, keys
of another role under the same KMS, and metadata that an audit reads.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.audit import audit, may_destroy
from bloomseal.audit.report import Report
from bloomseal.cli.main import main
from bloomseal.keytools.kms_protocols import MasterKeyFacts
from bloomseal.policy import TablePolicy

Spec = Callable[..., bs.DecryptionSpec]


@pytest.fixture
def place(vectors: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(vectors / "tables" / "people16", tmp_path / "lake" / "people"))


def changed(place: Path, change: Callable[[Any], Any]) -> Path:
    newest = max((place / "metadata").glob("*.metadata.json"))
    document = json.loads(newest.read_text())
    change(document)
    newest.write_text(json.dumps(document))
    return place


def rules(report: Report) -> set[str]:
    return {one.rule.id for one in report.findings}


def policy(kms: Any) -> TablePolicy:
    return TablePolicy("people", kms, "master-main", iceberg=bs.IcebergSpec("master-main"))


def test_a_file_in_the_place_of_the_table(tmp_path: Path, keyring: bs.Keyring, spec: Spec) -> None:
    """Sealed under a key that the same KMS has, by a role that may use it."""
    place = tmp_path / "people"
    bs.write_table(pa.table({"ssn": ["x"]}), place, encryption=bs.EncryptionSpec("master-evil", keys=keyring))
    for read in (bs.read_table, bs.open_file, bs.open_table, bs.verify):
        with pytest.raises(bs.PolicyError, match=r"an encrypted.* is expected"):
            read(place, decryption=spec())
    with pytest.raises(bs.PolicyError, match=r"an encrypted.* is expected"):
        bs.probe(place, "ssn", ["x"], decryption=policy(keyring))


def test_spark_takes_nothing_else_for_the_expected_table(tmp_path: Path, keyring: bs.Keyring) -> None:
    pytest.importorskip("pyspark")
    from bloomseal.spark.source.options import SourceOptions

    options = SourceOptions((str(tmp_path),), table=policy(f"keyring:{keyring.path}"))
    with pytest.raises(bs.PolicyError, match="no Iceberg table, and an encrypted one is expected"):
        options.find_files()


def test_an_audit_sees_that_the_expected_table_is_none(tmp_path: Path, keyring: bs.Keyring) -> None:
    (tmp_path / "people").mkdir()
    sealing = TablePolicy("people", keyring, "master-main")
    bs.write_table(pa.table({"ssn": ["x"]}), tmp_path / "people" / "a.parquet", encryption=sealing)
    assert audit(tmp_path / "people", policy=sealing).ok is True
    report = audit(tmp_path / "people", policy=policy(keyring))
    assert report.ok is False
    assert rules(report) == {"BS504"}


@pytest.mark.parametrize(
    "keys", [[{"key-id": []}], [{"key-id": "a", "encrypted-by-id": {}}], [{"key-id": {}, "encrypted-by-id": "a"}]]
)
def test_keys_that_are_anything_end_no_audit(place: Path, keys: Any) -> None:
    assert "BS504" in rules(audit(changed(place, lambda document: document.update({"encryption-keys": keys}))))


def test_a_key_id_that_is_anything_ends_no_audit(place: Path) -> None:
    assert "BS504" in rules(audit(changed(place, lambda document: document["snapshots"][0].update({"key-id": [[]]}))))


@pytest.mark.parametrize("told", ["9" * 30, "-" + "9" * 30, "9" * 18, "-99999999999999", "9" * 5000])
def test_timestamps_of_keks_that_are_anything_end_no_audit(place: Path, told: str) -> None:
    def attack(document: Any) -> None:
        for one in document["encryption-keys"]:
            if "properties" in one:
                one["properties"]["KEY_TIMESTAMP"] = told

    assert "BS504" in rules(audit(changed(place, attack)))


@pytest.mark.parametrize("named", ["people", "."])
def test_a_data_file_in_clear_is_seen_from_any_folder(place: Path, named: str, keyring: bs.Keyring) -> None:
    file = min((place / "data").glob("*.parquet"))
    asked = place.parent if named == "." else place
    assert "BS502" not in rules(audit(asked))
    bs.write_table(pa.table({"ssn": ["x"]}), file)
    assert "BS502" in rules(audit(asked))
    # One column is sealed, all others and the footer are in clear.
    keys = bs.EncryptionSpec("master-evil", {"a": "master-evil"}, keys=keyring, plaintext_footer=True)
    bs.write_table(pa.table({"ssn": ["x"], "a": [1]}), file, encryption=keys)
    assert "BS502" in rules(audit(asked))


def test_a_manifest_list_in_clear_by_any_name(place: Path, vectors: Path) -> None:
    def attack(document: Any) -> None:
        document["snapshots"][-1]["manifest-list"] = f"{document['location']}/metadata/list"

    clear = next((vectors / "tables" / "hole_rest_clear" / "metadata").glob("snap-*.avro"))
    shutil.copy(clear, place / "metadata" / "list")
    assert "BS502" in rules(audit(changed(place, attack)))


@pytest.mark.parametrize("name", ["0.metadata.json", "x.avro"])
def test_a_file_that_nobody_can_read_hides_no_other(place: Path, keyring: bs.Keyring, name: str) -> None:
    with (place / "metadata" / name).open("wb") as file:
        file.truncate((1 << 30) + 1)
    (place / "metadata" / "z.avro").write_bytes(b"in clear")
    report = audit(place, policy=policy(keyring))
    assert "BS502" in rules(report)
    assert "BS504" not in rules(report)
    assert any(name in one for one in report.unseen)


def test_names_that_are_no_text_end_no_report(place: Path, tmp_path: Path) -> None:
    newest = max((place / "metadata").glob("*.metadata.json"))
    document = json.loads(newest.read_text())
    for one in document["encryption-keys"]:
        if "properties" in one:
            one["key-id"], one["properties"]["KEY_TIMESTAMP"] = "\ud800", "1000"
    document["snapshots"][0] |= {"snapshot-id": "\ud800", "key-id": None}
    (place / "metadata" / "00000-0.metadata.json").write_text(json.dumps(document))
    (place / "metadata" / "\udcff.avro").write_bytes(b"in clear")
    assert {"BS502", "BS504", "BS507"} <= rules(audit(place))
    for kind in ("findings", "parquet", "sarif", "html", "json", "cbom"):
        assert main(["audit", str(place), "--report", f"{kind}={tmp_path / kind}"]) == 1


def test_a_warning_hides_no_error(place: Path, keyring: bs.Keyring) -> None:
    changed(place, lambda document: document["properties"].update({"encryption.key-id": "master-evil"}))
    newest = max((place / "metadata").glob("*.metadata.json"))
    shutil.copy(newest, place / "metadata" / "00000-0.metadata.json")
    assert {"BS504", "BS505"} <= rules(audit(place, policy=policy(keyring)))


def test_a_kek_that_was_wrapped_anew_counts_under_both_keys(place: Path, keyring: bs.Keyring) -> None:
    def attack(document: Any) -> None:
        for one in document["encryption-keys"]:
            if one["encrypted-by-id"] == "master-main":
                one["encrypted-by-id"] = "master-long"

    changed(place, attack)
    for master in ("master-main", "master-long"):
        assert may_destroy(master, None, place, keys=keyring, after=0).answer == "no"


def test_the_keys_at_hand_open_the_table_of_a_policy_without_a_kms(
    place: Path, tmp_path: Path, keyring: bs.Keyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BLOOMSEAL_KEYRING", raising=False)
    (tmp_path / "policy.toml").write_text(
        'version = 1\n[tables.people]\nfooter_key = "master-main"\n[tables.people.iceberg]\nencryption_key = "master-main"\n'
    )
    report = audit(place, keys=keyring, policy=tmp_path / "policy.toml")
    assert report.ok is True
    assert not rules(report)


def test_a_kms_that_opens_no_keys_of_iceberg_is_no_flaw_of_the_table(place: Path, keyring: bs.Keyring) -> None:
    class TextKms:
        def wrap_key(self, key: bytes, master: str) -> str:
            return keyring.wrap_key(key, master)

        def unwrap_key(self, wrapped: str, master: str) -> bytes:
            return keyring.unwrap_key(wrapped, master)

    with pytest.raises(bs.UnsupportedError, match="opens no keys of Iceberg"):
        bs.open_table(place, decryption=bs.DecryptionSpec(TextKms(), iceberg=bs.IcebergSpec("master-main")))
    report = audit(place, policy=policy(TextKms()))
    assert "BS504" not in rules(report)
    assert report.ok is not True
    assert any("opens no keys of Iceberg" in one for one in report.unseen)


def test_a_master_key_by_which_anybody_wraps(place: Path, keyring: bs.Keyring) -> None:
    class PublicKms:
        wrap_key, unwrap_key, unwrap_bytes = keyring.wrap_key, keyring.unwrap_key, keyring.unwrap_bytes

        def describe(self, master: str, wrapped: str | None = None) -> MasterKeyFacts:  # noqa: ARG002
            return MasterKeyFacts(master, authenticates_writers=False)

        def opened_by(self, wrapped: str, master: str) -> None: ...

    tools = bs.KeyTools(PublicKms(), authentic_writers=True)
    with pytest.raises(bs.PolicyError, match="by a public key"):
        bs.open_table(place, decryption=bs.DecryptionSpec(tools, iceberg=bs.IcebergSpec("master-main")))


def test_a_wrapped_key_of_megabytes_is_sent_to_nobody(place: Path, spec: Spec) -> None:
    def attack(document: Any) -> None:
        for one in document["encryption-keys"]:
            one["encrypted-key-metadata"] = "A" * 4_000_000

    with pytest.raises(bs.FormatError, match="of 3000000 bytes"):
        bs.open_table(changed(place, attack), decryption=spec())


def test_a_snapshot_that_is_asked_for_is_never_none(place: Path, spec: Spec) -> None:
    with pytest.raises(bs.FormatError, match="no snapshot -1"):
        bs.open_table(place, decryption=spec(), version=-1)


@pytest.mark.parametrize("wrong", [{"metadata_hash": 5}, {"min_sequence_number": "3"}, {"min_sequence_number": True}])
def test_pins_of_another_type(wrong: dict[str, Any]) -> None:
    with pytest.raises(bs.UsageError, match="takes"):
        bs.IcebergSpec("master-main", **wrong)


# Plaintext metadata -------------------------------------------------------------------------------------------------


def plain(folder: Path, rows: int) -> Any:
    memory = pytest.importorskip("pyiceberg.catalog.memory")
    catalog = memory.InMemoryCatalog(folder.name, warehouse=f"file://{folder}")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", schema=pa.schema({"n": pa.int64()}))
    for row in range(rows):
        table.append(pa.table({"n": [row]}))
    return table


def write_list(table: Any, manifests: list[Any]) -> None:
    from pyiceberg.manifest import clear_manifest_cache, write_manifest_list

    clear_manifest_cache()
    one = table.current_snapshot()
    numbers = one.snapshot_id, one.parent_snapshot_id, one.sequence_number
    with write_manifest_list(2, table.io.new_output(one.manifest_list), *numbers, "deflate") as out:
        out.add_manifests(manifests)


def test_one_table_does_not_say_what_the_manifests_of_another_are(tmp_path: Path) -> None:
    """The library keeps what a list says of a manifest for the whole process."""
    from pyiceberg.manifest import ManifestContent

    honest, attacked = plain(tmp_path / "honest", 3), plain(tmp_path / "attacked", 1)
    named = honest.current_snapshot().manifests(honest.io)[0]
    named[3], named[4], named[5] = ManifestContent.DELETES, -5, -5
    write_list(attacked, [named])
    with pytest.raises(bs.UsageError, match="leads out of the table"):
        bs.open_table(tmp_path / "attacked/n/t")
    assert bs.open_table(tmp_path / "honest/n/t").read().num_rows == 3


def test_links_in_a_copied_table_name_no_manifest_twice(tmp_path: Path) -> None:
    table = plain(tmp_path / "there", 1)
    manifest = table.current_snapshot().manifests(table.io)[0]
    folder, name = os.path.split(manifest.manifest_path.removeprefix("file://"))
    copies = []
    for number in range(3):
        os.symlink(name, f"{folder}/{number}.avro")  # noqa: PTH211
        copies.append(type(manifest)(*manifest._data))
        copies[-1][0] = f"file://{folder}/{number}.avro"
    write_list(table, copies)
    (tmp_path / "there").rename(tmp_path / "here")
    with pytest.raises(bs.FormatError, match="names a manifest twice"):
        bs.open_table(tmp_path / "here/n/t")
