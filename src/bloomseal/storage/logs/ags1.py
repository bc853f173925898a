"""AGS1: a file sealed block by block with AES-GCM (Iceberg specification, "AES GCM Stream").

``"AGS1" ‖ u32le block length ‖ blocks``; a block is ``nonce(12) ‖ ciphertext ‖ tag(16)``, its AAD the file's prefix and
its number as u32le. All blocks but the last have the same length. Nothing in the stream says where it ends.
"""

from __future__ import annotations

from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ...core.encryption import SecretKey
from ...core.encryption.cipher import NONCE_BYTES, TAG_BYTES
from ...core.errors import FormatError, IntegrityError
from ...core.storage.ref import FileRef
from ...core.storage.source import Source
from ..places import open_source
from .decoded import need_readable

_MAGIC: Final = b"AGS1"
_HEADER: Final = 8
_BLOCK: Final = 1 << 20
_AROUND: Final = NONCE_BYTES + TAG_BYTES


class Ags1Stream:
    """The opened bytes of a stream, at any position.

    Args:
        source: the stream; bytes behind `length` are not part of it.
        key: of the file.
        prefix: the file's AAD prefix.
        length: of the stream, from a place that somebody with a key has written. A stream that was cut behind a block
            can't be told from a whole one by its own bytes.

    Raises:
        FormatError: no such stream, blocks of another length than 1 MiB, or fewer bytes than `length`.

    Attributes:
        size: of what it opens to, in bytes.
    """

    def __init__(self, source: Source, key: SecretKey, prefix: bytes, length: int) -> None:
        whole, last = divmod(length - _HEADER, _BLOCK + _AROUND)
        if source.size < length:
            raise FormatError(f"cut: {source.size} bytes of {length}", file=source.name)
        if length < _HEADER + _AROUND or 0 < last < _AROUND + bool(whole):
            raise FormatError(f"no AGS1 stream has {length} bytes", file=source.name)
        header = bytes(source.read(0, _HEADER))
        if header != _MAGIC + _BLOCK.to_bytes(4, "little"):
            raise FormatError("not an AGS1 stream with blocks of 1 MiB", file=source.name)
        self.size = whole * _BLOCK + max(last - _AROUND, 0)
        self._blocks = whole + bool(last)
        self._source, self._prefix, self._end = source, prefix, length
        self._gcm = AESGCM(key.reveal())

    def read(self, offset: int, length: int) -> bytes:
        """Exactly `length` opened bytes from `offset`; every block that they touch is authenticated.

        Raises:
            FormatError: the range reaches outside the stream.
            IntegrityError: a block does not authenticate.
        """
        if offset < 0 or length < 0 or offset + length > self.size:
            raise FormatError("a range outside the stream", file=self._source.name)
        first = min(offset // _BLOCK, self._blocks - 1)
        last = max(first, (offset + length - 1) // _BLOCK)
        opened = b"".join(map(self._open, range(first, last + 1)))
        return opened[offset - first * _BLOCK :][:length]

    def _open(self, number: int) -> bytes:
        start = _HEADER + number * (_BLOCK + _AROUND)
        sealed = bytes(self._source.read(start, min(_BLOCK + _AROUND, self._end - start)))
        try:
            return self._gcm.decrypt(
                sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], self._prefix + number.to_bytes(4, "little")
            )
        except InvalidTag:
            pass
        raise IntegrityError(
            f"block {number} does not authenticate: altered, moved, or under another key", file=self._source.name
        )


def is_sealed(ref: FileRef) -> bool:
    """Whether a file of a log, which is not too long to be read, begins as a stream does.

    Raises:
        FormatError, UsageError: it is too long, or can't be read.
    """
    with open_source(ref) as source:
        need_readable(source.size, ref.path)
        return source.size >= len(_MAGIC) and bytes(source.read(0, len(_MAGIC))) == _MAGIC
