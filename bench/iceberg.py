"""Encrypted Iceberg tables beside a folder of the same files under explicit keys, in one run, by processor time:
``python -m bench.iceberg [files …]`` (default: 10 1000 10000; the last is planned only).
"""

from __future__ import annotations

import base64
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import bloomseal as bs
from bloomseal.core.decryption import DecryptionSpec

from .sealed_index import least

MASTER: Final = bytes(range(16))
KEY, PREFIX = b"d" * 16, b"p" * 16
_BLOCK, _STAMP = 1 << 20, "1795617800956"
_PER_MANIFEST = 500
_SCHEMA: Final = pa.schema(
    [
        pa.field("ssn", pa.string(), metadata={"PARQUET:field_id": "1"}),
        pa.field("n", pa.int64(), metadata={"PARQUET:field_id": "2"}),
    ]
)


class Kms:
    """A KMS that holds one master key in memory."""

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        raise NotImplementedError

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        raise NotImplementedError

    def unwrap_bytes(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:  # noqa: ARG002
        return AESGCM(MASTER).decrypt(wrapped_key[:12], wrapped_key[12:], None)


def _gcm(key: bytes, data: bytes, aad: bytes | None) -> bytes:
    nonce = os.urandom(12)
    return nonce + AESGCM(key).encrypt(nonce, data, aad)


def _stream(data: bytes) -> bytes:
    blocks = (data[start : start + _BLOCK] for start in range(0, max(len(data), 1), _BLOCK))
    sealed = (_gcm(KEY, block, PREFIX + number.to_bytes(4, "little")) for number, block in enumerate(blocks))
    return b"AGS1" + _BLOCK.to_bytes(4, "little") + b"".join(sealed)


def _metadata(length: int | None) -> bytes:
    def number(value: int) -> bytes:
        value = value << 1
        out = bytearray()
        while value > 0x7F:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        return bytes([*out, value])

    told = b"\x00" if length is None else number(1) + number(length)
    return b"\x01" + number(len(KEY)) + KEY + number(1) + number(len(PREFIX)) + PREFIX + told


def make(folder: Path, files: int, *, linked: bool) -> None:
    """Write an encrypted table of so many files, 1,000 rows and a sealed filter each; `linked`: all are one file."""
    from pyiceberg.io import OutputFile
    from pyiceberg.manifest import (
        DataFile,
        DataFileContent,
        FileFormat,
        ManifestEntry,
        ManifestEntryStatus,
        write_manifest,
        write_manifest_list,
    )
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.typedef import Record
    from pyiceberg.types import LongType, NestedField, StringType

    class Sealed(OutputFile):
        """Collects what the library writes, and puts it down sealed."""

        def __len__(self) -> int:
            return Path(self.location).stat().st_size

        def exists(self) -> bool:
            return Path(self.location).exists()

        def to_input_file(self) -> Any:
            raise NotImplementedError

        def create(self, overwrite: bool = False) -> Any:  # noqa: ARG002
            return _Buffer(Path(self.location))

    data, inside = folder / "data", folder / "metadata"
    data.mkdir(parents=True)
    inside.mkdir()
    spec = bs.EncryptionSpec(footer_key=KEY, aad_prefix=PREFIX, store_aad_prefix=False)
    for number in range(files):
        path = data / f"{number:05}.parquet"
        if linked and number:
            os.link(data / "00000.parquet", path)
            continue
        rows = pa.table({"ssn": [f"{number:05}-{i:04}" for i in range(1000)], "n": range(1000)}, schema=_SCHEMA)
        bs.write_table(rows, path, encryption=spec, bloom_filters=["ssn"])
    schema = Schema(NestedField(1, "ssn", StringType()), NestedField(2, "n", LongType()))
    listed = write_manifest_list(2, Sealed(str(inside / "snap.avro")), 1, None, 1, "null")
    with listed:
        for first in range(0, files, _PER_MANIFEST):
            place = inside / f"m{first}.avro"
            with write_manifest(2, PartitionSpec(), schema, Sealed(str(place)), 1, "deflate") as manifest:
                for number in range(first, min(first + _PER_MANIFEST, files)):
                    path = data / f"{number:05}.parquet"
                    file = DataFile.from_args(
                        content=DataFileContent.DATA, file_path=str(path), file_format=FileFormat.PARQUET,
                        partition=Record(), record_count=1000, file_size_in_bytes=path.stat().st_size,
                        key_metadata=_metadata(None), spec_id=0,
                    )  # fmt: skip
                    manifest.add_entry(
                        ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=1, data_file=file)
                    )
            entry = manifest.to_manifest_file()
            entry[14] = _metadata(place.stat().st_size)
            listed.add_manifests([entry])
    _write_json(folder, schema)


class _Buffer:
    def __init__(self, path: Path) -> None:
        self._path, self._data = path, bytearray()

    def write(self, data: bytes) -> int:
        self._data += data
        return len(data)

    def tell(self) -> int:
        return len(self._data)

    def close(self) -> None:
        self._path.write_bytes(_stream(bytes(self._data)))

    def __enter__(self) -> _Buffer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _write_json(folder: Path, schema: Any) -> None:
    kek = os.urandom(16)
    listed = folder / "metadata" / "snap.avro"

    def b64(data: bytes) -> str:
        return base64.b64encode(data).decode()

    wrapped = b64(_gcm(kek, _metadata(listed.stat().st_size), _STAMP.encode()))
    keys = [
        {"key-id": "list", "encrypted-key-metadata": wrapped, "encrypted-by-id": "kek"},
        {
            "key-id": "kek", "encrypted-key-metadata": b64(_gcm(MASTER, kek, None)), "encrypted-by-id": "m",
            "properties": {"KEY_TIMESTAMP": _STAMP},
        },
    ]  # fmt: skip
    snapshot = {
        "sequence-number": 1, "snapshot-id": 1, "timestamp-ms": int(_STAMP), "summary": {"operation": "append"},
        "manifest-list": str(listed), "schema-id": 0, "key-id": "list", "first-row-id": 0, "added-rows": 0,
    }  # fmt: skip
    document = {
        "format-version": 3, "table-uuid": "4f438f4c-0992-4b64-a059-bbf0b8a3ecf6", "location": str(folder),
        "last-sequence-number": 1, "last-updated-ms": int(_STAMP), "last-column-id": 2, "current-schema-id": 0,
        "schemas": [json.loads(schema.model_dump_json())], "default-spec-id": 0, "last-partition-id": 999,
        "partition-specs": [{"spec-id": 0, "fields": []}], "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}], "properties": {"encryption.key-id": "m"},
        "current-snapshot-id": 1, "snapshots": [snapshot], "next-row-id": 0, "encryption-keys": keys,
        "refs": {"main": {"snapshot-id": 1, "type": "branch"}},
    }  # fmt: skip
    (folder / "metadata" / "00001-a.metadata.json").write_text(json.dumps(document))


def main() -> None:
    for files in map(int, sys.argv[1:] or ("10", "1000", "10000")):
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "t"
            planned = files >= 10_000
            make(folder, files, linked=planned)
            table = DecryptionSpec(Kms(), iceberg=bs.IcebergSpec("m"))
            folder_spec = DecryptionSpec(bs.ExplicitKeys(KEY), aad_prefix=PREFIX)
            began = time.perf_counter()
            bs.open_table(folder, decryption=table)
            print(f"{files:,} files: planned in {time.perf_counter() - began:.2f} s")
            if planned:
                continue
            plain = Path(scratch) / "plain"
            plain.mkdir()
            for path in (folder / "data").iterdir():
                os.link(path, plain / path.name)
            wanted = [("ssn", "==", f"{files // 2:05}-0500")]
            opened = bs.open_table(folder, decryption=table), bs.open_table(plain, decryption=folder_spec)

            def anew(place: Path, spec: DecryptionSpec, wanted: Any = wanted) -> Callable[[], object]:
                return lambda: bs.read_table(place, where=wanted, decryption=spec)

            def again(table: bs.SealedTable, wanted: Any = wanted) -> Callable[[], object]:
                return lambda: table.read(where=wanted)

            _tell("opened anew", anew(folder, table), anew(plain, folder_spec))
            _tell("in an open table", again(opened[0]), again(opened[1]))


def _tell(what: str, encrypted: Callable[[], object], folder: Callable[[], object]) -> None:
    pairs = [(least(encrypted, 1), least(folder, 1)) for _ in range(9)]
    one, other = (min(side) for side in zip(*pairs, strict=True))
    print(f"  look-up {what}: {one * 1000:.1f} ms, a folder by explicit keys {other * 1000:.1f} ms: {one / other:.2f}")


if __name__ == "__main__":
    main()
