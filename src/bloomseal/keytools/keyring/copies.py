"""Some of a keyring's master keys in a new keyring file, for somebody who is to have these and no others."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from ...core.errors import KeyAccessError, UsageError
from ...core.keys.access import KmsAccessError, Problem
from ...core.storage.local import read_open
from ...storage.folder import Folder
from ...storage.replacement import Replacement
from ..kms_protocols import KeyState
from . import keyfile
from .keyfile import KeyVersion, MasterKey, PassphraseKeys
from .wrapped import KMS

__all__ = ["write_copy"]


def write_copy(
    keys: Sequence[MasterKey], path: str | os.PathLike[str], passphrase: str | None, *, own: str | None
) -> tuple[MasterKey, ...]:
    """Write a new keyring that holds these keys.

    Args:
        path: where nothing is yet.
        passphrase: of the copy; None leaves its keys in clear, guarded by the file's mode only.
        own: the passphrase of the keyring that they are from.

    Returns:
        The keys as they are in the copy: enabled versions, and a tombstone for every other one.

    Raises:
        UsageError: no keys; something is at `path`; or the passphrase is empty, or the keyring's own.
        KmsAccessError: a key without an enabled version.
        KeyAccessError: the file can't be written.
    """
    if passphrase is not None and passphrase in ("", own):
        raise UsageError("the copy needs a passphrase of its own", hint="another one than the keyring's")
    if not keys:
        raise UsageError("no key to export was named")
    copies = tuple(map(_enabled, keys))
    place = os.fspath(path)
    if os.path.lexists(place):
        raise UsageError("something is there, and was left as it is", file=place, hint="another name")
    text = keyfile.dump(copies, None if passphrase is None else PassphraseKeys(passphrase))
    try:
        with Replacement(*Folder.of(place), private=True) as new:
            with open(new.fd, "wb", closefd=False) as file:
                file.write(text)
            new.commit(lambda fd: keyfile.load(read_open(fd, len(text)), passphrase), replaces=())
    except OSError as error:
        raise KeyAccessError(f"the keyring {place} can't be written: {error.strerror}") from None
    return copies


def _enabled(key: MasterKey) -> MasterKey:
    """The key, with a tombstone in the place of each version that is not enabled: the others keep their numbers.

    Raises:
        KmsAccessError: no version is enabled.
    """
    if all(version.state is not KeyState.ENABLED for version in key.versions):
        raise KmsAccessError.because(Problem.DISABLED, key.name, KMS)

    def copied(version: KeyVersion) -> KeyVersion:
        alive = version.state is KeyState.ENABLED
        return version if alive else replace(version, state=KeyState.DESTROYED, key=None)

    return replace(key, versions=tuple(map(copied, key.versions)))
