"""After `os.fork` a child has its parent's memory and none of its threads: locks that were taken stay taken, loads that
had begun never end, timers that end a key's lifetime never fire. So in the child everything starts anew.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Protocol
from weakref import WeakSet


class _Renewable(Protocol):
    def _renew(self) -> None: ...


_owners: WeakSet[_Renewable] = WeakSet()
_locks: WeakSet[Any] = WeakSet()
_hooks: list[Callable[[], object]] = []


def renewed_in_child(owner: _Renewable) -> None:
    """Call ``owner._renew()`` in every child that this process forks, as long as `owner` lives: fresh locks, no cached
    keys.
    """
    _owners.add(owner)


def in_child(hook: Callable[[], object]) -> None:
    """Call `hook` in every child that this process forks: for what a module holds."""
    _hooks.append(hook)


def new_lock() -> threading.Lock:
    """A lock that is free in a forked child."""
    made = threading.Lock()
    _locks.add(made)
    return made


def new_recursive_lock() -> threading.RLock:
    """As `new_lock`, for a thread that may take it again."""
    made = threading.RLock()
    _locks.add(made)
    return made


def _renew_all() -> None:
    for lock in list(_locks):
        lock._at_fork_reinit()  # as Python's own modules do it
    for owner in list(_owners):
        owner._renew()
    for hook in _hooks:
        hook()


os.register_at_fork(after_in_child=_renew_all)
