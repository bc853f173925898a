"""One page of a column chunk: its header opened, its body as stored until it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..encryption import FRAME_BYTES, ModuleCipher, ModuleType, framed_length
from ..errors import BloomsealError, FormatError, IntegrityError, UnsupportedError
from ..limits import MAX_PAGE_HEADER_BYTES
from ..storage.source import Buffer
from ..thrift import Cursor, Struct, with_integers
from ..thrift.structs import DataPageHeader, DataPageHeaderV2, DictionaryPageHeader, PageHeader, decode_at

_HEADER_WINDOW: Final = 512
_INDEX_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 1, 2, 3
_MOST_INFLATED: Final = {0: 1, 1: 22, 2: 1_040, 5: 256, 6: 1 << 15, 7: 256}
"""The most bytes that one byte can stand for, by CompressionCodec (none, Snappy, gzip, both LZ4, zstd); Brotli knows no
such bound.
"""


class Page:
    """A page of a column chunk: its header in clear, and its body as stored.

    Attributes:
        kind: DATA_PAGE or DICTIONARY_PAGE.
        ordinal: index among the data pages; −1 for the dictionary page.
        header: the plaintext PageHeader, its padding cut off.
        view: the decoded header.
        stored: the body's bytes in the file, sealed where the chunk is encrypted.
        size: bytes of the body's plaintext (compressed, as the writer had it).
        offset, length: the range of header and body in the file.
        clear_levels: bytes of levels that an encrypted V2 page leaves in clear.
        inflated: the body's plaintext without compression, where a search has made it; None else.
    """

    __slots__ = (
        "_aad", "_cipher", "clear_levels", "header", "inflated", "kind", "length", "offset", "ordinal", "size", "stored",
        "view",
    )  # fmt: skip

    def __init__(
        self,
        kind: ModuleType,
        ordinal: int,
        header: bytes,
        view: PageHeader,
        stored: Buffer,
        place: tuple[int, int],
        cipher: ModuleCipher | None,
        aad: bytes,
    ) -> None:
        self.kind, self.ordinal, self.header, self.view, self.stored = kind, ordinal, header, view, stored
        self.offset, self.length = place
        self._cipher, self._aad = cipher, aad
        self.clear_levels = 0
        self.inflated: Buffer | None = None
        self.size = len(stored)
        if cipher is not None:
            self.clear_levels = _clear_levels(view, stored)
            if self.clear_levels < len(stored) or view.type != _DATA_PAGE_V2:
                frame = memoryview(stored)[self.clear_levels :]
                self.size = self.clear_levels + cipher.opened_size(frame, kind)

    @property
    def details(self) -> DictionaryPageHeader | DataPageHeader | DataPageHeaderV2 | None:
        """What the header says of a page of its type, as decoders go by: of several, the others might say something
        else.
        """
        if self.ordinal < 0:
            return self.view.dictionary
        return self.view.data_v2 if self.view.type == _DATA_PAGE_V2 else self.view.data

    @property
    def v2(self) -> DataPageHeaderV2 | None:
        """The `details` of a data page V2; None for other pages."""
        return self.view.data_v2 if self.view.type == _DATA_PAGE_V2 else None

    @property
    def encoding(self) -> int | None:
        """Of the values (Encoding)."""
        details = self.details
        return details.encoding if details else None

    @property
    def num_entries(self) -> int:
        """Of a data page its values, nulls included; of the dictionary page its entries."""
        details = self.details
        return max(details.num_values or 0, 0) if details else 0

    @property
    def num_values(self) -> int:
        """Values in a data page, nulls included; 0 for the dictionary page."""
        return self.num_entries if self.ordinal >= 0 else 0

    @property
    def encrypted(self) -> bool:
        return self._cipher is not None

    @property
    def authenticated(self) -> bool:
        """Whether opening proves the body. Not for plaintext, not for CTR."""
        return self._cipher is not None and self._cipher.overhead(self.kind) == FRAME_BYTES

    def could_inflate(self, codec: int | None) -> bool:
        """Whether a codec (CompressionCodec; None: no compression) could make of the body what the header claims."""
        claimed, most = self.view.uncompressed_size or 0, _MOST_INFLATED.get(codec or 0)
        if most == 1 or (self.v2 is not None and self.v2.is_compressed is False):
            # Exactly: a GCM page that is passed off as a CTR page is 16 bytes longer than its header says.
            return claimed == self.size
        return most is None or claimed <= most * self.size

    @property
    def relabelled(self) -> bool:
        """Whether a page that the file calls unauthenticated authenticates all the same. Then the file's word was
        altered.
        """
        if self._cipher is None or self.authenticated or len(self.stored) - self.clear_levels < FRAME_BYTES:
            return False
        return self._cipher.authenticates(memoryview(self.stored)[self.clear_levels :], self._aad)

    def open_into(self, out: memoryview) -> None:
        """Write the body's plaintext into `out`, of `size` bytes.

        Raises:
            IntegrityError: it does not authenticate.
        """
        if self._cipher is None:
            out[:] = self.stored
            return
        view = memoryview(self.stored)
        if levels := self.clear_levels:
            out[:levels] = view[:levels]
            view, out = view[levels:], out[levels:]
        if len(view):
            self._cipher.open_into(view, self.kind, self._aad, out)

    def body(self) -> Buffer:
        """The body's plaintext."""
        if self._cipher is None:
            return self.stored
        out = bytearray(self.size)
        with memoryview(out) as view:
            self.open_into(view)
        return out


def read_page(
    data: memoryview,
    position: int,
    base: int,
    ordinal: int,
    cipher: ModuleCipher | None,
    aad: Callable[[ModuleType, int], bytes],
) -> tuple[Page, int]:
    """The page at `position` of `data`, and where the next one begins.

    Args:
        base: offset of `data` in the file.
        ordinal: of the data page expected here; −1 at the start of a chunk, where a dictionary page may stand.
        cipher: None for plaintext.
        aad: makes the AAD of a module kind and page ordinal.

    Raises:
        FormatError: the page does not fit; UnsupportedError: an index page; IntegrityError.
    """
    begin = position
    if cipher is None:
        view, header = _plain_page_header(data[position:])
        position += len(header)
    else:
        size = framed_length(data, ModuleType.DATA_PAGE_HEADER, position)
        if size > min(len(data) - position, MAX_PAGE_HEADER_BYTES):
            raise FormatError("a page header reaches past its column chunk")
        header = _open_page_header(cipher, data[position : position + size], ordinal, aad)
        cursor = Cursor(header)
        view = decode_at(PageHeader, cursor)
        header = header[: cursor.position]
        position += size
    body = view.size
    if body is None or not 0 <= body <= len(data) - position:
        raise FormatError("a page reaches past its column chunk", module=ModuleType.DATA_PAGE.label)
    if view.type == _INDEX_PAGE:
        raise UnsupportedError("an index page inside a column chunk")
    dictionary = view.type == _DICTIONARY_PAGE
    if dictionary and ordinal >= 0:
        raise FormatError("a dictionary page after the first page")
    kind = ModuleType.DICTIONARY_PAGE if dictionary else ModuleType.DATA_PAGE
    number = -1 if dictionary else max(ordinal, 0)
    end = position + body
    try:
        module_aad = aad(kind, number) if cipher else b""
        page = Page(kind, number, header, view, data[position:end], (base + begin, end - begin), cipher, module_aad)
    except BloomsealError as error:
        raise error.at(module=f"{kind.label} {number}") from error.__cause__
    return page, end


def check_doubtful(page: Page, codec: int | None) -> None:
    """A page that nothing authenticates can at least contradict its header, which is sealed where the column is.

    Args:
        codec: the column chunk's (CompressionCodec).

    Raises:
        IntegrityError: it was sealed with GCM, and the file's word for it was altered.
        FormatError: it can't become the bytes that its header says.
    """
    if not page.encrypted or page.authenticated:
        return
    place = f"{page.kind.label} {page.ordinal}"
    if page.relabelled:
        raise IntegrityError(
            "the page was sealed with AES_GCM_V1, and the file says AES_GCM_CTR_V1: that word was altered", module=place
        )
    if not page.could_inflate(codec):
        raise FormatError(
            f"{page.size} bytes can't be the {page.view.uncompressed_size} that the page's header says", module=place
        )


def resized_header(page: Page, size: int, crc: int | None = None) -> bytes:
    """The page's header for a body of another size, with this CRC or none."""
    if page.view.crc is None:
        return with_integers(page.header, (None, None, size))
    header = Struct.parse(page.header)
    header.set_i32(3, size)
    if crc is None:
        header.remove(4)
    else:
        header.set_i32(4, crc - (1 << 32) if crc >= 1 << 31 else crc)
    return header.to_bytes()


def _open_page_header(
    cipher: ModuleCipher, framed: memoryview, ordinal: int, aad: Callable[[ModuleType, int], bytes]
) -> bytes:
    if ordinal < 0:
        kind = ModuleType.DICTIONARY_PAGE_HEADER
        try:
            return cipher.open(framed, kind, aad(kind, -1))
        except IntegrityError:
            pass
    kind = ModuleType.DATA_PAGE_HEADER
    try:
        return cipher.open(framed, kind, aad(kind, max(ordinal, 0)))
    except IntegrityError as error:
        raise error.at(module=f"{kind.label} {max(ordinal, 0)}") from error.__cause__


def _plain_page_header(data: memoryview) -> tuple[PageHeader, bytes]:
    """The header that starts `data`; its length is not written anywhere, so a small window is tried first."""
    window = _HEADER_WINDOW
    while True:
        cursor = Cursor(bytes(data[:window]))
        try:
            view = decode_at(PageHeader, cursor)
        except FormatError:
            if window >= min(len(data), MAX_PAGE_HEADER_BYTES):
                raise
            window *= 16
        else:
            return view, cursor.data[: cursor.position]


def _clear_levels(view: PageHeader, stored: Buffer) -> int:
    """Bytes of levels before the sealed part of a V2 page: some writers leave them in clear, others seal all.

    The length prefix tells which: it fits in one place only.
    """
    v2 = view.data_v2
    if view.type != _DATA_PAGE_V2 or v2 is None:
        return 0
    size = len(stored)
    if size >= 4 and int.from_bytes(stored[:4], "little") == size - 4:
        return 0
    levels = (v2.definition_levels or 0) + (v2.repetition_levels or 0)
    if 0 <= levels <= size - 4 and int.from_bytes(stored[levels : levels + 4], "little") == size - levels - 4:
        return levels
    if levels == size:
        return levels
    raise FormatError("a V2 page whose length prefix fits neither layout", module=ModuleType.DATA_PAGE.label)
