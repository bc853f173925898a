"""Where a job's time goes: the functions that took most of it themselves, for goals that were missed."""

from __future__ import annotations

import cProfile
import pstats
import re
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["shares"]

_SECONDS = 0.3
_MOST = 8
_LEAST = 0.02
_WAITING = ("poll.poll", "posix.waitpid", "posix.read", "lock.acquire")
_METHOD = re.compile(r"<(?:built-in )?method '?([\w.]+)'?(?: of '([\w.]+)' objects)?>")


def shares(run: Callable[[], object]) -> list[tuple[str, float]]:
    """Functions and their own share of the time, largest first; work in C is its caller's where the interpreter can't
    see it.

    Nothing where most of the time is waiting for other processes and threads, which do the work.
    Measuring lengthens calls of Python functions, so many small ones seem larger than they are.
    """
    profile = cProfile.Profile()
    end = time.perf_counter() + _SECONDS
    while time.perf_counter() < end:
        profile.runcall(run)
    own: dict[str, float] = {}
    statistics: dict[tuple[str, int, str], tuple[int, int, float, float, object]] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    for (file, _, function), (_, _, seconds, _, _) in statistics.items():
        name = _named(file, function)
        own[name] = own.get(name, 0.0) + seconds
    total = sum(own.values()) or 1.0
    if sum(own.get(name, 0.0) for name in _WAITING) > total / 2:
        return []
    ranked = sorted(((name, seconds / total) for name, seconds in own.items()), key=lambda one: -one[1])
    return [one for one in ranked[:_MOST] if one[1] >= _LEAST]


def _named(file: str, function: str) -> str:
    if file != "~":
        path = Path(file)
        return f"{path.parent.name}/{path.stem}.{function}"
    if found := _METHOD.search(function):
        return f"{found[2].rpartition('.')[2]}.{found[1]}" if found[2] else found[1]
    return function.strip("{}")
