"""What a file is by its name; and the lines of a text, as they stand there, with what is told of one that does not
read.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath
from typing import Any, Final

import pyarrow as pa

from ...core.errors import FormatError

COMPRESSIONS: Final = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
EXTENSIONS: Final = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".json": "ndjson",
}
BLOCK_BYTES: Final = 1 << 20
"""So much is parsed at a time, and no line is longer than twice that."""
UNTYPED: Final = "--type COLUMN=TYPE"


class TextInput:
    """A file, or standard input for ``-``.

    Args:
        path: the file; ``.gz``, ``.bz2`` and ``.zst`` are inflated.
        kind: of the text, for errors.
        stack: closes what is opened here.

    Attributes:
        once: it can be read only once.
        total: bytes of the file, which `position` counts up to; 0 for standard input.
    """

    def __init__(self, path: str, kind: str, stack: contextlib.ExitStack) -> None:
        self._kind, self._stack = kind, stack
        self._compression = COMPRESSIONS.get(PurePath(path).suffix.lower())
        self.once = path == "-"
        self._file: Any = None if path == "-" else stack.enter_context(pa.OSFile(path, "rb"))
        self.total = 0 if self._file is None else self._file.size()

    @property
    def position(self) -> int:
        """Bytes of the file read so far."""
        return self._file.tell() if self.total else 0

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """Whole lines, about `BLOCK_BYTES` at a time, with the number of the first, counted from 1.

        A file is read from its beginning, each time.
        """
        line, rest, stream = 1, b"", self._stream()
        more = stream.read(BLOCK_BYTES)
        while more:
            data, more = rest + more, stream.read(BLOCK_BYTES)
            # A carriage return at the end may be half an end of line.
            end = max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) + 1 if more else len(data)
            rest = data[end:]
            if end:
                yield line, data[:end]
                line += lines_in(data[:end])
            if len(rest) > BLOCK_BYTES:
                hint = "shorter lines, or Parquet or Arrow as input"
                raise bad_line(self._kind, line, f"it has more than {BLOCK_BYTES >> 20} MiB", hint)

    def _stream(self) -> Any:
        if self._file is None:
            return sys.stdin.buffer
        self._file.seek(0)
        if self._compression is None:
            return self._file
        return self._stack.enter_context(pa.CompressedInputStream(self._file, self._compression))


def kind_of(path: str) -> str | None:
    """``csv``, ``parquet``, ``arrow`` or ``ndjson``, by the name's end; None where that says none of them."""
    return EXTENSIONS.get(_suffix(path))


def is_tabbed(path: str) -> bool:
    """Whether the name's end says that tabs are between the values."""
    return _suffix(path) == ".tsv"


def _suffix(path: str) -> str:
    plain = PurePath(path)
    return (plain.with_suffix("") if plain.suffix.lower() in COMPRESSIONS else plain).suffix.lower()


def lines_in(data: bytes) -> int:
    """How many lines end in it."""
    returns = data.count(b"\r") - data.count(b"\r\n") if b"\r" in data else 0
    return data.count(b"\n") + returns


def bad_line(kind: str, line: int, why: str, hint: str = UNTYPED, column: str | None = None) -> FormatError:
    """The error for a line, counted from 1. Arrow's own message quotes the value, which may be a secret."""
    return FormatError(f"line {line} does not read as {kind}: {why}", column=column, hint=hint)


def first_unread(lines: Sequence[bytes], reads: Callable[[bytes], bool]) -> int:
    """The index of the first of these lines that does not read; as a whole they do not."""
    low, high = 0, len(lines)  # lines[:low] read, lines[:high] do not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if reads(b"".join(lines[:middle])) else (low, middle)
    return low
