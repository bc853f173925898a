"""Key metadata → data key: the key tools of parquet-java and Arrow, their key material, and the KMS clients below them.

Names load on first use, so that whoever needs none of them pays for none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazily

if TYPE_CHECKING:
    from ..core.keys.access import KmsAccessError, Problem
    from ..core.keys.explicit import ExplicitKeys
    from ..core.keys.material import KeyMaterial, KeyMetadata
    from ..core.keys.protocols import FileKeys, KeyDescription, KeyRetriever, KeySource, KmsClient
    from ..core.storage.ref import FileRef
    from .keyring.keyring import Keyring
    from .kms.counters import Counters
    from .kms.registry import client_for, register_kms
    from .kms_protocols import (
        DescribingKms,
        KeyState,
        LocalKeyKms,
        MasterKeyFacts,
        MasterVersion,
        RewrappingKms,
        SigningKms,
        VersionFacts,
    )
    from .local_keys import MasterKeys
    from .sources import as_key_source
    from .tools import KeyTools

__all__ = [
    "Counters",
    "DescribingKms",
    "ExplicitKeys",
    "FileKeys",
    "FileRef",
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
    "MasterKeyFacts",
    "MasterKeys",
    "MasterVersion",
    "Problem",
    "RewrappingKms",
    "SigningKms",
    "VersionFacts",
    "as_key_source",
    "client_for",
    "register_kms",
]

if not TYPE_CHECKING:  # a type checker knows the names above, and refuses others
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "Counters": "kms.counters",
            "DescribingKms": "kms_protocols",
            "ExplicitKeys": ".core.keys.explicit",
            "FileKeys": ".core.keys.protocols",
            "FileRef": ".core.storage.ref",
            "KeyDescription": ".core.keys.protocols",
            "KeyMaterial": ".core.keys.material",
            "KeyMetadata": ".core.keys.material",
            "KeyRetriever": ".core.keys.protocols",
            "KeySource": ".core.keys.protocols",
            "KeyState": "kms_protocols",
            "KeyTools": "tools",
            "Keyring": "keyring.keyring",
            "KmsAccessError": ".core.keys.access",
            "KmsClient": ".core.keys.protocols",
            "LocalKeyKms": "kms_protocols",
            "MasterKeyFacts": "kms_protocols",
            "MasterKeys": "local_keys",
            "MasterVersion": "kms_protocols",
            "Problem": ".core.keys.access",
            "RewrappingKms": "kms_protocols",
            "SigningKms": "kms_protocols",
            "VersionFacts": "kms_protocols",
            "as_key_source": "sources",
            "client_for": "kms.registry",
            "register_kms": "kms.registry",
        },
    )
