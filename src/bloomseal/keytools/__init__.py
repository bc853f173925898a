"""Key metadata → data key: the key tools of parquet-java and Arrow, their key material, and the KMS clients below them.

Names load on first use, so that whoever needs none of them pays for none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .access import KmsAccessError, Problem
    from .calls import Counters
    from .explicit import ExplicitKeys
    from .keyring import Keyring
    from .material import KeyMaterial, KeyMetadata
    from .protocols import (
        ChangingKms,
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
    from .registry import client_for, register_kms
    from .sources import as_key_source
    from .tools import KeyDescription, KeyTools

__all__ = [
    "ChangingKms",
    "Counters",
    "DatedKms",
    "ExplicitKeys",
    "FileKeys",
    "FileRef",
    "KeyDates",
    "KeyDescription",
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
    "client_for",
    "register_kms",
]

_WHERE = {
    "ChangingKms": "protocols",
    "Counters": "calls",
    "DatedKms": "protocols",
    "ExplicitKeys": "explicit",
    "FileKeys": "protocols",
    "FileRef": "protocols",
    "KeyDates": "protocols",
    "KeyDescription": "tools",
    "KeyMaterial": "material",
    "KeyMetadata": "material",
    "KeyRetriever": "protocols",
    "KeySource": "protocols",
    "KeyState": "protocols",
    "KeyTools": "tools",
    "Keyring": "keyring",
    "KmsAccessError": "access",
    "KmsClient": "protocols",
    "Problem": "access",
    "RewrappingKms": "protocols",
    "StatefulKms": "protocols",
    "VersionedKms": "protocols",
    "as_key_source": "sources",
    "client_for": "registry",
    "register_kms": "registry",
}


def __getattr__(name: str) -> Any:
    if (module := _WHERE.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{module}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
