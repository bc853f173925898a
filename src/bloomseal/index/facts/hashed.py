"""One data file as fingerprints: its pages hashed undecoded, from the very handle whose state goes into the fact."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from ...core.encryption import Algorithm
from ...core.errors import BloomsealError, UnsupportedError
from ...core.parquet.footer import plain_footer
from ...core.parquet.layout import MAGIC, FileMeta
from ...core.parquet.walk import Walk
from ...format.calendar import need_one_calendar
from ...format.hashes.chunk_hashes import carries_filter, page_by_page
from ...read.page_places import indexed_pages
from ...read.parquet import ParquetFile
from ...sbbf import batch
from ..manifest import MOST_STRIDE, FileState
from ..numbers import distinct
from .sameness import content_of, leaf_in, open_state

if TYPE_CHECKING:
    from ...core.parquet.schema import Leaf
    from ..fingerprint import Fingerprints

_LARGE: Final = 1 << 15
"""Of a row group with so many rows, to read the page in question alone pays."""
_TWICE: Final = 1.25
"""Values that are on so many pages each, on average, are told by row group: more entries would buy little."""


class NotCoveredError(BloomsealError):
    """No fact about this file would be safe; its own filters are asked, as ever."""


@dataclass(frozen=True)
class SeenFile:
    """What a fact says of one file, beside its values.

    Attributes:
        state: of the file.
        groups: its row groups.
        stride: places of a row group: the first for values that may be anywhere in it, one more for each page.
        doc: its schema, as a Parquet file without rows.
        content: what stays the same as long as no page of the column changes.
    """

    state: FileState
    groups: int
    doc: bytes
    content: bytes
    stride: int = 1

    def within(self, most: int) -> SeenFile:
        """The same, told by row group alone if it took more than so many places otherwise."""
        return self if self.groups * self.stride <= most else replace(self, stride=1)


def seen_file(file: ParquetFile, column: str, state: FileState) -> SeenFile:
    """A file's facts but for its values.

    Args:
        state: of the file, as it was before it was opened.

    Raises:
        NotCoveredError: nothing authenticates the file.
        PolicyError: it has a name that could be taken for that of an encrypted column; whoever reads it is told so.
    """
    crypto = file.walk.footer.crypto
    if crypto is None or not file.footer_verified:
        raise NotCoveredError("nothing authenticates its footer", file=file.path)
    if crypto.algorithm is not Algorithm.AES_GCM_V1:
        raise NotCoveredError("nothing authenticates its pages (AES_GCM_CTR_V1)", file=file.path)
    file.walk.keys.expectation.names(file.leaves)
    leaf = leaf_in(file, column)
    if leaf is None and file.leaves.may_hide(column):
        raise NotCoveredError("it may have the column by another path", file=file.path, column=column)
    if leaf is not None:
        carries_filter(leaf)
        for group in range(file.num_row_groups):
            if not file.walk.chunk(group, leaf.index).encrypted:
                raise NotCoveredError("the column is in plaintext", file=file.path, column=column)
            try:
                need_one_calendar(file.walk, group, [leaf])
            except UnsupportedError as error:
                raise NotCoveredError(error.what, file=file.path, column=column) from None
    content = content_of(file.walk, leaf)
    return SeenFile(state, file.num_row_groups, _doc(file.walk), content, stride_of(file.walk, leaf))


def hashed_places(
    file: ParquetFile, column: str, fingerprints: Fingerprints, stride: int
) -> Iterator[tuple[int, npt.NDArray[np.uint64]]]:
    """Per place, counted from the file's first, the fingerprints of its values, each once, ascending.

    A file without the column has none.

    They count for nothing before `still_same` was asked at the end.

    Raises:
        FormatError, IntegrityError, KeyAccessError.
    """
    leaf = leaf_in(file, column)
    batch.expect(0 if leaf is None else file.num_rows)
    for group in range(0 if leaf is None else file.num_row_groups):
        assert leaf is not None  # noqa: S101
        pages: dict[int, list[npt.NDArray[np.uint64]]] = {}
        for ordinal, hashes in page_by_page(file.walk, group, leaf):
            slot = ordinal + 1 if ordinal + 1 < stride else 0
            pages.setdefault(slot, []).append(fingerprints.of(np.asarray(hashes, dtype=np.uint64)))
        apart = {slot: distinct(np.concatenate(found)) for slot, found in pages.items()}
        if len(apart) > 1:
            together = distinct(np.concatenate(list(apart.values())))
            if sum(map(len, apart.values())) > _TWICE * len(together):
                apart = {0: together}
        for slot, found in apart.items():
            yield group * stride + slot, found


def still_same(file: ParquetFile, seen: SeenFile, now: FileState | None) -> None:
    """Whether the open file is the one that has the state now, and had it before.

    Raises:
        NotCoveredError: somebody wrote to it meanwhile.
    """
    if not now == (open_state(file) or now) == seen.state:
        raise NotCoveredError("somebody wrote to it while it was hashed", file=file.path, hint="index update")


def stride_of(walk: Walk, leaf: Leaf | None) -> int:
    """See `SeenFile.stride`."""
    groups = range(0 if leaf is None else len(walk.footer.row_groups))
    large = [group for group in groups if (walk.footer.row_group(group).num_rows or 0) >= _LARGE]
    if leaf is None or not large:
        return 1
    listed = (indexed_pages(walk, walk.chunk(group, leaf.index)) for group in large)
    most = max(0 if pages is None else len(pages.offsets) for pages in listed)
    return min(1 + most, MOST_STRIDE) if most > 1 else 1


def _doc(walk: Walk) -> bytes:
    """A plaintext Parquet file of the same schema and key-value metadata, without row groups."""
    footer = walk.footer.struct.copy()
    footer.remove(FileMeta.ALGORITHM, FileMeta.SIGNING_KEY)
    footer.set_list(FileMeta.ROW_GROUPS, [])
    footer.set_i64(FileMeta.NUM_ROWS, 0)
    return MAGIC + plain_footer(footer.to_bytes())
