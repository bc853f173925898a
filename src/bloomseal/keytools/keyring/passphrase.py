"""The keyring's passphrase where no caller gives one: from the environment, or a file that the environment names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from ...core.errors import KeyAccessError, PolicyError
from ...core.storage.local import need_own, read_small

PASSPHRASE_VARIABLE: Final = "BLOOMSEAL_KEYRING_PASSPHRASE"  # noqa: S105 - the variable's name
PASSPHRASE_FILE_VARIABLE: Final = "BLOOMSEAL_KEYRING_PASSPHRASE_FILE"  # noqa: S105 - the variable's name
_MOST: Final = 4096


def passphrase_of_environment() -> str | None:
    """``$BLOOMSEAL_KEYRING_PASSPHRASE``; else the first line of the file that ``$BLOOMSEAL_KEYRING_PASSPHRASE_FILE``
    names, which keeps it out of the environment that child processes, dumps and everybody's code in a process see.

    Raises:
        KeyAccessError: no such file, or nothing in it.
        PolicyError: the file's path is relative, or others than its owner can use it.
    """
    if given := os.environ.get(PASSPHRASE_VARIABLE):
        return given
    if not (path := os.environ.get(PASSPHRASE_FILE_VARIABLE)):
        return None
    # Whoever chooses the working directory must not choose the passphrase.
    if not Path(path).is_absolute():
        raise PolicyError(f"{PASSPHRASE_FILE_VARIABLE} is no absolute path", hint="/etc/bloomseal/passphrase")
    try:
        data = read_small(path, _MOST, lambda status: need_own(status, "the passphrase's file", path))
        text = data.partition(b"\n")[0].rstrip(b"\r").decode()
    except (OSError, UnicodeDecodeError) as error:
        # No text of the error: a decoder quotes what it was reading.
        reason = (isinstance(error, OSError) and error.strerror) or "it is no UTF-8"
        raise KeyAccessError(f"the file of {PASSPHRASE_FILE_VARIABLE} can't be read: {reason}", file=path) from None
    if not text:
        raise KeyAccessError(f"the file of {PASSPHRASE_FILE_VARIABLE} is empty", file=path)
    return text
