"""From a source and what the caller says about keys to an opened footer and the file's keys at hand."""

from __future__ import annotations

import threading
from copy import copy
from typing import Any

from ..encryption import ModuleCipher, ModuleType, SecretKey, module_aad
from ..errors import BloomsealError, KeyAccessError, PolicyError, UsageError
from ..keytools import as_key_source
from ..keytools.protocols import KeyRetriever
from ..specs import DecryptionSpec
from ..storage.source import Source
from ..thrift import Struct
from .footer import FileCrypto, Footer, parse_crypto, split_encrypted, split_signed
from .layout import FileMeta, Tail, read_tail

__all__ = ["KeysAtHand", "open_footer", "required_columns"]


class KeysAtHand:
    """The keys of one file, resolved once each and kept while the file is open.

    Args:
        crypto: the file's encryption, None for a plaintext file.
        retriever: None where the caller gave no keys.
    """

    def __init__(self, crypto: FileCrypto | None, retriever: KeyRetriever | None) -> None:
        self.crypto = crypto
        self._retriever = retriever
        self._ciphers: dict[tuple[bytes, str | None], ModuleCipher | KeyAccessError] = {}
        self._lock = threading.Lock()

    def footer(self) -> ModuleCipher:
        """The footer key's cipher. Raises KeyAccessError."""
        return self._cipher(self.crypto.footer_key_metadata if self.crypto else b"", None)

    def column(self, key_metadata: bytes, column: str) -> ModuleCipher:
        """The cipher of a column with a key of its own. Raises KeyAccessError."""
        return self._cipher(key_metadata, column)

    def _cipher(self, key_metadata: bytes, column: str | None) -> ModuleCipher:
        name = (key_metadata, column)
        with self._lock:
            held = self._ciphers.get(name)
        if held is None:
            try:
                held = self._resolve(key_metadata, column)
            except KeyAccessError as error:
                if error.retryable:
                    raise
                held = error
            with self._lock:
                self._ciphers[name] = held
        if isinstance(held, KeyAccessError):
            raise copy(held)  # callers add their own place to it
        return held

    def _resolve(self, key_metadata: bytes, column: str | None) -> ModuleCipher:
        if self._retriever is None or self.crypto is None:
            raise KeyAccessError("no keys were given", column=column, hint="decryption=DecryptionSpec(keys=...)")
        try:
            key = self._retriever.retrieve_key(key_metadata, column)
        except BloomsealError as error:
            raise error.at(column=column) from None
        except Exception as error:
            # A retriever is the caller's code: whatever it raises becomes ours, and its message may hold a secret.
            raise KeyAccessError(f"the key retriever failed with {type(error).__name__}", column=column) from None
        return ModuleCipher(key if isinstance(key, SecretKey) else SecretKey(key), self.crypto.algorithm)


def open_footer(
    source: Source, decryption: DecryptionSpec | None, *, keyless: bool = False
) -> tuple[Footer, KeysAtHand]:
    """Read, open and verify a file's footer.

    Args:
        keyless: only looking (`inspect`): a missing footer key is no error in plaintext footer mode.

    Raises:
        FormatError: the footer breaks the specification.
        IntegrityError: it does not authenticate.
        KeyAccessError: the footer key can't be had.
        PolicyError: a plaintext file, or an unverifiable footer, where the caller did not allow it.
    """
    try:
        return _open(source, read_tail(source), decryption, keyless)
    except BloomsealError as error:
        raise error.at(file=source.name) from None


def _open(source: Source, tail: Tail, decryption: DecryptionSpec | None, keyless: bool) -> tuple[Footer, KeysAtHand]:
    supplied = decryption.aad_prefix if decryption else None
    assert supplied is None or isinstance(supplied, bytes)  # noqa: S101  # DecryptionSpec encodes a str
    if tail.encrypted:
        head, framed = split_encrypted(tail)
        algorithm = head.struct(1) or Struct()
        crypto = parse_crypto(algorithm, head.binary(2), supplied, plaintext_footer=False, keyless=False)
        keys = KeysAtHand(crypto, _retriever(source, decryption))
        aad = module_aad(crypto.file_aad, ModuleType.FOOTER)
        raw = keys.footer().open(framed, ModuleType.FOOTER, aad)
        return Footer(raw, tail.offset, crypto, True), keys

    plain = Struct.parse(tail.data, remember=FileMeta.ROW_GROUPS)
    algorithm_struct = plain.struct(FileMeta.ALGORITHM)
    if algorithm_struct is None:
        if decryption is not None and not decryption.allow_plaintext:
            raise PolicyError(
                "a plaintext file where an encrypted one was expected",
                hint="leave out decryption=, or DecryptionSpec(allow_plaintext=True)",
            )
        return Footer(tail.data, tail.offset, None, True), KeysAtHand(None, None)

    raw, signature = split_signed(tail)
    crypto = parse_crypto(
        algorithm_struct, plain.binary(FileMeta.SIGNING_KEY), supplied, plaintext_footer=True, keyless=keyless
    )
    keys = KeysAtHand(crypto, _retriever(source, decryption))
    verified = False
    try:
        keys.footer().verify(raw, signature, module_aad(crypto.file_aad, ModuleType.FOOTER))
        verified = True
    except KeyAccessError as error:
        if error.retryable:
            raise
    return Footer(raw, tail.offset, crypto, verified), keys


def _retriever(source: Source, decryption: DecryptionSpec | None) -> KeyRetriever | None:
    if decryption is None or decryption.keys is None:
        return None
    return as_key_source(decryption.keys).for_file(source.ref)


def required_columns(decryption: DecryptionSpec | None) -> frozenset[str]:
    """The columns that the caller takes to be encrypted."""
    if decryption is None:
        return frozenset()
    listed: Any = decryption.encrypted_columns
    if isinstance(listed, str):
        raise UsageError("encrypted_columns= takes a list of names")
    return frozenset(listed) | frozenset(getattr(decryption.keys, "columns", ()))
