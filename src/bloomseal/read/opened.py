"""An open Parquet file, as its footer tells of it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from ..core.errors import Hint
from ..core.parquet.keys_at_hand import KeysAtHand, need_verified
from ..core.parquet.schema import Leaf, Schema
from ..core.parquet.walk import Walk
from ..core.storage.source import Source
from ..format.opening import keys_again, open_footer
from ..specs import decryption_for
from ..storage.formats import Format
from .plan import likeness

if TYPE_CHECKING:
    from ..core.decryption import DecryptionSpec
    from ..policy import TablePolicy

__all__ = ["OpenedFile", "RowGroupInfo"]


@dataclass(frozen=True, slots=True)
class RowGroupInfo:
    """A row group: its index, rows, and bytes before compression."""

    index: int
    num_rows: int
    total_byte_size: int


class OpenedFile:
    """What a file says of itself, and whether it is to be believed. Nothing behind its footer is read here."""

    format: ClassVar = Format.PARQUET

    def __init__(self, source: Source, decryption: DecryptionSpec | TablePolicy | None) -> None:
        self._source = source
        self._decryption = decryption_for(decryption, source.ref)
        footer, keys = open_footer(source, self._decryption)
        self._expectation = keys.expectation
        self._footer = footer
        self._walk = Walk(source, footer, keys)

    @property
    def path(self) -> str:
        return self._source.name

    @property
    def encrypted(self) -> bool:
        """Is anything in the file encrypted?"""
        return self._footer.crypto is not None

    @property
    def footer_verified(self) -> bool:
        """Was the footer opened or its signature checked with the footer key? A plaintext file's never is."""
        return self._footer.crypto is not None and self._footer.verified

    @property
    def columns(self) -> list[str]:
        """Dotted paths of all leaf columns, as tables have them."""
        return [leaf.name for leaf in self.leaves.leaves]

    @property
    def num_rows(self) -> int:
        return self._footer.num_rows

    @property
    def num_row_groups(self) -> int:
        return len(self._footer.row_groups)

    @property
    def row_groups(self) -> list[RowGroupInfo]:
        """All row groups."""
        views = (self._footer.row_group(index) for index in range(self.num_row_groups))
        return [RowGroupInfo(i, view.num_rows or 0, view.total_byte_size or 0) for i, view in enumerate(views)]

    @property
    def walk(self) -> Walk:
        """The file as its modules."""
        return self._walk

    @property
    def source(self) -> Source:
        """The bytes."""
        return self._source

    @property
    def leaves(self) -> Schema:
        """The columns, as predicates know them."""
        return self._footer.schema

    @property
    def likeness(self) -> Hashable:
        """Equal for files whose columns have equal names and types, so that one plan serves all of them; None: nothing
        tells.
        """
        return likeness(self._footer)

    def leaf(self, column: str) -> Leaf:
        """The leaf of a dotted path.

        Raises:
            UsageError: no such column, or several.
        """
        return self.leaves.leaf(column)

    def has(self, column: str) -> bool:
        """Is there a leaf at or below this dotted path?"""
        return self.leaves.has(column)

    @property
    def num_parts(self) -> int:
        """How many parts the rows are decoded in: row groups, of an ORC file stripes."""
        return self.num_row_groups

    def seals(self, leaf: Leaf) -> bool:
        """Is the column encrypted, in any row group?"""
        return any(self.walk.chunk(group, leaf.index).encrypted for group in range(self.num_row_groups))

    def rows_in_part(self, part: int) -> int:
        """How many rows there are in a part."""
        return self._footer.row_group(part).num_rows or 0

    def column_type(self, column: str) -> str:
        """The column's physical and logical type, in words."""
        return str(self.leaf(column).type)

    def forget_keys(self) -> None:
        """Be open without them, until they are asked for again."""
        self._walk.keys = KeysAtHand(None, None, self._expectation)

    def ask_keys_again(self) -> None:
        """After `forget_keys`, as if the file were opened now.

        Raises:
            KeyAccessError: the footer key can't be had.
        """
        self._walk.keys = keys_again(self._source, self._footer, self._decryption, self._expectation)

    def close(self) -> None:
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "encrypted" if self.encrypted else "plaintext"
        name = type(self).__name__
        return f"<{name} {self.path}: {self.num_rows} rows, {self.num_row_groups} row groups, {state}>"

    @property
    def _int96_utc(self) -> bool:
        return bool(self._decryption and self._decryption.int96_utc)

    def need_verified(self, what: str) -> None:
        """Refuse what would rely on a footer that could not be verified, if that was not allowed.

        Args:
            what: the use, in a word.

        Raises:
            PolicyError: the footer's signature could not be checked.
        """
        allowed = self._decryption is not None and self._decryption.allow_unverified_footer
        if not allowed:
            need_verified(self._footer, self._source, f"a {what}", Hint.VERIFIED_FOOTER)
