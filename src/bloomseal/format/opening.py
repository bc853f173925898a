"""From a source and what the caller says about keys to an opened footer and the file's keys at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.decryption import DecryptionSpec
from ..core.errors import BloomsealError, KeyAccessError
from ..core.keys.protocols import KeyRetriever
from ..core.parquet.expectation import NO_EXPECTATION, Expectation
from ..core.parquet.footer import Footer, FooterKind, Peek, peek
from ..core.parquet.keys_at_hand import KeysAtHand, authenticated
from ..core.storage.source import Source
from ..keytools.sources import as_key_source

if TYPE_CHECKING:
    from ..keytools.access_log import AccessLog


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
        PolicyError: the file is not what the caller expects (`Expectation`), or none of the signers has signed it.
    """
    try:
        seen = seen or peek(source)
        if decryption is not None and decryption.signers is not None and not keyless:
            from ..keytools.signatures.signers import need_signed  # few tables have signers

            need_signed(source, seen, decryption.signers)
        return _open(source, seen, decryption, NO_EXPECTATION if keyless else Expectation.of(decryption))
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
