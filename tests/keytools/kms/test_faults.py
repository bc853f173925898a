"""A KMS, a store or a file that misbehaves: always a KeyAccessError that says so, never a wrong key, never a hang."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pytest

import bloomseal as bs
from bloomseal import KeyTools
from bloomseal.core.encryption import SecretKey
from bloomseal.core.errors import KeyAccessError, UsageError
from bloomseal.core.storage.ref import FileRef
from bloomseal.keytools import KmsAccessError, Problem
from bloomseal.keytools.kms.common import claimed_version
from bloomseal.keytools.kms_protocols import MasterKeyFacts, MasterVersion
from bloomseal.keytools.material.store import MAX_STORE_BYTES
from support.stand_ins import InMemoryKms, PyArrowKms

TABLE = pa.table({"id": [1, 2, 3], "ssn": ["a", "b", "c"], "note": ["x", "y", "z"]})
COLUMNS = {"ssn": "kc1", "note": "kc2"}


def made(kms: InMemoryKms | None = None, **options: bool) -> tuple[bs.KeyTools, bytes]:
    tools = bs.KeyTools(kms or InMemoryKms(), **options)  # type: ignore[arg-type]
    return tools, tools.for_file(FileRef("t")).new_key("kc1", "ssn", 128)[1]


def resolve(tools: bs.KeyTools, metadata: bytes) -> bytes:
    return tools.for_file(FileRef("t")).retrieve_key(metadata, "ssn").reveal()


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize(
    "answer",
    [b"", b"short", b"x" * 17, b"x" * 33, b"x" * 1000, None, 5, [1] * 16, "text of 16 bytes" * 2 + "!"],
    ids=["nothing", "5 bytes", "17", "33", "1000", "None", "a number", "a list", "text"],
)
def test_an_answer_that_is_no_key(answer: object, double: bool) -> None:
    _, metadata = made(double_wrapping=double)

    class Odd(InMemoryKms):
        def unwrap_key(self, *_: str) -> object:  # type: ignore[override]
            return answer

    with pytest.raises(KmsAccessError) as caught:
        resolve(bs.KeyTools(Odd()), metadata)
    assert caught.value.problem is Problem.INVALID
    assert not caught.value.retryable


def test_a_key_of_a_lawful_but_wrong_length_or_value_opens_nothing() -> None:
    _, metadata = made()

    class Wrong(InMemoryKms):
        answer = b""

        def unwrap_key(self, *_: str) -> bytes:
            return self.answer

    for answer in (b"x" * 16, b"x" * 24, b"x" * 32):
        kms = Wrong()
        kms.answer = answer
        with pytest.raises(KeyAccessError, match="does not open"):
            resolve(bs.KeyTools(kms), metadata)


@pytest.mark.parametrize("answer", [None, 5, b"", "", b"\xff" * 40, "x" * 100_000])
def test_an_answer_that_is_no_wrapped_key(answer: object) -> None:
    class Odd(InMemoryKms):
        def wrap_key(self, *_: object) -> object:  # type: ignore[override]
            return answer

    with pytest.raises(KmsAccessError):
        made(Odd())


class TokenError(Exception):
    pass


@pytest.mark.parametrize(
    ("raised", "problem"),
    [
        (PermissionError("token=hunter2"), Problem.DENIED),
        (KeyError("hunter2"), Problem.UNKNOWN),
        (TimeoutError("hunter2"), Problem.UNREACHABLE),
        (ConnectionRefusedError("hunter2"), Problem.UNREACHABLE),
        (ValueError("hunter2"), Problem.INVALID),
        (TokenError("hunter2"), Problem.INVALID),
        (RecursionError("hunter2"), Problem.INVALID),
        (SystemExit("hunter2"), Problem.INVALID),
    ],
)
def test_whatever_a_client_raises_becomes_ours(raised: BaseException, problem: Problem) -> None:
    _, metadata = made()
    kms = InMemoryKms()
    kms.failing = raised
    with pytest.raises(KmsAccessError) as caught:
        resolve(bs.KeyTools(kms, attempts=1), metadata)
    assert caught.value.problem is problem
    assert caught.value.retryable is (problem in (Problem.UNREACHABLE, Problem.THROTTLED))
    assert "hunter2" not in str(caught.value)


def test_every_problem_has_a_message() -> None:
    told = {problem: str(KmsAccessError.because(problem, "pii", "the KMS")) for problem in Problem}
    assert len(set(told.values())) == len(Problem)
    assert all("'pii'" in text for text in told.values())
    retryable = {problem for problem in Problem if KmsAccessError.because(problem, "pii").retryable}
    assert retryable == {Problem.UNREACHABLE, Problem.THROTTLED}


def altered(metadata: bytes, **changes: object) -> bytes:
    return json.dumps({**json.loads(metadata), **changes}).encode()


@pytest.mark.parametrize(("field", "double"), [("wrappedDEK", True), ("wrappedKEK", True), ("wrappedDEK", False)])
def test_truncated_and_altered_blobs(field: str, double: bool) -> None:
    tools, metadata = made(double_wrapping=double)
    whole = json.loads(metadata)[field]
    blob = base64.b64decode(whole)
    broken = [whole[:cut] for cut in range(0, len(whole) - 1, 5)]
    broken += [base64.b64encode(blob[:i] + bytes([blob[i] ^ 1]) + blob[i + 1 :]).decode() for i in range(len(blob))]
    broken += ["", "!", whole + "AAAA", "ä" * 20]
    for text in broken:
        with pytest.raises(KeyAccessError):
            resolve(tools, altered(metadata, **{field: text}))


def test_a_wrapped_key_serves_no_other_master_key() -> None:
    for double in (True, False):
        tools, metadata = made(double_wrapping=double)
        with pytest.raises(KeyAccessError):
            resolve(tools, altered(metadata, masterKeyID="kc2"))


def test_a_data_key_is_bound_to_its_kek() -> None:
    """A data key of one KEK put beside another KEK of the same master key, with either id."""
    (_, first), (_, second) = made(), made()
    for mixed in (
        altered(first, wrappedDEK=json.loads(second)["wrappedDEK"]),
        altered(first, keyEncryptionKeyID=json.loads(second)["keyEncryptionKeyID"]),
        altered(first, wrappedKEK=json.loads(second)["wrappedKEK"]),
        altered(first, keyEncryptionKeyID="AAAA"),
        altered(first, keyEncryptionKeyID="not base64"),
    ):
        with pytest.raises(KeyAccessError):
            resolve(bs.KeyTools(InMemoryKms()), mixed)


def test_a_hostile_file_does_not_poison_the_cache() -> None:
    """It claims the KEK id of another file; neither its key nor its refusal may be taken for the other's."""
    tools, good = made()
    hostile = altered(good, wrappedKEK=base64.b64encode(b"x" * 44).decode())
    with pytest.raises(KeyAccessError):
        resolve(tools, hostile)
    assert len(resolve(tools, good)) == 16
    fresh = bs.KeyTools(InMemoryKms())
    with pytest.raises(KeyAccessError):
        resolve(fresh, hostile)
    assert len(resolve(fresh, good)) == 16


# The KMS's address


def footer_metadata(**options: str) -> bytes:
    tools = bs.KeyTools(InMemoryKms(), **options)  # type: ignore[arg-type]
    return tools.for_file(FileRef("t")).new_key("kf", None, 128)[1]


def test_an_address_in_a_file_is_matched_never_followed() -> None:
    metadata = footer_metadata(instance_url="https://evil.example/kms")
    kms = InMemoryKms()
    with pytest.raises(KeyAccessError, match=re.escape("https://evil.example/kms")):
        bs.KeyTools(kms).for_file(FileRef("t")).retrieve_key(metadata, None)
    assert not kms.calls
    allowed = bs.KeyTools(kms, allowed_urls=["https://evil.example/kms"])
    assert allowed.for_file(FileRef("t")).retrieve_key(metadata, None).bits == 128
    for near in ("https://evil.example/kms/", "HTTPS://EVIL.EXAMPLE/kms", "https://evil.example/kms?x", " DEFAULT"):
        with pytest.raises(KeyAccessError, match="not among the allowed"):
            bs.KeyTools(kms, allowed_urls=["https://evil.example/kms"]).for_file(FileRef("t")).retrieve_key(
                altered(metadata, kmsInstanceURL=near), None
            )


def test_columns_go_where_the_footer_key_went() -> None:
    """Column keys do not name their KMS; with a map of allowed ones, the footer's choice holds for the file."""
    theirs = InMemoryKms({"kf": b"k" * 16, "kc1": b"q" * 16})
    writer = bs.KeyTools(theirs, instance_url="https://b.example")
    keys = writer.for_file(FileRef("t"))
    footer, column = keys.new_key("kf", None, 128), keys.new_key("kc1", "ssn", 128)
    ours = InMemoryKms()
    reader = bs.KeyTools(ours, allowed_urls={"https://b.example": theirs}).for_file(FileRef("t"))
    assert reader.retrieve_key(footer[1], None) == footer[0]
    assert reader.retrieve_key(column[1], "ssn") == column[0]
    assert not ours.calls


def test_one_address_is_not_a_collection_of_addresses() -> None:
    with pytest.raises(UsageError, match="collection"):
        bs.KeyTools(InMemoryKms(), allowed_urls="https://a.example")


# The external store


def sealed(folder: Path, **more: object) -> Path:
    path = folder / "t.parquet"
    spec = bs.EncryptionSpec("kf", COLUMNS, bs.KeyTools(InMemoryKms(), internal=False))
    bs.write_table(TABLE, path, encryption=spec, **more)  # type: ignore[arg-type]
    return path


def opened(path: str | Path, **more: object) -> pa.Table:
    return bs.open_file(path, decryption=bs.DecryptionSpec(PyArrowKms()), **more).read()  # type: ignore[arg-type]


def store_of(path: Path) -> Path:
    return path.with_name(f"_KEY_MATERIAL_FOR_{path.name}.json")


@pytest.mark.parametrize(
    "contents",
    [b"", b"garbage", b"[]", b"{}", b'{"footerKey":5}', b'{"footerKey":"garbage"}', b"[" * 100_000, b"\xff\xfe\x00"],
)
def test_a_broken_store(tmp_path: Path, contents: bytes) -> None:
    path = sealed(tmp_path)
    store_of(path).write_bytes(contents)
    with pytest.raises(KeyAccessError) as caught:
        opened(path)
    assert str(path) in str(caught.value)


def test_a_missing_or_endless_store(tmp_path: Path) -> None:
    path = sealed(tmp_path)
    store = store_of(path)
    with open(store, "r+b") as file:
        file.truncate(MAX_STORE_BYTES + 1)
    with pytest.raises(KeyAccessError, match="limit"):
        opened(path)
    store.unlink()
    with pytest.raises(KeyAccessError, match=re.escape(store.name)):
        opened(path)


def test_material_of_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = sealed(tmp_path / "a"), sealed(tmp_path / "b")
    store_of(first).write_bytes(store_of(second).read_bytes())
    with pytest.raises(bs.BloomsealError) as caught:
        opened(first)
    assert isinstance(caught.value, bs.IntegrityError | KeyAccessError)


def test_external_material_on_another_file_system(tmp_path: Path) -> None:
    filesystem = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    spec = bs.EncryptionSpec("kf", COLUMNS, bs.KeyTools(InMemoryKms(), internal=False))
    for _ in range(2):
        bs.write_table(TABLE, "t.parquet", encryption=spec, filesystem=filesystem)
        assert opened("t.parquet", filesystem=filesystem) == TABLE
    assert sorted(path.name for path in tmp_path.iterdir()) == ["_KEY_MATERIAL_FOR_t.parquet.json", "t.parquet"]


def test_a_failed_write_leaves_the_old_file_and_its_material(tmp_path: Path) -> None:
    path = sealed(tmp_path)
    before = path.read_bytes(), store_of(path).read_bytes()
    kms = InMemoryKms()
    del kms.keys["kc2"]
    spec = bs.EncryptionSpec("kf", COLUMNS, bs.KeyTools(kms, internal=False))
    with pytest.raises(KmsAccessError, match="kc2"):
        bs.write_table(TABLE, path, encryption=spec)
    assert (path.read_bytes(), store_of(path).read_bytes()) == before
    assert len(list(tmp_path.iterdir())) == 2


_OVERWRITE = """
import sys, pyarrow as pa, bloomseal as bs
from support.stand_ins import InMemoryKms
spec = bs.EncryptionSpec("kf", {"ssn": "kc1", "note": "kc2"}, bs.KeyTools(InMemoryKms(), internal=False))
bs.write_table(pa.table({"id": [9], "ssn": ["new"], "note": ["new"]}), sys.argv[1], encryption=spec)
"""


@pytest.mark.parametrize("point", ["written", "synced", "checked", "renamed"])
def test_killed_while_overwriting_the_file_that_is_there_opens(tmp_path: Path, point: str) -> None:
    """The material is in place before the file is: until then the old file must find its own, and it does."""
    path = sealed(tmp_path)
    environment = {**os.environ, "BLOOMSEAL_FAULT_POINT": point, "PYTHONPATH": str(Path(__file__).parents[2])}
    died = subprocess.run([sys.executable, "-c", _OVERWRITE, str(path)], env=environment, check=False)
    assert died.returncode == -signal.SIGKILL
    assert opened(path).num_rows == (1 if point == "renamed" else 3)
    sealed(tmp_path)  # and the next writer gets along with what was left
    assert opened(path) == TABLE


# Partial access


def test_what_one_key_covers_is_read_and_the_rest_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    spec = bs.EncryptionSpec("kf", COLUMNS, InMemoryKms())
    bs.write_table(TABLE, path, encryption=spec, bloom_filters={"ssn": True, "note": True})
    allowed = InMemoryKms({name: key for name, key in InMemoryKms().keys.items() if name != "kc2"})
    file = bs.open_file(path, decryption=bs.DecryptionSpec(allowed))
    assert file.read(["id", "ssn"]) == TABLE.select(["id", "ssn"])
    assert list(file.probe("ssn", ["a", "nobody"])[0]) == [bs.Verdict.MAYBE_PRESENT, bs.Verdict.ABSENT]
    with pytest.raises(KmsAccessError, match="'kc2'") as caught:
        file.read(["note"])
    assert caught.value.column == "note"
    with pytest.raises(KmsAccessError):
        file.probe("note", ["x"])
    report = file.verify()
    assert "note" in report.inaccessible


class _Capricious(InMemoryKms):
    """Its optional methods fail as they like."""

    def change_marker(self) -> object:
        raise ValueError("hvs.secret")

    def describe(self, *_: str | None) -> MasterKeyFacts:
        raise ValueError("hvs.secret")

    def opened_by(self, *_: str) -> MasterVersion:
        raise ValueError("hvs.secret")


def test_optional_methods_that_fail() -> None:
    _, metadata = bs.KeyTools(InMemoryKms()).for_file(FileRef("t")).new_key("kc1", "c", 128)
    tools = bs.KeyTools(_Capricious())
    with pytest.raises(KeyAccessError, match="change_marker failed with ValueError") as caught:
        tools.for_file(FileRef("t")).retrieve_key(metadata, "c")
    assert "hvs" not in str(caught.value)
    assert caught.value.__context__ is None
    assert tools.describe(metadata).wrapping_version is None
    for ask in (lambda: tools.calls.describe("kc1"), lambda: tools.calls.opened_by("AAAA", "kc1")):
        with pytest.raises(KmsAccessError, match="the client failed with ValueError") as caught:
            ask()
        assert "hvs" not in str(caught.value)
        assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("wrapped", "version"),
    [
        ("vault:v3:AAAA", "3"),
        ('{"masterKeyVersion":"3","encryptedKey":"AAAA"}', "3"),
        ('{"masterKeyVersion":"03","encryptedKey":"AAAA"}', "3"),  # opens under version 3, too
        ('{"masterKeyVersion":"5f2c","encryptedKey":"AAAA"}', "5f2c"),
        ('{"masterKeyVersion":"NO_VERSION","encryptedKey":"AAAA"}', None),
        ('{"masterKeyVersion":3}', None),
        ('{"masterKeyVersion":"\\ud800"}', None),
        ("[" * 100_000, None),
        ("vault:v:AAAA", None),
        ("AAAA", None),
        ("", None),
    ],
)
def test_the_version_that_a_wrapped_key_claims(wrapped: str, version: str | None) -> None:
    assert claimed_version(wrapped) == version


def test_what_no_client_tells_is_unknown() -> None:
    """A client of two methods, and one whose answer is none of ours."""
    calls = bs.KeyTools(InMemoryKms()).calls
    assert calls.describe("kc1") == MasterKeyFacts("kc1")
    with pytest.raises(KmsAccessError, match="does not tell which version"):
        calls.opened_by(InMemoryKms().wrap_key(bytes(16), "kc1"), "kc1")

    class Odd(InMemoryKms):
        def describe(self, *_: str | None) -> dict[str, bool]:
            return {"authenticates_writers": True}

        def opened_by(self, *_: str) -> None:
            return None

    calls = bs.KeyTools(Odd()).calls
    with pytest.raises(KmsAccessError, match="no MasterKeyFacts"):
        calls.describe("kc1")
    with pytest.raises(KmsAccessError, match="does not tell which version"):
        calls.opened_by(InMemoryKms().wrap_key(bytes(16), "kc1"), "kc1")


def test_a_wrapped_key_that_no_file_can_hold_is_refused() -> None:
    class Odd(InMemoryKms):
        def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
            return super().wrap_key(key_bytes, master_key_identifier) + "\udc80"

    with pytest.raises(KmsAccessError, match="no text"):
        made(Odd())


@pytest.mark.parametrize("failure", [PermissionError, KeyError, ValueError, ConnectionRefusedError, TimeoutError])
def test_a_foreign_clients_failure_names_its_class_and_the_exceptions_type(failure: type[Exception]) -> None:
    class MyKms(InMemoryKms):
        def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:  # noqa: ARG002
            raise failure("token=hunter2")

    with pytest.raises(KmsAccessError) as caught:
        KeyTools(MyKms(), attempts=1).wrap(SecretKey(bytes(16)), "k")
    assert "MyKms" in str(caught.value)
    assert failure.__name__ in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
