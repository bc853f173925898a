"""One file's column chunks: what stands in clear, what opens with the keys at hand, and what lies between modules."""

from __future__ import annotations

from typing import Final

from ....core.errors import BloomsealError, FormatError, KeyAccessError
from ....core.limits import MAX_GCM_SEALS
from ....core.parquet.layout import MAGIC
from ....core.parquet.walk import Chunk, Walk, extent
from ....core.thrift.structs import decode
from ....policy.personal import by_bounds
from ..keys import KeyFacts, Kms, SidecarView
from .file import ChunkFacts, FileFacts, FilterCheck, Seen
from .filters import filter_facts
from .gaps import filter_length, gaps
from .raw_scan import is_filter_header, is_sealed, read_all
from .views import AuditChunk, AuditGroup, AuditMeta, exposed

_HEADER_BYTES: Final = 256
_SMALL_LISTS: Final = 4096


class ChunkScan:
    """A look at the column chunks of one file, which adds to its facts.

    Args:
        walk: of the file, with the keys at hand.
        kms: what can be asked about master keys.
        filters: how filters are looked at.
        with_keys: there are keys.
    """

    def __init__(self, facts: FileFacts, walk: Walk, kms: Kms, filters: FilterCheck, *, with_keys: bool) -> None:
        self._facts = facts
        self._walk = walk
        self._kms, self._filters, self._with_keys = kms, filters, with_keys
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
        if plaintext and not self._kms.is_witness:
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
            if self._filters:
                facts.bloom = filter_facts(self._walk, self._walk.chunk(group, leaf), self._filters)
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
        if chunk is not None and opened is not None and facts.filter_offset is not None and self._filters:
            facts.bloom = filter_facts(self._walk, chunk, self._filters)
        return facts

    def _open(
        self, facts: ChunkFacts, group: int, leaf: int, column: AuditChunk
    ) -> tuple[AuditMeta | None, Chunk | None]:
        """The metadata opened with the key at hand."""
        if not self._with_keys:
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
            found = KeyFacts.of(key_metadata, facts.sidecar or SidecarView(facts.ref), self._kms, url)
            if self._with_keys:
                found = self._kms.resolved(found, lambda: self._walk.keys.column(key_metadata, column).key)
            facts.keys.append(found)
            known = self._opened[name] = len(facts.keys) - 1
        return known
