"""A file of the Java library (`make.py`), opened without a JVM; and what whoever can write to it gets out of us."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import bloomseal as bs
from bloomseal import DecryptionSpec, PolicyError, Verdict, orc
from bloomseal.keytools import MasterKeys

PLACE = Path(__file__).with_name("encrypted.orc")
PII, WIDE = bytes(range(16, 32)), bytes(range(32))
ROWS = [[i, f"name{i * 7919 % 10007}" if i % 7 else None, i * 7919 % 10007, [i % 3, f"in{i}"]] for i in range(1500)]
KEYS = MasterKeys({"pii": [None, PII], "wide": WIDE})
SPEC = DecryptionSpec(keys=KEYS, allow_ctr=True)


@pytest.fixture(scope="module")
def data() -> bytes:
    return PLACE.read_bytes()


@pytest.fixture(scope="module")
def repaired(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("orc") / "file.orc"
    path.write_bytes(data)
    orc.repair_filters(path, decryption=SPEC)
    return path.read_bytes()


def test_the_file_is_the_one_that_was_kept(data: bytes) -> None:
    assert hashlib.sha256(data).hexdigest() == "eafecc75869fc6f4f5df6f52bb31d95dc9f937b6f898f6691375187c8856a303"


def test_all_rows_open(data: bytes, repaired: bytes) -> None:
    for one in (data, repaired):
        found = []
        with bs.open_file(one, decryption=SPEC) as file:
            for stripe in file.stripes:
                rows = file.rows(stripe.index, ["id", "name", "num", "s.a", "s.b"]).to_pylist()
                found += [[row["id"], row["name"], row["num"], [row["s"]["a"], row["s"]["b"]]] for row in rows]
        assert found == ROWS


def test_repaired_filters_miss_nothing(repaired: bytes) -> None:
    with bs.open_file(repaired, decryption=SPEC) as file:
        for place, column in ((1, "name"), (2, "num")):
            known = [row[place] for row in ROWS if row[place] is not None]
            answers = file.verdicts(column, known)
            groups = [ROWS[:1000], ROWS[1000:1200], ROWS[1200:]]
            passed = other = 0
            for answer, rows in zip(answers, groups, strict=True):
                here = {row[place] for row in rows}
                for value, verdict in zip(known, answer.verdicts, strict=True):
                    if value in here:
                        assert verdict == Verdict.MAYBE_PRESENT
                    else:
                        other, passed = other + 1, passed + (verdict == Verdict.MAYBE_PRESENT)
            assert passed < 1.5 * 0.05 * other


def test_flipped_bits_make_a_value_absent_where_ctr_is_accepted(repaired: bytes) -> None:
    """The threat model says so; this is the attack. Without `allow_ctr` it gains nothing."""
    value = ROWS[1300][1]
    with bs.open_file(repaired, decryption=SPEC) as file:
        stream = file.index(1).filter_stream(2, 0)
        assert stream is not None
        assert file.verdicts("name", [value])[2].verdicts == [Verdict.MAYBE_PRESENT]
    altered = None
    for at in range(stream.offset, stream.offset + stream.length):
        broken = bytearray(repaired)
        broken[at] ^= 0xFF
        with contextlib.suppress(bs.BloomsealError), bs.open_file(bytes(broken), decryption=SPEC) as file:
            if file.verdicts("name", [value])[2].verdicts == [Verdict.ABSENT]:
                altered = bytes(broken)
                break
    assert altered is not None
    with bs.open_file(altered, decryption=DecryptionSpec(keys=KEYS)) as file:
        assert file.verdicts("name", [value])[2].verdicts == [Verdict.NO_FILTER]
        with pytest.raises(PolicyError, match="authenticates"):
            file.rows(1, ["name"])


def test_a_policy_names_the_master_keys_of_columns(data: bytes, tmp_path: Path) -> None:
    """A file whose footer names another master key, which the reader may use too, is not opened."""
    path = tmp_path / "t.orc"
    path.write_bytes(data)
    ring = bs.Keyring(tmp_path / "ring.json", create=True)
    for name in ("pii", "wide", "footer"):
        ring.create(name)
    policy = tmp_path / "policy.toml"
    kms = f'version = 1\nkms = "keyring://{tmp_path}/ring.json"\n'
    policy.write_text(kms + '[tables.t]\nfooter_key = "footer"\n[tables.t.columns]\nname = { key = "wide" }\n')
    table = bs.Policy.load(policy).for_table("t")
    with (
        bs.open_file(path, decryption=table) as file,
        pytest.raises(PolicyError, match="master key 'pii', and the policy has 'wide'"),
    ):
        file.verdicts("name", ["x"])
    # One column's local key, named for another one, is not taken from what was opened already.
    policy.write_text(kms + '[tables.t]\nfooter_key = "footer"\n[tables.t.columns]\nnum = { key = "wide" }\n')
    with bs.open_file(path, decryption=bs.Policy.load(policy).for_table("t")) as file:
        with pytest.raises(bs.IntegrityError):  # the ring's key is not the file's, but it was agreed on
            file.verdicts("num", [1])
        with pytest.raises(PolicyError, match="master key 'wide', and the policy has 'footer'"):
            file.verdicts("s.a", [1])
    policy.write_text(kms + '[tables.t]\nfooter_key = "footer"\n[tables.t.columns]\nid = { key = "wide" }\n')
    with pytest.raises(PolicyError, match="in plaintext"):
        bs.open_file(path, decryption=bs.Policy.load(policy).for_table("t"))


def test_broken_files_give_errors_of_ours(data: bytes, repaired: bytes) -> None:
    chance = random.Random(11)
    for number in range(500):
        whole = data if number % 2 else repaired
        broken = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            back = chance.randint(1, 400 if chance.random() < 0.5 else len(whole) - 1)
            at = len(broken) - min(back, len(broken) - 1)
            match chance.randrange(4):
                case 0:
                    broken[at] ^= 1 << chance.randrange(8)
                case 1:
                    broken[at] = chance.randrange(256)
                case 2:
                    del broken[at : at + chance.randint(1, 9)]
                case _:
                    broken[at:at] = chance.choice([b"\xff" * 9, b"\x80" * 9 + b"\1", b"\0", b"\x7f"])
        with contextlib.suppress(bs.BloomsealError), bs.open_file(bytes(broken), decryption=SPEC) as file:
            _ = file.encryption and file.encryption.to_dict()
            for column, value in (("id", 1), ("name", "x"), ("num", 7), ("s.b", "in7")):
                with contextlib.suppress(bs.BloomsealError):
                    file.verdicts(column, [value])
                with contextlib.suppress(bs.BloomsealError):
                    file.cleared(0, [file.schema.leaf(column)])
            with contextlib.suppress(bs.BloomsealError):
                _ = file.filters


@pytest.mark.parametrize("where", ["stripe 0", "written", "checked", "renamed"])
def test_a_rewrite_that_is_killed_leaves_one_of_both(data: bytes, where: str, tmp_path: Path) -> None:
    path = tmp_path / "file.orc"
    path.write_bytes(data)
    code = (
        "from bloomseal import DecryptionSpec, orc; from bloomseal.keytools import MasterKeys;"
        f"keys = MasterKeys({{'pii': [None, {PII!r}], 'wide': {WIDE!r}}});"
        f"orc.repair_filters({str(path)!r}, decryption=DecryptionSpec(keys=keys, allow_ctr=True))"
    )
    killed = subprocess.run([sys.executable, "-c", code], env={**os.environ, "BLOOMSEAL_FAULT_POINT": where})
    assert killed.returncode == -signal.SIGKILL
    left = path.read_bytes()
    assert (left != data) == (where == "renamed")
    with bs.open_file(left, decryption=SPEC) as file:
        assert sum(one.encrypted for one in file.filters) == (4 if where == "renamed" else 0)
    orc.repair_filters(path, decryption=SPEC)
    with bs.open_file(path, decryption=SPEC) as file:
        assert {one.column for one in file.filters if one.encrypted} == {"name", "num"}
