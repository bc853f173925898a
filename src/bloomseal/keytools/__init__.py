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
    from ..core.keys.protocols import KeyRetriever as KeyRetriever
    from ..core.keys.protocols import KmsClient as KmsClient
    from .keyring.keyring import Keyring as Keyring
    from .kms.registry import client_for as client_for
    from .kms.registry import register_kms as register_kms
    from .local_keys import MasterKeys as MasterKeys
    from .tools import KeyTools as KeyTools
else:
    __all__, __getattr__, __dir__ = lazily(__name__)
