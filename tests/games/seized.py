"""The keys of a file for recipients, as its reader has them: what a seized writer must not have."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import bloomseal as bs
from bloomseal.core.keys.material import KeyMetadata
from bloomseal.core.parquet.walk import Walk
from bloomseal.format.opening import open_footer
from bloomseal.storage.places import open_source
from bloomseal.write.key_metadata import key_metadata_in_use


def keys_of(file: Path, ring: bs.Keyring) -> Iterator[bytes]:
    """Data keys and key encryption keys."""
    with open_source(str(file)) as source:
        footer, at_hand = open_footer(source, bs.DecryptionSpec(keys=ring))
        for column, metadata in key_metadata_in_use(Walk(source, footer, at_hand)):
            material = KeyMetadata.from_bytes(metadata).material
            assert material is not None
            assert material.wrapped_kek is not None
            yield ring.unwrap_key(material.wrapped_kek, "pii")
            yield bs.KeyTools(ring).for_file(source.ref).retrieve_key(metadata, column).reveal()


def shapes_of(key: bytes) -> Iterator[bytes]:
    """As a key may stand in a file."""
    yield key
    yield key.hex().encode()
    yield base64.b64encode(key)
