"""Who writes to the storage of an encrypted Iceberg table, and who writes to its catalog. Neither has a key.

The storage writer has the table's folder, metadata file and all, and other tables under the same master key to take
files from. The catalog writer has the table's entry: which metadata file it names, and the options of the data source;
and a folder of his own.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.audit import audit
from bloomseal.policy import Policy, TablePolicy
from games.doors import REFUSED, RIGHT
from games.world import StorageWriter
from iceberg.conftest import keyring, no_passphrase, vectors  # noqa: F401  # fixtures

pytest.importorskip("pyiceberg")
COLUMNS = ["id", "ssn", "account", "city"]
FORGED = pa.table({"id": pa.array([666], pa.int32()), "ssn": ["forged"], "account": [0], "city": ["Turku"]})


@dataclass
class Warehouse:
    """The honest side: a table, its keyring, and what the reader expects."""

    root: Path
    ring: bs.Keyring
    others: Path
    pins: dict[str, Any]

    @property
    def policy(self) -> TablePolicy:
        table = {"footer_key": "master-main", "iceberg": {"encryption_key": "master-main", **self.pins}}
        document = {"version": 1, "kms": f"keyring://{self.ring.path}", "tables": {"people": table}}
        return Policy.from_dict(document).for_table("people")

    @property
    def truth(self) -> dict[int, dict[str, Any]]:
        spec = bs.DecryptionSpec(self.ring, iceberg=bs.IcebergSpec("master-main"))
        found = bs.read_table(self.others / self.root.name, columns=COLUMNS, decryption=spec)
        return {row["id"]: row for row in found.to_pylist()}


class WarehouseWriter(StorageWriter):
    """The storage writer, with the metadata file in his hands."""

    def __init__(self, here: Warehouse, own: Path) -> None:
        super().__init__(here.root, own)
        self.others = here.others

    @property
    def metadata(self) -> Path:
        return max(self.root.glob("metadata/*.metadata.json"))

    def say(self, change: Callable[[Any], None]) -> None:
        document = json.loads(self.metadata.read_text())
        change(document)
        self.metadata.write_text(json.dumps(document))

    def data(self) -> list[Path]:
        return sorted(self.root.rglob("*.parquet"))

    def manifests(self) -> list[Path]:
        return sorted(path for path in self.root.glob("metadata/*.avro") if not path.name.startswith("snap-"))

    def listed(self) -> Path:
        """The current snapshot's manifest list."""
        document = json.loads(self.metadata.read_text())
        now = next(one for one in document["snapshots"] if one["snapshot-id"] == document["current-snapshot-id"])
        return self.root / "metadata" / str(now["manifest-list"]).rpartition("/")[2]


# Attacks ---------------------------------------------------------------------------------------------------------


def data_in_clear(me: WarehouseWriter) -> None:
    bs.write_table(FORGED, me.data()[0])


def data_under_his_own_key(me: WarehouseWriter) -> None:
    spec = bs.EncryptionSpec(bytes(16), aad_prefix=b"p" * 16, store_aad_prefix=False)
    bs.write_table(FORGED, me.data()[0], encryption=spec)


def data_files_exchanged(me: WarehouseWriter) -> None:
    one, other, *_ = me.data()
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)


def data_outside_by_a_link(me: WarehouseWriter) -> None:
    there = me.data()[0]
    shutil.copy(there, me.own / "x.parquet")
    there.unlink()
    there.symlink_to(me.own / "x.parquet")


def data_file_added(me: WarehouseWriter) -> None:
    bs.write_table(FORGED, me.data()[0].with_name("more.parquet"))


def manifests_exchanged(me: WarehouseWriter) -> None:
    one, other, *_ = me.manifests()
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)


def manifest_of_another_table(me: WarehouseWriter) -> None:
    other = next(path for path in sorted((me.others / "eqdel16/metadata").glob("*.avro")) if "snap-" not in path.name)
    shutil.copy(other, me.manifests()[0])


def manifest_in_clear(me: WarehouseWriter) -> None:
    clear = next(path for path in (me.others / "hole_rest_clear/metadata").glob("*.avro") if "snap-" not in path.name)
    shutil.copy(clear, me.manifests()[0])


def list_in_clear(me: WarehouseWriter) -> None:
    clear = me.others / "hole_rest_clear/metadata"
    shutil.copy(next(clear.glob("snap-*.avro")), me.listed())

    def say(document: Any) -> None:
        for one in document["snapshots"]:
            one.pop("key-id", None)

    me.say(say)


def list_cut(me: WarehouseWriter) -> None:
    me.listed().write_bytes(me.listed().read_bytes()[:-20])


def encryption_taken_back(me: WarehouseWriter) -> None:
    def say(document: Any) -> None:
        del document["properties"]["encryption.key-id"]
        document.pop("encryption-keys")

    me.say(say)


def another_master_key(me: WarehouseWriter) -> None:
    shutil.rmtree(me.root)
    shutil.copytree(me.others / "hole_foreign_master", me.root)


def a_table_in_clear(me: WarehouseWriter) -> None:
    shutil.rmtree(me.root)
    me.root.mkdir()
    bs.write_table(FORGED, me.root / "a.parquet")


def columns_renamed(me: WarehouseWriter) -> None:
    def say(document: Any) -> None:
        fields = {field["name"]: field for field in document["schemas"][0]["fields"]}
        fields["ssn"]["name"], fields["city"]["name"] = "city", "ssn"

    me.say(say)


def partitions_of_another_column(me: WarehouseWriter) -> None:
    def say(document: Any) -> None:
        document["partition-specs"][0]["fields"] = [
            {"name": "ssn", "transform": "identity", "source-id": 2, "field-id": 1000}
        ]

    me.say(say)


def location_elsewhere(me: WarehouseWriter) -> None:
    me.say(lambda document: document.update(location=f"file:{me.own}"))


ATTACKS = [
    data_in_clear, data_under_his_own_key, data_files_exchanged, data_outside_by_a_link, data_file_added,
    manifests_exchanged, manifest_of_another_table, manifest_in_clear, list_in_clear, list_cut, encryption_taken_back,
    another_master_key, a_table_in_clear, columns_renamed, partitions_of_another_column, location_elsewhere,
]  # fmt: skip


# Doors -----------------------------------------------------------------------------------------------------------


def _same(found: pa.Table, ids: set[int], truth: dict[int, dict[str, Any]]) -> str:
    rows = found.to_pylist()
    assert {row["id"] for row in rows} == ids, "a wrong answer"
    assert len(rows) == len(ids)
    assert all(row == truth[row["id"]] for row in rows), "a wrong answer"
    return RIGHT


def _read(here: Warehouse) -> str:
    truth = here.truth
    return _same(bs.read_table(here.root, columns=COLUMNS, decryption=here.policy), {*truth}, truth)


def _where(here: Warehouse) -> str:
    truth = here.truth
    for row in (truth[min(truth)], truth[max(truth)]):
        for column in (name for name in ("ssn", "city") if row[name] is not None):
            ids = {one["id"] for one in truth.values() if one[column] == row[column]}
            where = [(column, "==", row[column])]
            _same(bs.read_table(here.root, columns=COLUMNS, where=where, decryption=here.policy), ids, truth)
    return RIGHT


def _probe(here: Warehouse) -> str:
    values = [row["ssn"] for row in here.truth.values()]
    found = bs.open_table(here.root, decryption=here.policy).maybe_present("ssn", values)
    assert found.any(axis=0).all(), "a false absent"
    return RIGHT


def _verify(here: Warehouse) -> str:
    report = bs.verify(here.root, decryption=here.policy)
    return RIGHT if report.ok and report.complete else REFUSED


def _audit(here: Warehouse) -> str:
    report = audit(here.root, policy=here.policy)
    return RIGHT if report.ok and not [one for one in report.findings if one.rule.id.startswith("BS5")] else REFUSED


def _spark(here: Warehouse) -> str:
    from spark.test_source_read import read

    truth = here.truth
    return _same(read(here.root, policy=here.policy).select(COLUMNS), {*truth}, truth)


DOORS = {"read": _read, "where": _where, "probe": _probe, "verify": _verify, "audit": _audit, "spark": _spark}


def play(here: Warehouse) -> dict[str, str]:
    """Ask through every door. Raises AssertionError: a wrong answer."""
    told = {}
    for name, door in DOORS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                told[name] = door(here)
            except bs.BloomsealError:
                told[name] = REFUSED
    return told


@pytest.fixture(params=["people16", "parts16"])
def here(request: pytest.FixtureRequest, vectors: Path, keyring: bs.Keyring, tmp_path: Path) -> Warehouse:  # noqa: F811
    pytest.importorskip("pyspark")
    root = Path(shutil.copytree(vectors / "tables" / request.param, tmp_path / "w" / request.param))
    return Warehouse(root, keyring, vectors / "tables", {})


def test_nobody_attacks_an_encrypted_iceberg_table(here: Warehouse) -> None:
    told = play(here)
    assert set(told.values()) <= ({RIGHT} if here.root.name == "people16" else {RIGHT, REFUSED}), told
    assert told["read"] == told["spark"] == RIGHT


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda one: one.__name__)
def test_whoever_writes_an_encrypted_iceberg_table_chooses_no_answer(
    here: Warehouse, tmp_path: Path, attack: Callable[[WarehouseWriter], None]
) -> None:
    attack(WarehouseWriter(here, tmp_path / "own"))
    told = play(here)
    if attack is data_file_added:  # no manifest names it
        assert told["read"] == told["spark"] == RIGHT
    elif attack not in (columns_renamed, partitions_of_another_column, data_outside_by_a_link):
        assert (told["read"], told["spark"], told["audit"]) == (REFUSED, REFUSED, REFUSED), told


def rolled_back(me: WarehouseWriter) -> None:
    """The state before, under the newest number."""
    before, now = sorted(me.root.glob("metadata/*.metadata.json"))[-2:]
    shutil.copy(before, now)


def another_table(me: WarehouseWriter) -> None:
    """Whole, and under the same master key."""
    name = "parts16" if me.root.name == "people16" else "people16"
    shutil.rmtree(me.root)
    shutil.copytree(me.others / name, me.root)


@pytest.mark.parametrize("attack", [rolled_back, another_table])
def test_limit_an_older_state_and_another_table_need_a_pin(
    here: Warehouse, tmp_path: Path, attack: Callable[[WarehouseWriter], None]
) -> None:
    """Everything in both authenticates. `metadata_hash` stops both, `min_sequence_number` the former."""
    from hashlib import sha256

    me = WarehouseWriter(here, tmp_path / "own")
    pin = sha256(me.metadata.read_bytes()).hexdigest()
    attack(me)
    assert bs.read_table(here.root, decryption=here.policy).num_rows != len(here.truth)
    spec = bs.IcebergSpec("master-main", metadata_hash=pin)
    with pytest.raises(bs.PolicyError, match="not those that metadata_hash names"):
        bs.read_table(here.root, decryption=bs.DecryptionSpec(here.ring, iceberg=spec))
    here.pins["min_sequence_number"] = 3 if here.root.name == "people16" else 2
    if attack is rolled_back:
        assert play(here)["read"] == play(here)["spark"] == REFUSED


class IcebergCatalogWriter:
    """Holds the table's entry: the metadata file and the options. The reader's policy is out of his reach."""

    def __init__(self, here: Warehouse, own: Path) -> None:
        own.mkdir()
        self.here, self.own = here, own

    def entries(self) -> list[Path]:
        """What he may name instead of the table."""
        older, *_ = sorted(self.here.root.glob("metadata/*.metadata.json"))
        copied = shutil.copy(older, self.own / "v9.metadata.json")
        clear = shutil.copytree(self.here.others / "hole_rest_clear", self.own / "clear")
        bs.write_table(FORGED, self.own / "a.parquet")
        data = sorted(self.here.root.rglob("*.parquet"))[0]
        return [older, Path(copied), clear, self.own / "a.parquet", data, data.parent]


def test_no_entry_of_the_catalog_leads_elsewhere(here: Warehouse, tmp_path: Path) -> None:
    from bloomseal.spark.source.options import Defaults, SourceOptions

    policy = here.policy
    session = Defaults(kms=policy.kms, policy=Policy({policy.name: policy}))
    for entry in IcebergCatalogWriter(here, tmp_path / "own").entries():
        with pytest.raises(bs.BloomsealError):
            bs.read_table(entry, decryption=policy)
        with pytest.raises(bs.BloomsealError):
            SourceOptions.parse({"path": str(entry)}, session).find_files()


def test_no_option_of_the_catalog_takes_data_in_clear(here: Warehouse, tmp_path: Path) -> None:
    from spark.test_source_read import read

    data_in_clear(WarehouseWriter(here, tmp_path / "own"))
    for options in ({}, {"allow_plaintext": "true"}, {"encrypted_columns": "ssn", "allow_plaintext": "true"}):
        with pytest.raises(bs.BloomsealError):
            read(here.root, policy=here.policy, **options)
