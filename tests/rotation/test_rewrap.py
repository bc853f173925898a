"""One file under other master keys: which bytes change, which do not, and who is asked for what."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bloomseal as bs
from bloomseal.core.keys.material import KeyMetadata
from bloomseal.policy import Policy
from support.rotation_tables import (
    TO_SECOND,
    ciphers,
    identity,
    keyring,
    masters,
    modules,
    opened,
    opens,
    reading,
    write,
)

MATERIAL = ("internal", "external")
WRAPPING = ("single", "double")
FOOTER = ("encrypted", "plaintext")


@pytest.fixture
def ring(tmp_path: Path) -> bs.Keyring:
    return keyring(tmp_path)


@pytest.mark.parametrize("footer", FOOTER)
@pytest.mark.parametrize("wrapping", WRAPPING)
@pytest.mark.parametrize("material", MATERIAL)
def test_keys_move_and_no_page_does(
    ring: bs.Keyring, tmp_path: Path, material: str, wrapping: str, footer: str
) -> None:
    path = tmp_path / "t.parquet"
    tools = bs.KeyTools(ring, internal=material == "internal", double_wrapping=wrapping == "double")
    write(path, tools, plaintext_footer=footer == "plaintext", aad_prefix="t", store_aad_prefix=False)
    decryption = reading(ring, aad_prefix="t")
    before, end = path.read_bytes(), opened(path, decryption).footer.offset
    old_keys, unique = [cipher.key for cipher in ciphers(path, decryption)], identity(path, decryption)

    report = bs.rewrap(path, decryption=decryption, master_keys=TO_SECOND)

    after = path.read_bytes()
    assert after[:end] == before[:end]
    if material == "external":
        assert after == before
        assert report.bytes_copied == 0
    else:
        assert report.bytes_copied == end
        assert report.bytes_written == len(after) - end
    assert {key.new_master_key for key in report.keys} == {"footer-2", "pii-2", "health-2"}
    assert not report.left
    # For good: the old master keys are shredded, and the file opens without them.
    for name in TO_SECOND:
        ring.destroy(name)
    fresh = reading(ring, aad_prefix="t")
    opens(path, fresh)
    assert masters(path, fresh) == set(TO_SECOND.values())
    assert [cipher.key for cipher in ciphers(path, fresh)] == old_keys
    assert identity(path, fresh) == unique
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("material", MATERIAL)
def test_the_current_version_and_then_nothing(ring: bs.Keyring, tmp_path: Path, material: str) -> None:
    path = tmp_path / "t.parquet"
    write(path, bs.KeyTools(ring, internal=material == "internal"))
    assert not bs.rewrap(path, decryption=reading(ring)).keys
    ring.rotate("pii")
    mark = path.stat().st_mtime_ns
    planned = bs.rewrap(path, decryption=reading(ring), dry_run=True)
    assert path.stat().st_mtime_ns == mark
    done = bs.rewrap(path, decryption=reading(ring))
    for report in (planned, done):
        assert [(key.column, key.version, key.new_version) for key in report.keys] == [("ssn", "1", "2")]
    ring.destroy("pii", 1)
    opens(path, reading(ring))
    again = path.read_bytes()
    assert not bs.rewrap(path, decryption=reading(ring)).keys
    assert path.read_bytes() == again


def test_keys_under_other_master_keys_are_left_alone(ring: bs.Keyring, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    write(path, bs.KeyTools(ring))
    report = bs.rewrap(path, decryption=reading(ring), master_keys={"pii": "pii-2"})
    assert [key.column for key in report.keys] == ["ssn"]
    assert masters(path, reading(ring)) == {"footer", "pii-2", "health"}


class _NoUnwrapping(bs.Keyring):
    """A caller who may re-wrap all keys and unwrap only the footer's, as rights are given in a KMS."""

    unwrapped: list[str]

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        self.unwrapped.append(master_key_identifier)
        if not master_key_identifier.startswith("footer"):
            raise PermissionError
        return super().unwrap_key(wrapped_key, master_key_identifier)

    def rewrap_key(
        self, wrapped_key: str, master_key_identifier: str, new_master_key_identifier: str | None = None
    ) -> str:
        new = new_master_key_identifier or master_key_identifier
        return super().wrap_key(super().unwrap_key(wrapped_key, master_key_identifier), new)


@pytest.mark.parametrize("material", MATERIAL)
def test_columns_without_a_key_at_hand_are_rewrapped_all_the_same(
    ring: bs.Keyring, tmp_path: Path, material: str
) -> None:
    path = tmp_path / "t.parquet"
    write(path, bs.KeyTools(ring, internal=material == "internal"))
    limited = _NoUnwrapping(ring.path)
    limited.unwrapped = []
    report = bs.rewrap(path, decryption=bs.DecryptionSpec(bs.KeyTools(limited)), master_keys=TO_SECOND)
    assert len(report.keys) == 3
    assert set(limited.unwrapped) == {"footer", "footer-2"}, "the data keys of columns never left the KMS"
    opens(path, reading(ring))
    assert masters(path, reading(ring)) == set(TO_SECOND.values())


@pytest.mark.parametrize("footer", FOOTER)
def test_beside_the_file_not_without_the_footer_key(ring: bs.Keyring, tmp_path: Path, footer: str) -> None:
    """Nobody knows then to which material the file refers: what a footer says that nobody has verified is anybody's
    word.
    """
    path = tmp_path / "t.parquet"
    write(path, bs.KeyTools(ring, internal=False), plaintext_footer=footer == "plaintext")
    store = sidecar(path)
    before = store.read_bytes()
    ring.disable("footer")
    for dry_run in (True, False):
        with pytest.raises(bs.KeyAccessError, match="footer"):
            bs.rewrap(path, decryption=reading(ring), master_keys={"pii": "pii-2"}, dry_run=dry_run)
    assert store.read_bytes() == before


def sidecar(path: Path) -> Path:
    return path.with_name(f"_KEY_MATERIAL_FOR_{path.name}.json")


def people_policy(ring: bs.Keyring) -> Any:
    document = {
        "version": 1,
        "tables": {
            "people": {
                "footer_key": "footer",
                "columns": {"ssn": {"key": "pii-2", "previous_keys": ["pii"]}, "illness": {"key": "health"}},
            }
        },
    }
    return Policy.from_dict(document, kms=ring).for_table("people")


@pytest.mark.parametrize("by", ["policy", "names", "version"])
def test_an_orphan_beside_the_file_is_not_rewrapped(ring: bs.Keyring, tmp_path: Path, by: str) -> None:
    """The storage attacker plants another file's wrapped key, to have it wrapped under a master key that he may use."""
    path, other = tmp_path / "t.parquet", tmp_path / "other.parquet"
    for one in (path, other):
        write(one, bs.KeyTools(ring, internal=False))
    stolen = next(
        text for text in json.loads(sidecar(other).read_text()).values() if json.loads(text)["masterKeyID"] == "pii"
    )
    entries = json.loads(sidecar(path).read_text())
    sidecar(path).write_text(json.dumps(entries | {"columnKey77": stolen}))
    if by == "policy":
        report = bs.rewrap(path, decryption=people_policy(ring))
    elif by == "names":
        report = bs.rewrap(path, decryption=reading(ring), master_keys={"pii": "pii-2"})
    else:
        ring.rotate("pii")
        report = bs.rewrap(path, decryption=reading(ring))
    after = json.loads(sidecar(path).read_text())
    assert after["columnKey77"] == stolen
    assert report.unreferenced == ["columnKey77"]
    assert [key.column for key in report.keys] == ["ssn"]
    opens(path, reading(ring))


def test_a_referenced_entry_under_a_master_key_that_the_policy_does_not_expect_is_left(
    ring: bs.Keyring, tmp_path: Path
) -> None:
    path = tmp_path / "t.parquet"
    write(path, bs.KeyTools(ring, internal=False))
    entries = {name: json.loads(text) for name, text in json.loads(sidecar(path).read_text()).items()}
    of_ssn = next(name for name, entry in entries.items() if entry["masterKeyID"] == "pii")
    of_illness = next(name for name, entry in entries.items() if entry["masterKeyID"] == "health")
    entries[of_ssn] = entries[of_illness]
    planted = {name: json.dumps(entry) for name, entry in entries.items()}
    sidecar(path).write_text(json.dumps(planted))
    report = bs.rewrap(path, decryption=people_policy(ring))
    assert [left["column"] for left in report.left] == ["ssn"]
    assert not report.keys
    assert json.loads(sidecar(path).read_text()) == planted


def test_the_footer_key_under_its_usual_name_is_rewrapped_along(ring: bs.Keyring, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    for _ in range(2):
        write(path, bs.KeyTools(ring, internal=False))
    assert "footerKey" in json.loads(sidecar(path).read_text())
    report = bs.rewrap(path, decryption=reading(ring), master_keys=TO_SECOND)
    assert not report.unreferenced
    masters_beside = {json.loads(text)["masterKeyID"] for text in json.loads(sidecar(path).read_text()).values()}
    assert masters_beside == set(TO_SECOND.values())
    opens(path, reading(ring))


def test_what_a_column_says_of_its_kms_chooses_none(ring: bs.Keyring, tmp_path: Path) -> None:
    """Key material beside the file is authenticated by nothing; only the footer key's says which KMS is meant."""
    (tmp_path / "b").mkdir()
    other = keyring(tmp_path / "b")
    tools = bs.KeyTools(ring, internal=False, allowed_urls={"https://b.example": other})
    path = tmp_path / "t.parquet"
    write(path, tools)
    entries = {name: json.loads(text) for name, text in json.loads(sidecar(path).read_text()).items()}
    for entry in entries.values():
        if not entry["isFooterKey"]:
            entry |= {"isFooterKey": True, "kmsInstanceID": "b", "kmsInstanceURL": "https://b.example"}
    sidecar(path).write_text(json.dumps({name: json.dumps(entry) for name, entry in entries.items()}))
    opens(path, bs.DecryptionSpec(bs.KeyTools(ring, allowed_urls={"https://b.example": other})))


def test_inside_the_file_not_without_the_footer_key(ring: bs.Keyring, tmp_path: Path) -> None:
    for footer in FOOTER:
        path = tmp_path / f"{footer}.parquet"
        write(path, bs.KeyTools(ring), plaintext_footer=footer == "plaintext")
        before = path.read_bytes()
        ring.disable("footer")
        with pytest.raises(bs.KeyAccessError):
            bs.rewrap(path, decryption=reading(ring), master_keys={"pii": "pii-2"})
        ring.enable("footer")
        assert path.read_bytes() == before


@pytest.mark.parametrize("material", MATERIAL)
def test_a_refused_column_is_listed_and_the_rest_is_done(ring: bs.Keyring, tmp_path: Path, material: str) -> None:
    path = tmp_path / "t.parquet"
    write(path, bs.KeyTools(ring, internal=material == "internal"))
    ring.disable("health")
    report = bs.rewrap(path, decryption=reading(ring), master_keys=TO_SECOND)
    assert {key.column for key in report.keys} == {None, "ssn"}
    assert [left["column"] for left in report.left] == ["illness"]
    assert "disabled" in report.left[0]["why"]
    ring.enable("health")
    opens(path, reading(ring))
    assert [key.column for key in bs.rewrap(path, decryption=reading(ring), master_keys=TO_SECOND).keys] == ["illness"]


class _Lying(bs.Keyring):
    """Re-wraps, and gives back another key."""

    def rewrap_key(
        self,
        wrapped_key: str,  # noqa: ARG002
        master_key_identifier: str,
        new_master_key_identifier: str | None = None,
    ) -> str:
        return self.wrap_key(os.urandom(16), new_master_key_identifier or master_key_identifier)


@pytest.mark.parametrize("material", MATERIAL)
def test_a_kms_that_gives_back_another_key_costs_nothing(ring: bs.Keyring, tmp_path: Path, material: str) -> None:
    path = tmp_path / "t.parquet"
    write(path, bs.KeyTools(ring, internal=material == "internal"))
    before = {file: file.read_bytes() for file in tmp_path.glob("*t.parquet*")}
    tools = bs.KeyTools(_Lying(ring.path))
    # The footer's is caught always; a column's where it is asked for.
    with pytest.raises(bs.BloomsealError):
        bs.rewrap(path, decryption=bs.DecryptionSpec(tools), master_keys={"footer": "footer-2"})
    report = bs.rewrap(path, decryption=bs.DecryptionSpec(tools), master_keys={"pii": "pii-2"}, check_keys=True)
    assert [left["column"] for left in report.left] == ["ssn"]
    assert "another key" in report.left[0]["why"]
    assert {file: file.read_bytes() for file in tmp_path.glob("*t.parquet*")} == before


def test_fields_of_key_material_that_are_not_ours_ride_along(ring: bs.Keyring, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    write(path, bs.KeyTools(ring, internal=False))
    store = tmp_path / "_KEY_MATERIAL_FOR_t.parquet.json"
    entries = {name: json.loads(text) | {"vendor": [1, "ü"]} for name, text in json.loads(store.read_text()).items()}
    store.write_text(json.dumps({name: json.dumps(entry) for name, entry in entries.items()}))
    bs.rewrap(path, decryption=reading(ring), master_keys=TO_SECOND)
    after = {name: json.loads(text) for name, text in json.loads(store.read_text()).items()}
    assert all(entry["vendor"] == [1, "ü"] for entry in after.values())
    assert {entry["masterKeyID"] for entry in after.values()} == set(TO_SECOND.values())


def test_an_address_that_is_not_allowed_is_not_asked(ring: bs.Keyring, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    write(path, bs.KeyTools(ring, instance_url="https://elsewhere.example"))
    with pytest.raises(bs.KeyAccessError, match="not among the allowed"):
        bs.rewrap(path, decryption=reading(ring), master_keys=TO_SECOND)


def test_what_cannot_be_rewrapped_says_so(ring: bs.Keyring, tmp_path: Path) -> None:
    path = tmp_path / "explicit.parquet"
    bs.write_table(opened_rows(), path, encryption=bs.EncryptionSpec((b"0" * 16, "kf")))
    with pytest.raises(bs.UsageError, match="no master keys"):
        bs.rewrap(path, decryption=bs.DecryptionSpec(bs.ExplicitKeys(b"0" * 16)))
    with pytest.raises(bs.KeyAccessError):
        bs.rewrap(path, decryption=reading(ring))
    bs.write_table(opened_rows(), path)
    with pytest.raises(bs.UsageError, match="plaintext"):
        bs.rewrap(path, decryption=reading(ring))
    with pytest.raises(bs.UsageError):
        bs.rewrap(tmp_path / "missing.parquet", decryption=reading(ring))


def test_internal_key_metadata_is_what_parquet_java_expects(ring: bs.Keyring, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    write(path, bs.KeyTools(ring))
    bs.rewrap(path, decryption=reading(ring), master_keys=TO_SECOND)
    walk = opened(path, reading(ring))
    assert walk.footer.crypto is not None
    material = KeyMetadata.from_bytes(walk.footer.crypto.footer_key_metadata).material
    assert material is not None
    assert (material.master_key, material.is_footer_key, material.kms_instance_id) == ("footer-2", True, "DEFAULT")
    assert sum(1 for _ in modules(path, reading(ring))) > 20


def test_no_page_is_read_by_this_process(ring: bs.Keyring, tmp_path: Path) -> None:
    """Every byte that the process reads or writes is counted by the kernel; its own copying is not among them."""
    import numpy as np
    import pyarrow as pa

    size = 32 << 20
    path = tmp_path / "big.parquet"
    noise = np.random.default_rng(0).integers(0, 1 << 62, size // 8)
    bs.write_table(
        pa.table({"x": noise}),
        path,
        encryption=bs.EncryptionSpec("footer", {"x": "pii"}, keys=ring),
        use_dictionary=False,
        compression="none",
    )
    assert path.stat().st_size > size
    script = f"""
import os, bloomseal as bs
real, asked = os.pread, []
def pread(fd, n, offset):
    if os.fstat(fd).st_size > 1 << 20:  # keyring and settings are read whole
        asked.append((offset, n))
    return real(fd, n, offset)
os.pread = pread
os.environ.pop("BLOOMSEAL_FAULT_POINT", None)
import bloomseal.rotation, bloomseal.write.convert
tools = bs.KeyTools(bs.Keyring({str(ring.path)!r}))
report = bs.rewrap({str(path)!r}, decryption=bs.DecryptionSpec(tools), master_keys={TO_SECOND!r})
print(sum(n for _, n in asked), report.bytes_written, report.bytes_copied, min(offset for offset, _ in asked))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    read, written, copied, first = map(int, done.stdout.split())
    assert copied > size
    assert written < 8192
    assert read < 1 << 20
    assert first > size - (1 << 20)


def opened_rows() -> Any:
    import pyarrow as pa

    return pa.table({"a": [1, 2, 3]})


def test_a_policy_says_which_master_key_is_to_wrap_what(ring: bs.Keyring, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    write(path, bs.KeyTools(ring), aad_prefix="people")
    document: dict[str, Any] = {
        "version": 1,
        "tables": {
            "people": {
                "footer_key": "footer",
                "aad_prefix": "{table}",
                "columns": {"ssn": {"key": "pii-2", "previous_keys": ["pii"]}, "illness": {"key": "health"}},
            }
        },
    }
    report = bs.rewrap(path, decryption=Policy.from_dict(document, kms=ring).for_table("people"))
    assert [(key.column, key.new_master_key) for key in report.keys] == [("ssn", "pii-2")]
    # A column under a key that the policy does not accept is told, and left.
    document["tables"]["people"]["columns"]["illness"] = {"key": "health-2"}
    report = bs.rewrap(path, decryption=Policy.from_dict(document, kms=ring).for_table("people"))
    assert not report.keys
    assert [left["column"] for left in report.left] == ["illness"]
