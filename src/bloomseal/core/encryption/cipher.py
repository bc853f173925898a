"""Seal and open one framed module; sign and verify a plaintext footer (Parquet encryption, sections 4.2 and 5).

A framed GCM module is ``u32le length ‖ nonce(12) ‖ ciphertext ‖ tag(16)``; a CTR page has no tag. The length counts
what follows it. Bytes in, bytes out: this file knows no Parquet file and no Bloom filter.
"""

from __future__ import annotations

import hmac
import os
from enum import StrEnum
from struct import Struct
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ..errors import FormatError, IntegrityError
from ..limits import MAX_MODULE_BYTES
from .modules import ModuleType
from .seal_counter import SealCounter
from .secret import SecretKey

LENGTH_BYTES: Final = 4
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
HEAD_BYTES: Final = LENGTH_BYTES + NONCE_BYTES
FRAME_BYTES: Final = HEAD_BYTES + TAG_BYTES
SIGNATURE_BYTES: Final = NONCE_BYTES + TAG_BYTES

Buffer = bytes | bytearray | memoryview
_length_at: Final = Struct("<I").unpack_from


class Algorithm(StrEnum):
    """The two algorithms of section 4.3. CTR applies to pages only; every other module is GCM under both."""

    AES_GCM_V1 = "AES_GCM_V1"
    AES_GCM_CTR_V1 = "AES_GCM_CTR_V1"


def framed_length(framed: Buffer, module: ModuleType, position: int = 0) -> int:
    """Bytes of the framed module at `position`, its own length prefix included.

    Raises:
        FormatError: fewer than 4 bytes, or a length that no module can have.
    """
    if len(framed) < position + LENGTH_BYTES:
        raise FormatError("truncated before the module's length", module=module.label)
    length: int = _length_at(framed, position)[0]
    if not NONCE_BYTES <= length <= MAX_MODULE_BYTES:
        raise FormatError(f"a module length of {length} bytes is impossible", module=module.label)
    return LENGTH_BYTES + length


class ModuleCipher:
    """Seals and opens modules under one key.

    Args:
        key: the data key.
        algorithm: decides how pages are sealed.
    """

    __slots__ = ("_counter", "_ctr_pages", "_gcm", "algorithm", "key")

    def __init__(self, key: SecretKey, algorithm: Algorithm = Algorithm.AES_GCM_V1) -> None:
        self.key = key
        self.algorithm = algorithm
        self._ctr_pages = algorithm is Algorithm.AES_GCM_CTR_V1
        self._gcm = AESGCM(key.reveal())
        # Somebody else's key is not counted before it seals: whoever reads a million files would hold a million
        # counters. One made here is, since its counter, and the limit set on it, live only as long as somebody holds
        # them.
        self._counter = SealCounter.of(key) if key.generated else None

    def __repr__(self) -> str:
        return f"<ModuleCipher {self.algorithm} {self.key!r}>"

    def overhead(self, module: ModuleType) -> int:
        """Bytes that sealing adds to a module: 32 for GCM, 16 for a CTR page."""
        return HEAD_BYTES if self._is_ctr(module) else FRAME_BYTES

    def seal(self, plaintext: Buffer, module: ModuleType, aad: bytes) -> bytearray:
        """The framed module; the nonce is fresh from the system's generator.

        Raises:
            KeyAccessError: the key's invocation limit is reached.
        """
        framed = bytearray(len(plaintext) + self.overhead(module))
        with memoryview(framed) as view:
            self.seal_into(plaintext, module, aad, view)
        return framed

    def seal_into(self, plaintext: Buffer, module: ModuleType, aad: bytes, out: memoryview) -> None:
        """As `seal`, into `out`, of the plaintext's size and the `overhead`."""
        self._count()
        nonce = os.urandom(NONCE_BYTES)
        out[:HEAD_BYTES] = (len(out) - LENGTH_BYTES).to_bytes(LENGTH_BYTES, "little") + nonce
        if not self._is_ctr(module):
            self._gcm.encrypt_into(nonce, plaintext, aad, out[HEAD_BYTES:])
        elif len(plaintext):
            self._ctr(nonce, plaintext, out[HEAD_BYTES:])

    def open(self, framed: Buffer, module: ModuleType, aad: bytes) -> bytes:
        """The plaintext of one framed module that fills `framed` exactly.

        CTR pages are not authenticated: any bytes open to something.

        Raises:
            FormatError: the frame does not fit.
            IntegrityError: authentication failed.
        """
        size = self.opened_size(framed, module)
        if self._is_ctr(module):
            plaintext = bytearray(size)
            self.open_into(framed, module, aad, memoryview(plaintext))
            return bytes(plaintext)
        view = memoryview(framed)
        try:
            return self._gcm.decrypt(bytes(view[LENGTH_BYTES:HEAD_BYTES]), view[HEAD_BYTES:], aad)
        except InvalidTag:
            raise _unauthentic(module) from None

    def opened_size(self, framed: Buffer, module: ModuleType) -> int:
        """Bytes of plaintext in the module that fills `framed` exactly; checks the frame."""
        if framed_length(framed, module) != len(framed):
            raise FormatError(
                f"the module's length prefix does not match the {len(framed)} bytes that it has", module=module.label
            )
        size = len(framed) - self.overhead(module)
        if size < 0:
            raise FormatError("a module too short for its nonce and tag", module=module.label)
        return size

    def open_into(self, framed: Buffer, module: ModuleType, aad: bytes, out: memoryview) -> None:
        """As `open`, into `out`, whose size must be `opened_size`."""
        view = memoryview(framed)
        nonce, body = bytes(view[LENGTH_BYTES:HEAD_BYTES]), view[HEAD_BYTES:]
        if self._is_ctr(module):
            if len(body):
                self._ctr(nonce, body, out)
            return
        try:
            self._gcm.decrypt_into(nonce, body, aad, out)
        except InvalidTag:
            raise _unauthentic(module) from None

    def authenticates(self, framed: Buffer, aad: bytes) -> bool:
        """Whether this was a GCM module, whatever the algorithm says of pages."""
        view = memoryview(framed)
        try:
            self._gcm.decrypt(bytes(view[LENGTH_BYTES:HEAD_BYTES]), view[HEAD_BYTES:], aad)
        except InvalidTag:
            return False
        return True

    def sign(self, footer: bytes, aad: bytes) -> bytes:
        """``nonce(12) ‖ tag(16)`` of GCM over the serialised footer (section 5.2, plaintext footer mode)."""
        self._count()
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._gcm.encrypt(nonce, footer, aad)[-TAG_BYTES:]

    def verify(self, footer: bytes, signature: bytes, aad: bytes) -> None:
        """Check `signature` over the footer's raw bytes.

        Raises:
            IntegrityError: the signature does not fit. The message never shows the computed tag: somebody who submits
                footers and reads logs would collect valid tags.
        """
        nonce, tag = signature[:NONCE_BYTES], signature[NONCE_BYTES:]
        computed = self._gcm.encrypt(nonce, footer, aad)[-TAG_BYTES:]
        if not hmac.compare_digest(tag, computed):
            raise IntegrityError(
                "the footer's signature does not fit: wrong footer key, wrong AAD prefix, or altered bytes",
                module=ModuleType.FOOTER.label,
            )

    def _count(self) -> None:
        if self._counter is None:
            self._counter = SealCounter.of(self.key)
        self._counter.add()

    def _is_ctr(self, module: ModuleType) -> bool:
        return self._ctr_pages and module.is_page

    def _ctr(self, nonce: bytes, data: Buffer, out: memoryview) -> None:
        # Imported here: most files never need it, and a cold probe should not pay for it.
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        stream = Cipher(algorithms.AES(self.key.reveal()), modes.CTR(nonce + b"\x00\x00\x00\x01")).encryptor()
        stream.update_into(data, out)
        stream.finalize()


def _unauthentic(module: ModuleType) -> IntegrityError:
    return IntegrityError(
        "authentication failed: wrong key, wrong AAD prefix, a module moved from another place, or altered bytes",
        module=module.label,
    )
