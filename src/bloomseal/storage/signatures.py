"""Signatures beside data files: ``_SIGNATURE_<name>_<digest>.json``, under the first 32 digits of the digest of what
was signed. So a file that is written anew has another one, and until it takes its name the old one's stays.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
import time
from collections.abc import Collection
from typing import Final

from ..core.errors import BloomsealError, MissingFileError, UsageError
from ..core.limits import MAX_SIGNATURE_FILE_BYTES
from ..core.parquet.layout import read_tail
from ..core.storage.local import open_regular, read_open
from ..core.storage.ref import FileRef
from ..core.storage.source import refusal
from .discovery.kinds import SIGNATURE_PREFIX
from .folder import Folder
from .places import open_source
from .replacement import replace, temporaries, temporary_name

_NAME: Final = re.compile(rf"{SIGNATURE_PREFIX}(.+)_([0-9a-f]{{32}})\.json", re.DOTALL)
_COMES_WITHIN: Final = 3600.0
"""Seconds from a signature to its file, which an engine moves to its place next."""
_LONGEST_NAME: Final = 255
"""Bytes, in local file systems."""


class SignatureBeside:
    """The signature of one data file, as long as the file's tail has this digest.

    Args:
        ref: the data file.
        digest: SHA-256 of its tail, in hexadecimal.
    """

    def __init__(self, ref: FileRef, digest: str) -> None:
        folder, name = posixpath.split(ref.path)
        self.name = f"{SIGNATURE_PREFIX}{name}_{digest[:32]}.json"
        self.path = posixpath.join(folder, self.name)
        self._ref = ref

    @property
    def fits(self) -> bool:
        """Whether the name is short enough, and that of the temporary file before it."""
        return self._ref.filesystem is not None or len(os.fsencode(temporary_name(self.name))) <= _LONGEST_NAME

    def read(self) -> bytes | None:
        """What is there; None where nothing is. No link is followed.

        Raises:
            UsageError: it can't be read: not seen is not absent.
        """
        try:
            if self._ref.filesystem is None:
                fd = open_regular(self.path, os.O_RDONLY | os.O_NOFOLLOW)
                try:
                    return read_open(fd, MAX_SIGNATURE_FILE_BYTES)
                finally:
                    os.close(fd)
            with self._ref.filesystem.open_input_file(self.path) as remote:
                data: bytes = remote.read(min(remote.size(), MAX_SIGNATURE_FILE_BYTES + 1))
                return data
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise refusal("can't read the signature", self.path, error) from error

    def write(self, data: bytes, folder: Folder | None = None) -> None:
        """Put it there, durably.

        Args:
            folder: that of the file, if it is open.

        Raises:
            OSError: the storage failed.
        """
        if self._ref.filesystem is not None:
            from .objects import put_in_place  # loads pyarrow, which local files need not

            put_in_place(self._ref.filesystem, self.path, data)
            return
        with Folder.at(posixpath.dirname(self.path)) if folder is None else folder.below("") as here:
            replace(here, self.name, data, beside=self._ref.path)

    def remove(self, folder: Folder | None = None) -> None:
        """Remove it. What can't be removed stays, an orphan that `remove_orphans` finds."""
        with contextlib.suppress(OSError, ValueError):
            if self._ref.filesystem is not None:
                self._ref.filesystem.delete_file(self.path)
                return
            with Folder.at(posixpath.dirname(self.path)) if folder is None else folder.below("") as here:
                here.remove(self.name)


def signed_name(name: str) -> tuple[str, str] | None:
    """The data file that a signature lies beside, and the digest's beginning; None for another name."""
    found = _NAME.fullmatch(name)
    return None if found is None else (found[1], found[2])


def signature_of(ref: FileRef) -> SignatureBeside | None:
    """Where the signature of a file as it is now lies, if it has one; None where there is no file to be signed."""
    try:
        with open_source(ref) as source:
            return SignatureBeside(ref, read_tail(source).digest)
    except BloomsealError:
        return None


def remove_orphans(folder: Folder, killed: Collection[str] = ()) -> None:
    """Remove signatures in a local folder whose file is gone, or another one now, and that no writer is about to use.

    Args:
        killed: files whose writers died before they were there.

    Raises:
        OSError: the folder can't be listed.
    """
    found = [name for name in sorted(os.listdir(folder.fd)) if signed_name(name)]  # noqa: PTH208
    # A writer makes its temporary file first, and removes it last.
    busy = set(temporaries(folder).values()) if found else set()
    for name in found:
        target = (signed_name(name) or ("", ""))[0]
        ref = FileRef(os.path.join(folder.path, target))  # noqa: PTH118
        comes = target not in killed
        if target not in busy and _is_orphan(folder, name, ref, comes):
            with contextlib.suppress(OSError, UsageError), folder.locked(target):
                if _is_orphan(folder, name, ref, comes):
                    folder.remove(name)


def _is_orphan(folder: Folder, name: str, ref: FileRef, comes: bool) -> bool:
    """Whether the file was seen to be gone, or another one. One that can't be read may be the one that was signed.

    Args:
        comes: a file that is not there may be about to come: Spark's commit has no temporary file beside it.
    """
    try:
        with open_source(ref) as source:
            return SignatureBeside(ref, read_tail(source).digest).name != name
    except MissingFileError:
        status = folder.stat(name)
        return not comes or (status is not None and status.st_mtime < time.time() - _COMES_WITHIN)
    except BloomsealError:
        return False
