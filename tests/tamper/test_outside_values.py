"""Names of folders and logs of tables are sealed by nothing: they say nothing of a column that is."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.core.limits import MAX_LOG_BYTES, MAX_POLICY_BYTES
from bloomseal.policy import TablePolicy

ROWS = pa.table({"ssn": ["001", "002"], "n": [1, 2]})
NESTED = pa.table({"home": pa.array([{"zip": "10115"}, {"zip": "80331"}]), "n": [1, 2]})


@pytest.fixture
def ring(tmp_path: Path) -> bs.Keyring:
    ring = bs.Keyring(tmp_path / "keys.json", create=True)
    for name in ("footer", "pii", "health"):
        ring.create(name)
    return ring


def policy(ring: bs.Keyring, columns: dict[str, str] | None = None, **settings: Any) -> TablePolicy:
    named = {name: {"key": key} for name, key in (columns or {"ssn": "pii"}).items()}
    table = {"footer_key": "footer", "complete": True, "columns": named, **settings}
    document = {"version": 1, "kms": f"keyring://{ring.path}", "tables": {"t": table}}
    return bs.Policy.from_dict(document).for_table("t")


def in_folder(tmp_path: Path, name: str, rows: pa.Table, sealing: TablePolicy) -> Path:
    """A sealed file that a storage writer has moved into a folder of his."""
    root = tmp_path / "t"
    (root / name).mkdir(parents=True)
    bs.write_table(rows, root / name / "x.parquet", encryption=sealing)
    return root


DOORS: dict[str, Callable[[Path, Any], Any]] = {
    "read": lambda root, spec: bs.read_table(root, decryption=spec),
    "read others": lambda root, spec: bs.read_table(root, columns=["n"], decryption=spec),
    "scan": lambda root, spec: bs.open_table(root, decryption=spec).scan().read_all(),
    "where": lambda root, spec: bs.read_table(root, where=[("n", "==", 1)], decryption=spec),
    "maybe_present": lambda root, spec: bs.open_table(root, decryption=spec).maybe_present("n", pa.array([1])),
    "verify": lambda root, spec: bs.open_table(root, decryption=spec).verify(),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("folder", ["illness=forged", "ILLNESS=forged", "%69llness=forged", "illness=forged/day=1"])
def test_a_folder_gives_no_values_of_a_pinned_column(tmp_path: Path, ring: bs.Keyring, folder: str, door: str) -> None:
    """The file is older than the column, which is pinned: it is nulls there, and not what a folder's name says."""
    root = in_folder(tmp_path, folder, ROWS, policy(ring))
    pinned = policy(ring, {"ssn": "pii", "illness": "health"})
    for spec in (pinned, bs.DecryptionSpec(ring, encrypted_columns=["ssn", "illness"])):
        with pytest.raises(bs.PolicyError, match="illness must be encrypted"):
            DOORS[door](root, spec)
    assert bs.open_table(root, decryption=pinned, partitions=False).read().equals(ROWS)


def test_a_folder_called_like_a_pinned_field_or_group_hides_nothing(tmp_path: Path, ring: bs.Keyring) -> None:
    sealing = policy(ring, {"home.zip": "pii"})
    root = in_folder(tmp_path, "home.zip=forged", NESTED, sealing)
    with pytest.raises(bs.PolicyError):
        bs.read_table(root, where=[("home.zip", "==", "10115")], decryption=sealing)
    (root / "home.zip=forged").rename(root / "home=forged")
    with pytest.raises(bs.PolicyError):
        bs.read_table(root, where=[("n", "==", 1)], decryption=sealing)


def test_a_folder_called_like_a_field_hides_no_row(tmp_path: Path, ring: bs.Keyring) -> None:
    """Without a policy: the column is in the file, and in the name of its folder."""
    root = in_folder(tmp_path, "home.zip=forged", NESTED, policy(ring, {"home.zip": "pii"}))
    for filters in ([("home.zip", "==", "10115")], None):
        with pytest.raises(bs.UsageError, match="in the name of its folder"):
            bs.read_table(root, where=filters, decryption=bs.DecryptionSpec(ring, partition_by=["home.zip"]))


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_file_outside_the_folders_is_asked_itself(tmp_path: Path, ring: bs.Keyring, encrypted: bool) -> None:
    """One folder called ``n=…``, and the rows of all other files would be gone from every look-up of `n`."""
    spec = bs.DecryptionSpec(ring, partition_by=["n"]) if encrypted else None
    for name in ("x.parquet", "n=7/y.parquet"):
        (tmp_path / "t" / name).parent.mkdir(parents=True, exist_ok=True)
        rows = ROWS if name[0] == "x" else ROWS.select(["ssn"])
        bs.write_table(rows, tmp_path / "t" / name, encryption=policy(ring) if encrypted else None)
    for filters in ([("n", "==", 1)], [("n", "==", 7)], None):
        with pytest.raises(bs.UsageError, match=r"in the name of another file's folder \(.*n=7/y.parquet\).*x.parquet"):
            bs.read_table(tmp_path / "t", where=filters, decryption=spec)


def test_columns_that_nobody_seals_may_be_folders(tmp_path: Path, ring: bs.Keyring) -> None:
    root = in_folder(tmp_path, "tenant=a", ROWS, policy(ring))
    found = bs.read_table(root, where=[("tenant", "==", "a")], decryption=policy(ring, partition_by=["tenant"]))
    assert found.equals(ROWS.append_column("tenant", [["a", "a"]]))


# A log


def delta(tmp_path: Path, ring: bs.Keyring, column: str) -> Path:
    """A table whose log somebody has rewritten: `column` partitions it, and here is its value."""
    root = tmp_path / "t"
    (root / "_delta_log").mkdir(parents=True)
    rows = ROWS if column in ROWS.column_names else ROWS.append_column(column, [["real", "real"]])
    bs.write_table(ROWS, root / "x.parquet", encryption=policy(ring))  # older than `illness`
    kinds = {"ssn": "string", "n": "long", "illness": "string"}
    fields = [{"name": name, "type": kinds[name], "nullable": True, "metadata": {}} for name in rows.column_names]
    schema = json.dumps({"type": "struct", "fields": fields})
    said: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {"id": "t", "format": {"provider": "parquet", "options": {}}, "schemaString": schema,
                      "partitionColumns": [column], "configuration": {}, "createdTime": 1}},
        {"add": {"path": "x.parquet", "partitionValues": {column: "666"}, "size": 1, "modificationTime": 1,
                 "dataChange": True}},
    ]  # fmt: skip
    (root / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, said)))
    return root


@pytest.mark.parametrize(
    ("column", "said"), [("ssn", "ssn must be"), ("illness", "illness must be"), ("n", "may be a sealed")]
)
def test_a_log_gives_no_values_of_a_sealed_column(tmp_path: Path, ring: bs.Keyring, column: str, said: str) -> None:
    pytest.importorskip("deltalake")
    root = delta(tmp_path, ring, column)
    pinned = policy(ring, {"ssn": "pii", "illness": "health"})
    for filters in (None, [("ssn", "==", "001")], [(column, "==", 666 if column == "n" else "666")]):
        with pytest.raises(bs.PolicyError, match=said):
            bs.read_table(root, where=filters, decryption=pinned)


# Spark's data source, whose rule is Spark's: what a folder's name says wins.


@pytest.mark.parametrize(
    ("folder", "said"),
    [
        ("ssn=forged", "ssn must be"),
        ("SSN=forged", "ssn must be"),
        ("illness=forged", "illness must"),
        ("n=666", "may be a sealed"),
    ],
)
def test_sparks_source_takes_no_sealed_column_from_a_folder(
    tmp_path: Path, ring: bs.Keyring, folder: str, said: str
) -> None:
    st = pytest.importorskip("pyspark.sql.types")
    from bloomseal.spark.source.options import Defaults, SourceOptions
    from bloomseal.spark.source.reader import TableReader

    root = in_folder(tmp_path, folder, ROWS, policy(ring))
    pinned = policy(ring, {"ssn": "pii", "illness": "health"})
    settings = SourceOptions.parse({"path": str(root)}, Defaults(policy=bs.Policy({"t": pinned})))
    schema = st.StructType().add("ssn", "string").add("n", "long").add("illness", "string")

    def read() -> list[pa.RecordBatch]:
        reader = TableReader(settings, schema)
        return [batch for task in reader.partitions() for batch in reader.read(task)]

    with pytest.raises(bs.PolicyError, match=said):
        read()
    shutil.move(root / folder / "x.parquet", root / "x.parquet")
    shutil.rmtree(root / folder)
    assert pa.Table.from_batches(read()).to_pydict() == {"ssn": ["001", "002"], "n": [1, 2], "illness": [None, None]}


def test_check_table_tells_a_folder_that_spark_would_believe(tmp_path: Path, ring: bs.Keyring) -> None:
    pytest.importorskip("pyspark")
    from bloomseal.spark.listing import SparkTableFiles
    from bloomseal.spark.writing.frames import _check

    root = in_folder(tmp_path, "tenant=a/ssn=forged", ROWS, policy(ring))
    files = SparkTableFiles(None, tuple(map(str, root.rglob("*.parquet"))))
    with pytest.raises(bs.PolicyError, match="ssn must be encrypted"):
        _check(str(root), files, policy(ring, partition_by=["tenant"]).at(root), None)
    (root / "tenant=a" / "ssn=forged").rename(root / "tenant=a" / "day=1")
    files = SparkTableFiles(None, tuple(map(str, root.rglob("*.parquet"))))
    with pytest.raises(bs.PolicyError, match="may be a sealed one"):
        _check(str(root), files, policy(ring).at(root), None)
    assert _check(str(root), files, policy(ring, partition_by=["tenant", "day"]).at(root), None).rows == 2


# Texts that are as long as somebody likes, and pipes


def giant(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(max(MAX_LOG_BYTES, MAX_POLICY_BYTES) + 1)
    return path


@pytest.mark.parametrize("log", ["_delta_log/00000000000000000000.json", "metadata/v1.metadata.json"])
def test_a_log_with_holes_is_not_read(tmp_path: Path, log: str) -> None:
    pytest.importorskip("deltalake")
    pytest.importorskip("pyiceberg")
    giant(tmp_path / "t" / log)
    with pytest.raises(bs.FormatError, match="the limit is"):
        bs.open_table(tmp_path / "t")


def test_a_policy_with_holes_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(bs.PolicyError, match="more than"):
        bs.Policy.load(giant(tmp_path / "policy.toml"))


def test_a_streams_log_is_read_from_files_alone(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from bloomseal.spark.source.files.logs import sink_files

    log = tmp_path / "t" / "_spark_metadata"
    log.mkdir(parents=True)
    os.mkfifo(log / "0")
    with pytest.raises(bs.UsageError, match="no regular file"):
        sink_files(None, str(tmp_path / "t"))
    (log / "0").unlink()
    giant(log / "0")
    with pytest.raises(bs.FormatError, match="the limit is"):
        sink_files(None, str(tmp_path / "t"))
