"""After `os.fork` a child has its parent's memory and none of its threads: locks that were taken stay taken, loads that
had begun never end, timers that end a key's lifetime never fire. So in the child everything starts anew.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet

__all__ = ["renewed_in_child"]


class _Renewable(Protocol):
    def _renew(self) -> None: ...


_owners: WeakSet[_Renewable] = WeakSet()


def renewed_in_child(owner: _Renewable) -> None:
    """Call ``owner._renew()`` in every child that this process forks, as long as `owner` lives: fresh locks, no cached
    keys.
    """
    _owners.add(owner)


def _renew_all() -> None:
    for owner in list(_owners):
        owner._renew()


os.register_at_fork(after_in_child=_renew_all)
