"""Spark's own Parquet reader and writer over Bloomseal's keys, in one JVM."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import bloomseal as bs
import bloomseal.spark as bss
from bloomseal.core.errors import UnsupportedError
from bloomseal.keytools import KmsAccessError
from bloomseal.policy import Policy
from bloomseal.spark.settings import promised
from bloomseal.spark.writing import frames
from bloomseal.spark.writing.frames import WriteReport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]
ROW_GROUPS = {"parquet.block.row.count.limit": "1000"}
Count = Callable[[Any], int]


@pytest.fixture(scope="module")
def bridge(spark: SparkSession, policy: Policy) -> SparkSession:
    bss.enable(spark, policy=policy)
    return spark


@pytest.fixture(scope="module")
def table(bridge: SparkSession, people: DataFrame, work: Path) -> tuple[Path, WriteReport]:
    path = work / "people table=1"
    return path, bss.write(people, path, options=ROW_GROUPS)


@pytest.fixture
def fresh(bridge: SparkSession, policy: Policy) -> Iterator[Callable[..., None]]:
    """Enable again with a cache of its own, so that keys are asked for again; the first settings come back at
    the end.
    """

    def enable(**more: Any) -> None:
        bss.enable(bridge, **{"policy": policy, "cache_lifetime": next(_LIFETIMES), **more})

    yield enable
    bss.enable(bridge, policy=policy)


_LIFETIMES = iter(range(601, 10**6))


def jvm_pid(spark: SparkSession) -> int:
    jvm: Any = spark._jvm
    return int(jvm.java.lang.ProcessHandle.current().pid())


def test_the_report_counts_what_was_written(table: tuple[Path, WriteReport]) -> None:
    _, report = table
    assert (report.rows, report.row_groups, report.filters) == (20_000, 20, 40)
    assert len(report.files) == 2
    assert report.to_dict()["files"] == list(report.files)


def test_spark_reads_back_what_it_wrote(bridge: SparkSession, people: DataFrame, table: tuple[Path, Any]) -> None:
    back = bridge.read.parquet(str(table[0]))
    assert back.schema == people.schema or back.schema.names == people.schema.names
    assert back.exceptAll(people).count() == people.exceptAll(back).count() == 0


def test_filters_prune_row_groups(
    bridge: SparkSession, people: DataFrame, table: tuple[Path, Any], rows_scanned: Count
) -> None:
    wanted = people.where("id = 12345").collect()[0]
    for column in ("SSN", "name"):
        query = bridge.read.parquet(str(table[0])).where(f"{column} = '{wanted[column]}'")
        assert [row.id for row in query.collect()] == [12345]
        assert rows_scanned(query) < 3_000
        unpruned = bridge.read.option("parquet.filter.bloom.enabled", "false").option(
            "parquet.filter.columnindex.enabled", "false"
        )
        assert rows_scanned(unpruned.parquet(str(table[0])).where(f"{column} = '{wanted[column]}'")) == 20_000
    absent = bridge.read.parquet(str(table[0])).where("SSN = 'ffffffff-not-there'")
    assert rows_scanned(absent) < 1_000


def test_bloomseal_opens_the_files_with_the_same_keyring(
    people: DataFrame, table: tuple[Path, WriteReport], ring: bs.Keyring, policy: Policy
) -> None:
    keys = policy.for_table("people").decryption_arguments("")["keys"]
    wanted = people.where("id < 3").collect()
    for file in table[1].files:
        with bs.open_file(file, decryption=bs.DecryptionSpec(keys, encrypted_columns=["SSN"])) as opened:
            assert opened.footer_verified
            assert opened.verify().ok
            found = [
                row["id"] for value in wanted for row in opened.read(["id"], [("SSN", "==", value.SSN)]).to_pylist()
            ]
            assert found == ([0, 1, 2] if "part-00000" in file else [])
            bloom = opened.filter(0, "SSN")
            assert bloom is not None
            # 1,000 values at 0.1 %, in a power of two; the real rate, by the bits.
            assert bloom.num_bytes == 4096
            assert bloom.false_positive_probability() < 0.001
        with pytest.raises(bs.KeyAccessError):
            bs.open_file(file, decryption=bs.DecryptionSpec(bs.ExplicitKeys(keys_by_id={})))


def test_spark_reads_and_prunes_what_bloomseal_wrote(
    bridge: SparkSession, ring: bs.Keyring, tmp_path: Path, rows_scanned: Count
) -> None:
    import pyarrow as pa

    rows = pa.table({"id": range(4000), "code": [f"{i * 2654435761 % 2**32:08x}" for i in range(4000)]})
    bs.write_table(
        rows,
        tmp_path / "a b=c.parquet",
        row_group_size=500,
        encryption=bs.EncryptionSpec("footer", {"code": "pii"}, ring),
        bloom_filters={"code": bs.FilterSpec(0.001)},
    )
    read = bridge.read.parquet(str(tmp_path))
    assert read.count() == 4000
    query = read.where(f"code = '{rows['code'][1234]}'")
    assert [row.id for row in query.collect()] == [1234]
    assert rows_scanned(query) <= 1000


def test_plaintext_tables_stay_as_they_are(bridge: SparkSession, people: DataFrame, tmp_path: Path) -> None:
    people.limit(10).write.parquet(str(tmp_path / "plain"))
    assert bridge.read.parquet(str(tmp_path / "plain")).count() == 10
    (file,) = [name for name in (tmp_path / "plain").iterdir() if name.suffix == ".parquet"]
    assert bs.inspect(file).footer == "plaintext"


def test_nested_columns_partitions_and_dynamic_overwrite(
    bridge: SparkSession, ring: bs.Keyring, tmp_path: Path
) -> None:
    policy = Policy.from_dict(
        {
            "version": 1,
            "kms": f"keyring://{ring.path}",
            "tables": {
                "visits": {
                    "footer_key": "footer",
                    "columns": {
                        "health": {"key": "health", "sensitivity": "restricted"},
                        "health.code": {"key": "health", "filter": True},
                        "tags.list.element": {"filter": {"ndv": 100}},
                    },
                }
            },
        }
    )
    frame = bridge.range(300).selectExpr(
        "named_struct('code', concat('c', id), 'notes', array('n', null)) as health",
        "array(concat('t', id % 7)) as tags",
        "map('k', id) as extra",
        "cast(id % 3 as string) as day",
        "timestamp_micros(id) as moment",
    )
    path = tmp_path / "visits"
    report = bss.write(frame, path, policy=policy, partition_by=["day"])
    assert report.rows == 300
    assert report.filters == 2 * report.row_groups
    assert sorted({Path(file).parent.name for file in report.files}) == ["day=0", "day=1", "day=2"]
    back = bridge.read.parquet(str(path))
    assert back.where("health.code = 'c7'").collect()[0].tags == ["t0"]
    with bs.open_file(report.files[0], decryption=bs.DecryptionSpec(ring)) as file:
        sealed = {chunk.leaf.name: str(chunk.protection) for chunk in file.walk.chunks(0)}
    assert sealed["health.code"] == sealed["health.notes.list.element"] == "column key"
    assert sealed["extra.key_value.value"] == "plaintext"
    again = bss.write(
        frame.where("day = '1'"),
        path,
        policy=policy,
        partition_by=["day"],
        mode="overwrite",
        options={"partitionOverwriteMode": "dynamic"},
    )
    assert {Path(file).parent.name for file in again.files} == {"day=1"}
    assert bridge.read.parquet(str(path)).count() == 300
    assert bss.check_table(bridge, path, policy=policy).rows == 300


def test_uniform_encryption_and_modes(bridge: SparkSession, ring: bs.Keyring, tmp_path: Path) -> None:
    policy = Policy.from_dict(
        {
            "version": 1,
            "kms": f"keyring://{ring.path}",
            "defaults": {
                "key_bits": 256,
                "algorithm": "AES_GCM_CTR_V1",
                "double_wrapping": False,
                "plaintext_footer": True,
            },
            "tables": {
                "t": {"footer_key": "footer", "columns": {"id": {"filter": {"num_bytes": 1024, "hide_size": True}}}}
            },
        }
    )
    frame, path = bridge.range(100), tmp_path / "t"
    first = bss.write(frame, path, policy=policy)
    assert first.filter_bytes == first.filters * (1024 + 2 * 32 + 100)
    seen = bs.inspect(first.files[0])
    assert (seen.footer, seen.algorithm) == ("plaintext, signed", "AES_GCM_CTR_V1")
    assert set(bss.write(frame, path, policy=policy, mode="append").files).isdisjoint(first.files)
    assert bss.write(frame, path, policy=policy, mode="ignore").files == ()
    assert bridge.read.parquet(str(path)).count() == 200
    assert bss.write(frame, path, policy=policy, mode="overwrite").rows == bridge.read.parquet(str(path)).count() == 100


# What must not be written


def test_mistakes_are_refused_before_anything_is_written(
    bridge: SparkSession, people: DataFrame, ring: bs.Keyring, tmp_path: Path
) -> None:
    path = tmp_path / "never"
    moments = people.selectExpr("id", "SSN", "name", "timestamp_seconds(id) as moment")

    def refused(kind: type[Exception], text: str, frame: DataFrame = people, **more: Any) -> None:
        with pytest.raises(kind, match=text):
            bss.write(frame, path, **more)
        assert not path.exists()

    refused(bs.UsageError, "column is not in the data .column SSN", people.withColumnRenamed("SSN", "ssn"))
    refused(bs.PolicyError, "name of a folder", partition_by=["SSN"])
    refused(bs.UsageError, "partition by", partition_by=["nobody"])
    refused(bs.UsageError, "contradict", options={"PARQUET.encryption.footer.key": "other"})
    refused(bs.UsageError, "contradict", options={"parquet.bloom.filter.enabled#SSN": "false"})
    refused(bs.UsageError, "looks like a secret", options={"aws.secret.access.key": "x"})
    refused(bs.UsageError, "no mode", mode="replace")
    refused(bs.UsageError, "no usable filter", people.selectExpr("id", "id > 1 as SSN", "name"))
    bridge.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    try:
        refused(bs.UsageError, "INT96.*moment", moments)
    finally:
        bridge.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")

    def table(**more: Any) -> Policy:
        content = {"footer_key": "footer", "columns": {"SSN": {"key": "pii"}}, **more}
        return Policy.from_dict({"version": 1, "kms": f"keyring://{ring.path}", "tables": {"t": content}})

    beside = table(material="external", columns={"SSN": {"key": "arn:aws:kms:x"}})
    refused(bs.UnsupportedError, "holds one of", policy=beside)
    refused(
        bs.UnsupportedError,
        "96 bytes",
        policy=table(columns={"SSN": {"key": "pii", "filter": {"num_bytes": 96}}}),
    )


def test_dynamic_overwrite_may_read_what_it_replaces(bridge: SparkSession, people: DataFrame, tmp_path: Path) -> None:
    path, dynamic = tmp_path / "t", {"partitionOverwriteMode": "dynamic"}
    bss.write(people.where("id < 100").selectExpr("*", "id % 2 AS half"), path, partition_by=["half"])
    some = bss.read(bridge, path, where="half = 1 AND id < 10")
    assert bss.write(some, path, mode="overwrite", partition_by=["half"], options=dynamic).rows == 5
    assert bridge.read.parquet(str(path)).groupBy("half").count().orderBy("half").collect() == [(0, 50), (1, 5)]


def test_a_file_is_no_table(bridge: SparkSession, people: DataFrame, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("somebody's")
    with pytest.raises(bs.UsageError, match="this is a file"):
        bss.write(people, tmp_path / "file", mode="overwrite")
    assert (tmp_path / "file").read_text() == "somebody's"


def test_files_that_are_not_what_the_policy_says_are_listed(
    bridge: SparkSession, people: DataFrame, table: tuple[Path, Any], ring: bs.Keyring, tmp_path: Path
) -> None:
    some = people.limit(100)
    faults = {
        "plain": ({"parquet.encryption.fotter.key": "footer"}, "plaintext"),
        "ssn in clear": ({"parquet.encryption.footer.key": "footer", "parquet.encryption.column.keys": "pii:name"}, "is in plaintext"),
            "no own key": ({"parquet.encryption.footer.key": "footer", "parquet.encryption.column.keys": "pii:name", "parquet.encryption.complete.columns": "true"}, "SSN is sealed under the footer's key"),
        "another key": ({"parquet.encryption.uniform.key": "health"}, "'health'"),
        "no filter": ({**bss.options(_people(ring)), "parquet.bloom.filter.enabled#SSN": "false"}, "SSN has no filter"),
    }  # fmt: skip
    for name, (options, fault) in faults.items():
        path = tmp_path / name
        some.write.options(**options).parquet(str(path))
        with pytest.raises(bs.PolicyError, match=fault) as caught:
            bss.check_table(bridge, path)
        files = [str(file) for file in path.iterdir() if file.suffix == ".parquet"]
        assert files
        assert all(file in str(caught.value) for file in files)
    assert bss.check_table(bridge, table[0]).filters == 40


def test_a_plaintext_file_that_appears_during_a_write_is_found(
    bridge: SparkSession, people: DataFrame, tmp_path: Path
) -> None:
    from pyspark.sql import functions as f

    people.limit(5).coalesce(1).write.parquet(str(tmp_path / "plain"))
    (plain,) = (tmp_path / "plain").glob("*.parquet")
    target = tmp_path / "table"
    intruder = target / "part-99999-intruder.parquet"

    def smuggle(value: str) -> str:
        target.mkdir(exist_ok=True)
        shutil.copy(plain, intruder)
        return value

    smuggled = f.udf(smuggle, "string", useArrow=False)("SSN")

    with pytest.raises(bs.PolicyError, match="part-99999-intruder") as caught:
        bss.write(people.limit(100).withColumn("SSN", smuggled), target)
    assert "1 of 2 files" in str(caught.value)
    assert str(tmp_path / "plain") not in str(caught.value)


def _people(ring: bs.Keyring) -> Policy:
    columns = {"SSN": {"key": "pii", "filter": True}}
    tables = {"people": {"footer_key": "footer", "complete": True, "columns": columns}}
    return Policy.from_dict({"version": 1, "kms": f"keyring://{ring.path}", "tables": tables})


# Keys that can't be had


@pytest.mark.parametrize("problem", ["disabled", "unknown", "unusable"])
def test_a_write_without_its_key_says_which(
    fresh: Callable[..., None], people: DataFrame, ring: bs.Keyring, tmp_path: Path, problem: str
) -> None:
    columns = {"SSN": {"key": "nobody's" if problem == "unknown" else "health"}}
    kms = f"keyring://{tmp_path}/none.json" if problem == "unusable" else f"keyring://{ring.path}"
    tables = {"people": {"footer_key": "footer", "columns": columns}}
    fresh(policy=Policy.from_dict({"version": 1, "kms": kms, "tables": tables}))
    if problem == "disabled":
        ring.disable("health")
    try:
        with pytest.raises(bs.KeyAccessError) as caught:
            bss.write(people.limit(10), tmp_path / "table")
    finally:
        ring.enable("health")
    told = {"disabled": "'health' is disabled", "unknown": "nobody's", "unusable": "none.json can't be read"}
    assert told[problem] in str(caught.value)


def test_a_read_without_a_key_names_it_and_other_columns_are_read(
    fresh: Callable[..., None], bridge: SparkSession, table: tuple[Path, Any], ring: bs.Keyring
) -> None:
    fresh()
    ring.disable("pii")
    try:
        assert bridge.read.parquet(str(table[0])).agg({"id": "max"}).collect()[0][0] == 19_999
        with pytest.raises(Exception, match="master key 'pii' is disabled"):
            bridge.read.parquet(str(table[0])).select("SSN").collect()
    finally:
        ring.enable("pii")
    fresh()
    assert bridge.read.parquet(str(table[0])).select("SSN").count() == 20_000


def test_a_denied_key_is_named_and_other_columns_are_read(
    fresh: Callable[..., None], bridge: SparkSession, people: DataFrame, ring: bs.Keyring, tmp_path: Path
) -> None:
    tables = {
        "people": {"footer_key": "footer", "complete": True, "columns": {"SSN": {"key": "forbidden", "filter": True}}}
    }
    policy = Policy.from_dict({"version": 1, "kms": f"guarded:{ring.path}", "tables": tables})
    people.limit(10).write.options(**bss.options(_renamed(ring))).parquet(str(tmp_path / "t"))
    fresh(policy=policy)
    read = bridge.read.parquet(str(tmp_path / "t"))
    assert read.select("id").count() == 10
    with pytest.raises(Exception, match="denies the use of master key 'forbidden'"):
        read.select("SSN").collect()
    with pytest.raises(Exception, match="denies the use of master key 'forbidden'"):
        read.where("SSN = 'x'").collect()
    # The check after a write reads back, on the driver, and says so.
    with pytest.raises(KmsAccessError, match="denies the use of master key 'forbidden'"):
        bss.check_table(bridge, tmp_path / "t")


def test_a_check_of_nothing_is_none(bridge: SparkSession, tmp_path: Path) -> None:
    for name in ("empty", "hidden/_temporary"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "hidden" / "_temporary" / "a.parquet").write_text("no file of the table")
    for name in ("empty", "hidden", "missing"):
        with pytest.raises(FileNotFoundError):
            bss.check_table(bridge, tmp_path / name)


def test_a_check_does_not_advise_to_remove_orc_files(bridge: SparkSession, people: DataFrame, tmp_path: Path) -> None:
    people.write.orc(str(tmp_path / "t"))
    with pytest.raises(UnsupportedError, match="take Parquet") as refused:
        bss.check_table(bridge, tmp_path / "t")
    assert "remove" not in str(refused.value)
    assert "audit" in str(refused.value)


def _renamed(ring: bs.Keyring) -> Policy:
    tables = {
        "people": {"footer_key": "footer", "complete": True, "columns": {"SSN": {"key": "forbidden", "filter": True}}}
    }
    return Policy.from_dict({"version": 1, "kms": f"keyring://{ring.path}", "tables": tables})


def test_an_address_in_a_file_is_never_followed(
    fresh: Callable[..., None], bridge: SparkSession, ring: bs.Keyring, tmp_path: Path
) -> None:
    """Whoever can replace files could name a KMS of his own, and be handed what is sent there."""
    import pyarrow as pa

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        keys = bs.KeyTools(ring, instance_url=f"http://127.0.0.1:{server.getsockname()[1]}", instance_id="elsewhere")
        bs.write_table(
            pa.table({"id": [1, 2]}), tmp_path / "a.parquet", encryption=bs.EncryptionSpec("footer", keys=keys)
        )
        fresh()
        assert bridge.read.parquet(str(tmp_path / "a.parquet")).count() == 2
        with pytest.raises(BlockingIOError):
            server.accept()


# The access log

Entry = tuple[str, str | None, str | None, str | None, str]


def entries(work: Path) -> tuple[dict[str | None, set[Entry]], list[dict[str, Any]]]:
    """File → action, column, master key, version, outcome; and all lines."""
    told = [json.loads(line) for line in (work / "native-access.jsonl").read_text().splitlines()]
    found: dict[str | None, set[Entry]] = {}
    for one in told:
        entry = one["action"], one["column"], one.get("master_key"), one.get("version"), one["outcome"]
        found.setdefault(one.get("file"), set()).add(entry)
    return found, told


def test_the_native_door_logs_each_key_of_each_file(
    bridge: SparkSession, people: DataFrame, table: tuple[Path, WriteReport], work: Path, tmp_path: Path
) -> None:
    (work / "native-access.jsonl").write_bytes(b"")
    report = bss.write(people.limit(50), tmp_path / "written", options=ROW_GROUPS)
    found, _ = entries(work)
    sealed = {path: of for path, of in found.items() if any(one[0] == "seal" for one in of) and path is not None}
    assert len(sealed) == len(report.files)
    for of in sealed.values():
        assert {(action, column, key) for action, column, key, _, _ in of if action == "seal"} >= {
            ("seal", None, "footer"),
            ("seal", "SSN", "pii"),
        }
    (work / "native-access.jsonl").write_bytes(b"")
    assert bridge.read.parquet(str(table[0])).select("SSN").distinct().count() == 20_000
    found, told = entries(work)
    assert {*found} - {None} == set(table[1].files)
    for path in table[1].files:
        assert found[path] == {
            ("open", None, "footer", "1", "given"),
            ("open", None, "pii", "1", "given"),
        }
    assert all(one["user"] and one["host"] and one["pid"] for one in told)


def test_the_native_door_logs_why_a_key_is_refused(
    fresh: Callable[..., None], bridge: SparkSession, ring: bs.Keyring, work: Path, tmp_path: Path
) -> None:
    import pyarrow as pa

    keys = {"encryption": bs.EncryptionSpec("footer", {"secret": "forbidden"}, ring)}
    bs.write_table(pa.table({"id": range(9), "secret": range(9)}), tmp_path / "a.parquet", **keys)
    fresh(kms=f"guarded:{ring.path}")
    (work / "native-access.jsonl").write_bytes(b"")
    with pytest.raises(Exception, match="denied"):
        bridge.read.parquet(str(tmp_path)).select("secret").collect()
    _, told = entries(work)
    (refused,) = {
        (one["file"], one["master_key"], one["why"]) for one in told if one["outcome"] == "refused" and "file" in one
    }
    assert refused[:2] == (str(tmp_path / "a.parquet"), "forbidden")
    assert "denied" in refused[2]


# The helper process


def test_one_helper_serves_the_jvm_and_one_that_was_killed_comes_back(
    fresh: Callable[..., None], bridge: SparkSession, table: tuple[Path, Any], helpers: Callable[[int], list[int]]
) -> None:
    (before,) = helpers(jvm_pid(bridge))
    os.kill(before, signal.SIGKILL)
    fresh()
    assert bridge.read.parquet(str(table[0])).select("SSN").distinct().count() == 20_000
    (after,) = helpers(jvm_pid(bridge))
    assert after != before


@pytest.mark.torture
def test_a_helper_that_hangs_is_ended_and_replaced(
    fresh: Callable[..., None], bridge: SparkSession, table: tuple[Path, Any], helpers: Callable[[int], list[int]]
) -> None:
    """Stopped, it neither answers nor ends; a query waits for the time set (and 30 s), fails clearly, and the next one
    works.
    """
    (before,) = helpers(jvm_pid(bridge))
    os.kill(before, signal.SIGSTOP)
    fresh(timeout=1)
    with pytest.raises(Exception, match="did not answer within"):
        bridge.read.parquet(str(table[0])).collect()
    fresh()
    assert bridge.read.parquet(str(table[0])).count() == 20_000
    assert before not in helpers(jvm_pid(bridge))


def test_an_interpreter_without_bloomseal_is_named(
    fresh: Callable[..., None], bridge: SparkSession, table: tuple[Path, Any], tmp_path: Path
) -> None:
    lame = tmp_path / "python"
    lame.write_text("#!/bin/sh\necho 'No module named bloomseal' >&2\nexit 1\n")
    lame.chmod(0o755)
    fresh(python=str(lame))
    with pytest.raises(Exception, match=rf"did not start with {lame}: No module named bloomseal"):
        bridge.read.parquet(str(table[0])).collect()
    fresh(python="/nowhere/python")
    with pytest.raises(Exception, match="/nowhere/python"):
        bridge.read.parquet(str(table[0])).collect()


def test_a_schema_known_beforehand(
    bridge: SparkSession, people: DataFrame, table: tuple[Path, Any], fresh: Callable[..., None]
) -> None:
    """Then no task has looked for the bridge before the one that reads."""
    fresh()
    assert bridge.read.schema(people.schema).parquet(str(table[0])).count() == 20_000


def test_a_policy_names_what_is_in_a_list_in_either_way() -> None:
    from pyspark.sql.types import ArrayType, StringType, StructField, StructType

    schema = StructType([StructField("tags", ArrayType(StringType()))])
    for name in ("tags.list.element", "tags._elem"):
        table = {"footer_key": "footer", "columns": {name: {"filter": {"ndv": 100}}}}
        policy = Policy.from_dict({"version": 1, "kms": "keyring:///none", "tables": {"t": table}})
        assert [*promised(policy.for_table("t"), schema)] == ["tags.list.element"]


def test_the_nearest_entry_counts_however_it_is_spelled() -> None:
    """By the number of dots ``l.list.element`` was as near to ``a`` as ``l._elem.a``, whose key it did not get."""
    from pyspark.sql.types import ArrayType, StringType, StructField, StructType

    inner = StructType([StructField(name, StringType()) for name in "ab"])
    schema = StructType([StructField("l", ArrayType(inner))])
    columns = {"l._elem.a": {"key": "pii"}, "l.list.element": {"sensitivity": "internal"}}
    tables = {"t": {"footer_key": "footer", "columns": columns}}
    table = Policy.from_dict({"version": 1, "kms": "keyring:///none", "tables": tables}).for_table("t")
    assert bss.options(table, schema=schema)["parquet.encryption.column.keys"] == "pii:l.list.element.a"


def test_a_check_asks_for_the_filters_of_the_nearest_entries(tmp_path: Path) -> None:
    """Of a column that has an entry without a filter, below a group with one, files were to be removed."""
    ring = bs.Keyring(tmp_path / "keys.json", create=True)
    for name in ("footer", "pii"):
        ring.create(name)
    columns = {"s": {"key": "pii", "filter": {"ndv": 100}}, "s.b": {"key": "pii"}}
    tables = {"t": {"footer_key": "footer", "columns": columns}}
    table = Policy.from_dict({"version": 1, "kms": f"keyring://{ring.path}", "tables": tables}).for_table("t")
    rows = pa.table({"s": [{"a": "x", "b": "y"}]})
    for name in ("s.a", "s.b"):
        bs.write_table(rows, path := tmp_path / f"{name}.parquet", encryption=table, bloom_filters={name: True})
        with bs.open_file(path, decryption=table) as file:
            if name == "s.a":
                assert frames._look(file, str(path), table, None).filters == 1
                continue
            with pytest.raises(bs.PolicyError, match=r"column s\.a has no filter"):
                frames._look(file, str(path), table, None)
