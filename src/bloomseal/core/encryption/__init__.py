"""Module kinds, AADs, AES-GCM and AES-CTR framing, and the count of seals per key. Bytes in, bytes out."""

from .cipher import FRAME_BYTES, NONCE_BYTES, SIGNATURE_BYTES, Algorithm, ModuleCipher, framed_length
from .modules import ModuleType, file_aad, module_aad, page_aads
from .seal_counter import SealCounter
from .secret import SecretKey

__all__ = [
    "FRAME_BYTES",
    "NONCE_BYTES",
    "SIGNATURE_BYTES",
    "Algorithm",
    "ModuleCipher",
    "ModuleType",
    "SealCounter",
    "SecretKey",
    "file_aad",
    "framed_length",
    "module_aad",
    "page_aads",
]
