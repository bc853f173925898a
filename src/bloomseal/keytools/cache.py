"""Values that cost a KMS call: fetched once per process and lifetime, whatever the number of threads."""

from __future__ import annotations

import copy
import math
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, TypeVar

from ..core.errors import KeyAccessError
from ..core.forked import renewed_in_child

T = TypeVar("T")


@dataclass(slots=True)
class _Entry(Generic[T]):
    expires: float
    value: T | KeyAccessError


class Cache(Generic[T]):
    """Loads each name once; who asks meanwhile waits for the same load.

    Args:
        lifetime: seconds that a value is kept; 0 keeps nothing (loads at the same time are still shared); infinity for
            what is no secret.
        denial_lifetime: seconds that a refusal is remembered, so that a thousand files under a key that one may not use
            don't make a thousand calls. What may pass by itself (a retryable error) is not remembered.
        max_entries: beyond it the oldest is dropped.
        clock: seconds that only grow.

    Expired values are dropped by a timer, not only when somebody asks. A forked child begins with an empty cache.
    """

    def __init__(
        self,
        lifetime: float,
        *,
        denial_lifetime: float = 60.0,
        max_entries: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lifetime = lifetime
        self._denial_lifetime = min(denial_lifetime, lifetime)
        self._max_entries = max_entries
        self._clock = clock
        self.hits = 0
        self._renew()
        renewed_in_child(self)

    def _renew(self) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, _Entry[T]] = OrderedDict()
        self._loading: dict[Hashable, Future[T]] = {}
        self._sweeping = False

    def get(self, name: Hashable, load: Callable[[], T]) -> T:
        """The value of `name`, from `load` where it isn't known.

        Raises:
            KeyAccessError: what `load` raised, now or for an earlier caller.
        """
        with self._lock:
            self._drop_expired()
            if (entry := self._entries.get(name)) is not None and entry.expires > self._clock():
                self.hits += 1
                if not isinstance(entry.value, KeyAccessError):
                    return entry.value
                # A copy, because callers fill in their own file and column.
                raise copy.copy(entry.value)
            flight = self._loading.get(name)
            mine = flight is None
            if flight is None:
                flight = self._loading[name] = Future()
            else:
                self.hits += 1
        if mine:
            self._load(name, flight, load)
        error = flight.exception()
        if error is None:
            return flight.result()
        if isinstance(error, KeyAccessError):
            raise copy.copy(error)
        if mine:
            raise error
        return self.get(name, load)  # the thread that was loading was interrupted, not this one

    def put(self, name: Hashable, value: T) -> None:
        """Remember a value that was come by without a load."""
        with self._lock:
            self._keep(name, value, self._lifetime)

    def forget(self, name: Hashable | None = None) -> None:
        """Drop one value, or all."""
        with self._lock:
            if name is None:
                self._entries.clear()
            else:
                self._entries.pop(name, None)

    def __len__(self) -> int:
        with self._lock:
            self._drop_expired()
            return len(self._entries)

    def _load(self, name: Hashable, flight: Future[T], load: Callable[[], T]) -> None:
        try:
            value = load()
        except BaseException as error:
            with self._lock:
                del self._loading[name]
                if isinstance(error, KeyAccessError) and not error.retryable:
                    # The copy has no traceback, whose frames would keep key bytes alive.
                    self._keep(name, copy.copy(error), self._denial_lifetime)
            flight.set_exception(error)
            return
        with self._lock:
            del self._loading[name]
            self._keep(name, value, self._lifetime)
        flight.set_result(value)

    def _keep(self, name: Hashable, value: T | KeyAccessError, lifetime: float) -> None:
        if lifetime <= 0:
            return
        self._entries.pop(name, None)
        self._entries[name] = _Entry(self._clock() + lifetime, value)
        if len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)
        self._sweep_later()

    def _drop_expired(self) -> None:
        # Lifetimes are equal, so the first is the oldest; a refusal behind it, which ends sooner, is told by its own
        # time.
        now = self._clock()
        while self._entries and next(iter(self._entries.values())).expires <= now:
            self._entries.popitem(last=False)

    def _sweep_later(self) -> None:
        if self._sweeping or self._lifetime == math.inf:
            return
        self._sweeping = True
        timer = threading.Timer(self._lifetime, _sweep, (weakref.ref(self),))
        timer.daemon = True
        timer.start()


def _sweep(cache: weakref.ref[Cache[T]]) -> None:
    if (alive := cache()) is not None:
        with alive._lock:
            alive._drop_expired()
            alive._sweeping = False
            if alive._entries:
                alive._sweep_later()
