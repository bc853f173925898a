"""Who may use a file, and its owner's notes on it: what a file that takes another one's place has to take over.

A file that is replaced hands on owner, group, mode, POSIX access list and attributes: all of it, or the replacement is
refused. Elsewhere, a file made from another one is open to nobody who may not read that one; what can't be carried over
is left out.
"""

from __future__ import annotations

import contextlib
import errno
import os
from dataclasses import dataclass, field
from typing import Final, Self

from ..core.errors import BloomsealError

_ACL: Final = "system.posix_acl_access"
_LABEL: Final = "security.selinux"
_ABSENT: Final = (errno.ENODATA, errno.EOPNOTSUPP)


@dataclass(frozen=True, slots=True)
class Rights:
    """Who may use a file.

    Attributes:
        mode: permission bits; with an access list, its group bits are the list's mask.
        group: whom the group bits are about.
        acl: the POSIX access list as Linux stores it; None where there is none.
        owner: to whom the file belongs; None where it may be anybody.
        attributes: extended ones: the users' own, and a security label.
        whole: they are those of the very file that is replaced, or of the one that the new one belongs to.
    """

    mode: int
    group: int
    acl: bytes | None
    owner: int | None = None
    attributes: dict[str, bytes] = field(default_factory=dict)
    whole: bool = False

    @classmethod
    def of(cls, fd: int, *, whole: bool = False, attributes: bool = False) -> Self:
        """Those of an open file."""
        status = os.fstat(fd)
        noted = _attributes(fd) if attributes else {}
        return cls(
            status.st_mode & 0o777, status.st_gid, _access_list(fd), status.st_uid if whole else None, noted, whole
        )

    def within(self, other: Self) -> Rights:
        """Those that both grant; of two that differ in group or list, the owner's and everybody's only."""
        if (self.group, self.acl) == (other.group, other.acl):
            return Rights(self.mode & other.mode, self.group, self.acl)
        return Rights(_without_group(self.mode & other.mode, self.acl or other.acl), self.group, None)

    def give(self, fd: int) -> None:
        """Make them a file's. It is never open to more: a group that we may not give files to loses its access.

        Raises:
            BloomsealError: access list or attributes can't be carried over to a file in the place of their own.
            OSError: the mode can't be set.
        """
        mode, acl = self.mode, self.acl
        status = os.fstat(fd)
        if self.owner is not None and status.st_uid != self.owner:
            # Only root may do this; else the file belongs to whoever rewrites it, who could read it before.
            with contextlib.suppress(OSError):
                os.fchown(fd, self.owner, -1)
        if status.st_gid != self.group:
            try:
                os.fchown(fd, -1, self.group)
            except OSError:
                if self.whole and acl is not None:
                    raise _not_carried("access list", "its group is not one of ours") from None
                mode, acl = _without_group(mode, acl), None
        if hasattr(os, "setxattr"):
            self._note(fd)
            mode = self._list(fd, acl, mode)
        os.fchmod(fd, mode)

    def _note(self, fd: int) -> None:
        there = _attributes(fd) if self.attributes else {}
        for name, value in self.attributes.items():
            if there.get(name) != value:
                try:
                    os.setxattr(fd, name, value)
                except OSError as error:
                    raise _not_carried(f"attribute {name}", error.strerror) from None

    def _list(self, fd: int, acl: bytes | None, mode: int) -> int:
        """Set the access list, or take away the folder's default list, which the old file need not have had. The mode
        that is left.
        """
        try:
            if acl is not None:
                os.setxattr(fd, _ACL, acl)
            else:
                os.removexattr(fd, _ACL)
        except OSError as error:
            if acl is not None and self.whole:
                raise _not_carried("access list", error.strerror) from None
            if acl is not None or error.errno not in _ABSENT:
                return mode & 0o700
        return mode


def _not_carried(what: str, why: str | None) -> BloomsealError:
    return BloomsealError(
        f"the file's {what} can't be carried over to the one in its place: {why}; it was left as it is",
        hint="as the file's owner or as root, or write to another folder",
    )


def _access_list(fd: int) -> bytes | None:
    if hasattr(os, "getxattr"):
        with contextlib.suppress(OSError):
            return os.getxattr(fd, _ACL)
    return None


def _attributes(fd: int) -> dict[str, bytes]:
    """Extended attributes that say something of the file. Signatures and capabilities are about contents, which
    change.
    """
    found: dict[str, bytes] = {}
    if hasattr(os, "listxattr"):
        with contextlib.suppress(OSError):
            for name in os.listxattr(fd):
                if name.startswith("user.") or name == _LABEL:
                    found[name] = os.getxattr(fd, name)
    return found


def _without_group(mode: int, acl: bytes | None) -> int:
    """The mode for another group: its members have what everybody has. A list may refuse some of everybody."""
    return mode & 0o700 if acl is not None else mode & 0o707 | mode & (mode << 3) & 0o070
