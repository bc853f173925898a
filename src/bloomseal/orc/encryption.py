"""What a footer says of encrypted columns: keys, masks, variants (ORC specification, "Column Encryption").

Nothing here needs a key, and nobody authenticates a word of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

from ..core.errors import FormatError
from ..core.limits import MAX_LIST_ELEMENTS
from .protobuf import Message
from .schema import OrcColumn, OrcSchema

_PROVIDERS: Final = ("unknown", "hadoop", "aws", "gcp", "azure")


class EncryptionAlgorithm(IntEnum):
    """The values are those of the enum ``EncryptionAlgorithm``."""

    AES_CTR_128 = 1
    AES_CTR_256 = 2

    @property
    def key_bytes(self) -> int:
        """Length of a local key, and of the encrypted one that the file holds."""
        return 16 if self is EncryptionAlgorithm.AES_CTR_128 else 32


@dataclass(frozen=True, slots=True)
class EncryptionKey:
    """A version of a master key.

    Attributes:
        algorithm: None for one that is younger than this code; such columns can't be opened.
    """

    name: str
    version: int
    algorithm: EncryptionAlgorithm | None


@dataclass(frozen=True, slots=True)
class Mask:
    """What readers without a key see of these columns: ``nullify``, ``redact``, ``sha256``, or a writer's own."""

    name: str
    parameters: tuple[str, ...]
    columns: tuple[OrcColumn, ...]


@dataclass(frozen=True, slots=True)
class StatisticsStream:
    """Encrypted statistics of one column, over all stripes; in bytes of the file."""

    kind: int
    column: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Variant:
    """A column, with all below it, under a key.

    Attributes:
        index: from 0; local keys of stripes are in this order.
        root: the column.
        encrypted_key: the local key of the statistics, encrypted.
        stripe_statistics: where those of the stripes lie.
        file_statistics: those of the file, encrypted.
    """

    index: int
    root: OrcColumn
    key: EncryptionKey
    encrypted_key: bytes = field(repr=False)
    stripe_statistics: tuple[StatisticsStream, ...] = field(repr=False)
    file_statistics: bytes = field(repr=False)


def number_of(variant: Variant | None) -> int | None:
    """Its place in the file's list; None for a column in clear."""
    return None if variant is None else variant.index


@dataclass(frozen=True, slots=True)
class Encryption:
    """The encryption of a file.

    Attributes:
        provider: the kind of KMS: ``hadoop``, ``aws``, ``gcp``, ``azure`` or ``unknown``.
        columns: ids of the columns that are encrypted or masked for some reader.
    """

    provider: str
    keys: tuple[EncryptionKey, ...]
    masks: tuple[Mask, ...]
    variants: tuple[Variant, ...]
    columns: frozenset[int] = field(repr=False)
    _of_column: dict[int, list[Variant]] = field(repr=False)

    def variants_of(self, column: int) -> list[Variant]:
        """Those that hold the column, in the order in which readers try them."""
        return self._of_column.get(column, [])

    def to_dict(self) -> dict[str, Any]:
        """As plain data, for reports."""
        return {
            "provider": self.provider,
            "keys": [
                {"name": key.name, "version": key.version, "algorithm": key.algorithm.name if key.algorithm else None}
                for key in self.keys
            ],
            "masks": [
                {"name": one.name, "parameters": list(one.parameters), "columns": [c.name for c in one.columns]}
                for one in self.masks
            ],
            "variants": [
                {"column": one.root.name, "key": one.key.name, "version": one.key.version} for one in self.variants
            ],
        }


def read_encryption(section: Message, schema: OrcSchema, statistics: tuple[int, int]) -> Encryption:
    """Take the footer's encryption section apart.

    Args:
        statistics: where encrypted stripe statistics begin and end, in the file.

    Raises:
        FormatError: a column or key that is not there, local keys of the wrong length, statistics outside their place.
    """
    keys = tuple(_key(Message(one)) for one in section.every(2))
    masks: list[Mask] = []
    count = 0
    for one in section.every(1):
        masks.append(_mask(Message(one), schema))
        count += len(masks[-1].columns)
        if count > MAX_LIST_ELEMENTS:
            raise FormatError(f"more than {MAX_LIST_ELEMENTS} masked columns")
    variants: list[Variant] = []
    at, end = statistics
    for index, message in enumerate(map(Message, section.every(3))):
        streams = []
        for stream in map(Message, message.every(4)):
            streams.append(StatisticsStream(stream.number(1), stream.number(2), at, stream.number(3)))
            at += streams[-1].length
        if at > end:
            raise FormatError("encrypted statistics reach outside their place: truncated or corrupt")
        number = message.number(2)
        if number >= len(keys):
            raise FormatError(f"an encrypted column under key {number}, of {len(keys)}: corrupt")
        encrypted = bytes(message.bytes(3))
        check_length(encrypted, keys[number])
        root = _column(schema, message.number(1))
        variants.append(Variant(index, root, keys[number], encrypted, tuple(streams), bytes(message.bytes(5))))
    provider = section.number(4)
    masked = _ids([column for mask in masks for column in mask.columns])
    sealed = _ids([variant.root for variant in variants])
    of_column: dict[int, list[Variant]] = {}
    for variant in variants:
        for column in range(variant.root.id, variant.root.last + 1):
            of_column.setdefault(column, []).append(variant)
    name = _PROVIDERS[provider] if provider < len(_PROVIDERS) else "unknown"
    return Encryption(name, keys, tuple(masks), tuple(variants), masked | sealed, of_column)


def _ids(roots: list[OrcColumn]) -> frozenset[int]:
    if sum(root.last - root.id + 1 for root in roots) > MAX_LIST_ELEMENTS:
        # Few bytes could else name the same great column again and again.
        raise FormatError(f"more than {MAX_LIST_ELEMENTS} encrypted columns")
    return frozenset(number for root in roots for number in range(root.id, root.last + 1))


def check_length(encrypted: bytes, key: EncryptionKey) -> None:
    """An encrypted local key is as long as the algorithm's keys.

    Raises:
        FormatError: it is not.
    """
    if key.algorithm is not None and len(encrypted) != key.algorithm.key_bytes:
        raise FormatError(f"a local key of {len(encrypted)} bytes under {key.algorithm.name}: corrupt")


def _key(message: Message) -> EncryptionKey:
    number = message.number(3)
    known = number in EncryptionAlgorithm.__members__.values()
    return EncryptionKey(message.text(1), message.number(2), EncryptionAlgorithm(number) if known else None)


def _mask(message: Message, schema: OrcSchema) -> Mask:
    parameters = tuple(bytes(one).decode("utf-8", "replace") for one in message.every(2))
    return Mask(message.text(1), parameters, tuple(_column(schema, number) for number in message.numbers(3)))


def _column(schema: OrcSchema, number: int) -> OrcColumn:
    if number >= len(schema.columns):
        raise FormatError(f"column {number} is encrypted, of {len(schema.columns)}: corrupt")
    return schema.columns[number]
