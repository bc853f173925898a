"""Every version of every master key: its state, its periods, what is under it, who answers for it.

States and periods are those of NIST SP 800-57 Part 1 (Revision 5): sections 7 (key states) and 5.3 (cryptoperiods).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from ..audit.facts.uses import FOOTER, Use, total
from ..core.cached import cached_property
from ..core.errors import BloomsealError
from ..keytools import KmsAccessError, Problem
from ..keytools.kms.calls import KmsCalls
from ..keytools.kms_protocols import KeyState, MasterKeyFacts, VersionFacts
from ..policy import KeyPolicy

PRE_ACTIVATION: Final = "pre-activation"
ACTIVE: Final = "active"
SUSPENDED: Final = "suspended"
DEACTIVATED: Final = "deactivated"
COMPROMISED: Final = "compromised"
DESTROYED: Final = "destroyed"
UNKNOWN: Final = "unknown"
_UNUSABLE: Final = (SUSPENDED, COMPROMISED, DESTROYED)


@dataclass(frozen=True)
class KeyAtKms:
    """One master key.

    Attributes:
        current: the version that wraps now.
        versions: what is known of each version that the KMS tells or files name, in order of their numbers; of the key
            itself under None, where its KMS counts no versions.
        problem: why it was not asked, or did not answer.
    """

    current: str | None
    versions: Mapping[str | None, VersionFacts]
    problem: str | None = None


@dataclass(frozen=True)
class KeyVersionFacts:
    """One version of a master key. Moments in UTC; None is what nobody tells.

    Attributes:
        master_key, version: its name.
        key: what the KMS tells of the master key.
        used: where files are under the version.
        policy: the master key's.
        usage: the originator usage period.
        now: the moment.
    """

    master_key: str
    version: str | None
    key: KeyAtKms
    used: Sequence[Use]
    policy: KeyPolicy
    usage: timedelta | None
    now: datetime

    @property
    def name(self) -> str:
        return f"{self.master_key}:{self.version or '?'}"

    @cached_property
    def _at_kms(self) -> VersionFacts | None:
        return self.key.versions.get(self.version)

    @property
    def current(self) -> bool | None:
        """Whether it wraps new keys."""
        if None in self.key.versions:
            return True  # there is but one
        return None if self.key.current is None or self.version is None else self.version == self.key.current

    @property
    def kms_state(self) -> str | None:
        """The KMS's own word."""
        at_kms = self._at_kms
        return (at_kms and at_kms.state) or next((use.state for use in self.used if use.state is not None), None)

    @property
    def state(self) -> str:
        """SP 800-57 Part 1, section 7; `UNKNOWN` where the KMS does not tell. A destroyed key that was compromised
        stays *destroyed* here; the policy names the rest.
        """
        word, current = self.kms_state, self.current
        if word == "destroyed":
            return DESTROYED
        if self.version is not None and self.version in self.policy.compromised:
            return COMPROMISED
        if word == "disabled":
            return SUSPENDED
        if word == "pending deletion":
            return DEACTIVATED
        if current is None or word not in (None, "enabled"):
            return UNKNOWN
        if not current:
            return DEACTIVATED  # it opens what it has protected, and protects nothing new
        if word is None:
            return UNKNOWN
        return PRE_ACTIVATION if self.activation is not None and self.activation > self.now else ACTIVE

    @property
    def bits(self) -> int | None:
        """Of the master key itself."""
        return None if self._at_kms is None else self._at_kms.bits

    @property
    def created(self) -> datetime | None:
        at_kms = self._at_kms
        return (at_kms and at_kms.created) or next((use.since for use in self.used if use.since is not None), None)

    @property
    def activation(self) -> datetime | None:
        """From when on it protects data: the policy's day, or `created` where that is later."""
        return max(filter(None, (self.created, self.policy.moment(self.policy.activation))), default=None)

    @property
    def originator_usage_ends(self) -> datetime | None:
        """Until when it may protect new data; the next rotation is due then."""
        return self._after(self.usage)

    @property
    def recipient_usage_ends(self) -> datetime | None:
        """Until when what it has protected may be opened."""
        return self._after(self.policy.recipient_usage)

    @property
    def expiry(self) -> datetime | None:
        """After that it is to be used for nothing."""
        return self.policy.moment(self.policy.expiry)

    def _after(self, period: timedelta | None) -> datetime | None:
        # Without the day on which this very version was made, its periods can't be told: the policy's day is that of
        # the key.
        start = None if self.created is None else self.activation
        return None if start is None or period is None else start + period

    @property
    def files(self) -> int:
        return total(self.used)

    @property
    def newest_file(self) -> datetime | None:
        """When it was last written."""
        return max((use.newest for use in self.used if use.newest), default=None)

    @property
    def findings(self) -> list[dict[str, str]]:
        """What is wrong with it: ``overdue`` (past a period, or before its activation), ``unusable`` (and files are
        under it), ``weak`` (shorter than the keys that it wraps).
        """
        told = [("overdue", text) for text in self._overdue()]
        if self.used and self.state in _UNUSABLE:
            told.append(("unusable", f"it is {self.state}, and files are under it"))
        longest = max((use.bits for use in self.used if use.bits is not None), default=0)
        if self.bits is not None and self.bits < longest:
            told.append(("weak", f"it has {self.bits} bits, and wraps keys of {longest}"))
        return [{"kind": kind, "what": text} for kind, text in told]

    def _overdue(self) -> Iterator[str]:
        state, originator, newest = self.state, self.originator_usage_ends, self.newest_file
        if state == PRE_ACTIVATION and self.used:
            yield "files are under it before its activation"
        if self.current and originator is not None and originator <= self.now and state != DESTROYED:
            yield f"the originator usage period ended on {originator.date()}: rotation is due"
        if not self.current and originator is not None and newest is not None and newest > originator:
            yield f"a file under it was written after its originator usage period had ended on {originator.date()}"
        for ends, what in ((self.recipient_usage_ends, "the recipient usage period"), (self.expiry, "its expiry")):
            if ends is not None and ends <= self.now and self.used:
                yield f"{what} ended on {ends.date()}, and files are under it still"

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        policy = ("owner", "custodian", "users", "dual_control")
        return {
            **{name: getattr(self, name) for name in _TOLD},
            **{name: getattr(self.policy, name) for name in policy},
            "kms_problem": self.key.problem,
            "data_key_algorithms": sorted({f"{use.algorithm} {use.bits or '?'}" for use in self.used}),
            "rotation_due": self.originator_usage_ends if self.current else None,
            "uses": _by_column(self.used),
            "modules": sum(use.modules for use in self.used),
            "oldest_file": min((use.oldest for use in self.used if use.oldest), default=None),
        }


_TOLD: Final = (
    "master_key", "version", "current", "state", "kms_state", "bits", "created", "activation", "originator_usage_ends",
    "recipient_usage_ends", "expiry", "findings", "files", "newest_file",
)  # fmt: skip


def at_kms(kms: KmsCalls | None, master_key: str, named: Iterable[str]) -> KeyAtKms:
    """What the KMS tells of a master key. Never raises.

    Args:
        kms: None where there is none.
        named: versions that files are under.
    """
    told, state, problem = MasterKeyFacts(master_key), None, None if kms is not None else "no KMS was at hand"
    try:
        told = told if kms is None else kms.describe(master_key)
    except BloomsealError as error:
        problem = error.what
        kind = error.problem if isinstance(error, KmsAccessError) else None
        state = KeyState(kind) if kind in (Problem.DISABLED, Problem.DESTROYED) else None
    alone = VersionFacts("", False, created=told.rotated or told.created, state=told.state)
    known = {name: VersionFacts(name, False, state=state) for name in named}
    if told.current is not None:
        known[told.current] = replace(alone, version=told.current)
    known |= {one.version: one for one in told.versions or () if one.state is not None}
    if not known and told.state is not None:
        return KeyAtKms(None, {None: alone})
    order = sorted(known, key=lambda name: (not name.isdigit(), len(name), name))
    return KeyAtKms(told.current, {name: known[name] for name in order}, problem)


def key_versions(
    uses: Sequence[Use],
    policies: Mapping[str, KeyPolicy],
    max_ages: Mapping[str, timedelta],
    asked: Callable[[str, set[str]], KeyAtKms],
    now: datetime,
) -> list[KeyVersionFacts]:
    """All versions that files are under or the KMS tells of, by key and version.

    Args:
        uses: of the inventory.
        policies: by master key.
        max_ages: `TablePolicy.max_key_age` by master key: the originator usage period where the key's own policy has
            none.
        asked: master key and versions seen → what its KMS tells.
        now: the moment.
    """
    by_key: dict[str, dict[str | None, list[Use]]] = {name: {} for name in policies}
    for use in uses:
        if use.master_key is not None:
            by_key.setdefault(use.master_key, {}).setdefault(use.version, []).append(use)
    found = []
    for name, by_version in sorted(by_key.items()):
        key = asked(name, {version for version in by_version if version is not None})
        policy = policies.get(name, KeyPolicy())
        usage = policy.originator_usage or max_ages.get(name)
        listed = [*key.versions, *({None} & by_version.keys() - key.versions.keys())]
        found += [KeyVersionFacts(name, one, key, by_version.get(one, []), policy, usage, now) for one in listed]
    return found


def _by_column(uses: Sequence[Use]) -> list[dict[str, Any]]:
    grouped: dict[tuple[str | None, str], list[Use]] = {}
    for use in uses:
        grouped.setdefault((use.table, use.column), []).append(use)
    order = sorted(grouped, key=lambda name: (name[0] or "", name[1] != FOOTER, name[1]))
    return [
        {
            "table": table,
            "column": column,
            "files": total(grouped[table, column]),
            "modules": sum(use.modules for use in grouped[table, column]),
            "data_keys": sum(use.data_keys for use in grouped[table, column]),
            "keks": sum(use.keks for use in grouped[table, column]),
        }
        for table, column in order
    ]
