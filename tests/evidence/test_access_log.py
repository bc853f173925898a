"""The access log: every way to a key leaves a line, refusals too, and none of them a secret."""

from __future__ import annotations

import json
import logging
import resource
import signal
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import bloomseal as bs
from bloomseal import KeyTools, audit, rotation
from bloomseal.keytools.access_log import Access, AccessLog
from support.lab import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def entries(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def seen(path: Path) -> set[tuple[str, str | None, str | None, str]]:
    return {(one["action"], one["column"], one.get("master_key"), one["outcome"]) for one in entries(path)}


OPENED = {("open", None, "footer", "given"), ("open", "ssn", "pii", "given")}
WAYS: dict[str, tuple[Callable[[Path, Any], object], set[tuple[str, str | None, str | None, str]]]] = {
    "read": (lambda path, policy: bs.read_table(path, columns=["ssn"], decryption=policy), OPENED),
    "probe": (lambda path, policy: bs.probe(path, "ssn", ["x"], decryption=policy), OPENED),
    "verify": (lambda path, policy: bs.verify(path, decryption=policy), OPENED),
    "attach": (lambda path, policy: bs.attach_filters(path, {"ssn": True}, decryption=policy), OPENED),
    "audit": (lambda path, policy: audit.audit(path, policy=policy, keys=policy.keys), OPENED),
    "unseal": (lambda path, policy: bs.unseal_file(path, f"{path}.plain", decryption=policy), OPENED),
    "rekey": (
        lambda path, policy: rotation.rotate(path, rotation.Rekey(policy), journal=f"{path}.journal"),
        OPENED | {("seal", None, "footer", "given"), ("seal", "ssn", "pii", "given")},
    ),
    "rewrap": (
        lambda path, policy: rotation.rotate(path, rotation.Rewrap(policy), journal=f"{path}.journal"),
        {("open", None, "footer", "given"), ("wrap", "ssn", "pii", "given")},
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_a_key_is_logged(lab: Lab, way: str) -> None:
    path, log = lab.write(), lab.folder / "access.jsonl"
    lab.keyring.rotate("pii")
    act, expected = WAYS[way]
    act(path, lab.policy(access_log=str(log)))
    assert expected <= seen(log)
    for one in entries(log):
        assert one["file"] == str(path)
        assert one["user"]
        assert one["host"]
        assert one["at"].endswith("+00:00")
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_seal_and_write_are_logged(lab: Lab) -> None:
    log = lab.folder / "access.jsonl"
    policy = lab.policy(access_log=log)
    bs.seal_file(lab.plain(), lab.folder / "sealed.parquet", encryption=policy)
    assert {("seal", None, "footer", "given"), ("seal", "ssn", "pii", "given")} <= seen(log)
    lab.write(encryption={"access_log": log})
    assert {one["version"] for one in entries(log)} == {"1"}


def test_refusals_are_logged_with_their_reason(lab: Lab) -> None:
    path, log = lab.write(), lab.folder / "access.jsonl"
    lab.keyring.disable("pii")
    with pytest.raises(bs.KeyAccessError):
        bs.read_table(path, decryption=bs.DecryptionSpec(KeyTools(lab.keyring), access_log=log))
    refused = [one for one in entries(log) if one["outcome"] == "refused"]
    assert refused
    assert refused[0]["master_key"] == "pii"
    assert refused[0]["why"].startswith("KmsAccessError: ")
    assert "disabled" in refused[0]["why"]


def test_a_column_moved_under_the_footer_key_is_logged(lab: Lab) -> None:
    path, log = lab.write(encryption={"column_keys": None}), lab.folder / "access.jsonl"
    with pytest.raises(bs.PolicyError):
        bs.read_table(path, columns=["ssn"], decryption=lab.policy(access_log=log))
    assert ("open", "ssn", "footer", "refused") in seen(log)


def test_a_callable_and_a_logger(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    path, got = lab.write(), list[Access]()
    decryption = bs.DecryptionSpec(KeyTools(lab.keyring), access_log=got.append)
    bs.read_table(path, columns=["ssn"], decryption=decryption)
    assert {(one.column, one.master_key, one.version) for one in got} == {(None, "footer", "1"), ("ssn", "pii", "1")}
    for given in (logging.getLogger("keys"), "logging:keys"):
        caplog.clear()
        with caplog.at_level(logging.INFO, "keys"):
            bs.read_table(path, columns=["ssn"], decryption=replace(decryption, access_log=given))
        assert [record.access["column"] for record in caplog.records] == [None, "ssn"]  # type: ignore[attr-defined]


def test_no_key_without_its_entry(lab: Lab) -> None:
    path = lab.write()

    def failing(_: Access) -> None:
        raise RuntimeError("token=secret")

    for log in (lab.folder, lab.folder / "missing" / "access.jsonl", failing):
        with pytest.raises(bs.KeyAccessError, match="access log") as caught:
            bs.read_table(path, decryption=bs.DecryptionSpec(KeyTools(lab.keyring), access_log=log))
        assert "secret" not in str(caught.value)
        new = lab.folder / "new.parquet"
        with pytest.raises(bs.KeyAccessError, match="access log"):
            lab.write("new.parquet", encryption={"access_log": log})
        assert not new.exists()
    with pytest.raises(bs.UsageError, match="access_log"):
        bs.read_table(path, decryption=bs.DecryptionSpec(KeyTools(lab.keyring), access_log=7))


def test_a_full_disk_leaves_no_half_entry(tmp_path: Path) -> None:
    """The next one ran into it, and neither could be read."""
    path = tmp_path / "access.jsonl"
    log = AccessLog(path, "a.parquet")
    log.say("open", "first", "pii")
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 50, before[1]))
        with pytest.raises(bs.KeyAccessError, match="disk is full"):
            log.say("open", "second", "pii")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    log.say("open", "third", "pii")
    assert [json.loads(line)["column"] for line in path.read_text().splitlines()] == ["first", "third"]


def test_an_entry_holds_no_key_and_no_value(lab: Lab) -> None:
    log, key = lab.folder / "access.jsonl", b"0123456789abcdef"
    path = lab.folder / "explicit.parquet"
    spec = bs.EncryptionSpec((key, "kf"), {"ssn": (key[::-1], b"\xff\x00")}, access_log=log)
    bs.write_table(__import__("pyarrow").table({"ssn": ["078-05-1120"]}), path, encryption=spec)
    keys = bs.ExplicitKeys(key, {"ssn": key[::-1]})
    assert bs.read_table(path, decryption=bs.DecryptionSpec(keys, access_log=log))["ssn"].to_pylist() == ["078-05-1120"]
    text = log.read_text()
    assert {one["key_id"] for one in entries(log)} == {"kf", "2 opaque bytes"}
    for secret in (key.decode(), key.hex(), key[::-1].decode(), "078-05"):
        assert secret not in text


def test_off_it_costs_nothing(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    from bloomseal.keytools import access_log

    monkeypatch.setattr(access_log.AccessLog, "__init__", lambda *_: pytest.fail("a log was made"))
    bs.read_table(lab.write(), decryption=lab.policy())
