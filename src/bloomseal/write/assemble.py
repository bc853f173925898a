"""Putting a file together from the modules of another: sealed, opened or copied on the way, offsets made anew.

Every conversion is this one: the writer feeds it row groups that pyarrow encoded in memory, `seal_file` those of a
file.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import IO

from ..core.encryption import ModuleCipher, ModuleType
from ..core.errors import BloomsealError, FormatError
from ..core.parquet.filter_bytes import FilterBytes
from ..core.parquet.footer import plain_footer, seal_footer, sign_footer
from ..core.parquet.layout import MAGIC, MAGIC_ENCRYPTED, Column, FileMeta, Group, Meta
from ..core.parquet.page import Page, check_doubtful, resized_header
from ..core.parquet.schema import Leaf
from ..core.parquet.walk import Chunk, Walk
from ..core.sbbf import SplitBlockBloomFilter
from ..core.storage.source import Buffer, Scratch
from ..core.thrift import Struct, with_integers
from ..storage.atomic import Output, storage_errors
from .output_keys import OutputKeys

AnyFilter = SplitBlockBloomFilter | FilterBytes
"""A filter that was built, or one that is carried from file to file as it is."""

_SPOOL_BYTES = 16 << 20
_HEADER_OF = {
    ModuleType.DATA_PAGE: ModuleType.DATA_PAGE_HEADER,
    ModuleType.DICTIONARY_PAGE: ModuleType.DICTIONARY_PAGE_HEADER,
}


_Sealing = tuple[ModuleCipher, Callable[[ModuleType, int], bytes]]
"""What seals the pages of a column chunk: its cipher, and what makes their AADs."""


@dataclass(slots=True)
class _OutChunk:
    leaf: Leaf
    meta: Struct
    column_index: bytes | tuple[int, int] | None = None
    offset_index: bytes | tuple[int, int] | None = None


@dataclass(slots=True)
class _OutGroup:
    struct: Struct
    chunks: list[_OutChunk] = field(default_factory=list)


class Assembler:
    """Writes one new Parquet file module by module.

    Args:
        out: takes the bytes, in order.
        keys: what seals the file; None for a plaintext file.
        filters_at_end: all filters after the last row group, instead of each row group's behind it. Sealed filters then
            wait in a temporary file.
    """

    def __init__(self, out: Output, keys: OutputKeys | None, *, filters_at_end: bool = False) -> None:
        self._out = out
        self._keys = keys
        self._groups: list[_OutGroup] = []
        self._chunk, self._opened = Scratch(), Scratch()
        self._waiting: list[tuple[_OutChunk, int]] = []
        self._spool: IO[bytes] | None = None
        if filters_at_end:
            import tempfile  # takes longer to load than a small file to write, as does shutil below

            self._spool = tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES)  # noqa: SIM115  # closed by close()
        self.position = 0
        self._write(MAGIC if keys is None or keys.crypto.plaintext_footer else MAGIC_ENCRYPTED)

    @property
    def num_row_groups(self) -> int:
        return len(self._groups)

    def add_row_group(self, walk: Walk, row_group: int, filters: Mapping[int, AnyFilter]) -> None:
        """Take over one row group of `walk`: its pages and indexes, and these filters (leaf index → filter).

        Raises:
            BloomsealError: a module of the source does not open; the file being written is then useless.
        """
        ordinal = len(self._groups)
        out = _OutGroup(Struct.parse(walk.footer.row_groups[row_group]))
        start = self.position
        for chunk in walk.chunks(row_group):
            out.chunks.append(self._add_chunk(walk, chunk, ordinal))
        out.struct.remove(Group.COLUMNS)
        out.struct.set_i64(Group.FILE_OFFSET, start)
        out.struct.set_i64(Group.TOTAL_COMPRESSED, self.position - start)
        out.struct.set_i64(
            Group.TOTAL_BYTE_SIZE, sum(chunk.meta.integer(Meta.UNCOMPRESSED) or 0 for chunk in out.chunks)
        )
        out.struct.set_i16(Group.ORDINAL, ordinal)
        self._groups.append(out)
        for added in out.chunks:
            if (bloom_filter := filters.get(added.leaf.index)) is not None:
                self._add_filter(added, ordinal, bloom_filter)

    def finish(self, template: Struct) -> None:
        """Write waiting filters, indexes and the footer, which takes every other field from the FileMetaData
        `template`.
        """
        self._flush_filters()
        for kind, name in ((ModuleType.COLUMN_INDEX, "column_index"), (ModuleType.OFFSET_INDEX, "offset_index")):
            for ordinal, group in enumerate(self._groups):
                for chunk in group.chunks:
                    self._write_index(chunk, ordinal, kind, name)
        metadata = template.copy()
        metadata.remove(FileMeta.ALGORITHM, FileMeta.SIGNING_KEY)
        metadata.set_i64(FileMeta.NUM_ROWS, sum(group.struct.integer(Group.NUM_ROWS) or 0 for group in self._groups))
        metadata.set_list(FileMeta.ROW_GROUPS, [self._group_bytes(i, group) for i, group in enumerate(self._groups)])
        self._write(self._footer(metadata))

    def close(self) -> None:
        """Drop the filters that wait."""
        if self._spool is not None:
            self._spool.close()

    def _footer(self, metadata: Struct) -> bytes:
        if self._keys is None:
            return plain_footer(metadata.to_bytes())
        crypto = self._keys.crypto
        if not crypto.plaintext_footer:
            return seal_footer(metadata.to_bytes(), crypto, self._keys.footer)
        metadata.set_struct(FileMeta.ALGORITHM, crypto.algorithm_struct())
        if crypto.footer_key_metadata:
            metadata.set_binary(FileMeta.SIGNING_KEY, crypto.footer_key_metadata)
        return sign_footer(metadata.to_bytes(), crypto, self._keys.footer)

    def _add_chunk(self, walk: Walk, chunk: Chunk, ordinal: int) -> _OutChunk:
        meta = Struct.parse(walk.meta_raw(chunk))
        before = walk.meta(chunk)
        try:
            sealing = self._sealing(chunk.leaf, ordinal)
        except BloomsealError as error:
            # The row group is counted in the file being written: the writer's source is one row group in memory.
            raise error.at(file=walk.source.name, row_group=ordinal, column=chunk.leaf.name) from error.__cause__
        start, first_data, locations = self.position, None, []
        meta.remove(Meta.DICTIONARY_PAGE, Meta.INDEX_PAGE, Meta.BLOOM_OFFSET, Meta.BLOOM_LENGTH)
        for page in walk.pages(chunk, self._chunk):
            position = self.position
            try:
                # A new seal would vouch for it, and the old keys that could tell are gone then.
                check_doubtful(page, before.codec)
                self._add_page(page, sealing)
            except BloomsealError as error:
                raise error.at(file=walk.source.name, row_group=ordinal, column=chunk.leaf.name) from error.__cause__
            if page.ordinal < 0:
                meta.set_i64(Meta.DICTIONARY_PAGE, position)
            else:
                first_data = position if first_data is None else first_data
                locations.append((position, self.position - position))
        size = self.position - start
        meta.set_i64(Meta.DATA_PAGE, start if first_data is None else first_data)
        meta.set_i64(Meta.COMPRESSED, size)
        # Sealing adds the same bytes to both sizes: they are not compressed.
        grown = size - (before.total_compressed_size or 0)
        meta.set_i64(Meta.UNCOMPRESSED, max((before.total_uncompressed_size or 0) + grown, 0))
        out = _OutChunk(chunk.leaf, meta, walk.index(chunk, ModuleType.COLUMN_INDEX))
        if (index := walk.index(chunk, ModuleType.OFFSET_INDEX)) is not None:
            out.offset_index = _relocated(index, locations)
        return out

    def _sealing(self, leaf: Leaf, ordinal: int) -> _Sealing | None:
        cipher = self._keys.cipher(leaf) if self._keys else None
        return None if cipher is None or self._keys is None else (cipher, self._keys.page_aads(ordinal, leaf))

    def _add_page(self, page: Page, sealing: _Sealing | None) -> None:
        if sealing is None:
            self._write(page.header if page.size == page.view.size else resized_header(page, page.size))
            page.open_into(self._take(page.size))
            return
        size = page.size + sealing[0].overhead(page.kind)
        if page.view.crc is None:
            self._seal_header(resized_header(page, size), page, sealing)
            self._seal_body(page, sealing, self._take(size))
        else:
            # The checksum is of what is stored, and stands before it.
            body = memoryview(bytearray(size))
            self._seal_body(page, sealing, body)
            self._seal_header(resized_header(page, size, zlib.crc32(body)), page, sealing)
            self._write(body)

    def _seal_header(self, header: bytes, page: Page, sealing: _Sealing) -> None:
        cipher, aad = sealing
        kind = _HEADER_OF[page.kind]
        cipher.seal_into(header, kind, aad(kind, page.ordinal), self._take(len(header) + cipher.overhead(kind)))

    def _seal_body(self, page: Page, sealing: _Sealing, out: memoryview) -> None:
        cipher, aad = sealing
        plaintext = memoryview(page.stored)
        if page.encrypted:
            plaintext = self._opened.take(page.size)
            page.open_into(plaintext)
        # A V2 page keeps its writer's layout: parquet-java and Arrow C++ read their own only.
        if levels := page.clear_levels:
            out[:levels] = plaintext[:levels]
            plaintext, out = plaintext[levels:], out[levels:]
        cipher.seal_into(plaintext, page.kind, aad(page.kind, page.ordinal), out)

    def _add_filter(self, chunk: _OutChunk, ordinal: int, bloom_filter: AnyFilter) -> None:
        modules = filter_modules(
            bloom_filter,
            self._keys.cipher(chunk.leaf) if self._keys else None,
            lambda kind: self._keys.aad(kind, ordinal, chunk.leaf) if self._keys else b"",
        )
        length = sum(map(len, modules))
        chunk.meta.set_i64(Meta.BLOOM_OFFSET, self.position)
        chunk.meta.set_i32(Meta.BLOOM_LENGTH, length)
        for module in modules:
            if self._spool is None:
                self._write(module)
            else:
                import tempfile

                with storage_errors("keep the filters that wait", tempfile.gettempdir()):
                    self._spool.write(module)
        if self._spool is not None:
            self._waiting.append((chunk, length))

    def _flush_filters(self) -> None:
        if self._spool is None:
            return
        import shutil

        self._spool.seek(0)
        position = self.position
        for chunk, length in self._waiting:
            chunk.meta.set_i64(Meta.BLOOM_OFFSET, position)
            position += length
        shutil.copyfileobj(self._spool, _Writer(self._write), _SPOOL_BYTES)

    def _write_index(self, chunk: _OutChunk, ordinal: int, kind: ModuleType, name: str) -> None:
        data: Buffer | None = getattr(chunk, name)
        if data is None:
            return
        cipher = self._keys.cipher(chunk.leaf) if self._keys else None
        if cipher is not None and self._keys is not None:
            data = cipher.seal(data, kind, self._keys.aad(kind, ordinal, chunk.leaf))
        # From here on the slot holds where the index went.
        setattr(chunk, name, (self.position, len(data)))
        self._write(data)

    def _group_bytes(self, ordinal: int, group: _OutGroup) -> bytes:
        columns = []
        for chunk in group.chunks:
            struct = protected_chunk(chunk.meta, chunk.leaf, ordinal, self._keys)
            for place, fields in (
                (chunk.offset_index, (Column.OFFSET_INDEX, Column.OFFSET_INDEX_LENGTH)),
                (chunk.column_index, (Column.COLUMN_INDEX, Column.COLUMN_INDEX_LENGTH)),
            ):
                if isinstance(place, tuple):
                    struct.set_i64(fields[0], place[0])
                    struct.set_i32(fields[1], place[1])
            columns.append(struct.to_bytes())
        group.struct.set_list(Group.COLUMNS, columns)
        return group.struct.to_bytes()

    def _write(self, data: Buffer) -> None:
        self._out.write(data)
        self.position += len(data)

    def _take(self, length: int) -> memoryview:
        self.position += length
        return self._out.take(length)


class _Writer:
    def __init__(self, write: Callable[[Buffer], None]) -> None:
        self.write = write


def filter_modules(
    bloom_filter: AnyFilter, cipher: ModuleCipher | None, aad: Callable[[ModuleType], bytes]
) -> list[Buffer]:
    """Header and bitset as they stand in a file (Parquet Bloom filter specification, "File Format" and
    "Encryption").
    """
    # What is carried may be of a kind, or have fields, that only a later specification knows.
    header = bloom_filter.header if isinstance(bloom_filter, FilterBytes) else _header(bloom_filter.num_bytes)
    modules: list[tuple[ModuleType, Buffer]] = [
        (ModuleType.BLOOM_FILTER_HEADER, header),
        (ModuleType.BLOOM_FILTER_BITSET, bloom_filter.bitset),
    ]
    if cipher is None:
        return [data for _, data in modules]
    return [cipher.seal(data, kind, aad(kind)) for kind, data in modules]


def _header(num_bytes: int) -> bytes:
    header, first = Struct(), Struct()
    header.set_i32(1, num_bytes)
    first.set_struct(1, Struct())
    for union in (2, 3, 4):  # algorithm BLOCK, hash XXHASH, compression UNCOMPRESSED: each the union's first member
        header.set_struct(union, first)
    return header.to_bytes()


def protected_chunk(meta: Struct, leaf: Leaf, row_group: int, keys: OutputKeys | None) -> Struct:
    """A ColumnChunk around `meta`: in clear, inside the sealed footer, or sealed on its own (section 5.1 and 5.2).

    Under a plaintext footer the clear copy keeps only what old readers need to find the pages.
    """
    chunk = Struct()
    chunk.set_i64(Column.FILE_OFFSET, 0)
    cipher = keys.cipher(leaf) if keys else None
    if cipher is None or keys is None:
        chunk.set_struct(Column.META, meta)
        return chunk
    own_key = cipher is not keys.footer
    if keys.crypto.plaintext_footer:
        clear = meta.copy()
        clear.remove(*Meta.REVEALING)
        chunk.set_struct(Column.META, clear)
    elif not own_key:
        chunk.set_struct(Column.META, meta)
    chunk.set_struct(Column.CRYPTO, keys.column_crypto(leaf))
    if own_key or keys.crypto.plaintext_footer:
        aad = keys.aad(ModuleType.COLUMN_META_DATA, row_group, leaf)
        chunk.set_binary(Column.SEALED_META, cipher.seal(meta.to_bytes(), ModuleType.COLUMN_META_DATA, aad))
    return chunk


def _relocated(index: bytes, locations: list[tuple[int, int]]) -> bytes:
    """An OffsetIndex whose pages have moved."""
    struct = Struct.parse(index, remember=1)
    pages = struct.elements(1)
    if len(pages) != len(locations):
        raise FormatError(f"the offset index names {len(pages)} pages, the column chunk has {len(locations)}")
    struct.set_list(1, [with_integers(raw, place) for raw, place in zip(pages, locations, strict=True)])
    return struct.to_bytes()
