"""Key material beside the data file: ``_KEY_MATERIAL_FOR_<name>.json``, a map from reference to material (as text)."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import posixpath
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from ...errors import KeyAccessError, UsageError
from ...storage.aside import asides, remove_leftovers, turn
from ...storage.atomic import replace_durably
from ...storage.discovery.kinds import MATERIAL_PREFIX
from ...storage.local import read_open, read_small
from ...storage.ref import FileRef
from .material import FOOTER_KEY_REFERENCE, parse_object

__all__ = ["MAX_STORE_BYTES", "MaterialStore", "tidy"]

MAX_STORE_BYTES: Final = 64 * 1024 * 1024
"""32,768 columns at 1 KB and more each fit in."""

_REMEMBERED: Final = 64
_SMALL_BYTES: Final = 16 * 1024


class MaterialStore:
    """The external key material of one data file.

    Args:
        ref: the data file; the store is looked for beside it, under the very path that was given.
    """

    def __init__(self, ref: FileRef) -> None:
        from pyarrow.fs import LocalFileSystem

        folder, name = posixpath.split(ref.path)
        self.path = posixpath.join(folder, f"{MATERIAL_PREFIX}{name}.json")
        self._beside = ref.path if ref.like is None else ref.like
        self._filesystem = None if isinstance(ref.filesystem, LocalFileSystem) else ref.filesystem

    def read(self) -> dict[str, str]:
        """All material by reference; empty where there is no store.

        Raises:
            KeyAccessError: the store can't be read, is too long, or is no map of texts.
        """
        return self._entries(None)

    def _entries(self, fd: int | None) -> dict[str, str]:
        try:
            text = self._read_bytes(fd)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:  # the latter of a name that a store's client does not take
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise KeyAccessError(f"the key material in {self.path} can't be read: {reason}") from None
        try:
            return dict((_remembered if len(text) <= _SMALL_BYTES else _parsed)(text))
        except KeyAccessError as error:
            error.what += f": {self.path}"
            raise

    def change(self, edit: Callable[[dict[str, str]], None], *, sync_name: bool = True) -> None:
        """Edit the entries, durably and at once; a store without any is removed.

        Writers of one local store take turns. On other file systems the last one wins.

        Args:
            edit: changes the map in place.
            sync_name: as for `replace_durably`.

        Raises:
            KeyAccessError: the storage refuses, or what `edit` raises; the old store stays.
        """
        try:
            with self._turn() as fd:
                entries = self._entries(fd)
                before = dict(entries)
                edit(entries)
                if entries and entries != before:
                    data = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
                    self._write_bytes(data, sync_name)
                elif before and not entries:
                    self._remove()
        except (OSError, ValueError) as error:
            if isinstance(error, UsageError) and not isinstance(error, OSError):
                raise
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise KeyAccessError(f"the key material in {self.path} can't be written: {reason}") from None

    def supersede(
        self,
        before: Mapping[str, str],
        needed: Collection[str],
        footer: str | None,
        own: Mapping[str, str] = MappingProxyType({}),
    ) -> int:
        """Drop what only a data file's predecessor needed.

        Args:
            before: the entries as they were before the file was written. What has come since may be another writer's,
                and the file in place may be its: it stays.
            needed: references in the file that is in place now.
            footer: the reference of its footer key, which is kept under the usual name too, because the rotations of
                parquet-java and of Arrow start from there.
            own: entries of the file in place, put back where somebody else's tidying has taken them.

        Returns:
            How many entries went.

        Raises:
            KeyAccessError: as `change`.
        """
        gone = 0

        def edit(entries: dict[str, str]) -> None:
            nonlocal gone
            for reference, text in before.items():
                if reference not in needed and entries.get(reference) == text:
                    del entries[reference]
                    gone += 1
            entries.update(own)
            if footer in entries:
                entries.setdefault(FOOTER_KEY_REFERENCE, entries[footer])

        self.change(edit)
        return gone

    @contextlib.contextmanager
    def _turn(self) -> Iterator[int | None]:
        if self._filesystem is not None:
            yield None
            return
        with turn(self.path) as fd:
            yield fd

    def _read_bytes(self, fd: int | None) -> bytes:
        if fd is not None:
            return read_open(fd, MAX_STORE_BYTES)
        if self._filesystem is None:
            return read_small(self.path, MAX_STORE_BYTES)
        with self._filesystem.open_input_file(self.path) as remote:
            data: bytes = remote.read(min(remote.size(), MAX_STORE_BYTES + 1))
            return data

    def _write_bytes(self, data: bytes, sync_name: bool) -> None:
        if self._filesystem is None:
            replace_durably(Path(self.path), data, mode=0o666, beside=self._beside, sync_name=sync_name)
            return
        from ...storage.objects import put_in_place  # loads pyarrow, which local files need not

        put_in_place(self._filesystem, self.path, data)

    def _remove(self) -> None:
        if self._filesystem is None:
            Path(self.path).unlink(missing_ok=True)
        elif self._filesystem.get_file_info(self.path).is_file:
            self._filesystem.delete_file(self.path)


def _parsed(text: bytes) -> dict[str, str]:
    entries = parse_object(text, "a key material store", MAX_STORE_BYTES)
    if not all(isinstance(material, str) for material in entries.values()):
        raise KeyAccessError("a key material store whose entries are not texts")
    return entries


# A store is read to open its file, and again when it is its writer's turn.
_remembered = functools.lru_cache(_REMEMBERED)(_parsed)


def tidy(folder: str | os.PathLike[str]) -> None:
    """Remove what writers that died have left in a local folder: files aside, and the key material of those that never
    took their names. What can't be removed stays.
    """
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            before = set(asides(fd).values())
            if not before:
                return
            remove_leftovers(fd)
            for name in before - set(asides(fd).values()):
                material = os.path.join(folder, f"{MATERIAL_PREFIX}{name}.json")  # noqa: PTH118
                # A writer makes its file aside first, and its material, in turn, after that: neither is overlooked
                # here.
                with contextlib.suppress(OSError), turn(material):
                    if name not in asides(fd).values() and name not in os.listdir(fd):  # noqa: PTH208  # of an open folder
                        os.unlink(material)  # noqa: PTH108
        finally:
            os.close(fd)
