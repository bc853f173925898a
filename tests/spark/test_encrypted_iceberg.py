"""Encrypted Iceberg tables through the data source: the same rows as `open_table`, and no key in what travels."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import bloomseal as bs
from bloomseal.audit.facts.auditor import Auditor
from bloomseal.core.storage.ref import FileRef
from bloomseal.policy import Policy, TablePolicy
from iceberg.conftest import keyring, no_passphrase, vectors  # noqa: F401  # fixtures

pytest.importorskip("pyspark")
pytest.importorskip("pyiceberg")

from pyspark import cloudpickle
from pyspark.sql import datasource as ds

from bloomseal.spark.request import Request
from bloomseal.spark.semijoin.question import KeyQuestion
from bloomseal.spark.source.files.piece import Piece
from bloomseal.spark.source.options import Defaults
from bloomseal.spark.source.source import BloomsealSource
from bloomseal.storage.logs.iceberg_encrypted import EncryptedIcebergLog, IcebergOpening
from bloomseal.storage.logs.iceberg_keys import WrappedFileKey
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


@pytest.mark.parametrize("name", ["people16", "parts16", "dv16", "eqdel16"])
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


def planned(place: Path, policy: TablePolicy) -> tuple[Any, list[Any], list[Piece]]:
    """The reader of a table, and its tasks and their files as they come to an executor."""

    class Source(BloomsealSource):
        defaults = Defaults(policy.kms, Policy({policy.name: policy}))

    source = Source({"path": str(place)})
    source._inferred = False
    reader: Any = source.reader(source.schema())
    tasks: Any = cloudpickle.loads(cloudpickle.dumps(reader.partitions()))
    return reader, tasks, [piece for task in tasks for piece in task.pieces]


@pytest.mark.parametrize("name", ["people16", "parts16", "dv16", "eqdel16"])
def test_no_key_travels(vectors: Path, policy: TablePolicy, name: str) -> None:  # noqa: F811
    place = vectors / "tables" / name
    reader, tasks, pieces = planned(place, policy)
    auditor = Auditor(policy.keys, policy)
    auditor.find(place)
    told = [auditor.told(piece.name) for piece in pieces]
    assert None not in told
    sent = cloudpickle.dumps((reader, reader.partitions(), told))
    assert not [key for key in keys_of(place, policy) if key in sent or key.hex().encode() in sent]
    assert "AAD" not in repr(tasks)
    deletes = [one for piece in pieces for one in piece.deletes]
    assert bool(deletes) is (name in ("dv16", "eqdel16"))
    assert not any(value is not None for piece in pieces for value in piece.values)  # sealed, and nothing compares them
    assert policy.iceberg is not None
    log = EncryptedIcebergLog(FileRef(str(place)), IcebergOpening(policy.iceberg, policy.keys.unwrap_bytes))
    for own in log.stream_keys().values():  # nothing wraps those
        with pytest.raises(TypeError, match="never pickled"):
            cloudpickle.dumps(own)
    for key in [pieces[0].key, *(one.file.key for one in deletes)]:
        assert isinstance(key, WrappedFileKey)
        assert all(value not in repr((pieces, key)) for value in (key.wrapped, str(key.kek)))


@pytest.mark.parametrize("name", ["dv16", "eqdel16"])
def test_a_delete_file_without_its_own_key_is_no_empty_one(vectors: Path, policy: TablePolicy, name: str) -> None:  # noqa: F811
    """Attack: by whoever alters a plan on its way, so that deleted rows come back."""
    reader, _, pieces = planned(vectors / "tables" / name, policy)
    log = reader._scan.settings.find_files().log
    piece = next(one for one in pieces if one.deletes)
    (delete,) = piece.deletes
    wrong = ((None, bs.PolicyError, "without a key"), (piece.key, bs.KeyAccessError, "does not open"))
    for key, kind, message in wrong:
        given = replace(delete, file=replace(delete.file, key=key))
        file = reader._scan.settings.open(piece._replace(deletes=(given,)), log)
        with file, pytest.raises(kind, match=message):
            file.read()


def test_a_key_opens_its_own_file_alone(vectors: Path, policy: TablePolicy) -> None:  # noqa: F811
    """Attack: whoever alters a plan on its way gives one file's key to another."""
    reader, _, (one, other, *_) = planned(vectors / "tables" / "people16", policy)
    settings = reader._scan.settings
    with settings.open(one):
        pass
    for wrong in (one._replace(key=other.key), one._replace(name=other.name)):
        with pytest.raises(bs.KeyAccessError, match="does not open"):
            settings.open(wrong)
    with pytest.raises(bs.PolicyError, match="without a key"):
        settings.open(one._replace(key=None))


@pytest.mark.parametrize(
    "name", ["hole_clear_data_file", "hole_swapped_manifests", "hole_no_key_id", "hole_vector_without_key"]
)
def test_what_open_table_refuses_is_refused(vectors: Path, policy: TablePolicy, name: str) -> None:  # noqa: F811
    with pytest.raises(bs.BloomsealError):
        read(vectors / "tables" / name, policy=policy)


def test_a_link_within_the_table(vectors: Path, policy: TablePolicy, tmp_path: Path) -> None:  # noqa: F811
    """Manifests name files by another path than they are found at, and keys are bound to one."""
    place = Path(shutil.copytree(vectors / "tables" / "dv16", tmp_path / "dv16"))
    (place / "data").rename(place / "moved")
    (place / "data").symlink_to("moved")
    table = bs.open_table(place, decryption=policy)
    assert ordered(read(place, policy=policy).to_pylist()) == ordered(table.read().to_pylist())


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


@pytest.fixture
def protected(
    vectors: Path,  # noqa: F811
    keyring: bs.Keyring,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> bs.Keyring:
    """With the passphrase that the session's processes have, and a second version of the master key, under which the
    KEKs of a table beside it are.
    """
    from iceberg.test_destruction import rewrapped

    ring = bs.Keyring(shutil.copy(keyring.path, tmp_path / "keys.json"))
    ring.rotate("master-main")
    rewrapped(vectors / "tables" / "dv16", ring, tmp_path)
    ring.change_passphrase(PASSPHRASE)
    monkeypatch.setenv("BLOOMSEAL_KEYRING_PASSPHRASE", PASSPHRASE)
    return ring


def test_in_a_session(
    spark: SparkSession,
    vectors: Path,  # noqa: F811
    policy: TablePolicy,
    protected: bs.Keyring,
) -> None:
    import bloomseal.spark as bss

    counts = {"people16": 108, "parts16": 40, "dv16": 32, "eqdel16": 22}
    policy = replace(policy, kms=f"keyring://{protected.path}")
    keys = {name: keys_of(vectors / "tables" / name, policy) for name in counts}
    spark = spark.newSession()  # of which `enable` was not called
    people = str(vectors / "tables" / "people16")
    for name, count in counts.items():
        place = vectors / "tables" / name
        frame = bss.read(spark, str(place), policy=policy)
        expected = bs.open_table(place, decryption=policy).read().to_pylist()
        assert len(expected) == count
        assert ordered([row.asDict() for row in frame.collect()]) == ordered(expected)
        plan = frame._jdf.queryExecution().toString()
        assert not [key for key in keys[name] if key.hex() in plan]
    found = bss.read(spark, people, policy=policy, where=f"ssn = '{SSN}'", columns=["id"])
    assert [row.id for row in found.collect()] == [1]
    table = bs.open_table(vectors / "tables" / "dv16", decryption=policy)
    wanted = [*table.read(["ssn"])["ssn"].drop_null().to_pylist()[::3], SSN, "no such"]
    place = str(vectors / "tables" / "dv16")
    frame = bss.semi_join(spark, place, "ssn", wanted, policy=policy, columns=["id"])
    assert sorted(row.id for row in frame.collect()) == sorted(
        table.read(["id"], where=[("ssn", "in", wanted)])["id"].to_pylist()
    )
    told = frame._jdf.queryExecution().toString()
    assert not [value for value in (*wanted, *(key.hex() for key in keys["dv16"])) if value in told]
    sent = cloudpickle.dumps(KeyQuestion.of(Request(spark, place, policy, None, None), "ssn", wanted).search)
    assert not [one for one in (*keys["dv16"], *(value.encode() for value in wanted)) if one in sent]
    asked = bss.prune(spark, people, "ssn", [SSN], policy=policy).collect()
    assert (len(asked), sum(len(row.row_groups) for row in asked), {row.failure for row in asked}) == (9, 1, {None})


def test_jobs_look_as_one_machine_does(
    spark: SparkSession,
    vectors: Path,  # noqa: F811
    policy: TablePolicy,
    protected: bs.Keyring,
    tmp_path: Path,
) -> None:
    import bloomseal.audit as ba
    import bloomseal.spark as bss

    policy = replace(policy, kms=f"keyring://{protected.path}")
    spark, answers = spark.newSession(), []  # of which `enable` was not called
    for place in (vectors / "tables" / "dv16", tmp_path / "dv16"):
        told = bss.audit(spark, place, policy=policy).report
        assert told.inventory.equals(ba.inventory(place, policy=policy))
        assert not [row["column"] for row in told.inventory.to_pylist() if row["error"]]
        found = bss.may_destroy(spark, "master-main", "1", place, policy=policy, after=0)
        own = ba.may_destroy("master-main", "1", place, policy=policy, after=0)
        assert (found.answer, found.keys, found.under) == (own.answer, own.keys, own.under)
        assert set(found.reasons) == set(own.reasons)
        answers.append(found.answer)
    assert answers == ["no", "yes"]
    report = bss.update_index(spark, place, "ssn", policy=policy)
    assert (report.files, report.left) == (3, {})
    table = bs.open_table(place, decryption=policy, use_index="require")
    everybody = sorted(table.read(["ssn"])["ssn"].drop_null().to_pylist())
    found = bss.read(spark, place, policy=policy, where=f"ssn = '{everybody[3]}'", columns=["id"], use_index="require")
    own = table.read(["id"], where=[("ssn", "==", everybody[3])])["id"].to_pylist()
    assert [row.id for row in found.collect()] == own
