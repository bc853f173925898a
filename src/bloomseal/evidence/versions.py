"""The versions of a master key, as its KMS tells them: numbers, moments, states. Whatever it does not tell is None."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
        versions: what is known of each version that the KMS tells or files name, in order of their numbers; of the key
            itself under None, where its KMS counts no versions.
        problem: why it was not asked, or did not answer.
    """

    current: str | None
    versions: Mapping[str | None, VersionFacts]
    problem: str | None = None


def ask(kms: KmsCalls | None, master_key: str, named: Iterable[str]) -> KeyAtKms:
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
