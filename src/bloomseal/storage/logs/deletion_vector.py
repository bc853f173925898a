"""Deletion vectors: which rows of a file its table has deleted.

Puffin specification, "deletion-vector-v1 blob type"; Roaring bitmap specification, "Extension for 64-bit
implementations". Delta's vectors have the same bytes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ...core.errors import FormatError, UnsupportedError
from ...core.limits import MAX_ROWS_WITH_DELETES

I64 = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint8]

_MAGIC: Final = b"\xd1\xd3\x39\x64"
_BLOCK: Final = 1 << 16
"""Rows of a container."""
_BLOCK_BYTES: Final = _BLOCK // 8
_WITH_RUNS, _WITHOUT_RUNS = 12347, 12346
_MOST_IN_ARRAY: Final = 4096
_NO_OFFSETS: Final = 4
"""Containers, below which a bitmap with runs does not say where they are."""


class DeletionVector:
    """The deleted rows of a file: a bit for each row, the lowest of a byte first.

    Args:
        parts: the number of rows in each part of the file.

    Attributes:
        rows: of the file, deleted ones too.

    Raises:
        FormatError, UnsupportedError: a number of rows below zero, or more than are counted here.
    """

    def __init__(self, parts: Sequence[int]) -> None:
        if min(parts, default=0) < 0:
            raise FormatError("a row group with fewer rows than none")
        self._starts = [*accumulate(parts, initial=0)]
        self.rows = self._starts[-1]
        if self.rows > MAX_ROWS_WITH_DELETES:
            raise UnsupportedError(f"deletes in a file of {self.rows} rows; the limit is {MAX_ROWS_WITH_DELETES}")
        self._bits: Bits = np.zeros(-(-self.rows // 8), dtype=np.uint8)

    def __len__(self) -> int:
        return _count(self._bits)

    def add(self, rows: I64, part: int | None = None) -> None:
        """Delete rows, by their numbers in the file or in a part of it.

        Raises:
            FormatError: there is no such row.
        """
        first, end = (0, self.rows) if part is None else self._starts[part : part + 2]
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < end - first:
            raise FormatError("deletes of rows that the file does not have")
        rows = rows + first
        np.bitwise_or.at(self._bits, rows >> 3, np.left_shift(1, rows & 7).astype(np.uint8))

    def add_blob(self, blob: bytes, cardinality: int) -> None:
        """Delete the rows of a stored vector. No number is unpacked that is not one of the file's.

        Args:
            cardinality: how many rows it is said to delete.

        Raises:
            FormatError: its bytes break the specification, or the file has no such rows.
        """
        if len(blob) < 12 or struct.unpack_from(">I", blob)[0] != len(blob) - 8 or blob[4:8] != _MAGIC:
            raise FormatError("not a deletion vector")
        if struct.unpack_from(">I", blob, len(blob) - 4)[0] != zlib.crc32(blob[4:-4]):
            raise FormatError("a deletion vector whose checksum is wrong")
        found = 0
        try:
            for number, bits in _blocks(blob[8:-4], -(-self.rows // _BLOCK)):
                place = self._bits[number * _BLOCK_BYTES :][:_BLOCK_BYTES]
                if bits[len(place) :].any():
                    raise ValueError
                place |= bits[: len(place)]
                found += _count(bits)
        except (ValueError, IndexError, struct.error):
            raise FormatError(
                "a deletion vector that can't be understood, or deletes rows that are not there"
            ) from None
        if found != cardinality or (self.rows % 8 and len(self._bits) and self._bits[-1] >> self.rows % 8):
            raise FormatError("a deletion vector with other rows than the file, or the manifest, has")

    def among(self, part: int, rows: I64) -> npt.NDArray[np.bool_]:
        """Which of these rows of a part are deleted.

        Raises:
            FormatError: there is no such row.
        """
        first, end = self._starts[part : part + 2]
        if len(rows) and int(rows.max()) >= end - first:
            raise FormatError("a row group holds more rows than it says")
        at = rows + first
        found: npt.NDArray[np.bool_] = (self._bits[at >> 3] >> (at & 7).astype(np.uint8) & 1).astype(np.bool_)
        return found

    def count(self, part: int) -> int:
        """How many rows of a part are deleted."""
        first, end = self._starts[part : part + 2]
        return self._count_before(end) - self._count_before(first)

    def _count_before(self, row: int) -> int:
        whole, rest = divmod(row, 8)
        return _count(self._bits[:whole]) + _count(self._bits[whole : whole + 1] & np.uint8((1 << rest) - 1))


def _count(bits: Bits) -> int:
    return int(np.bitwise_count(bits).sum(dtype=np.int64))


def _blocks(data: bytes, blocks: int) -> Iterator[tuple[int, Bits]]:
    """The containers of a bitmap, each with its number.

    Args:
        blocks: how many there can be: one more is refused before it is unpacked.

    Raises:
        ValueError, IndexError, struct.error: the bytes are not a bitmap.
    """
    (count,), at, high = struct.unpack_from("<Q", data), 8, -1
    for _ in range(count):  # each takes some bytes
        above, high = high, struct.unpack_from("<I", data, at)[0]
        cookie, size = struct.unpack_from("<II", data, at + 4) if len(data) - at >= 12 else (0, 0)
        at += 8
        if cookie & 0xFFFF == _WITH_RUNS:
            size = (cookie >> 16) + 1
            runs = np.unpackbits(np.frombuffer(data, np.uint8, -(-size // 8), at), bitorder="little")[:size]
            at += -(-size // 8)
        elif cookie == _WITHOUT_RUNS and size <= _BLOCK:
            runs, at = np.zeros(size, dtype=np.uint8), at + 4
        else:
            raise ValueError
        heads = np.frombuffer(data, "<u2", 2 * size, at).reshape(size, 2).astype(np.int64)
        numbers = (high << 16) + heads[:, 0]
        if high <= above or np.any(np.diff(numbers) <= 0) or np.any(numbers >= blocks):
            raise ValueError
        at += 4 * size + (4 * size if cookie == _WITHOUT_RUNS or size >= _NO_OFFSETS else 0)
        for number, less, is_run in zip(numbers.tolist(), heads[:, 1].tolist(), runs.tolist(), strict=True):
            bits, at = _block(data, at, less + 1, is_run)
            yield number, bits
    if at != len(data):
        raise ValueError


def _block(data: bytes, at: int, cardinality: int, is_run: int) -> tuple[Bits, int]:
    """The bits of one container, and where it ends."""
    mask: npt.NDArray[Any]
    if is_run:
        (count,) = struct.unpack_from("<H", data, at)
        pairs = np.frombuffer(data, "<u2", 2 * count, at + 2).reshape(count, 2).astype(np.int64)
        begin, end = pairs[:, 0], pairs.sum(axis=1) + 1
        if np.any(begin[1:] < end[:-1]) or np.any(end > _BLOCK):
            raise ValueError
        edges = np.zeros(_BLOCK + 1, dtype=np.int8)
        edges[begin] += 1
        edges[end] -= 1
        mask, at = np.cumsum(edges[:-1], dtype=np.int8).astype(np.bool_), at + 2 + 4 * count
    elif cardinality <= _MOST_IN_ARRAY:
        mask = np.zeros(_BLOCK, dtype=np.bool_)
        mask[np.frombuffer(data, "<u2", cardinality, at)] = True
        at += 2 * cardinality
    else:
        mask, at = np.unpackbits(np.frombuffer(data, np.uint8, _BLOCK_BYTES, at), bitorder="little"), at + _BLOCK_BYTES
    bits = np.packbits(mask, bitorder="little")
    if _count(bits) != cardinality:
        raise ValueError
    return bits, at
