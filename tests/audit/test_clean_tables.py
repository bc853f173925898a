"""Tables as writers leave them, sealed as the policy says: no alarm, and nothing that was not looked at."""

from __future__ import annotations

import shutil
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal import KeyTools
from bloomseal.audit import audit
from bloomseal.policy import ColumnPolicy, Policy, TablePolicy
from bloomseal.policy.table import IndexPolicy
from bloomseal.sbbf import FilterSpec
from support.jvm import java_write, key_tools
from support.lab import Lab, people, told
from support.rule_cases import JavaKms


def _clean(folder: Path, policy: TablePolicy) -> None:
    for deep in (False, True):
        report = audit(folder, policy=policy, deep=deep)
        assert not report.findings, told(report.findings)
        assert not report.unseen
        assert not [
            text for text in report.hidden if not text.startswith("the keys of Parquet files in a table's folder")
        ]
        assert report.ok


def test_our_own_with_an_index_and_all_that_rewrites(lab: Lab) -> None:
    columns = {"ssn": ColumnPolicy(key="pii", filter=FilterSpec(), index=IndexPolicy())}
    policy = lab.policy(columns)
    folder = lab.folder / "people"
    table = people().append_column("day", pa.array([f"d{number % 3}" for number in range(400)]))
    bs.write_dataset(table, folder, encryption=policy, partition_by=["day"], bloom_filters=policy.bloom_filters())
    opened = bs.open_table(folder, decryption=policy)
    assert opened.index("ssn", encryption=policy).update().ok
    _clean(folder, policy)
    for path in folder.rglob("*.parquet"):
        if "_bloomseal_index" not in path.parts:
            bs.attach_filters(path, {"ssn": FilterSpec(fpp=0.0001)}, decryption=policy)
    bs.open_table(folder, decryption=policy).index("ssn", encryption=policy).update()
    _clean(folder, policy)


def test_delta_after_a_year(lab: Lab) -> None:
    folder = lab.folder / "people"
    safe = {"delta.dataSkippingStatsColumns": "id", "delta.checkpointInterval": "2"}

    def seal() -> None:
        for path in folder.rglob("*.parquet"):
            if "_delta_log" not in path.parts and path.read_bytes()[-4:] == b"PAR1":
                spec = bs.EncryptionSpec("footer", {"ssn": "pii", "name": "pii"}, KeyTools(lab.keyring))
                bs.seal_file(path, encryption=spec)

    for number in range(5):
        rows = people().append_column("day", pa.array([number] * 400))
        deltalake.write_deltalake(
            str(folder), rows, mode="append", partition_by=["day"], configuration=None if number else safe
        )
    deltalake.DeltaTable(str(folder)).create_checkpoint()
    deltalake.DeltaTable(str(folder)).optimize.compact()
    deltalake.DeltaTable(str(folder)).cleanup_metadata()
    seal()
    assert list((folder / "_delta_log").glob("*.checkpoint.parquet"))
    _clean(folder, lab.policy())


def test_iceberg_after_a_year(lab: Lab) -> None:
    memory = pytest.importorskip("pyiceberg.catalog.memory")
    catalog = memory.InMemoryCatalog("clean", warehouse=str(lab.folder / "ice"))
    catalog.create_namespace("n")
    table = catalog.create_table(
        "n.people",
        schema=people().select(["id", "ssn", "name"]).schema,
        properties={"write.metadata.metrics.default": "none", "write.metadata.metrics.column.id": "full"},
    )
    for _ in range(3):
        table.append(people().select(["id", "ssn", "name"]))
    table.overwrite(people().select(["id", "ssn", "name"]))
    folder = Path(table.location().removeprefix("file://"))
    for path in folder.rglob("*.parquet"):
        spec = bs.EncryptionSpec("footer", {"ssn": "pii", "name": "pii"}, KeyTools(lab.keyring))
        bs.seal_file(path, encryption=spec)
    _clean(folder, lab.policy())


@pytest.mark.jvm
def test_java_by_its_own_key_tools(lab: Lab) -> None:
    """Filters and page indexes of parquet-java, and marks that engines leave."""
    folder = lab.folder / "people"
    folder.mkdir()
    schema = "message m { required int64 id; optional binary ssn (STRING); }"
    rows = [{"id": number, "ssn": f"{number:09d}"} for number in range(2000)]
    keys = {"footer": b"0123456789012345", "pii": b"5432109876543210"}
    options = key_tools(keys, footer_key="footer", column_keys={"pii": ["ssn"]}, double_wrapping=False)
    java_write(
        folder / "part-0.parquet", schema, rows, encryption=options, filters=("ssn",), row_group_rows=500, page_rows=100
    )
    for name, data in {"_SUCCESS": b"", "._SUCCESS.crc": b"crc\0\0\0\2\0"}.items():
        (folder / name).write_bytes(data)
    _clean(folder, TablePolicy("people", JavaKms(keys), "footer", columns={"ssn": ColumnPolicy(key="pii")}))


def test_a_sealed_table_that_is_copied_whole(lab: Lab) -> None:
    lab.write("people/a.parquet", encryption={"keys": KeyTools(lab.keyring, internal=False)})
    shutil.copytree(lab.folder / "people", lab.folder / "backup" / "people")
    _clean(lab.folder / "backup" / "people", Policy({"people": lab.policy()}).for_table("people"))
