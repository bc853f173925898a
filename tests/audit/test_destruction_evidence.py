"""``keyring destroy`` takes the evidence of a *yes*, of just this keyring, key and version, and no other."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bloomseal.audit.destruction.evidence import check_evidence
from bloomseal.cli.main import main
from bloomseal.core.errors import UsageError
from bloomseal.keytools.kms_protocols import KeyState
from support.lab import Lab

DAY = timedelta(days=1)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    lab = Lab(tmp_path)
    for name in ("footer", "pii"):
        lab.keyring.rotate(name)
    lab.write("t/a.parquet")
    return lab


def evidence(lab: Lab, asked: str = "1", **changed: Any) -> Path:
    told = lab.ask("pii", asked, lab.folder / "t").to_dict() | changed
    path = lab.folder / "evidence.json"
    path.write_text(json.dumps(told))
    return path


def test_the_way_from_the_audit_to_the_end(lab: Lab, capfd: pytest.CaptureFixture[str]) -> None:
    ring = ("--keyring", str(lab.keyring.path))
    assert (
        main(["audit", str(lab.folder / "t"), "--may-destroy", "pii:1", "--after", "0", "--format", "json", *ring]) == 0
    )
    path = lab.folder / "evidence.json"
    path.write_text(capfd.readouterr().out)
    assert main(["keyring", "destroy", "pii", "--version", "1", "--yes", *ring]) == 2
    assert "--without-evidence" in capfd.readouterr().err
    assert main(["keyring", "destroy", "pii", "--version", "2", "--yes", "--evidence", str(path), *ring]) == 2
    assert main(["keyring", "destroy", "pii", "--yes", "--evidence", str(path), *ring]) == 2
    assert main(["keyring", "destroy", "pii", "--version", "7", "--yes", "--evidence", str(path), *ring]) == 2
    assert all(version.state is KeyState.ENABLED for key in lab.keyring.list() for version in key.versions)
    capfd.readouterr()
    assert main(["keyring", "destroy", "pii", "--version", "1", "--yes", "--evidence", str(path), *ring]) == 0
    assert "pii, version 1: erased" in capfd.readouterr().err
    (pii,) = (key for key in lab.keyring.list() if key.name == "pii")
    assert [version.state for version in pii.versions] == [KeyState.DESTROYED, KeyState.ENABLED]


def test_what_it_is_held_against(lab: Lab) -> None:
    assert check_evidence(evidence(lab), lab.keyring, "pii", 1, max_age=DAY)["answer"] == "yes"
    wrong: list[dict[str, Any]] = [
        {"answer": "no"}, {"answer": "unknown"}, {"answer": True}, {"files": 0}, {"keyring": "elsewhere.json"}, {"keyring": None},
        {"master_key": "footer"}, {"version": "2"}, {"version": None}, {"fingerprints": {"1": "0" * 16}}, {"fingerprints": None},
        {"began": "2020-01-01T00:00:00+00:00"}, {"began": "2020-01-01T00:00:00"}, {"began": None}, {"format": "other"},
        {"began": (datetime.now(UTC) + timedelta(hours=1)).isoformat()}, {"format_version": 2},
    ]  # fmt: skip
    for changed in wrong:
        with pytest.raises(UsageError, match="evidence"):
            check_evidence(evidence(lab, **changed), lab.keyring, "pii", 1, max_age=DAY)
    for text in ("", "[]", "{", "null"):
        (lab.folder / "evidence.json").write_text(text)
        with pytest.raises(UsageError, match="no evidence"):
            check_evidence(lab.folder / "evidence.json", lab.keyring, "pii", 1, max_age=DAY)
    with pytest.raises(UsageError, match="wraps new keys"):
        check_evidence(evidence(lab, version="*"), lab.keyring, "pii", None, max_age=DAY)


def test_another_keyrings_key_of_the_same_name(lab: Lab, tmp_path: Path) -> None:
    path = evidence(lab)
    lab.keyring.path.unlink()
    other = Lab(tmp_path)
    other.keyring.rotate("pii")
    with pytest.raises(UsageError, match="another key than version 1"):
        check_evidence(path, other.keyring, "pii", 1, max_age=DAY)


def test_the_whole_key(lab: Lab) -> None:
    lab.keyring.disable("other")
    told = lab.ask("other", "*", lab.folder / "t")
    assert told.answer == "yes"
    path = lab.folder / "evidence.json"
    path.write_text(json.dumps(told.to_dict()))
    assert check_evidence(path, lab.keyring, "other", None, max_age=DAY)
    assert check_evidence(path, lab.keyring, "other", 1, max_age=DAY)
    lab.keyring.enable("other")
    with pytest.raises(UsageError, match="wraps new keys"):
        check_evidence(path, lab.keyring, "other", None, max_age=DAY)


def test_a_version_that_was_used_again_since(lab: Lab) -> None:
    lab.keyring.disable("other")
    told = lab.ask("other", "1", lab.folder / "t").to_dict()
    assert told["answer"] == "yes"
    # As if it had been asked a minute before the version was enabled, used, and disabled.
    told["began"] = (datetime.fromisoformat(told["began"]) - timedelta(minutes=1)).isoformat()
    path = lab.folder / "evidence.json"
    path.write_text(json.dumps(told))
    lab.keyring.enable("other")
    lab.keyring.disable("other")
    with pytest.raises(UsageError, match="may have wrapped new keys until"):
        check_evidence(path, lab.keyring, "other", 1, max_age=DAY)


def test_the_answer_shows_no_key(lab: Lab) -> None:
    text = json.dumps(lab.ask("pii", "1", lab.folder / "t").to_dict())
    for key in lab.keyring.list():
        for version in key.versions:
            assert version.key is not None
            assert version.key.reveal().hex() not in text
