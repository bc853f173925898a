"""Figures of the calls to a KMS."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Counters:
    """What a KMS was asked, and what that cost.

    Attributes:
        wraps, unwraps: calls that were made, repeated ones included.
        checks: questions about master keys: whether a wrapped key proves its writer's rights (`authentic_writers`),
            which names and versions a key has.
        hits: answers from the cache, refusals included.
        denials: calls that the KMS refused for good: denied, disabled, destroyed, unknown.
        failures: calls that failed otherwise.
        retries: calls that repeated one that failed.
        seconds: total time in calls. Calls at the same time count each.
        slowest: seconds of the longest call.
    """

    wraps: int = 0
    unwraps: int = 0
    checks: int = 0
    hits: int = 0
    denials: int = 0
    failures: int = 0
    retries: int = 0
    seconds: float = 0.0
    slowest: float = 0.0

    def __add__(self, other: Counters) -> Counters:
        both: dict[str, Any] = {name: getattr(self, name) + getattr(other, name) for name in self.__slots__}
        return Counters(**both | {"slowest": max(self.slowest, other.slowest)})

    def to_dict(self) -> dict[str, float]:
        """As plain data."""
        return asdict(self)
