"""Key metadata → data key: key material, wrapping, the local keyring, and the seam to key management systems."""

from .access import KmsAccessError, Problem
from .explicit import ExplicitKeys
from .keyring import Keyring
from .material import KeyMaterial, KeyMetadata
from .protocols import (
    DatedKms,
    FileKeys,
    FileRef,
    KeyDates,
    KeyRetriever,
    KeySource,
    KeyState,
    KmsClient,
    RewrappingKms,
    StatefulKms,
    VersionedKms,
)
from .tools import KeyTools, as_key_source

__all__ = [
    "DatedKms",
    "ExplicitKeys",
    "FileKeys",
    "FileRef",
    "KeyDates",
    "KeyMaterial",
    "KeyMetadata",
    "KeyRetriever",
    "KeySource",
    "KeyState",
    "KeyTools",
    "Keyring",
    "KmsAccessError",
    "KmsClient",
    "Problem",
    "RewrappingKms",
    "StatefulKms",
    "VersionedKms",
    "as_key_source",
]
