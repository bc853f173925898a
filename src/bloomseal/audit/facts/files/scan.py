"""One file's facts: what anybody sees of it, and what the keys at hand add. A file that can't be read is a fact too."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from ....core.errors import BloomsealError, FormatError, IntegrityError, KeyAccessError, UnsupportedError
from ....core.keys.explicit import ExplicitKeys
from ....core.keys.protocols import KeySource
from ....core.limits import MAX_GCM_SEALS
from ....core.parquet.expectation import Expectation
from ....core.parquet.footer import FileCrypto, Footer, FooterKind, Peek, peek
from ....core.parquet.keys_at_hand import KeysAtHand, authenticated
from ....core.parquet.layout import MAGIC
from ....core.parquet.schema import Schema
from ....core.parquet.walk import Chunk, Walk, extent
from ....core.storage.ref import FileRef
from ....core.storage.source import Source
from ....core.thrift.structs import decode
from ....keytools import KmsAccessError
from ....keytools.access_log import AccessLog
from ....keytools.sources import as_key_source
from ....policy.personal import by_bounds
from ....storage.formats import Format, format_of
from ....storage.places import open_source
from ..keys import Impatient, KeyFacts, Kms, SidecarView
from .file import ChunkFacts, FileFacts, FilterCheck, Seen
from .filters import filter_facts
from .gaps import filter_length, gaps
from .raw_scan import is_filter_header, is_sealed, read_all
from .views import AuditChunk, AuditGroup, AuditMeta, exposed

if TYPE_CHECKING:
    from ....storage.logs.iceberg_keys import IcebergFileKey

__all__ = ["Scanner"]

_HEADER_BYTES: Final = 256
_SMALL_LISTS: Final = 4096


class Scanner:
    """Looks at files.

    Args:
        keys: where keys come from; None to look at what everybody sees.
        kms: what can be asked about master keys.
        prefixes: the AAD prefixes that a file should have, as far as known.
        access_log: the access log for a file (`AccessLog`).
        filters: how filters are looked at; None: by their bits, where there are keys.
        visit: called with each file's walk while it is open (the nonce check).
        of_manifests: path → the key that an Iceberg table's manifest gives the file, and the facts of it.
    """

    def __init__(
        self,
        keys: KeySource | None = None,
        kms: Kms | None = None,
        *,
        prefixes: Callable[[FileRef], tuple[bytes, ...]] = lambda _: (),
        access_log: Callable[[FileRef], Any] = lambda _: None,
        filters: FilterCheck | None = None,
        visit: Callable[[FileFacts, Walk | None, Source], None] | None = None,
        of_manifests: Mapping[str, tuple[IcebergFileKey, KeyFacts]] | None = None,
    ) -> None:
        self._keys = keys
        self._of_manifests = of_manifests or {}
        self.kms = kms or Kms()
        self.prefixes = prefixes
        self._access_log = access_log
        self._filters = FilterCheck(keys is not None) if filters is None else filters
        self._visit = visit
        self._outages: list[KmsAccessError] = []
        self._schemas: WeakKeyDictionary[Schema, list[tuple[str, str]]] = WeakKeyDictionary()

    def scan(self, ref: FileRef) -> FileFacts:
        """A file's facts. Never raises for what is in the file."""
        facts = FileFacts(ref)
        try:
            with open_source(ref) as source:
                facts.size = source.size
                facts.modified = _modified(source)
                self._scan(facts, source)
        except BloomsealError as error:
            facts.failed(error)
        except Exception as error:
            # A thousand files must not go unseen because of one; the type is all that may be told.
            facts.failed(FormatError(f"unexpected {type(error).__name__}"))
        return facts

    def _scan(self, facts: FileFacts, source: Source) -> None:
        facts.sidecar = sidecar = SidecarView(source.ref)
        try:
            self._look(facts, source)
        finally:
            # Of a hundred thousand files none may hold on to more than is asked for later.
            sidecar.forget()
            if not sidecar.used:
                facts.sidecar = None

    def _look(self, facts: FileFacts, source: Source) -> None:
        if format_of(source) is Format.ORC:
            from .orc import look_at_orc

            look_at_orc(facts, source, self.kms, self._filters)
            return
        footer, hand = self._open(facts, source)
        if footer is None:
            if self._visit is not None:
                self._visit(facts, None, source)
            return
        facts.created_by = sys.intern(footer.created_by)
        facts.leaves = self._leaves(footer.schema)
        walk = Walk(source, footer, hand)
        look = _Columns(facts, walk, self)
        for group in range(len(footer.row_groups)):
            look.group(group)
        look.peek()
        look.gaps()
        if self._visit is not None:
            self._visit(facts, walk, source)

    def _leaves(self, schema: Schema) -> list[tuple[str, str]]:
        """Dotted paths and types; one list for all files of a schema, which footers share too."""
        known = self._schemas.get(schema)
        if known is None:
            known = self._schemas[schema] = [(leaf.name, str(leaf.type)) for leaf in schema.leaves]
        return known

    def _open(self, facts: FileFacts, source: Source) -> tuple[Footer | None, KeysAtHand]:
        seen = peek(source)
        facts.footer = str(seen.kind)
        if seen.kind is FooterKind.PLAINTEXT:
            return Footer(seen.clear, seen.offset, None, True), KeysAtHand(None, None)
        clear = None if seen.kind is FooterKind.ENCRYPTED else seen.clear
        if clear is None:
            facts.hidden = ("columns, filters and statistics: all inside the encrypted footer",)
        try:
            candidates = self._crypto(facts, seen)
        except UnsupportedError as error:
            if clear is None:
                raise
            facts.failed(error)
            return Footer(clear, seen.offset, None, False), KeysAtHand(None, None)
        hand = self._hand(facts, source, candidates[0])
        try:
            footer = authenticated(seen, candidates, hand)
        except (KeyAccessError, IntegrityError) as error:
            if not isinstance(error, KeyAccessError) or error.unauthentic:
                facts.footer_verified = False
                facts.failed(error)
        else:
            facts.hidden = ()
            facts.footer_verified = True
            return footer, hand
        return None if clear is None else Footer(clear, seen.offset, candidates[0], False), hand

    def _crypto(self, facts: FileFacts, seen: Peek) -> list[FileCrypto]:
        known = self._of_manifests.get(facts.path)
        key = KeyFacts.of(seen.key_metadata, facts.sidecar or SidecarView(facts.ref), self.kms)
        facts.keys.append(key if known is None else known[1])
        algorithm, inner = seen.inner()
        facts.algorithm = str(algorithm)
        stored, wanted = inner.binary(1), bool(inner.boolean(3))
        facts.aad_prefix = "stored" if stored else "supplied" if wanted else "none"
        if stored:
            facts.aad_prefix_text = stored.decode(errors="backslashreplace")
        if (unique := inner.binary(2)) is not None:
            facts.file_id = unique.hex()
        # Only what the file lacks is supplied: whether a stored prefix is the right one is a rule's affair.
        prefixes = self.prefixes(facts.ref) if known is None else (known[0].prefix,)
        supplied = prefixes if wanted and not stored else ()
        return seen.crypto(Expectation(prefixes=supplied))

    def _hand(self, facts: FileFacts, source: Source, crypto: FileCrypto) -> KeysAtHand:
        known, keys = self._of_manifests.get(facts.path), self._keys
        if known is not None:
            keys = as_key_source(ExplicitKeys(known[0].key))
        retriever = None if keys is None else Impatient(keys.for_file(source.ref), self._outages)
        log = AccessLog.of(self._access_log(facts.ref), facts.path)
        hand = KeysAtHand(crypto, retriever, log=log)
        facts.keys[1] = self._judged(facts.keys[1], lambda: hand.footer().key)
        return hand

    def _judged(self, facts: KeyFacts, resolve: Callable[[], Any]) -> KeyFacts:
        if self._keys is None:
            return facts
        try:
            facts = facts.resolved(resolve())
        except BloomsealError as error:
            facts = facts.refused(error)
        return self.kms.judged(facts)


class _Columns:
    """The column chunks of one file."""

    def __init__(self, facts: FileFacts, walk: Walk, scanner: Scanner) -> None:
        self._facts = facts
        self._walk = walk
        self._scanner = scanner
        self._opened: dict[tuple[bytes, str], int] = {}
        self._peeks: list[tuple[ChunkFacts, str, int, int]] = []
        self._leaves = walk.footer.schema.leaves
        self._covered: list[tuple[int, int]] = [(0, len(MAGIC))]
        self._blind = not walk.footer.row_groups and facts.error is not None

    def group(self, index: int) -> None:
        """All chunks of one row group."""
        footer = self._walk.footer
        try:
            limit = max(len(self._leaves), _SMALL_LISTS)
            group = decode(AuditGroup, footer.row_groups[index], container_limit=limit)
            columns = group.columns or []
            if len(columns) != len(self._leaves):
                raise FormatError(f"{len(columns)} column chunks for the schema's {len(self._leaves)} columns")
            if group.ordinal is not None and group.ordinal != index:
                raise FormatError(f"the row group's ordinal says {group.ordinal}")
        except BloomsealError as error:
            self._facts.failed(error.at(row_group=index))
            return
        add = self._facts.chunks.append
        for leaf, column in enumerate(columns):
            if column.crypto_metadata is None:
                add(self._plaintext(index, leaf, column))
            else:
                add(self._encrypted(index, leaf, column))

    def peek(self) -> None:
        """Read the first bytes of filters and indexes of encrypted columns: they tell whether these are sealed."""
        wanted = [(offset, min(_HEADER_BYTES, length)) for _, _, offset, length in self._peeks]
        found = dict(zip(wanted, read_all(self._walk.source, wanted), strict=True))
        for chunk, name, offset, length in self._peeks:
            data = found[offset, min(_HEADER_BYTES, length)]
            if name == "copy":
                # The clear copy of the metadata names a place of its own. Who has no key looks there, so must who has.
                if is_filter_header(data):
                    chunk.filter, chunk.filter_offset = Seen.CLEAR, offset
                continue
            sealed = is_sealed(data, length) if name != "filter" else not is_filter_header(data)
            setattr(chunk, name, Seen.SEALED if sealed else Seen.CLEAR)
        for chunk in self._facts.chunks:
            if (
                chunk.protection
                and chunk.bloom is not None
                and chunk.bloom.authentic is False
                and not chunk.bloom.error
            ):
                chunk.filter = Seen.CLEAR  # it could be opened without the key

    def gaps(self) -> None:
        """What stands between the modules, where all their places were seen."""
        facts, plaintext = self._facts, self._facts.algorithm is None
        if plaintext and not self._scanner.kms.is_witness:
            return  # in clear as it is
        if not self._blind and facts.error is None and all(chunk.error is None for chunk in facts.chunks):
            facts.gaps = gaps(self._walk.source, self._covered, self._walk.footer.offset, whole_files=plaintext)

    def _cover(self, column: AuditChunk, meta: AuditMeta | None) -> None:
        if meta is None:
            self._blind = True
            return
        self._covered.append(extent(meta))
        for offset, length in (
            (column.column_index_offset, column.column_index_length),
            (column.offset_index_offset, column.offset_index_length),
            (meta.bloom_filter_offset, meta.bloom_filter_length),
        ):
            if offset is not None:
                known = length if length is not None else filter_length(self._walk.source, offset)
                self._blind |= known is None
                self._covered.append((offset, known or 0))

    def _plaintext(self, group: int, leaf: int, column: AuditChunk) -> ChunkFacts:
        facts = ChunkFacts(group, leaf, 0, 0)
        meta = column.meta_data
        if meta is None:
            facts.error = "a column chunk without metadata"
            return facts
        self._cover(column, meta)
        facts.values, facts.size = meta.num_values, meta.total_compressed_size
        # A column index has them too, but for a column of nulls, as statistics say.
        facts.bounds = bool(exposed(meta) & 1) or (meta.statistics is None and column.column_index_offset is not None)
        if group == 0 and (told := meta.statistics) is not None:
            name = self._leaves[leaf].name
            if (kind := by_bounds((told.min_value or told.min, told.max_value or told.max))) is not None:
                self._facts.patterns[name] = kind.what
        if column.column_index_offset is not None:
            facts.column_index = Seen.CLEAR
        if column.offset_index_offset is not None:
            facts.offset_index = Seen.CLEAR
        if meta.bloom_filter_offset is not None:
            facts.filter = Seen.CLEAR
            facts.filter_offset, facts.filter_length = meta.bloom_filter_offset, meta.bloom_filter_length
            if self._scanner._filters:
                facts.bloom = filter_facts(self._walk, self._walk.chunk(group, leaf), self._scanner._filters)
        return facts

    def _encrypted(self, group: int, leaf: int, column: AuditChunk) -> ChunkFacts:
        crypto = column.crypto_metadata
        assert crypto is not None  # noqa: S101
        name = self._leaves[leaf].name
        if crypto.footer_key is not None:
            facts = ChunkFacts(group, leaf, 1, 1 if len(self._facts.keys) > 1 else 0)
        elif crypto.column_key is not None:
            facts = ChunkFacts(group, leaf, 2, self._key(crypto.column_key.key_metadata or b"", name))
        else:
            return ChunkFacts(group, leaf, 3, 0, error="an unknown kind of column encryption")
        if self._walk.footer.crypto is None and self._facts.algorithm is not None:
            return facts  # an algorithm that is not ours; the file says so itself
        if self._walk.footer.crypto is None:
            facts.error = self._facts.error or "an encrypted column in a file without encryption"
            self._facts.failed(FormatError("an encrypted column in a file without encryption", column=name))
            return facts
        if facts.protection == 2 and column.encrypted_column_metadata is None:
            facts.error = "the column has a key of its own, but its metadata is not sealed"
        meta, clear = column.meta_data, column.meta_data is not None and self._walk.footer.crypto.plaintext_footer
        if meta is not None and clear:
            facts.exposed = exposed(meta)
        opened, chunk = self._open(facts, group, leaf, column)
        meta = opened or meta
        self._cover(column, meta)
        self._describe(facts, column, meta, opened is not None or column.encrypted_column_metadata is None)
        copy = column.meta_data if clear and opened is not None and opened is not column.meta_data else None
        if copy is not None and copy.bloom_filter_offset not in (None, facts.filter_offset):
            self._peeks.append((facts, "copy", copy.bloom_filter_offset, copy.bloom_filter_length or _HEADER_BYTES))
        if chunk is not None and opened is not None and facts.filter_offset is not None and self._scanner._filters:
            facts.bloom = filter_facts(self._walk, chunk, self._scanner._filters)
        return facts

    def _open(
        self, facts: ChunkFacts, group: int, leaf: int, column: AuditChunk
    ) -> tuple[AuditMeta | None, Chunk | None]:
        """The metadata opened with the key at hand."""
        if self._scanner._keys is None:
            return None, None
        try:
            chunk = self._walk.chunk(group, leaf)
            self._walk.cipher(chunk)
            if column.encrypted_column_metadata is None:
                self._walk.meta(chunk)
                return column.meta_data, chunk
            raw = self._walk.meta_raw(chunk)
            self._walk.meta(chunk)
            return decode(AuditMeta, raw), chunk
        except BloomsealError as error:
            if not isinstance(error, KeyAccessError) or error.unauthentic:
                facts.error = f"{error.module or 'Column metadata'}: {error.what}"
            return None, None

    def _describe(self, facts: ChunkFacts, column: AuditChunk, meta: AuditMeta | None, whole: bool) -> None:
        modules = 1 if column.encrypted_column_metadata is not None else 0
        # A page and its header at the least.
        pages = meta.pages if meta is not None else None
        modules += 2 * (pages or 1)
        facts.pages_counted = pages is not None
        for name, offset, length in (
            ("column_index", column.column_index_offset, column.column_index_length),
            ("offset_index", column.offset_index_offset, column.offset_index_length),
        ):
            if offset is not None and length is not None and length > 0:
                modules += 1
                setattr(facts, name, Seen.SEALED)
                self._peeks.append((facts, name, offset, length))
        if meta is None:
            facts.filter = Seen.HIDDEN
        else:
            facts.values, facts.size = meta.num_values, meta.total_compressed_size
            if meta.bloom_filter_offset is not None:
                modules += 2
                facts.filter = Seen.SEALED
                facts.filter_offset, facts.filter_length = meta.bloom_filter_offset, meta.bloom_filter_length
                self._peeks.append(
                    (facts, "filter", meta.bloom_filter_offset, meta.bloom_filter_length or _HEADER_BYTES)
                )
            elif not whole:
                facts.filter = Seen.HIDDEN
        facts.modules = min(modules, MAX_GCM_SEALS)

    def _key(self, key_metadata: bytes, column: str) -> int:
        # Without key metadata a key goes by its column's name.
        name = (key_metadata, "" if key_metadata else column)
        if (known := self._opened.get(name)) is None:
            facts = self._facts
            url = facts.keys[1].kms_url if len(facts.keys) > 1 else None
            found = KeyFacts.of(key_metadata, facts.sidecar or SidecarView(facts.ref), self._scanner.kms, url)
            found = self._scanner._judged(found, lambda: self._walk.keys.column(key_metadata, column).key)
            facts.keys.append(found)
            known = self._opened[name] = len(facts.keys) - 1
        return known


def _modified(source: Source) -> datetime | None:
    if source.fd is not None:
        return datetime.fromtimestamp(int(os.fstat(source.fd).st_mtime), UTC)
    ref = source.ref
    moment: datetime | None = None if ref.filesystem is None else ref.filesystem.get_file_info(ref.path).mtime
    return moment
