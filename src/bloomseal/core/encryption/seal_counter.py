"""Seals counted per key within this process, against NIST SP 800-38D section 8.3.

A process can only count what it sealed itself: keys shared between processes are counted in each of them, and a file's
earlier seals are unknown. Fresh data keys per file and column keep every count tiny.
"""

from __future__ import annotations

import threading
from typing import ClassVar
from weakref import WeakValueDictionary

from ..errors import KeyAccessError
from ..forked import new_lock
from ..limits import MAX_GCM_SEALS
from .secret import SecretKey


class SealCounter:
    """The number of seals that one key has made. All holders of equal keys share one counter.

    Obtain it with `SealCounter.of`; `limit` starts at 2^32 and can only be lowered.
    """

    __slots__ = ("__weakref__", "_lock", "count", "fingerprint", "limit")

    _alive: ClassVar[WeakValueDictionary[str, SealCounter]] = WeakValueDictionary()
    # Keys that came from outside may come again as another object, so their counts must outlive the object. Keys made
    # here die with their file; keeping their counts would grow without bound.
    _kept: ClassVar[dict[str, SealCounter]] = {}
    _registry_lock: ClassVar[threading.Lock] = new_lock()

    def __init__(self, fingerprint: str) -> None:
        self.fingerprint = fingerprint
        self.count = 0
        self.limit = MAX_GCM_SEALS
        self._lock = new_lock()

    @classmethod
    def of(cls, key: SecretKey) -> SealCounter:
        """The counter of `key`, shared by all equal keys in this process."""
        with cls._registry_lock:
            counter = cls._alive.get(key.fingerprint)
            if counter is None:
                counter = cls._alive[key.fingerprint] = cls(key.fingerprint)
            if not key.generated:
                cls._kept[key.fingerprint] = counter
            return counter

    def lower_limit(self, limit: int) -> None:
        """Stop earlier than 2^32, as a policy may ask. A higher limit than today's is ignored."""
        self.limit = min(self.limit, limit)

    def add(self) -> None:
        """Count a seal before it happens.

        Raises:
            KeyAccessError: the limit would be passed; nothing may be sealed.
        """
        with self._lock:
            if self.count >= self.limit:
                raise KeyAccessError(
                    f"key {self.fingerprint} has sealed {self.count} times in this process; its limit is {self.limit}",
                    hint="rekey the file: a fresh data key starts at zero",
                )
            self.count += 1
