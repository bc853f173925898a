"""Evidence: what an auditor takes away, in one signed bundle, made from one look at tables."""

from typing import TYPE_CHECKING

from .._lazy import lazily

if TYPE_CHECKING:
    from .bundle.manifest import verify as verify
    from .bundle.signing import FileSigner as FileSigner
    from .bundle.signing import KmsSigner as KmsSigner
    from .collect import make as make
else:
    __all__, __getattr__, __dir__ = lazily(__name__)
