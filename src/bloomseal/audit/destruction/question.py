"""The question: one version of one master key, or all, as the KMS knows them; and whether writers may still use it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from ...core.errors import BloomsealError, UsageError
from ...core.keys.access import shown
from ...core.spelling import nearest
from ...keytools import KmsAccessError, Problem
from ...keytools.keyring.keyring import Keyring
from ...keytools.kms_protocols import KeyState, MasterKeyFacts, MasterVersion, VersionFacts
from ...keytools.recipients.recipient import Recipient
from ...keytools.tools import KeyTools

ALL_VERSIONS: Final = "*"

CACHE_LIFETIME: Final = 600.0
"""Seconds that key tools, these and parquet-java's, go on wrapping under a KEK that they hold, unless they are told
otherwise.
"""


@dataclass(frozen=True, slots=True)
class DestructionReason:
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


@dataclass(frozen=True, slots=True)
class DestructionQuestion:
    """May a master key version be destroyed, as far as its KMS alone tells?

    Attributes:
        master_key, version: as they were given; ``*`` for all versions.
        real: the same, by the KMS's own names.
        same: the versions in question, by all names that they have as versions of other keys too.
        after: seconds that writers may go on using a key that they hold.
        reasons: what already stands against a *yes*.
        kms: who was asked; None without one.
        problem: why nobody could tell.
        state: of the version, as far as the KMS tells.
        keyring: the keyring file's real path, where one was asked.
        fingerprints: version → fingerprint, of the versions in question, where a keyring was asked.
        retired: since when the version wraps no new keys, as far as the KMS tells.
        wait_until: the end of `after`, where that is still to come.
    """

    master_key: str
    version: str
    real: MasterVersion
    same: frozenset[MasterVersion] = frozenset()
    after: float = 0.0
    reasons: tuple[DestructionReason, ...] = ()
    kms: str | None = None
    problem: str | None = None
    state: str | None = None
    keyring: str | None = None
    fingerprints: dict[str, str] | None = None
    retired: datetime | None = None
    wait_until: datetime | None = None

    def is_about(self, found: MasterVersion) -> bool:
        """Whether this is the version in question, or one of them."""
        return found in self.same or (found.key == self.real.key and self.real.version in (None, found.version))


def named_version(text: str) -> tuple[str, str]:
    """``KEY:VERSION`` apart; the version ``*`` stands for all.

    Raises:
        UsageError: it is not of that form.
    """
    key, colon, version = text.rpartition(":")
    if not (key and colon and version) or (key.startswith("arn:") and "/" in version):
        raise UsageError("a master key's version is named as KEY:VERSION", hint="pii:1, or 'pii:*' for all versions")
    return key, version


def ask(
    master_key: str, version: str | None, tools: KeyTools | None, now: datetime, *, after: float
) -> DestructionQuestion:
    """The question, held against what the KMS knows.

    Args:
        version: None or ``*`` for all versions.
        tools: the way to the KMS; None where there is none.
        now: when the first file is looked at.
        after: seconds that writers may use a key that they hold.

    Raises:
        UsageError: the KMS knows no such key, or no such version of it.
    """
    version = None if version == ALL_VERSIONS else version
    plain = DestructionQuestion(master_key, version or ALL_VERSIONS, MasterVersion(master_key, version), after=after)
    if tools is None:
        return _doubted(plain, "no KMS was asked, so that nobody knows which version each wrapped key is under")
    calls = tools.calls
    plain = replace(plain, kms=calls.name)
    try:
        facts = calls.describe(master_key)
    except KmsAccessError as error:
        if error.problem is Problem.UNKNOWN:
            raise UsageError(error.what, hint=_known_names(tools, master_key)) from None
        gone = error.problem in (Problem.DISABLED, Problem.DESTROYED)
        return replace(_doubted(plain, error.what), state=error.problem.value if gone else None)
    except BloomsealError as error:
        return _doubted(plain, error.what)
    if facts.versions is None:
        told = replace(plain, state=_state(facts, version))
        return _doubted(told, f"{calls.name} does not tell which version opens a wrapped key")
    _check(version, facts.versions, master_key, calls.name)
    meant = [one for one in facts.versions if version in (None, one.version)]
    if not meant and facts.state in (None, KeyState.ENABLED):
        # A key whose versions nobody lists wraps new keys, unless the KMS says that it is not enabled.
        meant = [VersionFacts(ALL_VERSIONS, wraps=True)]
    # The KMS has dated the versions: were our clock ahead of its own, the wait would end before its end.
    reason, retired, wait_until = _writers(meant, after, min(now, facts.clock or now))
    ring = tools.kms if isinstance(tools.kms, Keyring) else None
    if ring is not None and facts.authenticates_writers is False:
        reason = _sealers(getattr(calls.client, "recipients", {}).get(master_key, ()), meant, after) or reason
    return replace(
        plain,
        real=facts.identify(version),
        same=frozenset(facts.identify(one.version) for one in meant),
        reasons=() if reason is None else (_doubt(plain, reason),),
        state=_state(facts, version),
        keyring=None if ring is None else os.path.realpath(ring.path),
        fingerprints=None if ring is None else {one.version: one.fingerprint for one in meant if one.fingerprint},
        retired=retired,
        wait_until=wait_until,
    )


def _doubt(question: DestructionQuestion, why: str) -> DestructionReason:
    return DestructionReason("unknown", f"{question.master_key}:{question.version}", why)


def _doubted(question: DestructionQuestion, why: str) -> DestructionQuestion:
    return replace(question, problem=why, reasons=(_doubt(question, why),))


def _state(facts: MasterKeyFacts, version: str | None) -> str | None:
    """Of a version; the key's own counts for the current one."""
    told = {facts.current: facts.state} | {one.version: one.state for one in facts.versions or () if one.state}
    state = None if version is None else told.get(version)
    return None if state is None else state.value


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


def _sealers(recipients: Iterable[Recipient], meant: Iterable[VersionFacts], after: float) -> str | None:
    """Why writers may bring files under versions of a pair that the keyring has rotated away: nobody asks it to seal.

    Args:
        recipients: those of the policy.
    """
    ids = {one.fingerprint for one in meant}
    if any(one.id in ids for one in recipients):
        return "the policy has its line among the recipients, so that new keys are sealed to it; take it out first"
    if after > 0:
        return "whoever has its line can seal to it; once no writer's policy has that, say after=0 (--after 0)"
    return None


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
