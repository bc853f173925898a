"""Key metadata → data key: the key tools of parquet-java and Arrow, their key material, and the KMS clients below them.

Names load on first use, so that whoever needs none of them pays for none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazily

if TYPE_CHECKING:
    from ..storage.ref import FileRef
    from .access import KmsAccessError, Problem
    from .explicit import ExplicitKeys
    from .keyring.keyring import Keyring
    from .kms.counters import Counters
    from .kms.registry import client_for, register_kms
    from .kms_protocols import (
        AuthenticatingKms,
        ChangingKms,
        ClockedKms,
        DatedKms,
        KeyDates,
        KeyState,
        LocalKeyKms,
        MasterVersion,
        RewrappingKms,
        SigningKms,
        StatefulKms,
        VersionedKms,
        VersionFacts,
        WitnessKms,
    )
    from .local_keys import MasterKeys
    from .material.material import KeyMaterial, KeyMetadata
    from .protocols import FileKeys, KeyDescription, KeyRetriever, KeySource, KmsClient
    from .sources import as_key_source
    from .tools import KeyTools

__all__ = [
    "AuthenticatingKms",
    "ChangingKms",
    "ClockedKms",
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
    "LocalKeyKms",
    "MasterKeys",
    "MasterVersion",
    "Problem",
    "RewrappingKms",
    "SigningKms",
    "StatefulKms",
    "VersionFacts",
    "VersionedKms",
    "WitnessKms",
    "as_key_source",
    "client_for",
    "register_kms",
]

if not TYPE_CHECKING:  # a type checker knows the names above, and refuses others
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "AuthenticatingKms": "kms_protocols",
            "ChangingKms": "kms_protocols",
            "ClockedKms": "kms_protocols",
            "Counters": "kms.counters",
            "DatedKms": "kms_protocols",
            "ExplicitKeys": "explicit",
            "FileKeys": "protocols",
            "FileRef": ".storage.ref",
            "KeyDates": "kms_protocols",
            "KeyDescription": "protocols",
            "KeyMaterial": "material.material",
            "KeyMetadata": "material.material",
            "KeyRetriever": "protocols",
            "KeySource": "protocols",
            "KeyState": "kms_protocols",
            "KeyTools": "tools",
            "Keyring": "keyring.keyring",
            "KmsAccessError": "access",
            "KmsClient": "protocols",
            "LocalKeyKms": "kms_protocols",
            "MasterKeys": "local_keys",
            "MasterVersion": "kms_protocols",
            "Problem": "access",
            "RewrappingKms": "kms_protocols",
            "SigningKms": "kms_protocols",
            "StatefulKms": "kms_protocols",
            "VersionFacts": "kms_protocols",
            "VersionedKms": "kms_protocols",
            "WitnessKms": "kms_protocols",
            "as_key_source": "sources",
            "client_for": "kms.registry",
            "register_kms": "kms.registry",
        },
    )
