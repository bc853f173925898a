"""Which files Spark's data source takes for a table, beside everybody else."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import bloomseal as bs
import bloomseal.spark as bss
from bloomseal.audit import inventory
from bloomseal.policy import ColumnPolicy, Policy
from bloomseal.rotation.files import find_files
from bloomseal.spark.jobs.files import _attached as attached_file
from bloomseal.spark.jobs.files import _each as each
from bloomseal.spark.jobs.rotation import RotationTask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore::bloomseal.BloomsealWarning"),
]
READERS = ["a.parquet", "b.parquet.v2", "c=1.PQ"]
OTHERS = ["000000_0", "h.bak"]
HIDDEN = [".i.parquet", "_j.parquet", "_temporary/k.parquet", ".hive/l.parquet", "m.parquet._COPYING_"]
LEFTOVER = ".a.parquet.1a.bloomseal-tmp"


def policy_of(ring: bs.Keyring) -> Policy:
    tables = {"t": {"footer_key": "footer", "complete": True, "columns": {"id": {"filter": True}}}}
    return Policy.from_dict({"version": 1, "kms": f"keyring://{ring.path}", "tables": tables})


@pytest.fixture
def tree(ring: bs.Keyring, tmp_path: Path) -> Path:
    """A folder that is hard to list, with links inside it. Every file's `id` is its place in the lists."""
    root, table = tmp_path / "tree", policy_of(ring).for_table("t")
    for number, name in enumerate([*READERS, *OTHERS, *HIDDEN, LEFTOVER]):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        bs.write_table(pa.table({"id": [number]}), root / name, encryption=table)
    (root / "+again.parquet").symlink_to("a.parquet")
    (root / "+round").symlink_to(".")
    (root / "notes").symlink_to("nowhere")
    (root / "_SUCCESS").touch()
    return root


def jobs(spark: SparkSession, folder: Path) -> dict[str, Callable[[], Any]]:
    """Whoever looks at a table's files in Spark."""
    return {
        "verify": lambda: bss.verify(spark, folder),
        "attach": lambda: bss.attach(spark, folder),
        "rewrap": lambda: bss.rewrap(spark, folder),
        "rekey": lambda: bss.rekey(spark, folder, journal=folder.parent / "journal"),
        "plan": lambda: bss.rekey(spark, folder, dry_run=True),
        "check_table": lambda: bss.check_table(spark, folder),
        "prune": lambda: bss.prune(spark, folder, "id", [1]),
        "read": lambda: bss.read(spark, folder).collect(),
    }


def test_the_data_source_reads_what_a_reader_reads(ring: bs.Keyring, tree: Path) -> None:
    """Without a JVM, as the process does it that plans a read."""
    from bloomseal.spark.source.files.tree import find_files as spark_files

    table = policy_of(ring).for_table("t")
    read = bs.read_table(tree, decryption=table)["id"].to_pylist()
    assert sorted(read) == list(range(len(READERS)))
    seen = [str(Path(file.name).relative_to(tree)) for file in spark_files([str(tree)]).files]
    assert seen == sorted([*READERS, *OTHERS])  # each once; Spark takes files of any name
    assert {file.root for file in spark_files([str(tree)]).files} == {str(tree)}
    (tree / "_delta_log").mkdir()
    with pytest.raises(bs.UsageError, match="can't be opened"):  # never as the plain folder that it isn't
        spark_files([str(tree)])


@pytest.mark.parametrize(
    ("raws", "kind"),
    [
        (["1", "07495", "-2"], pa.int32()),
        (["1", "3000000000"], pa.int64()),
        (["1", "12345678901234567890"], pa.decimal128(20, 0)),
        (["1", "2.5"], pa.float64()),
        (["2024-02-29", "2023-01-01"], pa.date32()),
        (["2024-02-30", "2023-01-01"], pa.string()),
        (["1", "x"], pa.string()),
        (["__HIVE_DEFAULT_PARTITION__", "7"], pa.int32()),
    ],
)
def test_folders_values_have_one_type_through_both_readers(tmp_path: Path, raws: list[str], kind: pa.DataType) -> None:
    from bloomseal.spark.source.files.tree import find_files as spark_files
    from bloomseal.spark.source.types import arrow_type

    for raw in raws:
        (tmp_path / f"k={raw}").mkdir()
        bs.write_table(pa.table({"id": [1]}), tmp_path / f"k={raw}" / "a.parquet")
    assert bs.open_table(tmp_path).schema.field("k").type == kind
    assert arrow_type(spark_files([str(tmp_path)]).columns["k"].dataType) == kind


def test_jobs_see_the_same_files_and_leave_links_out_of_the_table(
    spark: SparkSession, ring: bs.Keyring, tree: Path, tmp_path: Path
) -> None:
    bss.enable(spark, policy=policy_of(ring))
    visible = {str(tree / name) for name in [*READERS, *OTHERS]}
    assert {row.file for row in bss.verify(spark, tree).collect()} == visible
    assert {row.id for row in bss.read(spark, tree).collect()} == set(range(len(visible)))
    outside = tmp_path / "outside.parquet"
    outside.write_bytes((tree / "a.parquet").read_bytes())
    before = outside.read_bytes()
    (tree / "+out.parquet").symlink_to(outside)
    for name, job in jobs(spark, tree).items():
        with pytest.raises(bs.UsageError, match="leads out of the table"):
            pytest.fail(f"{name} gave {job()!r}")
    assert outside.read_bytes() == before
    # A link that comes after the table was listed, and before a task is there.
    (tree / "+out.parquet").unlink()
    (tree / "a.parquet").unlink()
    (tree / "a.parquet").symlink_to(outside)
    late = str(tree / "a.parquet")
    table = policy_of(ring).for_table("t", root=tree)
    wide = replace(table, columns={"id": table.columns["id"], "more": ColumnPolicy(filter=bs.FilterSpec())})
    (attached,) = each(attached_file, pickle.dumps(wide), None, [late])
    assert "outside the table" in attached[-1]
    with pytest.raises(bs.UsageError, match="outside the table"):
        RotationTask.of("rekey", table, [late])
    for operation in ("rewrap", "rekey"):
        work = replace(RotationTask.of(operation, table, []), identities={late: b""})
        ((_, (outcome, _)),) = work([late])
        assert "outside the table" in outcome.why
    assert outside.read_bytes() == before


def test_a_missing_folder_is_told(spark: SparkSession, ring: bs.Keyring, tmp_path: Path) -> None:
    bss.enable(spark, policy=policy_of(ring))
    for name, job in jobs(spark, tmp_path / "nowhere").items():
        with pytest.raises(bs.UsageError, match="no such path"):
            pytest.fail(f"{name} gave {job()!r}")
    assert not (tmp_path / "nowhere").exists()
    found = bss.audit(spark, tmp_path / "nowhere").report
    assert found.findings or found.unseen


def test_rotation_and_audit_see_all_that_spark_and_a_reader_see(
    spark: SparkSession, ring: bs.Keyring, tmp_path: Path
) -> None:
    tables = {
        "t": {"footer_key": "footer", "complete": True, "partition_by": ["_day"], "columns": {"id": {"filter": True}}}
    }
    policy = Policy.from_dict({"version": 1, "kms": f"keyring:{ring.path}", "tables": tables})
    table = policy.for_table("t")
    names = [
        "_day=1/a.parquet",
        "_day=1/b.parquet.v2",
        "_day=2/d.pq",
        "_day=2/000000_0",
        "_day=2/_hidden.parquet",
        ".x/e.parquet",
    ]
    for number, name in enumerate(names):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        bs.write_table(pa.table({"id": [number]}), tmp_path / name, encryption=table)
    bss.enable(spark, policy=policy)
    by_spark = {(row.id, row._day) for row in bss.read(spark, tmp_path).collect()}
    assert by_spark == {(0, 1), (1, 1), (2, 2), (3, 2)}
    found = bs.read_table(tmp_path, decryption=table)
    assert {tuple(row.values()) for row in found.to_pylist()} == by_spark - {(3, 2)}
    visible = {str(tmp_path / name) for name in names[:4]}
    assert {file.ref.path for file in find_files(tmp_path) if file.outside is None} == visible
    assert set(inventory(tmp_path)["file"].to_pylist()) == visible


def test_a_data_file_without_a_byte_is_refused_and_not_passed_over(
    spark: SparkSession, policy: Policy, people: DataFrame, tmp_path: Path
) -> None:
    """Spark's own reader passes over it, and the rows that were in it are missing without a word."""
    bss.enable(spark, policy=policy)
    path = tmp_path / "t"
    bss.write(people.where("id < 10").repartition(2), path)
    (path / "note").touch()  # nobody's data
    assert bss.read(spark, path).count() == 10
    frame = bss.read(spark, path)
    next(path.glob("*.parquet")).write_bytes(b"")
    for look in (
        lambda: bss.read(spark, path).count(),
        lambda: bss.semi_join(spark, path, "id", [1]).count(),
        lambda: spark.read.format("bloomseal").load(str(path)).count(),
        frame.count,
    ):
        with pytest.raises(Exception, match=r"empty file|was replaced|0 bytes|too short"):
            look()
