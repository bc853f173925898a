"""Whoever opens the local keys of ORC files: master keys at hand, a Hadoop KMS."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

import bloomseal as bs
from bloomseal import DecryptionSpec, KeyTools, orc
from bloomseal.core.errors import KeyAccessError, UsageError
from bloomseal.keytools import KmsAccessError, MasterKeys, Problem
from bloomseal.keytools.kms.hadoop import HadoopKms
from bloomseal.keytools.kms.registry import client_for
from bloomseal.keytools.local_keys import local_key_calls
from bloomseal.keytools.sources import as_key_source
from support.hadoop_kms import hadoop_kms
from support.jvm import JavaUnavailableError, start_jvm
from support.orc_files import orc_file, orc_ring
from support.orc_java import hadoop_keys, java_orc_rows, java_orc_write, make_key_store, memory_keys, store_opens

KEYS = {"pii": [bytes(16), bytes(range(16))], "wide": [bytes(range(32))]}
SCHEMA = "struct<id:bigint,name:string,num:int>"
ROWS = [[i, f"name{i}", 10 * i] for i in range(1_500)]


@pytest.fixture
def java() -> None:
    try:
        start_jvm()
    except JavaUnavailableError as error:
        pytest.skip(str(error))


def _open(encrypted: bytes, key: bytes) -> bytes:
    return Cipher(algorithms.AES(key), modes.CTR(encrypted[:16])).decryptor().update(encrypted)


def test_master_keys_at_hand() -> None:
    encrypted = bytes(range(100, 132))
    keys = MasterKeys({"pii": [None, KEYS["wide"][0]], "one": KEYS["pii"][1]})
    assert keys.open_local_key(encrypted, "pii", 1) == _open(encrypted, KEYS["wide"][0])
    assert (keys.newest_version("pii"), keys.newest_version("one")) == (1, 0)
    for name, version in (("pii", 0), ("pii", 2), ("two", 0)):
        with pytest.raises(KmsAccessError) as refused:
            keys.open_local_key(encrypted, name, version)
        assert refused.value.problem is Problem.UNKNOWN
    assert KEYS["wide"][0].hex() not in repr(keys)
    with pytest.raises(TypeError):
        pickle.dumps(keys)
    for wrong in ({"a": "text"}, {"a": []}, {"a": 3}):
        with pytest.raises(UsageError):
            MasterKeys(wrong)  # type: ignore[arg-type]


def test_keys_at_hand_are_opened_in_the_callers_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread for each of two keys of each file takes longer than opening them. A subclass may wait for anything."""
    threads: list[str] = []

    def seen(client: type) -> None:
        opens = client.open_local_key

        def watched(*given: object) -> bytes:
            threads.append(threading.current_thread().name)
            return bytes(opens(*given))

        monkeypatch.setattr(client, "open_local_key", watched)

    class Slow(MasterKeys):
        pass

    seen(MasterKeys)
    seen(bs.Keyring)
    keys = {"pii": KEYS["pii"][1]}
    ring = orc_ring(tmp_path / "keys.json")
    for source, name, own in (
        (MasterKeys(keys), "pii", False), (ring, "pii", False), (KeyTools(ring), "pii", False), (Slow(keys), "pii", True)
    ):  # fmt: skip
        threads.clear()
        local_key_calls(source).open(bytes(range(16)), name, 0)
        assert [one != threading.current_thread().name for one in threads] == [own], source
        with pytest.raises(KeyAccessError) as refused:
            local_key_calls(source).open(bytes(range(16)), "nobody's", 0)
        assert not refused.value.retryable
        assert refused.value.__context__ is None


def test_calls_are_counted_by_the_key_tools_over_a_keyring(tmp_path: Path) -> None:
    ring = orc_ring(tmp_path / "keys.json")
    path = orc_file(tmp_path / "a.orc", ring)
    tools = KeyTools(ring)
    with bs.open_file(path, decryption=DecryptionSpec(tools, allow_ctr=True)) as file:
        assert file.read(["name"]).num_rows == 1_500
    asked = tools.counters.unwraps
    assert asked == 2  # the local keys of the column's statistics, and of its stripes
    with bs.open_file(path, decryption=DecryptionSpec(tools, allow_ctr=True)) as file:
        file.read(["num"])
    assert tools.counters.unwraps == 2 * asked
    # A keyring, or its URI, is asked through the key tools that all share.
    for keys in (ring, f"keyring:{tmp_path / 'keys.json'}"):
        shared = as_key_source(keys)
        assert isinstance(shared, KeyTools)
        before = shared.counters.unwraps
        with bs.open_file(path, decryption=DecryptionSpec(keys, allow_ctr=True)) as file:
            file.read(["name"])
        assert shared.counters.unwraps == before + asked


@pytest.mark.jvm
@pytest.mark.parametrize(("bits", "versions"), [(128, 3), (192, 1), (256, 2)])
def test_keys_out_of_a_hadoop_key_store(java: None, tmp_path: Path, bits: int, versions: int) -> None:
    uri = f"jceks://file{tmp_path}/store.jceks"
    keys = make_key_store(uri, "pii", bits=bits, versions=versions)
    master = MasterKeys({"pii": keys})
    encrypted = bytes(range(50, 82))
    # A KMS over this store makes the same of it, once it has turned the IV over.
    iv = bytes(0xFF ^ byte for byte in encrypted[:16])
    for version in {0, versions - 1}:
        assert store_opens(uri, f"pii@{version}", iv, encrypted) == master.open_local_key(encrypted, "pii", version)
    if bits == 192:
        return
    path = tmp_path / "file.orc"
    java_orc_write(path, SCHEMA, ROWS, memory_keys(("pii", versions - 1, keys[-1])), encrypt="pii:num")
    with bs.open_file(path, decryption=DecryptionSpec(keys=master, allow_ctr=True)) as file:
        assert file.rows(0, ["num"])["num"].to_pylist() == [row[2] for row in ROWS]


@pytest.mark.jvm
def test_the_java_client_and_ours_meet_at_one_kms(java: None, tmp_path: Path) -> None:
    path = tmp_path / "file.orc"
    with hadoop_kms(KEYS) as kms:
        java_orc_write(path, SCHEMA, ROWS, hadoop_keys(kms.java_uri), encrypt="pii:name;wide:num", filters="name")
        spec = DecryptionSpec(keys=kms.uri, allow_ctr=True)
        kms.calls.clear()
        with bs.open_file(path, decryption=spec) as file:
            assert file.rows(0, ["name"])["name"].to_pylist() == [row[1] for row in ROWS]
            assert file.rows(0, ["num"])["num"].to_pylist() == [row[2] for row in ROWS]
            file.probe("num", [5])
        assert len(kms.calls) == 2  # one for each local key
        kms.keys = {**KEYS, "wide": [*KEYS["wide"], bytes(range(1, 33))]}
        assert orc.rekey(path, decryption=spec).versions == {"wide": 1}
        assert java_orc_rows(path, hadoop_keys(kms.java_uri)) == ROWS


def test_what_a_kms_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    encrypted = bytes(range(16))
    monkeypatch.setenv("HADOOP_USER_NAME", "ana")
    with hadoop_kms(KEYS) as kms:
        client = HadoopKms(f"http://127.0.0.1:{kms.port}/kms")
        assert client.open_local_key(encrypted, "pii", 1) == _open(encrypted, KEYS["pii"][1])
        assert client.newest_version("pii") == 1
        assert kms.calls[-1] == ("GET", "/kms/v1/key/pii/_metadata", "ana")

        def problem(call: str = "open", name: str = "pii") -> Problem:
            with pytest.raises(KmsAccessError) as refused:
                client.open_local_key(encrypted, name, 0) if call == "open" else client.newest_version(name)
            return refused.value.problem

        assert problem(name="nobody") is Problem.UNKNOWN
        assert problem("newest", "nobody") is Problem.UNKNOWN
        before = len(kms.calls)
        for name in ("../keys/names", "a/b", "", "a b", "."):
            assert problem(name=name) is Problem.UNKNOWN
        assert len(kms.calls) == before
        kms.denied.add("ana")
        assert problem() is Problem.DENIED
        kms.denied.clear()
        for status, body, expected in (
            (503, b"", Problem.UNREACHABLE),
            (429, b"", Problem.THROTTLED),
            (302, b"", Problem.INVALID),
            (200, b"<html>", Problem.INVALID),
            (200, b"[]", Problem.INVALID),
            (200, b'{"material": 7}', Problem.INVALID),
            (200, b'{"material": "AAAA"}', Problem.INVALID),
        ):
            kms.status, kms.body = status, body
            assert problem() is expected, (status, body)
    assert problem() is Problem.UNREACHABLE


def test_addresses_of_a_hadoop_kms() -> None:
    for uri in ("hadoop-kms:", "hadoop-kms://h/kms?token=x", "hadoop-kms://u@h/kms", "hadoop-kms://h?a=b"):
        with pytest.raises(UsageError):
            local_key_calls(uri)
    with pytest.raises(UsageError, match="plain HTTP"):
        local_key_calls("hadoop-kms://kms.example:9600/kms?plain_http=true")
    local_key_calls("hadoop-kms://kms.example:9600/kms")
    # It wraps no keys, so that Parquet can't use it.
    client = client_for("hadoop-kms://kms.example:9600/kms")
    for call in (lambda: client.wrap_key(bytes(16), "pii"), lambda: client.unwrap_key("x", "pii")):
        with pytest.raises(KmsAccessError, match="ORC"):
            call()
