"""Encrypted ORC files of the Java library under a keyring's master keys, without a JVM."""

from __future__ import annotations

from pathlib import Path

from bloomseal import DecryptionSpec, Keyring, orc
from bloomseal.keytools import MasterKeys

__all__ = ["ROWS", "orc_file", "orc_ring"]

_KEPT = Path(__file__).parents[1] / "vectors" / "orc" / "encrypted.orc"
_PII, _WIDE = bytes(range(16, 32)), bytes(range(32))
ROWS = [[i, f"name{i * 7919 % 10007}" if i % 7 else None, i * 7919 % 10007, [i % 3, f"in{i}"]] for i in range(1500)]
"""What `orc_file` holds: ``struct<id:bigint,name:string,num:int,s:struct<a:int,b:string>>``."""


def orc_ring(path: Path) -> Keyring:
    """A keyring with ``pii`` in three versions and ``wide`` in two, and ``pii-2027``."""
    ring = Keyring(path, create=True)
    for name, bits, versions in (("pii", 128, 3), ("wide", 256, 2), ("pii-2027", 256, 1)):
        ring.create(name, bits=bits)
        for _ in range(versions - 1):
            ring.rotate(name)
    return ring


def orc_file(path: Path, ring: Keyring) -> Path:
    """A file with ``name`` under ``pii`` and ``num`` and ``s`` under ``wide``, at the newest versions, and with filters
    in clear on ``id``, ``name`` and ``num``.
    """
    newest = {one.name: one.versions[-1].key for one in ring.list()}
    pii, wide = newest["pii"], newest["wide"]
    assert pii is not None
    assert wide is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_KEPT.read_bytes())
    keys = MasterKeys({"pii": [None, _PII, pii], "wide": [_WIDE, wide]})
    orc.rekey(path, decryption=DecryptionSpec(keys, allow_ctr=True))
    return path
