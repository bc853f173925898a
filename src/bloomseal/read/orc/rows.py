"""The rows of a stripe, decoded by pyarrow from the bytes that were opened once."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.orc

from ...errors import FormatError, UnsupportedError
from ...orc import Column, OrcFile
from ...storage.source import Source
from .bounds import nanoseconds

__all__ = ["arrow_schema", "decoded", "need_range", "row_groups", "rows_of"]

Rows = npt.NDArray[np.int64]


class _Bytes(io.RawIOBase):
    """A source as a file object, which counts the bytes that are read."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self._source, self._at = source, 0
        self.count = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._source.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def size(self) -> int:
        return self._source.size

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._source.size - self._at)
        length = left if size is None or size < 0 else min(size, left)
        data = bytes(self._source.read(self._at, length))
        self._at += length
        self.count += length
        return data


def arrow_schema(source: Source) -> pa.Schema:
    """The file's columns in the types to which pyarrow decodes them.

    Raises:
        UnsupportedError: a type that it does not know.
    """
    return _opened(source)[0].schema


def decoded(file: OrcFile, stripe: int, columns: Sequence[Column], names: Sequence[str] | None) -> tuple[pa.Table, int]:
    """Columns of a stripe, in the file's order, and how many bytes were read for them.

    Args:
        columns: leaves.
        names: the same, as dotted paths for pyarrow; None: it would take one for another, so that all columns are read.

    Raises:
        KeyAccessError, PolicyError: a column is encrypted, and can't be opened.
        UnsupportedError: one is encrypted, and pyarrow would take another one for it.
        IntegrityError, FormatError: the stripe does not decode, or has other rows than the footer says.
    """
    place: dict[str, Any] = {"file": file.path, "module": file.stripes[stripe].place}
    source, number = file.source, stripe
    if any(column.id in file.tail.encrypted for column in columns):
        if names is None:
            raise UnsupportedError("several columns have the same path, and one is encrypted", **place)
        source, number = Source.memory(file.clear(stripe, [column.name for column in columns]), file.path), 0
    reader, data = _opened(source)
    try:
        batch = reader.read_stripe(number, columns=None if names is None else list(names))
        table = pa.Table.from_batches([batch])
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FormatError(f"the stripe's rows do not decode: {type(error).__name__}", **place) from error
    if table.num_rows != file.stripes[stripe].num_rows:
        raise FormatError(f"{table.num_rows} rows, the footer says {file.stripes[stripe].num_rows}: corrupt", **place)
    return table, data.count


def row_groups(file: OrcFile, stripe: int) -> list[tuple[int, int]]:
    """The first row of each row group of a stripe, and the row after its last one."""
    where = file.stripes[stripe]
    stride = file.tail.row_index_stride or where.num_rows
    return [(group * stride, min((group + 1) * stride, where.num_rows)) for group in range(where.num_row_groups)]


def rows_of(spans: Sequence[tuple[int, int]]) -> Rows:
    """The numbers of the rows in these ranges."""
    return np.concatenate([np.arange(first, end) for first, end in spans] or [np.empty(0, np.int64)])


def need_range(file: OrcFile, stripe: int, column: Column) -> None:
    """Refuse moments that Arrow's nanoseconds can't hold: pyarrow gives other ones for them, and says nothing.

    Raises:
        UnsupportedError: the statistics tell of a moment outside of the years 1677 to 2262.
    """
    found = file.stripe_statistics(stripe, column)
    ends = None if found is None else nanoseconds(found)
    if ends is not None and not -(1 << 63) <= ends[0] <= ends[1] < 1 << 63:
        raise UnsupportedError(
            "a moment outside of the years 1677 to 2262, which pyarrow's nanoseconds can't hold",
            file=file.path,
            column=column.name,
            module=file.stripes[stripe].place,
            hint="other columns",
        )


def _opened(source: Source) -> tuple[pyarrow.orc.ORCFile, _Bytes]:
    data = _Bytes(source)
    try:
        return pyarrow.orc.ORCFile(pa.PythonFile(data, mode="r")), data
    except pa.ArrowNotImplementedError as error:
        raise UnsupportedError("pyarrow does not decode a column of this file", file=source.name) from error
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FormatError(f"pyarrow can't open the file: {type(error).__name__}", file=source.name) from error
