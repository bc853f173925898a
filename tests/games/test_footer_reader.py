"""Who may unwrap under the footer's master key, not wrap, and writes to the storage: he reads, and gives no orders to
those who write the table.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

import bloomseal as bs
from bloomseal.core.encryption import SecretKey
from bloomseal.core.keys.wrapping import wrap_locally
from bloomseal.core.parquet.footer import peek
from bloomseal.core.storage.source import Source
from bloomseal.keytools import KmsAccessError, Problem
from games.world import NAME, KeyHolder, Rights, World, world

pytest.importorskip("pyspark")

from bloomseal.spark.source.commit.placing import TEMPORARY, TableFolder, recover

JOB = "0" * 32
BODY = json.dumps({"files": [], "replaced": [f"tenant=b/{NAME}"]}).encode()


def digest() -> bytes:
    return hashlib.sha256(json.dumps(["bloomseal plan of a commit", "people", JOB]).encode() + b"\n" + BODY).digest()


class MayRead(Rights):
    """Unwraps, and wraps nothing."""

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:  # noqa: ARG002
        raise KmsAccessError.because(Problem.DENIED, master_key_identifier)


def tag_under_a_files_footer_key(me: KeyHolder) -> dict[str, Any]:
    """As plans were tagged once: by a key derived from whatever key the KMS has wrapped under the footer's."""
    metadata = peek(Source.memory(me.file().read_bytes())).key_metadata
    derived = HKDF(SHA256(), 32, None, b"bloomseal plan of a commit").derive(me.key(metadata, None).reveal())
    tag = hmac.digest(derived, JOB.encode() + b"\x00" + BODY, "sha256").hex()
    return {"version": 2, "key": metadata.decode(), "tag": tag}


def a_wrapped_key_of_a_file(me: KeyHolder) -> dict[str, Any]:
    material = json.loads(peek(Source.memory(me.file().read_bytes())).key_metadata)
    return {"version": 3, "master_key": "footer", "wrapped": material.get("wrappedKEK") or material["wrappedDEK"]}


def wrapped_under_a_kek_of_a_file(me: KeyHolder) -> dict[str, Any]:
    """He knows the key encryption keys of the files that he reads, and wraps under them what he likes."""
    material = json.loads(peek(Source.memory(me.file().read_bytes())).key_metadata)
    wrapped = material["wrappedDEK"]
    if "wrappedKEK" in material:
        kek = SecretKey(me.kms.unwrap_key(material["wrappedKEK"], "footer"))
        wrapped = wrap_locally(SecretKey(digest()), kek, base64.b64decode(material["keyEncryptionKeyID"]))
    return {"version": 3, "master_key": "footer", "wrapped": wrapped, **material, "keyMaterialType": "PKMT1"}


def under_another_master_key(me: KeyHolder) -> dict[str, Any]:
    """One under which he may wrap."""
    return {
        "version": 3,
        "master_key": "health",
        "wrapped": Rights(me.kms._ring, {"health"}).wrap_key(digest(), "health"),
    }


ATTACKS = [
    tag_under_a_files_footer_key,
    a_wrapped_key_of_a_file,
    wrapped_under_a_kek_of_a_file,
    under_another_master_key,
]


def table(here: World) -> Any:
    kms = f"keyring://{here.ring.path}"
    tables = {"people": {"footer_key": "footer", "columns": {"ssn": {"key": "pii"}, "illness": {"key": "health"}}}}
    return bs.Policy.from_dict({"version": 1, "kms": kms, "tables": tables}).for_table("people")


@pytest.mark.parametrize("double", [True, False], ids=["double", "single"])
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_no_reader_orders_files_removed(tmp_path: Path, attack: Any, double: bool) -> None:
    """A plan in the table's folder: the next writer of the table finishes what one that died had begun."""
    here = world(tmp_path / "w", double_wrapping=double)
    me = KeyHolder(here.root, tmp_path / "own", MayRead(here.ring, {"footer"}))
    job = here.root / TEMPORARY / JOB
    job.mkdir(parents=True)
    (job / "plan.json").write_bytes(json.dumps(attack(me)).encode() + b"\n" + BODY)
    with pytest.raises(bs.BloomsealError):
        recover(TableFolder.at(str(here.root)), table(here))
    assert (here.root / "tenant=b" / NAME).exists()
    assert not (here.root / "_SUCCESS").exists()


def test_limit_an_order_of_before_may_be_repeated(tmp_path: Path) -> None:
    """It removes and moves what it did then, and nothing else."""
    from bloomseal.spark.source.commit.plan import Plan

    here = world(tmp_path / "w")
    text = Plan((), (f"tenant=b/{NAME}",)).sealed(table(here), JOB)
    for _ in range(2):
        job = here.root / TEMPORARY / JOB
        job.mkdir(parents=True)
        (job / "plan.json").write_bytes(text)
        assert recover(TableFolder.at(str(here.root)), table(here)) == [JOB]
        assert not (here.root / "tenant=b" / NAME).exists()
        assert (here.root / "tenant=a" / NAME).exists()
