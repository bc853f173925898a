"""An ORC file's facts. They need no key: an ORC file tells which columns are encrypted, and how, to everybody."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ....core.errors import BloomsealError
from ....core.storage.source import Source
from ....orc.asking.trust import known_wrong_filters, why_untrusted
from ....orc.encryption import EncryptionAlgorithm
from ....orc.filters import BloomFilter
from ....orc.index import StripeIndex
from ....orc.protobuf import Message, fields
from ....orc.schema import OrcColumn
from ....orc.streams import FILTER_KINDS, Stream, StreamKind
from ....orc.tail import MAGIC
from ....read.orc.file import OrcFile
from ....read.orc.inspect import writer_of
from ....storage.formats import Format
from ..keys import KeyFacts, Kms
from .file import ChunkFacts, FileFacts, FilterCheck, FilterFacts, Seen
from .gaps import gaps

_COLUMN_KEY: Final = 2
_UNKNOWN: Final = 3
_BOUNDS: Final = 1
_COUNTS: Final = 2
"""Bits of `ChunkFacts.exposed`, as `EXPOSED` names them."""
_BOUNDED: Final = range(2, 10)
"""Fields of ``ColumnStatistics`` that tell of values."""
_STATISTICS_LENGTH: Final = 7
"""Field of the postscript: how long the encrypted columns' statistics are, which stand in front of the metadata."""
_HASH_MASK: Final = "sha256"
_UNTOLD: Final = "nothing ties the key of an ORC column to the version that the file names"


def look_at_orc(facts: FileFacts, source: Source, kms: Kms, filters: FilterCheck) -> None:
    """Fill in the facts; a row group of the inventory is a stripe.

    Args:
        kms: names the versions of master keys.
        filters: how filters in clear are looked at.

    Raises:
        FormatError: the tail is broken.
    """
    file = OrcFile(source)
    facts.file_format, facts.authenticates = Format.ORC, False
    facts.footer, facts.aad_prefix = "plaintext", "none"
    facts.created_by = writer_of(file)
    facts.leaves = [(leaf.name, leaf.type_name) for leaf in file.schema.leaves]
    look = _Look(facts, file, kms, filters)
    for stripe in range(len(file.stripes)):
        look.stripe(stripe)
    if facts.algorithm is not None or kms.is_witness:
        covered = [(0, len(MAGIC))]
        covered += [(one.offset, one.index_length + one.data_length + one.footer_length) for one in file.stripes]
        end = file.tail.metadata[0] - Message(file.tail.raw_postscript).number(_STATISTICS_LENGTH)
        facts.gaps = gaps(source, covered, end, whole_files=True)  # the Java writer leaves bytes behind stripes


class _Look:
    """One file's columns, stripe by stripe."""

    def __init__(self, facts: FileFacts, file: OrcFile, kms: Kms, filters: FilterCheck) -> None:
        self._facts, self._file, self._filters = facts, file, filters
        self._kms = kms
        self._nulled: set[int] = set()
        self._keys: dict[int, int] = {}
        self._encryption()

    def _encryption(self) -> None:
        found = self._file.encryption
        if found is None:
            return
        facts = self._facts
        facts.keys.append(facts.keys[0])  # an ORC footer has no key
        for variant in found.variants:
            key, algorithm = variant.key, variant.key.algorithm
            digest = hashlib.sha256(variant.encrypted_key).hexdigest()[:16]
            version = self._kms.local_version(key.version)
            bits = None if algorithm is None else 8 * algorithm.key_bytes
            own = KeyFacts("orc", None, f"wrapped {digest}", bits, key.name, version, untold=_UNTOLD)
            own = replace(own, own_count=not self._kms.names_local_versions)
            facts.keys.append(self._kms.judged(own))
            for number in range(variant.root.id, variant.root.last + 1):
                self._keys.setdefault(number, len(facts.keys) - 1)
        names = {key.algorithm for key in found.keys}
        # Lengths differ by column: each key tells its own.
        if self._file.tail.sealed:
            facts.algorithm = _named(next(iter(names))) if len(names) == 1 else "AES_CTR"
        for mask in found.masks:
            below = {number for root in mask.columns for number in range(root.id, root.last + 1)}
            if mask.name == "nullify":
                self._nulled |= below
            elif mask.name == _HASH_MASK:
                facts.hash_masks += tuple(leaf.name for leaf in self._file.schema.leaves if leaf.id in below)

    def stripe(self, number: int) -> None:
        """All columns of one stripe."""
        try:
            streams = self._file.index(number)
        except BloomsealError as error:
            self._facts.failed(error.at(row_group=number))
            return
        for place, leaf in enumerate(self._file.schema.leaves):
            why = why_untrusted(leaf, StreamKind.BLOOM_FILTER_UTF8, self._file.tail, streams.writer_timezone)
            if why is not None and leaf.name not in self._facts.unbelieved:
                self._facts.unbelieved += (leaf.name,)
            chunk = self._chunk(streams, number, place, leaf)
            self._facts.chunks.append(chunk)
            if chunk.filter != Seen.NONE and (known := known_wrong_filters(leaf, self._file.tail)) is not None:
                self._facts.untrusted_filters[leaf.name] = str(known)
            if (stream := streams.filter_stream(leaf.id)) is None:
                continue
            try:
                if leaf.id in self._file.tail.encrypted:
                    self._clear(chunk, streams, stream, leaf)
                elif self._filters:
                    chunk.bloom = self._judged(streams, stream, number, leaf)
            except BloomsealError as error:
                chunk.bloom = FilterFacts(error=error.what)

    def _chunk(self, streams: StripeIndex, stripe: int, place: int, leaf: OrcColumn) -> ChunkFacts:
        encrypted = leaf.id in self._file.tail.encrypted
        key = self._keys.get(leaf.id, 0)
        chunk = ChunkFacts(stripe, place, (_COLUMN_KEY if key else _UNKNOWN) if encrypted else 0, key)
        own = [one for one in streams.streams if one.column == leaf.id]
        chunk.size = sum(one.length for one in own if not one.is_index)
        clear = streams.filter_stream(leaf.id)
        sealed = _sealed(streams, leaf)
        if (stream := clear or sealed) is not None:
            chunk.filter = Seen.CLEAR if clear is not None else Seen.SEALED
            chunk.filter_offset, chunk.filter_length = stream.offset, stream.length
        statistics = self._clear_statistics(stripe, leaf)
        chunk.values = self._file.stripes[stripe].num_rows
        chunk.bounds = not encrypted and statistics is not None and any(field in statistics for field in _BOUNDED)
        if encrypted and leaf.id in self._nulled and statistics is not None and statistics.number(1):
            # Whoever masks by null has no value to count: these are of the true ones.
            chunk.exposed = _BOUNDS if any(field in statistics for field in _BOUNDED) else _COUNTS
        chunk.modules = len([one for one in own if one.variant is not None])
        chunk.pages_counted = True
        return chunk

    def _clear_statistics(self, stripe: int, leaf: OrcColumn) -> Message | None:
        try:
            found = self._file.tail.stripe_statistics
            columns = found[stripe].every(1) if found else []
            return Message(columns[leaf.id]) if leaf.id < len(columns) else None
        except BloomsealError as error:
            self._facts.failed(error)
            return None

    def _clear(self, chunk: ChunkFacts, streams: StripeIndex, stream: Stream, leaf: OrcColumn) -> None:
        """Filters in clear on an encrypted column. One per row group, beside sealed ones, is over masked values."""
        count = sum(number == 1 for number, _ in fields(streams.inflated(stream)))
        groups = streams.stripe.num_row_groups
        sealed = _sealed(streams, leaf)
        if sealed is not None and count == groups:
            chunk.filter, chunk.filter_offset, chunk.filter_length = Seen.SEALED, sealed.offset, sealed.length
        else:
            kind = f"{StreamKind(stream.kind).name}, {count} entries for {groups} row groups"
            chunk.bloom = FilterFacts(kind=kind)

    def _judged(self, streams: StripeIndex, stream: Stream, stripe: int, leaf: OrcColumn) -> FilterFacts:
        filters = streams.filters(stream)
        bloom = FilterFacts(kind=StreamKind(stream.kind).name)
        bloom.num_bytes = sum(len(one.bitset) for one in filters)
        bloom.fill = max(map(_fill, filters))
        bloom.fpp = max(_fill(one) ** one.num_hashes for one in filters)
        bloom.ndv = sum(map(_distinct, filters))
        bloom.unasked = self._file.why_untrusted(leaf, stream, streams)
        known = streams.bounds(leaf.id)
        if bloom.unasked is None:
            bloom.empty = known is not None and any(
                one.is_empty and not said.only_nulls for one, said in zip(filters, known, strict=True)
            )
            if self._filters is FilterCheck.VALUES:
                self._hold_against_values(bloom, filters, stripe, leaf)
        return bloom

    def _hold_against_values(
        self, bloom: FilterFacts, filters: Sequence[BloomFilter], stripe: int, leaf: OrcColumn
    ) -> None:
        try:
            truths = self._file.held_against_values(stripe, leaf, filters)
        except BloomsealError as error:
            bloom.unasked = f"its column's values can't be told: {error.what}"
            return
        bloom.unasked = next((one.unasked for one in truths if one.unasked is not None), None)
        bloom.values = sum(one.values for one in truths)
        bloom.denied = sum(one.denied for one in truths)


def _sealed(streams: StripeIndex, leaf: OrcColumn) -> Stream | None:
    """A filter stream under the column's local key."""
    found = (one for one in streams.streams if one.column == leaf.id and one.variant is not None)
    return next((one for one in found if one.kind in FILTER_KINDS), None)


def _fill(one: BloomFilter) -> float:
    return int.from_bytes(one.bitset.tobytes(), "little").bit_count() / one.num_bits


def _distinct(one: BloomFilter) -> int:
    """About how many values it holds, by its share of bits set."""
    fill = min(_fill(one), 1 - 1 / one.num_bits)
    return round(-one.num_bits / one.num_hashes * math.log1p(-fill))


def _named(algorithm: EncryptionAlgorithm | None) -> str:
    return "unknown" if algorithm is None else algorithm.name
