"""Encrypted columns of files that the Java library wrote: what is told without keys, and what opens with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bloomseal as bs
from bloomseal import DecryptionSpec, Keyring, Verdict
from bloomseal.core.errors import IntegrityError, KeyAccessError, PolicyError, UsageError
from bloomseal.keytools import MasterKeys
from bloomseal.read.orc.file import OrcFile
from support.jvm import JavaUnavailableError, start_jvm
from support.orc_java import java_orc_merge, java_orc_rows, java_orc_write, memory_keys

pytestmark = pytest.mark.jvm

OLD, NEW, WIDE = bytes(range(16)), bytes(range(16, 32)), bytes(range(32))
JAVA = memory_keys(("pii", 0, OLD), ("pii", 1, NEW), ("wide", 0, WIDE))
OURS = MasterKeys({"pii": [OLD, NEW], "wide": WIDE})
SCHEMA = "struct<id:bigint,name:string,num:int,s:struct<a:int,b:string>>"
ROWS = [[i, f"name{i}" if i % 7 else None, 10 * i, [i % 3, f"in{i}"]] for i in range(5_000)]
OPTIONS: dict[str, Any] = {"encrypt": "pii:name;wide:num,s", "filters": "id,name,num", "stripe_rows": 2_000}
OPTIONS["stride"] = 1_000


@pytest.fixture(scope="module", autouse=True)
def _java() -> None:
    try:
        start_jvm()
    except JavaUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("orc") / "sealed.orc"
    java_orc_write(path, SCHEMA, ROWS, JAVA, **OPTIONS)
    return path


def _maybe(file: OrcFile, column: str, value: Any) -> list[bool]:
    return [answer.verdicts[0] != Verdict.ABSENT for answer in file.verdicts(column, [value])]


def test_the_footer_tells_keys_masks_and_columns(path: Path) -> None:
    with bs.open_file(path) as file:
        assert file.encrypted_columns == ["name", "num", "s.a", "s.b"]
        assert file.encryption is not None
        told = file.encryption.to_dict()
        assert told["keys"] == [
            {"name": "pii", "version": 1, "algorithm": "AES_CTR_128"},
            {"name": "wide", "version": 0, "algorithm": "AES_CTR_256"},
        ]
        assert told["masks"] == [{"name": "nullify", "parameters": [], "columns": ["name", "num", "s"]}]
        assert [(one["column"], one["key"]) for one in told["variants"]] == [
            ("name", "pii"),
            ("num", "wide"),
            ("s", "wide"),
        ]
        # The library leaves the filters of encrypted columns in clear.
        clear = {one.column for one in file.filters if one.untrusted == "untrusted: in clear, on an encrypted column"}
        assert clear == {"name", "num"}


@pytest.mark.parametrize("compression", ["NONE", "ZLIB", "SNAPPY", "LZ4", "ZSTD"])
def test_statistics_open_and_prune(compression: str, tmp_path: Path) -> None:
    path = tmp_path / "one.orc"
    java_orc_write(path, SCHEMA, ROWS, JAVA, **OPTIONS, compression=compression)
    with bs.open_file(path, decryption=DecryptionSpec(keys=OURS, allow_ctr=True)) as file:
        groups = [slice(start, start + 1_000) for start in range(0, 5_000, 1_000)]
        for value in (0, 9_990, 22_345, 49_990, 50_000):
            there = [any(row[2] == value for row in ROWS[part]) for part in groups]
            inside = [ROWS[part][0][2] <= value <= ROWS[part][-1][2] for part in groups]
            assert _maybe(file, "num", value) == inside
            assert all(inside[place] for place, found in enumerate(there) if found)
        assert _maybe(file, "s.a", 2) == [True] * 5
        assert _maybe(file, "s.a", 3) == [False] * 5
        assert _maybe(file, "name", "name1") == [True] * 5  # texts have no bounds here, and no filter to trust
        assert _maybe(file, "id", 1_700) == [False, True, False, False, False]


def test_merged_stripes_keep_their_ids_and_keys(path: Path, tmp_path: Path) -> None:
    other, merged = tmp_path / "other.orc", tmp_path / "merged.orc"
    java_orc_write(other, SCHEMA, [[i, "x", -i, [7, "y"]] for i in range(2_200)], JAVA, **OPTIONS)
    assert java_orc_merge(merged, [path, other, path], JAVA) == 3
    with bs.open_file(merged, decryption=DecryptionSpec(keys=OURS, allow_ctr=True)) as file:
        assert [stripe.encrypt_id for stripe in file.stripes] == [1, 2, 3, 1, 2, 1, 2, 3]
        assert len({stripe.encrypted_keys for stripe in file.stripes}) == 2
        assert _maybe(file, "num", -1_700) == [False] * 5 + [False, True, False] + [False] * 5
        assert _maybe(file, "num", 4_990) == [True, *[False] * 7, True, *[False] * 4]


def test_nothing_is_absent_unless_ctr_is_accepted(path: Path) -> None:
    with bs.open_file(path, decryption=DecryptionSpec(keys=OURS)) as file:
        for answer in file.verdicts("num", [-1, 0]):
            assert answer.verdicts == [Verdict.NO_FILTER] * 2
            assert "allow_ctr" in str(answer.untrusted)
        assert _maybe(file, "id", -1) == [False] * 5


@pytest.mark.parametrize("compression", ["NONE", "ZLIB"])
def test_a_wrong_key_is_never_a_verdict(compression: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.orc"
    java_orc_write(path, SCHEMA, ROWS[:1_700], JAVA, **OPTIONS, compression=compression)
    for number in range(300):
        wrong = MasterKeys({"wide": number.to_bytes(32, "little"), "pii": [OLD, OLD]})
        with bs.open_file(path, decryption=DecryptionSpec(keys=wrong, allow_ctr=True)) as file:
            for column in ("num", "s.a", "name"):
                with pytest.raises(IntegrityError, match="wrong key"):
                    file.verdicts(column, [1 if column != "name" else "x"])


def test_without_keys_masked_values_are_not_taken_for_real_ones(path: Path) -> None:
    with bs.open_file(path) as file, pytest.raises(KeyAccessError, match="no keys were given"):
        file.verdicts("num", [1])
    gone = MasterKeys({"pii": [OLD, None]})
    with bs.open_file(path, decryption=DecryptionSpec(keys=gone, allow_ctr=True)) as file:
        for column in ("num", "name"):
            with pytest.raises(KeyAccessError, match="knows no master key"):
                file.verdicts(column, [None])
        assert _maybe(file, "id", 1)[0]


def test_what_is_expected_must_be_encrypted(path: Path, tmp_path: Path) -> None:
    for expected in ({"encrypted_columns": ["id"]}, {"complete": True}):
        with pytest.raises(PolicyError, match="in plaintext"):
            bs.open_file(path, decryption=DecryptionSpec(keys=OURS, **expected))
    bs.open_file(path, decryption=DecryptionSpec(keys=OURS, encrypted_columns=["s", "name"])).close()
    clear = tmp_path / "clear.orc"
    java_orc_write(clear, SCHEMA, ROWS[:10])
    with pytest.raises(PolicyError, match="a plaintext file"):
        bs.open_file(clear, decryption=DecryptionSpec(keys=OURS))
    bs.open_file(clear, decryption=DecryptionSpec(keys=OURS, allow_plaintext=True)).close()
    with (
        bs.open_file(path, decryption=DecryptionSpec(keys=object(), allow_ctr=True)) as file,
        pytest.raises(UsageError, match="ORC"),
    ):
        file.verdicts("num", [1])


def test_a_keyring_opens_local_keys(tmp_path: Path) -> None:
    ring = Keyring(tmp_path / "ring.json", create=True)
    ring.create("pii", bits=128)
    ring.rotate("pii")
    versions = [version.key.reveal() for version in ring.list()[0].versions if version.key]
    path = tmp_path / "ring.orc"
    keys = memory_keys(("pii", 0, versions[0]), ("pii", 1, versions[1]))
    java_orc_write(path, SCHEMA, ROWS, keys, encrypt="pii:num")
    told: list[Any] = []
    for given in (ring, f"keyring:{tmp_path}/ring.json"):
        spec = DecryptionSpec(keys=given, allow_ctr=True, access_log=told.append)
        with bs.open_file(path, decryption=spec) as file:
            assert _maybe(file, "num", 22_340) == [False, False, True, False, False]
    assert {(one.column, one.master_key, one.version, one.outcome) for one in told} == {("num", "pii", "1", "given")}
    ring.destroy("pii", 2)
    with (
        bs.open_file(path, decryption=DecryptionSpec(keys=ring, allow_ctr=True)) as file,
        pytest.raises(KeyAccessError, match="destroyed"),
    ):
        file.verdicts("num", [1])


def test_java_agrees_on_rows(path: Path) -> None:
    assert java_orc_rows(path, JAVA) == [list(row) for row in ROWS]
    assert java_orc_rows(path)[1] == [1, None, None, None]
