"""The versions of a master key, as its KMS tells them: numbers, moments, states. Whatever it does not tell is None."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ..audit.facts.inventory import tools_behind
from ..core.errors import BloomsealError
from ..keytools import KeyTools, KmsAccessError, MasterKeyFacts
from ..keytools.kms.calls import KmsCalls

__all__ = ["KeyAtKms", "VersionAtKms", "ask", "kms_of"]


@dataclass(frozen=True)
class VersionAtKms:
    """One version. `state` is a `KeyState`'s value; `created` and `bits` None where the KMS does not tell."""

    version: str
    created: datetime | None = None
    state: str | None = None
    bits: int | None = None


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
    versions: tuple[VersionAtKms, ...]
    problem: str | None = None
    unversioned: VersionAtKms | None = None

    def of(self, version: str | None) -> VersionAtKms | None:
        """What is known of a version; for None of the key, where it has no versions."""
        if version is None:
            return self.unversioned
        return next((one for one in self.versions if one.version == version), None)


def kms_of(keys: Any) -> KmsCalls | None:
    """Calls to the KMS behind a caller's keys; None where there is none."""
    source = tools_behind(keys)
    return source.calls if isinstance(source, KeyTools) else None


def ask(kms: KmsCalls | None, master_key: str, named: Iterable[str]) -> KeyAtKms:
    """What the KMS tells of a master key. Never raises.

    Args:
        kms: None where there is none.
        named: versions that files are under.
    """
    seen = {version: VersionAtKms(version) for version in named}
    if kms is None:
        return KeyAtKms(None, _ordered(seen), problem="no KMS was at hand")
    try:
        return _known(kms.describe(master_key), seen)
    except KmsAccessError as error:
        state = str(error.problem) if error.problem.value in ("disabled", "destroyed") else None
        return KeyAtKms(None, _ordered({name: VersionAtKms(name, None, state) for name in seen}), problem=error.what)
    except BloomsealError as error:
        return KeyAtKms(None, _ordered(seen), problem=error.what)


def _known(told: MasterKeyFacts, seen: dict[str, VersionAtKms]) -> KeyAtKms:
    alone = VersionAtKms("", told.rotated or told.created, told.state and told.state.value)
    known = dict(seen)
    if told.current is not None:
        known[told.current] = replace(alone, version=told.current)
    for one in told.versions or ():
        if one.state is not None:
            known[one.version] = VersionAtKms(one.version, one.created, one.state.value, one.bits)
    return KeyAtKms(told.current, _ordered(known), unversioned=alone if not known and told.state is not None else None)


def _ordered(versions: dict[str, VersionAtKms]) -> tuple[VersionAtKms, ...]:
    return tuple(sorted(versions.values(), key=lambda one: (not one.version.isdigit(), len(one.version), one.version)))
