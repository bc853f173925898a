"""The bundle: a zip archive in one canonical form. The same members give the same bytes, and any other bytes are
refused.

Members are stored, never compressed (so that no archive is larger than it looks), in the order of their names, at one
fixed moment. A reader writes the archive again from the members that it has read, and compares: a second member of one
name, a comment, bytes in front, behind or between members, another order, all of that is a difference.
"""

from __future__ import annotations

import io
import os
import re
import struct
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Final

from ...errors import BloomsealError, FormatError, Hint, UsageError
from ...limits import MAX_BUNDLE_BYTES, MAX_BUNDLE_MEMBERS
from ...storage.atomic import replace_durably, storage_errors
from ...storage.source import open_regular, refusal

__all__ = ["MANIFEST", "SIGNATURES", "Member", "Spool", "check_free", "pack", "pieces_of", "unpack", "write"]

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


Member = bytes | Spool


def pieces_of(member: Member) -> Iterable[bytes]:
    """A member's bytes, never too many at a time."""
    return (member,) if isinstance(member, bytes) else member


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


def unpack(path: str | os.PathLike[str]) -> dict[str, bytes]:
    """The members of an archive, which is read as hostile: nothing is extracted to a disk.

    Raises:
        MissingFileError, UsageError: the file can't be read.
        FormatError: not a bundle in its canonical form.
    """
    name = os.fspath(path)
    try:
        with open(open_regular(path), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > MAX_BUNDLE_BYTES:
                raise FormatError(f"a bundle of {size} bytes; {MAX_BUNDLE_BYTES} is the limit", file=name)
            data = file.read(MAX_BUNDLE_BYTES + 1)
    except OSError as error:
        raise refusal("can't read the bundle", name, error) from error
    try:
        members = _members(data)
        if pack(members) != data:
            raise FormatError("the archive has bytes that belong to no member, or members in another form")
    except BloomsealError as error:
        raise FormatError(error.what, file=name) from None
    return members


def write(path: str | os.PathLike[str], members: Mapping[str, Member], *, overwrite: bool = False) -> None:
    """Write the archive durably, at once; readable by its owner alone.

    Raises:
        UsageError: there is a file already, and `overwrite` was not said. BloomsealError: the storage failed.
    """
    target = Path(path)
    if not overwrite:
        check_free(target)
    with storage_errors("write the bundle", str(target)), tempfile.TemporaryFile() as packed:
        _pack(packed, members)
        packed.seek(0)
        replace_durably(target, iter(lambda: packed.read(_PIECE), b""), mode=0o600)


def check_free(path: str | os.PathLike[str]) -> None:
    """A report must never take a data file's place.

    Raises:
        UsageError: something is there already.
    """
    target = Path(path)
    if target.exists() or target.is_symlink():
        raise UsageError("there is a file already", file=str(target), hint=Hint.OVERWRITE)


def _members(data: bytes) -> dict[str, bytes]:
    # The end record says how long the directory is; zipfile would make an object of each entry before anybody could
    # look.
    if len(data) < _END.size:
        raise FormatError("not a bundle")
    mark, disk, start_disk, here, entries, length, _, comment = _END.unpack_from(data, len(data) - _END.size)
    if mark != b"PK\x05\x06" or disk or start_disk or comment or here != entries:
        raise FormatError("not a bundle, or something stands behind it")
    if entries > MAX_BUNDLE_MEMBERS or length > MAX_BUNDLE_MEMBERS * (46 + _LONGEST_NAME):
        raise FormatError(f"a bundle of {entries} members; {MAX_BUNDLE_MEMBERS} is the limit")
    members: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for info in archive.infolist():
                if not _lawful(info.filename) or info.orig_filename != info.filename:
                    raise FormatError("a member with a name that no bundle has")
                if info.filename in members:
                    raise FormatError(f"two members of the name {info.filename}")
                if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
                    raise FormatError(f"the member {info.filename} is compressed, and no bundle's is")
                try:
                    members[info.filename] = archive.read(info)
                except zipfile.BadZipFile:
                    raise FormatError(f"{info.filename}: altered (its checksum, or its header)") from None
    except BloomsealError:
        raise
    except Exception as error:  # zipfile raises what it likes on hostile archives
        raise FormatError(f"no bundle, or an altered one ({type(error).__name__})") from None
    return members


def _lawful(name: str) -> bool:
    return len(name) <= _LONGEST_NAME and _NAME.fullmatch(name) is not None
