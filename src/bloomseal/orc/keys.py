"""The local keys of one file, and what they open (ORC specification, "Column Encryption").

A stream is compressed first and then encrypted by AES-CTR, chunk headers and all. Its IV is *column* (3 bytes), *kind*
(2), *stripe id* (3), and eight bytes of zeros that count the blocks. Nothing authenticates a stream: a wrong key is
told by structure only (`LocalKeys.statistics`), and whoever can write to the storage can flip chosen bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import Final

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from ..core.decryption import DecryptionSpec
from ..core.encryption import SecretKey
from ..core.errors import (
    BloomsealError,
    FormatError,
    Hint,
    IntegrityError,
    KeyAccessError,
    PolicyError,
    UnsupportedError,
)
from ..core.forked import new_lock
from ..core.limits import MAX_ORC_FOOTER_BYTES
from ..core.parquet.expectation import Expectation
from ..core.storage.source import Source
from ..keytools.access_log import AccessLog
from ..keytools.local_keys import LocalKeyCalls, local_key_calls
from .encryption import Encryption, Variant
from .protobuf import Message
from .schema import OrcColumn, OrcKind
from .streams import Stream, StreamKind
from .tail import OrcTail, Stripe

_MAX: Final = (1 << 24, 1 << 16, 1 << 24)
_BLOCK_BYTES: Final = 16
_COLUMN_STATISTICS: Final = 1
_NUMBER_OF_VALUES: Final = 1


def ctr(key: SecretKey, column: int, kind: int, stripe_id: int, data: bytes | memoryview, start: int = 0) -> bytes:
    """A stream sealed or opened, which is the same thing.

    Args:
        stripe_id: from 1; statistics have one more than there are stripes.
        start: how many bytes of the stream are before `data`.

    Raises:
        FormatError: a number that has no room in the IV: it would be that of another stream.
    """
    if any(not 0 <= number < most for number, most in zip((column, kind, stripe_id), _MAX, strict=True)):
        raise FormatError(f"stream {kind} of column {column} in stripe {stripe_id} can't be encrypted: corrupt")
    iv = column.to_bytes(3, "big") + kind.to_bytes(2, "big") + stripe_id.to_bytes(3, "big")
    block, within = divmod(start, _BLOCK_BYTES)
    cipher = Cipher(algorithms.AES(key.reveal()), modes.CTR(iv + block.to_bytes(8, "big"))).encryptor()
    cipher.update(bytes(within))
    return cipher.update(data)


def expect(tail: OrcTail, expectation: Expectation) -> None:
    """Refuse a file that is not encrypted as the caller expects: whoever may replace files would else choose what is
    read.

    Raises:
        PolicyError: it is not.
    """
    if not tail.sealed:
        expectation.plaintext_file()
        return
    for leaf in tail.schema.leaves:
        if leaf.id not in tail.sealed:
            expectation.plaintext_column(leaf.name)


class LocalKeys:
    """The local keys of one file, each opened by the KMS once. Threads may share it.

    Args:
        decryption: None where the caller gave no keys.

    Attributes:
        expectation: what must be encrypted.
    """

    def __init__(self, source: Source, tail: OrcTail, decryption: DecryptionSpec | None) -> None:
        self._source, self._tail = source, tail
        self._decryption, self.expectation = decryption, Expectation.of(decryption)
        self._log = None if decryption is None else AccessLog.of(decryption.access_log, source.name)
        self._calls: LocalKeyCalls | None = None
        self._opened: dict[tuple[str, int, bytes], SecretKey | KeyAccessError] = {}
        self._checked: set[tuple[int, str]] = set()
        self._statistics: dict[int, list[Message]] = {}
        self._of_stripes: dict[tuple[int, int], list[Message]] = {}
        self._lock = new_lock()

    @property
    def allow_ctr(self) -> bool:
        """The caller takes the word of streams that nobody authenticates."""
        return self._decryption is not None and self._decryption.allow_ctr

    def need_ctr(self, column: OrcColumn) -> None:
        """Refuse an encrypted column's values, unless the caller accepts that nothing authenticates them.

        Raises:
            PolicyError: ``allow_ctr`` was not said.
        """
        if not self.allow_ctr:
            raise PolicyError(
                "the column's values are encrypted, and nothing authenticates them",
                column=column.name,
                hint=Hint.CTR,
            )

    def variant_or_none(self, column: OrcColumn) -> Variant | None:
        """As `variant_of`; None for a column in clear.

        Raises:
            As `variant_of`; PolicyError where the caller expects it to be encrypted.
        """
        if column.id in self._tail.encrypted:
            return self.variant_of(column)
        self.expectation.plaintext_column(column.name)
        return None

    def variant_of(self, column: OrcColumn) -> Variant:
        """The first variant of a column whose key can be had, as other readers choose it; the key is the right one.

        Raises:
            KeyAccessError: no key of the column can be had.
            IntegrityError: the key opens nothing that makes sense.
        """
        encryption = self._tail.encryption
        refused: KeyAccessError | None = None
        for variant in encryption.variants_of(column.id) if encryption else []:
            try:
                self._key(variant, variant.encrypted_key)
            except KeyAccessError as error:
                if error.retryable:
                    raise
                refused = refused or error
            else:
                self.statistics(variant)
                return variant
        raise refused or KeyAccessError(
            "the column is masked, and the file has no encrypted form of it", column=column.name
        )

    def key(self, variant: Variant, stripe: Stripe) -> SecretKey:
        """A stripe's local key.

        Raises:
            KeyAccessError: it can't be had.
            FormatError: the stripe has none.
        """
        if variant.index >= len(stripe.encrypted_keys):
            raise FormatError("a stripe without local keys: corrupt")
        return self._key(variant, stripe.encrypted_keys[variant.index])

    def footer_key(self, variant: Variant) -> SecretKey:
        """The local key of statistics. Raises KeyAccessError."""
        return self._key(variant, variant.encrypted_key)

    def open(self, stream: Stream, stripe: Stripe, data: bytes | memoryview) -> memoryview:
        """A stream's bytes, still compressed. Whatever the key, something comes out.

        Raises:
            KeyAccessError: the key can't be had.
        """
        assert stream.variant is not None  # noqa: S101
        variant = self._encryption.variants[stream.variant]
        key = self.key(variant, stripe)
        return memoryview(ctr(key, stream.column, stream.kind, stripe.encrypt_id, data, stream.start))

    def statistics(self, variant: Variant) -> list[Message]:
        """File statistics, one message per column of the variant.

        They are how a wrong key is told: they must inflate, and be one entry for each column, none with more values
        than the file has rows. A wrong key gets so far once in 65,536 files at most, and then meets the same question
        at each row index.

        Raises:
            KeyAccessError: the key can't be had.
            IntegrityError: wrong key, or altered bytes.
        """
        if variant.index not in self._statistics:
            sealed = (variant.root.id, StreamKind.FILE_STATISTICS, variant.file_statistics)
            with opening(variant.root):
                found = self._columns(variant, *sealed, _COLUMN_STATISTICS)
                if len(found) != variant.root.last - variant.root.id + 1:
                    raise FormatError(f"statistics of {len(found)} columns")
                self._check_counts(variant.root, found)
            self._statistics[variant.index] = found
        return self._statistics[variant.index]

    def stripe_statistics(self, variant: Variant, column: OrcColumn) -> list[Message]:
        """One message per stripe; empty where the file has none. Raises as `statistics`."""
        if (variant.index, column.id) not in self._of_stripes:
            self._of_stripes[variant.index, column.id] = self._read_stripe_statistics(variant, column)
        return self._of_stripes[variant.index, column.id]

    def _read_stripe_statistics(self, variant: Variant, column: OrcColumn) -> list[Message]:
        for stream in variant.stripe_statistics:
            if (stream.kind, stream.column) != (StreamKind.STRIPE_STATISTICS, column.id):
                continue
            if stream.length > MAX_ORC_FOOTER_BYTES:
                raise FormatError(f"statistics of more than {MAX_ORC_FOOTER_BYTES} bytes")
            data = bytes(self._source.read(stream.offset, stream.length))
            with opening(column):
                found = self._columns(variant, column.id, StreamKind.STRIPE_STATISTICS, data, _COLUMN_STATISTICS)
                if len(found) != len(self._tail.stripes):
                    raise FormatError(f"statistics of {len(found)} stripes")
            return found
        return []

    def _columns(self, variant: Variant, column: int, kind: int, data: bytes, field: int) -> list[Message]:
        stripe_id = len(self._tail.stripes) + 1
        opened = memoryview(ctr(self.footer_key(variant), column, kind, stripe_id, data))
        message = Message(self._tail.inflate(opened, MAX_ORC_FOOTER_BYTES))
        return [Message(one) for one in message.every(field)]

    def _check_counts(self, root: OrcColumn, found: list[Message]) -> None:
        for place, statistics in enumerate(found):
            column = self._tail.schema.columns[root.id + place]
            if column.kind in (OrcKind.LIST, OrcKind.MAP):
                break  # below it are more values than rows
            if statistics.number(_NUMBER_OF_VALUES) > self._tail.num_rows:
                raise FormatError("statistics of more values than rows")

    def _check(self, variant: Variant, master_key: str) -> None:
        """Each column is held to its own master keys: another one's local key, named for it, is refused."""
        if self._calls is None or (variant.index, master_key) in self._checked:
            return
        for leaf in self._tail.schema.leaves:
            if variant.root.id <= leaf.id <= variant.root.last:
                try:
                    self._calls.check(master_key, leaf.name)
                except BloomsealError as error:
                    self._tell(variant, error)
                    raise
        self._checked.add((variant.index, master_key))

    def _key(self, variant: Variant, encrypted: bytes) -> SecretKey:
        key = variant.key
        if self._decryption is not None and self._calls is None:
            self._calls = local_key_calls(self._decryption.keys)
        self._check(variant, key.name)
        name = (key.name, key.version, encrypted)
        with self._lock:
            held = self._opened.get(name)
        if held is None:
            try:
                held = self._ask(variant, encrypted)
            except BloomsealError as error:
                self._tell(variant, error)
                if not isinstance(error, KeyAccessError) or error.retryable:
                    raise
                held = error
            else:
                self._tell(variant)
            with self._lock:
                self._opened[name] = held
        if isinstance(held, KeyAccessError):
            raise copy(held)  # callers add their own place to it
        return held

    def _ask(self, variant: Variant, encrypted: bytes) -> SecretKey:
        if self._calls is None:
            raise KeyAccessError("no keys were given", column=variant.root.name, lacking=True, hint=Hint.KEYS)
        if variant.key.algorithm is None:
            raise UnsupportedError("the encryption algorithm is not known", column=variant.root.name)
        return self._calls.open(encrypted, variant.key.name, variant.key.version)

    def new_key(self, variant: Variant, master_key: str, version: int) -> tuple[SecretKey, bytes]:
        """A fresh local key for the variant under a version of a master key, and its encrypted form.

        Raises:
            KeyAccessError: the master key can't be had, or the KMS gives another key when it is asked again.
            PolicyError: it is not one that was agreed on.
        """
        assert variant.key.algorithm is not None  # noqa: S101  # its old key was opened before
        if self._calls is None:
            raise KeyAccessError("no keys were given", column=variant.root.name, hint=Hint.KEYS)
        # Any random bytes are the encrypted form of some key.
        encrypted = SecretKey.generate(8 * variant.key.algorithm.key_bytes).reveal()
        self._check(variant, master_key)
        key = self._calls.open(encrypted, master_key, version)
        self._calls.open_again(encrypted, master_key, version, key)
        if self._log is not None:
            self._log.say("seal", variant.root.name, master_key, str(version))
        return key, encrypted

    def version_of(self, number: int) -> str:
        """How the KMS calls a version of a master key that the file names."""
        return str(number) if self._calls is None else self._calls.version_of(number)

    def newest_version(self, master_key: str) -> int:
        """Of a master key. Raises KeyAccessError."""
        if self._calls is None:
            raise KeyAccessError("no keys were given", hint=Hint.KEYS)
        return self._calls.newest_version(master_key)

    def _tell(self, variant: Variant, error: BloomsealError | None = None) -> None:
        if self._log is not None:
            self._log.say("open", variant.root.name, variant.key.name, str(variant.key.version), None, error)

    @property
    def _encryption(self) -> Encryption:
        assert self._tail.encryption is not None  # noqa: S101
        return self._tail.encryption


@contextmanager
def opening(column: OrcColumn) -> Iterator[None]:
    """Whatever does not parse once it was opened: the key is wrong, or somebody altered the bytes."""
    try:
        yield
    except (FormatError, UnsupportedError) as error:
        raise IntegrityError(
            "an encrypted stream opens to nothing that makes sense: wrong key, or altered bytes",
            column=column.name,
            hint="check the master key and its version",
        ) from error
