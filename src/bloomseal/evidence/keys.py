"""Every version of every master key: its state, its periods, what is under it, who answers for it.

States and periods are those of NIST SP 800-57 Part 1 (Revision 5): sections 7 (key states) and 5.3 (cryptoperiods).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from ..policy import KeyPolicy
from .uses import FOOTER, Use, total
from .versions import KeyAtKms, VersionAtKms

__all__ = ["UNKNOWN", "KeyVersion", "key_versions"]

PRE_ACTIVATION: Final = "pre-activation"
ACTIVE: Final = "active"
SUSPENDED: Final = "suspended"
DEACTIVATED: Final = "deactivated"
COMPROMISED: Final = "compromised"
DESTROYED: Final = "destroyed"
UNKNOWN: Final = "unknown"
_UNUSABLE: Final = (SUSPENDED, COMPROMISED, DESTROYED)


@dataclass(frozen=True)
class KeyVersion:
    """One version of a master key. Moments in UTC; None is what nobody tells.

    Attributes:
        master_key, version: its name.
        current: does it wrap new keys?
        state: ``pre-activation``, ``active``, ``suspended``, ``deactivated``, ``compromised``, ``destroyed``;
            ``unknown`` where the KMS does not tell.
        kms_state: the KMS's own word.
        kms_problem: why it did not tell.
        bits: of the master key itself.
        data_key_algorithms: algorithm and length of the keys under it.
        created: by the KMS's account.
        activation: from when on it protects data: the policy's day, or `created` where that is later.
        originator_usage_ends: until when it may protect new data; the next rotation is due then.
        recipient_usage_ends: until when what it has protected may be opened.
        expiry: after that it is to be used for nothing.
        rotation_due: `originator_usage_ends` of the current version.
        findings: what is wrong with it, ``kind`` and ``what``: ``overdue`` (past a period, or before its activation),
            ``unusable`` (and files are under it), ``weak`` (shorter than the keys that it wraps).
        owner, custodian, users: by the policy.
        uses: table, column, files, modules, data_keys, keks for each column, the footers as ``(footer)``.
        files, modules: over all uses.
        oldest_file, newest_file: when they were last written.
    """

    master_key: str
    version: str | None
    current: bool | None
    state: str
    kms_state: str | None
    kms_problem: str | None
    bits: int | None
    data_key_algorithms: tuple[str, ...]
    created: datetime | None
    activation: datetime | None
    originator_usage_ends: datetime | None
    recipient_usage_ends: datetime | None
    expiry: datetime | None
    rotation_due: datetime | None
    findings: tuple[dict[str, str], ...]
    owner: str | None
    custodian: str | None
    users: tuple[str, ...]
    dual_control: bool
    uses: tuple[dict[str, Any], ...]
    files: int
    modules: int
    oldest_file: datetime | None
    newest_file: datetime | None

    @property
    def name(self) -> str:
        return f"{self.master_key}:{self.version or '?'}"

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def key_versions(
    uses: Sequence[Use],
    policies: Mapping[str, KeyPolicy],
    max_ages: Mapping[str, timedelta],
    asked: Callable[[str, set[str]], KeyAtKms],
    now: datetime,
) -> list[KeyVersion]:
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
    for master_key, by_version in sorted(by_key.items()):
        at_kms = asked(master_key, {version for version in by_version if version is not None})
        policy = policies.get(master_key, KeyPolicy())
        usage = policy.originator_usage or max_ages.get(master_key)
        listed: list[str | None] = [one.version for one in at_kms.versions]
        if None in by_version or at_kms.unversioned is not None:
            listed.append(None)
        found += [
            _version(master_key, version, by_version.get(version, []), at_kms, policy, usage, now) for version in listed
        ]
    return found


def _version(
    master_key: str,
    version: str | None,
    uses: list[Use],
    key: KeyAtKms,
    policy: KeyPolicy,
    usage: timedelta | None,
    now: datetime,
) -> KeyVersion:
    at_kms = key.of(version)
    kms_state = (at_kms and at_kms.state) or next((use.state for use in uses if use.state is not None), None)
    created = (at_kms and at_kms.created) or next((use.since for use in uses if use.since is not None), None)
    current = None if key.current is None or version is None else version == key.current
    if key.unversioned is not None:
        current = True  # there is but one
    activation = max(filter(None, (created, policy.moment(policy.activation))), default=None)
    # Without the day on which this very version was made, its periods can't be told: the policy's day is that of the
    # key.
    start = activation if created is not None else None
    originator = _after(start, usage)
    recipient = _after(start, policy.recipient_usage)
    expiry = policy.moment(policy.expiry)
    state = _state(version, kms_state, current, activation, policy, now)
    return KeyVersion(
        master_key,
        version,
        current,
        state,
        kms_state,
        key.problem,
        None if at_kms is None else at_kms.bits,
        tuple(sorted({f"{use.algorithm} {use.bits or '?'}" for use in uses})),
        created,
        activation,
        originator,
        recipient,
        expiry,
        originator if current else None,
        (
            *_found("overdue", _overdue(state, current, uses, originator, recipient, expiry, now)),
            *_found("unusable", [f"it is {state}, and files are under it"] if uses and state in _UNUSABLE else []),
            *_found("weak", _weak(at_kms, uses)),
        ),
        policy.owner,
        policy.custodian,
        policy.users,
        policy.dual_control,
        tuple(_told(uses)),
        total(uses),
        sum(use.modules for use in uses),
        min((use.oldest for use in uses if use.oldest), default=None),
        max((use.newest for use in uses if use.newest), default=None),
    )


def _state(
    version: str | None,
    kms_state: str | None,
    current: bool | None,
    activation: datetime | None,
    policy: KeyPolicy,
    now: datetime,
) -> str:
    """SP 800-57 Part 1, section 7. A destroyed key that was compromised stays *destroyed* here; the policy names the
    rest.
    """
    if kms_state == "destroyed":
        return DESTROYED
    if version is not None and version in policy.compromised:
        return COMPROMISED
    if kms_state == "disabled":
        return SUSPENDED
    if kms_state == "pending deletion":
        return DEACTIVATED
    if current is None or kms_state not in (None, "enabled"):
        return UNKNOWN
    if not current:
        return DEACTIVATED  # it opens what it has protected, and protects nothing new
    if kms_state is None:
        return UNKNOWN
    return PRE_ACTIVATION if activation is not None and activation > now else ACTIVE


def _overdue(
    state: str,
    current: bool | None,
    uses: list[Use],
    originator: datetime | None,
    recipient: datetime | None,
    expiry: datetime | None,
    now: datetime,
) -> list[str]:
    told = []
    if state == PRE_ACTIVATION and uses:
        told.append("files are under it before its activation")
    if current and originator is not None and originator <= now and state != DESTROYED:
        told.append(f"the originator usage period ended on {originator.date()}: rotation is due")
    newest = max((use.newest for use in uses if use.newest), default=None)
    if not current and originator is not None and newest is not None and newest > originator:
        told.append(f"a file under it was written after its originator usage period had ended on {originator.date()}")
    for ends, what in ((recipient, "the recipient usage period"), (expiry, "its expiry")):
        if ends is not None and ends <= now and uses:
            told.append(f"{what} ended on {ends.date()}, and files are under it still")
    return told


def _found(kind: str, texts: Iterable[str]) -> list[dict[str, str]]:
    return [{"kind": kind, "what": text} for text in texts]


def _weak(at_kms: VersionAtKms | None, uses: list[Use]) -> list[str]:
    bits = None if at_kms is None else at_kms.bits
    longest = max((use.bits for use in uses if use.bits is not None), default=0)
    return [f"it has {bits} bits, and wraps keys of {longest}"] if bits is not None and bits < longest else []


def _after(start: datetime | None, period: timedelta | None) -> datetime | None:
    return None if start is None or period is None else start + period


def _told(uses: list[Use]) -> list[dict[str, Any]]:
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
