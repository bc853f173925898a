"""From a source and what the caller says about keys to an opened footer and the file's keys at hand."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING

from ..decryption import DecryptionSpec
from ..encryption import ModuleCipher, ModuleType, SecretKey, module_aad
from ..errors import BloomsealError, Hint, IntegrityError, KeyAccessError, PolicyError
from ..keytools import as_key_source
from ..keytools.access import raised_by
from ..keytools.protocols import KeyRetriever
from ..storage.source import Source
from .expectation import NO_EXPECTATION, Expectation
from .footer import FileCrypto, Footer, FooterKind, Peek, peek

if TYPE_CHECKING:
    from ..keytools.access_log import AccessLog
    from ..keytools.material.material import KeyDescription

__all__ = ["KeysAtHand", "authenticated", "keys_again", "need_verified", "open_footer"]


class KeysAtHand:
    """The keys of one file, resolved once each and kept while the file is open.

    Args:
        crypto: the file's encryption, None for a plaintext file.
        retriever: None where the caller gave no keys.
        expectation: what the caller expects of the file.
        log: who is told of every key that is opened, and of every refusal.
    """

    def __init__(
        self,
        crypto: FileCrypto | None,
        retriever: KeyRetriever | None,
        expectation: Expectation = NO_EXPECTATION,
        log: AccessLog | None = None,
    ) -> None:
        self.crypto = crypto
        self.expectation = expectation
        self._log = log
        self._retriever = retriever
        self._agreed = getattr(retriever, "check_under_footer_key", None)
        self._ciphers: dict[tuple[bytes, str | None], ModuleCipher | KeyAccessError] = {}
        self._under_footer_key: set[str] = set()

    def footer(self) -> ModuleCipher:
        """The footer key's cipher. Raises KeyAccessError."""
        return self._cipher(self.crypto.footer_key_metadata if self.crypto else b"", None)

    def check_under_footer_key(self, column: str) -> None:
        """A column chunk says that it is under the footer key: was that agreed on?

        Raises:
            PolicyError: the column has a key of its own. Whoever may use the footer key alone would else put values
                there.
        """
        if self._agreed is not None and column not in self._under_footer_key:
            key_metadata = self.crypto.footer_key_metadata if self.crypto else b""
            try:
                self._agreed(key_metadata, column)
            except BloomsealError as error:
                self._tell(key_metadata, column, error)
                raise
            self._under_footer_key.add(column)

    def column(self, key_metadata: bytes, column: str) -> ModuleCipher:
        """The cipher of a column with a key of its own. Raises KeyAccessError."""
        return self._cipher(key_metadata, column)

    def _cipher(self, key_metadata: bytes, column: str | None) -> ModuleCipher:
        name = (key_metadata, column)
        held = self._ciphers.get(name)
        if held is None:
            try:
                held = self._resolve(key_metadata, column)
            except KeyAccessError as error:
                if error.retryable:
                    raise
                held = error
            self._ciphers[name] = held
        if isinstance(held, KeyAccessError):
            raise copy(held)  # callers add their own place to it
        return held

    def _resolve(self, key_metadata: bytes, column: str | None) -> ModuleCipher:
        if self._retriever is None or self.crypto is None:
            raise KeyAccessError("no keys were given", column=column, hint=Hint.KEYS)
        failure: BloomsealError
        try:
            key = self._retriever.retrieve_key(key_metadata, column)
        except BloomsealError as error:
            failure = error.at(column=column)
        except Exception as error:
            # A retriever is the caller's code: whatever it raises becomes ours, and its message may hold a secret.
            failure = KeyAccessError(f"the key retriever failed with {raised_by(error)}", column=column)
        else:
            self._tell(key_metadata, column)
            return ModuleCipher(key if isinstance(key, SecretKey) else SecretKey(key), self.crypto.algorithm)
        self._tell(key_metadata, column, failure)
        raise failure from None

    def wrapped_by(self, key_metadata: bytes) -> KeyDescription | None:
        """What key metadata says of its master key; None where it does not tell. Costs no call."""
        from ..keytools.access_log import wrapped_by

        return wrapped_by(self._retriever, key_metadata)

    def beside(self) -> dict[str, str]:
        """The key material beside the file, by reference; empty where the keys come from elsewhere. Raises
        KeyAccessError.
        """
        ask = getattr(self._retriever, "beside", None)
        return {} if ask is None else ask()

    def _tell(self, key_metadata: bytes, column: str | None, error: BloomsealError | None = None) -> None:
        if self._log is not None:
            self._log.used("open", self._retriever, key_metadata, column, error)


def open_footer(
    source: Source, decryption: DecryptionSpec | None, *, keyless: bool = False, seen: Peek | None = None
) -> tuple[Footer, KeysAtHand]:
    """Read, open and verify a file's footer.

    Args:
        keyless: only looking: nothing is expected of the file.
        seen: the file's end, by `peek`, where somebody has looked already.

    Raises:
        FormatError: the footer breaks the specification.
        IntegrityError: it does not authenticate.
        KeyAccessError: the footer key can't be had.
        PolicyError: the file is not what the caller expects (`Expectation`).
    """
    try:
        return _open(
            source, seen or peek(source), decryption, NO_EXPECTATION if keyless else Expectation.of(decryption)
        )
    except BloomsealError as error:
        raise error.at(file=source.name) from error.__cause__


def _open(
    source: Source, seen: Peek, decryption: DecryptionSpec | None, expectation: Expectation
) -> tuple[Footer, KeysAtHand]:
    if seen.kind is FooterKind.PLAINTEXT:
        expectation.plaintext_file()
        return Footer(seen.clear, seen.offset, None, True), KeysAtHand(None, None, expectation)
    candidates = seen.crypto(expectation)
    log = _log_of(decryption, source)
    keys = KeysAtHand(candidates[0], _retriever(source, decryption), expectation, log)
    try:
        return authenticated(seen, candidates, keys), keys
    except KeyAccessError as error:
        if error.retryable or seen.kind is FooterKind.ENCRYPTED:
            raise
    return Footer(seen.clear, seen.offset, candidates[0], False), keys


def keys_again(
    source: Source, footer: Footer, decryption: DecryptionSpec | None, expectation: Expectation
) -> KeysAtHand:
    """The keys of a file whose footer was opened before, with the same `decryption`. The footer key is asked for at
    once, as it is where a file is opened: a right that was withdrawn meanwhile ends here.

    Raises:
        KeyAccessError: the footer key can't be had.
    """
    if footer.crypto is None:
        return KeysAtHand(None, None, expectation)
    log = _log_of(decryption, source)
    keys = KeysAtHand(footer.crypto, _retriever(source, decryption), expectation, log)
    keys.footer()
    return keys


def authenticated(seen: Peek, candidates: Sequence[FileCrypto], keys: KeysAtHand) -> Footer:
    """Open the footer, or verify its signature, under the first AAD prefix that it authenticates with.

    Raises:
        KeyAccessError: the footer key can't be had.
        IntegrityError: it authenticates with none.
    """
    cipher = keys.footer()
    for crypto in candidates:
        aad = module_aad(crypto.file_aad, ModuleType.FOOTER)
        try:
            if seen.kind is FooterKind.ENCRYPTED:
                return Footer(cipher.open(seen.sealed, ModuleType.FOOTER, aad), seen.offset, crypto, True)
            cipher.verify(seen.clear, seen.sealed, aad)
            return Footer(seen.clear, seen.offset, crypto, True)
        except IntegrityError as error:
            failure = error
    raise failure


def need_verified(footer: Footer, source: Source, what: str, hint: str = "the footer key") -> None:
    """Whoever makes a statement about a whole file, or a new file of it, asks this first.

    Args:
        what: the use, with its article.

    Raises:
        PolicyError: a signed footer whose signature could not be checked: somebody could have taken row groups out of
            it.
    """
    if not footer.verified:
        raise PolicyError(
            f"the footer's signature can't be checked without the footer key, so {what} could miss row groups",
            file=source.name,
            hint=hint,
        )


def _retriever(source: Source, decryption: DecryptionSpec | None) -> KeyRetriever | None:
    if decryption is None or decryption.keys is None:
        return None
    return as_key_source(decryption.keys).for_file(source.ref)


def _log_of(decryption: DecryptionSpec | None, source: Source) -> AccessLog | None:
    """Where the uses of a file's keys are told."""
    if decryption is None or decryption.access_log is None:
        return None
    from ..keytools.access_log import AccessLog  # few have one

    return AccessLog.of(decryption.access_log, source.name)
