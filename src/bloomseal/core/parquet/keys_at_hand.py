"""The keys of one open file: each resolved once, through the caller's expectation; and the footer that they prove."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Protocol

from ..encryption import ModuleCipher, ModuleType, SecretKey, module_aad
from ..errors import BloomsealError, Hint, IntegrityError, KeyAccessError, PolicyError
from ..keys.access import raised_by
from ..keys.protocols import KeyDescription, KeyRetriever, wrapped_by
from ..storage.source import Source
from .expectation import NO_EXPECTATION, Expectation
from .footer import FileCrypto, Footer, FooterKind, Peek


class KeyLog(Protocol):
    """Who is told of every use of a key."""

    def used(
        self, action: str, keys: object, key_metadata: bytes, column: str | None, error: BloomsealError | None = None
    ) -> None:
        """A key is about to be handed out, or was refused for `error`.

        Raises:
            KeyAccessError: nobody could be told, so that the key is not handed out.
        """


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
        log: KeyLog | None = None,
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
            raise KeyAccessError("no keys were given", column=column, lacking=True, hint=Hint.KEYS)
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
