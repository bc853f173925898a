"""What a scan finds out about one file."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from typing import Final

from ....core.errors import BloomsealError
from ....core.storage.ref import FileRef
from ....keytools.signatures.envelope import Authorship
from ..keys import KeyFacts, SidecarView
from .gaps import Gap

_NO_KEY: Final = KeyFacts()
PROTECTIONS: Final = ("plaintext", "footer key", "column key", "unknown")


class Seen(IntEnum):
    """How a filter or an index stands in the file."""

    NONE = 0
    CLEAR = 1
    SEALED = 2
    HIDDEN = 3


SEEN: Final = ("none", "in clear", "sealed", "not visible")


class FilterCheck(IntEnum):
    """How filters are looked at: left closed; opened, and their bits judged, which needs no key for those in clear; or
    also asked for every value of their own column chunks, whose pages are read for that.
    """

    NONE = 0
    BITS = 1
    VALUES = 2


@dataclass(slots=True)
class FilterFacts:
    """An opened filter: whether it authenticated, its bytes, share of bits set, exact false positive probability,
    likely number of distinct values; all bits zero though the chunk has values; and why it could not be had. Where it
    was asked for every value of its own chunk: how many those were, how many it denied, or why it could not be asked.
    """

    authentic: bool | None = None
    num_bytes: int | None = None
    fill: float | None = None
    fpp: float | None = None
    ndv: int | None = None
    empty: bool | None = None
    kind: str | None = None
    error: str | None = None
    values: int | None = None
    denied: int | None = None
    unasked: str | None = None


@dataclass(frozen=True, slots=True)
class Broken:
    """A module that `verify` fails on: where it is, and why."""

    row_group: int
    column: str | None
    module: str | None
    what: str


@dataclass(slots=True)
class ChunkFacts:
    """One column chunk. Offsets and sizes in bytes; None is what can't be seen. `bounds`: of a plaintext column the
    smallest or greatest value stands in clear.
    """

    row_group: int
    leaf: int
    protection: int
    key: int
    values: int | None = None
    size: int | None = None
    exposed: int = 0
    bounds: bool = False
    filter: int = Seen.NONE
    filter_offset: int | None = None
    filter_length: int | None = None
    column_index: int = Seen.NONE
    offset_index: int = Seen.NONE
    modules: int = 0
    pages_counted: bool = False
    error: str | None = None
    bloom: FilterFacts | None = None


@dataclass(slots=True)
class FileFacts:
    """One file.

    Attributes:
        footer: ``plaintext``, ``signed`` or ``encrypted``; None where it could not be read.
        footer_verified: None where no key was at hand to do it.
        aad_prefix: ``none``, ``stored`` or ``supplied``.
        file_id: aad_file_unique in hexadecimal; a copy of a file has the same one.
        error: why the file, or a part of it, could not be looked at.
        hidden: what could not be seen for want of a key.
        keys: the data keys, `ChunkFacts.key` being an index; entry 0 stands for no key, 1 for the footer's.
        leaves: dotted path and type of each column.
        sidecar: entries of the external key material, and which of them the file uses.
        strays: offset and size of filters in clear that no readable metadata names; found by reading the whole file.
        all_sealed: but for the strays, the file holds sealed modules only, so that none of them is a plaintext
            column's.
        broken: modules that fail to open, where the whole file was read.
        file_format: ``Parquet`` or ``ORC``. Of an ORC file a row group is a stripe, and entry 1 of `keys` is entry 0.
        authenticates: whether encryption of the format authenticates: footers, modules and their places.
        hash_masks: columns of an ORC file of whose values readers without a key see hashes.
        untrusted_filters: column of an ORC file → why its filters, of a writer known to be wrong, prove nothing.
        unbelieved: columns of an ORC file on which nobody would believe a filter, so that none can be attached.
        copies: sealed column, column in clear → row groups in which both hold the same values, where the whole file
            was read.
        gaps: bytes that no module covers; None where not all modules' places could be seen.
        authorship: who signed the file, or why nobody is believed to have, where a policy names signers.
        patterns: plaintext column → what its smallest and greatest values look like, where that is personal.
    """

    ref: FileRef
    size: int | None = None
    modified: datetime | None = None
    created_by: str | None = None
    footer: str | None = None
    footer_verified: bool | None = None
    algorithm: str | None = None
    aad_prefix: str | None = None
    aad_prefix_text: str | None = None
    file_id: str | None = None
    error: str | None = None
    hidden: tuple[str, ...] = ()
    keys: list[KeyFacts] = field(default_factory=lambda: [_NO_KEY])
    leaves: list[tuple[str, str]] = field(default_factory=list)
    chunks: list[ChunkFacts] = field(default_factory=list)
    sidecar: SidecarView | None = None
    strays: tuple[tuple[int, int], ...] = ()
    all_sealed: bool = False
    broken: tuple[Broken, ...] = ()
    file_format: str = "Parquet"
    authenticates: bool = True
    hash_masks: tuple[str, ...] = ()
    untrusted_filters: dict[str, str] = field(default_factory=dict)
    unbelieved: tuple[str, ...] = ()
    copies: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    gaps: tuple[Gap, ...] | None = None
    patterns: dict[str, str] = field(default_factory=dict)
    authorship: Authorship | None = None

    @property
    def path(self) -> str:
        return self.ref.path

    def failed(self, error: BloomsealError) -> None:
        """Keep the first failure."""
        if self.error is None:
            self.error = error.what
