"""Evidence: what an auditor takes away, in one signed bundle, made from one look at tables."""

from typing import TYPE_CHECKING

from .._lazy import lazily

if TYPE_CHECKING:
    from .bundle.manifest import Verification, add_signature, verify
    from .bundle.signing import Detached, FileSigner, KmsSigner, PublicKey, Signer
    from .collect import Evidence, make

__all__ = [
    "Detached",
    "Evidence",
    "FileSigner",
    "KmsSigner",
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
            "Detached": "bundle.signing",
            "Evidence": "collect",
            "FileSigner": "bundle.signing",
            "KmsSigner": "bundle.signing",
            "PublicKey": "bundle.signing",
            "Signer": "bundle.signing",
            "Verification": "bundle.manifest",
            "add_signature": "bundle.manifest",
            "make": "collect",
            "verify": "bundle.manifest",
        },
    )
