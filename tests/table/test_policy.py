"""One policy file, handed to writer, reader, attach and conversion as it is."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import bloomseal as bs

DOCUMENT = """
version = 1
[defaults]
key_bits = 256
{material}
[tables.customers]
footer_key = "footer"
aad_prefix = "{{table}}/{{file}}"
store_aad_prefix = false
[tables.customers.columns.ssn]
key = "pii"
filter = {{ fpp = 0.01 }}
[tables.customers.columns.id]
filter = true
[tables.orders]
footer_key = "footer"
aad_prefix = "{{table}}/{{file}}"
store_aad_prefix = false
"""
DATA = pa.table({"id": list(range(100)), "ssn": [f"{n:09d}" for n in range(100)]})


@pytest.fixture
def keyring(tmp_path: Path) -> bs.Keyring:
    keyring = bs.Keyring(tmp_path / "keys.json", create=True)
    for name in ("footer", "pii"):
        keyring.create(name)
    return keyring


@pytest.fixture(params=["internal", "external"])
def policy(request: pytest.FixtureRequest, tmp_path: Path, keyring: bs.Keyring) -> bs.Policy:
    path = tmp_path / "policy.toml"
    path.write_text(DOCUMENT.format(material=f'material = "{request.param}"'))
    return bs.Policy.load(path, kms=keyring)


def test_writing_and_reading_by_policy(policy: bs.Policy, tmp_path: Path) -> None:
    customers = policy.for_table("customers")
    path = tmp_path / "part.parquet"
    bs.write_table(DATA, path, encryption=customers)
    with bs.open_file(path, decryption=customers) as file:
        assert file.probe("ssn", ["000000007", "x"]) == [[bs.Verdict.MAYBE_PRESENT, bs.Verdict.ABSENT]]
        assert file.probe("id", [7, 700]) == [[bs.Verdict.MAYBE_PRESENT, bs.Verdict.ABSENT]]
    assert bs.read_table(path, decryption=customers).equals(DATA)
    bs.attach_filters(path, {"ssn": bs.FilterSpec(fpp=0.1)}, decryption=customers)
    bs.rekey(path, decryption=customers, encryption=customers)
    report = bs.verify(path, decryption=customers)
    assert report.ok
    assert not report.inaccessible


def test_a_file_in_another_place_does_not_open(policy: bs.Policy, tmp_path: Path) -> None:
    customers = policy.for_table("customers")
    path = tmp_path / "part.parquet"
    bs.write_table(DATA, path, encryption=customers)
    moved = tmp_path / "other.parquet"
    shutil.copy(path, moved)
    for sidecar in tmp_path.glob("_KEY_MATERIAL_FOR_part*"):
        shutil.copy(sidecar, tmp_path / sidecar.name.replace("part", "other"))
    with pytest.raises(bs.IntegrityError, match=r"other\.parquet"):
        bs.open_file(moved, decryption=customers)
    with pytest.raises(bs.IntegrityError):
        bs.open_file(path, decryption=policy.for_table("orders"))


def test_overwriting_leaves_no_stale_key_material(policy: bs.Policy, tmp_path: Path) -> None:
    customers = policy.for_table("customers")
    path = tmp_path / "part.parquet"
    sizes = []
    for _ in range(4):
        bs.write_table(DATA, path, encryption=customers)
        sizes.append(sum(sidecar.stat().st_size for sidecar in tmp_path.glob("_KEY_MATERIAL_FOR_*")))
    assert max(sizes[1:]) < 2 * max(sizes[0], 1)
    assert bs.read_table(path, decryption=customers).equals(DATA)


def test_what_is_neither_is_refused(tmp_path: Path) -> None:
    with pytest.raises(bs.UsageError, match="encryption="):
        bs.write_table(DATA, tmp_path / "a.parquet", encryption={"footer_key": b"f" * 16})  # type: ignore[arg-type]
    bs.write_table(DATA, tmp_path / "a.parquet")
    with pytest.raises(bs.UsageError, match="decryption="):
        bs.open_file(tmp_path / "a.parquet", decryption=bs.ExplicitKeys(footer_key=b"f" * 16))  # type: ignore[arg-type]
