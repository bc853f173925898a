"""Key metadata → data key: the key tools of parquet-java and Arrow, their key material, and the KMS clients below them.

What an author of a KMS client needs is public here; `KeyTools`, `Keyring` and `ExplicitKeys` are names of `bloomseal`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazily

if TYPE_CHECKING:
    from ..core.keys.access import KmsAccessError as KmsAccessError
    from ..core.keys.access import Problem as Problem
    from ..core.keys.protocols import KmsClient as KmsClient
    from .kms.registry import register_kms as register_kms
    from .local_keys import MasterKeys as MasterKeys
else:
    __all__, __getattr__, __dir__ = lazily(__name__)
