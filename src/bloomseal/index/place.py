"""Where the files of an index are: a folder on this machine, or a prefix in an object store."""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from ..core.errors import BloomsealError, UnsupportedError, UsageError
from ..core.storage.ref import FileRef
from ..storage.atomic import storage_errors
from ..storage.folder import Folder
from ..storage.objects import NO_MARKERS, put
from ..storage.versions import ObjectVersion, version_at, versions_below
from .manifest import FileState, state_of

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

__all__ = ["FilePlace", "LocalPlace", "StorePlace", "place_at", "state_of_version"]

_SECOND = 1_000_000_000


class FilePlace(Protocol):
    """The files of one index.

    Attributes:
        path: the folder.
    """

    path: str

    def ref(self, name: str) -> FileRef:
        """A file of the index, as one of the table: an AAD prefix is made of its place."""

    def state(self, name: str) -> FileState | None:
        """Of that file; None where there is none."""

    def names(self) -> dict[str, float]:
        """All files there → when they were last changed, seconds since 1970."""

    def there(self) -> Callable[[str], bool]:
        """Tells whether the table has a file of that path now. A store is listed once, here."""

    def need_no_link(self) -> None:
        """Whoever may write to the table's folder does not choose where the index's files are made and removed.

        Raises:
            UsageError: a link lies in the place of the folder.
        """

    def make(self) -> None:
        """Make the folder, if it isn't there.

        Raises:
            UsageError: a link lies in its place. BloomsealError: the storage failed.
        """

    def now(self) -> int:
        """The storage's own clock: nanoseconds since 1970.

        Raises:
            UnsupportedError: a file's time of change is not the storage's own. BloomsealError: no file can be made in
                the folder.
        """

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Be alone with the index among those who change one in this table; in a store nobody is."""

    def remove(self, name: str) -> bool:
        """Remove a file and its key material; False where that failed, or it was not there."""

    def remove_folder(self) -> None:
        """Remove the folder, and the one of all indexes, if nothing is left in them."""


def place_at(root: str, above: str, name: str, filesystem: FileSystem | None) -> FilePlace:
    """The place of the index in the folder `name` below `above`, of the table at `root`."""
    if filesystem is None:
        return LocalPlace(root, above, name)
    return StorePlace(root, above, name, filesystem)


class LocalPlace:
    """A folder on this machine."""

    def __init__(self, root: str, above: str, name: str) -> None:
        self._root, self._above, self._name = root, os.path.basename(above), name  # noqa: PTH119
        self._below = f"{self._above}/{name}"
        self.path = os.path.join(above, name)  # noqa: PTH118

    @contextlib.contextmanager
    def _opened(self, relative: str, *, make: bool = False) -> Iterator[Folder]:
        with contextlib.ExitStack() as held:
            try:
                root = held.enter_context(Folder.at(self._root))
                folder = held.enter_context(root.below(relative, make=make))
            except OSError as error:
                if error.errno != errno.ELOOP:
                    raise
                raise UsageError(
                    "a link lies in the place of the index's folder", file=error.filename, hint="remove it"
                ) from None
            yield folder

    def ref(self, name: str) -> FileRef:
        return FileRef(os.path.join(self.path, name), None, self._root)  # noqa: PTH118

    def state(self, name: str) -> FileState | None:
        try:
            return state_of(os.stat(self.ref(name).path))  # noqa: PTH116
        except OSError:
            return None

    def names(self) -> dict[str, float]:
        found: dict[str, float] = {}
        with contextlib.suppress(OSError, UsageError), self._opened(self._below) as here, os.scandir(here.fd) as inside:
            for entry in inside:
                with contextlib.suppress(OSError):
                    found[entry.name] = entry.stat(follow_symlinks=False).st_mtime
        return found

    def there(self) -> Callable[[str], bool]:
        return lambda relative: os.path.lexists(os.path.join(self._root, relative))  # noqa: PTH118

    def make(self) -> None:
        with storage_errors("make the index's folder", self.path), self._opened(self._below, make=True):
            pass

    def need_no_link(self) -> None:
        with contextlib.suppress(OSError), self._opened(self._below):
            pass

    def now(self) -> int:
        name = f".clock.{os.urandom(6).hex()}"
        with storage_errors("write to the index's folder", self.path), self._opened(self._below) as here:
            fd = here.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode=0o600)
            try:
                with contextlib.suppress(OSError):
                    os.utime(fd, ns=(0, 0))
                told = os.fstat(fd)
            finally:
                os.close(fd)
                here.remove(name)
        if told.st_ctime_ns == told.st_mtime_ns:
            # FAT, and some file systems in user space: another file of that size would bear the times of the old one.
            raise UnsupportedError("whoever sets a file's time there sets its time of change", file=self.path)
        return told.st_ctime_ns

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        self.need_no_link()
        with storage_errors("lock the index", self.path), self._opened(self._above) as above, above.locked(self._name):
            yield

    def remove(self, name: str) -> bool:
        try:
            with self._opened(self._below) as here:
                with contextlib.suppress(OSError):
                    here.remove(os.path.basename(_material_of(self.ref(name))))  # noqa: PTH119
                return here.remove(name)
        except (OSError, UsageError):
            return False

    def remove_folder(self) -> None:
        with contextlib.suppress(OSError, UsageError):
            with self._opened(self._above) as above:
                os.rmdir(self._name, dir_fd=above.fd)
            with self._opened("") as root:
                os.rmdir(self._above, dir_fd=root.fd)


class StorePlace:
    """A prefix in an object store, or a folder on a file system of pyarrow's or fsspec's.

    Of two who put a manifest the last one wins. Facts are true whoever wrote them: what the other one had found costs
    coverage until the next update, and nothing else.
    """

    def __init__(self, root: str, above: str, name: str, filesystem: FileSystem) -> None:
        self._root, self._filesystem = root, filesystem
        self.path = posixpath.join(above, name)

    def ref(self, name: str) -> FileRef:
        return FileRef(posixpath.join(self.path, name), self._filesystem, self._root)

    def state(self, name: str) -> FileState | None:
        try:
            found = version_at(self.ref(name))
        except BloomsealError:
            return None
        return None if found is None else state_of_version(found)

    def names(self) -> dict[str, float]:
        try:
            found = versions_below(FileRef(self.path, self._filesystem))
        except BloomsealError:
            return {}
        return {posixpath.basename(path): one.mtime / _SECOND for path, one in found.items()}

    def there(self) -> Callable[[str], bool]:
        found = versions_below(FileRef(self._root, self._filesystem))
        return lambda relative: posixpath.join(self._root, relative).lstrip("/") in found

    def need_no_link(self) -> None:
        """Stores have no links."""

    def make(self) -> None:
        if self._filesystem.type_name not in NO_MARKERS:
            with storage_errors("make the index's folder", self.path):
                self._filesystem.create_dir(self.path, recursive=True)

    def now(self) -> int:
        ref = self.ref(f".clock.{os.urandom(6).hex()}")
        with storage_errors("write to the index's folder", self.path):
            put(self._filesystem, ref.path, b"")
            try:
                found = version_at(ref)
            finally:
                self._filesystem.delete_file(ref.path)
        return 0 if found is None else found.mtime

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        yield

    def remove(self, name: str) -> bool:
        ref = self.ref(name)
        with contextlib.suppress(OSError):
            self._filesystem.delete_file(_material_of(ref))
        try:
            self._filesystem.delete_file(ref.path)
        except OSError:
            return False
        return True

    def remove_folder(self) -> None:
        if self._filesystem.type_name not in NO_MARKERS and not self.names():
            with contextlib.suppress(OSError):
                self._filesystem.delete_dir(self.path)


def state_of_version(version: ObjectVersion) -> FileState:
    """An object's version as a fact has it. A tag says all; clients may tell times of one object in two ways."""
    return FileState(0, version.size, 0 if version.tag else version.mtime, 0, version.tag)


def _material_of(ref: FileRef) -> str:
    """The path of the file's key material, where that is not in the file."""
    from ..keytools.material.store import MaterialStore  # look-ups need not load this

    return MaterialStore(ref).path
