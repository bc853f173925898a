"""Replace a small local file so that, killed at any instant, it is the old one or the new one."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import secrets
from pathlib import Path
from typing import Final

__all__ = ["replace_durably"]

_SUFFIX: Final = ".bloomseal-tmp"


def replace_durably(target: Path, data: bytes, *, mode: int) -> None:
    """Write aside, sync, rename, sync the folder. Files left aside by writers that died are removed.

    Args:
        target: what to replace or make.
        mode: the new file's permissions, narrowed by the umask.

    Raises:
        OSError: the old file stays as it was.
    """
    _remove_leftovers(target)
    aside = target.with_name(f".{target.name}.{secrets.token_hex(8)}{_SUFFIX}")
    try:
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            # The lock says that the writer lives; it is gone with the process, however that ends.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            aside.replace(target)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _remove_leftovers(target: Path) -> None:
    for left in target.parent.glob(f".{glob.escape(target.name)}.*{_SUFFIX}"):
        with contextlib.suppress(OSError), open(left, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left.unlink()
