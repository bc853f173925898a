"""The evidence of a *yes*, held against what is to be destroyed now.

It guards against mistakes, not against whoever writes the file: nothing signs it.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from ...core.errors import UsageError
from ...keytools.keyring.keyring import Keyring
from ...keytools.tools import KeyTools
from ...storage.places import open_source
from .answer import FORMAT
from .question import ALL_VERSIONS, ask

_LONGEST: Final = 1 << 30
_SKEW: Final = timedelta(minutes=5)


def check_evidence(
    path: str | os.PathLike[str],
    keyring: Keyring,
    name: str,
    version: int | None,
    *,
    max_age: timedelta,
    now: datetime | None = None,
) -> dict[str, Any]:
    """The evidence, if it speaks for destroying just this.

    Args:
        path: `Destruction.to_dict` as JSON: ``bloomseal audit … --may-destroy KEY:VERSION --format json``.
        keyring, name, version: what is to be destroyed; version None for all versions.
        max_age: how old the answer may be.

    Raises:
        UsageError: it is no such file; the answer is not *yes*, is about another keyring, key or version, or is too
            old; or the version wraps new keys by now, or did so since; or the keyring has no such key.
    """
    told = _read(path)

    def refuse(what: str) -> UsageError:
        return UsageError(
            f"the evidence is not for this: {what}",
            file=os.fspath(path),
            hint=f"bloomseal audit TABLE... --may-destroy '{name}:{version or ALL_VERSIONS}' --format json > FILE, or "
            "--without-evidence",
        )

    if told.get("answer") != "yes" or not told.get("files"):
        raise refuse(f"the answer is {told.get('answer')!r}, over {told.get('files')!r} files")
    if told.get("master_key") != name:
        raise refuse(f"it is about the master key {told.get('master_key')!r}")
    if told.get("version") not in (ALL_VERSIONS, str(version)):
        raise refuse(f"it is about version {told.get('version')!r}")
    began = _moment(told, refuse)
    asked = ask(name, None if version is None else str(version), KeyTools(keyring), began, after=0)
    if told.get("keyring") != asked.keyring:
        raise refuse(f"it is about the keyring {told.get('keyring')!r}")
    for reason in asked.reasons:
        raise refuse(reason.what)
    fingerprints = told.get("fingerprints")
    for number, fingerprint in (asked.fingerprints or {}).items():
        if not isinstance(fingerprints, dict) or fingerprints.get(number) != fingerprint:
            raise refuse(f"it was given for another key than version {number} is now")
    # Enabled after the files were looked at, used, and disabled again: nobody has looked at what it sealed. Of a key's
    # newest version the keyring knows only that it was disabled before its own last change.
    if asked.retired is not None and asked.retired.replace(microsecond=0) > began:
        raise refuse(f"it may have wrapped new keys until {asked.retired:%Y-%m-%d %H:%M:%S} UTC")
    age = (now or datetime.now(UTC)) - began
    if not -_SKEW <= age <= max_age:
        hours = age.total_seconds() / 3600
        raise refuse(f"it is {hours:.1f} hours old; {max_age.total_seconds() / 3600:g} are allowed")
    return told


def _read(path: str | os.PathLike[str]) -> dict[str, Any]:
    with open_source(path) as source:
        data = bytes(source.read(0, min(source.size, _LONGEST)))
    try:
        told = json.loads(data)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict) or told.get("format") != FORMAT or told.get("format_version") != 1:
        raise UsageError(
            "no evidence of bloomseal audit --may-destroy",
            file=os.fspath(path),
            hint="bloomseal audit TABLE... --may-destroy KEY:VERSION --format json > FILE",
        )
    return told


def _moment(told: dict[str, Any], refuse: Any) -> datetime:
    # By its beginning: that is when the first file was looked at.
    try:
        moment = datetime.fromisoformat(told["began"])
    except (KeyError, TypeError, ValueError):
        moment = None
    if moment is None or moment.tzinfo is None:
        raise refuse("it has no date")
    return moment
