"""The lines of a text file or of standard input, as they stand there, and what is told of one that does not read."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any, Final

import pyarrow as pa

from ...core.errors import FormatError

__all__ = ["BLOCK_BYTES", "COMPRESSIONS", "UNTYPED", "TextInput", "bad_line", "first_unread"]

COMPRESSIONS: Final = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
BLOCK_BYTES: Final = 1 << 20
"""So much is parsed at a time, and no line is longer."""
UNTYPED: Final = "--type COLUMN=TYPE"


class TextInput:
    """A file, or standard input for ``-``.

    Args:
        path: the file; ``.gz``, ``.bz2`` and ``.zst`` are inflated.
        stack: closes what is opened here.

    Attributes:
        stream: its bytes.
        total: bytes of the file, which `position` counts up to; 0 for standard input.
    """

    def __init__(self, path: str, stack: contextlib.ExitStack) -> None:
        self._file: Any = None
        self.total = 0
        if path == "-":
            self.stream: Any = sys.stdin.buffer
            return
        self._file = stack.enter_context(pa.OSFile(path, "rb"))
        self.total = self._file.size()
        kind = COMPRESSIONS.get(PurePath(path).suffix.lower())
        inflated = self._file if kind is None else stack.enter_context(pa.CompressedInputStream(self._file, kind))
        self.stream = io.BufferedReader(inflated)
        stack.callback(self.stream.detach)  # a reader without a stream closes nothing a second time

    @property
    def position(self) -> int:
        """Bytes of the file read so far."""
        return self._file.tell() if self.total else 0


def bad_line(kind: str, line: int, why: str, hint: str = UNTYPED, column: str | None = None) -> FormatError:
    """The error for a line, counted from 1. Arrow's own message quotes the value, which may be a secret."""
    return FormatError(f"line {line} does not read as {kind}: {why}", column=column, hint=hint)


def first_unread(lines: Sequence[Any], reads: Callable[[Sequence[Any]], bool]) -> int:
    """The index of the first of these lines that does not read; as a whole they do not."""
    low, high = 0, len(lines)  # lines[:low] read, lines[:high] do not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if reads(lines[:middle]) else (low, middle)
    return low
