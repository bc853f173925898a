"""Local files by their descriptors; small ones read whole: settings, key material, journals."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from typing import Final

from ..errors import PolicyError

NO_NAME: Final = "no name that a file can have: it holds a NUL, or what the system's encoding lacks"

_LEAST: Final = 4096


class NoRegularFileError(OSError):
    """A pipe, a device or a socket stands where a file should be."""


def can_name(path: str | os.PathLike[str]) -> bool:
    """Whether it is a name that a local file can have. Of others Python raises ValueErrors, whoever has chosen them."""
    try:
        return b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False


def open_regular(
    path: str | os.PathLike[str], flags: int = os.O_RDONLY, *, mode: int = 0o666, dir_fd: int | None = None
) -> int:
    """A descriptor of a local file, whatever somebody has put in its place: a pipe would have us wait for ever, a
    device act.

    Args:
        flags: as for `os.open`.
        mode: of a file that is made.
        dir_fd: an open folder that the path is relative to.

    Raises:
        OSError: it can't be opened, or is no regular file.
    """
    if not can_name(path):
        raise OSError(errno.EINVAL, NO_NAME)
    fd = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY, mode, dir_fd=dir_fd)
    kind = os.fstat(fd).st_mode
    if stat.S_ISREG(kind):
        return fd
    os.close(fd)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise NoRegularFileError(errno.EINVAL, "it is no regular file")


def pread(fd: int, offset: int, length: int) -> bytes:
    """Bytes of a local file from `offset`; fewer where it ends before."""
    data = os.pread(fd, length, offset)
    while 0 < len(data) < length and (more := os.pread(fd, length - len(data), offset + len(data))):
        data += more  # the kernel hands out at most 2 GiB at a time
    return data


def identity(status: os.stat_result) -> tuple[int, ...]:
    """Device, inode, size and time of change of a local file."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


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


def need_own(status: os.stat_result, what: str, path: str | os.PathLike[str], *, sealed: bool = False) -> None:
    """Whoever can read a file of secrets has them; whoever can write it chooses them.

    Args:
        sealed: a passphrase protects the secrets: others may read the file.

    Raises:
        PolicyError: others than its owner can use the file.
    """
    if (mode := stat.S_IMODE(status.st_mode)) & (0o022 if sealed else 0o077):
        place = os.fspath(path)
        told = f"{what} {place} can be used by others than its owner (mode {mode:04o})"
        raise PolicyError(told, hint=f"chmod 600 {place}")


def read_open(fd: int, limit: int) -> bytes:
    """As `read_small`, of an open file, from its beginning wherever it stands. Memory is taken for as much as there is:
    whoever asks for the limit has that much mapped, and unmapped again.
    """
    data, ask = b"", max(os.fstat(fd).st_size + 1, _LEAST)
    while len(data) <= limit and (piece := os.pread(fd, min(ask, limit + 1 - len(data)), len(data))):
        data = data + piece if data else piece
    return data
