"""The module walk: the one place that knows where a file's modules are, and which key and AAD seal each.

Two storeys: `Walk.chunk` is cheap and knows a column chunk, its filter and its indexes; `Walk.pages` needs the opened
column metadata. Nothing here writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..encryption import ModuleCipher, ModuleType, module_aad, page_aads
from ..errors import BloomsealError, FormatError, IntegrityError, KeyAccessError, PolicyError, UnsupportedError
from ..storage.source import Scratch, Source
from ..thrift import Struct
from ..thrift.structs import ColumnMetaData, SealedColumnMetaData, decode
from ..writers import Claim
from .chunk import Chunk, Protection
from .filter_bytes import FilterBytes, read_filter
from .footer import Footer
from .keys_at_hand import KeysAtHand
from .layout import Column
from .levels import check_clear_levels
from .page import Page, read_page

__all__ = ["Chunk", "Protection", "Walk", "extent"]

_AHEAD = 32
"""Page headers read before the first of their bodies is looked at."""
_WINDOW = 2 << 20
_LEFT_OUT = 100
"""Bytes at most of a dictionary page's header that a chunk's size may lack, as Arrow's reader has it (PARQUET-816)."""


class Walk:
    """A file as its modules.

    Args:
        source: the file.
        footer: its opened footer.
        keys: the keys at hand.
    """

    def __init__(self, source: Source, footer: Footer, keys: KeysAtHand) -> None:
        self.source = source
        self.footer = footer
        self.keys = keys
        self._file_aad = footer.crypto.file_aad if footer.crypto else b""
        self._recent: tuple[int, dict[int, Chunk]] = -1, {}
        self._named: set[int] = set()

    def chunk(self, row_group: int, column: int) -> Chunk:
        """A column chunk, without opening anything; the same one as long as no other row group is asked for.

        Raises:
            FormatError: the row group does not fit the schema.
        """
        group, chunks = self._recent
        if group != row_group:
            chunks = {}
            self._recent = row_group, chunks
        if (chunk := chunks.get(column)) is None:
            chunk = chunks[column] = self._chunk(row_group, column)
        return chunk

    def _chunk(self, row_group: int, column: int) -> Chunk:
        view = self.footer.chunk(row_group, column)
        leaf = self.footer.schema.leaves[column]
        if view.file_path is not None:
            raise UnsupportedError("a column chunk in another file", row_group=row_group, column=leaf.name)
        crypto = view.crypto_metadata
        if crypto is None:
            protection, key_metadata = Protection.PLAINTEXT, b""
        elif crypto.footer_key is not None:
            protection, key_metadata = Protection.FOOTER_KEY, b""
        elif crypto.column_key is not None:
            protection, key_metadata = Protection.COLUMN_KEY, crypto.column_key.key_metadata or b""
        else:
            raise UnsupportedError("an unknown kind of column encryption", row_group=row_group, column=leaf.name)
        if protection is not Protection.PLAINTEXT and self.footer.crypto is None:
            raise FormatError("an encrypted column in a file without encryption", row_group=row_group, column=leaf.name)
        return Chunk(row_group, leaf, view, protection, key_metadata)

    def chunks(self, row_group: int) -> Iterator[Chunk]:
        """All column chunks of a row group, in schema order."""
        for column in range(len(self.footer.schema.leaves)):
            yield self.chunk(row_group, column)

    def cipher(self, chunk: Chunk) -> ModuleCipher | None:
        """The cipher of a chunk's key; None for plaintext.

        Raises:
            KeyAccessError: the key can't be had.
            PolicyError: the column is in plaintext, or under another key, where that was not expected.
        """
        self.expected(chunk)
        if chunk.protection is Protection.PLAINTEXT:
            return None
        try:
            if chunk.protection is Protection.FOOTER_KEY:
                return self.keys.footer()
            return self.keys.column(chunk.key_metadata, chunk.leaf.name)
        except (KeyAccessError, PolicyError) as error:
            raise error.at(file=self.source.name, **chunk.place) from None

    def expected(self, chunk: Chunk) -> None:
        """Check that the chunk is protected as the caller expects. Everything that is made of its bytes asks this
        first.

        Raises:
            PolicyError: it is in plaintext, or under the footer key, and must not be; or its name could be taken for
                another.
        """
        try:
            if chunk.leaf.index not in self._named:
                self.keys.expectation.name(chunk.leaf.name)
                self._named.add(chunk.leaf.index)
            if chunk.protection is Protection.PLAINTEXT:
                self.keys.expectation.plaintext_column(chunk.leaf.name)
            elif chunk.protection is Protection.FOOTER_KEY:
                self.keys.check_under_footer_key(chunk.leaf.name)
        except BloomsealError as error:
            raise error.at(file=self.source.name, **chunk.place) from None

    def aad(self, chunk: Chunk, kind: ModuleType, page: int = -1, *, row_group: int | None = None) -> bytes:
        """The AAD of one of the chunk's modules; empty for a plaintext file."""
        if self.footer.crypto is None:
            return b""
        ordinal = chunk.row_group if row_group is None else row_group
        return module_aad(self._file_aad, kind, ordinal, chunk.leaf.index, page)

    def meta(self, chunk: Chunk) -> ColumnMetaData:
        """The chunk's metadata: opened where it is sealed, and checked against schema and file. Its statistics count no
        nulls where the writer's numbers of them mean nothing.

        Raises:
            FormatError, IntegrityError, KeyAccessError.
        """
        if chunk.meta is None:
            self.expected(chunk)
            if chunk.view.encrypted_column_metadata is not None and chunk.encrypted:
                meta: ColumnMetaData = self._named_meta(chunk)
            elif chunk.view.meta_data is not None:
                if chunk.protection is Protection.COLUMN_KEY:
                    raise FormatError("the column has a key of its own, but its metadata is not sealed", **chunk.place)  # type: ignore[arg-type]
                meta = chunk.view.meta_data if self.footer.verified else self._named_meta(chunk)
            else:
                raise FormatError("a column chunk without metadata", **chunk.place)  # type: ignore[arg-type]
            self._check(chunk, meta)
            if meta.statistics is not None and not self.footer.counts_nulls:
                meta.statistics.null_count = None
            chunk.meta = meta
        return chunk.meta

    def meta_raw(self, chunk: Chunk) -> bytes:
        """The raw ColumnMetaData, opened where it is sealed."""
        if chunk.meta_raw is None:
            sealed = chunk.view.encrypted_column_metadata
            if sealed is not None and chunk.encrypted:
                chunk.meta_raw = self._open_meta(chunk, sealed)
            else:
                raw = Struct.parse(self.footer.chunk_raw(chunk.row_group, chunk.leaf.index)).raw(Column.META)
                if raw is None:
                    raise FormatError("a column chunk without metadata", **chunk.place)  # type: ignore[arg-type]
                chunk.meta_raw = raw
        return chunk.meta_raw

    def filter(self, chunk: Chunk) -> FilterBytes | None:
        """Read a chunk's filter and open it (Parquet encryption, modules 8 and 9): one range where its length is known.

        A filter in clear on an encrypted column comes back with ``sealed=False``; it proves nothing there.

        Raises:
            FormatError, IntegrityError, KeyAccessError; UnsupportedError for an unknown hash, algorithm or compression.
        """
        found = self.stored_filter(chunk)
        if found is not None and found.unknown is not None:
            raise found.unknown.at(file=self.source.name, **chunk.place)
        return found

    def stored_filter(self, chunk: Chunk, scratch: tuple[Scratch, Scratch] | None = None) -> FilterBytes | None:
        """As `filter`, also of an unknown kind: for those who carry or authenticate a filter and don't ask it.

        Args:
            scratch: memory for the filter as it is stored and as it is opened; the bitset is good until their next use.

        Raises:
            FormatError, IntegrityError, KeyAccessError.
        """
        meta = self.meta(chunk)
        if meta.bloom_filter_offset is None:
            return None
        try:
            stored, opened = scratch or (Scratch(), Scratch())
            offset, length, cipher = meta.bloom_filter_offset, meta.bloom_filter_length, self.cipher(chunk)
            return read_filter(self.source, offset, length, cipher, lambda kind: self.aad(chunk, kind), stored, opened)
        except BloomsealError as error:
            raise error.at(file=self.source.name, **chunk.place) from error.__cause__

    def index(self, chunk: Chunk, kind: ModuleType) -> bytes | None:
        """The plaintext of the chunk's column index or offset index (modules 6 and 7); None where there is none."""
        view = chunk.view
        if kind is ModuleType.COLUMN_INDEX:
            offset, length = view.column_index_offset, view.column_index_length
        else:
            offset, length = view.offset_index_offset, view.offset_index_length
        if offset is None or length is None:
            return None
        data = self.source.read(offset, length)
        cipher = self.cipher(chunk)
        if cipher is None:
            return bytes(data)
        try:
            return cipher.open(data, kind, self.aad(chunk, kind))
        except BloomsealError as error:
            raise error.at(file=self.source.name, module=kind.label, **chunk.place) from error.__cause__

    def extent(self, chunk: Chunk) -> tuple[int, int]:
        """Offset and length of the chunk's pages."""
        return extent(self.meta(chunk))

    def pages(self, chunk: Chunk, scratch: Scratch | None = None, *, passing: bool = False) -> Iterator[Page]:
        """The chunk's pages in their order, headers opened, bodies not yet.

        The whole chunk is read at once, into `scratch` where it is given: pages are then good until its next use. After
        the last page the values are counted: pages cut off at the end leave no other trace.

        Args:
            passing: each page is good until the next one is asked for. Of a local file two mebibytes are held then.

        Raises:
            FormatError, IntegrityError, KeyAccessError.
        """
        try:
            yield from self._pages(chunk, scratch or Scratch(), passing and self.source.fd is not None)
        except BloomsealError as error:
            raise error.at(file=self.source.name, **chunk.place) from error.__cause__

    def page_at(self, chunk: Chunk, offset: int, length: int, ordinal: int, read: memoryview | None = None) -> Page:
        """One page by its place, as an offset index or `extent` names it; ordinal −1 asks for the dictionary page.

        Args:
            read: what begins at `offset`, where that was read already.

        Raises:
            FormatError: the range holds anything but that one page.
            IntegrityError, KeyAccessError.
        """
        try:
            data = memoryview(self.source.read(offset, length)) if read is None else read[:length]
            page, end = read_page(data, 0, offset, ordinal, *self._of_pages(chunk))
            if end != length or page.ordinal != ordinal:
                raise FormatError("the offset index does not name this page", module=ModuleType.OFFSET_INDEX.label)
            self._look_at(page, chunk)
        except BloomsealError as error:
            raise error.at(file=self.source.name, **chunk.place) from error.__cause__
        return page

    def _look_at(self, page: Page, chunk: Chunk) -> None:
        if page.clear_levels:
            check_clear_levels(page, chunk.leaf)
        v2 = page.v2
        # Only who wrote a verified footer has a say against a header that may be sealed.
        wrong = self.footer.verified and self.footer.wrong(Claim.PARQUET_V2_IN_CLEAR)
        if v2 is not None and v2.is_compressed is False and wrong:
            v2.is_compressed = True  # decoders go by the writer, too

    def _pages(self, chunk: Chunk, scratch: Scratch, passing: bool) -> Iterator[Page]:
        start, length = self.extent(chunk)
        end_of_values = None
        if not chunk.encrypted and self.footer.wrong(Claim.PARQUET_CHUNK_SIZES):
            length, end_of_values = min(length + _LEFT_OUT, self.footer.offset - start), self.meta(chunk).num_values
        size = _WINDOW if passing else length
        data = self.source.read_into(scratch, start, min(size, length))
        cipher, aad = self._of_pages(chunk)
        position, begin, values = 0, 0, 0
        # Writers announce a dictionary page in two ways. The first page's header decides: its AAD names the kind.
        ordinal = -1
        # Some headers ahead: a page's body pushes out of the processor's caches what reading the next header needs.
        ahead: list[Page] = []
        try:
            while position < length and values != end_of_values:
                try:
                    page, end = read_page(data, position - begin, start + begin, ordinal, cipher, aad)
                except FormatError:
                    if begin + len(data) == length:
                        raise
                    end = 0
                if not end:  # the page may reach past what was read
                    yield from ahead
                    size = 2 * size if begin == position else _WINDOW
                    ahead, begin = [], position
                    data = self.source.read_into(scratch, start + begin, min(size, length - begin))
                    continue
                self._look_at(page, chunk)
                ahead.append(page)
                position = begin + end
                ordinal = page.ordinal + 1
                values += page.num_values
                if len(ahead) == _AHEAD:
                    yield from ahead
                    ahead = []
        except BloomsealError:
            yield from ahead
            raise
        yield from ahead
        if values != self.meta(chunk).num_values:
            raise FormatError(f"the pages hold {values} values, the column metadata says {self.meta(chunk).num_values}")

    def _of_pages(self, chunk: Chunk) -> tuple[ModuleCipher | None, Callable[[ModuleType, int], bytes]]:
        """The cipher of the chunk's pages, and what makes their AADs."""
        cipher = self.cipher(chunk)
        return cipher, page_aads(self._file_aad, chunk.row_group, chunk.leaf.index) if cipher else _no_aad

    def _open_meta(self, chunk: Chunk, sealed: bytes) -> bytes:
        cipher = self.cipher(chunk)
        assert cipher is not None  # noqa: S101
        kind = ModuleType.COLUMN_META_DATA
        ordinals = [chunk.row_group]
        if self.footer.row_group(chunk.row_group).ordinal is None:
            # Without RowGroup.ordinal Arrow C++ seals column metadata as row group −1, parquet-java as 0.
            ordinals += [-1, 0]
        for ordinal in ordinals:
            try:
                opened = cipher.open(sealed, kind, self.aad(chunk, kind, row_group=ordinal))
                chunk.meta_ordinal = ordinal
                return opened
            except IntegrityError as error:
                failure = error
        raise failure.at(**chunk.place) from None

    def _named_meta(self, chunk: Chunk) -> SealedColumnMetaData:
        """Metadata that says of itself which column it is of.

        Column ordinals alone are bound to a column's key. Whoever can change the schema (a signed footer that nobody
        has verified, or the footer's key) could else exchange two names, and have one column's values and filters
        answer for the other.
        """
        meta = decode(SealedColumnMetaData, self.meta_raw(chunk))
        if meta.path != [name.encode() for name in chunk.leaf.path]:
            raise FormatError(
                "the footer calls the column otherwise than its own metadata does",
                file=self.source.name,
                module="Column metadata",
                **chunk.place,  # type: ignore[arg-type]
            )
        return meta

    def _check(self, chunk: Chunk, meta: ColumnMetaData) -> None:
        def wrong(what: str) -> FormatError:
            return FormatError(what, file=self.source.name, module="Column metadata", **chunk.place)  # type: ignore[arg-type]

        if meta.type != chunk.leaf.type.physical:
            # Probing with another type's encoding finds nothing and says nothing: the worst kind of wrong answer.
            raise wrong("the column metadata's type is not the schema's")
        if meta.num_values is None or meta.num_values < 0:
            raise wrong("no lawful number of values")
        rows = self.footer.row_group(chunk.row_group).num_rows or 0
        if meta.num_values < rows or (meta.num_values > rows and not chunk.leaf.repeated):
            raise wrong(f"{meta.num_values} values in {rows} rows")
        size, start = meta.total_compressed_size, _start(meta)
        if size is None or size < 0 or (size and start < 4) or start + size > self.source.size:
            raise wrong("the pages reach outside the file")


def _no_aad(_kind: ModuleType, _page: int) -> bytes:
    return b""


def extent(meta: ColumnMetaData) -> tuple[int, int]:
    """Offset and length of a column chunk's pages, as its metadata have them."""
    return _start(meta), meta.total_compressed_size or 0


def _start(meta: ColumnMetaData) -> int:
    data, dictionary = meta.data_page_offset, meta.dictionary_page_offset
    if data is None:
        return -1
    # parquet-java writes 0 for "no dictionary page", which Arrow then believes in; Arrow C++ itself writes a data page
    # offset of 0 for an empty column chunk, in which only a dictionary page stands.
    return dictionary if dictionary is not None and dictionary > 0 and (dictionary < data or data == 0) else data
