"""Encrypted Iceberg tables through the data source: the same rows as `open_table`, and no key in what travels."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import bloomseal as bs
from bloomseal.core.storage.ref import FileRef
from bloomseal.policy import Policy, TablePolicy
from iceberg.conftest import keyring, no_passphrase, vectors  # noqa: F401  # fixtures

pytest.importorskip("pyspark")
pytest.importorskip("pyiceberg")

from pyspark import cloudpickle
from pyspark.sql import datasource as ds

from bloomseal.spark.source.options import Defaults
from bloomseal.spark.source.source import BloomsealSource
from bloomseal.storage.logs.iceberg_encrypted import EncryptedIcebergLog, IcebergOpening
from spark.conftest import PASSPHRASE
from spark.test_source_read import _Counted, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SSN = "901-11-0001"


@pytest.fixture
def policy(keyring: bs.Keyring) -> TablePolicy:  # noqa: F811
    table = {"footer_key": "master-main", "iceberg": {"encryption_key": "master-main"}}
    return Policy.from_dict({"version": 1, "kms": f"keyring://{keyring.path}", "tables": {"people": table}}).for_table(
        "people"
    )


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["id"])


@pytest.mark.parametrize("name", ["people16", "parts16"])
def test_the_rows_are_those_of_open_table(vectors: Path, policy: TablePolicy, name: str) -> None:  # noqa: F811
    place, counted = vectors / "tables" / name, _Counted()
    table = bs.open_table(place, decryption=policy)
    assert ordered(read(place, policy=policy, counted=counted).to_pylist()) == ordered(table.read().to_pylist())
    assert counted.total.files == len(table.files)
    assert counted.total.kms_calls <= 1  # one KEK, whatever the number of files


def test_filters_rule_row_groups_out(vectors: Path, policy: TablePolicy) -> None:  # noqa: F811
    place, counted = vectors / "tables" / "people16", _Counted()
    found = read(place, ds.EqualTo(("ssn",), SSN), policy=policy, counted=counted)
    assert [row["id"] for row in found.to_pylist()] == [1]
    stats = counted.total
    assert (stats.pruned_by_statistics + stats.pruned_by_filter, stats.decoded, stats.row_groups) == (8, 1, 9)
    between, counted = f"{SSN}5", _Counted()  # statistics leave a file, its filter does not
    assert not read(place, ds.EqualTo(("ssn",), between), policy=policy, counted=counted).num_rows
    assert counted.total.pruned_by_filter > 0


def keys_of(place: Path, policy: TablePolicy) -> list[bytes]:
    assert policy.iceberg is not None
    log = EncryptedIcebergLog(FileRef(str(place)), IcebergOpening(policy.iceberg, policy.keys.unwrap_bytes))
    assert log.kek is not None
    return [log.kek.key.reveal(), *(one.key.reveal() for one in (log.keys() | log.stream_keys()).values())]


def test_no_key_travels(vectors: Path, policy: TablePolicy) -> None:  # noqa: F811
    class Source(BloomsealSource):
        defaults = Defaults(policy.kms, Policy({policy.name: policy}))

    place = vectors / "tables" / "people16"
    source = Source({"path": str(place)})
    reader = source.reader(source.schema())
    sent = cloudpickle.dumps((reader, partitions := reader.partitions()))
    assert not [key for key in keys_of(place, policy) if key in sent or key.hex().encode() in sent]
    assert "AAD" not in repr([*partitions])
    piece = next(one for task in partitions for one in task.pieces)  # type: ignore[attr-defined]
    assert all(value not in repr(piece) for value in (piece.key.wrapped, str(piece.key.kek)))


def test_a_key_opens_its_own_file_alone(vectors: Path, policy: TablePolicy) -> None:  # noqa: F811
    """Attack: whoever alters a plan on its way gives one file's key to another."""

    class Source(BloomsealSource):
        defaults = Defaults(policy.kms, Policy({policy.name: policy}))

    source = Source({"path": str(vectors / "tables" / "people16")})
    reader: Any = source.reader(source.schema())
    settings = reader._scan.settings
    one, other, *_ = (piece for task in reader.partitions() for piece in task.pieces)
    with settings.open(one):
        pass
    for wrong in (one._replace(key=other.key), one._replace(name=other.name)):
        with pytest.raises(bs.KeyAccessError, match="does not open"):
            settings.open(wrong)
    with pytest.raises(bs.PolicyError, match="without a key"):
        settings.open(one._replace(key=None))


@pytest.mark.parametrize("name", ["hole_clear_data_file", "hole_swapped_manifests", "hole_no_key_id", "dv16"])
def test_what_open_table_refuses_is_refused(vectors: Path, policy: TablePolicy, name: str) -> None:  # noqa: F811
    with pytest.raises(bs.BloomsealError):
        read(vectors / "tables" / name, policy=policy)


def test_another_table_in_its_place(vectors: Path, policy: TablePolicy, tmp_path: Path) -> None:  # noqa: F811
    folder = vectors / "tables" / "people16" / "data"
    alone = shutil.copytree(folder, tmp_path / "alone")
    for place in (alone, next(alone.rglob("*.parquet"))):
        with pytest.raises(bs.PolicyError, match="no Iceberg table"):
            read(place, policy=policy)
    with pytest.raises(bs.PolicyError):
        read(vectors / "tables" / "hole_foreign_master", policy=policy)


@pytest.mark.parametrize("mixed", [False, True])
def test_a_table_that_was_in_clear(tmp_path: Path, vectors: Path, policy: TablePolicy, mixed: bool) -> None:  # noqa: F811
    from iceberg.test_history import ROWS, by_engine, masters
    from support.iceberg_sealed import add_sealed

    by_engine(tmp_path)
    place = tmp_path / "n" / "t"
    add_sealed(place, "master-main", masters(vectors)["master-main"], with_clear=mixed)
    if mixed:
        with pytest.raises(bs.PolicyError, match="a manifest in clear"):
            read(place, policy=policy)
    else:
        assert read(place, policy=policy)["ssn"].to_pylist() == ROWS["ssn"].to_pylist()


def test_in_a_session(
    spark: SparkSession,
    vectors: Path,  # noqa: F811
    policy: TablePolicy,
    keyring: bs.Keyring,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import bloomseal.spark as bss

    keys = {name: keys_of(vectors / "tables" / name, policy) for name in ("people16", "parts16")}
    protected = bs.Keyring(shutil.copy(keyring.path, tmp_path / "keys.json"))
    protected.change_passphrase(PASSPHRASE)
    monkeypatch.setenv("BLOOMSEAL_KEYRING_PASSPHRASE", PASSPHRASE)  # as the session's processes have it
    policy = replace(policy, kms=f"keyring://{protected.path}")
    spark = spark.newSession()  # of which `enable` was not called
    people = str(vectors / "tables" / "people16")
    for name, count in (("people16", 108), ("parts16", 40)):
        place = vectors / "tables" / name
        frame = bss.read(spark, str(place), policy=policy)
        assert frame.count() == count
        expected = bs.open_table(place, decryption=policy).read().to_pylist()
        assert ordered([row.asDict() for row in frame.collect()]) == ordered(expected)
        plan = frame._jdf.queryExecution().toString()
        assert not [key for key in keys[name] if key.hex() in plan]
    found = bss.read(spark, people, policy=policy, where=f"ssn = '{SSN}'", columns=["id"])
    assert [row.id for row in found.collect()] == [1]
    with pytest.raises(bs.UnsupportedError, match="semi_join"):
        bss.semi_join(spark, people, "ssn", [SSN], policy=policy)
