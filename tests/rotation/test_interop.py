"""Files of pyarrow and parquet-java rotated, and read by all three afterwards; a KMS that re-wraps by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

import bloomseal as bs
from bloomseal import KeyTools
from bloomseal.keytools.kms.aws import AwsKms
from bloomseal.keytools.kms.registry import client_for
from bloomseal.rotation import Rekey, Rewrap, Seal, rotate
from bloomseal.rotation.outcome import Status
from keytools.kms.test_matrix import JAVA_ROWS, JAVA_SCHEMA, TABLE, read, write
from support.jvm import JavaDecryption, JavaEncryption, Jvm, java_filters, java_rows, java_write, key_tools
from support.rotation_tables import ciphers, masters, modules, opened
from support.stand_ins import MASTER_KEYS, InMemoryKms, PyArrowKms

REGION = "eu-central-1"
MOVED = {"kf": "kc1", "kc1": "kc2", "kc2": "kf"}
READERS = ("pyarrow", "java", "bloomseal")


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def reading() -> bs.DecryptionSpec:
    return bs.DecryptionSpec(KeyTools(PyArrowKms()))


@pytest.mark.parametrize("footer", ["encrypted", "plaintext"])
@pytest.mark.parametrize("material", ["internal", "external"])
@pytest.mark.parametrize("wrapping", ["single", "double"])
@pytest.mark.parametrize("writer", ["pyarrow", "java"])
def test_others_files_are_rotated_and_read_by_all(
    java: Jvm, tmp_path: Path, writer: str, wrapping: str, material: str, footer: str
) -> None:
    path = tmp_path / "t.parquet"
    write(
        writer,
        path,
        internal=material == "internal",
        double=wrapping == "double",
        bits=128,
        plaintext_footer=footer == "plaintext",
    )
    data, old = path.read_bytes(), ciphers(path, reading())
    end = opened(path, reading()).footer.offset

    report = rotate(path, Rewrap(reading(), MOVED))
    assert [file.status for file in report.files] == [Status.REWRAPPED]
    # The bytes that the other writer made, its padding and its unknown fields: untouched.
    assert path.read_bytes()[:end] == data[:end]
    assert (path.read_bytes() == data) is (material == "external")
    assert [cipher.key for cipher in ciphers(path, reading())] == [cipher.key for cipher in old]
    for reader in READERS:
        assert read(reader, path) == TABLE.to_pylist(), reader

    filters = java_filters(path, "ssn", key_tools(MASTER_KEYS)) if writer == "java" else []
    assert rotate(path, Rekey(reading())).ok
    assert masters(path, reading()) == set(MOVED)
    assert not {cipher.key for cipher in ciphers(path, reading())} & {cipher.key for cipher in old}
    if footer == "encrypted":
        assert not any(module.opens_under(cipher) for module in modules(path, reading()) for cipher in old)
    for reader in READERS:
        assert read(reader, path) == TABLE.to_pylist(), reader
    if writer == "java":
        assert java_filters(path, "ssn", key_tools(MASTER_KEYS)) == filters, "the same bits under another key"


def test_parquet_javas_footer_key_columns_among_plaintext_ones(java: Jvm, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    keys = JavaEncryption(b"f" * 16, {"ssn": b"s" * 16, "note": None}, plaintext_footer=True)
    java_write(path, JAVA_SCHEMA, JAVA_ROWS, encryption=keys, filters=["ssn", "note"])
    old = bs.DecryptionSpec(bs.ExplicitKeys(b"f" * 16, {"ssn": b"s" * 16}))
    new = bs.EncryptionSpec((b"F" * 16, "kf"), {"ssn": (b"S" * 16, "ks"), "note": (b"N" * 16, "kn")})
    assert rotate(path, Rekey(old, new)).ok
    access = JavaDecryption(keys_by_id={b"kf": b"F" * 16, b"ks": b"S" * 16, b"kn": b"N" * 16})
    assert java_rows(path, access) == JAVA_ROWS
    assert java_filters(path, "note", access)[0] is not None


def test_a_table_of_every_writers_files(java: Jvm, tmp_path: Path) -> None:
    """And a plaintext one among them, which is not passed over in silence."""
    table = tmp_path / "table"
    table.mkdir()
    for writer in ("pyarrow", "java", "bloomseal"):
        for internal in (True, False):
            path = table / f"{writer}-{internal}.parquet"
            write(writer, path, internal=internal, double=True, bits=256, plaintext_footer=False)
    java_write(table / "plain.parquet", JAVA_SCHEMA, JAVA_ROWS, filters=["ssn"])
    report = rotate(table, Rewrap(reading(), MOVED))
    assert Counter(file.status for file in report.files) == {Status.REWRAPPED: 6, Status.FAILED: 1}
    assert "plaintext" in str(report.problems[0].why)
    spec = bs.EncryptionSpec("kf", {"ssn": "kc1", "note": "kc2"}, keys=KeyTools(PyArrowKms()))
    report = rotate(table, Seal(spec))
    assert Counter(file.status for file in report.files) == {Status.NOTHING: 6, Status.SEALED: 1}
    for path in table.glob("*.parquet"):
        for reader in READERS:
            assert read(reader, path) == TABLE.to_pylist(), (path.name, reader)
    assert java_filters(table / "plain.parquet", "ssn", key_tools(MASTER_KEYS))[0] is not None


def test_a_kms_that_cannot_rewrap_is_asked_to_unwrap_and_wrap(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    write("bloomseal", path, internal=True, double=True, bits=128, plaintext_footer=False)
    kms = InMemoryKms()
    report = rotate(path, Rewrap(bs.DecryptionSpec(KeyTools(kms)), MOVED))
    assert report.ok
    assert kms.calls["wrap"] == 3
    assert kms.calls["unwrap"] == 6, "every KEK before, and once more to compare"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


class _Watched(AwsKms):
    """The AWS client, with a note of what it was asked."""

    asked: Counter[str]

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        self.asked["encrypt"] += 1
        return super().wrap_key(key_bytes, master_key_identifier)

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        self.asked[f"decrypt {master_key_identifier}"] += 1
        return super().unwrap_key(wrapped_key, master_key_identifier)

    def rewrap_key(
        self, wrapped_key: str, master_key_identifier: str, new_master_key_identifier: str | None = None
    ) -> str:
        self.asked["re-encrypt"] += 1
        return super().rewrap_key(wrapped_key, master_key_identifier, new_master_key_identifier)


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("internal", [True, False])
def test_aws_rewraps_and_no_column_key_leaves_it(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, internal: bool, double: bool
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    admin: Any = boto3.client("kms", region_name=REGION, endpoint_url=endpoint)
    footer, pii, pii_new = (admin.create_key()["KeyMetadata"]["KeyId"] for _ in range(3))
    kms = client_for(f"aws-kms://{REGION}?endpoint={endpoint}")
    table = tmp_path / "table"
    table.mkdir()
    tools = KeyTools(kms, internal=internal, double_wrapping=double)
    spec = bs.EncryptionSpec(footer, {"ssn": pii}, keys=tools)
    for index in range(4):
        bs.write_table(TABLE, table / f"{index}.parquet", encryption=spec, bloom_filters={"ssn": True})

    watched = _Watched(REGION, endpoint=endpoint)
    watched.asked = Counter()
    job = Rewrap(bs.DecryptionSpec(KeyTools(watched)), {pii: pii_new})
    report = rotate(table, job)
    assert [file.status for file in report.files] == [Status.REWRAPPED] * 4
    keys = 1 if double else 4
    assert watched.asked == {"re-encrypt": keys, f"decrypt {footer}": keys}
    # AWS does not tell which version wrapped a text: the journal alone knows that it is done.
    again = rotate(table, job)
    assert [file.status for file in again.files] == [Status.DONE_BEFORE] * 4
    same = Rewrap(bs.DecryptionSpec(KeyTools(kms)))
    assert rotate(table, same).ok
    assert [file.status for file in rotate(table, same).files] == [Status.DONE_BEFORE] * 4
    for index in range(4):
        path = table / f"{index}.parquet"
        assert masters(path, bs.DecryptionSpec(KeyTools(kms))) == {footer, pii_new}
        with bs.open_file(path, decryption=bs.DecryptionSpec(KeyTools(kms))) as file:
            assert file.read().equals(TABLE)
