"""``erase``: rows that a condition keeps are taken out of every file of a table that has some.

What is due is told by the files themselves: a run that was killed is the same call again, with the same condition. The
journal holds no condition and no value. It knows by a salted digest which rows of which files were chosen
(`Chosen.stamp`), so that a run that goes on with another condition is refused.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Unpack
from urllib.parse import unquote

from ..core.decryption import DecryptionSpec
from ..core.errors import UnsupportedError, UsageError
from ..core.spelling import need_known
from ..core.storage.ref import FileRef
from ..core.text import counted
from ..index.place import columns_in
from ..policy import PolicyChoice, TablePolicy
from ..read.open import open_file
from ..specs import resolve_policy
from ..storage.discovery.kinds import FileKind, is_of_index
from ..storage.discovery.tables import Places
from ..storage.logs.delta import DeltaLog
from ..storage.places import resolve_path
from ..table.changes import ErasureOptions
from ..table.open import open_whole
from ..table.row_numbers import row_numbers
from .candidates import need_compacted, need_no_log
from .delta import DeltaChange
from .erasure import Chosen, Erase, tidy_material
from .files import DataFile, find_files, mark_of, sized
from .indexes import CarriedOver
from .job import Progress
from .journal import Journal, default_journal
from .local import asked, digest_of, ready
from .outcome import FileOutcome, RotationReport, Status
from .run import Run
from .settings import Decryption

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_ELSEWHERE: Final = "backups, snapshots, and copies that --also did not name; freed blocks of the disk"
_ICEBERG: Final = "DELETE by the engine that writes the table, then expire_snapshots and remove_orphan_files"


@dataclass
class ErasureReport(RotationReport):
    """What an erasure did.

    Attributes:
        dry_run: nothing was written.
        remaining: what still holds the rows, or may, and what takes them out there.
    """

    dry_run: bool = False
    remaining: list[str] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Rows that are gone, or are to go."""
        return sum(one.rows for one in self.files if one.status.settled)

    def to_dict(self) -> dict[str, Any]:
        own = {"dry_run": self.dry_run, "rows": self.rows, "remaining": self.remaining}
        told = super().to_dict()
        return {"operation": told.pop("operation"), **own, **told}


def erase(
    paths: Places,
    where: Any,
    *,
    decryption: DecryptionSpec | PolicyChoice | None = None,
    policy: PolicyChoice | None = None,
    table: str | None = None,
    filesystem: FileSystem | None = None,
    follow_links: bool = False,
    **options: Unpack[ErasureOptions],
) -> ErasureReport:
    """Take the rows that a condition keeps out of a table, and out of copies of it; see `SealedTable.erase`.

    Args:
        paths: as for `open_table`.
        where: as `where` of `SealedTable.read`; or what makes that of the table's columns (its `leaves`).
        decryption, policy, table: as for `open_table`.

    Raises:
        As `SealedTable.erase`.
    """
    need_known("erase", options, ErasureOptions.__annotations__)  # a misspelt dry_run would erase
    if where is None:
        raise UsageError("a condition says which rows are erased", hint="email = 'x', for instance")
    opening = resolve_policy(DecryptionSpec, decryption, paths, filesystem, policy=policy, table=table)
    progress, job = options.get("progress"), Erase(opening)
    tables = [_Table(paths, opening, filesystem, follow_links)]
    tables += [_Table(one, _of_copy(opening, one), filesystem, follow_links) for one in options.get("also", ())]
    if callable(where):
        where = where(tables[0].table.leaves)
    for one in tables:
        job.chosen.update(one.chosen(where, progress))
    files = [one.file for one in job.chosen.values()]
    # What can't be done is said before any file is touched.
    why = {file.name: job.plan(file).why for file in files}
    if options.get("dry_run"):
        due = [
            FileOutcome(one.name, Status.DUE, why[one.name], old_size=one.size, rows=job.chosen[one.name].rows)
            for one in files
        ]
        return ErasureReport(job.operation, "", files=due, dry_run=True, remaining=_remaining(tables, bool(due)))
    places = [os.fspath(place) for table in tables for place in table.places]
    return _run(job, places, tables, files, options)


def _run(
    job: Erase, places: Sequence[str], tables: Sequence[_Table], files: Sequence[DataFile], options: ErasureOptions
) -> ErasureReport:
    began, digest = time.monotonic(), digest_of(places, job)
    journal = options.get("journal") or default_journal(job.operation, digest)
    with Journal(journal, job.operation, digest, restart=options.get("restart", False)) as log:
        known = {name: (file, table) for table in tables for name, file in table.files.items()}
        _need_same_rows(job, log, known)
        stamped = [name for name in log.stamps if name not in job.chosen]
        earlier = [name for name in stamped if _was_done(name, log, known)]
        resumed = bool(log.stamps)
        for file in files:
            one = job.chosen[file.name]
            mark = one.matched.mark or mark_of(file.ref)
            log.begin(file.name, mark, sync=False, stamp=one.stamp)
            log.begun[file.name] = list(mark or ())
        log.flush()
        # A file that is gone may have left a temporary one in its folder.
        every = [*(file for file, _ in known.values()), *(DataFile(FileRef(one), one, 0) for one in stamped)]
        with ready(job, every if resumed else files, options.get("patience", 300.0)):
            for table in tables:
                table.need_compacted()
            run = Run(job, log, sum(file.size for file in files), options.get("progress"))
            run.take_all(files, options.get("jobs", 2))
            run.report.files += [_finished(name, log, known.get(name)) for name in earlier]
            for table in tables:
                table.finish(resumed=resumed)
            run.touched |= bool(earlier)
            run.end()
    report = ErasureReport(**{**vars(run.report), "resumed": resumed})
    report.remaining = _remaining(tables, report.rows > 0)
    report.seconds = round(time.monotonic() - began, 3)
    report.kms = asked(job).to_dict() if job.tools() else {}
    return report


def _need_same_rows(job: Erase, log: Journal, known: dict[str, tuple[DataFile, _Table]]) -> None:
    """Refuse to call a run finished that was about other rows.

    Raises:
        UsageError: an interrupted run chose other rows of a file that is there as it was.
    """
    for name, mark in log.begun.items():
        if name not in known or list(mark_of(known[name][0].ref) or ()) != mark:
            continue  # done just before the interruption; or somebody else's file, which is looked at like all others
        if (stamp := log.stamps.get(name)) and (name not in job.chosen or job.chosen[name].stamp != stamp):
            raise UsageError(
                "an erasure of other rows was interrupted here, and is not finished",
                file=str(log.path),
                hint="its condition, to finish it first; or --restart, which gives it up",
            )


def _was_done(name: str, log: Journal, known: dict[str, tuple[DataFile, _Table]]) -> bool:
    """Whether the interrupted run has done the file: it has as many rows as were to be left. Somebody else may have
    written it anew, with rows of another condition still in it.
    """
    if name in log.done or name not in known:
        return name in log.done or not log.stamps[name].get("left")
    file, table = known[name]
    with open_file(file.ref, decryption=table.decryption) as opened:
        return bool(opened.num_rows == log.stamps[name].get("left"))


def _finished(name: str, log: Journal, found: tuple[DataFile, _Table] | None) -> FileOutcome:
    """A file that the interrupted run has done, perhaps without having booked it."""
    if found is not None:
        tidy_material(found[0].ref, found[1].decryption)
    if name in log.begun:
        log.settle(name, Status.ERASED, None, log.stamps[name])
    rows = int(log.stamps[name].get("rows", 0))
    return FileOutcome(name, Status.DONE_BEFORE, "done before the interruption", rows=rows)


def _of_copy(decryption: Decryption | None, place: str | os.PathLike[str]) -> Decryption | None:
    """AAD prefixes by place count from the copy's own folder."""
    if not isinstance(decryption, TablePolicy) or decryption.root is None:
        return decryption
    return decryption.at(place)


class _Table:
    """One of the tables that rows are taken out of.

    Attributes:
        table: open, with every file that anybody reads.
        files: by their names in the journal.
        indexes: what they are to be told.
        decryption: what opens its files.
        places: that were named.

    Raises:
        UnsupportedError: an Iceberg table.
        As `open_whole`, and `DeltaChange`.
    """

    def __init__(
        self, place: Places, decryption: Decryption | None, filesystem: FileSystem | None, follow_links: bool
    ) -> None:
        listed: Any = [place] if isinstance(place, str | os.PathLike) else place
        # Absolute: the journal outlives the working directory.
        self.places = [path if filesystem or "://" in os.fspath(path) else os.path.abspath(path) for path in listed]  # noqa: PTH100
        whole = self.places[0] if len(self.places) == 1 else self.places
        self.decryption, self.indexes = decryption, CarriedOver()
        self._filesystem, self._follow_links = filesystem, follow_links
        self.table, self._found = open_whole(whole, decryption, filesystem, follow_links=follow_links)
        need_no_log(one.ref for one in self._found.files)
        self._delta: DeltaChange | None = None
        for folder, log in self._found.logs.items():
            if not isinstance(log, DeltaLog):
                raise UnsupportedError("rows of an Iceberg table are not erased here", file=folder, hint=_ICEBERG)
            self._delta = DeltaChange(FileRef(folder, resolve_path(self.places[0], filesystem).filesystem))
        self._by_path = {one.ref.path: one for one in self._found.files}
        files = [DataFile(one.ref, one.relative, one.size or 0) for one in self._found.files]
        need_compacted(files, decryption)
        self.files = {file.name: file for file in files}

    def chosen(self, where: Any, progress: Progress | None) -> dict[str, Chosen]:
        """The files with rows that are to go, by their names."""
        chosen: dict[str, Chosen] = {}
        told = None if progress is None else lambda done, total: progress(int(done), total)
        for matched in row_numbers(self.table, where, told):
            found = self._by_path[self.table.files[matched.number]]
            file = sized(found) or DataFile(found.ref, found.relative, 0)
            new = file.ref if self._delta is None else self._delta.place(file.ref)
            chosen[file.name] = Chosen(file, self.decryption, matched, new, self._delta, self.indexes)
        return chosen

    def need_compacted(self) -> None:
        """A compaction may have been killed while the rows were looked for, and left a file that was not listed."""
        listed = {file.ref.path for file in self.files.values()}
        if all(file.ref.filesystem is None for file in self.files.values()):
            with contextlib.suppress(OSError):  # a folder that is gone meanwhile
                there = {one.path for folder in {*map(os.path.dirname, listed)} for one in os.scandir(folder)}
                if not any(path.endswith(".parquet") for path in there - listed):
                    return
        need_compacted(find_files(self.places, self._filesystem, follow_links=self._follow_links), self.decryption)

    def finish(self, *, resumed: bool) -> None:
        """When all files are done: the log, and then the indexes, which the run before may not have got to."""
        if self._delta is not None:
            self._delta.commit()
        for file in self.files.values() if resumed else ():
            self.indexes.touch(file.ref)
        if isinstance(self.decryption, TablePolicy):
            self.indexes.tell(self.decryption)

    def remaining(self, *, erased: bool) -> list[str]:
        """What still holds rows, or may."""
        told = []
        for root in sorted({file.ref.root for file in self.files.values() if file.ref.root is not None}):
            others = [one for one in self._found.others if one.ref.root == root and not is_of_index(one.relative)]
            # Leftovers of killed writers went with the files of their folders, where some were written anew.
            unread = (one for one in others if one.kind in (FileKind.HIDDEN, FileKind.LEFTOVER))
            hidden = sum(mark_of(one.ref) is not None for one in unread)
            dead = sum(one.kind is FileKind.DEAD for one in others)
            if self._delta is not None and (erased or dead):
                told.append(f"{root}: files of older versions of the Delta table: VACUUM, after its retention")
                told.append(f"{root}: their smallest and greatest values in its log: until delta.logRetentionDuration")
            if hidden:
                told.append(f"{root}: {counted(hidden, 'hidden file')} that no reader takes: nobody looked into them")
            for column in columns_in(root, self._found.files[0].ref.filesystem) if erased else ():
                update = "" if isinstance(self.decryption, TablePolicy) else "`bloomseal index update`, then "
                compact = f"`bloomseal index compact {root} --column {unquote(column)}`"
                told.append(f"{root}: keyed fingerprints in the index of {unquote(column)}: {update}{compact}")
        return told


def _remaining(tables: Sequence[_Table], erased: bool) -> list[str]:
    return [*(told for table in tables for told in table.remaining(erased=erased)), _ELSEWHERE]
