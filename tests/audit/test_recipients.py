"""What audits, the bill of materials and destruction tell of files for recipients."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

import bloomseal as bs
from bloomseal.audit import audit, may_destroy
from bloomseal.audit.rendering.cbom import to_cbom
from bloomseal.keytools.recipients.recipient import Recipient

ROWS = pa.table({"ssn": ["a", "b"], "n": [1, 2]})


@pytest.fixture
def ring(tmp_path: Path) -> bs.Keyring:
    ring = bs.Keyring(tmp_path / "reader.json", create=True)
    ring.create("pii", kind="hpke")
    return ring


def policy(*lines: str, kms: str | None = None) -> bs.Policy:
    document = {
        "version": 1,
        "defaults": {"complete": True, "max_key_age_days": 30},
        "keys": {"pii": {"recipients": list(lines)}},
        "tables": {"people": {"footer_key": "pii", "columns": {"ssn": {"key": "pii", "filter": True}}}},
    }
    return bs.Policy.from_dict(document if kms is None else {**document, "kms": kms})


def test_reports_name_recipients_and_their_kind(tmp_path: Path, ring: bs.Keyring) -> None:
    folder, line = tmp_path / "people", ring.recipient("pii")
    bs.write_dataset(ROWS, folder, policy=policy(line))
    named = f"hpke:{Recipient.parse(line).id}"
    read = audit(folder, policy=policy(line, kms=f"keyring:{ring.path}"))
    assert (read.findings, read.unseen) == ([], [])
    for report in (read, audit(folder, policy=policy(line)), audit(folder)):
        text = to_cbom(report)
        assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
        parts = {one["bom-ref"]: one for one in json.loads(text)["components"]}
        assert parts[f"master-key:pii:{named}"]["version"] == named
        kem = parts["algorithm:ML-KEM-768+X25519"]["cryptoProperties"]["algorithmProperties"]
        assert (kem["primitive"], kem["nistQuantumSecurityLevel"]) == ("kem", 3)


def test_an_index_that_its_holder_has_wrapped_is_under_no_older_version(tmp_path: Path, ring: bs.Keyring) -> None:
    folder, line = tmp_path / "people", ring.recipient("pii")
    document = {
        "version": 1,
        "kms": f"keyring:{ring.path}",
        "keys": {"pii": {"recipients": [line]}},
        "tables": {
            "people": {"footer_key": "pii", "complete": True, "columns": {"ssn": {"key": "pii", "index": True}}}
        },
    }
    indexed = bs.Policy.from_dict(document)
    bs.write_dataset(ROWS, folder, policy=indexed)
    for report in (audit(folder, policy=indexed), audit(folder)):
        assert [one for one in report.findings if one.rule.id == "BS316"] == []
        assert report.inventory.num_rows > 2, "the index was looked at"


def test_a_file_for_others_than_the_rest_is_found(tmp_path: Path, ring: bs.Keyring) -> None:
    folder, old = tmp_path / "people", ring.recipient("pii")
    bs.write_dataset(ROWS, folder, policy=policy(old))
    ring.rotate("pii")
    now = policy(ring.recipient("pii"), kms=f"keyring:{ring.path}")
    bs.write_dataset(ROWS, folder, policy=now, mode="append")
    assert [one.rule.id for one in audit(folder, policy=now).findings] == ["BS316"]


def test_a_version_may_go_once_no_file_is_sealed_to_it(tmp_path: Path, ring: bs.Keyring) -> None:
    folder, old = tmp_path / "people", ring.recipient("pii")
    folder.mkdir()
    file = folder / "a.parquet"
    bs.write_table(ROWS, file, policy=policy(old))
    ring.rotate("pii")
    assert may_destroy("pii", "1", folder, keys=ring, after=0).answer == "no"
    both = policy(old, ring.recipient("pii"), kms=f"keyring:{ring.path}")
    assert len(bs.rewrap(file, policy=both).keys) == 2
    assert may_destroy("pii", "1", folder, keys=ring, after=0).answer == "yes", "the newer version opens it as well"
    late = may_destroy("pii", "1", folder, keys=ring)
    assert (late.answer, "no writer's policy" in str(late.doubts)) == ("unknown", True)
    named = may_destroy("pii", "1", folder, policy=both, table="people", after=0)
    assert (named.answer, "among the recipients" in str(named.doubts)) == ("unknown", True)
    stranger = bs.Keyring(tmp_path / "other.json", create=True)
    stranger.create("pii", kind="hpke")
    bs.write_table(ROWS, folder / "b.parquet", policy=policy(stranger.recipient("pii")))
    assert may_destroy("pii", "1", folder, keys=ring, after=0).answer == "unknown"
    (folder / "b.parquet").unlink()
    bs.write_table(ROWS, file, policy=policy(old))  # somebody still had the old line
    ring.destroy("pii", 1)
    told = may_destroy("pii", "1", folder, keys=ring, after=0)
    assert (told.answer, "under pii, version 1" in str(told.reasons)) == ("no", True)
    report = audit(folder, keys=ring)
    assert "was destroyed" in str(report.unseen)
    assert "BS302" in {one.rule.id for one in report.findings}
