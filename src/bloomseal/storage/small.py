"""Small files read whole: settings, key material, journals."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from .source import open_regular

__all__ = ["read_open", "read_small"]

_LEAST: Final = 4096


def read_small(
    path: str | os.PathLike[str], limit: int, look: Callable[[os.stat_result], object] | None = None
) -> bytes:
    """All of a small local file; of a longer one, one byte more than `limit`: enough to tell.

    Args:
        look: called with the open file's status before anything is read; what it raises is raised.

    Raises:
        OSError: as `open_regular`, or it can't be read.
    """
    fd = open_regular(path)
    try:
        if look is not None:
            look(os.fstat(fd))
        return read_open(fd, limit)
    finally:
        os.close(fd)


def read_open(fd: int, limit: int) -> bytes:
    """As `read_small`, of an open file, from its beginning wherever it stands. Memory is taken for as much as there is:
    whoever asks for the limit has that much mapped, and unmapped again.
    """
    data, ask = b"", max(os.fstat(fd).st_size + 1, _LEAST)
    while len(data) <= limit and (piece := os.pread(fd, min(ask, limit + 1 - len(data)), len(data))):
        data = data + piece if data else piece
    return data
