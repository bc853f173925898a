"""Encrypted ORC files by the Java library that PySpark ships, in the JVM of `jvm`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .jvm import start_jvm

__all__ = [
    "hadoop_keys",
    "java_orc_merge",
    "java_orc_rows",
    "java_orc_write",
    "java_zone",
    "make_key_store",
    "memory_keys",
    "store_opens",
]

Keys = dict[str, Any]
NO_KEYS: Keys = {}


def memory_keys(*keys: tuple[str, int, bytes]) -> Keys:
    """Master keys by name and version, for the library's keystore in memory."""
    return {"memory": [[name, version, key.hex()] for name, version, key in keys]}


def hadoop_keys(uri: str) -> Keys:
    """A Hadoop key provider, e.g. ``jceks://file/path``."""
    return {"hadoop": uri}


def java_orc_write(
    path: Path,
    schema: str,
    rows: Iterable[Sequence[Any]],
    keys: Keys = NO_KEYS,
    *,
    encrypt: str = "",
    masks: str = "",
    filters: str = "",
    compression: str = "ZLIB",
    stride: int = 1000,
    stripe_rows: int = 10_000_000,
    fpp: float = 0.01,
    buffer_size: int = 262_144,
) -> None:
    """Writes a file.

    Args:
        schema: ``struct<id:bigint,…>``.
        encrypt: ``key:column,column;key:column``, as ``orc.encrypt`` has it.
        filters: columns with Bloom filters, by commas.
        stripe_rows: a stripe ends after so many rows.
    """
    options = {
        "encrypt": encrypt,
        "masks": masks,
        "filters": filters,
        "compression": compression,
        "stride": stride,
        "stripe_rows": stripe_rows,
        "stripe_size": 1 << 26,
        "fpp": fpp,
        "buffer_size": buffer_size,
    }
    texts = (json.dumps(list(rows)), json.dumps(keys), json.dumps(options))
    start_jvm().call("OrcEncrypted", "write", str(path), schema, *texts)


def java_orc_rows(path: Path, keys: Keys = NO_KEYS, *, column: str = "", value: Any = None) -> list[list[Any]]:
    """All rows; with a column and value those of the row groups that may hold it."""
    text = start_jvm().call("OrcEncrypted", "rows", str(path), json.dumps(keys), column, json.dumps(value))
    return list(json.loads(text)["rows"])


@contextmanager
def java_zone(name: str) -> Iterator[None]:
    """The time zone of the JVM, which files that it writes name as theirs."""
    zones = start_jvm()._gateway.jvm.java.util.TimeZone
    before = zones.getDefault()
    zones.setDefault(zones.getTimeZone(name))
    try:
        yield
    finally:
        zones.setDefault(before)


def java_orc_merge(target: Path, sources: Sequence[Path], keys: Keys) -> int:
    """Stripes put together undecoded; the number of files taken."""
    places = json.dumps([str(one) for one in sources])
    return int(start_jvm().call("OrcEncrypted", "merge", str(target), places, json.dumps(keys)))


def make_key_store(uri: str, name: str, *, bits: int = 128, versions: int = 1) -> list[bytes]:
    """A master key in a Hadoop key store (``jceks://file/path``): its versions."""
    made = start_jvm().call("OrcEncrypted", "makeStore", uri, name, bits, versions)
    return [bytes.fromhex(key) for key in made.split(",")]


def store_opens(uri: str, version: str, iv: bytes, encrypted: bytes) -> bytes:
    """What a Hadoop KMS over the store answers to ``decryptEncryptedKey``."""
    opened = start_jvm().call("OrcEncrypted", "opened", uri, version, iv.hex(), encrypted.hex())
    return bytes.fromhex(opened)
