"""The four commands: options reach the job, answers are tables or JSON, and exit codes say what was left over."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import bloomseal as bs
from bloomseal.cli.main import main
from bloomseal.write.assemble import _header
from support.rotation_tables import ciphers, identity, masters, opened, opens, reading, rows


@dataclass
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Answer]


@pytest.fixture
def ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bs.Keyring:
    for name in [name for name in os.environ if name.startswith("BLOOMSEAL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    ring = bs.Keyring("keys.json", create=True)
    for name in ("footer", "pii", "health", "pii-2027"):
        ring.create(name)
    Path("table").mkdir()
    for index in range(3):
        pq.write_table(rows(index), f"table/{index}.parquet", row_group_size=100)
    return ring


@pytest.fixture
def run(ring: bs.Keyring, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str, keys: bool = True) -> Answer:
        code = main([*arguments, *(("--keyring", "keys.json") if keys else ())])
        printed = capsys.readouterr()
        return Answer(code, printed.out, printed.err)

    return call


SEAL = ("seal", "table", "--footer-key", "footer", "--column-key", "ssn=pii", "--column-key", "illness=health")
FILES = [Path("table") / f"{index}.parquet" for index in range(3)]


@pytest.fixture
def sealed(run: Run) -> Run:
    assert run(*SEAL, "--bloom-filter", "ssn").code == 0
    return run


def test_seal_rewrap_rekey_unseal(run: Run, ring: bs.Keyring) -> None:
    planned = run(*SEAL, "--dry-run", "--format", "json").json
    assert [file["action"] for file in planned["files"]] == ["seal"] * 3
    assert planned["kms_calls"] == 6, "each of three keys is wrapped, and unwrapped to see that it was"
    assert pq.read_table("table/0.parquet").equals(rows(0))

    done = run(*SEAL, "--bloom-filter", "ssn", "--format", "json").json
    assert done["counts"] == {"sealed": 3}
    for index, path in enumerate(FILES):
        opens(path, reading(ring), index)

    moved = run("rewrap", "table", "--from", "pii", "--to", "pii-2027", "-v")
    assert moved.code == 0
    assert "rewrapped" in moved.out
    assert "KMS: wraps 1" in moved.err
    assert masters(FILES[0], reading(ring)) == {"footer", "pii-2027", "health"}

    old = {cipher.key for path in FILES for cipher in ciphers(path, reading(ring))}
    assert run("rekey", "table", "--key-bits", "256", "--material", "external", "--new-aad-prefix", "t").code == 0
    new = {cipher.key for path in FILES for cipher in ciphers(path, reading(ring))}
    assert not old & new
    assert {key.bits for key in new} == {256}
    assert Path("table/_KEY_MATERIAL_FOR_0.parquet.json").exists()
    crypto = opened(FILES[0], reading(ring)).footer.crypto
    assert crypto is not None
    assert (crypto.aad_prefix, crypto.prefix_stored) == (b"t", True)
    assert "done before" in run(
        "rekey", "table", "--key-bits", "256", "--material", "external", "--new-aad-prefix", "t"
    ).out  # fmt: skip

    assert run("unseal", "table", "--output", "plain").code == 0
    assert run("unseal", "table", "--in-place").code == 0
    for index, path in enumerate(FILES):
        assert pq.read_table(path).equals(rows(index))
        assert pq.read_table(Path("plain") / path.name).equals(rows(index))
    assert sorted(path.name for path in Path("table").iterdir()) == [path.name for path in FILES]


def test_what_could_not_be_done_is_the_exit_code_and_in_the_answer(sealed: Run, ring: bs.Keyring) -> None:
    ring.disable("health")
    Path("table/1.parquet").write_bytes(b"no Parquet")
    for dry in (("--dry-run",), ()):
        answer = sealed("rewrap", "table", "--from", "health", "--to", "pii-2027", *dry)
        assert answer.code == 1
        assert "fail" in answer.out
    assert "disabled" in answer.out
    assert "illness" in answer.out
    report = sealed("rewrap", "table", "--from", "health", "--to", "pii-2027", "--format", "json").json
    assert report["counts"] == {"done in part": 2, "failed": 1}
    assert report["ok"] is False
    assert report["resumed"] is True


def test_a_policy_takes_the_place_of_options(run: Run, ring: bs.Keyring) -> None:
    policy = Path("policy.toml")
    policy.write_text(
        'version = 1\nkms = "keyring:"\n[tables.t]\nfooter_key = "footer"\naad_prefix = "{table}/{file}"\n'
        'store_aad_prefix = false\n[tables.t.columns.ssn]\nkey = "pii"\nfilter = true\n'
        '[tables.t.columns.illness]\nkey = "health"\n'
    )
    named = ("--policy", "policy.toml", "--table", "t")
    assert run("seal", "table", *named).code == 0
    bound = reading(ring, aad_prefix="t/1.parquet")
    opens(FILES[1], bound, 1)
    unique = identity(FILES[1], bound)
    assert run("rekey", "table", *named).code == 0
    assert identity(FILES[1], reading(ring, aad_prefix="t/1.parquet")) != unique
    policy.write_text(policy.read_text().replace('key = "pii"', 'key = "pii-2027"\nprevious_keys = ["pii"]'))
    assert run("rewrap", "table", *named).code == 0
    assert masters(FILES[1], reading(ring, aad_prefix="t/1.parquet")) == {"footer", "pii-2027", "health"}
    assert run("unseal", "table", *named, "--output", "plain").code == 0
    # A prefix on the command line is the one that files have now, the policy's the new one.
    again = run("rekey", "table", *named, "--aad-prefix", "nonsense")
    assert again.code == 1
    assert run("seal", "table", *named, "--footer-key", "footer").code == 2
    assert run("seal", "table", *named, "--no-store-aad-prefix").code == 2
    assert run("seal", "table", "--policy", "policy.toml").code == 0  # of its one table
    # What is said beside a policy is held, or refused; never passed over.
    assert run("rekey", "table", *named, "--encrypted-column", "name").code == 2
    assert run("rewrap", "table", *named, "--format", "json").json["counts"] == {"done before": 3}


def test_from_a_policy_without_a_prefix_to_one_with(sealed: Run, ring: bs.Keyring) -> None:
    Path("policy.toml").write_text(
        'version = 1\n[tables.t]\nfooter_key = "footer"\naad_prefix = "{table}/{file}"\nstore_aad_prefix = false\n'
        '[tables.t.columns.ssn]\nkey = "pii"\n[tables.t.columns.illness]\nkey = "health"\n'
    )
    named = ("--policy", "policy.toml", "--table", "t")
    assert sealed("rekey", "table", *named).code == 1, "the files have no prefix yet"
    assert sealed("rekey", "table", *named, "--aad-prefix", "").code == 0
    opens(FILES[2], reading(ring, aad_prefix="t/2.parquet"), 2)


def test_explicit_keys_to_a_keyring(run: Run, ring: bs.Keyring) -> None:
    spec = bs.EncryptionSpec((b"f" * 16, "kf"), {"ssn": (b"s" * 16, "ks"), "illness": (b"i" * 16, "ki")})
    bs.write_table(rows(), "x.parquet", encryption=spec, bloom_filters={"ssn": True})
    for name in ("f", "s", "i"):
        Path(f"{name}.key").write_text((name * 16).encode().hex())
    given = ("--key-file", "footer=f.key", "--key-file", "ssn=s.key", "--key-file", "illness=i.key")
    alone = run("rekey", "x.parquet", *given, keys=False)
    assert alone.code == 1
    assert "--footer-key" in alone.out + alone.err or "master keys" in alone.out
    wanted = ("--footer-key", "footer", "--column-key", "ssn=pii", "--column-key", "illness=health")
    answer = run("rekey", "x.parquet", *given, "--new-keyring", "keys.json", *wanted, keys=False)
    assert answer.code == 0, answer
    opens(Path("x.parquet"), reading(ring))
    assert masters(Path("x.parquet"), reading(ring)) == {"footer", "pii", "health"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("rewrap", "table", "--from", "pii"),
        ("rewrap", "nowhere"),
        ("rekey", "table", "--column-key", "ssn=pii"),
        ("rekey", "table", "--footer-key", "footer", "--from", "a", "--to", "b"),
        ("unseal", "table"),
        ("unseal", "table", "--in-place", "--output", "x"),
        ("seal", "table"),
        ("seal", "table", "--footer-key", "no such key", "--column-key", "ssn"),
    ],
    ids=" ".join,
)
def test_calls_that_make_no_sense(run: Run, arguments: tuple[str, ...]) -> None:
    answer = run(*arguments)
    assert answer.code == 2
    assert answer.err
    assert pq.read_table(FILES[0]).equals(rows(0))


def test_without_keys_nothing_is_opened(sealed: Run) -> None:
    for command in (("rewrap", "table"), ("rekey", "table"), ("unseal", "table", "--output", "x")):
        answer = sealed(*command, keys=False)
        assert answer.code == 2
        assert "no keys were named" in answer.err


def test_the_journal_is_where_it_was_wanted(sealed: Run) -> None:
    answer = sealed("rekey", "table", "--journal", "here.jsonl", "--format", "json").json
    assert answer["journal"] == "here.jsonl"
    assert Path("here.jsonl").read_text().count('"done"') == 3
    assert sealed("rekey", "table", "--journal", "here.jsonl", "--format", "json").json["counts"] == {"done before": 3}
    again = sealed("rekey", "table", "--journal", "here.jsonl", "--restart", "--format", "json").json
    assert again["counts"] == {"rekeyed": 3}
    assert len(list(Path().glob("here.jsonl.*"))) == 1


def test_a_progress_bar_on_a_terminal(sealed: Run, ring: bs.Keyring) -> None:
    import pty
    import subprocess
    import sys

    ours, theirs = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "bloomseal.cli.main",
        "rekey",
        "table",
        "--keyring",
        "keys.json",
        "--format",
        "json",
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, check=True)
    os.close(theirs)
    shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert "rekey" in shown
    assert "%" in shown
    assert json.loads(done.stdout)["counts"] == {"rekeyed": 3}


def test_a_filter_that_is_not_taken_over_is_named(sealed: Run, ring: bs.Keyring) -> None:
    """Somebody without keys has put one in clear into a sealed one's place."""
    walk = opened(FILES[1], reading(ring))
    found = walk.filter(walk.chunk(2, 1))
    assert found is not None
    header = _header(len(found.bitset) + 64)
    forged = header + bytes(found.length - len(header))
    data = bytearray(FILES[1].read_bytes())
    data[found.offset : found.offset + found.length] = forged
    FILES[1].write_bytes(data)
    assert sealed("verify", str(FILES[1])).code != 0
    done = sealed("rekey", "table", "--bloom-filter", "illness", "--format", "json").json
    assert [file["filters_dropped"] for file in done["files"]] == [0, 1, 0]
    assert done["files"][1]["dropped"] == [{"row_group": 2, "column": "ssn", "why": "in clear on an encrypted column"}]
    FILES[1].write_bytes(data)
    told = sealed("rekey", "table", "--restart")
    assert told.code == 0
    assert "not taken over" in told.out
    assert "ssn" in told.out
