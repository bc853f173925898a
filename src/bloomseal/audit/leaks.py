"""The leak demonstration: how many candidate values a filter in clear confirms to somebody who has no key."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from ..core.decryption import DecryptionSpec
from ..core.errors import BloomsealError, UsageError
from ..core.parquet.keys_at_hand import KeysAtHand
from ..core.parquet.schema import Leaf
from ..core.parquet.walk import Chunk, Protection, Walk
from ..core.sbbf import ColumnType, PhysicalType, ProbeSet, SplitBlockBloomFilter
from ..format.hashes.chunk_hashes import chunk_hashes
from ..format.opening import open_footer
from ..storage.places import open_source
from .pattern import Pattern

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

DEFAULT_BOUND: Final = 1_000_000
_PORTION: Final = 65_536
_PACED: Final = 1 << 16
_TIMES: Final = 3


class NothingLeaksError(UsageError):
    """No filter of the column stands in clear."""


@dataclass(frozen=True)
class Demonstration:
    """The answers of a filter in clear. No candidate is ever repeated.

    Attributes:
        file, column: where.
        row_groups: how many have a filter in clear, of how many.
        candidates: how many were asked for, out of how many that the pattern stands for.
        confirmed: how many the filters may hold.
        expected_false: how many of those are false by the filters' own probability.
        precision: the share of confirmed candidates that are in the file: exact where the values could be read, else
            expected; None where nothing was confirmed.
        exact: which of the two.
    """

    file: str
    column: str
    row_groups: tuple[int, int]
    candidates: int
    possible: int | None
    confirmed: int
    expected_false: float
    precision: float | None
    exact: bool

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "file": self.file,
            "column": self.column,
            "row_groups_with_filter_in_clear": self.row_groups[0],
            "row_groups": self.row_groups[1],
            "candidates": self.candidates,
            "possible_candidates": self.possible,
            "confirmed": self.confirmed,
            "expected_false": round(self.expected_false, 3),
            "precision": None if self.precision is None else round(self.precision, 6),
            "precision_is_exact": self.exact,
        }


def demonstrate(
    path: str | os.PathLike[str],
    column: str,
    candidates: Iterable[Any] | Pattern,
    *,
    most: int = DEFAULT_BOUND,
    keys: Any = None,
    filesystem: FileSystem | None = None,
) -> Demonstration:
    """Ask the filters in clear of a column for candidates, as anybody could.

    Args:
        path, filesystem: the file.
        column: dotted path.
        candidates: values, or a pattern; at most `most` of its texts are tried, evenly spread. Texts are turned into
            the column's type.
        keys: used only to count how many of the confirmed candidates are truly there; for a plaintext column none are
            needed.

    Raises:
        UsageError: no such column, candidates of the wrong kind, or no filter in clear: nothing leaks.
        BloomsealError: the file can't be read, or its footer is encrypted and no key is at hand.
    """
    with _clear_filters(path, column, keys, filesystem) as found:
        if not found.filters:
            raise NothingLeaksError("no filter of this column stands in clear: nothing leaks", column=found.leaf.name)
        truth = found.values()
        text = isinstance(candidates, Pattern)
        possible = candidates.total if isinstance(candidates, Pattern) else None
        asked = confirmed = true = 0
        for portion in _portions(candidates, most):
            values = [_typed(value, found.leaf.type) for value in portion] if text or _texts(portion) else portion
            probe = ProbeSet.of(values, found.leaf.type)
            hits = found.check(probe)
            asked += len(values)
            confirmed += int(hits.sum())
            if truth is not None:
                hashes, owners, _ = probe.hashes()
                true += len(np.unique(owners[np.isin(hashes, truth) & hits[owners]]))
        miss = math.prod(1 - one.false_positive_probability() for one in found.filters.values())
        expected_false = min((asked - confirmed) * (1 - miss) / max(miss, 1e-12), float(confirmed))
        hits_true = true if truth is not None else confirmed - expected_false
        return Demonstration(
            found.name, found.leaf.name, (len(found.filters), found.row_groups), asked, possible, confirmed, expected_false,
            hits_true / confirmed if confirmed else None, truth is not None,
        )  # fmt: skip


@dataclass(frozen=True)
class Pace:
    """How fast the filters in clear of one column of one file give answers to anybody.

    Attributes:
        filters: row groups with a filter in clear.
        values: the number of distinct values in them, estimated from their bits; one in several row groups counts in
            each.
        per_second: candidates, each held against all of these filters, on one core of this machine.
    """

    filters: int
    values: int
    per_second: float


def pace(
    path: str | os.PathLike[str], column: str, *, keys: Any = None, filesystem: FileSystem | None = None
) -> Pace | None:
    """Ask the filters in clear of a column for made-up candidates; None where it has none in clear.

    Args:
        path, filesystem: the file.
        column: dotted path.
        keys: only to find filters in clear that an encrypted footer names.

    Raises:
        UsageError: no such column. BloomsealError: the file can't be read.
    """
    with _clear_filters(path, column, keys, filesystem) as found:
        if not found.filters:
            return None
        candidates = [_typed(f"{index:09d}", found.leaf.type) for index in range(_PACED)]
        took = []
        for _ in range(_TIMES):
            began = time.process_time()
            found.check(ProbeSet.of(candidates, found.leaf.type))
            took.append(time.process_time() - began)
        values = sum(one.estimated_ndv() for one in found.filters.values())
        return Pace(len(found.filters), int(values), _PACED / max(min(took), 1e-6))


@dataclass(frozen=True)
class _ClearFilters:
    """A column's filters in clear, by row group; `walk` has the keys at hand."""

    name: str
    leaf: Leaf
    row_groups: int
    filters: dict[int, SplitBlockBloomFilter]
    walk: Walk

    def check(self, probe: ProbeSet) -> npt.NDArray[np.bool_]:
        """Per candidate, whether any of them may hold it."""
        hits: npt.NDArray[np.bool_] = np.logical_or.reduce([probe.check(one) for one in self.filters.values()])
        return hits

    def values(self) -> npt.NDArray[np.uint64] | None:
        """The hashes of the values that they are over; None where these can't be read."""
        try:
            return np.unique(np.concatenate([chunk_hashes(self.walk, group, self.leaf) for group in self.filters]))
        except BloomsealError:
            return None


@contextmanager
def _clear_filters(
    path: str | os.PathLike[str], column: str, keys: Any, filesystem: FileSystem | None
) -> Iterator[_ClearFilters]:
    with open_source(path, filesystem) as source:
        decryption = None if keys is None else DecryptionSpec(keys, allow_plaintext=True, allow_unverified_footer=True)
        footer, hand = open_footer(source, decryption, keyless=True)
        leaf, groups = footer.schema.leaf(column), range(len(footer.row_groups))
        blind, walk = Walk(source, footer, KeysAtHand(footer.crypto, None)), Walk(source, footer, hand)
        found = {group: _clear_filter(blind, walk, walk.chunk(group, leaf.index)) for group in groups}
        filters = {group: one for group, one in found.items() if one is not None}
        yield _ClearFilters(source.name, leaf, len(groups), filters, walk)


def _clear_filter(blind: Walk, walk: Walk, chunk: Chunk) -> SplitBlockBloomFilter | None:
    """The chunk's filter, if it answers without a key; where it is may be known from an opened footer."""
    meta = chunk.view.meta_data
    try:
        if meta is None or meta.bloom_filter_offset is None:
            meta = walk.meta(chunk)
        # As somebody sees it who takes the column for a plaintext one.
        found = blind.filter(Chunk(chunk.row_group, chunk.leaf, chunk.view, Protection.PLAINTEXT, b"", meta=meta))
    except BloomsealError:
        return None
    return None if found is None else SplitBlockBloomFilter.from_bitset(found.bitset)


def _portions(candidates: Iterable[Any] | Pattern, most: int) -> Iterator[list[Any]]:
    if isinstance(candidates, Pattern):
        yield from (portion for portion in candidates.sample(most) if portion)
        return
    rest = islice(iter(candidates), most)
    while portion := list(islice(rest, _PORTION)):
        yield portion


def _texts(values: list[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _typed(text: str, kind: ColumnType) -> Any:
    try:
        match kind.physical:
            case PhysicalType.INT32 | PhysicalType.INT64:
                return int(text)
            case PhysicalType.FLOAT | PhysicalType.DOUBLE:
                return float(text)
            case _:
                return text if kind.logical is not None else text.encode()
    except ValueError:
        pass  # raised below, so that the text is not part of the chain
    raise UsageError("a candidate is no number, and the column holds numbers")
