"""Standard input, as threads of Arrow's read it ahead."""

from __future__ import annotations

import contextlib
import io
import select
import threading
from typing import IO, Any, Final

__all__ = ["StandardInput", "was_read"]

_PATIENCE: Final = 0.1
_READ: Final = threading.Event()


class StandardInput(io.RawIOBase):
    """Standard input, until it is closed: whoever reads is then told of its end, and waits for no pipe any more.

    Args:
        stream: its buffer, which is passed by: it must be empty.
        begin: what was read before.
        remember: so many of its last bytes are kept in `end`.
    """

    def __init__(self, stream: IO[bytes], begin: bytes = b"", remember: int = 0) -> None:
        _READ.set()
        self.end = b""
        self._remember = remember
        self._begin = io.BytesIO(begin)
        self._raw: Any = getattr(stream, "raw", stream)
        self._left = False
        self._reading = threading.Lock()
        try:
            self._fd: int | None = stream.fileno()
        except (OSError, AttributeError):  # no file of the system's
            self._fd = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """All of it, but at the end: Arrow takes less for the end."""
        view, done = memoryview(buffer), 0
        with self._reading:
            while done < len(view) and (piece := self._begin.read(len(view) - done) or self._more(len(view) - done)):
                view[done : done + len(piece)] = piece
                done += len(piece)
            if self._remember:
                self.end = (self.end + bytes(view[:done]))[-self._remember :]
        return done

    def _more(self, most: int) -> bytes:
        while not self._left:
            ready = self._fd is None or select.select([self._fd], [], [], _PATIENCE)[0]
            if ready and (piece := self._raw.read(most)) is not None:
                return bytes(piece)
        return b""

    def close(self) -> None:
        self._left = True
        with self._reading, contextlib.suppress(ValueError):
            super().close()


def was_read() -> bool:
    """Has this process read standard input? Where that ended by an error, Arrow may ask for more of it at any time."""
    return _READ.is_set()
