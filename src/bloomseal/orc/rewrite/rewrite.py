"""One rewrite of a file: streams copied, opened and sealed anew, or added; stripe footers and tail to match.

The one rule of AES-CTR, *no key and IV for two different streams*, is held by making new local keys: whatever variant
gets a stream that it did not have, has all its streams sealed anew. So two rewrites of one file, or a rewrite and the
old file, share no keystream.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from ...core.decryption import DecryptionSpec
from ...core.encryption import SecretKey
from ...core.errors import BloomsealError, FormatError, IntegrityError, UnsupportedError, UsageError
from ...core.storage.source import Source
from ...storage.atomic import AtomicFile, fault_point
from ..asking.trust import why_untrusted
from ..chunks import deflate
from ..encryption import Variant, number_of
from ..filters import parsed_filter
from ..index import StripeIndex
from ..keys import ctr
from ..layout import OrcLayout
from ..protobuf import Message, encoded, without
from ..rows.clear import stream_entry, tail_bytes
from ..streams import FILTER_KINDS, Stream, StreamKind
from ..tail import MAGIC, Stripe
from .build import I64, Size, Wish, all_in, entry, filled, leaf_values, value_hashes
from .report import OrcRewriteReport

Progress = Callable[[int, int], None]
_DEFAULT_FPP = 0.01


class _NewStream(NamedTuple):
    """A stream of the new file.

    Attributes:
        old: where its bytes come from; None: `data` has them, still in clear.
    """

    kind: int
    column: int
    variant: int | None
    length: int
    old: Stream | None
    data: bytes = b""

    @property
    def is_index(self) -> bool:
        return Stream(self.kind, self.column, 0, 0).is_index


@dataclass
class _Keys:
    """The new local keys: of each run of stripes whose ids ascend, and of the statistics."""

    of_stripe: list[dict[int, SecretKey]] = field(default_factory=list)
    encrypted: list[tuple[bytes, ...]] = field(default_factory=list)
    of_statistics: dict[int, tuple[SecretKey, bytes]] = field(default_factory=dict)


class Rewriting:
    """One file on its way to a new one.

    Args:
        wishes: id of a leaf → its filters.
        fresh: variants that get new local keys; all that `wishes` name must be among them.
        versions: master key → the one, and its version, that takes its place; every variant of it must be in `fresh`.
    """

    def __init__(
        self,
        file: OrcLayout,
        wishes: Mapping[int, Wish],
        fresh: Mapping[int, Variant],
        versions: Mapping[str, tuple[str, int]],
        report: OrcRewriteReport,
    ) -> None:
        self._file, self._wishes, self._fresh, self._versions = file, wishes, fresh, versions
        self.report = report
        self._out: AtomicFile | None = None
        self._at = 0
        self._digests: list[bytes] = []
        self._true: dict[tuple[int, int], list[I64]] = {}
        self._left_out: set[tuple[int, int]] = set()

    def run(self, out: AtomicFile | None, progress: Progress | None) -> OrcRewriteReport:
        """Write the new file; to nowhere, where `out` is None."""
        self._out, self._at = out, 0
        self._write(MAGIC)
        keys = self._new_keys()
        stripes = []
        for stripe in self._file.stripes:
            try:
                stripes.append(self._stripe(stripe, keys))
            except BloomsealError as error:
                raise error.at(file=self._file.path, module=stripe.place) from error.__cause__
            if progress is not None:
                progress(stripe.index + 1, len(self._file.stripes))
            fault_point(f"stripe {stripe.index}")
        self._finish(stripes, keys)
        self.report.new_size = self._at
        return self.report

    def ask(self) -> OrcRewriteReport:
        """Ask for the new local keys, and for no more."""
        self._new_keys()
        return self.report

    def _write(self, data: bytes | memoryview) -> None:
        self._at += len(data)
        if self._out is not None:
            self._out.write(data)

    # Keys

    def _new_key(self, variant: Variant) -> tuple[SecretKey, bytes]:
        now = self._versions.get(variant.key.name, (variant.key.name, variant.key.version))
        return self._file.keys.new_key(variant, *now)

    def _new_keys(self) -> _Keys:
        made = _Keys()
        for number, variant in self._fresh.items():
            made.of_statistics[number] = self._new_key(variant)
        run: dict[int, tuple[SecretKey, bytes]] = {}
        before: Stripe | None = None
        for stripe in self._file.stripes:
            if (
                before is None
                or stripe.encrypted_keys != before.encrypted_keys
                or stripe.encrypt_id <= before.encrypt_id
            ):
                # In a merged file ids begin again: one key for both runs would seal two streams alike.
                run = {one: self._new_key(variant) for one, variant in self._fresh.items()}
            before = stripe
            made.of_stripe.append({one: key for one, (key, _) in run.items()})
            if self._fresh and not stripe.encrypted_keys:
                raise FormatError("a stripe without local keys: corrupt", file=self._file.path, module=stripe.place)
            encrypted = list(stripe.encrypted_keys)
            for one, (_, sealed) in run.items():
                encrypted[one] = sealed
            made.encrypted.append(tuple(encrypted))
        return made

    # A stripe

    def _stripe(self, stripe: Stripe, keys: _Keys) -> bytes:
        """Write it; its ``StripeInformation``."""
        index = self._file.index(stripe.index)
        parts = self._parts(index)
        self._true.clear()
        order = sorted(parts, key=lambda part: (not part.is_index, -1 if part.variant is None else part.variant))
        start = self._at
        new = keys.of_stripe[stripe.index]
        for part in order:
            self._write(self._sealed(part, index, new, stripe))
        lengths = [sum(part.length for part in order if part.is_index is one) for one in (True, False)]
        footer = deflate(self._footer(index, order), self._file.tail.compression, self._file.tail.block_size)
        self._write(footer)
        raw = Message(self._file.tail.raw_footer).every(3)[stripe.index]
        made = encoded(1, start) + encoded(2, lengths[0]) + encoded(3, lengths[1]) + encoded(4, len(footer))
        made += without(raw, (1, 2, 3, 4, 6, 7))
        if self._file.encryption is not None:
            before = keys.encrypted[stripe.index - 1] if stripe.index else ()
            made += encoded(6, stripe.encrypt_id)
            if keys.encrypted[stripe.index] != before:
                made += b"".join(encoded(7, one) for one in keys.encrypted[stripe.index])
        return made

    def _sealed(self, part: _NewStream, index: StripeIndex, new: Mapping[int, SecretKey], stripe: Stripe) -> bytes:
        """A part as it lies in the new file."""
        data: bytes | memoryview = part.data
        if part.old is not None:
            if part.variant in self._fresh:
                data = index.read(part.old)
            else:
                data = memoryview(self._file.source.read(part.old.offset, part.length))
        self._digests.append(hashlib.sha256(data).digest())
        if part.variant is None or part.variant not in new:
            return bytes(data)
        return ctr(new[part.variant], part.column, part.kind, stripe.encrypt_id, data)

    def _parts(self, index: StripeIndex) -> list[_NewStream]:
        made = {column: self._made_or_none(wish, index) for column, wish in self._wishes.items()}
        parts: list[_NewStream] = []
        for stream in index.streams:
            wish = self._wishes.get(stream.column)
            if wish is not None and stream.kind in FILTER_KINDS:
                own = number_of(wish.variant)
                if stream.variant == own:
                    self.report.replaced += 1
                    continue
                if stream.variant is None:
                    parts += self._masked(stream, index, wish)
                    continue
            parts.append(_NewStream(stream.kind, stream.column, stream.variant, stream.length, stream))
            if wish is not None and stream.kind == StreamKind.ROW_INDEX:
                own = number_of(wish.variant)
                if stream.variant == own:
                    # Beside the row index, so that one request reads both.
                    parts += made.pop(stream.column)
        if any(made.values()) and index.stripe.num_row_groups:
            names = [self._wishes[column].leaf.name for column, part in made.items() if part]
            raise UsageError("a column without row index can't have filters", column=names[0])
        return parts

    def _made_or_none(self, wish: Wish, index: StripeIndex) -> list[_NewStream]:
        if wish.required:
            return [self._made(wish, index)]
        why = why_untrusted(wish.leaf, StreamKind.BLOOM_FILTER_UTF8, self._file.tail, index.writer_timezone)
        try:
            if why is None:
                return [self._made(wish, index)]
        except UnsupportedError as error:
            why = error.what
        self._true.pop((index.stripe.index, wish.leaf.id), None)
        self._left_out.add((index.stripe.index, wish.leaf.id))
        self.report.left_out.append({"column": wish.leaf.name, "stripe": index.stripe.index, "why": why})
        return []

    def _made(self, wish: Wish, index: StripeIndex) -> _NewStream:
        stripe, leaf, tail = index.stripe, wish.leaf, self._file.tail
        size = self._size(wish, index)
        rows = self._file.rows(stripe.index, [leaf.name])
        way = tail.schema.down_to(leaf.id)
        entries = []
        for first, end in self._file.row_spans(stripe.index):
            try:
                values = leaf_values(rows.slice(first, end - first), way)
                hashes = value_hashes(values, leaf, index.writer_timezone, hybrid=tail.hybrid_calendar)
            except pa.ArrowException as error:
                what = f"filters over {leaf.type_name} values can't be built: {type(error).__name__}"
                raise UnsupportedError(what, column=leaf.name) from error
            entries.append(entry(size.num_hashes, filled(hashes, size)))
            if wish.variant is not None:
                self._true.setdefault((stripe.index, leaf.id), []).append(hashes)
        self.report.add(leaf.name, stripe.index, len(entries), size.num_bits // 8, wish.variant is not None)
        data = deflate(b"".join(entries), tail.compression, tail.block_size)
        own = number_of(wish.variant)
        return _NewStream(StreamKind.BLOOM_FILTER_UTF8, leaf.id, own, len(data), None, data)

    def _size(self, wish: Wish, index: StripeIndex) -> Size:
        stripe = index.stripe
        entries = min(self._file.tail.row_index_stride or stripe.num_rows, stripe.num_rows)
        if wish.fpp is not None:
            return Size.of(entries, wish.fpp)
        for variant in (None, number_of(wish.variant)):
            stream = index.filter_stream(wish.leaf.id, variant)
            if stream is None:
                continue
            old = index.masked_entries(stream) if variant is None and wish.variant is not None else None
            known = parsed_filter(old[0]) if old else None
            if known is None and (variant is not None or wish.variant is None):
                found = index.filters(stream)
                known = found[0] if found else None
            if known is not None:
                return Size(known.num_bits, known.num_hashes)
        return Size.of(entries, _DEFAULT_FPP)

    def _masked(self, stream: Stream, index: StripeIndex, wish: Wish) -> list[_NewStream]:
        """What stays of a clear filter stream on an encrypted column: that over masked values, if anything."""
        own = number_of(wish.variant)
        doubled = index.masked_entries(stream)
        beside = doubled is None and index.filter_stream(wish.leaf.id, own) is not None
        self.report.clear_filters += not beside
        true = self._true.get((index.stripe.index, wish.leaf.id))
        told_apart = stream.kind == StreamKind.BLOOM_FILTER_UTF8 and (doubled or beside)
        if true is None or wish.drop_masked or not told_apart:
            return []
        masked = index.entries(stream) if doubled is None else doubled
        for one, hashes in zip(map(parsed_filter, masked), true, strict=True):
            if len(hashes) and all_in(hashes, one.num_hashes, one.bitset):
                # It tells the true values, whatever the writer meant by it.
                return []
        self.report.masked_kept += 1
        tail = self._file.tail
        data = deflate(b"".join(encoded(1, one) for one in masked), tail.compression, tail.block_size)
        return [_NewStream(stream.kind, stream.column, None, len(data), None, data)]

    def _footer(self, index: StripeIndex, parts: list[_NewStream]) -> bytes:
        """The stripe footer, not compressed."""
        made = bytearray()
        for is_index, hole in ((True, StreamKind.ENCRYPTED_INDEX), (False, StreamKind.ENCRYPTED_DATA)):
            area = [part for part in parts if part.is_index is is_index]
            for part in area:
                if part.variant is None:
                    made += encoded(1, stream_entry(part.kind, part.column, part.length))
            if sealed := sum(part.length for part in area if part.variant is not None):
                made += encoded(1, encoded(1, hole) + encoded(2, 0) + encoded(3, sealed))
        filtered = {wish.leaf.id for wish in self._wishes.values() if wish.variant is None}
        for column, encoding in enumerate(index.footer.every(2)):
            made += encoded(2, _with_filter(encoding) if column in filtered else encoding)
        made += without(index.raw_footer, (1, 2, 4))
        for number, raw in enumerate(index.footer.every(4)):
            made += encoded(4, self._variant_footer(number, raw, parts))
        return bytes(made)

    def _variant_footer(self, number: int, raw: memoryview, parts: list[_NewStream]) -> bytes:
        own = [part for part in parts if part.variant == number]
        streams = [encoded(1, stream_entry(part.kind, part.column, part.length)) for part in own]
        wishes = [one for one in self._wishes.values() if one.variant is not None and one.variant.index == number]
        filtered = {one.leaf.id - one.variant.root.id for one in wishes if one.variant is not None}
        encodings = [
            encoded(2, _with_filter(one) if place in filtered else one)
            for place, one in enumerate(Message(raw).every(2))
        ]
        return b"".join((*streams, *encodings, without(raw, (1, 2))))

    # The tail

    def _finish(self, stripes: list[bytes], keys: _Keys) -> None:
        tail, content = self._file.tail, self._at
        encryption = tail.encryption
        ids = len(self._file.stripes) + 1
        for variant in encryption.variants if encryption else ():
            for stream in variant.stripe_statistics:
                data: bytes | memoryview = memoryview(self._file.source.read(stream.offset, stream.length))
                if variant.index in self._fresh:
                    data = self._resealed(variant, stream.column, stream.kind, ids, data, keys)
                self._write(data)
        statistics = self._at - content
        metadata = bytes(self._file.source.read(*tail.metadata))
        self._write(metadata)
        footer = without(tail.raw_footer, (2, 3, 10)) + encoded(2, content)
        footer += b"".join(encoded(3, one) for one in stripes)
        if encryption is not None:
            footer += encoded(10, self._encryption(keys, ids))
        self._write(tail_bytes(tail, len(metadata), statistics, footer))

    def _resealed(
        self, variant: Variant, column: int, kind: int, ids: int, data: bytes | memoryview, keys: _Keys
    ) -> bytes:
        opened = ctr(self._file.keys.footer_key(variant), column, kind, ids, data)
        return ctr(keys.of_statistics[variant.index][0], column, kind, ids, opened)

    def _encryption(self, keys: _Keys, ids: int) -> bytes:
        section = Message(self._file.tail.raw_footer).bytes(10)
        message, encryption = Message(section), self._file.encryption
        assert encryption is not None  # noqa: S101
        made = bytearray(without(section, (2, 3)))
        for key, raw in zip(encryption.keys, message.every(2), strict=True):
            name, version = self._versions.get(key.name, (key.name, key.version))
            made += encoded(2, without(raw, (1, 2)) + encoded(1, name.encode()) + encoded(2, version))
        for variant, raw in zip(encryption.variants, message.every(3), strict=True):
            if variant.index in self._fresh:
                kind = StreamKind.FILE_STATISTICS
                sealed = self._resealed(variant, variant.root.id, kind, ids, variant.file_statistics, keys)
                own = encoded(3, keys.of_statistics[variant.index][1]) + encoded(5, sealed)
                made += encoded(3, without(raw, (3, 5)) + own)
            else:
                made += encoded(3, raw)
        return bytes(made)

    # The check

    def check(self, reopened: Source, decryption: DecryptionSpec | None) -> None:
        """Before the new file takes the old one's name: each stream opens to what it was, and filters parse.

        Raises:
            IntegrityError: it does not.
        """
        new, digests = OrcLayout(reopened, decryption), iter(self._digests)
        for stripe in new.stripes:
            index = new.index(stripe.index)
            for leaf in new.schema.leaves:
                # Readers hold a stripe's new key to its row indexes; they need not have, as long as it was the old one.
                if (variant := new.keys.variant_or_none(leaf)) is not None and variant.index in self._fresh:
                    index.bounds(leaf.id, variant.index)
            for stream in index.streams:
                raw = memoryview(reopened.read(stream.offset, stream.length))
                data = index.read(stream) if stream.variant in self._fresh else raw
                if next(digests, None) != hashlib.sha256(data).digest():
                    raise IntegrityError("the new file's streams are not those that were written", file=new.path)
            for wish in self._wishes.values():
                stream_ = index.filter_stream(wish.leaf.id, number_of(wish.variant))
                left_out = (stripe.index, wish.leaf.id) in self._left_out
                if stream_ is None and stripe.num_row_groups and not left_out:
                    raise FormatError("the new file lacks a filter", file=new.path, column=wish.leaf.name)
                if stream_ is not None:
                    index.filters(stream_)
        for number in self._fresh:
            assert new.encryption is not None  # noqa: S101
            new.keys.statistics(new.encryption.variants[number])
        if next(digests, None) is not None or new.num_rows != self._file.num_rows:
            raise IntegrityError("the new file is not what was written", file=new.path)


def _with_filter(encoding: memoryview) -> bytes:
    """A ``ColumnEncoding`` that says: filters hash as writers do today (``bloomEncoding``: UTF8_UTC)."""
    return without(encoding, (3,)) + encoded(3, 1)
