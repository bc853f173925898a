"""What a bundle says to a claim. There is no *yes*: it is contradicted by what was found; or it is not, by things
of which all were seen; or it was not seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

CONTRADICTED: Final = "contradicted"
NOT_CONTRADICTED: Final = "not contradicted"
NOT_SEEN: Final = "not seen"
_TOLD: Final = 5


@dataclass(frozen=True)
class Observations:
    """The observations that speak of one claim, all of which stand elsewhere in the bundle too.

    Attributes:
        findings: those that contradict it.
        seen, of: how many of the things that it is about were looked at.
        unseen: what was not looked at, in words.
    """

    findings: tuple[str, ...] = ()
    seen: int = 0
    of: int = 0
    unseen: tuple[str, ...] = field(default=())

    @property
    def standing(self) -> str:
        """One of the three words. Whatever is unseen takes *not contradicted* away, and so does an empty look."""
        if self.findings:
            return CONTRADICTED
        return NOT_CONTRADICTED if 0 < self.seen == self.of and not self.unseen else NOT_SEEN

    def __str__(self) -> str:
        if self.standing == CONTRADICTED:
            return f"contradicted by finding {_joined(self.findings)}"
        if self.standing == NOT_CONTRADICTED:
            return f"not contradicted: {self.seen} of {self.of} seen"
        counted = [f"{self.of - self.seen} of {self.of}"] if self.seen != self.of else []
        return f"not seen: {_joined([*self.unseen, *counted]) or 'there is nothing to see it by'}"

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "standing": self.standing,
            "text": str(self),
            "findings": list(self.findings),
            "seen": self.seen,
            "of": self.of,
            "unseen": list(self.unseen),
        }


def _joined(texts: Iterable[str]) -> str:
    listed = list(texts)
    more = [f"and {len(listed) - _TOLD} more"] if len(listed) > _TOLD else []
    return "; ".join(listed[:_TOLD] + more)
