"""A certificate about a master key version that is to be gone: who needs it, what the KMS says of it, and what still
opens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from ..audit.destruction.answer import Destruction
from ..audit.destruction.samples import Attempt
from ..keytools import Problem
from .claims import Observations

_GONE: Final = Problem.DESTROYED.value


@dataclass(frozen=True)
class Certificate:
    """One master key version.

    Attributes:
        look: the answer to whether it may be destroyed; a member of its own in the bundle.
        tried: attempts to unwrap a data key under it.
        signatures_required: two where the policy wants dual control.
    """

    look: Destruction
    tried: Sequence[Attempt]
    signatures_required: int = 1

    @property
    def unneeded(self) -> Observations:
        """The claim that no file needs it. Whatever keeps the answer from a *yes* was not seen."""
        look = self.look
        doubts = look.doubts or ([] if look else [f"may it be destroyed: {look.answer}"])
        return Observations(tuple(f"{path} needs it" for path in look.needed_by), look.files, look.files, tuple(doubts))

    @property
    def destroyed(self) -> Observations:
        """The claim that the KMS has destroyed it. Each attempt is one thing to see, and its own word another."""
        asked, tried = self.look.question, self.tried
        word = asked.state == "destroyed"
        against = [f"it unwrapped a data key of {one.file}" for one in tried if one.outcome == "opened"]
        if asked.state is not None and not word:
            against.append(f"{asked.kms} says that it is {asked.state}")
        # Refused for another reason than that it is gone: it may come back.
        gone = [one for one in tried if one.outcome == "refused" and (word or one.problem == _GONE)]
        others = [f"{one.file}: {one.why}" for one in tried if one not in gone and one.outcome != "opened"]
        silent = asked.problem or f"{asked.kms} does not tell the state of single versions"
        others += [] if tried or word else [silent]
        return Observations(tuple(against), len(gone) + word, len(tried) + word, tuple(others))

    def to_dict(self) -> dict[str, Any]:
        """As plain data, without `look`, of which it says the most."""
        look, asked = self.look, self.look.question
        return {
            "master_key": asked.master_key,
            "version": asked.version,
            "kms": asked.kms,
            "kms_state": asked.state,
            **{name: getattr(look, name) for name in ("files", "looked_at", "missing", "under")},
            "not_looked_at": list(look.not_looked_at),
            "tried": [asdict(one) for one in self.tried],
            "unneeded": self.unneeded.to_dict(),
            "destroyed": self.destroyed.to_dict(),
            "signatures_required": self.signatures_required,
        }
