"""Whether a filter, or an index, is worth it: told from a trial on a sample of a table's row groups, in memory.

Filters are built for the row groups of the sample, and asked for values that are in the table and for values that are
not; what they rule out counts beyond what statistics rule out. An index leaves the row groups that hold the value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..core.errors import BloomsealError, UsageError
from ..core.parquet.statistics import bounds, outside
from ..core.sbbf import PhysicalType, SplitBlockBloomFilter, hash_bytes
from ..core.sbbf.encoding import encode_value
from ..core.sbbf.order import comparable
from ..core.text import counted
from ..format.decode import leaf_values, read_row_group
from ..format.hashes.chunk_hashes import chunk_hashes
from ..index.facts.hashed import stride_of
from ..index.fingerprint import bits_for
from ..notebook import ShownInNotebooks
from ..read.parquet import ParquetFile, need_parquet
from ..sbbf import FilterSpec

if TYPE_CHECKING:
    from ..core.parquet.schema import Leaf
    from .query.parts import TableParts

U64 = npt.NDArray[np.uint64]

_FILES, _GROUPS, _VALUES = 24, 32, 8
"""Looked at: files, row groups of them, and values of each row group."""
_OF_LEFT, _OF_ALL, _OF_BYTES = 0.5, 0.1, 0.75
"""A filter is worth it that rules out this share of the row groups that statistics leave, and of all row groups, and
with which a look-up reads no more than this share of the column's bytes, those of filters counted."""
_MANY_FILES, _LEFT_FILES = 16, 0.25
"""An index is worth it in a table of so many files of which it leaves this share to open. By statistics and filters
each file is opened."""
_TRIES: Final = 2
_NUMBERS: Final = (PhysicalType.INT32, PhysicalType.INT64, PhysicalType.FLOAT, PhysicalType.DOUBLE)
_ALIKE: Final = ((ord("0"), 10), (ord("a"), 26), (ord("A"), 26))
"""Signs that take one another's place: the first, and how many."""
_SEALED: Final = 90
"""Bytes that sealing adds to a filter, and its header."""
_RUN_BYTES: Final = 700
_MINIBLOCK: Final = 32


@dataclass
class ColumnAdvice(ShownInNotebooks):
    """What one column is worth. Row groups are those of the table, counted in the sample, on average of a look-up
    (``==``): `present` of a value that is in the table, `absent` of one that is not.

    Attributes:
        column, type: dotted path, physical and logical type.
        verdict: ``index``, ``filter`` or ``neither``.
        why: in words.
        files, row_groups: of the table; the latter estimated from the files looked at.
        distinct: values per row group.
        statistics_present, statistics_absent: row groups that statistics rule out.
        filter_present, filter_absent: row groups that filters and statistics rule out.
        index_present, index_absent: row groups that an index rules out.
        files_opened_by_index: for a value that is there; all of them without an index.
        filter_bytes, index_bytes: on disk.
        column_bytes: of the column itself.
        queries: how often queries name the column by ``==`` or ``in``; None where none were given.
    """

    column: str
    type: str
    verdict: str
    why: str
    files: int = 0
    row_groups: int = 0
    distinct: float = 0.0
    statistics_present: float = 0.0
    statistics_absent: float = 0.0
    filter_present: float = 0.0
    filter_absent: float = 0.0
    index_present: float = 0.0
    index_absent: float = 0.0
    files_opened_by_index: float = 0.0
    filter_bytes: int = 0
    index_bytes: int = 0
    column_bytes: int = 0
    queries: int | None = None


class _SampledGroup(NamedTuple):
    """A row group that was looked at: the hashes of its values, each once; a filter of them; its bounds; some values in
    plain encoding; bytes of the column chunk.
    """

    hashes: U64
    filter: SplitBlockBloomFilter
    bounds: tuple[bytes, bytes] | None
    values: list[bytes]
    size: int


@dataclass
class _ColumnSample:
    leaf: Leaf
    groups: list[_SampledGroup] = field(default_factory=list)
    left: str | None = None
    stride: int = 1


def advise(
    table: TableParts,
    columns: Sequence[str] | None = None,
    *,
    queries: Mapping[str, Sequence[Any]] | None = None,
    fpp: float = 0.01,
    false_places: float = 0.001,
) -> list[ColumnAdvice]:
    """For each column: a filter, an index, or neither.

    Args:
        table: opened with the keys of the columns.
        columns: dotted paths; None: all leaf columns.
        queries: column → values that queries look for. They take the place of values of the table, and of values that
            are not in it; and a column that none names gets neither.
        fpp, false_places: of the filter and the index to compare.

    Returns:
        One for each column, in the order of the schema. A column whose values can't be looked at says why.

    Raises:
        UsageError: a table without files, or no such column.
        BloomsealError: no file can be opened.
    """
    files = table.files
    if not files:
        raise UsageError("a table without files")
    chosen = sorted({number * len(files) // min(_FILES, len(files)) for number in range(min(_FILES, len(files)))})
    samples: dict[str, _ColumnSample] = {}
    groups = rows = 0
    each = -(-_GROUPS // len(chosen))
    for number in chosen:
        with table.open(number) as opened:
            file = need_parquet(opened)
            groups += file.num_row_groups
            rows += file.num_rows
            wanted = [leaf for leaf in file.leaves.leaves if columns is None or leaf.name in columns]
            for leaf in wanted:
                _look(file, leaf, samples.setdefault(leaf.name, _ColumnSample(leaf)), each, FilterSpec(fpp=fpp))
    for name in columns or ():
        if name not in samples:
            raise UsageError("no such column in the files looked at", column=name, hint=", ".join(list(samples)[:10]))
    scale = len(files) / len(chosen)
    size = _Size(len(files), max(round(groups * scale), 1), round(rows * scale), false_places)
    return [_advice(sample, size, queries) for sample in samples.values()]


@dataclass(frozen=True)
class _Size:
    files: int
    groups: int
    rows: int
    false_places: float


def _look(file: ParquetFile, leaf: Leaf, sample: _ColumnSample, each: int, spec: FilterSpec) -> None:
    if sample.left is not None:
        return
    if leaf.type.physical is PhysicalType.BOOLEAN:
        sample.left = "two values, in every row group"
        return
    count = file.num_row_groups
    try:
        for group in sorted({number * count // min(each, count) for number in range(min(each, count))}):
            hashes = np.unique(np.asarray(chunk_hashes(file.walk, group, leaf), dtype=np.uint64))
            meta = file.walk.meta(file.walk.chunk(group, leaf.index))
            found = bounds(meta, leaf, file.walk.footer.ordered[leaf.index])
            values = _encoded(_some(file, group, leaf), leaf)
            sample.groups.append(
                _SampledGroup(hashes, spec.build(hashes), found, values, meta.total_compressed_size or 0)
            )
        sample.stride = max(sample.stride, stride_of(file.walk, leaf))
    except BloomsealError as error:
        sample.left = error.what


def _some(file: ParquetFile, group: int, leaf: Leaf) -> list[Any]:
    column = leaf_values(read_row_group(file.walk, group, [leaf.index]).column(0))
    found = column.drop_null() if len(column) else column
    if pa.types.is_duration(found.type):
        found = found.cast(pa.int64())  # as they are asked for
    if not len(found):
        return []
    steps = np.random.default_rng(group).integers(0, len(found), _VALUES)
    return list(pc.take(found, pa.array(steps)))  # Python holds no nanoseconds, and no far years


def _encoded(values: Sequence[Any], leaf: Leaf) -> list[bytes]:
    return [found[0] for value in values if (found := encode_value(value, leaf.type))]


def _advice(sample: _ColumnSample, size: _Size, queries: Mapping[str, Sequence[Any]] | None) -> ColumnAdvice:
    leaf = sample.leaf
    made = ColumnAdvice(leaf.name, str(leaf.type), "neither", sample.left or "", size.files, size.groups)
    groups = sample.groups
    if queries is not None:
        made.queries = len(queries.get(leaf.name, ()))
    if sample.left is None and not any(one.values for one in groups):
        made.why = "its values can't be looked up" if any(len(one.hashes) for one in groups) else "no values"
    if made.why:
        return made
    made.distinct = sum(len(one.hashes) for one in groups) / len(groups)
    made.filter_bytes = round((sum(one.filter.num_bytes for one in groups) / len(groups) + _SEALED) * size.groups)
    made.column_bytes = round(sum(one.size for one in groups) / len(groups) * size.groups)
    asked = None if queries is None else _encoded(queries.get(leaf.name, ()), leaf)
    _try(made, sample, size, asked)
    made.verdict, made.why = _verdict(made)
    return made


def _try(made: ColumnAdvice, sample: _ColumnSample, size: _Size, asked: list[bytes] | None) -> None:
    """Ask for values that are in the table, and for values that are not."""
    groups, leaf, holding = sample.groups, sample.leaf, 1.0
    drawn = [(own, value) for own, one in enumerate(groups) for value in one.values]
    if asked is not None:
        drawn = [(-1, value) for value in asked]
    seen = _ruled_out(drawn, sample, size)
    present, absent = seen[seen[:, 2] > 0], seen[seen[:, 2] == 0]
    if asked is None:
        random = np.random.default_rng(0)
        others = _ruled_out([(-1, _changed(value, leaf, random)) for _, value in drawn * _TRIES], sample, size)
        # What statistics rule out anyhow tells nothing of a filter.
        absent = others[(others[:, 2] == 0) & (others[:, 0] < size.groups)]
    # Where only one kind of value is asked for, or can be made, it stands for both.
    present, absent = (present if len(present) else absent), (absent if len(absent) else present)
    if len(present):
        made.statistics_present, made.filter_present, holding = map(float, present.mean(axis=0))
        made.statistics_absent, made.filter_absent, _ = map(float, absent.mean(axis=0))
    holding = max(holding, 1.0)
    made.index_present = max(size.groups - holding - size.false_places, 0.0)
    made.index_absent = max(size.groups - size.false_places, 0.0)
    # The files of row groups that are drawn at random; those of one file stand for one.
    opened = size.files * (1 - (1 - min(holding / size.groups, 1)) ** (size.groups / size.files))
    made.files_opened_by_index = min(max(opened, 1.0), holding)
    made.index_bytes = _index_bytes(made, size, holding, sample.stride)


def _ruled_out(values: Sequence[tuple[int, bytes]], sample: _ColumnSample, size: _Size) -> npt.NDArray[np.float64]:
    """For each value: row groups that statistics rule out, that filters and statistics do, and that hold it; of the
    table, as many as the sample makes of it. Shape (values, 3).

    Args:
        values: each with the row group that it is drawn from; -1: none.
    """
    kind, count = sample.leaf.type, len(sample.groups)
    hashes = np.array([hash_bytes(value) for _, value in values], dtype=np.uint64)
    owns = np.array([own for own, _ in values], dtype=np.int64)
    compared = [comparable(value, kind) for _, value in values]
    totals = np.zeros((len(values), 3))
    for number, group in enumerate(sample.groups):
        if group.bounds is None:
            by_statistics = np.full(len(values), not len(group.hashes))
        else:
            by_statistics = np.array([outside(*group.bounds, kind, "==", one) for one in compared], dtype=np.bool_)
        by_filter = by_statistics | ~group.filter.check_hashes(hashes)
        totals[owns != number] += np.stack([by_statistics, by_filter, np.isin(hashes, group.hashes)], 1)[owns != number]
    # A value's own row group is one; what the others of the sample have, all others of the table have.
    own = (owns >= 0)[:, np.newaxis]
    scaled: npt.NDArray[np.float64] = totals / np.maximum(count - own, 1) * (size.groups - own)
    scaled[:, 2:] += own
    return scaled


def _changed(value: bytes, leaf: Leaf, random: np.random.Generator) -> bytes:
    """A value like this one, which may be in the table, too."""
    made = bytearray(value or b"0")
    if leaf.type.physical in _NUMBERS:
        made[:2] = (int(random.integers(1, 1 << 16)) ^ int.from_bytes(made[:2], "little")).to_bytes(2, "little")
        return bytes(made)
    at = len(made) - 1 - int(random.integers(0, min(len(made), 8)))
    first, count = next((one for one in _ALIKE if one[0] <= made[at] < sum(one)), (made[at] & 0xFE, 2))
    made[at] = first + int(random.integers(0, count))
    return bytes(made)


def _index_bytes(made: ColumnAdvice, size: _Size, repeated: float, stride: int) -> int:
    """What DELTA_BINARY_PACKED takes for fingerprints with places: the widest gap of 32 is stored for each of them."""
    entries = max(made.distinct * size.groups, 1.0)
    bits = bits_for(size.rows, size.false_places) + (size.groups * stride).bit_length() - math.log2(entries)
    widest = repeated * math.log(1 + _MINIBLOCK / repeated)
    return round(entries * (max(bits, 0) + math.log2(widest) + 1.1) / 8) + _RUN_BYTES


def _verdict(made: ColumnAdvice) -> tuple[str, str]:
    if made.queries == 0:
        return "neither", "no query looks for a value of it"
    groups, left = counted(made.row_groups, "row group"), made.files_opened_by_index
    if made.files >= _MANY_FILES and left <= _LEFT_FILES * made.files:
        return "index", f"it leaves {left:.1f} of {counted(made.files, 'file')} to open for a value that is there"
    by_filter, by_statistics = made.filter_present, made.statistics_present
    ruled_out = (
        f"beyond statistics, filters rule out {by_filter - by_statistics:.1f} of {groups} for a value that is there"
    )
    worth = _is_worth(made, by_statistics, by_filter) and _is_worth(made, made.statistics_absent, made.filter_absent)
    if worth:
        return "filter", f"{ruled_out}, {made.filter_absent - made.statistics_absent:.1f} for one that is not"
    if (holding := made.row_groups - made.index_present) >= made.row_groups / 2:
        return "neither", f"a value is in {holding:.0f} of {groups}"
    if by_filter - by_statistics < _OF_ALL * made.row_groups:
        return "neither", "statistics rule out as much: the values arrive in order"
    return "neither", f"{ruled_out}, at {made.filter_bytes / max(made.column_bytes, 1):.0%} of the column's bytes"


def _is_worth(made: ColumnAdvice, by_statistics: float, by_filter: float) -> bool:
    left, beyond = made.row_groups - by_statistics, by_filter - by_statistics
    read = left * made.filter_bytes + (left - beyond) * made.column_bytes
    enough = max(_OF_LEFT * left, _OF_ALL * made.row_groups)
    return beyond >= enough and read <= _OF_BYTES * left * made.column_bytes
