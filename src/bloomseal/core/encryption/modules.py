"""Module kinds and the AAD that pins a module to its place (Parquet encryption, section 4.4)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Final

from ..cached import cached_property
from ..errors import UnsupportedError
from ..limits import MAX_ORDINAL

_ORDINALS: Final = struct.Struct("<Bhh").pack
_ORDINALS_WITH_PAGE: Final = struct.Struct("<Bhhh").pack
_ORDINAL: Final = struct.Struct("<h").pack


class ModuleType(IntEnum):
    """The module kinds of section 4.4.2; the value is the byte that stands in the AAD."""

    FOOTER = 0
    COLUMN_META_DATA = 1
    DATA_PAGE = 2
    DICTIONARY_PAGE = 3
    DATA_PAGE_HEADER = 4
    DICTIONARY_PAGE_HEADER = 5
    COLUMN_INDEX = 6
    OFFSET_INDEX = 7
    BLOOM_FILTER_HEADER = 8
    BLOOM_FILTER_BITSET = 9

    # Asked for with every module; an enum's own lookups by name are slow.

    @cached_property
    def label(self) -> str:
        """The kind in words, as errors and reports name it."""
        return self.name.replace("_", " ").capitalize().replace("meta data", "metadata")

    @cached_property
    def is_page(self) -> bool:
        """True for the two kinds that AES_GCM_CTR_V1 seals with CTR (section 4.2)."""
        return self in (ModuleType.DATA_PAGE, ModuleType.DICTIONARY_PAGE)

    @cached_property
    def has_page_ordinal(self) -> bool:
        return self in (ModuleType.DATA_PAGE, ModuleType.DATA_PAGE_HEADER)


_OF_PAGES: Final = (
    ModuleType.DATA_PAGE,
    ModuleType.DICTIONARY_PAGE,
    ModuleType.DATA_PAGE_HEADER,
    ModuleType.DICTIONARY_PAGE_HEADER,
)


def file_aad(prefix: bytes, unique: bytes) -> bytes:
    """File AAD = AAD prefix ‖ aad_file_unique (section 4.4.1)."""
    return prefix + unique


def module_aad(file_aad: bytes, kind: ModuleType, row_group: int = -1, column: int = -1, page: int = -1) -> bytes:
    """Module AAD = file AAD ‖ kind ‖ row group (i16le) ‖ column (i16le) ‖ page (i16le, data pages only).

    The footer's AAD stops after the kind. −1 is a lawful row group only for column metadata that Arrow C++ wrote
    without an ordinal.

    Raises:
        UnsupportedError: an ordinal that int16 cannot hold.
    """
    if kind is ModuleType.FOOTER:
        return file_aad + b"\x00"
    if row_group > MAX_ORDINAL or column > MAX_ORDINAL or page > MAX_ORDINAL:
        raise _beyond(kind)
    if kind.has_page_ordinal:
        return file_aad + _ORDINALS_WITH_PAGE(kind, row_group, column, page)
    return file_aad + _ORDINALS(kind, row_group, column)


def page_aads(file_aad: bytes, row_group: int, column: int) -> Callable[[ModuleType, int], bytes]:
    """As `module_aad`, for the many pages of one column chunk."""
    known = {kind: module_aad(file_aad, kind, row_group, column, 0) for kind in _OF_PAGES}
    numbered = {kind: aad[:-2] for kind, aad in known.items() if kind.has_page_ordinal}

    def made(kind: ModuleType, page: int) -> bytes:
        if kind not in numbered:
            return known[kind]
        if page > MAX_ORDINAL:
            raise _beyond(kind)
        return numbered[kind] + _ORDINAL(page)

    return made


def _beyond(kind: ModuleType) -> UnsupportedError:
    return UnsupportedError(
        f"encrypted files hold at most {MAX_ORDINAL + 1} row groups, columns, and pages in a column chunk",
        module=kind.label,
        hint="larger row groups or larger data pages",
    )
