"""The question: one version of one master key, or all, as the KMS knows them; and whether writers may still use it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from ...core.errors import BloomsealError, UsageError
from ...core.keys.access import shown
from ...core.spelling import nearest
from ...keytools import (
    Keyring,
    KeyState,
    KeyTools,
    KmsAccessError,
    MasterVersion,
    Problem,
    VersionFacts,
)
from .answer import ALL_VERSIONS, Reason

__all__ = ["CACHE_LIFETIME", "Question", "ask"]

CACHE_LIFETIME: Final = 600.0
"""Seconds that key tools, these and parquet-java's, go on wrapping under a KEK that they hold, unless they are told
otherwise.
"""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked.

    Attributes:
        master_key, version: as they were given; version None for all.
        real: the same, by the KMS's own names.
        same: the versions in question, by all names that they have as versions of other keys too.
        reasons: what already stands against a *yes*.
        retired, wait_until, kms, keyring, fingerprints: as `Destruction` has them.
    """

    master_key: str
    version: str | None
    real: MasterVersion
    same: frozenset[MasterVersion] = frozenset()
    reasons: tuple[Reason, ...] = ()
    retired: datetime | None = None
    wait_until: datetime | None = None
    kms: str | None = None
    keyring: str | None = None
    fingerprints: dict[str, str] | None = None

    def is_about(self, found: MasterVersion) -> bool:
        """Is this the version in question, or one of them?"""
        return found in self.same or (found.key == self.real.key and self.real.version in (None, found.version))


def ask(master_key: str, version: str | None, tools: KeyTools | None, *, after: float, now: datetime) -> Question:
    """The question, held against what the KMS knows.

    Args:
        version: None or ``*`` for all versions.
        tools: the way to the KMS; None where there is none.
        after: seconds that writers may use a key that they hold.
        now: when the first file is looked at.

    Raises:
        UsageError: the KMS knows no such key, or no such version of it.
    """
    version = None if version == ALL_VERSIONS else version
    plain = Question(master_key, version, MasterVersion(master_key, version))
    place = f"{master_key}:{ALL_VERSIONS if version is None else version}"
    if tools is None:
        return _doubted(plain, place, "no KMS was asked, so that nobody knows which version each wrapped key is under")
    calls = tools.calls
    try:
        facts = calls.describe(master_key)
    except KmsAccessError as error:
        if error.problem is Problem.UNKNOWN:
            raise UsageError(error.what, hint=_known_names(tools, master_key)) from None
        return _doubted(plain, place, error.what)
    except BloomsealError as error:
        return _doubted(plain, place, error.what)
    if facts.versions is None:
        return _doubted(plain, place, f"{calls.name} does not tell which version opens a wrapped key")
    _check(version, facts.versions, master_key, calls.name)
    meant = [one for one in facts.versions if version in (None, one.version)]
    if not meant and facts.state in (None, KeyState.ENABLED):
        # A key whose versions nobody lists wraps new keys, unless the KMS says that it is not enabled.
        meant = [VersionFacts(ALL_VERSIONS, wraps=True)]
    # The KMS has dated the versions: were our clock ahead of its own, the wait would end before its end.
    reason, retired, wait_until = _writers(meant, after, min(now, facts.clock or now))
    ring = tools.kms if isinstance(tools.kms, Keyring) else None
    return Question(
        master_key,
        version,
        facts.identify(version),
        frozenset(facts.identify(one.version) for one in meant),
        () if reason is None else (Reason("unknown", place, reason),),
        retired,
        wait_until,
        calls.name,
        None if ring is None else os.path.realpath(ring.path),
        None if ring is None else {one.version: one.fingerprint for one in meant if one.fingerprint is not None},
    )


def _doubted(question: Question, place: str, why: str) -> Question:
    return Question(question.master_key, question.version, question.real, reasons=(Reason("unknown", place, why),))


def _check(version: str | None, versions: Iterable[VersionFacts], master_key: str, kms: str) -> None:
    known = [one.version for one in versions]
    if version is not None and version not in known:
        has = f"it has {', '.join(known)}" if known else "it lists none"
        raise UsageError(
            f"{kms} knows no version {shown(version)} of master key {shown(master_key)}; {has}",
            hint=f"one of these, or {ALL_VERSIONS} for all",
        )


def _known_names(tools: KeyTools, master_key: str) -> str:
    if isinstance(tools.kms, Keyring):
        return f"one of {', '.join(nearest(master_key, (key.name for key in tools.kms.list())))}"
    return "check the name, and which KMS it is in"


def _writers(
    meant: Iterable[VersionFacts], after: float, now: datetime
) -> tuple[str | None, datetime | None, datetime | None]:
    """Why writers may still bring files under these versions; since when they wrap nothing; and until when to wait."""
    meant = list(meant)
    if any(one.wraps for one in meant):
        return "it wraps new keys now; disable it, or rotate the key, before you ask", None, None
    retired = max((one.retired for one in meant if one.retired is not None), default=None)
    if after <= 0:
        return None, retired, None
    if not meant or any(one.retired is None for one in meant):
        why = (
            f"the KMS does not tell since when it wraps no new keys; writers use a key that they hold for {after:.0f} seconds; "
            "once none of them runs, say after=0 (--after 0)"
        )
        return why, None, None
    assert retired is not None  # noqa: S101
    until = retired + timedelta(seconds=after)
    if until <= now:
        return None, retired, None
    why = f"writers may hold a key under it, and use it until {until:%Y-%m-%d %H:%M:%S} UTC; ask again then"
    return why, retired, until
