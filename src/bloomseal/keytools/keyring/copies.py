"""Some of a keyring's master keys in a new file, for somebody who is to have these and no others: a keyring under a
passphrase of its own, or a sealed copy, which the keyring imports that has the recipient's key.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from ...core.errors import KeyAccessError, UsageError
from ...core.keys.access import KmsAccessError, Problem, shown
from ...core.keys.material import parse_object
from ...core.keys.wrapping import unb64
from ...core.storage.local import read_open, read_small
from ...storage.folder import Folder
from ...storage.replacement import Replacement
from ..kms_protocols import KeyState
from ..recipients.hpke import open_sealed, seal_to
from ..recipients.recipient import Recipient
from . import keyfile
from .keyfile import MasterKey, PassphraseKeys
from .wrapped import KMS

_FORMAT: Final = "bloomseal keyring copy"
_PURPOSE: Final = b"bloomseal keyring copy, version 1\x00"


def write_copy(
    keys: Sequence[MasterKey],
    path: str | os.PathLike[str],
    passphrase: str | None,
    *,
    own: str | None,
    recipient: str | None = None,
) -> tuple[MasterKey, ...]:
    """Write a new keyring that holds these keys.

    Args:
        path: where nothing is yet.
        passphrase: of the copy; None leaves its keys in clear, guarded by the file's mode only.
        own: the passphrase of the keyring that they are from.
        recipient: the line of somebody whom the keys are sealed to, in the place of a passphrase.

    Returns:
        The keys as they are in the copy: enabled versions, and a tombstone for every other one.

    Raises:
        UsageError: no keys; something is at `path`; or the passphrase is empty, or the keyring's own.
        KmsAccessError: a key without an enabled version.
        KeyAccessError: the file can't be written; or no recipient's line.
    """
    to = None if recipient is None else Recipient.parse(recipient)
    if passphrase is not None and passphrase in ("", own):
        raise UsageError("the copy needs a passphrase of its own", hint="another one than the keyring's")
    if not keys:
        raise UsageError("no key to export was named")
    copies = tuple(map(_enabled, keys))
    place = os.fspath(path)
    if os.path.lexists(place):
        raise UsageError("something is there, and was left as it is", file=place, hint="another name")
    text = keyfile.dump(copies, None if passphrase is None else PassphraseKeys(passphrase))
    if to is not None:
        sealed = base64.b64encode(seal_to(to.kind, to.public, text, _PURPOSE)).decode("ascii")
        text = json.dumps({"format": _FORMAT, "recipient": to.id, "sealed": sealed}, indent=1).encode() + b"\n"
    try:
        with Replacement(*Folder.of(place), private=True) as new:
            with open(new.fd, "wb", closefd=False) as file:
                file.write(text)
            new.commit(None if to else lambda fd: keyfile.load(read_open(fd, len(text)), passphrase), replaces=())
    except OSError as error:
        raise KeyAccessError(f"the keyring {place} can't be written: {error.strerror}") from None
    return copies


def open_copy(path: str | os.PathLike[str], pairs: Iterable[MasterKey]) -> dict[str, MasterKey]:
    """The master keys of a sealed copy.

    Args:
        pairs: of the keyring that imports it.

    Raises:
        KeyAccessError: it can't be read, is no such copy, altered, or for somebody else.
    """
    try:
        text = read_small(path, 2 * keyfile.MAX_KEYRING_BYTES)
    except OSError as error:
        raise KeyAccessError(f"the copy can't be read: {error.strerror}", file=os.fspath(path)) from None
    document = parse_object(text, "sealed copy of master keys", 2 * keyfile.MAX_KEYRING_BYTES)
    if document.get("format") != _FORMAT:
        raise KeyAccessError("not a sealed copy of master keys", hint="bloomseal keyring export --recipient")
    for version in (version for key in pairs for version in key.versions):
        mine = version.recipient if version.state is KeyState.ENABLED else None
        if mine is not None and version.key is not None and mine.id == document.get("recipient"):
            opened = open_sealed(mine.kind, version.key, unb64(document.get("sealed")), _PURPOSE)
            return keyfile.load(opened, None)[0]
    raise KeyAccessError(
        f"the copy is for the recipient {shown(str(document.get('recipient')))}, whose key is not here"
    )


def _enabled(key: MasterKey) -> MasterKey:
    """The key, with a tombstone in the place of each version that is not enabled: the others keep their numbers.

    Raises:
        KmsAccessError: no version is enabled.
    """
    if all(version.state is not KeyState.ENABLED for version in key.versions):
        raise KmsAccessError.because(Problem.DISABLED, key.name, KMS)

    kept = (version if version.state is KeyState.ENABLED else version.tombstone() for version in key.versions)
    return replace(key, versions=tuple(kept))
