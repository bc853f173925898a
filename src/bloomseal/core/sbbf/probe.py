"""Many values asked of many filters: encoded and hashed once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import UsageError
from .block import bitset_check, halves
from .encoding import encode_value, int_range
from .hashing import hash_array, hash_bytes
from .types import ColumnType, PhysicalType

U64 = npt.NDArray[np.uint64]
Indices = npt.NDArray[np.intp]
Bools = npt.NDArray[np.bool_]
_Unusual = tuple[Indices, Bools]
"""The value that each hash encodes, and per value a mark where no filter can exclude it."""


_FEW: Final = 3
"""Hashes for which plain Python is fastest, by far: a call of numpy's takes as long as three of them."""


class HashFilter(Protocol):
    """A filter of hashes; of any kind, where a subclass asks it."""

    @property
    def bitset(self) -> Any: ...
    def check_hashes(self, hashes: U64) -> Bools: ...


class ProbeSet:
    """Probe values of one column type, hashed and ready to be asked of any number of filters.

    Make one with `ProbeSet.of`. It shows and pickles nothing: XXH64 is not keyed, so the hashes tell the values.
    """

    __slots__ = ("_apart", "_hashes", "_undecided", "_unusual")

    def __init__(self, hashes: U64, unusual: _Unusual | None = None) -> None:
        self._hashes = hashes
        self._unusual = unusual  # None: one hash per value, in their order, and a filter can exclude any
        self._undecided = unusual is not None and bool(unusual[1].any())
        few = hashes.tolist() if len(hashes) <= _FEW else None
        self._apart = None if few is None else [halves(value) for value in few]

    @classmethod
    def of(
        cls,
        values: Sequence[Any] | npt.NDArray[Any] | pa.Array | pa.ChunkedArray,
        column_type: ColumnType,
        *,
        int96_utc: bool = False,
    ) -> Self:
        """Encode and hash `values` for a column of this type; see `encode_value` for what is taken and how.

        numpy and Arrow arrays whose memory already is the plain encoding are hashed without a loop over the values.

        Raises:
            UsageError: a value of the wrong kind for the column.
        """
        values = several(values)
        fast = _from_array(values, column_type)
        if fast is not None:
            return cls(*fast)
        hashes: list[int] = []
        owners: list[int] = []
        undecided: list[bool] = []
        for i, value in enumerate(values):
            encodings = encode_value(value, column_type, int96_utc=int96_utc)
            undecided.append(encodings is None)
            for data in encodings or ():
                hashes.append(hash_bytes(data))
                owners.append(i)
        unusual = np.array(owners, dtype=np.intp), np.array(undecided, dtype=np.bool_)
        return cls(np.array(hashes, dtype=np.uint64), unusual)

    def check(self, bloom_filter: HashFilter) -> Bools:
        """One bool per value: False is absent, True may be present."""
        if self._apart is None:
            found = bloom_filter.check_hashes(self._hashes)
        else:
            found = np.array([bitset_check(bloom_filter.bitset, *one) for one in self._apart], dtype=np.bool_)
        return self.of_values(found)

    def of_values(self, found: Bools) -> Bools:
        """One bool per value: whether any of its hashes was found, or none decides."""
        if self._unusual is None:
            return found
        owners, undecided = self._unusual
        answer = undecided.copy()
        answer[owners[found]] = True
        return answer

    def none_in(self, bloom_filter: HashFilter) -> bool:
        """True where the filter excludes every one of the values: what `check` says, all at once."""
        if self._undecided:
            return False
        if self._apart is None:
            return not bloom_filter.check_hashes(self._hashes).any()
        return not any(bitset_check(bloom_filter.bitset, *one) for one in self._apart)

    def hashes(self) -> tuple[U64, Indices, Bools]:
        """The hashes; the value that each is an encoding of; and per value whether no filter can exclude it."""
        if self._unusual is None:
            return self._hashes, np.arange(len(self._hashes)), np.zeros(len(self._hashes), dtype=np.bool_)
        return self._hashes, *self._unusual

    def __len__(self) -> int:
        return len(self._hashes if self._unusual is None else self._unusual[1])

    def __repr__(self) -> str:
        return f"<ProbeSet of {len(self)} values>"

    def __reduce__(self) -> Any:
        raise UsageError("a ProbeSet is not pickled: its hashes tell the values", hint="build it where it is used")


# Whole arrays ----------------------------------------------------------------------------------------------------

_Parts = tuple[U64, _Unusual | None]
_WORTH_AN_ARRAY: Final = 64
"""A shorter list is encoded value by value."""


def several(values: Any) -> Any:
    """The values, also if they come only once; refused where they are one. To Python a text is its letters, and a frame
    the names of its columns: those are absent, and the values that were meant may be there.

    Raises:
        UsageError: it is none.
    """
    single = isinstance(values, str | bytes | bytearray | memoryview) or not isinstance(values, Iterable)
    if single or hasattr(values, "columns") or getattr(values, "ndim", 1) != 1:
        raise UsageError(
            "probe values come as a sequence", hint="a list, also for a single value; one column of a frame"
        )
    values = as_column(values)
    return values if hasattr(values, "__len__") else list(values)


def as_column(values: Any) -> Any:
    """What speaks Arrow, and is neither numpy's nor over it, as an array of Arrow's; anything else as it is. A Series
    of Polars would give moments without their nanoseconds, which no row has.

    Raises:
        UsageError: it is no column.
    """
    if isinstance(getattr(values, "dtype", None), np.dtype):
        return values
    if hasattr(values, "__arrow_c_stream__") and not isinstance(values, pa.ChunkedArray):
        try:
            return pa.chunked_array(values)
        except (pa.ArrowException, TypeError, ValueError):
            raise UsageError("the values come as a list, an array or a Series") from None
    return values


def _from_array(values: Any, column_type: ColumnType) -> _Parts | None:
    """Hash an array without a loop over its values; None where only the loop knows what each value stands for."""
    array = as_arrow(values)
    if array is None:
        return None
    arrow = array.type
    physical, kind = column_type.physical, column_type.kind
    if pa.types.is_integer(arrow) and physical in (PhysicalType.INT32, PhysicalType.INT64) and kind in ("", "int"):
        return _from_ints(array, column_type)
    if pa.types.is_floating(arrow) and physical in (PhysicalType.FLOAT, PhysicalType.DOUBLE):
        return _from_floats(array, column_type)
    if not stands_for_itself(arrow, column_type):
        return None
    known = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
    return hash_array(array, column_type), None if known is None else (np.flatnonzero(known), ~known)


def as_arrow(values: Any) -> pa.Array | None:
    """Arrays, and long lists of one kind of str, bytes, int or float, as one Arrow array; None for anything else."""
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise UsageError("probe values come as a one-dimensional array")
        if type(values) is not np.ndarray or values.dtype.kind not in "iufM" or values.dtype.itemsize > 8:
            return None
        values = values.astype(values.dtype.newbyteorder("="), copy=False)
    elif isinstance(values, list | tuple):
        kinds = {str: pa.large_string(), bytes: pa.large_binary(), int: pa.int64(), float: pa.float64()}
        found = set(map(type, values)) - {type(None)}
        if len(values) < _WORTH_AN_ARRAY or len(found) != 1 or not found <= kinds.keys():
            return None
        try:
            return pa.array(values, type=kinds[found.pop()])
        except (pa.ArrowException, ValueError, OverflowError):  # the loop tells which value, and why
            return None
    if isinstance(values, np.ndarray):
        try:
            return pa.array(values)
        except pa.ArrowException:
            return None
    if isinstance(values, pa.ChunkedArray):
        chunks = [_decoded(chunk) for chunk in values.chunks]
        values = pa.chunked_array(chunks, chunks[0].type if chunks else values.type).combine_chunks()
    return _decoded(values) if isinstance(values, pa.Array) else None


def _decoded(array: pa.Array) -> pa.Array:
    """Without a dictionary. Arrow takes nothing out of one of views, as Polars gives them."""
    if not pa.types.is_dictionary(array.type):
        return array
    held = array.dictionary
    if pa.types.is_string_view(held.type) or pa.types.is_binary_view(held.type):
        held = held.cast(pa.large_string() if pa.types.is_string_view(held.type) else pa.large_binary())
        array = pa.DictionaryArray.from_arrays(array.indices, held)
    return array.dictionary_decode()


def _from_ints(array: pa.Array, column_type: ColumnType) -> _Parts | None:
    bounds = int_range(column_type)
    if bounds is None:
        return None
    known = array.is_valid().to_numpy(zero_copy_only=False)
    numbers = array.fill_null(0).to_numpy()
    asked = np.flatnonzero(known & (numbers >= bounds[0]) & (numbers <= bounds[1]))
    width = 4 if column_type.physical is PhysicalType.INT32 else 8
    stored = numbers[asked].astype(f"<i{width}")  # unsigned numbers keep their bits
    hashes = hash_array(pa.array(stored), ColumnType(column_type.physical))
    return hashes, None if len(asked) == len(array) else (asked, ~known)


def _from_floats(array: pa.Array, column_type: ColumnType) -> _Parts:
    numbers = array.fill_null(float("nan")).to_numpy()
    undecided = np.isnan(numbers)
    asked = np.flatnonzero(~undecided)
    with np.errstate(over="ignore", under="ignore"):
        stored = numbers[asked].astype("<f4" if column_type.physical is PhysicalType.FLOAT else "<f8")
    zeros = np.flatnonzero(stored == 0)
    stored = np.concatenate([stored, -stored[zeros]])  # 0.0 == -0.0, but their bits differ
    return hash_array(pa.array(stored), column_type), (np.concatenate([asked, asked[zeros]]), undecided)


def stands_for_itself(arrow: pa.DataType, column_type: ColumnType) -> bool:
    """True where each value of this Arrow type has one encoding in the column, namely the bytes it already has."""
    types, physical, logical = pa.types, column_type.physical, column_type.logical
    kind = column_type.kind
    if isinstance(arrow, pa.BaseExtensionType):
        return isinstance(arrow, pa.UuidType) and kind == "uuid" and column_type.type_length == 16
    if physical is PhysicalType.BYTE_ARRAY:
        if kind in ("string", "enum", "json"):
            return bool(types.is_string(arrow) or types.is_large_string(arrow) or types.is_string_view(arrow))
        is_binary = types.is_binary(arrow) or types.is_large_binary(arrow) or types.is_binary_view(arrow)
        return bool(is_binary) and kind not in ("decimal", "uuid")
    if physical is PhysicalType.FIXED_LEN_BYTE_ARRAY and types.is_fixed_size_binary(arrow):
        textual = kind in ("decimal", "float16", "string", "enum", "json")
        return not textual and int(arrow.byte_width) == column_type.type_length
    if logical is None:
        return False
    if types.is_timestamp(arrow) and physical is PhysicalType.INT64:
        return kind == "timestamp" and str(arrow.unit) == logical.unit and (arrow.tz is not None) is logical.utc
    if types.is_time(arrow) and physical in (PhysicalType.INT32, PhysicalType.INT64):
        width = 32 if physical is PhysicalType.INT32 else 64
        return kind == "time" and str(arrow.unit) == logical.unit and int(arrow.bit_width) == width
    return bool(types.is_date32(arrow)) and physical is PhysicalType.INT32 and kind == "date"
