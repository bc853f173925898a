"""XXH64 with seed 0 of the plain encoding: of one value's bytes, and of whole Arrow arrays from their buffers."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from ..errors import FormatError, UsageError
from ..text import articled
from . import reference
from .operations import kernels
from .types import ColumnType, PhysicalType

U64 = npt.NDArray[np.uint64]
U8 = npt.NDArray[np.uint8]

_NO_BYTES: Final = np.zeros(0, dtype=np.uint8)


def hash_bytes(data: bytes | bytearray | memoryview) -> int:
    """XXH64, seed 0, of a value's plain encoding (Parquet Bloom filter specification)."""
    return int(xxhash.xxh64_intdigest(data))


def hash_array(array: pa.Array | pa.ChunkedArray, column_type: ColumnType) -> U64:
    """Hashes of the non-null values of an Arrow array, in order; shape (values,).

    Of a dictionary array each dictionary entry that is used is hashed once, so the result is shorter than the array
    and in no promised order: what a filter needs, and much faster.

    The Arrow type must be one that Arrow's own Parquet writer stores under this column type: 8- to 32-bit integers,
    date and time32 as INT32; 64-bit integers, timestamp, time64 and duration as INT64; strings and binary of all
    layouts as BYTE_ARRAY; fixed-size binary, half floats and UUIDs as FIXED_LEN_BYTE_ARRAY; decimals as INT32, INT64
    or FIXED_LEN_BYTE_ARRAY; fixed-size binary of 12 bytes as INT96. Times and timestamps of another unit than the
    column's are converted where no digit is lost.

    Raises:
        UsageError: any other Arrow type, or a value that the column's type cannot hold.
        FormatError: the array's offsets, views or indices leave its buffers or dictionary.
    """
    if isinstance(array, pa.ChunkedArray):
        parts = [hash_array(chunk, column_type) for chunk in array.chunks]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint64)
    if isinstance(array, pa.ExtensionArray):
        return hash_array(array.storage, column_type)
    if pa.types.is_null(array.type):
        return np.zeros(0, dtype=np.uint64)
    if pa.types.is_dictionary(array.type):
        return hash_array(_used_entries(array), column_type)
    array = _as_stored(array, column_type)
    if len(array) == 0:
        return np.zeros(0, dtype=np.uint64)
    hashes = _hash_slots(array, column_type)
    return hashes[array.is_valid().to_numpy(zero_copy_only=False)] if array.null_count else hashes


def _used_entries(array: pa.DictionaryArray) -> pa.Array:
    indices = array.indices.drop_null().to_numpy()
    # Arrow's decoder takes over what a page says.
    if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < len(array.dictionary):
        raise FormatError("an index points outside its dictionary")
    used = np.zeros(len(array.dictionary), dtype=np.bool_)
    used[indices] = True
    return array.dictionary if used.all() else array.dictionary.take(pa.array(np.flatnonzero(used)))


def _refusal(arrow_type: pa.DataType, column_type: ColumnType) -> UsageError:
    return UsageError(f"Arrow values of type {arrow_type} are not what {articled(column_type)} column stores")


def _as_stored(array: pa.Array, column_type: ColumnType) -> pa.Array:
    """Convert the few Arrow types whose memory is not the plain encoding but that Arrow's writer stores here."""
    target = _stored_type(array.type, column_type)
    if target == array.type:
        return array
    if _has_views(array.type):
        array = array.view(pa.binary_view())  # a probe's strings need not be UTF-8
        try:
            array.validate(full=True)  # the only guard between a view and foreign memory
        except pa.ArrowException:
            raise reference.outside() from None
    try:
        return array.cast(target)
    except pa.ArrowInvalid:
        # `from None`: Arrow's message shows the value.
        raise _refusal(array.type, column_type) from None


def _stored_type(arrow: pa.DataType, column_type: ColumnType) -> pa.DataType:
    """The Arrow type in which `arrow` values have the bytes that a column of this type stores."""
    types, physical, logical = pa.types, column_type.physical, column_type.logical
    match physical:
        case PhysicalType.INT32:
            if types.is_signed_integer(arrow) and arrow.bit_width <= 32:
                return pa.int32()
            if types.is_unsigned_integer(arrow) and arrow.bit_width <= 32:
                return pa.uint32()
            if types.is_date(arrow):
                return pa.date32()
            if types.is_time32(arrow):
                return pa.time32(logical.unit) if logical and logical.unit == "ms" else arrow
            if types.is_decimal(arrow):
                return _decimal(arrow, column_type)
        case PhysicalType.INT64:
            if (types.is_integer(arrow) and arrow.bit_width == 64) or types.is_duration(arrow):
                return arrow
            if types.is_timestamp(arrow):
                if logical is None or logical.kind != "timestamp":
                    return arrow
                if logical.utc is (arrow.tz is not None):
                    return pa.timestamp(logical.unit, arrow.tz)
            if types.is_time64(arrow) or types.is_time32(arrow):
                if logical is not None and logical.kind == "time" and logical.unit in ("us", "ns"):
                    return pa.time64(logical.unit)
                if types.is_time64(arrow):
                    return arrow
            if types.is_decimal(arrow):
                return _decimal(arrow, column_type)
        case PhysicalType.FLOAT if types.is_float32(arrow):
            return arrow
        case PhysicalType.DOUBLE if types.is_float64(arrow):
            return arrow
        case PhysicalType.BYTE_ARRAY:
            if _has_offsets(arrow):
                return arrow
            if _has_views(arrow):
                return pa.large_binary()
        case PhysicalType.FIXED_LEN_BYTE_ARRAY:
            if types.is_fixed_size_binary(arrow) and arrow.byte_width == column_type.type_length:
                return arrow
            if types.is_float16(arrow) and column_type.type_length == 2:
                return arrow
            if types.is_decimal(arrow):
                return _decimal(arrow, column_type)
        case PhysicalType.INT96 if types.is_fixed_size_binary(arrow) and arrow.byte_width == 12:
            return arrow
    raise _refusal(arrow, column_type)


def _decimal(arrow: pa.DataType, column_type: ColumnType) -> pa.DataType:
    logical = column_type.logical
    width = {PhysicalType.INT32: 4, PhysicalType.INT64: 8}.get(column_type.physical, column_type.type_length or 0)
    # The unscaled number must be the same, and its bytes must hold every number of the precision.
    if (
        logical is None
        or logical.kind != "decimal"
        or logical.scale != arrow.scale
        or 10**arrow.precision > 1 << (8 * min(width, 64) - 1 if width else 0)
    ):
        raise _refusal(arrow, column_type)
    return arrow


def _has_offsets(arrow: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_string(arrow) or types.is_binary(arrow) or types.is_large_string(arrow) or types.is_large_binary(arrow)
    )


def _has_views(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(arrow) or pa.types.is_binary_view(arrow))


def _hash_slots(array: pa.Array, column_type: ColumnType) -> U64:
    """One hash per slot; those of null slots mean nothing."""
    arrow, buffers = array.type, array.buffers()
    if _has_offsets(arrow):
        wide = pa.types.is_large_string(arrow) or pa.types.is_large_binary(arrow)
        offsets: npt.NDArray[Any] = np.frombuffer(buffers[1], dtype=np.int64 if wide else np.int32)
        offsets = np.require(offsets[array.offset : array.offset + len(array) + 1], requirements="A")
        return kernels().hash_spans(_bytes_of(buffers[2]), offsets)
    width = arrow.byte_width
    values = _bytes_of(buffers[1])[width * array.offset : width * (array.offset + len(array))]
    if pa.types.is_decimal(arrow):
        values, width = _decimal_bytes(values.reshape(-1, width), column_type)
    return kernels().hash_fixed(values, width, len(array))


def _decimal_bytes(rows: U8, column_type: ColumnType) -> tuple[U8, int]:
    """Arrow's little-endian two's complement, cut or sign-extended to the column's width and byte order."""
    width = {PhysicalType.INT32: 4, PhysicalType.INT64: 8}.get(column_type.physical, column_type.type_length or 0)
    if width > rows.shape[1]:
        sign = np.where(rows[:, -1:] & 0x80, np.uint8(0xFF), np.uint8(0))
        rows = np.hstack([rows, np.repeat(sign, width - rows.shape[1], axis=1)])
    rows = rows[:, :width]
    if column_type.physical is PhysicalType.FIXED_LEN_BYTE_ARRAY:
        rows = rows[:, ::-1]
    return np.ascontiguousarray(rows).reshape(-1), width


def _bytes_of(buffer: Any) -> U8:
    return _NO_BYTES if buffer is None or buffer.size == 0 else np.frombuffer(buffer, dtype=np.uint8)
