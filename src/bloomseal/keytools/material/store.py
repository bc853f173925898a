"""Key material beside the data file: ``_KEY_MATERIAL_FOR_<name>.json``, a map from reference to material (as text)."""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from ...core.errors import KeyAccessError, UsageError
from ...core.keys.material import FOOTER_KEY_REFERENCE, parse_object
from ...core.storage.local import open_regular, read_open
from ...core.storage.ref import FileRef
from ...storage.discovery.kinds import MATERIAL_PREFIX
from ...storage.folder import Folder
from ...storage.replacement import remove_leftovers, replace, temporaries
from ...storage.signatures import remove_orphans

MAX_STORE_BYTES: Final = 64 * 1024 * 1024
"""32,768 columns at 1 KB and more each fit in."""


class MaterialStore:
    """The external key material of one data file. On this machine no link is followed at its name.

    Args:
        ref: the data file; the store is looked for beside it, under the very path that was given.
    """

    def __init__(self, ref: FileRef) -> None:
        from pyarrow.fs import LocalFileSystem

        self._folder, name = posixpath.split(ref.path)
        self._name = f"{MATERIAL_PREFIX}{name}.json"
        self.path = posixpath.join(self._folder, self._name)
        self._beside = ref.path if ref.like is None else ref.like
        self._filesystem = None if isinstance(ref.filesystem, LocalFileSystem) else ref.filesystem

    def read(self) -> dict[str, str]:
        """All material by reference; empty where there is no store.

        Raises:
            KeyAccessError: the store can't be read, is too long, or is no map of texts.
        """
        return self._entries(None)

    def _entries(self, folder: Folder | None) -> dict[str, str]:
        try:
            text = self._read_bytes(folder)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:  # the latter of a name that a store's client does not take
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise KeyAccessError(f"the key material in {self.path} can't be read: {reason}") from None
        try:
            return _parsed(text)
        except KeyAccessError as error:
            error.what += f": {self.path}"
            raise

    def change(self, edit: Callable[[dict[str, str]], None]) -> None:
        """Edit the entries, durably and at once; a store without any is removed.

        Writers of one local store take turns. On other file systems the last one wins.

        Args:
            edit: changes the map in place.

        Raises:
            KeyAccessError: the storage refuses, or what `edit` raises; the old store stays.
        """
        try:
            with self._turn() as folder:
                entries = self._entries(folder)
                before = dict(entries)
                edit(entries)
                if entries and entries != before:
                    data = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
                    self._write_bytes(folder, data)
                elif before and not entries:
                    self._remove(folder)
        except (OSError, ValueError) as error:
            if isinstance(error, UsageError) and not isinstance(error, OSError):
                raise
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise KeyAccessError(f"the key material in {self.path} can't be written: {reason}") from None

    def supersede(
        self,
        before: Mapping[str, str],
        own: Mapping[str, str] = MappingProxyType({}),
        valid: Callable[[], bool] = lambda: True,
    ) -> None:
        """Drop what only a data file's predecessor needed.

        The new file's footer key is kept under the usual name too, because the rotations of parquet-java and of Arrow
        start from there.

        Args:
            before: the entries as they were before the file was written. What has come since may be another writer's,
                and the file in place may be its: it stays.
            own: entries of the file in place, put back where somebody else's tidying has taken them.
            valid: whether the new file is still in its place, asked when no other writer can tidy up. Whoever put
                another one there may need any entry, and drops what is too many itself.

        Raises:
            KeyAccessError: as `change`.
        """

        def edit(entries: dict[str, str]) -> None:
            if not valid():
                return
            for reference, text in before.items():
                if entries.get(reference) == text:
                    del entries[reference]
            entries.update(own)
            for reference in own or tuple(entries):
                if reference.startswith(FOOTER_KEY_REFERENCE):
                    entries.setdefault(FOOTER_KEY_REFERENCE, entries[reference])

        if before or own:
            self.change(edit)

    @contextlib.contextmanager
    def _turn(self) -> Iterator[Folder | None]:
        if self._filesystem is not None:
            yield None
            return
        with Folder.at(self._folder) as folder, folder.locked(self._name):
            yield folder

    def _read_bytes(self, folder: Folder | None) -> bytes:
        if self._filesystem is None:
            fd = open_regular(self.path, os.O_RDONLY | os.O_NOFOLLOW) if folder is None else folder.open(self._name)
            try:
                return read_open(fd, MAX_STORE_BYTES)
            finally:
                os.close(fd)
        with self._filesystem.open_input_file(self.path) as remote:
            data: bytes = remote.read(min(remote.size(), MAX_STORE_BYTES + 1))
            return data

    def _write_bytes(self, folder: Folder | None, data: bytes) -> None:
        if folder is not None:
            replace(folder, self._name, data, beside=self._beside, alone=True)
            return
        from ...storage.objects import put_in_place  # loads pyarrow, which local files need not

        put_in_place(self._filesystem, self.path, data)

    def _remove(self, folder: Folder | None) -> None:
        if folder is not None:
            folder.remove(self._name)
        elif self._filesystem is not None and self._filesystem.get_file_info(self.path).is_file:
            self._filesystem.delete_file(self.path)


def _parsed(text: bytes) -> dict[str, str]:
    entries = parse_object(text, "a key material store", MAX_STORE_BYTES)
    if not all(isinstance(material, str) for material in entries.values()):
        raise KeyAccessError("a key material store whose entries are not texts")
    return entries


def tidy(folder: str | os.PathLike[str]) -> None:
    """Remove what writers that died have left in a local folder: temporary files, the key material of those that never
    took their names, and signatures without their files. What can't be removed stays.
    """
    with contextlib.suppress(OSError), Folder.at(folder) as here:
        before = set(temporaries(here).values())
        if not before:
            remove_orphans(here)
            return
        remove_leftovers(here)
        killed = before - set(temporaries(here).values())
        for name in killed:
            material = f"{MATERIAL_PREFIX}{name}.json"
            if here.stat(material) is None:
                continue
            # A writer makes its temporary file first, and its material, in turn, after that: neither is overlooked.
            with contextlib.suppress(OSError), here.locked(material):
                if name not in temporaries(here).values() and here.stat(name) is None:
                    here.remove(material)
        remove_orphans(here, killed)
