"""Rotations leave indexes covered: the values are the same, and are not hashed again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal import rotation
from bloomseal.index import compact, update

FILES = 4


@pytest.fixture
def policy(tmp_path: Path) -> bs.TablePolicy:
    ring = bs.Keyring(tmp_path / "keys.json", create=True)
    ring.create("footer")
    ring.create("pii")
    columns = {"ssn": {"key": "pii", "index": True}}
    tables = {"t": {"footer_key": "footer", "columns": columns}}
    return bs.Policy.from_dict({"version": 1, "kms": f"keyring:{ring.path}", "tables": tables}).for_table("t")


@pytest.fixture
def folder(tmp_path: Path, policy: bs.TablePolicy) -> Path:
    rows = pa.table({"ssn": [f"{i:05d}" for i in range(40)], "id": range(40)})
    bs.write_dataset(rows, tmp_path / "t", encryption=policy, rows_per_file=10, row_group_size=5)
    return tmp_path / "t"


def covered(folder: Path, policy: bs.TablePolicy, value: str = "00017") -> int:
    """Files that the index covers, once it was held against all of them, and was asked."""
    table = bs.open_table(folder, decryption=policy)
    index = table.index("ssn")
    assert index.check().ok
    assert table.read(where=[("ssn", "==", value)]).num_rows == 1
    return index.show().covered


def unhashed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("hashed again")

    monkeypatch.setattr(update, "hashed_places", refuse)


@pytest.mark.parametrize("job", [rotation.Rekey, rotation.Rewrap])
def test_a_rotation_carries_facts_over(
    folder: Path, policy: bs.TablePolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: Any
) -> None:
    bs.Keyring(tmp_path / "keys.json").rotate("pii")
    files = sorted(folder.glob("*.parquet"))
    before = [path.read_bytes() for path in files]
    with monkeypatch.context() as patch:
        unhashed(patch)
        assert rotation.rotate(folder, job(policy), journal=tmp_path / "journal").ok
    assert all(path.read_bytes() != data for path, data in zip(files, before, strict=True))
    assert covered(folder, policy) == FILES


def test_a_file_that_took_the_place_of_another_is_hashed(
    folder: Path, policy: bs.TablePolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the rotation, and after it before the index is told: no fact goes to what it is not about."""
    from bloomseal.rotation.indexes import CarriedOver

    first, second = sorted(folder.glob("*.parquet"))[:2]
    bs.write_table(
        pa.table({"ssn": [f"x{i}" for i in range(10)], "id": range(10)}), tmp_path / "other", row_group_size=5,
        encryption=policy.at(folder),
    )  # fmt: skip
    os.replace(tmp_path / "other", first)  # noqa: PTH105
    tell = CarriedOver.tell

    def late(self: CarriedOver, given: Any) -> None:
        second.write_bytes(first.read_bytes())
        tell(self, given)

    monkeypatch.setattr(CarriedOver, "tell", late)
    assert rotation.rotate(folder, rotation.Rekey(policy), journal=tmp_path / "journal").ok
    table = bs.open_table(folder, decryption=policy)
    assert table.index("ssn").check().ok
    assert table.read(where=[("ssn", "==", "x3")]).num_rows == 2


def test_sealed_files_are_added(folder: Path, policy: bs.TablePolicy, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"ssn": ["99999", "88888"], "id": [1, 2]}), folder / "plain.parquet")
    assert rotation.rotate(folder, rotation.Seal(policy), journal=tmp_path / "journal").ok
    assert covered(folder, policy, "88888") == FILES + 1


def test_a_cold_look_up_asks_the_kms_for_the_manifest_alone(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many runs there are, and whoever wrote them: their data keys lie in the manifest."""

    def fresh() -> Any:
        """As another process has it, with nothing cached."""
        columns = {"ssn": {"key": "pii", "index": True}}
        tables = {"t": {"footer_key": "footer", "columns": columns}}
        kms = f"keyring:{tmp_path / 'keys.json'}"
        return bs.Policy.from_dict({"version": 1, "kms": kms, "tables": tables}).for_table("t")

    monkeypatch.setattr(compact, "_chosen", lambda _: [])
    for number in range(3):
        rows = pa.table({"ssn": [f"{number}x{one}" for one in range(9)], "id": range(9)})
        bs.write_table(rows, folder / f"more{number}.parquet", encryption=fresh())
    policy = fresh()
    table = bs.open_table(folder, decryption=policy, use_index="require")
    assert table.read(where=[("ssn", "==", "nowhere")]).num_rows == 0
    assert policy.keys.counters.unwraps == 2
    manifest = table.index("ssn").manifest()
    assert len(manifest.runs) == 4
    # Keys that are not the file's open nothing.
    shard = manifest.runs[0].shards[0]._replace(keys=manifest.runs[1].shards[0].keys)
    with pytest.raises(bs.IntegrityError):
        table.index("ssn").folder.open_shard(shard)
    for shown in (repr(manifest), repr(manifest.runs), str(manifest.runs[0].shards[0])):
        assert "SecretKey" not in shown or "fingerprint" in shown
        assert all(key.reveal().hex() not in shown for run in manifest.runs for one in run.shards
                   for key in one.keys.values())  # fmt: skip


def test_a_run_goes_with_the_last_of_its_files(
    folder: Path, policy: bs.TablePolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So go the fingerprints of values that are nowhere else, and nothing is left to merge."""
    bs.open_table(folder, decryption=policy).index("ssn").rebuild()  # one run of all files

    def refuse(*_: Any) -> Any:
        raise AssertionError("merged")

    monkeypatch.setattr(compact, "merged", refuse)
    assert bs.open_table(folder, decryption=policy).erase("id in (7, 17, 27, 37)").rows == 4
    shown = bs.open_table(folder, decryption=policy).index("ssn").show()
    assert (shown.covered, len(shown.runs), shown.entries) == (4, 1, 36)
