"""The bundle: a zip archive in one canonical form. The same members give the same bytes, and any other bytes are
refused.

Members are stored, never compressed (so that no archive is larger than it looks), in the order of their names, at one
fixed moment. A reader makes the headers and the directory again from the members that it reads, piece by piece, and
compares: a second member of one name, a comment, bytes in front, behind or between members, another order, all of that
is a difference.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import struct
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from ...core.errors import BloomsealError, FormatError, Hint, UsageError
from ...core.limits import MAX_BUNDLE_BYTES, MAX_BUNDLE_MEMBERS
from ...core.storage.local import open_regular
from ...core.storage.source import refusal
from ...storage.atomic import storage_errors
from ...storage.folder import Folder
from ...storage.replacement import Replacement

MANIFEST: Final = "manifest.json"
SIGNATURES: Final = "signatures/"
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]*(\.[a-z0-9_-]+)*(/[a-z0-9][a-z0-9_-]*(\.[a-z0-9_-]+)*)*")
_LONGEST_NAME: Final = 120
_PIECE: Final = 1 << 20
_LOCAL: Final = struct.Struct("<4s5H3L2H")
_CENTRAL: Final = struct.Struct("<4s6H3L5H2L")
_END: Final = struct.Struct("<4s4H2LH")
"""A member's header, its entry in the directory, and the end (PKWARE APPNOTE, sections 4.3.7, 4.3.12 and 4.3.16)."""
_FIXED: Final = (20, 0, 0, 0, 33)
"""Version 2.0, no flags, stored, on the first of January 1980."""
_UNIX: Final = 3 << 8 | 20
_MODE: Final = 0o100644 << 16


class Spool:
    """A member that may be large: until it goes into the archive, its bytes lie in a file without a name."""

    def __init__(self, pieces: Iterable[bytes] = ()) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  # it goes with its last descriptor
        self._file.writelines(pieces)
        self._length = self._file.tell()
        self._file.flush()

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[bytes]:
        for start in range(0, self._length, _PIECE):
            yield os.pread(self._file.fileno(), _PIECE, start)


class Stretch:
    """A member of an archive that is open.

    Attributes:
        start: where its bytes begin.
        sha256: their digest, taken as they were last read from beginning to end; None before.
    """

    def __init__(self, fd: int, start: int, length: int) -> None:
        self.start = start
        self.sha256: str | None = None
        self._fd = fd
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[bytes]:
        digest, at, end = hashlib.sha256(), self.start, self.start + self._length
        while at < end:
            piece = os.pread(self._fd, min(_PIECE, end - at), at)
            if not piece:
                raise FormatError("the bundle became shorter while it was read")
            digest.update(piece)
            yield piece
            at += len(piece)
        self.sha256 = digest.hexdigest()

    def held(self, most: int) -> bytes:
        """All of it.

        Raises:
            FormatError: longer than `most`, or not what it was when it was compared.
        """
        if self._length > most:
            raise FormatError(f"a member of {self._length} bytes; {most} is the limit for this one")
        compared, data = self.sha256, b"".join(self)
        if compared not in (None, self.sha256):
            raise FormatError("the bundle was changed while it was read")
        return data


Member = bytes | Spool | Stretch


def pieces_of(member: Member) -> Iterable[bytes]:
    """A member's bytes, never too many at a time."""
    return (member,) if isinstance(member, bytes) else member


def digest_of(member: Member) -> str:
    """Its SHA-256, in hexadecimal."""
    if isinstance(member, Stretch) and member.sha256 is not None:
        return member.sha256
    digest = hashlib.sha256()
    for piece in pieces_of(member):
        digest.update(piece)
    return digest.hexdigest()


def pack(out: IO[bytes], members: Mapping[str, Member]) -> None:
    """The archive with these members.

    Raises:
        UsageError: a name that no bundle has, or more than a bundle holds.
    """
    if len(members) > MAX_BUNDLE_MEMBERS or sum(map(len, members.values())) > MAX_BUNDLE_BYTES - (1 << 20):
        raise UsageError("this is more than one bundle holds", hint="a bundle for each table")
    checksums = []
    for name in sorted(members, key=_order):
        if not _lawful(name):
            raise UsageError(f"no bundle has a member of the name {name!r}")
        checksums.append(_checksum(members[name]))
        out.write(_header(name, checksums[-1], len(members[name])))
        out.writelines(pieces_of(members[name]))
    out.write(_directory({name: members[name] for name in sorted(members, key=_order)}, checksums))


def _order(name: str) -> tuple[bool, str]:
    return name != MANIFEST, name


def _checksum(member: Member) -> int:
    checksum = 0
    for piece in pieces_of(member):
        checksum = zlib.crc32(piece, checksum)
    return checksum


def _header(name: str, checksum: int, length: int) -> bytes:
    return _LOCAL.pack(b"PK\3\4", *_FIXED, checksum, length, length, len(name), 0) + name.encode()


def _directory(members: Mapping[str, Member], checksums: Sequence[int]) -> bytes:
    """What stands behind the members."""
    found, at = b"", 0
    for (name, member), checksum in zip(members.items(), checksums, strict=True):
        sizes = checksum, len(member), len(member), len(name)
        found += _CENTRAL.pack(b"PK\1\2", _UNIX, *_FIXED, *sizes, 0, 0, 0, 0, _MODE, at) + name.encode()
        at += _LOCAL.size + len(name) + len(member)
    count = len(members)
    return found + _END.pack(b"PK\5\6", 0, 0, count, count, len(found), at, 0)


@contextlib.contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[dict[str, Stretch]]:
    """The members of an archive, which is read as hostile, piece by piece: nothing is extracted to a disk, and no
    member is held whole.

    Raises:
        MissingFileError, UsageError: the file can't be read.
        FormatError: not a bundle in its canonical form.
    """
    name = os.fspath(path)
    try:
        file = open(open_regular(path), "rb")  # noqa: SIM115  # closed below
    except OSError as error:
        raise refusal("can't read the bundle", name, error) from error
    with file:
        try:
            size = os.fstat(file.fileno()).st_size
            if size > MAX_BUNDLE_BYTES:
                raise FormatError(f"a bundle of {size} bytes; {MAX_BUNDLE_BYTES} is the limit")
            members = _members(file, size)
            _compare(file, members)
        except OSError as error:
            raise refusal("can't read the bundle", name, error) from error
        except UsageError as error:
            raise FormatError(error.what, file=name) from None
        except BloomsealError as error:
            raise error.at(file=name) from None
        yield members


def write(
    path: str | os.PathLike[str],
    members: Mapping[str, Member],
    *,
    overwrite: bool = False,
    replaces: tuple[int, ...] | None = None,
) -> None:
    """Write the archive durably, at once; a new one is readable by its owner alone.

    Args:
        replaces: what must be overwritten (`identity_at`); None: whatever is there.

    Raises:
        UsageError: there is a file already, and `overwrite` was not said. BloomsealError: the storage failed; somebody
            else was faster.
    """
    target = Path(path)
    if not overwrite:
        check_free(target)
    with storage_errors("write the bundle", str(target)), tempfile.TemporaryFile() as packed:
        pack(packed, members)
        packed.seek(0)
        with Replacement(*Folder.of(target), mode=0o600, private=not overwrite) as new:
            with open(new.fd, "wb", closefd=False) as file:
                shutil.copyfileobj(packed, file, _PIECE)
            new.commit(replaces=replaces if overwrite else ())


def check_free(path: str | os.PathLike[str]) -> None:
    """A report must never take a data file's place.

    Raises:
        UsageError: something is there already.
    """
    target = Path(path)
    if target.exists() or target.is_symlink():
        raise UsageError("there is a file already", file=str(target), hint=Hint.OVERWRITE)


def _members(file: IO[bytes], size: int) -> dict[str, Stretch]:
    """The members, by their headers, which `_compare` then holds against their bytes."""
    fd, at, members = file.fileno(), 0, dict[str, Stretch]()
    while len(head := os.pread(fd, _LOCAL.size, at)) == _LOCAL.size and head.startswith(b"PK\3\4"):
        if len(members) == MAX_BUNDLE_MEMBERS:
            raise FormatError(f"more members than the {MAX_BUNDLE_MEMBERS} that a bundle holds")
        *_, length, name_length, _ = _LOCAL.unpack(head)
        name = os.pread(fd, min(name_length, _LONGEST_NAME + 1), at + _LOCAL.size).decode("ascii", "replace")
        if not _lawful(name):
            raise FormatError("a member with a name that no bundle has")
        if name in members:
            raise FormatError(f"two members of the name {name}")
        start = at + _LOCAL.size + name_length
        at = start + length
        if at > size:
            raise FormatError(f"{name}: it reaches outside the archive")
        members[name] = Stretch(fd, start, length)
    if not members:
        raise FormatError("not a bundle")
    return members


def _compare(file: IO[bytes], members: Mapping[str, Stretch]) -> None:
    """Whether the archive is, byte for byte, the one that these members make. Each member's digest is taken on the way.

    Raises:
        FormatError: it is not.
    """
    if list(members) != sorted(members, key=_order):
        raise FormatError("members in another order")
    at, checksums = 0, []
    for name, member in members.items():
        checksums.append(_checksum(member))
        header = _header(name, checksums[-1], len(member))
        if os.pread(file.fileno(), len(header), at) != header or member.start != at + len(header):
            raise FormatError(f"{name}: altered (its checksum, or its header)")
        at += len(header) + len(member)
    directory = _directory(members, checksums)
    if os.pread(file.fileno(), len(directory) + 1, at) != directory:
        raise FormatError("the archive has bytes that belong to no member, or members in another form")


def _lawful(name: str) -> bool:
    return len(name) <= _LONGEST_NAME and _NAME.fullmatch(name) is not None
