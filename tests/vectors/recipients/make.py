"""Makes the vectors beside it without Bloomseal: HPKE by hand, the file by pyarrow and its key tools.

``python make.py`` from the folder ``tests``, with both on the path; it overwrites them.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

from support import hpke_by_hand as by_hand

HERE = Path(__file__).parent
KINDS = {"pii": (1, "hpke", by_hand.X_WING), "old": (2, "x25519", by_hand.X25519)}
SEEDS = {name: hashlib.sha256(f"vector {name}".encode()).digest() for name in KINDS}
KEY = bytes(range(16))


def identity(name: str) -> bytes:
    number, _, kem = KINDS[name]
    public = by_hand.public_key(kem, SEEDS[name])
    return hashlib.sha256(b"bloomseal recipient id %d\x00" % number + public).digest()


def line(name: str) -> str:
    number, _, kem = KINDS[name]
    data = bytes([number]) + by_hand.public_key(kem, SEEDS[name])
    checksum = hashlib.sha256(b"bsr1" + data).digest()[:6]
    return "bsr1" + base64.urlsafe_b64encode(data + checksum).decode().rstrip("=")


def sealed(name: str, key: bytes) -> str:
    number, _, kem = KINDS[name]
    info = b"bloomseal key for recipients, version 1\x00" + name.encode()
    entry = identity(name)[:8] + by_hand.seal(kem, by_hand.public_key(kem, SEEDS[name]), key, info)
    return "bss1." + base64.b64encode(bytes([number, 1]) + entry).decode()


def entry(kind: str, seed: bytes) -> dict[str, object]:
    moment = "2026-01-31T00:00:00+00:00"
    key = base64.b64encode(seed).decode()
    return {"version": 1, "bits": 256, "created": moment, "state": "enabled", "kind": kind, "key": key}


class Client(pe.KmsClient):
    def __init__(self) -> None:
        pe.KmsClient.__init__(self)

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        return sealed(master_key_identifier, key_bytes)

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        raise PermissionError(master_key_identifier, wrapped_key)


def main() -> None:
    keys = {name: [entry(kind, SEEDS[name])] for name, (_, kind, _) in KINDS.items()}
    ring = {"format": "bloomseal keyring", "formatVersion": 2, "protection": None, "keys": keys}
    (HERE / "keyring.json").write_text(json.dumps(ring, indent=1) + "\n")
    texts = {name: {"line": line(name), "key": KEY.hex(), "wrapped": sealed(name, KEY)} for name in KINDS}
    (HERE / "texts.json").write_text(json.dumps(texts, indent=1) + "\n")
    rows = pa.table({"ssn": ["078-05-1120", "219-09-9999"], "n": [1, 2]})
    factory = pe.CryptoFactory(lambda _: Client())
    config = pe.EncryptionConfiguration(footer_key="pii", column_keys={"old": ["ssn"]})
    properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), config)
    with pq.ParquetWriter(HERE / "people.parquet", rows.schema, encryption_properties=properties) as out:
        out.write_table(rows)


if __name__ == "__main__":
    main()
