"""The parts of a table, and the one place where its files are opened."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ...core.cached import cached_property
from ...core.errors import PolicyError, UsageError
from ...core.storage.ref import FileRef
from ...read.file import SealedFile
from ...read.open import open_file
from ...read.parquet import ParquetFile, need_parquet
from ...specs import decryption_of_iceberg_file, iceberg_unwrap
from ...storage.discovery.files import real_root, refuse_outside
from ...storage.discovery.kinds import FoundFile
from ...storage.places import open_source
from .naming import need_names
from .partitions import Partitions, columns_of_folders

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

    from ...core.decryption import DecryptionSpec
    from ...core.storage.source import Source
    from ...policy import TablePolicy
    from ...storage.discovery.tables import Places
    from ...storage.logs.deletion_vector import DeletionVector
    from ...storage.logs.iceberg_keys import IcebergFileKey, WrappedFileKey
    from ...storage.logs.snapshot import DeleteFile, Snapshot

_REMEMBERED: Final = 1024


@dataclass(frozen=True)
class TableParts:
    """What a table is made of.

    Attributes:
        files: in order.
        partitions: what is known of each file's rows beforehand.
        snapshot: what the table's log says; None for a plain folder.
        decryption: how each file is opened.
        follow_links: files may lie outside the folders that led to them.
        place: what led to the files, and on which file system; None: nobody tells.
        without_key: what becomes of columns without a key, see `SealedFile.read`.
        deletes: tells which rows of a file its table has deleted.
        named: likenesses of files that `need_names` let pass.
    """

    files: Sequence[FoundFile]
    partitions: Partitions
    snapshot: Snapshot | None
    decryption: DecryptionSpec | TablePolicy | None
    follow_links: bool = False
    place: tuple[Places, FileSystem | None] | None = field(default=None, compare=False, repr=False)
    without_key: str = "error"
    deletes: Callable[[TableParts, int, ParquetFile], DeletionVector] | None = field(
        default=None, compare=False, repr=False
    )
    named: set[Hashable] = field(default_factory=set, compare=False, repr=False)

    @property
    def logged(self) -> bool:
        """Whether a table's log keeps the list of files."""
        return self.snapshot is not None

    @property
    def files_count(self) -> bool:
        """Whether a file's own values of a column count, where its folder's name or a log gives it, too."""
        return self.snapshot is None or self.partitions.stored

    @cached_property
    def local(self) -> bool:
        """Whether all files are on this machine's own file system."""
        return all(found.ref.filesystem is None for found in self.files)

    @cached_property
    def _roots(self) -> tuple[str, ...]:
        roots = {found.ref.root for found in self.files if found.ref.filesystem is None and found.ref.root is not None}
        return tuple(map(real_root, roots))

    def folder_with(self, column: str, number: int) -> str:
        """The folder whose name gives a column, in words: that of the file of this number, or else another file's."""
        given = [found for found in self.files if column in columns_of_folders(found.relative, found.ref.path)]
        if self.files[number] in given or not given:
            return "its folder"
        return f"another file's folder ({given[0].ref.path})"

    def decryption_of(self, number: int) -> DecryptionSpec | TablePolicy | None:
        """What opens one file: in an encrypted Iceberg table each has a key of its own."""
        return self._decryption_of(self.files[number].ref, self.files[number].key)

    def _decryption_of(
        self, ref: FileRef, key: IcebergFileKey | WrappedFileKey | None
    ) -> DecryptionSpec | TablePolicy | None:
        opened, given = self.key_of(ref.path, key), self.decryption
        return given if opened is None or given is None else decryption_of_iceberg_file(given, ref, opened)

    def key_of(self, path: str, key: IcebergFileKey | WrappedFileKey | None) -> IcebergFileKey | None:
        """The key of a file of an encrypted Iceberg table; None: it is no such table.

        Raises:
            PolicyError: the file has none.
            KeyAccessError: the KMS refuses the KEK that it is wrapped under; or it is another file's.
        """
        if (given := self.decryption) is None or (spec := given.iceberg) is None:
            return None
        if key is None:
            raise PolicyError("a file without a key in an encrypted Iceberg table", file=path)
        from ...storage.logs.iceberg_keys import WrappedFileKey  # other tables need not load it

        return key.open(iceberg_unwrap(given), spec.encryption_key, path) if isinstance(key, WrappedFileKey) else key

    def open(self, number: int) -> SealedFile:
        """One file. The one place where a table's file is opened.

        Raises:
            UsageError: as `refuse_outside`.
            FormatError, IntegrityError, KeyAccessError, PolicyError, UnsupportedError.
        """
        file = open_file(self.files[number].ref, decryption=self.decryption_of(number))
        self.refuse_outside(number, file)
        if (deletes := self.deletes) is not None and self.files[number].deletes:
            try:
                need_parquet(file).leave_out(lambda opened: deletes(self, number, opened))
            except BaseException:
                file.close()
                raise
        return file

    def place_of(self, delete: DeleteFile) -> FileRef:
        """Where a delete file is: on the file system of the data files, below their folder."""
        beside = self.files[0].ref
        return FileRef(delete.file.path, beside.filesystem, beside.root)

    def open_deletes(self, delete: DeleteFile) -> SealedFile:
        """A Parquet file of position or equality deletes.

        Raises:
            BloomsealError: as `open`.
        """
        ref = self.place_of(delete)
        file = open_file(ref, decryption=self._decryption_of(ref, delete.file.key))
        self.refuse_outside(0, file)
        return file

    def open_vector(self, delete: DeleteFile) -> Source:
        """The file that a deletion vector is in.

        Raises:
            UsageError: it can't be opened, or lies outside the table.
        """
        source = open_source(self.place_of(delete))
        if not self.follow_links:
            try:
                refuse_outside(source, self._roots)
            except UsageError:
                source.close()
                raise
        return source

    def open_named(self, number: int) -> SealedFile:
        """As `open`, for somebody who asks it for columns by the table's names.

        Raises:
            UnsupportedError: it has them by others, see `need_names`. And as `open`.
        """
        file = self.open(number)
        try:
            self.need_names(file)
        except BaseException:
            file.close()
            raise
        return file

    def need_names(self, file: SealedFile) -> None:
        """Refuse a file, or one that stands for files of its schema, see `need_names`.

        Raises:
            UnsupportedError: it has columns by other names than the table's log.
        """
        if self.snapshot is None or (like := file.likeness) in self.named:
            return
        need_names(file, self.snapshot.naming)
        if like is not None and len(self.named) < _REMEMBERED:
            self.named.add(like)

    def refuse_outside(self, number: int, file: SealedFile) -> None:
        """Close an open file that lies outside the table by now.

        Raises:
            UsageError: it does.
        """
        if self.files[number].ref.root is not None and not self.follow_links:
            try:
                refuse_outside(file.source, self._roots)
            except UsageError:
                file.close()
                raise
