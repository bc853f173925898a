"""Bloom filters over the values of row groups (ORC specification, "Bloom Filter Index").

Where writers hash a value in several ways, or readers ask for it in several, a filter holds all of them: more bits
cost a few false positives, a missing one loses rows.
"""

from __future__ import annotations

import itertools
import math
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...core.errors import UnsupportedError
from ...core.text import articled
from ..asking.values import OrcProbeSet
from ..encryption import Variant
from ..hashing import hash_longs, maybe_in, positions
from ..protobuf import encoded
from ..schema import OrcColumn, OrcKind

I64 = npt.NDArray[np.int64]

_FLOATS: Final = (OrcKind.FLOAT, OrcKind.DOUBLE)
_WORD_BITS: Final = 64
_NAN: Final = 0x7FF8 << 48
"""The bits that Java gives every NaN."""


class Size(NamedTuple):
    """Bits of a filter, and hash functions."""

    num_bits: int
    num_hashes: int

    @classmethod
    def of(cls, entries: int, fpp: float) -> Size:
        """As the Java writer sizes them: bits up to the *next* multiple of 64, which always adds some."""
        entries = max(1, entries)
        bits = int(-entries * math.log(fpp) / math.log(2) ** 2)
        bits += _WORD_BITS - bits % _WORD_BITS
        return cls(bits, max(1, round(bits / entries * math.log(2))))


class Wish(NamedTuple):
    """Filters that a column is to have.

    Attributes:
        variant: under whose local key; None: in clear, on a column in clear.
        fpp: None: as large as those that it has.
        drop_masked: leave out clear filters over masked values too.
        required: False: where none can be built that readers believe, those in clear are left out all the same.
    """

    leaf: OrcColumn
    variant: Variant | None
    fpp: float | None
    drop_masked: bool = False
    required: bool = True


def value_hashes(values: pa.Array, column: OrcColumn, zone: str, *, hybrid: bool) -> I64:
    """Hashes of values that are not null, each once.

    Args:
        zone: the stripe's writer time zone.
        hybrid: dates before 1582-10-15 may count in the Julian calendar.

    Raises:
        UnsupportedError: a value that readers hash in ways that nobody has measured.
    """
    values = pc.unique(values.drop_null())
    if column.kind in _FLOATS:
        return hash_longs(_doubles(values.cast(pa.float64()).to_numpy(zero_copy_only=False)))
    asked = OrcProbeSet.of_column(values, column, zone=zone, hybrid=hybrid)
    hashes, _, undecided = asked.hashes()
    if undecided.any():
        raise UnsupportedError(
            f"{int(undecided.sum())} {column.type_name} values that writers and readers hash in different ways",
            column=column.name,
        )
    return hashes.view(np.int64)


def _doubles(values: npt.NDArray[np.float64]) -> I64:
    bits = values.view(np.int64)
    more = [bits]
    if (values == 0).any():
        more.append(np.array([0.0, -0.0]).view(np.int64))
    if np.isnan(values).any():
        more.append(np.array([_NAN], np.int64))
    return np.unique(np.concatenate(more))


def filled(hashes: I64, size: Size) -> bytes:
    """A bitset that holds the hashes."""
    bits = np.zeros(size.num_bits, np.bool_)
    bits[positions(hashes, size.num_hashes, size.num_bits).ravel()] = True
    return np.packbits(bits, bitorder="little").tobytes()


def all_in(hashes: I64, num_hashes: int, bitset: npt.NDArray[np.uint8]) -> bool:
    """Whether a filter leaves all of them possible."""
    return bool(maybe_in(bitset, positions(hashes, num_hashes, 8 * len(bitset))).all())


def entry(num_hashes: int, bitset: bytes) -> bytes:
    """A ``BloomFilter`` message of the kind ``BLOOM_FILTER_UTF8``, as a field of its index."""
    return encoded(1, encoded(1, num_hashes) + encoded(3, bitset))


def leaf_values(rows: pa.Table, way: list[OrcColumn]) -> pa.Array:
    """The values of a leaf, those inside lists one after the other.

    Args:
        rows: the leaf in its top-level column, and nothing else.
        way: the columns from the top-level one down to the leaf.

    Raises:
        UnsupportedError: pyarrow gives the column another shape.
    """
    array: pa.Array = rows.column(0).combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.nulls(0, array.type)
    for above, column in itertools.pairwise(way):
        name = column.name[len(above.name) + 1 :]
        if above.kind is OrcKind.STRUCT and pa.types.is_struct(array.type):
            array = pc.struct_field(array, [max(0, array.type.get_field_index(name))])
        elif above.kind is OrcKind.LIST and pa.types.is_list(array.type):
            array = array.flatten()
        elif above.kind is OrcKind.MAP and pa.types.is_map(array.type):
            array = entries_of(array)[name == "_value"]
        else:
            what = f"filters of what is inside {articled(above.type_name)} can't be built"
            raise UnsupportedError(what, column=column.name)
    return array


def entries_of(maps: pa.MapArray) -> tuple[pa.Array, pa.Array]:
    """All keys and all values of the maps, those of a slice alone; of maps pyarrow's own are those of the whole array.
    A map that is null has no entries, as its offsets say.
    """
    keys, values = (pa.ListArray.from_arrays(maps.offsets, each).flatten() for each in (maps.keys, maps.items))
    return keys, values
