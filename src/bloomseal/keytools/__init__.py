"""Key metadata → data key: the key tools of parquet-java and Arrow, their key material, and the KMS clients below them.

Names load on first use, so that whoever needs none of them pays for none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazily

if TYPE_CHECKING:
    from ..core.keys.access import KmsAccessError as KmsAccessError
    from ..core.keys.access import Problem as Problem
    from ..core.keys.explicit import ExplicitKeys as ExplicitKeys
    from ..core.keys.material import KeyMaterial as KeyMaterial
    from ..core.keys.material import KeyMetadata as KeyMetadata
    from ..core.keys.protocols import FileKeys as FileKeys
    from ..core.keys.protocols import KeyDescription as KeyDescription
    from ..core.keys.protocols import KeyRetriever as KeyRetriever
    from ..core.keys.protocols import KeySource as KeySource
    from ..core.keys.protocols import KmsClient as KmsClient
    from ..core.storage.ref import FileRef as FileRef
    from .keyring.keyring import Keyring as Keyring
    from .kms.counters import Counters as Counters
    from .kms.registry import client_for as client_for
    from .kms.registry import register_kms as register_kms
    from .kms_protocols import DescribingKms as DescribingKms
    from .kms_protocols import KeyState as KeyState
    from .kms_protocols import LocalKeyKms as LocalKeyKms
    from .kms_protocols import MasterKeyFacts as MasterKeyFacts
    from .kms_protocols import MasterVersion as MasterVersion
    from .kms_protocols import RewrappingKms as RewrappingKms
    from .kms_protocols import SigningKms as SigningKms
    from .kms_protocols import VersionFacts as VersionFacts
    from .local_keys import MasterKeys as MasterKeys
    from .sources import as_key_source as as_key_source
    from .tools import KeyTools as KeyTools
else:
    __all__, __getattr__, __dir__ = lazily(__name__)
