"""Is a filter, or an index, worth it? Told from a sample of a table's row groups, before anything is written."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..core.errors import BloomsealError, UsageError
from ..core.parquet.statistics import asked, bounds, outside
from ..core.sbbf import PhysicalType
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
    from ..read.file import SealedFile

__all__ = ["ColumnAdvice", "advise"]

U64 = npt.NDArray[np.uint64]

_FILES, _GROUPS, _VALUES = 24, 32, 8
"""Looked at: files, row groups of them, and values of each row group."""
_OPEN, _FILTER, _ROW, _INDEX, _STAT = 0.35, 0.06, 25e-6, 1.5, 0.002
"""Milliseconds of one processor: to open a file, to ask a filter, to search a row, to ask an index, to look whether a
file is as it was. The verdict goes by their ratios, which are about the same everywhere."""
_WORTH_FILTER, _WORTH_INDEX = 1.5, 2.0
_TRIAL: Final = 1 << 16
_SEALED: Final = 90
"""Bytes that sealing adds to a filter, and its header."""
_RUN_BYTES: Final = 700


class Sampled(Protocol):
    """A table, as far as advice needs it: a `SealedTable`."""

    @property
    def files(self) -> list[str]: ...

    def open(self, number: int) -> SealedFile: ...


@dataclass
class ColumnAdvice(ShownInNotebooks):
    """What one column is worth. Costs are of one look-up (``==``), for a value that is there and one that is not, half
    each.

    Attributes:
        column, type: dotted path, physical and logical type.
        verdict: ``index``, ``filter`` or ``neither``.
        why: in words.
        files, row_groups: of the table; the latter estimated from the files looked at.
        distinct: values per row group.
        holding: row groups that hold a value which is there.
        covering: row groups between whose smallest and greatest value such a value lies.
        read, read_by_filter, read_by_index: row groups that a look-up of a value which is there reads: by statistics
            alone, by filters too, by an index.
        files_opened, files_opened_by_index: for a value that is there.
        milliseconds, milliseconds_by_filter, milliseconds_by_index: of one processor; rough, for comparison.
        filter_bytes, index_bytes: on disk.
        queries: how often queries name the column by ``==`` or ``in``; None where none were given.
    """

    column: str
    type: str
    verdict: str
    why: str
    files: int = 0
    row_groups: int = 0
    distinct: float = 0.0
    holding: float = 0.0
    covering: float = 0.0
    read: float = 0.0
    read_by_filter: float = 0.0
    read_by_index: float = 0.0
    files_opened: float = 0.0
    files_opened_by_index: float = 0.0
    milliseconds: float = 0.0
    milliseconds_by_filter: float = 0.0
    milliseconds_by_index: float = 0.0
    filter_bytes: int = 0
    index_bytes: int = 0
    queries: int | None = None


@dataclass
class _SampledGroup:
    """A row group that was looked at: the hashes of its values, each once; some values; its bounds."""

    hashes: U64
    values: list[Any]
    bounds: tuple[bytes, bytes] | None
    rows: int


@dataclass
class _ColumnSample:
    leaf: Leaf
    groups: list[_SampledGroup] = field(default_factory=list)
    left: str | None = None
    stride: int = 1


def advise(
    table: Sampled,
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
        queries: column → values that queries look for. They take the place of values of the table; and a column that
            none names gets neither.
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
                sample = samples.setdefault(leaf.name, _ColumnSample(leaf))
                _look(file, leaf, sample, each, (queries or {}).get(leaf.name))
    for name in columns or ():
        if name not in samples:
            raise UsageError("no such column in the files looked at", column=name, hint=", ".join(list(samples)[:10]))
    scale = len(files) / len(chosen)
    size = _Size(len(files), max(round(groups * scale), 1), round(rows * scale), fpp, false_places)
    asked_for = None if queries is None else {name: len(values) for name, values in queries.items()}
    return [_advice(sample, size, asked_for) for sample in samples.values()]


@dataclass(frozen=True)
class _Size:
    files: int
    groups: int
    rows: int
    fpp: float
    false_places: float


def _look(file: ParquetFile, leaf: Leaf, sample: _ColumnSample, each: int, queried: Sequence[Any] | None) -> None:
    if sample.left is not None:
        return
    if leaf.type.physical is PhysicalType.BOOLEAN:
        sample.left = "two values, in every row group"
        return
    count = file.num_row_groups
    try:
        for group in sorted({number * count // min(each, count) for number in range(min(each, count))}):
            hashes = np.unique(np.asarray(chunk_hashes(file.walk, group, leaf), dtype=np.uint64))
            values = list(queried) if queried is not None else _some(file, group, leaf)
            meta = file.walk.meta(file.walk.chunk(group, leaf.index))
            held = bounds(meta, leaf, file.walk.footer.ordered[leaf.index])
            sample.groups.append(_SampledGroup(hashes, values, held, file.row_groups[group].num_rows))
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


def _advice(sample: _ColumnSample, size: _Size, asked_for: Mapping[str, int] | None) -> ColumnAdvice:
    leaf = sample.leaf
    made = ColumnAdvice(leaf.name, str(leaf.type), "neither", sample.left or "", size.files, size.groups)
    made.queries = None if asked_for is None else asked_for.get(leaf.name, 0)
    groups = [one for one in sample.groups if len(one.hashes)]
    if sample.left is None and not groups:
        made.why = "no values"
    if made.why:
        return made
    made.distinct = sum(len(one.hashes) for one in sample.groups) / len(sample.groups)
    made.holding, made.covering = _spread(sample, size.groups)
    _costs(made, sample, size)
    made.verdict, made.why = _verdict(made)
    return made


def _spread(sample: _ColumnSample, row_groups: int) -> tuple[float, float]:
    """In how many row groups a value is that is there, and in how many it lies between the bounds."""
    holding: list[float] = []
    covering: list[float] = []
    every = sample.groups
    for own, group in enumerate(every):
        hashes = _hashes(group.values, sample.leaf)
        others = [one for number, one in enumerate(every) if number != own]
        for value, hashed in zip(group.values, hashes, strict=True):
            if hashed is None:
                continue
            has = sum(_has(one.hashes, hashed) for one in others)
            between = sum(_covers(one, value, sample.leaf) for one in others)
            share = (row_groups - 1) / max(len(others), 1)
            holding.append(1 + has * share)
            covering.append(1 + between * share)
    if not holding:
        return 1.0, float(row_groups)
    return float(np.mean(holding)), float(np.mean(covering))


def _hashes(values: Sequence[Any], leaf: Leaf) -> list[int | None]:
    from ..core.sbbf import hash_bytes
    from ..core.sbbf.encoding import encode_value

    found = (encode_value(value, leaf.type) for value in values)
    return [hash_bytes(one[0]) if one else None for one in found]


def _has(hashes: U64, hashed: int) -> bool:
    at = int(np.searchsorted(hashes, np.uint64(hashed)))
    return at < len(hashes) and int(hashes[at]) == hashed


def _covers(group: _SampledGroup, value: Any, leaf: Leaf) -> bool:
    if group.bounds is None:
        return bool(len(group.hashes))
    return not outside(*group.bounds, leaf.type, "==", asked(value, leaf.type))


def _costs(made: ColumnAdvice, sample: _ColumnSample, size: _Size) -> None:
    rows = size.rows / size.groups
    spec = FilterSpec(fpp=size.fpp)
    built = [spec.build(one.hashes) for one in sample.groups]
    made.filter_bytes = round((sum(one.num_bytes for one in built) / len(built) + _SEALED) * size.groups)
    # Sizes are rounded up to powers of two: most filters do better than they were asked to.
    fpp = sum(one.false_positive_probability() for one in built) / len(built)
    entries = made.distinct * size.groups
    made.index_bytes = round(entries * _bits_an_entry(entries, size, made.holding, sample.stride) / 8) + _RUN_BYTES
    made.read = made.covering
    made.read_by_filter = made.holding + fpp * (made.covering - made.holding)
    made.read_by_index = made.holding + size.false_places
    made.files_opened = size.files
    a_file = size.groups / size.files
    # The files of row groups that are drawn at random; those of one file stand for one.
    made.files_opened_by_index = size.files * (1 - (1 - min(made.holding / size.groups, 1)) ** a_file)
    made.files_opened_by_index = min(max(made.files_opened_by_index, 1.0), made.holding)
    absent = max(made.covering - 1, 0)  # no row group is its own
    opened = size.files * _OPEN
    made.milliseconds = opened + (made.covering + absent) / 2 * rows * _ROW
    filtered = (made.read_by_filter + fpp * absent) / 2 * rows * _ROW
    made.milliseconds_by_filter = opened + (made.covering + absent) / 2 * _FILTER + filtered
    # An index that tells pages leaves one of each large row group.
    known = made.files_opened_by_index * _OPEN + made.read_by_index * rows / max(sample.stride - 1, 1) * _ROW
    made.milliseconds_by_index = _INDEX + size.files * _STAT + known / 2


def _bits_an_entry(entries: float, size: _Size, repeated: float, stride: int) -> float:
    """What DELTA_BINARY_PACKED takes for numbers that lie as an index's will: encoded for trial."""
    bits, places = bits_for(size.rows, size.false_places), max(size.groups, 1) * stride
    count = min(_TRIAL, max(round(entries), 1))
    alike = max(round(repeated), 1)
    draw = np.random.default_rng(0)
    span = (1 << bits) * count / max(entries, 1)
    fingerprints = np.repeat(np.sort(draw.integers(0, max(int(span), 1), -(-count // alike))), alike)[:count]
    numbers = np.sort((fingerprints << places.bit_length()) | draw.integers(0, places, count))
    return 8 * (_encoded(numbers) - _encoded(numbers[:1])) / max(count - 1, 1)


def _encoded(numbers: npt.NDArray[np.int64]) -> int:
    sink = pa.BufferOutputStream()
    trial = pa.table({"n": numbers}, schema=pa.schema([pa.field("n", pa.int64(), nullable=False)]))
    encoding = {"n": "DELTA_BINARY_PACKED"}
    pq.write_table(trial, sink, use_dictionary=False, compression="NONE", column_encoding=encoding)
    return int(sink.tell())


def _verdict(made: ColumnAdvice) -> tuple[str, str]:
    if made.queries == 0:
        return "neither", "no query looks for a value of it"
    without, by_filter, by_index = made.milliseconds, made.milliseconds_by_filter, made.milliseconds_by_index
    best = min(without, by_filter)
    if best / by_index >= _WORTH_INDEX:
        return (
            "index",
            f"{math.floor(best / by_index)} times less work than by {'filters' if by_filter < without else 'statistics'}",
        )
    if without / by_filter >= _WORTH_FILTER:
        return "filter", f"{without / by_filter:.1f} times less work than without; an index saves little more"
    if made.holding >= made.row_groups / 2:
        return "neither", f"a value is in {made.holding:.0f} of {counted(made.row_groups, 'row group')}"
    if made.covering <= 2 * made.holding:
        return "neither", "statistics rule out as much: the values arrive in order"
    return "neither", "there is little to rule out"
