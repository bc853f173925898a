"""Evidence: what an auditor takes away, in one signed bundle, made from one look at tables."""

from typing import TYPE_CHECKING

from .._lazy import lazily

if TYPE_CHECKING:
    from ..keytools.signatures.keys import FileSigner as FileSigner
    from ..keytools.signatures.keys import KmsSigner as KmsSigner
    from .bundle.manifest import verify as verify
    from .collect import make as make
else:
    __all__, __getattr__, __dir__ = lazily(__name__)
