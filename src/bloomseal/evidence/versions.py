"""The versions of a master key, as its KMS tells them: numbers, moments, states. Whatever it does not tell is None."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..audit.facts.inventory import tools_behind
from ..core.errors import BloomsealError
from ..core.keys.access import raised_by
from ..keytools import Keyring, KeyTools, KmsAccessError
from ..keytools.kms_protocols import DatedKms, StatefulKms, VersionedKms

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
        complete: the KMS has told of all versions that it ever had.
        problem: why it was not asked, or did not answer.
        unversioned: the key itself, where its KMS counts no versions.
    """

    current: str | None
    versions: tuple[VersionAtKms, ...]
    complete: bool = False
    problem: str | None = None
    unversioned: VersionAtKms | None = None

    def of(self, version: str | None) -> VersionAtKms | None:
        """What is known of a version; for None of the key, where it has no versions."""
        if version is None:
            return self.unversioned
        return next((one for one in self.versions if one.version == version), None)


def kms_of(keys: Any) -> tuple[Any, str | None]:
    """The KMS client behind a caller's keys, and its name; None where there is none."""
    source = tools_behind(keys)
    if not isinstance(source, KeyTools):
        return None, None
    return source.kms, getattr(source.kms, "kms_name", type(source.kms).__name__)


def ask(client: Any, master_key: str, named: Iterable[str]) -> KeyAtKms:
    """What the KMS tells of a master key. Never raises.

    Args:
        client: None where there is none.
        named: versions that files are under.
    """
    seen = {version: VersionAtKms(version) for version in named}
    if client is None:
        return KeyAtKms(None, _ordered(seen), problem="no KMS was at hand")
    try:
        if isinstance(client, Keyring):
            return _of_keyring(client, master_key, seen)
        return _of_kms(client, master_key, seen)
    except KmsAccessError as error:
        state = str(error.problem) if error.problem.value in ("disabled", "destroyed") else None
        told = {one.version: VersionAtKms(one.version, None, state) for one in seen.values()}
        return KeyAtKms(None, _ordered(told), problem=error.what)
    except BloomsealError as error:
        return KeyAtKms(None, _ordered(seen), problem=error.what)
    except Exception as error:
        return KeyAtKms(None, _ordered(seen), problem=f"the KMS client failed with {raised_by(error)}")


def _of_keyring(ring: Keyring, master_key: str, seen: dict[str, VersionAtKms]) -> KeyAtKms:
    key = next((key for key in ring.list() if key.name == master_key), None)
    if key is None:
        return KeyAtKms(None, _ordered(seen), problem="the keyring knows no master key of this name")
    known = {
        str(one.version): VersionAtKms(str(one.version), one.created, one.state.value, one.bits) for one in key.versions
    }
    return KeyAtKms(str(key.current.version), _ordered(seen | known), complete=seen.keys() <= known.keys())


def _of_kms(client: Any, master_key: str, seen: dict[str, VersionAtKms]) -> KeyAtKms:
    current = client.current_version(master_key) if isinstance(client, VersionedKms) else None
    state = client.key_state(master_key).value if isinstance(client, StatefulKms) else None
    dates = client.key_dates(master_key) if isinstance(client, DatedKms) else None
    told = dict(seen)
    since = None if dates is None else dates.rotated or dates.created
    if current is not None:
        told[current] = VersionAtKms(current, since, state)
        return KeyAtKms(current, _ordered(told))
    alone = VersionAtKms("", since, state) if not told and state is not None else None
    return KeyAtKms(None, _ordered(told), unversioned=alone)


def _ordered(versions: dict[str, VersionAtKms]) -> tuple[VersionAtKms, ...]:
    return tuple(sorted(versions.values(), key=lambda one: (not one.version.isdigit(), len(one.version), one.version)))
