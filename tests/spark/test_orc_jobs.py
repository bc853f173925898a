"""ORC tables in Spark's jobs: repaired and rekeyed on executors; what can't be done is said."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import bloomseal as bs
import bloomseal.spark as bss
from bloomseal import DecryptionSpec
from bloomseal.policy import Policy, TablePolicy
from support.orc_files import ROWS, orc_file, orc_ring

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore::bloomseal.core.errors.BloomsealWarning"),
]


def _policy(ring: bs.Keyring) -> TablePolicy:
    columns = {"name": {"key": "pii"}, "num": {"key": "wide"}, "s": {"key": "wide"}}
    tables = {"t": {"footer_key": "pii", "allow_ctr": True, "columns": columns}}
    return Policy.from_dict({"version": 1, "kms": f"keyring://{ring.path}", "tables": tables}).for_table("t")


def _names(path: str | Path) -> dict[str, int]:
    with bs.open_file(path) as file:
        assert file.encryption is not None
        return {one.root.name: one.key.version for one in file.encryption.variants}


def test_a_table_is_repaired_and_rekeyed(spark: SparkSession, tmp_path: Path) -> None:
    ring, folder = orc_ring(tmp_path / "keys.json"), tmp_path / "t"
    orc_file(folder / "0.orc", ring)
    for number in (1, 2):
        shutil.copy(folder / "0.orc", folder / f"{number}.orc")
    (folder / "torn.orc").write_bytes((folder / "0.orc").read_bytes()[:-40])
    policy = _policy(ring)

    def rows(frame: Any) -> list[Any]:
        return [row for row in frame.collect() if not row["file"].endswith("torn.orc")]

    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    planned = bss.repair(spark, folder, policy=policy, dry_run=True, files_per_task=2).collect()
    assert [row["action"] for row in planned] == ["repair"] * 3 + ["fail"]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    repaired = bss.repair(spark, folder, policy=policy, files_per_task=2)
    assert [row["status"] for row in repaired.collect()] == ["repaired"] * 3 + ["failed"]
    assert all("destroy" in row["why"] and row["keys"] == 2 for row in rows(repaired))
    assert "BS102" not in {one.rule.id for one in bss.audit(spark, folder, policy=policy).report.findings}
    again = rows(bss.repair(spark, folder, policy=policy))
    assert {row["status"] for row in again} == {"nothing to do"}

    ring.rotate("pii")
    rewrapped = rows(bss.rewrap(spark, folder, policy=policy))
    assert {row["status"] for row in rewrapped} == {"failed"}
    assert all("rekey" in row["failure"] for row in rewrapped)
    (folder / "torn.orc").unlink()
    journal = tmp_path / "journal"
    rekeyed = bss.rekey(spark, folder, policy=policy, journal=journal, files_per_task=1).collect()
    assert [(row["status"], row["failure"]) for row in rekeyed] == [("rekeyed", None)] * 3
    for path in folder.glob("*.orc"):
        assert _names(path) == {"name": 3, "num": 1, "s": 1}
    found = bs.read_table(folder, decryption=DecryptionSpec(ring, allow_ctr=True))
    assert found["name"].to_pylist() == [row[1] for row in ROWS] * 3
    done = bss.rekey(spark, folder, policy=policy, journal=journal).collect()
    assert {row["status"] for row in done} == {"done before"}
