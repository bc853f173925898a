"""The folder of an index: ``_bloomseal_index/COLUMN`` in the table's. Its files are ordinary encrypted Parquet.

Each has one column, which bears the data column's name, so that keys, policies, rotation and audits take it for what it
is as sensitive as.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import pyarrow as pa

from ..encryption import Algorithm
from ..errors import IntegrityError, MissingFileError, PolicyError, UsageError
from ..keytools.material.store import MaterialStore
from ..read.file import SealedFile, open_file
from ..specs import EncryptionSpec, encryption_for
from ..storage.aside import folder_below, folder_lock
from ..storage.atomic import storage_errors
from ..storage.files import INDEX_FOLDER
from ..storage.ref import FileRef
from ..write.writer import write_table
from .manifest import FileState, Manifest, Shard, state_of

if TYPE_CHECKING:
    from ..policy import TablePolicy
    from ..specs import DecryptionSpec

__all__ = ["Clock", "Decryption", "Encryption", "IndexFolder", "columns_in", "leaf_of"]

if TYPE_CHECKING:
    Decryption = DecryptionSpec | TablePolicy | None
    Encryption = EncryptionSpec | TablePolicy | None

_MANIFEST: Final = "manifest.parquet"
_LONGEST: Final = 150
_FINE, _COARSE = 20_000_000, 2_000_000_000
"""Nanoseconds: two changes within that time may bear the same time. Kernels tick every 1 to 10 ms; some file systems
keep whole seconds, or every other one."""
_PATIENCE: Final = 5.0


def columns_in(root: str) -> list[str]:
    """The names of the folders of a table's indexes."""
    try:
        return sorted(os.listdir(os.path.join(root, INDEX_FOLDER)))  # noqa: PTH118, PTH208
    except OSError:
        return []


def _folder_name(column: str) -> str:
    name = quote(column, safe=" ")
    return name if len(name) <= _LONGEST and name[0] != "." else hashlib.sha256(column.encode()).hexdigest()


class IndexFolder:
    """Where the index of one column of one table is.

    Args:
        root: the table's folder, on this machine.
        column: dotted path; or, with `named`, the folder's own name.
    """

    def __init__(self, root: str, column: str, *, named: bool = False) -> None:
        self.root = root
        self.above = os.path.join(root, INDEX_FOLDER)  # noqa: PTH118
        self._name = column if named else _folder_name(column)
        self._below = f"{INDEX_FOLDER}/{self._name}"
        self.path = os.path.join(self.above, self._name)  # noqa: PTH118

    def ref(self, name: str) -> FileRef:
        """A file of the index, as one of the table: an AAD prefix is made of its place."""
        return FileRef(os.path.join(self.path, name), None, self.root)  # noqa: PTH118

    # Reading ---------------------------------------------------------------------------------------------------------

    def state(self) -> FileState | None:
        """Of the manifest; None where there is none."""
        try:
            return state_of(os.stat(self.ref(_MANIFEST).path))  # noqa: PTH116
        except OSError:
            return None

    def load(self, decryption: Decryption) -> tuple[Manifest, FileState] | None:
        """The manifest, and the state of its file; None where there is none.

        Raises:
            BloomsealError: it does not authenticate, is of another column, or its keys can't be had.
        """
        try:
            with self.open(_MANIFEST, decryption) as file:
                fd = file.walk.source.fd
                assert fd is not None  # noqa: S101
                state = state_of(os.fstat(fd))
                values = leaf_of(file.read()).to_pylist()
                made = Manifest.from_values(values)
                named = os.path.basename(self.path)  # noqa: PTH119
                if file.walk.footer.schema.leaves[0].path != made.path or named != _folder_name(made.column):
                    raise IntegrityError("the manifest is that of another column's index", file=file.path)
                return made, state
        except MissingFileError:
            return None

    def open(self, name: str, decryption: Decryption) -> SealedFile:
        """One file of the index.

        Raises:
            BloomsealError: as `open_file`; and it must be sealed as this room seals, whatever the caller allows of
                data.
        """
        file = open_file(self.ref(name), decryption=decryption)
        try:
            _check_sealed(file)
        except BaseException:
            file.close()
            raise
        return file

    def open_shard(self, shard: Shard, decryption: Decryption) -> SealedFile:
        """One file of a run, if it is the one that the manifest means.

        Raises:
            IntegrityError: it is another one: under the same key, one run's file would open in the place of another's.
        """
        file = self.open(shard.file, decryption)
        crypto = file.walk.footer.crypto
        if crypto is None or crypto.aad_unique != shard.unique or file.num_rows != shard.entries:
            file.close()
            raise IntegrityError("a file of the index is not the one that its manifest names", file=file.path)
        return file

    # Writing ---------------------------------------------------------------------------------------------------------

    def make(self) -> None:
        """Make the folder, if it isn't there.

        Raises:
            UsageError: a link lies in its place. BloomsealError: the storage failed.
        """
        self.need_no_link()
        with storage_errors("make the index's folder", self.path):
            os.makedirs(self.path, exist_ok=True)  # noqa: PTH103
        self.need_no_link()

    def need_no_link(self) -> None:
        """Whoever may write to the table's folder does not choose where the index's files are made and removed.

        Raises:
            UsageError: a link lies in the place of the folder.
        """
        for path in (self.above, self.path):
            if os.path.islink(path):  # noqa: PTH114
                raise UsageError("a link lies in the place of the index's folder", file=path, hint="remove it")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Be alone with the manifest of this index among those who change one in this table.

        Raises:
            UsageError: a link lies in the place of the folder. BloomsealError: it can't be locked.
        """
        self.need_no_link()
        with storage_errors("lock the index", self.above), folder_below(self.root, INDEX_FOLDER) as fd, folder_lock(fd):
            yield

    def write_manifest(self, manifest: Manifest, encryption: Encryption) -> None:
        """Put it in the place of the one that is there, all at once. The caller has the lock.

        Raises:
            BloomsealError: it could not be written; the old one stays.
        """
        values = pa.array(manifest.to_values(), pa.binary())
        self.write(_MANIFEST, manifest.path, values, encryption, compression="zstd")

    def write(self, name: str, path: tuple[str, ...], values: pa.Array, encryption: Encryption, **options: Any) -> None:
        """One file of one column.

        Raises:
            UsageError: nothing seals the column. KeyAccessError. BloomsealError: the storage failed.
        """
        ref = self.ref(name)
        rows = _as_table(path, values)
        spec = _narrowed(encryption, ref, ".".join(path))
        write_table(
            rows, ref, encryption=spec, bloom_filters={}, row_group_size=max(rows.num_rows, 1),
            use_dictionary=False, write_page_index=True, **options,
        )  # fmt: skip

    def remove(self, name: str) -> bool:
        """Remove a file and its key material; False where that failed, or it was not there."""
        try:
            with folder_below(self.root, self._below) as fd:
                with contextlib.suppress(OSError):
                    os.unlink(os.path.basename(MaterialStore(self.ref(name)).path), dir_fd=fd)  # noqa: PTH119
                os.unlink(name, dir_fd=fd)
        except OSError:
            return False
        return True

    def names(self) -> dict[str, float]:
        """All files there → when they were last changed, seconds since 1970."""
        found: dict[str, float] = {}
        with contextlib.suppress(OSError), folder_below(self.root, self._below) as fd, os.scandir(fd) as inside:
            for entry in inside:
                with contextlib.suppress(OSError):
                    found[entry.name] = entry.stat(follow_symlinks=False).st_mtime
        return found

    def drop(self) -> list[str]:
        """Remove the index, manifest first. Returns the names of what is gone.

        Raises:
            UsageError: a link lies in the place of the folder.
        """
        self.need_no_link()
        names = sorted(self.names(), key=lambda name: (name != _MANIFEST, name))
        gone = [name for name in names if self.remove(name)]
        with contextlib.suppress(OSError):
            with folder_below(self.root, INDEX_FOLDER) as fd:
                os.rmdir(self._name, dir_fd=fd)
            with folder_below(self.root, "") as fd:
                os.rmdir(INDEX_FOLDER, dir_fd=fd)
        return gone


class Clock:
    """The storage's own clock, by which its files bear their times.

    Args:
        folder: where files can be made.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._now = self._coarse = 0

    def settled(self, state: FileState) -> bool:
        """Wait until a change to a file, from now on, would bear another time than its last one.

        Returns:
            False where that does not come about: the file's time lies ahead of the clock.

        Raises:
            BloomsealError: no file can be made in the folder.
        """
        until = time.monotonic() + _PATIENCE
        while self._now <= state.ctime + (_COARSE if self._coarse else _FINE):
            self._look()
            if time.monotonic() > until:
                return False
            if self._now <= state.ctime + (_COARSE if self._coarse else _FINE):
                time.sleep(0.005)
        return True

    def _look(self) -> None:
        path = Path(self._folder, f".clock.{os.urandom(6).hex()}")
        with storage_errors("write to the index's folder", self._folder):
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                self._now = os.fstat(fd).st_ctime_ns
                self._coarse = self._now % 1_000_000_000 == 0
            finally:
                os.close(fd)
                path.unlink()


def leaf_of(rows: pa.Table) -> pa.ChunkedArray:
    """The values of the only leaf of a table, without nesting."""
    column = rows.column(0)
    while pa.types.is_struct(column.type):
        column = pa.chunked_array([chunk.field(0) for chunk in column.chunks], column.type.field(0).type)
    return column


def _as_table(path: tuple[str, ...], values: pa.Array) -> pa.Table:
    field = pa.field(path[-1], values.type, nullable=False)
    for name in reversed(path[:-1]):
        values = pa.StructArray.from_arrays([values], fields=[field])
        field = pa.field(name, values.type, nullable=False)
    return pa.Table.from_arrays([values], schema=pa.schema([field]))


def _check_sealed(file: SealedFile) -> None:
    """Nothing but this decides what is in an index; a caller who allows plaintext data does not allow plaintext
    here.
    """
    walk = file.walk
    crypto = walk.footer.crypto
    if crypto is None or not walk.footer.verified:
        raise PolicyError("a file of an index that nothing authenticates", file=file.path, hint="index rebuild")
    if crypto.algorithm is not Algorithm.AES_GCM_V1:
        raise PolicyError("a file of an index whose pages nothing authenticates", file=file.path, hint="index rebuild")
    if len(walk.footer.schema.leaves) != 1 or file.num_row_groups > 1:
        raise IntegrityError("no file of an index", file=file.path, hint="index rebuild")
    for group in range(file.num_row_groups):
        if not walk.chunk(group, 0).encrypted:
            raise PolicyError("a file of an index with a plaintext column", file=file.path, hint="index rebuild")


def _narrowed(encryption: Encryption, ref: FileRef, column: str) -> EncryptionSpec:
    """What seals the data column, for a file of that column alone.

    Raises:
        UsageError: nothing does.
    """
    spec = encryption_for(encryption, ref)
    if spec is None:
        raise UsageError("an index is sealed, and there is no key for it", column=column, hint="encryption=")
    given = spec.column_keys or {}
    parts = column.split(".")
    names = [".".join(parts[:end]) for end in range(len(parts), 0, -1)]
    name = next((name for name in names if name in given), None)
    if name is None and given and not spec.complete:
        raise UsageError(
            "the column is in plaintext, and so has no index", column=column, hint="a key for it, or complete=True"
        )
    keys = None if name is None else {name: given[name]}
    return replace(spec, column_keys=keys, plaintext_footer=False, complete=False, algorithm=Algorithm.AES_GCM_V1)
