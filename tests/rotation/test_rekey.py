"""Fresh data keys: the old ones open nothing, and with material beside the file every instant opens."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bloomseal as bs
from bloomseal.core.encryption import Algorithm
from bloomseal.core.parquet.walk import Protection
from bloomseal.keytools.material.store import MaterialStore
from bloomseal.policy import Policy
from bloomseal.rotation import Rekey, Rewrap, Seal, Unseal, rotate
from bloomseal.rotation.keys import key_tools, mapped
from bloomseal.rotation.outcome import Status
from bloomseal.rotation.settings import by_master_key, like
from bloomseal.write import convert
from support.rotation_tables import (
    ROWS,
    TO_SECOND,
    ciphers,
    identity,
    keyring,
    masters,
    modules,
    opened,
    opens,
    reading,
    rows,
    write,
)

MATERIAL = ("internal", "external")


@pytest.fixture
def ring(tmp_path: Path) -> bs.Keyring:
    return keyring(tmp_path)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    folder = tmp_path / "table"
    folder.mkdir()
    return folder


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def rotated(path: Path, job: Any) -> None:
    report = rotate(path, job)
    assert report.ok, [file.why for file in report.files]
    assert {file.status for file in report.files} == {job.done}


@pytest.mark.parametrize("material", MATERIAL)
def test_the_old_data_keys_open_no_module(ring: bs.Keyring, table: Path, material: str) -> None:
    path = table / "t.parquet"
    write(path, bs.KeyTools(ring, internal=material == "internal"))
    old, unique = ciphers(path, reading(ring)), identity(path, reading(ring))
    before = [module.framed for module in modules(path, reading(ring))]

    rotated(table, Rekey(reading(ring)))

    new = ciphers(path, reading(ring))
    assert not {cipher.key for cipher in old} & {cipher.key for cipher in new}
    assert identity(path, reading(ring)) != unique
    tried = list(modules(path, reading(ring)))
    assert len(tried) == len(before)
    for module in tried:
        assert not any(module.opens_under(cipher) for cipher in old)
        assert any(module.opens_under(cipher) for cipher in new), "the trial itself works"
    assert not {module.framed for module in tried} & set(before)
    opens(path, reading(ring))


def test_an_older_footer_no_longer_fits(ring: bs.Keyring, table: Path) -> None:
    path = table / "t.parquet"
    write(path, bs.KeyTools(ring))
    before, end = path.read_bytes(), opened(path, reading(ring)).footer.offset
    rotated(table, Rekey(reading(ring)))
    after = path.read_bytes()
    assert opened(path, reading(ring)).footer.offset == end, "the same algorithm: no length changed, and no offset"
    path.write_bytes(after[:end] + before[end:])
    with bs.open_file(path, decryption=reading(ring)) as mixed, pytest.raises(bs.IntegrityError):
        mixed.read()


@pytest.mark.parametrize("material", MATERIAL)
def test_material_stays_where_it_was_and_the_old_is_gone(ring: bs.Keyring, table: Path, material: str) -> None:
    path, store = table / "t.parquet", table / "_KEY_MATERIAL_FOR_t.parquet.json"
    write(path, bs.KeyTools(ring, internal=material == "internal"))
    for _ in range(2):
        before = json.loads(store.read_text()) if store.exists() else {}
        assert rotate(table, Rekey(reading(ring)), restart=True).ok
        after = json.loads(store.read_text()) if store.exists() else {}
        assert bool(after) == (material == "external")
        assert not set(before.values()) & set(after.values())
        # Three keys, and the footer's once more under the name that the rotations of other tools start from.
        assert len(after) in (0, 4)
        opens(path, reading(ring))


@pytest.mark.parametrize("external", [True, False])
def test_material_moves_in_and_out(ring: bs.Keyring, table: Path, external: bool) -> None:
    path, store = table / "t.parquet", table / "_KEY_MATERIAL_FOR_t.parquet.json"
    write(path, bs.KeyTools(ring, internal=external))
    rotated(table, Rekey(reading(ring), external=external))
    assert store.exists() == external
    opens(path, reading(ring))


@pytest.mark.parametrize("point", ["stored", "written", "synced", "checked", "renamed"])
def test_killed_at_any_step_it_opens_and_a_second_run_mends(ring: bs.Keyring, table: Path, point: str) -> None:
    path, store = table / "t.parquet", table / "_KEY_MATERIAL_FOR_t.parquet.json"
    write(path, bs.KeyTools(ring, internal=False))
    old = {cipher.key for cipher in ciphers(path, reading(ring))}
    script = f"""
import bloomseal as bs
from bloomseal.rotation import Rekey, rotate
rotate({str(table)!r}, Rekey(bs.DecryptionSpec(bs.KeyTools(bs.Keyring({str(ring.path)!r})))))
"""
    killed = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | {"BLOOMSEAL_FAULT_POINT": point}, capture_output=True
    )
    assert killed.returncode == -signal.SIGKILL
    opens(path, reading(ring))
    held = json.loads(store.read_text())
    assert len(held) > 4, "old and new key material stand side by side"
    finished = rotate(table, Rekey(reading(ring)))
    assert finished.ok
    assert finished.resumed
    opens(path, reading(ring))
    assert not {cipher.key for cipher in ciphers(path, reading(ring))} & old
    assert len(json.loads(store.read_text())) == 4
    assert not list(table.glob(".*"))
    again = rotate(table, Rekey(reading(ring)))
    assert [file.status for file in again.files] == [Status.DONE_BEFORE]


def test_what_changes_on_the_way(ring: bs.Keyring, table: Path) -> None:
    path = table / "t.parquet"
    write(path, bs.KeyTools(ring))
    changes = {
        "algorithm": "AES_GCM_CTR_V1",
        "key_bits": 256,
        "aad_prefix": "customers",
        "store_aad_prefix": False,
        "plaintext_footer": True,
    }
    rotated(table, Rekey(reading(ring), master_keys=TO_SECOND, changes=changes))
    decryption = reading(ring, aad_prefix="customers", allow_ctr=True)
    opens(path, decryption)
    crypto = opened(path, decryption).footer.crypto
    assert crypto is not None
    assert crypto.algorithm is Algorithm.AES_GCM_CTR_V1
    assert crypto.plaintext_footer
    assert not crypto.prefix_stored
    assert {cipher.key.bits for cipher in ciphers(path, decryption)} == {256}
    assert masters(path, decryption) == set(TO_SECOND.values())
    with pytest.raises(bs.PolicyError):
        opened(path, reading(ring))
    # And back, without a word about what it is like now.
    rotated(
        table,
        Rekey(decryption, changes={"algorithm": "AES_GCM_V1", "aad_prefix": None, "plaintext_footer": False}),
    )
    opens(path, reading(ring))
    assert masters(path, reading(ring)) == set(TO_SECOND.values())


@pytest.mark.parametrize(
    "options",
    [{}, {"complete": True}, {"column_keys": None}, {"plaintext_footer": True}, {"aad_prefix": "p"}],
    ids=["some columns", "complete", "uniform", "plaintext footer", "stored prefix"],
)
def test_each_file_is_sealed_as_it_was(ring: bs.Keyring, table: Path, options: dict[str, Any]) -> None:
    path = table / "t.parquet"
    arguments = {"footer_key": "footer", "column_keys": {"ssn": "pii"}, "keys": ring} | options
    bs.write_table(rows(), path, encryption=bs.EncryptionSpec(**arguments), row_group_size=100)

    def shape() -> list[Any]:
        walk = opened(path, reading(ring))
        assert walk.footer.crypto is not None
        protections = [str(chunk.protection) for group in range(3) for chunk in walk.chunks(group)]
        crypto = walk.footer.crypto
        return [protections, crypto.plaintext_footer, crypto.aad_prefix, crypto.prefix_stored]

    before = shape()
    rotated(table, Rekey(reading(ring)))
    assert shape() == before
    with bs.open_file(path, decryption=reading(ring)) as file:
        assert file.read().equals(rows())


def test_explicit_keys_move_to_a_keyring(ring: bs.Keyring, table: Path) -> None:
    path = table / "t.parquet"
    bs.write_table(rows(), path, encryption=bs.EncryptionSpec((b"f" * 16, "kf"), {"ssn": (b"s" * 16, "ks")}))
    explicit = bs.DecryptionSpec(bs.ExplicitKeys(b"f" * 16, {"ssn": b"s" * 16}))
    rotated(table, Rekey(explicit, bs.EncryptionSpec("footer", {"ssn": "pii"}, keys=ring)))
    assert masters(path, reading(ring)) == {"footer", "pii"}


def test_explicit_new_keys_must_be_new_and_survive_an_interruption(table: Path) -> None:
    path = table / "t.parquet"
    old = bs.EncryptionSpec((b"f" * 16, "k1"), {"ssn": (b"s" * 16, "k2")})
    bs.write_table(rows(), path, encryption=old)
    reads_old = bs.DecryptionSpec(bs.ExplicitKeys(b"f" * 16, {"ssn": b"s" * 16}))
    half_new = bs.EncryptionSpec((b"F" * 16, "k3"), {"ssn": (b"s" * 16, "k2")})
    refused = rotate(table, Rekey(reads_old, half_new))
    assert [file.status for file in refused.files] == [Status.FAILED]
    assert "is the old one" in str(refused.files[0].why)

    script = f"""
import bloomseal as bs
from bloomseal.rotation import Rekey, rotate
old = bs.DecryptionSpec(bs.ExplicitKeys(b"f" * 16, {{"ssn": b"s" * 16}}))
rotate({str(table)!r}, Rekey(old, bs.EncryptionSpec((b"F" * 16, "k3"), {{"ssn": (b"S" * 16, "k4")}})))
"""
    env = os.environ | {"BLOOMSEAL_FAULT_POINT": "renamed"}
    killed = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True)
    assert killed.returncode == -signal.SIGKILL
    new = bs.EncryptionSpec((b"F" * 16, "k3"), {"ssn": (b"S" * 16, "k4")})
    report = rotate(table, Rekey(reads_old, new))
    assert report.ok
    with bs.open_file(path, decryption=bs.DecryptionSpec(bs.ExplicitKeys(b"F" * 16, {"ssn": b"S" * 16}))) as file:
        assert file.read().equals(rows())


@pytest.mark.parametrize("material", MATERIAL)
def test_plain_to_sealed_to_plain(ring: bs.Keyring, table: Path, tmp_path: Path, material: str) -> None:
    for index in range(3):
        pq.write_table(rows(index), table / f"{index}.parquet", row_group_size=100)
    spec = bs.EncryptionSpec(
        "footer", {"ssn": "pii", "illness": "health"}, keys=bs.KeyTools(ring, internal=material == "internal")
    )
    rotated(table, Seal(spec, {"ssn": bs.FilterSpec()}))
    for index in range(3):
        opens(table / f"{index}.parquet", reading(ring), index)
    second = rotate(table, Seal(spec))
    assert {file.status for file in second.files} == {Status.NOTHING}
    rotated(table, Unseal(reading(ring), output=str(tmp_path / "plain")))
    rotated(table, Unseal(reading(ring), in_place=True))
    assert sorted(file.name for file in table.iterdir()) == ["0.parquet", "1.parquet", "2.parquet"]
    for index in range(3):
        for place in (table, tmp_path / "plain"):
            assert pq.read_table(place / f"{index}.parquet").equals(rows(index))


def test_a_policy_says_it_all(ring: bs.Keyring, table: Path) -> None:
    document = {
        "version": 1,
        "tables": {
            "people": {
                "footer_key": "footer",
                "aad_prefix": "{table}/{file}",
                "store_aad_prefix": False,
                "columns": {"ssn": {"key": "pii", "filter": True}, "illness": {"key": "health"}},
            }
        },
    }
    policy = Policy.from_dict(document, kms=ring).for_table("people")
    for index in range(2):
        pq.write_table(rows(index), table / f"{index}.parquet")
    rotated(table, Seal(policy))
    opens(table / "1.parquet", reading(ring, aad_prefix="people/1.parquet"), 1)
    old = ciphers(table / "1.parquet", reading(ring, aad_prefix="people/1.parquet"))
    rotated(table, Rekey(policy, policy))
    assert not {c.key for c in ciphers(table / "1.parquet", reading(ring, aad_prefix="people/1.parquet"))} & {
        cipher.key for cipher in old
    }
    columns: Any = document["tables"]["people"]["columns"]  # type: ignore[index]
    columns["ssn"] = {"key": "pii-2", "previous_keys": ["pii"], "filter": True}
    rotated(table, Rewrap(Policy.from_dict(document, kms=ring).for_table("people")))
    assert masters(table / "0.parquet", reading(ring, aad_prefix="people/0.parquet")) == {"footer", "pii-2", "health"}
    # Put under the other one's name, a file does not open.
    (table / "0.parquet").replace(table / "1.parquet")
    report = rotate(table, Rekey(policy, policy), restart=True)
    assert [file.status for file in report.files] == [Status.FAILED]


def test_nothing_is_lost_of_empty_and_odd_files(ring: bs.Keyring, table: Path) -> None:
    bs.write_table(rows().slice(0, 0), table / "e.parquet", encryption=bs.EncryptionSpec("footer", keys=ring))
    nested = pa.table({"a": [{"b": [1, None], "c": "x"}] * ROWS, "n": pa.array([None] * ROWS, pa.string())})
    spec = bs.EncryptionSpec("footer", {"a": "pii"}, keys=ring)
    bs.write_table(nested, table / "n.parquet", encryption=spec)
    rotated(table, Rekey(reading(ring)))
    with bs.open_file(table / "n.parquet", decryption=reading(ring)) as file:
        assert file.read().equals(nested)
    with bs.open_file(table / "e.parquet", decryption=reading(ring)) as file:
        assert file.num_rows == 0


def test_footer_key_columns_among_plaintext_ones_get_keys_of_their_own(ring: bs.Keyring, tmp_path: Path) -> None:
    """No writer at hand makes such a file with key material, so an opened file is told that a column is in
    plaintext.
    """
    path = tmp_path / "t.parquet"
    bs.write_table(rows(), path, encryption=bs.EncryptionSpec("footer", {"ssn": "pii"}, keys=ring, complete=True))
    walk = opened(path, reading(ring))
    chunks = list(walk.chunks(0))
    chunks[0].protection = Protection.PLAINTEXT
    walk.chunks = lambda row_group: iter(chunks)  # type: ignore[method-assign]  # noqa: ARG005
    made = like(walk, ring, by_master_key(walk, key_tools(ring), mapped(None)), {})
    assert made.column_keys == {"ssn": "pii", "illness": "footer"}
    assert not made.complete


def test_an_output_replaces_nothing_and_keeps_the_mode(ring: bs.Keyring, table: Path, tmp_path: Path) -> None:
    path, out = table / "t.parquet", tmp_path / "out"
    write(path, bs.KeyTools(ring))
    path.chmod(0o640)
    out.mkdir()
    (out / "t.parquet").write_bytes(b"somebody's")
    report = rotate(table, Unseal(reading(ring), output=str(out)))
    assert [file.status for file in report.files] == [Status.FAILED]
    assert (out / "t.parquet").read_bytes() == b"somebody's"
    (out / "t.parquet").unlink()
    assert rotate(table, Unseal(reading(ring), output=str(out))).ok
    assert (out / "t.parquet").stat().st_mode & 0o777 == 0o640
    assert pq.read_table(out / "t.parquet").equals(rows())


@pytest.mark.parametrize("point", ["stored", "checked", "renamed"])
@pytest.mark.parametrize("operation", ["seal", "unseal"])
def test_sealing_killed_at_any_step_is_finished_by_the_same_call(
    ring: bs.Keyring, table: Path, operation: str, point: str
) -> None:
    path = table / "t.parquet"
    tools = f"bs.KeyTools(bs.Keyring({str(ring.path)!r}), internal=False)"
    if operation == "seal":
        pq.write_table(rows(), path)
        job = f"Seal(bs.EncryptionSpec('footer', {{'ssn': 'pii', 'illness': 'health'}}, keys={tools}), {{'ssn': True}})"
    else:
        write(path, bs.KeyTools(ring, internal=False))
        job = f"Unseal(bs.DecryptionSpec({tools}), in_place=True)"
    script = "import bloomseal as bs\nfrom bloomseal.rotation import Seal, Unseal, rotate\n"
    script += f"assert rotate({str(table)!r}, {job}).ok"
    env = os.environ | {"BLOOMSEAL_FAULT_POINT": point}
    killed = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True)
    if (operation, point) == ("unseal", "stored"):
        assert killed.returncode == 0, "nothing is stored for a plaintext file"
    else:
        assert killed.returncode == -signal.SIGKILL
    if point == "renamed" or killed.returncode == 0:
        assert path.read_bytes()[-4:] == (b"PARE" if operation == "seal" else b"PAR1")
    subprocess.run([sys.executable, "-c", script], check=True)
    subprocess.run([sys.executable, "-c", script], check=True)
    store = table / "_KEY_MATERIAL_FOR_t.parquet.json"
    if operation == "seal":
        opens(path, reading(ring))
        assert store.exists()
    else:
        assert pq.read_table(path).equals(rows())
        assert not store.exists()
    assert not list(table.glob(".*"))


class _Losing(bs.Keyring):
    """Wraps another key than it is given."""

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        return super().wrap_key(os.urandom(len(key_bytes)), master_key_identifier)


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("material", MATERIAL)
def test_a_kms_that_wraps_another_key_costs_no_file(ring: bs.Keyring, table: Path, material: str, double: bool) -> None:
    """The new file would open for this run, which remembers what it wrapped, and for nobody after it."""
    for index in range(3):
        write(table / f"{index}.parquet", bs.KeyTools(ring, internal=material == "internal"), index)
    before = {path: path.read_bytes() for path in table.iterdir()}
    losing = bs.DecryptionSpec(bs.KeyTools(_Losing(ring.path), double_wrapping=double))

    report = rotate(table, Rekey(losing))

    assert {file.status for file in report.files} == {Status.FAILED}
    assert all("another key" in str(file.why) for file in report.files)
    assert {path: path.read_bytes() for path in table.iterdir()} == before
    for index in range(3):
        opens(table / f"{index}.parquet", reading(ring), index)


def test_a_kms_that_wraps_another_key_costs_no_plaintext_file(ring: bs.Keyring, table: Path) -> None:
    path = table / "t.parquet"
    pq.write_table(rows(), path)
    spec = bs.EncryptionSpec("footer", {"ssn": "pii"}, keys=bs.KeyTools(_Losing(ring.path)))
    with pytest.raises(bs.KeyAccessError, match="another key"):
        bs.seal_file(path, encryption=spec)
    assert pq.read_table(path).equals(rows())


def test_each_key_that_the_kms_has_wrapped_is_unwrapped_once(ring: bs.Keyring, table: Path) -> None:
    writer, tools = bs.KeyTools(ring), bs.KeyTools(ring)
    for index in range(4):
        write(table / f"{index}.parquet", writer, index)
    rotated(table, Rekey(bs.DecryptionSpec(tools)))
    # Three KEKs of the old files and three of the new ones, whatever the number of files.
    assert (tools.counters.wraps, tools.counters.unwraps) == (3, 6)


@pytest.mark.parametrize("had", MATERIAL)
@pytest.mark.parametrize("last", ["other", "job"])
@pytest.mark.parametrize("operation", ["rekey", "seal", "unseal"])
def test_the_material_of_another_writer_of_the_file_stays(
    ring: bs.Keyring, table: Path, monkeypatch: pytest.MonkeyPatch, operation: str, last: str, had: str
) -> None:
    """It has stored its material before the job looks, and takes the name after the job's file has it: before the job
    tidies up, or after.
    """
    path, other = table / "t.parquet", table / "other.parquet"
    write(path, bs.KeyTools(ring, internal=had == "internal"))
    if operation == "seal":
        bs.unseal_file(path, other, decryption=reading(ring))
        other.rename(path)
    pq.write_table(rows(), other)
    ours = bs.EncryptionSpec("footer", {"ssn": "pii"}, keys=bs.KeyTools(ring, internal=False))
    job: Any = {
        "rekey": Rekey(reading(ring)),
        "seal": Seal(bs.EncryptionSpec("footer", keys=bs.KeyTools(ring))),
        "unseal": Unseal(reading(ring), in_place=True),
    }[operation]
    stored, go_on = threading.Event(), threading.Event()
    supersede, point = MaterialStore.supersede, convert.fault_point

    def waiting(name: str) -> None:
        point(name)
        if name == "stored" and threading.current_thread() is writer:
            stored.set()
            assert go_on.wait(60)

    def superseding(store: MaterialStore, *arguments: Any, **more: Any) -> None:
        if threading.current_thread() is not writer and last == "other":
            supersede(store, *arguments, **more)
        if threading.current_thread() is not writer:
            go_on.set()
            writer.join()
        if threading.current_thread() is writer or last == "job":
            supersede(store, *arguments, **more)

    writer = threading.Thread(target=lambda: bs.seal_file(other, path, encryption=ours))
    monkeypatch.setattr(convert, "fault_point", waiting)
    monkeypatch.setattr(MaterialStore, "supersede", superseding)
    writer.start()
    assert stored.wait(60)
    assert rotate(path, job).ok
    assert not writer.is_alive()
    with bs.open_file(path, decryption=reading(ring)) as file:
        assert file.read().equals(rows())
