"""May a master key version be destroyed under which KEKs of an encrypted Iceberg table are, or were?"""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import bloomseal as bs
from bloomseal.audit import may_destroy
from bloomseal.audit.destruction.answer import Destruction
from bloomseal.policy import TablePolicy

Change = Callable[[Any], None]


@pytest.fixture
def ring(keyring: bs.Keyring, tmp_path: Path) -> bs.Keyring:
    """The vectors' keys; `master-main` has a second version."""
    copied = bs.Keyring(shutil.copy(keyring.path, tmp_path / "keys.json"))
    copied.rotate("master-main")
    return copied


def master(ring: bs.Keyring, version: int, name: str = "master-main") -> bytes:
    found: str = json.loads(ring.path.read_text())["keys"][name][version - 1]["key"]
    return base64.b64decode(found)


def of_table(place: Path) -> list[Path]:
    return sorted(place.glob("metadata/*.metadata.json"))


def change(path: Path, what: Change) -> None:
    document = json.loads(path.read_text())
    what(document)
    path.write_text(json.dumps(document))


def wrapped_by(old: bytes, new: bytes) -> Change:
    """As an engine would wrap the KEKs anew."""

    def rewrap(document: Any) -> None:
        for one in document["encryption-keys"]:
            if one["encrypted-by-id"] == "master-main":
                blob = base64.b64decode(one["encrypted-key-metadata"])
                nonce = blob[:12]
                kek = AESGCM(old).decrypt(blob[:12], blob[12:], b"")
                one["encrypted-key-metadata"] = base64.b64encode(nonce + AESGCM(new).encrypt(nonce, kek, b"")).decode()

    return rewrap


@pytest.fixture
def table(vectors: Path, ring: bs.Keyring, tmp_path: Path) -> Path:
    return rewrapped(vectors / "tables" / "people16", ring, tmp_path)


def rewrapped(table: Path, ring: bs.Keyring, folder: Path) -> Path:
    """A table whose KEKs are all under version 2."""
    place = Path(shutil.copytree(table, folder / table.name))
    for path in of_table(place):
        if "encryption-keys" in json.loads(path.read_text()):
            change(path, wrapped_by(master(ring, 1), master(ring, 2)))
    return place


def asked(table: Path, ring: bs.Keyring, version: str | None = "1", **more: Any) -> Destruction:
    policy = TablePolicy("t", ring, "master-main", iceberg=bs.IcebergSpec("master-main", **more))
    return may_destroy("master-main", version, table, policy=policy, after=0)


def test_yes_where_everything_was_seen(table: Path, ring: bs.Keyring) -> None:
    answer = asked(table, ring, min_sequence_number=3)
    assert answer.answer == "yes", answer.reasons
    assert (answer.files, answer.snapshots, answer.under) == (9, 3, ["master-main:2"])
    assert answer.keys == 9 + 1  # each data file's, by its KEK; and the KEK
    assert any("only a catalog knows" in one and "4 files with 1 KEK" in one for one in answer.not_looked_at)
    assert asked(table, ring, "2").answer == "no"
    assert asked(table, ring, None).answer == "no"


@pytest.mark.parametrize("name", ["avro16", "dv16", "eqdel16", "parts16"])
def test_yes_of_tables_with_other_files(vectors: Path, ring: bs.Keyring, tmp_path: Path, name: str) -> None:
    place = rewrapped(vectors / "tables" / name, ring, tmp_path)
    answer = asked(place, ring)
    assert answer.answer == "yes", answer.reasons
    assert asked(vectors / "tables" / name, ring).answer == "no"
    next(path for path in place.rglob("*") if path.suffix in (".avro", ".puffin", ".parquet")).unlink()
    assert asked(place, ring).answer == "unknown"


def test_a_disabled_version_is_tried_too(table: Path, ring: bs.Keyring, vectors: Path) -> None:
    ring.disable("master-main", 1)
    assert asked(table, ring).answer == "yes"
    assert asked(vectors / "tables" / "people16", ring).answer == "no"


def test_one_older_metadata_file_is_enough(table: Path, ring: bs.Keyring) -> None:
    path = of_table(table)[1]
    change(path, wrapped_by(master(ring, 2), master(ring, 1)))
    answer = asked(table, ring)
    assert (answer.answer, answer.needed_by) == ("no", [str(path)])
    assert "a KEK is under master-main, version 1" in str(answer.reasons[0])


def key_of(document: Any, name: str) -> Any:
    return next(
        one for one in document["encryption-keys"] if (one["encrypted-by-id"] == "master-main") == (name == "kek")
    )


def hidden_kek(document: Any) -> None:
    """Attack: an entry of the master key's name, so that the KEK seems to hang from that one."""
    fake = {**key_of(document, "list"), "key-id": "master-main", "encrypted-by-id": key_of(document, "kek")["key-id"]}
    document["encryption-keys"].append(fake)


def without_keks(document: Any) -> None:
    document["encryption-keys"].remove(key_of(document, "kek"))


def unknown_master(document: Any) -> None:
    key_of(document, "kek")["encrypted-by-id"] = "nobody's"


def altered_kek(document: Any) -> None:
    key_of(document, "kek")["encrypted-key-metadata"] = base64.b64encode(os.urandom(44)).decode()


def logged_elsewhere(document: Any) -> None:
    document["metadata-log"].append(
        {"metadata-file": document["location"] + "/other/v0.metadata.json", "timestamp-ms": 0}
    )


@pytest.mark.parametrize("attack", [without_keks, unknown_master, altered_kek, logged_elsewhere])
@pytest.mark.parametrize("number", [1, -1])
def test_no_yes_where_something_was_not_seen(table: Path, ring: bs.Keyring, number: int, attack: Change) -> None:
    change(of_table(table)[number], attack)
    answer = asked(table, ring)
    assert answer.answer == "unknown", (attack, answer.reasons)


def test_keks_without_end(table: Path, ring: bs.Keyring) -> None:
    """Attack: the KMS is to be asked about as many as fit into the metadata."""

    def attack(document: Any) -> None:
        kek = key_of(document, "kek")
        document["encryption-keys"] += [{**kek, "key-id": f"{number}"} for number in range(1001)]

    change(of_table(table)[-1], attack)
    answer = asked(table, ring)
    assert answer.answer == "unknown"
    assert "the limit is 1000" in " ".join(answer.doubts)


def test_a_kek_is_not_hidden_by_names(vectors: Path, table: Path, ring: bs.Keyring) -> None:
    path = of_table(table)[-1]
    change(path, wrapped_by(master(ring, 2), master(ring, 1)))
    change(path, hidden_kek)
    assert asked(table, ring).answer == "no"


def test_files_that_nobody_can_tie_to_a_kek(table: Path, ring: bs.Keyring, vectors: Path) -> None:
    strange = next((vectors / "tables" / "parts16").rglob("*.parquet"))
    shutil.copy(strange, table / "data" / "left.parquet")
    answer = asked(table, ring)
    assert answer.answer == "unknown"
    assert "left.parquet: its key goes by no id" in " ".join(answer.doubts)
    (table / "data" / "left.parquet").unlink()
    shutil.copy(next(table.glob("metadata/snap-*.avro")), table / "metadata" / "left.avro")
    answer = asked(table, ring)
    assert answer.answer == "unknown"
    assert "left.avro: a sealed file that no snapshot names" in " ".join(answer.doubts)


def test_metadata_that_nobody_can_read(table: Path, ring: bs.Keyring) -> None:
    of_table(table)[1].write_text("[")
    assert asked(table, ring).answer == "unknown"


def test_no_keys_no_yes(table: Path, ring: bs.Keyring) -> None:
    """Without the policy nothing says which master key the table must have; without a KMS nobody opens a KEK."""
    assert may_destroy("master-main", "1", table, keys=ring, after=0).answer == "unknown"
    assert may_destroy("master-main", "1", table, after=0).answer == "unknown"
    assert asked(table, ring, min_sequence_number=4).answer == "unknown"
    foreign = TablePolicy("t", ring, "master-main", iceberg=bs.IcebergSpec("master-evil"))
    assert may_destroy("master-main", "1", table, policy=foreign, after=0).answer == "unknown"


def test_an_expired_snapshot(table: Path, ring: bs.Keyring) -> None:
    """The engine has removed its list; older metadata name it still. Its manifests and files are in later ones."""
    newest = of_table(table)[-1]
    first = json.loads(newest.read_text())["snapshots"][0]

    def expire(document: Any) -> None:
        document["snapshots"].remove(first)

    change(newest, expire)
    (table / "metadata" / first["manifest-list"].rpartition("/")[2]).unlink()
    answer = asked(table, ring)
    assert answer.answer == "yes", answer.reasons
    assert answer.snapshots == 2
    assert len(answer.missing) >= 1


def test_a_current_snapshot_without_its_list(table: Path, ring: bs.Keyring) -> None:
    newest = json.loads(of_table(table)[-1].read_text())
    (table / "metadata" / newest["snapshots"][0]["manifest-list"].rpartition("/")[2]).unlink()
    assert asked(table, ring).answer == "unknown"


def test_another_master_key_in_older_metadata(table: Path, ring: bs.Keyring) -> None:
    """The property was changed since: what hangs from the former master key needs that one, and that one alone."""
    old = master(ring, 1, "master-evil")

    def foreign(document: Any) -> None:
        wrapped_by(master(ring, 2), old)(document)
        for one in document["encryption-keys"]:
            one["encrypted-by-id"] = one["encrypted-by-id"].replace("master-main", "master-evil")
        document["properties"]["encryption.key-id"] = "master-evil"

    change(of_table(table)[1], foreign)
    assert asked(table, ring).answer == "yes"
    policy = TablePolicy("t", ring, "master-main", iceberg=bs.IcebergSpec("master-main"))
    ring.rotate("master-evil")
    assert may_destroy("master-evil", "1", table, policy=policy, after=0).answer == "no"
