"""Faults of storage, injected into this process at the n-th call of a function that storage is used through."""

from __future__ import annotations

import errno
import functools
import io
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

__all__ = ["Fault", "Kind", "Storage"]


class Kind(StrEnum):
    """How storage fails.

    KILL_BEFORE and KILL_AFTER: the process dies beside the call; a write has written a part before it.
    FULL: from the call on nothing can be written or made, as on a full disk.
    ERROR: the call fails with EIO, once.
    DEAD: every call from there on fails with EIO.
    SHORT: from the call on reads give, and writes take, less than was asked.
    STALE: listings show nothing that came after the process began, as with cached directories of a network.
    """

    KILL_BEFORE = "kill before"
    KILL_AFTER = "kill after"
    FULL = "full"
    ERROR = "error"
    DEAD = "dead"
    SHORT = "short"
    STALE = "stale"


@dataclass(frozen=True)
class Fault:
    """A kind, and the number of the call (from 0) that it begins with; None only counts."""

    kind: Kind | None
    at: int = 0


_MAKE: Final = ("mkdir", "link", "symlink")
_WRITE: Final = ("write", "pwrite")
_READ: Final = ("read", "pread", "preadv")
_OTHER: Final = ("open", "fsync", "rename", "replace", "unlink", "rmdir", "ftruncate", "fchmod", "stat", "lstat",
                 "fstat", "listdir", "scandir")  # fmt: skip


class Storage:
    """`os` with a fault in it. It is for a process that ends soon, and is never taken out.

    Attributes:
        calls: calls so far.
    """

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.calls = 0
        self._owner = os.getpid()

    def install(self, root: str) -> None:
        """Put it in; `root` is where listings begin to be stale."""
        self._known = {name for _, folders, files in os.walk(root) for name in (*folders, *files)}
        for name in (*_MAKE, *_WRITE, *_READ, *_OTHER):
            if hasattr(os, name):
                setattr(os, name, self._wrapped(name, getattr(os, name)))
        storage = self

        write = io.FileIO.write

        class FaultyFile(io.FileIO):
            def write(self, data: Any, /) -> int:
                return int(storage.call("write", functools.partial(write, self), data))

        io.FileIO = FaultyFile  # type: ignore[misc]

    def _wrapped(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def faulty(*args: Any, **options: Any) -> Any:
            return self.call(name, function, *args, **options)

        return faulty

    def call(self, name: str, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        number, self.calls = self.calls, self.calls + 1
        here, after = number == self.fault.at, number >= self.fault.at
        match self.fault.kind:
            case Kind.KILL_BEFORE if here:
                if name in _WRITE:
                    self._less(name, function, args)
                os.kill(self._owner, signal.SIGKILL)
            case Kind.KILL_AFTER if here:
                function(*args, **options)
                os.kill(self._owner, signal.SIGKILL)
            case Kind.FULL if after and (name in (*_MAKE, *_WRITE) or (name == "open" and args[1] & os.O_CREAT)):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            case Kind.ERROR if here:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            case Kind.DEAD if after:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            case Kind.SHORT if after and name in (*_WRITE, *_READ):
                return self._less(name, function, args)
            case Kind.STALE if after and name == "listdir":
                return [one for one in function(*args, **options) if one in self._known]
        return function(*args, **options)

    @staticmethod
    def _less(name: str, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Half of what was asked for, and one byte at least."""
        if name == "read":
            return function(args[0], (args[1] + 1) // 2)
        if name == "pread":
            return function(args[0], (args[1] + 1) // 2, *args[2:])
        if name == "preadv":
            fd, [buffer], *rest = args
            view = memoryview(buffer)
            return function(fd, [view[: (len(view) + 1) // 2]], *rest)
        if len(args) == 1:  # a file object's
            view = memoryview(args[0]).cast("B")
            return function(view[: (len(view) + 1) // 2])
        view = memoryview(args[1]).cast("B")
        return function(args[0], view[: (len(view) + 1) // 2], *args[2:])
