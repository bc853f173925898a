"""Small files of a table made into large ones, folder by folder: `SealedTable.compact`.

A new file takes its name before the files that it replaces go. Its footer names them, each with its authenticated
identity: so whoever compacts the table next, on any machine, ends what a killed run has begun. A journal would know of
it on one machine alone, and until then every row of those files is there twice.
"""

from __future__ import annotations

import contextlib
import json
import posixpath
import secrets
import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, Final, cast
from urllib.parse import unquote

from ..core.errors import BloomsealError, BloomsealWarning, FormatError, Hint, PolicyError, UnsupportedError
from ..core.parquet.layout import FileMeta
from ..core.parquet.walk import Walk
from ..core.storage.ref import FileRef
from ..core.storage.source import Source
from ..core.thrift import Struct
from ..format.verify import verify_walk
from ..index.place import columns_in
from ..keytools.material.store import tidy
from ..policy import TablePolicy
from ..sbbf import FilterSpec
from ..specs import EncryptionSpec, encryption_for
from ..storage.atomic import fault_point, storage_errors
from ..table.folder import folder_of
from ..table.open import open_table
from ..table.query.partitions import Partitions
from ..table.query.parts import TableParts
from ..table.query.workers import side_by_side
from ..table.report import CompactionReport
from ..table.scan import spare_descriptors
from ..table.sealed import SealedTable
from ..write.output_keys import OutputKeys, sealed_leaves
from ..write.writer import DEFAULT_ROW_GROUP_SIZE, FileWriter
from .candidates import RECORD, TOKEN, Candidate, Kind, Kinds, need_no_log
from .files import ChangedError, in_turn, need_unchanged, remove_unchanged
from .settings import Encryption

Progress = Callable[[int, int], None]

_ROW_GROUP_BYTES: Final = 128 << 20
_MOST_FILES: Final = 1000


def compact(
    parts: TableParts,
    encryption: Encryption | None,
    target_size: int,
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> CompactionReport:
    """See `SealedTable.compact`."""
    if parts.snapshot is not None:
        encrypts = parts.decryption is not None and parts.decryption.iceberg is not None
        raise UnsupportedError(
            "a table's log names its files, and compact does not commit to it",
            hint="rewrite_data_files in the engine of the table's catalog"
            if encrypts
            else "write its rows to a new table; the engine's own compaction would leave them in plaintext",
        )
    need_no_log(one.ref for one in parts.files)
    work = _Compaction(parts, encryption, target_size, dry_run, progress)
    work.run()
    return work.report


class _Compaction:
    """One table."""

    def __init__(
        self,
        parts: TableParts,
        encryption: Encryption | None,
        target: int,
        dry_run: bool,
        progress: Progress | None,
    ) -> None:
        self.report = CompactionReport(dry_run)
        self._parts, self._encryption, self._target = parts, encryption, target
        self._dry_run, self._progress = dry_run, progress
        self._kinds = Kinds(encryption or parts.decryption)
        self._done = self._total = 0

    def run(self) -> None:
        """Look at all files before the first is touched; then make one new file after the other."""
        if not self._dry_run:
            # Not at the end: what is left by then is of somebody who was killed since, see `_take_turn`.
            for folder in {posixpath.dirname(one.ref.path) for one in self._parts.files if one.ref.filesystem is None}:
                tidy(folder)
        seen = side_by_side(self._look, range(len(self._parts.files)), None)
        held = {(new.folder, name, identity) for new in seen for name, identity in new.replaces.items()}
        left = [one for one in seen if (one.folder, one.name, one.identity) not in held]
        self.report.left = {one.ref.path: one.why for one in left if one.why is not None}
        groups = self._groups([one for one in left if one.why is None and one.size <= self._target // 2])
        self._total = sum(one.size for group in groups for one in group)
        for one in seen:
            if (one.folder, one.name, one.identity) in held:
                self._finish(one)
        for group in groups:
            try:
                self._merge(group)
            except BloomsealError as error:
                self.report.failed[group[0].ref.path] = str(error)
            self._done += sum(one.size for one in group)
            self._tell(0)
        if not self._dry_run:
            self._update_indexes(seen)

    def _look(self, number: int) -> Candidate:
        with self._parts.open(number) as file:
            return self._kinds.look(self._parts.files[number], file)

    def _groups(self, files: Sequence[Candidate]) -> list[list[Candidate]]:
        """What becomes one file, each in the order of the table."""
        alike: dict[Hashable, list[list[Candidate]]] = {}
        most, data = min(_MOST_FILES, spare_descriptors()), 0
        for one in files:
            batches = alike.setdefault(one.alike, [[]])
            data = sum(other.data for other in batches[-1]) + one.data
            if batches[-1] and (data > self._target or len(batches[-1]) >= most):
                batches.append([])
            batches[-1].append(one)
        return [batch for batches in alike.values() for batch in batches if len(batch) > 1]

    def _finish(self, old: Candidate) -> None:
        """Remove a file whose rows another one holds: an earlier run was killed before it did so."""
        try:
            if not self._dry_run:
                with in_turn(old.ref):
                    self._remove(old)
            self.report.finished.append(old.ref.path)
        except BloomsealError as error:
            self.report.failed[old.ref.path] = str(error)

    def _merge(self, group: Sequence[Candidate]) -> None:
        """One new file."""
        first, rows, size = group[0], sum(one.rows for one in group), sum(one.size for one in group)
        stem = TOKEN.sub("", first.name.removesuffix(".parquet"))
        place = replace(first.ref, path=f"{first.folder}/{stem}-{secrets.token_hex(8)}.parquet", fresh=True)
        told = {"output": place.path, "files": [one.ref.path for one in group], "rows": rows, "old_size": size}
        kind = cast(Kind, self._kinds.known[first.alike])
        arguments = _arguments(kind, group, place)
        if self._dry_run:
            self.report.files.append(told)
            keys = OutputKeys(arguments["encryption"], kind.leaves, place)
            keys.confirm()
            keys.discard()
            return
        files = [one.found for one in group]
        parts = TableParts(files, Partitions({}), None, self._parts.decryption, self._parts.follow_links)
        with contextlib.ExitStack() as turn, _MergedFile(place, **arguments, check_keys=True) as writer:
            writer.replaces(group)
            written = 0
            for batch in SealedTable(parts, use_index="never").scan_in(kind.schema):
                writer.write_batch(batch)
                written += batch.num_rows
                self._tell(size * written // rows)
            if written != rows:
                raise FormatError(f"{written} rows where the footers tell of {rows}", file=first.ref.path)
            writer.before_name = lambda: _take_turn(turn, group)
            writer.close()
            fault_point("compact placed")
            self.report.files.append({**told, "new_size": writer.bytes_written, "signed_by": writer.signed_by})
            for one in group:
                self._remove(one)
                fault_point("compact removed")

    def _remove(self, old: Candidate) -> None:
        with storage_errors("remove the old file", old.ref.path):
            if not remove_unchanged(old.ref, old.mark):
                self.report.kept.append(old.ref.path)

    def _tell(self, more: int) -> None:
        if self._progress is not None:
            self._progress(self._done + more, self._total)

    def _update_indexes(self, seen: Sequence[Candidate]) -> None:
        """Cover the new files, and forget the old ones. Until then the new files' own filters are asked."""
        sealing = next((kind.sealing for kind in self._kinds.known.values() if isinstance(kind, Kind)), None)
        for root, ref in {one.ref.root: one.ref for one in seen if one.ref.root is not None}.items():
            for column in map(unquote, columns_in(root, ref.filesystem)):
                try:
                    table = open_table(root, filesystem=ref.filesystem, decryption=self._parts.decryption)
                    index = table.index(column, encryption=sealing)
                    self.report.indexes[column] = index.update()
                    index.compact()
                except BloomsealError as error:
                    told = f"{root}: the index of {column} is not up to date: {error.what}"
                    warnings.warn(told, BloomsealWarning, stacklevel=4)


class _MergedFile(FileWriter):
    """A new file, all of whose modules are opened before it gets its name.

    Attributes:
        before_name: called last.
    """

    before_name: Callable[[], None]

    def replaces(self, group: Sequence[Candidate]) -> None:
        """Name the files that it replaces in the footer, and itself: whoever seals a plaintext file, or copies this
        one's metadata, gives the new one another identity, and so no right to have files removed.
        """
        assert self._keys is not None  # noqa: S101
        files = {one.name: one.identity.hex() for one in group}
        pair, footer = Struct(), self._template.struct
        pair.set_binary(1, RECORD)
        pair.set_binary(2, json.dumps({"file": self._keys.crypto.aad_unique.hex(), "files": files}).encode())
        footer.set_list(FileMeta.KEY_VALUE, [*footer.elements(FileMeta.KEY_VALUE), pair.to_bytes()])

    def _check(self, reopened: Source) -> Walk:
        walk = super()._check(reopened)
        report = verify_walk(walk)
        if report.failures:
            raise report.failures[0]
        if report.inaccessible:
            raise PolicyError("a column of the new file does not open", column=next(iter(report.inaccessible)))
        self.before_name()
        return walk


def _arguments(kind: Kind, group: Sequence[Candidate], place: FileRef) -> dict[str, Any]:
    """Of the writer of a new file."""
    rows = sum(one.rows for one in group)
    filters = dict.fromkeys((name for one in group for name in sorted(one.filters)), FilterSpec())
    if isinstance(kind.sealing, TablePolicy):
        filters |= {name: spec for name, spec in kind.sealing.bloom_filters().items() if kind.leaves.has(name)}
    per_row = max(sum(one.decoded for one in group) // rows, 1)
    return {
        "schema": kind.schema,
        "encryption": _encryption(kind, set().union(*(one.sealed for one in group)), place),
        "bloom_filters": filters,
        "row_group_size": min(DEFAULT_ROW_GROUP_SIZE, max(_ROW_GROUP_BYTES // per_row, 1)),
        **kind.options,
    }


def _encryption(kind: Kind, sealed: set[str], place: FileRef) -> EncryptionSpec:
    """What seals a new file, which may lack columns that a policy names.

    Raises:
        PolicyError: a column that is sealed would be in plaintext.
    """
    spec = encryption_for(kind.sealing, place)
    if spec.column_keys:
        keys = {name: key for name, key in spec.column_keys.items() if kind.leaves.has(name)}
        spec = replace(spec, column_keys=keys or None)  # without any, all columns are under the footer key
    if bare := sealed - {leaf.name for leaf in sealed_leaves(spec, kind.leaves)}:
        raise PolicyError(
            "the column is sealed, and would be in plaintext", file=place.path, column=min(bare), hint=Hint.ENCRYPTION
        )
    return spec


def _take_turn(turn: contextlib.ExitStack, group: Sequence[Candidate]) -> None:
    """Keep rotations away from the old files, which are what they were when they were read.

    Raises:
        ChangedError: a rotation or a compaction is at work on one, has been, or was killed.
    """
    folder = group[0].folder
    if group[0].ref.filesystem is None:
        with storage_errors("lock the files", folder):
            here = turn.enter_context(folder_of(group[0].ref))
            for one in group:
                try:
                    left = turn.enter_context(here.locked(f"{one.name}.turn", patience=0))
                except TimeoutError:
                    raise ChangedError("a rotation is at work on the file", file=one.ref.path) from None
                if left:  # by a compaction perhaps, whose new file holds these rows
                    raise ChangedError("whoever was at work on the file was killed: begin again", file=one.ref.path)
    for one in group:
        need_unchanged(one.ref, one.mark)
