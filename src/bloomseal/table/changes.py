"""What changes the files of a table, as its methods."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from ..core.errors import UnsupportedError, UsageError
from ..specs import EncryptionSpec, PolicyArguments, resolve_policy
from .query.parts import TableParts

if TYPE_CHECKING:
    from ..orc.rewrite.report import OrcRewriteReport
    from ..policy import PolicyChoice
    from ..write.attach import AttachReport
    from ..write.writer import FilterRequest
    from .report import CompactionReport
    from .scan import Progress


class ErasureOptions(TypedDict, total=False):
    """How rows are erased, see `SealedTable.erase`."""

    also: Sequence[str | os.PathLike[str]]
    dry_run: bool
    journal: str | os.PathLike[str] | None
    restart: bool
    jobs: int
    patience: float
    progress: Progress | None


class TableChanges:
    """The part of `SealedTable` that changes files."""

    _parts: TableParts

    def attach(
        self, filters: FilterRequest, *, dry_run: bool = False, progress: Callable[[int, int], None] | None = None
    ) -> dict[str, AttachReport | OrcRewriteReport]:
        """Add filters to every file, see `bloomseal.attach_filters`. The first file that can't be done ends it; those
        before it are done.

        Returns:
            File → report.

        Raises:
            UnsupportedError: a Delta or Iceberg table: its log keeps the size of each file, which would change.
            BloomsealError: as `bloomseal.attach_filters`.
        """
        from ..write.attach import attach_filters

        if self._parts.snapshot is not None:
            raise UnsupportedError(
                "a table's log keeps the sizes of its files, which attach would change",
                hint="have the engine that writes the table build filters; or a sealed index, which changes no file",
            )
        decryption = self._parts.decryption
        return {
            found.ref.path: attach_filters(
                found.ref, filters, decryption=decryption, dry_run=dry_run, progress=progress
            )
            for found in self._parts.files
        }

    def compact(
        self,
        *,
        target_size: int = 256_000_000,
        encryption: EncryptionSpec | PolicyChoice | None = None,
        dry_run: bool = False,
        progress: Callable[[int, int], None] | None = None,
        **policy: Unpack[PolicyArguments],
    ) -> CompactionReport:
        """Make large files of small ones: in each folder those that agree in schema and keys, in the order of the
        table. docs/compact.md says what a reader sees meanwhile. Open the table again afterwards: its files are others.

        Args:
            target_size: bytes of a new file, about. A file larger than half of it stays as it is.
            encryption: what seals the new files; None: the policy that the table was opened with, or fresh data keys
                under the master keys of the old files, where these agree.
            dry_run: tell which files would become which, and have the KMS wrap a key for each column; write nothing.
            progress: called with (bytes of old files done, bytes of all that are to be done).
            policy: ``policy=`` and ``table=`` in the place of `encryption`, see `bloomseal.specs.PolicyArguments`.

        Raises:
            UsageError: no such size.
            UnsupportedError: a Delta or Iceberg table, whose log names its files.
            KeyAccessError, IntegrityError, FormatError, PolicyError: a file can't be opened, or a column of it; nothing
                was touched.
        """
        from ..write.arguments import a_count  # look-ups need not load this

        target = a_count(target_size, "target_size", "files of {} bytes")
        sealing = resolve_policy(EncryptionSpec, encryption, [found.ref for found in self._parts.files], **policy)
        # By its name: the verbs that change many files lie above this room.
        done: CompactionReport = import_module("bloomseal.rotation.compaction").compact(
            self._parts, sealing, target, dry_run=dry_run, progress=progress
        )
        return done

    def erase(self, where: Any, **options: Unpack[ErasureOptions]) -> Any:
        """Take the rows that a condition keeps out of all files, as they are now. See docs/erase.md. All others stay
        under the keys and rules that the table was opened with: there is no ``policy=`` of its own.

        Args:
            where: as `where` of `SealedTable.read`. A row for which it is null stays.
            options: ``also``: copies of the table, which are erased, too; ``dry_run``; and ``journal``, ``restart``,
                ``jobs``, ``patience``, ``progress`` as for `bloomseal.rotation.rotate`.

        Returns:
            A `bloomseal.rotation.erase.ErasureReport`.

        Raises:
            KeyAccessError: a column can't be opened: all are written anew. Nothing has been touched.
            UnsupportedError: an Iceberg table, an ORC file, or a column that can't be written as it is.
            UsageError: an erasure of other rows was interrupted. And as `SealedTable.read`.
        """
        if (place := self._parts.place) is None:
            raise UsageError("nobody knows where the table is", hint="open_table(path).erase(...)")
        how = {"decryption": self._parts.decryption, "follow_links": self._parts.follow_links, **options}
        erase = import_module("bloomseal.rotation.erase").erase  # as above
        return erase(place[0], where, filesystem=place[1], **how)
