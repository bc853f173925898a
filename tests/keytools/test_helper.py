"""The key helper as a process: its protocol, its end, and what it keeps to itself."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bloomseal import Keyring, UsageError
from bloomseal.keytools.helper import KeyHelper
from bloomseal.keytools.kms.registry import check_uri
from bloomseal.keytools.signatures.keys import PublicKey

PASSPHRASE = "a passphrase that nobody prints"
KEY = bytes(range(16))
COMMAND = [sys.executable, "-P", "-m", "bloomseal.keytools.helper"]


class Helper:
    """A running helper, spoken to line by line."""

    def __init__(self, environment: dict[str, str], folder: Path) -> None:
        self.process = subprocess.Popen(
            COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, cwd=folder
        )
        self.greeting = self.receive()

    def send(self, **request: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()

    def receive(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, **request: Any) -> Any:
        self.send(**request)
        return self.receive()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


@pytest.fixture
def ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keyring:
    monkeypatch.setenv("BLOOMSEAL_KEYRING_PASSPHRASE", PASSPHRASE)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("VAULT_TOKEN", raising=False)
    ring = Keyring(tmp_path / "keys.json", create=True)
    ring.create("pii")
    ring.create("health")
    return ring


@pytest.fixture
def silent() -> Iterator[str]:
    """Host and port of somebody who takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def helper(ring: Keyring, tmp_path: Path) -> Iterator[Helper]:
    running = Helper(dict(os.environ), tmp_path)
    yield running
    running.close()


def test_a_key_goes_there_and_back(helper: Helper, ring: Keyring) -> None:
    assert helper.greeting == {"helper": "bloomseal", "protocol": 1}
    kms = f"keyring://{ring.path}"
    wrapped = helper.ask(id=1, op="wrap", kms=kms, master_key="pii", key=base64.b64encode(KEY).decode())
    assert wrapped["id"] == 1
    assert ring.unwrap_key(wrapped["wrapped"], "pii") == KEY
    answer = helper.ask(id=2, op="unwrap", kms=kms, master_key="pii", wrapped=wrapped["wrapped"])
    assert answer == {"id": 2, "key": base64.b64encode(KEY).decode()}
    foreign = ring.wrap_key(bytes(32), "health")
    assert helper.ask(id=3, op="unwrap", kms=kms, master_key="health", wrapped=foreign)["key"] == "A" * 43 + "="


def test_problems_are_told_by_kind_and_name_the_key(helper: Helper, ring: Keyring, tmp_path: Path) -> None:
    kms, wrapped = f"keyring://{ring.path}", ring.wrap_key(KEY, "pii")

    def problem(**more: Any) -> str:
        request = {"id": 9, "op": "unwrap", "kms": kms, "master_key": "pii", "wrapped": wrapped, **more}
        answer = helper.ask(**request)
        assert answer.keys() == {"id", "problem", "message"}
        assert request["master_key"] in answer["message"] or answer["problem"] in ("unusable", "request")
        return str(answer["problem"])

    assert problem(master_key="nobody") == "unknown"
    assert problem(master_key="health") == "invalid"
    assert problem(kms=f"keyring://{tmp_path}/none.json") == "unusable"
    assert problem(kms="no-such-kms://x") == "unusable"
    assert problem(kms="keyring:///k?token=abc") == "unusable"
    assert problem(op="destroy") == "request"
    assert problem(timeout="soon") == "request"
    assert problem(op="wrap", key="AAAA") == "request"
    ring.disable("pii")
    assert problem() == "disabled"
    ring.destroy("pii")
    assert problem() == "destroyed"


def test_what_makes_no_sense_is_answered_and_ends_nothing(helper: Helper, ring: Keyring) -> None:
    assert helper.process.stdin is not None
    for line in (b"[", b"[]", b"7", b"\xff", b"{}", b"[" * 100_000, b'{"id": "x", "op": 7}'):
        helper.process.stdin.write(line + b"\n")
        helper.process.stdin.flush()
        assert helper.receive()["problem"] == "request"
    assert "wrapped" in helper.ask(
        id=1, op="wrap", kms=f"keyring://{ring.path}", master_key="pii", key=base64.b64encode(KEY).decode()
    )


def test_a_request_of_any_length_is_answered_and_ends_nothing(helper: Helper, ring: Keyring) -> None:
    """Whoever writes a file that is read chooses its key material, and others share the process."""
    kms = f"keyring://{ring.path}"
    for number, length in enumerate((1_000, 100_000, 524_288, 600_000, 5_000_000), 1):
        answer = helper.ask(id=number, op="unwrap", kms=kms, master_key="\x01" * length, wrapped="AAAA")
        assert (answer["id"], answer["problem"]) == (number, "unknown" if length < 80_000 else "request")
        assert len(answer["message"]) < 5_000
    assert "key" in helper.ask(id=9, op="unwrap", kms=kms, master_key="pii", wrapped=ring.wrap_key(KEY, "pii"))


def test_a_message_is_one_line_that_steers_no_terminal(helper: Helper, ring: Keyring) -> None:
    name = "pii\n26/01/01 ERROR forged\x1b[2J\u202e\u2028"
    asked = {"op": "unwrap", "kms": f"keyring://{ring.path}", "master_key": name, "wrapped": "AAAA"}
    for more in ({}, {"kms": f"no-{name}://x"}, {"timeout": name}):
        message = helper.ask(id=1, **{**asked, **more})["message"]
        assert message.isprintable()


def test_keys_that_are_known_wait_for_no_kms_that_hangs(
    ring: Keyring, silent: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VAULT_TOKEN", "t")
    helper: Helper = request.getfixturevalue("helper")
    slow = {"kms": f"vault://{silent}/transit", "op": "unwrap", "wrapped": "vault:v1:AAAA", "timeout": 600}
    for number in range(40):
        helper.send(id=number, master_key=f"k{number}", **slow)
    fast = {"kms": f"keyring://{ring.path}", "op": "unwrap", "master_key": "pii", "wrapped": ring.wrap_key(KEY, "pii")}
    answer = helper.ask(id=99, **fast)
    assert (answer["id"], "key" in answer) == (99, True)


def test_one_slow_kms_keeps_nobody_waiting_and_times_out_clearly(
    ring: Keyring, silent: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VAULT_TOKEN", "t")
    helper: Helper = request.getfixturevalue("helper")
    slow = {"kms": f"vault://{silent}/transit", "op": "unwrap", "master_key": "pii", "wrapped": "vault:v1:AAAA"}
    fast = {"kms": f"keyring://{ring.path}", "op": "unwrap", "master_key": "pii", "wrapped": ring.wrap_key(KEY, "pii")}
    assert "key" in helper.ask(id=1, **fast)
    helper.send(id=2, timeout=5, **slow)
    assert "key" in (answer := helper.ask(id=3, **fast))
    assert answer["id"] == 3
    late = helper.receive()
    assert (late["id"], late["problem"]) == (2, "unreachable")
    assert "'pii'" in late["message"]


def test_it_ends_with_its_input_also_in_the_middle_of_a_line(helper: Helper) -> None:
    assert helper.process.stdin is not None
    helper.process.stdin.write(b'{"id": 1, "op": "wr')
    helper.process.stdin.close()
    assert helper.process.wait(60) == 0


@pytest.mark.usefixtures("ring")
def test_it_ends_when_a_call_hangs(tmp_path: Path, silent: str) -> None:
    running = Helper({**os.environ, "VAULT_TOKEN": "t"}, tmp_path)
    running.send(id=2, kms=f"vault://{silent}/transit", op="unwrap", master_key="pii", wrapped="vault:v1:AAAA")
    assert running.process.stdin is not None
    running.process.stdin.close()
    assert running.process.wait(60) == 0


def test_a_line_without_end_is_answered_and_ends_with_the_input(helper: Helper) -> None:
    out, errors = helper.process.communicate(b"x" * (1 << 20), timeout=60)
    assert (json.loads(out)["problem"], helper.process.returncode, errors) == ("request", 0, b"")


def test_nothing_secret_is_on_standard_error(ring: Keyring, tmp_path: Path) -> None:
    """A client that prints, logs, warns, and fails with the secret in its message, installed as any other is."""
    site = tmp_path / "site"
    (site / "loud-1.0.dist-info").mkdir(parents=True)
    (site / "loud-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: loud\nVersion: 1.0\n")
    (site / "loud-1.0.dist-info" / "entry_points.txt").write_text("[bloomseal.kms]\nloud = loud:Client\n")
    (site / "loud.py").write_text(
        "import logging, sys, threading, warnings\n"
        "class Client:\n"
        "    def __init__(self, uri): pass\n"
        "    def wrap_key(self, key_bytes, master_key_identifier):\n"
        "        print('secret', flush=True); print('secret', file=sys.stdout)\n"
        "        logging.error('secret'); warnings.warn('secret')\n"
        "        threading.Thread(target=lambda: 1 / 0 if not print('') else None).start()\n"
        "        raise RuntimeError('secret')\n"
        "    unwrap_key = wrap_key\n"
    )
    running = Helper({**os.environ, "PYTHONPATH": str(site)}, tmp_path)
    answer = running.ask(id=1, op="wrap", kms="loud:x", master_key="pii", key=base64.b64encode(KEY).decode())
    assert answer["problem"] == "invalid"
    assert "RuntimeError" in answer["message"]
    assert running.process.stdin is not None
    running.process.stdin.close()
    assert running.process.wait(60) == 0
    assert running.process.stderr is not None
    errors = running.process.stderr.read().decode()
    # What a client itself prints can't be known to be harmless or not, so it is the client's own doing; but no
    # traceback and no log line of anybody leaves, and no print has come between the answers.
    assert "Traceback" not in errors
    assert "RuntimeError" not in errors
    assert PASSPHRASE not in errors


def test_requests_at_the_same_time_share_one_call(ring: Keyring, tmp_path: Path) -> None:
    helper = KeyHelper()
    line = json.dumps(
        {
            "id": 1,
            "op": "unwrap",
            "kms": f"keyring://{ring.path}",
            "master_key": "pii",
            "wrapped": ring.wrap_key(KEY, "pii"),
        }
    ).encode()
    threads = [threading.Thread(target=helper.answer, args=(line,)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (tools,) = helper._tools.values()
    assert tools.result().counters.unwraps == 1


def test_the_working_directory_is_not_imported_from(ring: Keyring, tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('imported')\n")
    running = Helper(dict(os.environ), tmp_path)
    assert running.greeting["protocol"] == 1
    running.close()


@pytest.mark.parametrize("uri", ["nothing://x", "keyring:///k?passphrase=x", "vault://user:pass@host/transit"])
def test_unusable_uris_are_refused_without_going_there(uri: str) -> None:
    with pytest.raises(UsageError):
        check_uri(uri)


def test_usable_uris_are_accepted_without_going_there() -> None:
    check_uri("keyring:///nowhere/at/all.json")
    check_uri("vault://vault.invalid:8200/transit")


def test_what_it_hands_out_is_in_the_access_log(ring: Keyring, tmp_path: Path) -> None:
    log = tmp_path / "access.jsonl"
    kms = f"keyring://{ring.path}"
    helper = Helper({**os.environ, "BLOOMSEAL_ACCESS_LOG": str(log)}, tmp_path)
    try:
        wrapped = helper.ask(id=1, op="wrap", kms=kms, master_key="pii", key=base64.b64encode(KEY).decode())["wrapped"]
        for number in (2, 3):  # the second from its cache
            answer = helper.ask(id=number, op="unwrap", kms=kms, master_key="pii", wrapped=wrapped)
            assert base64.b64decode(answer["key"]) == KEY
        assert helper.ask(id=4, op="unwrap", kms=kms, master_key="nobody", wrapped=wrapped)["problem"] == "unknown"
        told = [json.loads(line) for line in log.read_text().splitlines()]
        assert [(one["action"], one["master_key"], one.get("version"), one["outcome"]) for one in told] == [
            ("seal", "pii", None, "given"),
            ("open", "pii", "1", "given"),
            ("open", "pii", "1", "given"),
            ("open", "nobody", told[3].get("version"), "refused"),
        ]
        assert all("file" not in one and one["column"] is None for one in told)
        assert base64.b64encode(KEY).decode() not in log.read_text()
        assert wrapped not in log.read_text()
        log.unlink()
        log.mkdir()  # it can't be written any more
        answer = helper.ask(id=5, op="unwrap", kms=kms, master_key="pii", wrapped=wrapped)
        assert "key" not in answer
        assert "access log" in answer["message"]
    finally:
        helper.close()


def test_an_entry_about_a_file(ring: Keyring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever knows the file has it written before a key of the file is used."""
    from bloomseal import KeyTools
    from bloomseal.core.storage.ref import FileRef

    monkeypatch.delenv("BLOOMSEAL_ACCESS_LOG", raising=False)
    log = tmp_path / "access.jsonl"
    key, metadata = KeyTools(ring).for_file(FileRef("/t/a.parquet")).new_key("pii", "ssn", 128)

    def ask(**more: Any) -> dict[str, Any]:
        request = {"id": 1, "op": "log", "kms": f"keyring://{ring.path}", "action": "open", "file": "/t/a.parquet"}
        request |= {"column": None, "key_metadata": base64.b64encode(metadata).decode(), "refused": None, **more}
        answer: dict[str, Any] = json.loads(KeyHelper().answer(json.dumps(request).encode()))
        return answer

    assert "logged" not in ask()  # it was told of no log
    monkeypatch.setenv("BLOOMSEAL_ACCESS_LOG", str(log))
    assert ask()["logged"]
    assert ask(action="seal", column="ssn")["logged"]
    assert ask(refused="the KMS denies it [denied]")["logged"]
    assert ask(key_metadata=base64.b64encode(b"an id").decode())["logged"]
    told = [json.loads(line) for line in log.read_text().splitlines()]
    assert [
        (one["action"], one["file"], one["column"], one.get("master_key"), one.get("version"), one["outcome"])
        for one in told
    ] == [
        ("open", "/t/a.parquet", None, "pii", "1", "given"),
        ("seal", "/t/a.parquet", "ssn", "pii", "1", "given"),
        ("open", "/t/a.parquet", None, "pii", "1", "refused"),
        ("open", "/t/a.parquet", None, None, None, "given"),
    ]
    assert "denies" in told[2]["why"]
    assert told[3]["key_id"] == "an id"
    assert base64.b64encode(key.reveal()).decode() not in log.read_text()
    for wrong in ({"action": "read"}, {"column": 1}, {"refused": {}}, {"key_metadata": "?"}, {"file": None}):
        assert ask(**wrong)["problem"] == "request", wrong
    log.unlink()
    log.mkdir()
    assert "logged" not in ask()


def test_who_signed_a_file_and_who_signs_here(ring: Keyring, monkeypatch: pytest.MonkeyPatch) -> None:
    ring.create("author", kind="ed25519")
    request = {
        "id": 1,
        "kms": f"keyring://{ring.path}",
        "table": "people",
        "signers": json.dumps({"collector": PublicKey(ring.public_key("author")).line}),
        "path": "k=1/ü.parquet",
        "length": "4321",
        "tail_sha256": "ab" * 32,
        "aad_file_unique": "0123",
        "aad_prefix": "",
    }
    helper = KeyHelper()

    def ask(op: str, **more: Any) -> Any:
        return json.loads(helper.answer(json.dumps({**request, "op": op, **more}).encode()))

    for op in ("signer", "sign"):  # an executor's
        assert "no key to sign with" in ask(op)["refused"]
    monkeypatch.setenv("BLOOMSEAL_SIGNER", "author")
    assert ask("signer") == {"id": 1, "signer": "collector"}
    made = ask("sign")["envelope"]
    assert ask("judge", envelope=made) == {"id": 1, "signer": "collector"}
    for other in ({"length": "4322"}, {"table": "others"}, {"path": "k=2/ü.parquet"}, {"tail_sha256": "aa" * 32}):
        assert "what collector signed is" in ask("judge", envelope=made, **other)["refused"]
    assert "nobody signed the file" in ask("judge", envelope=None)["refused"]
    assert "form" in ask("judge", envelope="")["refused"]


def test_its_access_log_has_an_absolute_path(ring: Keyring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors run in folders of their own."""
    monkeypatch.setenv("BLOOMSEAL_ACCESS_LOG", "access.jsonl")
    request = {
        "id": 1,
        "op": "wrap",
        "kms": f"keyring://{ring.path}",
        "master_key": "pii",
        "key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    answer = json.loads(KeyHelper().answer(json.dumps(request).encode()))
    assert "wrapped" not in answer
    assert "BLOOMSEAL_ACCESS_LOG" in answer["message"]
