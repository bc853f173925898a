"""A big set of probe values as hashes in the order of the values: a filter is asked only for those between its
bounds.
"""

from __future__ import annotations

import json
import os.path
import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.errors import FormatError, UsageError
from ..core.sbbf.block import BLOCK_BYTES
from ..core.sbbf.encoding import encode_value, stands_for_null, unwrap
from ..core.sbbf.filter import SplitBlockBloomFilter
from ..core.sbbf.order import ORDERED_BYTES, ORDERED_INTS, Comparable, comparable, interval, signed
from ..core.sbbf.probe import ProbeSet, as_arrow, several, stands_for_itself
from ..core.sbbf.types import ColumnType, PhysicalType
from . import batch

U64 = npt.NDArray[np.uint64]
Indices = npt.NDArray[np.intp]
Bools = npt.NDArray[np.bool_]

_PLACE_BYTES: Final = 8
_SIGN: Final = np.uint64(1 << 63)
_HEAD: Final = struct.Struct("<I")
_MANY: Final = 128
"""Of fewer values, Arrow's table of them is made faster than rows are hashed."""
_BY_ARROW: Final = 200_000
_EACH: Final = 15
"""Nanoseconds more that Arrow takes for a row group: in all, and for each of its rows and of the values."""
_BITS: Final = 16
"""Of the set's own filter, for each hash: most rows end there, in memory that is near."""
_MOST_BLOCKS: Final = 1 << 20
_NARROW: Final = 1 << 31
"""Bytes that 32-bit offsets reach."""


class _ByHash(NamedTuple):
    """The set in the order of its hashes, each of one value.

    Attributes:
        seen: a filter of all hashes.
        hashes: ascending.
        owners: the value of each.
    """

    seen: SplitBlockBloomFilter
    hashes: U64
    owners: Indices

    def among(self, texts: pa.Array) -> batch.Among:
        """The set of these values, as kernels look texts up in it."""
        wide = texts.cast(pa.large_binary())
        _, offsets, data = wide.buffers()
        edges = np.frombuffer(offsets, dtype=np.int64)[wide.offset : wide.offset + len(wide) + 1]
        octets = np.frombuffer(data, dtype=np.uint8) if data is not None and data.size else np.zeros(1, dtype=np.uint8)
        words = np.frombuffer(self.seen.bitset, dtype=np.uint32)
        return batch.Among(words, np.stack([self.hashes, self.owners.astype(np.uint64)]), octets, edges)


class KeySet:
    """Probe values of one column type, each once and hashed; nulls, which equal nothing, are left out.

    Make one with `KeySet.of`. A value's place is a 64-bit number that grows with the values: integers as they are, of
    byte strings the first eight bytes after what all of them begin with. So bounds may keep a few values too many, and
    never one too few. It shows and pickles nothing: XXH64 is not keyed, so the hashes tell the values.

    Attributes:
        undecided: some value can't be excluded by any filter or bound, such as NaN.
    """

    __slots__ = ("_among", "_by_hash", "_hashes", "_places", "_prefix", "_type", "_values", "undecided")

    def __init__(
        self,
        hashes: U64,
        places: U64 | None,
        prefix: bytes,
        column_type: ColumnType,
        undecided: bool,
        values: tuple[pa.Array, Indices] | None = None,
    ) -> None:
        self._hashes = hashes
        self._places = places  # ascending, one per hash; None where the type's bounds prove nothing
        self._prefix = prefix
        self._type = column_type
        self._values = values  # the unique values, and the number of the value that each hash belongs to
        self.undecided = undecided
        self._by_hash: _ByHash | None = None
        self._among: batch.Among | None = None

    @classmethod
    def of(
        cls,
        values: Sequence[Any] | npt.NDArray[Any] | pa.Array | pa.ChunkedArray,
        column_type: ColumnType,
        *,
        int96_utc: bool = False,
    ) -> Self:
        """Encode and hash `values`, as `ProbeSet.of` does.

        Raises:
            UsageError: a value of the wrong kind for the column.
        """
        values = _without_nulls(several(values))
        # Hashes of different values may be equal, by chance or by somebody's choice, so it is values that are made
        # unique.
        plain = isinstance(values, pa.Array) and not isinstance(values, pa.ExtensionArray)
        if plain:
            try:
                values = values.unique()
            except pa.ArrowNotImplementedError:
                plain = False  # lists and structs: no column takes them, as is said below
        hashes, owners, undecided = ProbeSet.of(values, column_type, int96_utc=int96_utc).hashes()
        placed = _places(values, owners, column_type)
        if placed is None:
            return cls(np.unique(hashes), None, b"", column_type, bool(undecided.any()))
        places, prefix = placed
        order = np.argsort(places)
        hashes, places = hashes[order], places[order]
        if plain:
            return cls(hashes, places, prefix, column_type, bool(undecided.any()), (values, owners[order]))
        once = np.append(True, (hashes[1:] != hashes[:-1]) | (places[1:] != places[:-1]))[: len(hashes)]
        return cls(hashes[once], places[once], prefix, column_type, bool(undecided.any()))

    def between(self, low: bytes | None, high: bytes | None) -> U64:
        """The hashes of the values that may lie between two bounds in plain encoding, both inclusive; None: no bound
        known.
        """
        return self._hashes[self._between(low, high)]

    @property
    def op(self) -> str:
        """What bounds are asked of a column: that it equals any of the values."""
        return "in"

    def outside(self, low: bytes, high: bytes) -> bool:
        """Whether no value lies between two bounds in plain encoding, both inclusive."""
        inside = self._between(low, high)
        return not self.undecided and not len(self._hashes[inside])

    def within(self, bounds: tuple[bytes, bytes] | None) -> ProbeSet:
        """The values that may lie between two bounds, as a filter or an index is asked for them."""
        hashes = self.between(*(bounds or (None, None)))
        # Nobody asks which value each is of.
        doubt = np.zeros(len(hashes), dtype=np.intp), np.array([True])
        return ProbeSet(hashes, doubt if self.undecided else None)

    def left(
        self, bounds: tuple[bytes, bytes] | None, bloom_filter: SplitBlockBloomFilter | None
    ) -> tuple[int, pa.Array | None]:
        """What bounds in plain encoding and a filter leave: how many hashes, and their values. None leaves all.

        The values are None where the set does not hold them as one array without doubt, and where `find_prefixed` needs
        none: then all may be left.
        """
        inside = self._between(*(bounds or (None, None)))
        hashes = self._hashes[inside]
        found = None if bloom_filter is None else bloom_filter.check_hashes(hashes)
        count = len(hashes) if found is None else int(np.count_nonzero(found))
        if self._values is None or self.undecided or self.quick():
            return count, None
        values, owners = self._values
        return count, values.take(pa.array(owners[inside] if found is None else owners[inside][found]))

    def near(self, column: pa.ChunkedArray) -> pa.Array | None:
        """The values between the least and the greatest of a column's: of a big set the few that its rows can equal.

        Args:
            column: strings, or integers.

        Returns:
            None where the set does not hold its values as one array, or of another kind.
        """
        import pyarrow.compute as pc  # takes as long to load as a small probe takes

        kinds = (pa.types.is_integer, lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind))
        if self._values is None or not any(all(map(is_one, (column.type, self._values[0].type))) for is_one in kinds):
            return None
        ends = pc.min_max(column)
        low, high = (encode_value(ends[name].as_py(), self._type) for name in ("min", "max"))
        if not low or not high:  # nulls alone, or what the type does not hold
            return None
        values, owners = self._values
        return values.take(pa.array(owners[self._between(low[0], high[0])]))

    def find_prefixed(self, data: npt.NDArray[np.uint8], count: int) -> tuple[Indices, Indices] | None:
        """Which of `count` texts, each behind its length (BYTE_ARRAY in PLAIN encoding), are values of the set,
        exactly: their numbers, ascending, and the number of the value that each is. See `taken`.

        None where `data` is not filled by so many, and where Arrow is asked instead: of few values, of values that are
        not held as one array, and as long as kernels are not worth loading.
        """
        if not self.quick() or (table := self._table()) is None:
            return None
        if self._among is None:
            assert self._values is not None  # noqa: S101
            self._among = table.among(self._values[0])
        return batch.find_prefixed(data, count, self._among)

    def taken(self, owners: Indices, kind: pa.DataType) -> pa.Array | None:
        """The values of these numbers, as `find_prefixed` gives them, as texts of this type; None where one array of it
        does not hold so many bytes.
        """
        assert self._values is not None  # noqa: S101
        texts = self._values[0].take(pa.array(owners))
        return texts.cast(kind) if pa.types.is_large_string(kind) or texts.nbytes < _NARROW else None

    def quick(self, rows: int = 0) -> bool:
        """Whether `find_prefixed` can tell, unless two of the values have one hash. `rows`: of a row group in which
        Arrow would look for the values otherwise.
        """
        return self._many and batch.worthwhile(rows and _BY_ARROW + _EACH * (rows + len(self._hashes)))

    @property
    def _many(self) -> bool:
        return self._values is not None and not self.undecided and len(self._hashes) >= _MANY

    def _table(self) -> _ByHash | None:
        """None where two values have one hash, by chance or by somebody's choice."""
        if self._by_hash is None:
            assert self._values is not None  # noqa: S101
            order = np.argsort(self._hashes)
            hashes = self._hashes[order]
            if bool((hashes[1:] == hashes[:-1]).any()):
                return None
            seen = SplitBlockBloomFilter(BLOCK_BYTES * min(_BITS * len(hashes) // (8 * BLOCK_BYTES), _MOST_BLOCKS))
            seen.insert_hashes(hashes)
            self._by_hash = _ByHash(seen, hashes, self._values[1][order])
        return self._by_hash

    def _between(self, low: bytes | None, high: bytes | None) -> slice:
        ends = None if self._places is None or low is None or high is None else interval(low, high, self._type)
        if ends is None:
            return slice(None)
        return slice(self._index(ends[0], "left"), self._index(ends[1], "right"))

    def dump(self) -> bytes:
        """Its parts in one string, which tells the values to whoever holds it: to be sealed before it leaves the
        process.
        """
        parts = [self._hashes] if self._places is None else [self._hashes, self._places]
        head = json.dumps([len(parts), self._prefix.hex(), self.undecided]).encode()
        return b"".join([_HEAD.pack(len(head)), head, *(part.astype("<u8").tobytes() for part in parts)])

    @classmethod
    def load(cls, data: bytes | bytearray, column_type: ColumnType) -> Self:
        """A set from the bytes that `dump` made of it for this column type.

        Raises:
            FormatError: it was not made by `dump`.
        """
        try:
            (length,) = _HEAD.unpack_from(data)
            count, prefix, undecided = json.loads(bytes(data[_HEAD.size : _HEAD.size + length]))
            body = np.frombuffer(data, dtype=np.uint8, offset=_HEAD.size + length)
            parts = np.frombuffer(body.tobytes(), dtype="<u8").astype(np.uint64).reshape(count, -1)
            return cls(parts[0], parts[1] if count == 2 else None, bytes.fromhex(prefix), column_type, bool(undecided))
        except (ValueError, TypeError, IndexError, struct.error):
            raise FormatError("not a key set") from None

    def _index(self, bound: Comparable, side: Any) -> int:
        assert self._places is not None  # noqa: S101
        if isinstance(bound, bytes):
            head = bound[: len(self._prefix)]
            if head != self._prefix:
                return 0 if head < self._prefix else len(self._places)
            rest = bound[len(self._prefix) :][:_PLACE_BYTES]
            bound = int.from_bytes(rest.ljust(_PLACE_BYTES, b"\x00"))
        elif signed(self._type):
            bound += int(_SIGN)
        return int(np.searchsorted(self._places, np.uint64(bound), side=side))

    def __len__(self) -> int:
        return len(self._hashes)

    def __repr__(self) -> str:
        return f"<KeySet of {len(self)} hashes>"

    def __reduce__(self) -> Any:
        raise UsageError("a KeySet is not pickled: its hashes tell the values", hint="dump, and seal what it gives")


def _without_nulls(values: Any) -> Any:
    array = as_arrow(values)
    if array is not None:
        # Arrow can't take from views.
        if pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type):
            array = array.cast(pa.large_string() if pa.types.is_string_view(array.type) else pa.large_binary())
        return [] if pa.types.is_null(array.type) else array.drop_null()
    # In a list, since a place is looked up by number: an iterator gives its values once, a pandas Series takes labels.
    return [value for value in values if not stands_for_null(unwrap(value))]


def _places(values: Any, owners: Indices, column_type: ColumnType) -> tuple[U64, bytes] | None:
    """The places of the values that `owners` names, and what they all begin with; None where bounds prove nothing."""
    physical, kind = column_type.physical, column_type.kind
    if physical in (PhysicalType.INT32, PhysicalType.INT64) and kind in ORDERED_INTS:
        return _of_ints(_integers(values, owners, column_type), column_type), b""
    if physical in (PhysicalType.BYTE_ARRAY, PhysicalType.FIXED_LEN_BYTE_ARRAY) and kind in ORDERED_BYTES:
        return _of_bytes(_strings(values, owners, column_type))
    return None


def _integers(values: Any, owners: Indices, column_type: ColumnType) -> npt.NDArray[Any]:
    if isinstance(values, pa.Array):
        if pa.types.is_integer(values.type) and column_type.kind in ("", "int"):
            numbers: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
            return numbers[owners]
        if stands_for_itself(values.type, column_type):
            numbers = values.view(f"int{values.type.bit_width}").to_numpy(zero_copy_only=False)
            return numbers[owners]
    found = (encode_value(values[i], column_type) for i in owners.tolist())
    return np.array([comparable(data[0], column_type) if data else 0 for data in found], dtype=object)


def _of_ints(numbers: npt.NDArray[Any], column_type: ColumnType) -> U64:
    if signed(column_type):
        return numbers.astype(np.int64).view(np.uint64) ^ _SIGN
    return numbers.astype(np.uint64)


def _strings(values: Any, owners: Indices, column_type: ColumnType) -> pa.Array:
    if isinstance(values, pa.Array) and stands_for_itself(values.type, column_type):
        plain = values.storage if isinstance(values, pa.ExtensionArray) else values
        return plain.cast(pa.large_binary()).take(pa.array(owners))
    found = (encode_value(values[i], column_type) for i in owners.tolist())
    return pa.array([data[0] if data else b"" for data in found], type=pa.large_binary())


def _of_bytes(strings: pa.Array) -> tuple[U64, bytes]:
    import pyarrow.compute as pc  # takes as long to load as a small probe takes

    if not len(strings):
        return np.zeros(0, dtype=np.uint64), b""
    ends = pc.min_max(strings).as_py()
    prefix = os.path.commonprefix([ends["min"], ends["max"]])  # noqa: RUF071  # of bytes, not of paths
    _, offsets, data = strings.buffers()
    edges = np.frombuffer(offsets, dtype=np.int64)[strings.offset : strings.offset + len(strings) + 1]
    octets = np.frombuffer(data, dtype=np.uint8) if data is not None and data.size else np.zeros(1, dtype=np.uint8)
    begins = edges[:-1] + len(prefix)
    lengths = edges[1:] - begins
    places = np.zeros(len(strings), dtype=np.uint64)
    for i in range(_PLACE_BYTES):
        octet = octets[np.minimum(begins + i, len(octets) - 1)]
        places = places << np.uint64(8) | np.where(lengths > i, octet, 0).astype(np.uint64)
    return places, prefix
