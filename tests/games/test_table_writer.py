"""Whoever may write to a table's folder or to its log, and has no key: what a folder's name or a log says of a column
that may be a sealed one gives no row and hides none, by any door.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import bloomseal as bs

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")
duckdb = pytest.importorskip("duckdb")
pl = pytest.importorskip("polars")
st = pytest.importorskip("pyspark.sql.types")

import bloomseal.duckdb as bd  # noqa: E402
import bloomseal.polars as bp  # noqa: E402
from bloomseal.read.predicate.condition import Compare  # noqa: E402
from bloomseal.read.predicate.values import Values  # noqa: E402

FORGED, GENUINE = "S-219", "S-007"
OLD = pa.table({"n": pa.array([1, 2], pa.int64())})
"""The rows of a file that is older than the column `ssn`."""
NEW = pa.table({"n": pa.array([3, 4], pa.int64()), "ssn": [GENUINE, "S-008"]})


def policy(ring: bs.Keyring, **settings: Any) -> Any:
    document = {"version": 1, "tables": {"t": {"footer_key": "footer", **settings}}}
    return bs.Policy.from_dict(document, kms=ring).for_table("t")


READERS: dict[str, Callable[[bs.Keyring], Any]] = {
    "complete": lambda ring: policy(ring, complete=True, columns={"other": {"key": "pii"}}),
    "uniform": lambda ring: policy(ring),
    "column's key": lambda ring: policy(ring, columns={"ssn": {"key": "footer"}}),
    "restricted": lambda ring: policy(
        ring, complete=True, columns={"other": {"key": "pii"}, "ssn": {"sensitivity": "restricted"}}
    ),
    "bare key tools": lambda ring: bs.DecryptionSpec(ring),
    "other columns named": lambda ring: bs.DecryptionSpec(ring, encrypted_columns=["n"]),
    "another column is a folder": lambda ring: bs.DecryptionSpec(ring, partition_by=["day"]),
}


class TableWriter:
    """Holds the table's folder, and writes its log: any bytes there, and no key."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.old, self.new = root / "old.parquet", root / "new.parquet"

    def folders(self) -> None:
        """Old rows under a value of his choice, and genuine ones where no condition on that column looks."""
        for file, value in ((self.old, FORGED), (self.new, "S-000")):
            place = self.root / f"ssn={value}"
            place.mkdir()
            file.rename(place / file.name)

    def delta(self, *, by: str = "ssn") -> None:
        """Partitioned by a column, and with statistics that fit no row."""
        fields = [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in (("n", "long"), ("ssn", "string"), ("day", "string"))
        ]
        bounds = {"ssn": "X", "n": 999}
        lies = {"numRecords": 0, "minValues": bounds, "maxValues": bounds, "nullCount": {"ssn": 0, "n": 0}}
        schema = json.dumps({"type": "struct", "fields": fields})
        said: list[dict[str, Any]] = [
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
            {"metaData": {"id": "t", "format": {"provider": "parquet", "options": {}}, "schemaString": schema,
                          "partitionColumns": [by], "configuration": {}, "createdTime": 1}},
        ]  # fmt: skip
        for file, value in ((self.old, FORGED), (self.new, "S-000")):
            said.append({"add": {"path": file.name, "partitionValues": {by: value}, "size": file.stat().st_size,
                                 "modificationTime": 1, "dataChange": True, "stats": json.dumps(lies)}})  # fmt: skip
        log = self.root / "_delta_log"
        log.mkdir()
        (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, said)))

    def iceberg(self, *, by: str = "ssn") -> None:
        """Files that older engines wrote, added under an identity partition: the log's values count where files lack
        the column. Bounds and counts of the manifests are those of other rows.
        """
        from pyiceberg.catalog.memory import InMemoryCatalog
        from pyiceberg.partitioning import PartitionField, PartitionSpec
        from pyiceberg.schema import Schema
        from pyiceberg.transforms import IdentityTransform
        from pyiceberg.types import LongType, NestedField, StringType

        catalog = InMemoryCatalog("t", warehouse=f"file://{self.root.parent}/ice")
        catalog.create_namespace("n")
        fields = [
            NestedField(1, "n", LongType()),
            NestedField(2, "ssn", StringType()),
            NestedField(3, "day", StringType()),
        ]
        schema = Schema(*fields)
        partition = PartitionSpec(PartitionField(2 if by == "ssn" else 3, 1000, IdentityTransform(), by))
        table = catalog.create_table("n.t", schema=schema, partition_spec=partition, location=f"file://{self.root}")
        mapping = json.dumps([{"field-id": field.field_id, "names": [field.name]} for field in fields])
        with table.transaction() as change:
            change.set_properties(**{"schema.name-mapping.default": mapping})
        rows = {"n": pa.array([999, 999], pa.int64()), "ssn": ["X", "X"], "day": [FORGED, "S-000"]}
        table.append(pa.table(rows | {by: [FORGED, "S-000"]}))
        written = sorted((self.root / "data").rglob("*.parquet"))
        for place in written:
            (self.old if FORGED in str(place) else self.new).replace(place)


ATTACKS: dict[str, Callable[[TableWriter], None]] = {
    "folders": TableWriter.folders, "Delta": TableWriter.delta, "Iceberg": TableWriter.iceberg,
}  # fmt: skip


def _source(root: Path, spec: Any, asked: list[Any]) -> list[dict[str, Any]]:
    """Spark's data source, as a driver plans a read and a task reads, without a JVM."""
    from bloomseal.spark.source.options import Defaults, SourceOptions
    from bloomseal.spark.source.pushdown import to_text
    from bloomseal.spark.source.reader import TableReader

    if isinstance(spec, bs.DecryptionSpec):
        options = {
            "kms": f"keyring://{spec.keys.path}", "partition_by": ",".join(spec.partition_by),
            **({"encrypted_columns": ",".join(spec.encrypted_columns)} if spec.encrypted_columns else {}),
        }  # fmt: skip
        settings = SourceOptions.parse({"path": str(root), "conditions": to_text(asked), **options}, Defaults())
    else:
        defaults = Defaults(policy=bs.Policy({"t": spec}), kms=f"keyring://{root.parent}/keys.json")
        settings = SourceOptions.parse({"path": str(root), "conditions": to_text(asked)}, defaults)
    reader = TableReader(settings, st.StructType().add("n", "long").add("ssn", "string"))
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    return [row for batch in batches for row in batch.to_pylist()]


def _duckdb(root: Path, spec: Any) -> list[dict[str, Any]]:
    with contextlib.closing(duckdb.connect()) as connection:
        bd.register(connection, "t", root, decryption=spec)
        found = connection.execute("select n, ssn from t where ssn = ?", [FORGED])
        return list(found.to_arrow_table().to_pylist())


def _probed(root: Path, spec: Any) -> list[dict[str, Any]]:
    found = bs.probe(root, "ssn", [GENUINE], decryption=spec)
    assert any(verdict is not bs.Verdict.ABSENT for groups in found.values() for (verdict,) in groups), "a false absent"
    return []


def _where(root: Path, spec: Any, **options: Any) -> list[dict[str, Any]]:
    return list(bs.open_table(root, decryption=spec, **options).read(["n", "ssn"], WHERE).to_pylist())


WHERE = [("ssn", "==", FORGED)]
ALL: dict[str, Callable[[Path, Any], list[dict[str, Any]]]] = {
    "read": lambda root, spec: bs.read_table(root, columns=["n", "ssn"], decryption=spec).to_pylist(),
    "scan": lambda root, spec: bs.open_table(root, decryption=spec).scan(["n", "ssn"]).read_all().to_pylist(),
    "Spark's source": lambda root, spec: _source(root, spec, []),
}
"""Those that give every row."""
NONE: dict[str, Callable[[Path, Any], list[dict[str, Any]]]] = {
    "read by tuples": lambda root, spec: bs.read_table(root, where=WHERE, decryption=spec).to_pylist(),
    "read by expression": lambda root, spec: bs.read_table(
        root, where=ds.field("ssn") == FORGED, decryption=spec
    ).to_pylist(),
    "scan": lambda root, spec: bs.open_table(root, decryption=spec).scan(None, WHERE).read_all().to_pylist(),
    "probe": _probed,
    "index": _where,
    "no index": lambda root, spec: _where(root, spec, use_index="never"),
    "Polars": lambda root, spec: bp.scan(root, decryption=spec).filter(pl.col("ssn") == FORGED).collect().to_dicts(),
    "DuckDB": _duckdb,
    "Spark's source": lambda root, spec: _source(root, spec, [Compare("ssn", "==", Values((FORGED,)))]),
}
"""Those that are asked for rows that nobody wrote."""
TRUTH = [{"n": 1, "ssn": None}, {"n": 2, "ssn": None}, {"n": 3, "ssn": GENUINE}, {"n": 4, "ssn": "S-008"}]


def table(tmp_path: Path) -> tuple[TableWriter, bs.Keyring]:
    """Two sealed files, of which the older lacks `ssn`, and an index of the column."""
    ring = bs.Keyring(tmp_path / "keys.json", create=True)
    for name in ("footer", "pii"):
        ring.create(name)
    root = tmp_path / "t"
    root.mkdir()
    me = TableWriter(root)
    for rows, path in ((OLD, me.old), (NEW, me.new)):
        bs.write_table(rows, path, encryption=policy(ring), bloom_filters={"ssn": True} if rows is NEW else None)
    bs.open_table(root, decryption=policy(ring)).index("ssn").build()
    return me, ring


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("reader", READERS)
def test_no_folder_and_no_log_says_what_a_sealed_column_holds(tmp_path: Path, reader: str, attack: str) -> None:
    me, ring = table(tmp_path)
    spec = READERS[reader](ring)
    for door, ask in ALL.items():  # nobody attacks
        assert sorted(ask(me.root, spec), key=lambda row: row["n"]) == TRUTH, door
    ATTACKS[attack](me)
    answered = [*_answered(ALL, me.root, spec, TRUTH), *_answered(NONE, me.root, spec, [])]
    # Of these files a log's values count only where a file lacks the column; filters are about the files' own.
    assert answered == (["probe"] if attack == "Iceberg" else [])


def _answered(doors: dict[str, Any], root: Path, spec: Any, right: list[dict[str, Any]]) -> list[str]:
    """The doors that do not refuse."""
    told = []
    for door, ask in doors.items():
        try:
            found = ask(root, spec)
        except (bs.PolicyError, bs.UsageError, bs.UnsupportedError, duckdb.Error):
            continue
        assert sorted(found, key=lambda row: row["n"]) == right, door
        told.append(door)
    return told


@pytest.mark.parametrize("attack", ["Delta", "Iceberg"])
def test_no_bounds_of_a_log_hide_a_row(tmp_path: Path, attack: str) -> None:
    """Its statistics, and its counts of rows, are of other rows than the files hold: nothing is ruled out by them."""
    me, ring = table(tmp_path)
    {"Delta": me.delta, "Iceberg": me.iceberg}[attack](by="day")
    spec = policy(ring, partition_by=["day"])
    for where, wanted in (([("ssn", "==", GENUINE)], [3]), ([("n", "<", 3)], [1, 2]), (None, [1, 2, 3, 4])):
        for index in ("never", "auto"):
            opened = bs.open_table(me.root, decryption=spec, use_index=index)  # type: ignore[arg-type]
            assert sorted(opened.read(["n"], where)["n"].to_pylist()) == wanted
            assert sorted(opened.scan(["n"], where).read_all()["n"].to_pylist()) == wanted
        asked = [] if where is None else [Compare(where[0][0], where[0][1], Values(where[0][2:]))]
        if attack == "Delta":
            assert sorted(row["n"] for row in _source(me.root, spec, asked) if row["n"] in wanted) == wanted
    assert opened.maybe_present("ssn", [GENUINE]).any()
    # In clear: its value may be chosen, and is not absent where the log says it for a file that lacks the column.
    assert opened.read(["n"], [("day", "==", FORGED)])["n"].to_pylist() == [1, 2]
    if attack == "Iceberg":
        assert opened.maybe_present("day", [FORGED]).any()
