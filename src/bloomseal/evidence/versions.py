"""The versions of a master key, as its KMS tells them: numbers, moments, states. Whatever it does not tell is None."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ..core.errors import BloomsealError
from ..keytools import KmsAccessError, Problem
from ..keytools.kms.calls import KmsCalls
from ..keytools.kms_protocols import KeyState, MasterKeyFacts, VersionFacts

__all__ = ["KeyAtKms", "ask"]


@dataclass(frozen=True)
class KeyAtKms:
    """One master key.

    Attributes:
        current: the version that wraps now.
        versions: those that the KMS told of, and those that files name; by number.
        problem: why it was not asked, or did not answer.
        unversioned: the key itself, where its KMS counts no versions.
    """

    current: str | None
    versions: tuple[VersionFacts, ...]
    problem: str | None = None
    unversioned: VersionFacts | None = None

    def of(self, version: str | None) -> VersionFacts | None:
        """What is known of a version; for None of the key, where it has no versions."""
        if version is None:
            return self.unversioned
        return next((one for one in self.versions if one.version == version), None)


def ask(kms: KmsCalls | None, master_key: str, named: Iterable[str]) -> KeyAtKms:
    """What the KMS tells of a master key. Never raises.

    Args:
        kms: None where there is none.
        named: versions that files are under.
    """
    if kms is None:
        return KeyAtKms(None, _ordered(named), problem="no KMS was at hand")
    try:
        return _known(kms.describe(master_key), set(named))
    except BloomsealError as error:
        problem = error.problem if isinstance(error, KmsAccessError) else None
        state = KeyState(problem) if problem in (Problem.DISABLED, Problem.DESTROYED) else None
        return KeyAtKms(None, _ordered(named, state), problem=error.what)


def _known(told: MasterKeyFacts, named: set[str]) -> KeyAtKms:
    alone = VersionFacts("", False, created=told.rotated or told.created, state=told.state)
    known = {name: VersionFacts(name, False) for name in named}
    if told.current is not None:
        known[told.current] = replace(alone, version=told.current)
    known |= {one.version: one for one in told.versions or () if one.state is not None}
    unversioned = alone if not known and told.state is not None else None
    return KeyAtKms(told.current, _in_order(known.values()), unversioned=unversioned)


def _ordered(names: Iterable[str], state: KeyState | None = None) -> tuple[VersionFacts, ...]:
    return _in_order(VersionFacts(name, False, state=state) for name in names)


def _in_order(versions: Iterable[VersionFacts]) -> tuple[VersionFacts, ...]:
    return tuple(sorted(versions, key=lambda one: (not one.version.isdigit(), len(one.version), one.version)))
