"""The bundle: a zip archive in one canonical form. The same members give the same bytes, and any other bytes are
refused.

Members are stored, never compressed (so that no archive is larger than it looks), in the order of their names, at one
fixed moment. A reader writes the archive again from the members that it reads, piece by piece, and compares: a second
member of one name, a comment, bytes in front, behind or between members, another order, all of that is a difference.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import shutil
import struct
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Final

from ...core.errors import BloomsealError, FormatError, Hint, UsageError
from ...core.limits import MAX_BUNDLE_BYTES, MAX_BUNDLE_MEMBERS
from ...core.storage.local import open_regular
from ...core.storage.source import refusal
from ...storage.atomic import storage_errors
from ...storage.folder import Folder
from ...storage.replacement import Replacement

__all__ = [
    "MANIFEST",
    "SIGNATURES",
    "Member",
    "Spool",
    "Stretch",
    "check_free",
    "digest_of",
    "opened",
    "pack",
    "pieces_of",
    "unpack",
    "write",
]

MANIFEST: Final = "manifest.json"
SIGNATURES: Final = "signatures/"
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]*(\.[a-z0-9_-]+)*(/[a-z0-9][a-z0-9_-]*(\.[a-z0-9_-]+)*)*")
_LONGEST_NAME: Final = 120
_MOMENT: Final = (1980, 1, 1, 0, 0, 0)
_MODE: Final = 0o100644 << 16
_UNIX: Final = 3
_PIECE: Final = 1 << 20
_END: Final = struct.Struct("<4s4H2LH")
"""The end of central directory record (PKWARE APPNOTE, section 4.3.16), without a comment."""
_LOCATOR: Final = struct.Struct("<4sLQL")
"""The locator of a 64-bit end record (section 4.3.15), which stands before the other."""
_LOCATOR_MARK: Final = b"PK\x06\x07"
_HEADER_BYTES: Final = 30
"""A local file header without the name (section 4.3.7)."""
_SHORT: Final = 512


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


def pack(members: Mapping[str, Member]) -> bytes:
    """The archive with these members.

    Raises:
        UsageError: a name that no bundle has, or more than a bundle holds.
    """
    out = io.BytesIO()
    _pack(out, members)
    return out.getvalue()


def _pack(out: IO[bytes], members: Mapping[str, Member]) -> None:
    if len(members) > MAX_BUNDLE_MEMBERS or sum(map(len, members.values())) > MAX_BUNDLE_BYTES - (1 << 20):
        raise UsageError("this is more than one bundle holds", hint="a bundle for each table")
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(members, key=lambda name: (name != MANIFEST, name)):
            if not _lawful(name):
                raise UsageError(f"no bundle has a member of the name {name!r}")
            info = zipfile.ZipInfo(name, _MOMENT)
            info.create_system, info.external_attr = _UNIX, _MODE
            info.file_size = len(members[name])
            with archive.open(info, "w") as into:
                into.writelines(pieces_of(members[name]))


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
            _compare(file, size, members)
        except OSError as error:
            raise refusal("can't read the bundle", name, error) from error
        except UsageError as error:
            raise FormatError(error.what, file=name) from None
        except BloomsealError as error:
            raise error.at(file=name) from None
        yield members


def unpack(path: str | os.PathLike[str]) -> dict[str, bytes]:
    """The same members, held in memory; raises as `opened`."""
    with opened(path) as members:
        return {name: member.held(MAX_BUNDLE_BYTES) for name, member in members.items()}


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
        _pack(packed, members)
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
    # The end record says how long the directory is; zipfile would make an object of each entry before anybody could
    # look. Records of the 64-bit form, which it believes rather than these, are in no bundle.
    tail = os.pread(file.fileno(), _END.size + _LOCATOR.size, max(size - _END.size - _LOCATOR.size, 0))
    if len(tail) < _END.size:
        raise FormatError("not a bundle")
    mark, disk, start_disk, here, entries, length, _, comment = _END.unpack_from(tail, len(tail) - _END.size)
    if mark != b"PK\x05\x06" or disk or start_disk or comment or here != entries:
        raise FormatError("not a bundle, or something stands behind it")
    if tail.startswith(_LOCATOR_MARK):
        raise FormatError("an archive of the 64-bit form, and no bundle is one")
    if entries > MAX_BUNDLE_MEMBERS or length > MAX_BUNDLE_MEMBERS * (46 + _LONGEST_NAME):
        raise FormatError(f"a bundle of {entries} members; {MAX_BUNDLE_MEMBERS} is the limit")
    members: dict[str, Stretch] = {}
    try:
        with zipfile.ZipFile(file) as archive:
            for info in archive.infolist():
                if not _lawful(info.filename) or info.orig_filename != info.filename:
                    raise FormatError("a member with a name that no bundle has")
                if info.filename in members:
                    raise FormatError(f"two members of the name {info.filename}")
                if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
                    raise FormatError(f"the member {info.filename} is compressed, and no bundle's is")
                start = info.header_offset + _HEADER_BYTES + len(info.filename)
                if start + info.file_size > size:
                    raise FormatError(f"{info.filename}: it reaches outside the archive")
                members[info.filename] = Stretch(file.fileno(), start, info.file_size)
    except BloomsealError:
        raise
    except Exception as error:  # zipfile raises what it likes on hostile archives
        raise FormatError(f"no bundle, or an altered one ({type(error).__name__})") from None
    return members


def _compare(file: IO[bytes], size: int, members: Mapping[str, Stretch]) -> None:
    """Is the archive, byte for byte, the one that these members make? Each member's digest is taken on the way.

    Raises:
        FormatError: it is not.
    """
    same = _Same(file.fileno())
    _pack(same, members)  # type: ignore[arg-type]  # as much of a file as zipfile needs
    differs = same.finish(size)
    if differs is None:
        return
    for name, member in members.items():
        if member.start - _HEADER_BYTES - len(name) <= differs < member.start + len(member):
            raise FormatError(f"{name}: altered (its checksum, or its header)")
    raise FormatError("the archive has bytes that belong to no member, or members in another form")


class _Same:
    """A file for `_pack` that keeps nothing, but compares with an open one.

    zipfile writes a member's header twice: once with no checksum, and again when it has seen the member. So short
    pieces, among which all headers are, are compared at the end.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._at = self._end = 0
        self._short: dict[int, bytes] = {}
        self._differs: list[int] = []

    def write(self, data: bytes) -> int:
        if len(data) <= _SHORT:
            self._short[self._at] = bytes(data)
        elif os.pread(self._fd, len(data), self._at) != data:
            self._differs.append(self._at)
        self._at += len(data)
        self._end = max(self._end, self._at)
        return len(data)

    def writelines(self, pieces: Iterable[bytes]) -> None:
        for piece in pieces:
            self.write(piece)

    def finish(self, size: int) -> int | None:
        """The first place, about, where it is another; None for the same."""
        for at, data in self._short.items():
            if os.pread(self._fd, len(data), at) != data:
                self._differs.append(at)
        if self._end != size:
            self._differs.append(min(self._end, size))
        return min(self._differs, default=None)

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        assert whence == os.SEEK_SET  # noqa: S101  # zipfile knows its places
        self._at = offset
        return offset

    def seekable(self) -> bool:
        return True

    def flush(self) -> None:
        pass


def _lawful(name: str) -> bool:
    return len(name) <= _LONGEST_NAME and _NAME.fullmatch(name) is not None
