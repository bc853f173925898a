"""The answer: *yes*, *no* or *unknown*, and why."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from .question import DestructionQuestion, DestructionReason

FORMAT: Final = "bloomseal destruction"
NOT_LOOKED_AT: Final = (
    "copies outside of these places: backups, snapshots of volumes, older object versions, clones, files on their way"
)


@dataclass(frozen=True)
class Destruction:
    """May a master key version be destroyed? True as a condition only where the answer is *yes*.

    Attributes:
        question: as the KMS had it when the last file had been looked at.
        answer: ``yes``, ``no`` or ``unknown``.
        reasons: why it is not *yes*, those for *no* first; none where it is.
        files, snapshots, sidecars: how many files were looked at, how many versions of tables their logs describe, how
            many files of external key material there are.
        keys: how many data keys the KMS itself has tied to a version.
        under: the versions that these are under, ``NAME:VERSION``, by the KMS's names; as the files have it, where no
            KMS told.
        missing: files that a retained table version names and that are gone from the table's folder.
        looked_at: the places that were given.
        not_looked_at: what a *yes* does not cover, in words.
        began, ended: when the files were looked at, in UTC.
    """

    question: DestructionQuestion
    answer: str
    reasons: tuple[DestructionReason, ...]
    files: int
    snapshots: int
    sidecars: int
    keys: int
    under: list[str]
    missing: list[str]
    looked_at: list[str]
    not_looked_at: tuple[str, ...]
    began: datetime
    ended: datetime

    def __bool__(self) -> bool:
        return self.answer == "yes"

    @property
    def needed_by(self) -> list[str]:
        """Files, and sidecars without one, with a key under the version."""
        return list(dict.fromkeys(reason.place for reason in self.reasons if reason.answer == "no"))

    @property
    def doubts(self) -> list[str]:
        """Why a *yes* could not be given, in words."""
        return [str(reason) for reason in self.reasons if reason.answer == "unknown"]

    def to_dict(self) -> dict[str, Any]:
        """As plain data: the evidence that `bloomseal keyring destroy` takes."""
        asked = ("master_key", "version", "kms", "keyring", "fingerprints", "after", "retired", "wait_until")
        seen = ("answer", "needed_by", "doubts", "files", "snapshots", "sidecars", "keys", "under", "missing")
        told = {
            "format": FORMAT,
            "format_version": 1,
            **{name: getattr(self.question, name) for name in asked},
            **{name: getattr(self, name) for name in (*seen, "looked_at", "began", "ended")},
            "reasons": [reason.to_dict() for reason in self.reasons],
            "not_looked_at": list(self.not_looked_at),
        }
        return {name: _text(value) if isinstance(value, datetime) else value for name, value in told.items()}


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")
