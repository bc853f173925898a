"""Whether others have a say in what lies at a place: what is there gets believed, or run."""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import stat
from collections import deque
from pathlib import Path
from typing import Final

_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
_MOST_LINKS: Final = 40


def home() -> Path:
    """This user's home: ``$HOME``; where that is another user's, as for root in many containers of CI, the one that the
    system has for this user.

    Raises:
        OSError: there is none.
    """
    given = os.environ.get("HOME")
    with contextlib.suppress(OSError, KeyError):
        if not given or os.stat(given).st_uid not in (0, os.geteuid()):  # noqa: PTH116
            given = pwd.getpwuid(os.geteuid()).pw_dir
    if not given:
        raise FileNotFoundError(errno.ENOENT, "this user has no home")
    return Path(given)


def exposure(path: str | os.PathLike[str], *, make: bool = False, shared: bool = False) -> str | None:
    """Why others than this user and root can change what is in a folder; None where they can't. Each folder and link
    on the way is looked at, from the root down: whoever may write to one can put another folder in the place of the
    last. Where nobody may, a path leads to the same place again.

    Args:
        make: make what is missing, with mode 0700. No mode is changed.
        shared: a folder like ``/tmp`` will do, where everybody has files of his own (its sticky bit).

    Raises:
        OSError: there is no such folder, or it can't be made.
    """
    place, links = "/", 0
    rest = deque(part for part in os.path.abspath(path).split("/") if part)  # noqa: PTH100
    why = exposure_of(os.lstat(place), place, sticky=True)
    while rest and why is None:
        part = rest.popleft()
        inside = os.path.normpath(os.path.join(place, part))  # noqa: PTH118
        try:
            status = os.lstat(inside)
        except FileNotFoundError:
            if not make:
                raise
            with contextlib.suppress(FileExistsError):
                os.mkdir(inside, 0o700)  # noqa: PTH102
            status = os.lstat(inside)
        why = exposure_of(status, inside, sticky=shared or bool(rest))
        if not stat.S_ISLNK(status.st_mode):
            place = inside
            continue
        if (links := links + 1) > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), inside)
        target = os.readlink(inside)  # noqa: PTH115
        rest.extendleft(reversed([one for one in target.split("/") if one not in ("", ".")]))
        if target.startswith("/"):
            place = "/"
    return why


def exposure_of(status: os.stat_result, path: str, *, sticky: bool = False) -> str | None:
    """Why others than this user and root can change the file, folder or link itself; None where they can't.

    Args:
        path: what it is called.
        sticky: a folder in which nobody touches another one's entries will do.
    """
    if status.st_uid not in (0, os.geteuid()):
        return f"{path} belongs to others"
    if stat.S_ISLNK(status.st_mode) or not status.st_mode & _OTHERS or (sticky and status.st_mode & stat.S_ISVTX):
        return None
    if not status.st_mode & stat.S_IWOTH and _is_private(status.st_gid):
        return None
    return f"others can write to {path}"


def _is_private(gid: int) -> bool:
    """Whether a group is this user's alone: many systems give each user one, and let it write to his files. So is
    root's, which images of containers give to whatever user they are run as.
    """
    with contextlib.suppress(KeyError):
        group = grp.getgrgid(gid)
        if gid == 0:
            return set(group.gr_mem) <= {pwd.getpwuid(0).pw_name}
        user = pwd.getpwuid(os.geteuid())
        return gid == user.pw_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}
    return False
