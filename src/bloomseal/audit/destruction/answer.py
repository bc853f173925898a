"""The answer: *yes*, *no* or *unknown*, and why."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

__all__ = ["ALL_VERSIONS", "FORMAT", "NOT_LOOKED_AT", "Destruction", "Reason"]

FORMAT: Final = "bloomseal destruction"
ALL_VERSIONS: Final = "*"
NOT_LOOKED_AT: Final = (
    "copies outside of these places: backups, snapshots of volumes, older object versions, clones, files on their way"
)


@dataclass(frozen=True, slots=True)
class Reason:
    """Why an answer is no *yes*.

    Attributes:
        answer: ``no`` or ``unknown``.
        place: the file, the place that was given, or the master key.
        what: one sentence.
        column: dotted path, where one column is meant.
    """

    answer: str
    place: str
    what: str
    column: str | None = None

    def __str__(self) -> str:
        return f"{self.place}: {self.what}" + (f" (column {self.column})" if self.column else "")

    def to_dict(self) -> dict[str, str]:
        """As plain data."""
        told = {"answer": self.answer, "place": self.place, "what": self.what}
        return told | ({"column": self.column} if self.column else {})


@dataclass(frozen=True)
class Destruction:
    """May a master key version be destroyed? True as a condition only where the answer is *yes*.

    Attributes:
        master_key, version: the version in question, as it was asked for; ``*`` for all versions.
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
        kms: who was asked; None without one.
        keyring: the keyring file's real path, where one was asked.
        fingerprints: version → fingerprint, of the versions in question, where a keyring was asked.
        after: seconds that writers may go on using a key that they hold.
        retired: since when the version wraps no new keys, as far as the KMS tells.
        wait_until: the end of `after`, where that is still to come.
        began, ended: when the files were looked at, in UTC.
    """

    master_key: str
    version: str
    answer: str
    reasons: tuple[Reason, ...]
    files: int
    snapshots: int
    sidecars: int
    keys: int
    under: list[str]
    missing: list[str]
    looked_at: list[str]
    began: datetime
    ended: datetime
    kms: str | None = None
    keyring: str | None = None
    fingerprints: dict[str, str] | None = None
    after: float = 0.0
    retired: datetime | None = None
    wait_until: datetime | None = None
    not_looked_at: tuple[str, ...] = (NOT_LOOKED_AT,)

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
        return {
            "format": FORMAT,
            "format_version": 1,
            "master_key": self.master_key,
            "version": self.version,
            "answer": self.answer,
            "reasons": [reason.to_dict() for reason in self.reasons],
            "needed_by": self.needed_by,
            "doubts": self.doubts,
            "files": self.files,
            "snapshots": self.snapshots,
            "sidecars": self.sidecars,
            "keys": self.keys,
            "under": self.under,
            "missing": self.missing,
            "looked_at": self.looked_at,
            "not_looked_at": list(self.not_looked_at),
            "kms": self.kms,
            "keyring": self.keyring,
            "fingerprints": self.fingerprints,
            "after": self.after,
            "retired": _text(self.retired),
            "wait_until": _text(self.wait_until),
            "began": _text(self.began),
            "ended": _text(self.ended),
        }


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="seconds")
