"""Where an index is: a folder on this machine, which is opened once and followed through no link, or a prefix in an
object store.

In a store nobody is alone, and of two who put a manifest the last one wins. Facts are true whoever wrote them: what the
other one had found costs coverage until the next update, and nothing else.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import posixpath
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from ..core.errors import BloomsealError, UnsupportedError, UsageError
from ..core.storage.ref import FileRef
from ..storage.atomic import storage_errors
from ..storage.discovery.kinds import INDEX_FOLDER
from ..storage.folder import Folder
from ..storage.objects import NO_MARKERS, put
from ..storage.versions import version_at, versions_below

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

MANIFEST: Final = "manifest.parquet"
_LONGEST: Final = 150
_SECOND: Final = 1_000_000_000


def columns_in(root: str, filesystem: FileSystem | None = None) -> list[str]:
    """The names of the folders of a table's indexes."""
    above = posixpath.join(root, INDEX_FOLDER)
    try:
        if filesystem is None:
            return sorted(name for name in os.listdir(above) if not name.startswith("."))  # noqa: PTH208  # no locks
        from pyarrow.fs import FileSelector

        found = filesystem.get_file_info(FileSelector(above, recursive=True, allow_not_found=True))
        ends = [one.path for one in found if posixpath.basename(one.path) == MANIFEST]
        return sorted({posixpath.basename(posixpath.dirname(path)) for path in ends})
    except OSError:
        return []


def folder_name(column: str) -> str:
    """What the folder of a column's index is called: its name tells the column unless that is too long."""
    name = quote(column, safe=" ")
    return name if len(name) <= _LONGEST and name[0] != "." else hashlib.sha256(column.encode()).hexdigest()


def is_signed(ref: FileRef) -> bool:
    """Whether a file of an index is signed where the table's files are: the manifest, which pins all others by their
    keys. Tasks that write those hold no key to sign with.
    """
    return posixpath.basename(ref.path) == MANIFEST


class IndexPlace:
    """The files of one index.

    Args:
        root: the table's folder.
        name: the folder's, below that of all indexes.
        filesystem: None: this machine's.

    Attributes:
        path: the folder.
    """

    def __init__(self, root: str, name: str, filesystem: FileSystem | None) -> None:
        self.root, self.name, self.filesystem = root, name, filesystem
        self.path = posixpath.join(root, INDEX_FOLDER, name)

    @contextlib.contextmanager
    def _opened(self, relative: str, *, make: bool = False) -> Iterator[Folder]:
        """A folder of this machine, below the table's. Whoever may write there does not choose where the index's files
        are made and removed.

        Raises:
            UsageError: a link lies in its place, or on the way.
        """
        with contextlib.ExitStack() as held:
            try:
                root = held.enter_context(Folder.at(self.root))
                folder = held.enter_context(root.below(relative, make=make))
            except OSError as error:
                if error.errno != errno.ELOOP:
                    raise
                raise UsageError(
                    "a link lies in the place of the index's folder", file=error.filename, hint="remove it"
                ) from None
            yield folder

    def _here(self, *, make: bool = False) -> contextlib.AbstractContextManager[Folder]:
        return self._opened(f"{INDEX_FOLDER}/{self.name}", make=make)

    def ref(self, name: str) -> FileRef:
        """A file of the index, as one of the table: an AAD prefix is made of its place."""
        return FileRef(posixpath.join(self.path, name), self.filesystem, self.root)

    def names(self) -> dict[str, float]:
        """All files there → when they were last changed, seconds since 1970."""
        found: dict[str, float] = {}
        if self.filesystem is not None:
            with contextlib.suppress(BloomsealError):
                for path, one in versions_below(FileRef(self.path, self.filesystem)).items():
                    found[posixpath.basename(path)] = one.mtime / _SECOND
            return found
        with contextlib.suppress(OSError, UsageError), self._here() as here, os.scandir(here.fd) as inside:
            for entry in inside:
                with contextlib.suppress(OSError):
                    found[entry.name] = entry.stat(follow_symlinks=False).st_mtime
        return found

    def there(self) -> Callable[[str], bool]:
        """Tells whether the table has a file of that path now. A store is listed once, here."""
        if self.filesystem is None:
            return lambda relative: os.path.lexists(posixpath.join(self.root, relative))
        found = versions_below(FileRef(self.root, self.filesystem))
        return lambda relative: posixpath.join(self.root, relative).lstrip("/") in found

    def need_no_link(self) -> None:
        """Raises UsageError where a link lies in the place of the folder."""
        if self.filesystem is None:
            with contextlib.suppress(OSError), self._here():
                pass

    def make(self) -> None:
        """Make the folder, if it isn't there.

        Raises:
            UsageError: a link lies in its place. BloomsealError: the storage failed.
        """
        with storage_errors("make the index's folder", self.path):
            if self.filesystem is None:
                with self._here(make=True):
                    pass
            elif self.filesystem.type_name not in NO_MARKERS:
                self.filesystem.create_dir(self.path, recursive=True)

    def now(self) -> int:
        """The storage's own clock: nanoseconds since 1970.

        Raises:
            UnsupportedError: a file's time of change is not the storage's own. BloomsealError: no file can be made in
                the folder.
        """
        name = f".clock.{os.urandom(6).hex()}"
        with storage_errors("write to the index's folder", self.path):
            if self.filesystem is not None:
                ref = self.ref(name)
                put(self.filesystem, ref.path, b"")
                try:
                    found = version_at(ref)
                finally:
                    self.filesystem.delete_file(ref.path)
                return 0 if found is None else found.mtime
            with self._here() as here:
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
        """Be alone with the index among those who change one in this table; in a store nobody is."""
        if self.filesystem is not None:
            yield
            return
        self.need_no_link()
        with storage_errors("lock the index", self.path), self._opened(INDEX_FOLDER) as above, above.locked(self.name):
            yield

    def remove(self, name: str) -> bool:
        """Remove a file and its key material; False where that failed, or it was not there."""
        from ..keytools.material.store import MaterialStore  # look-ups need not load this

        ref = self.ref(name)
        material = MaterialStore(ref).path
        try:
            if self.filesystem is None:
                with self._here() as here:
                    with contextlib.suppress(OSError):
                        here.remove(posixpath.basename(material))
                    return here.remove(name)
            with contextlib.suppress(OSError):
                self.filesystem.delete_file(material)
            self.filesystem.delete_file(ref.path)
        except (OSError, UsageError):
            return False
        return True

    def drop(self) -> list[str]:
        """Remove the index, manifest first, and the folder of all indexes with the last of them. Returns the names of
        what is gone.

        Raises:
            UsageError: a link lies in the place of the folder.
        """
        self.need_no_link()
        gone = [name for name in sorted(self.names(), key=lambda name: (name != MANIFEST, name)) if self.remove(name)]
        with contextlib.suppress(OSError, UsageError):
            if self.filesystem is None:
                with self._opened(INDEX_FOLDER) as above:
                    os.rmdir(self.name, dir_fd=above.fd)
                with self._opened("") as root:
                    os.rmdir(INDEX_FOLDER, dir_fd=root.fd)
            elif self.filesystem.type_name not in NO_MARKERS and not self.names():
                self.filesystem.delete_dir(self.path)
        return gone
