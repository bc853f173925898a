"""Evidence: what an auditor takes away, in one signed bundle, made from one look at tables."""

from typing import TYPE_CHECKING

from .._lazy import lazily

if TYPE_CHECKING:
    from .collect import Evidence, make
    from .manifest import Verification, add_signature, verify
    from .signing import Detached, FileSigner, PublicKey, Signer

__all__ = [
    "Detached",
    "Evidence",
    "FileSigner",
    "PublicKey",
    "Signer",
    "Verification",
    "add_signature",
    "make",
    "verify",
]

if not TYPE_CHECKING:  # a type checker knows the names above, and refuses others
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "Detached": "signing",
            "Evidence": "collect",
            "FileSigner": "signing",
            "PublicKey": "signing",
            "Signer": "signing",
            "Verification": "manifest",
            "add_signature": "manifest",
            "make": "collect",
            "verify": "manifest",
        },
    )
