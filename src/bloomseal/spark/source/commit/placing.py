"""Two-phase commit of a job's files: sealed aside, planned in one step, then moved into place.

::

    TABLE/_bloomseal_temporary/JOB/ATTEMPT/[a=1/]part-….parquet     tasks write here; nothing is visible yet
    TABLE/_bloomseal_temporary/JOB/plan.json                       the point of no return: what comes and goes (`plan`)
    TABLE/[a=1/]part-….parquet                                     moved one by one; then the old ones are removed
    TABLE/_SUCCESS                                                 gone from the plan on, back when all is done

Before the plan a job leaves no trace once its folder is removed. From the plan on it only goes forward: every step can
be repeated, so that whoever finds the plan of a job that died finishes it (`recover`, which each commit begins with).

Others may write to the table's folder too. A plan is believed only where a writer of the table has made it, and on this
machine's file systems no link below the table is followed (`linkless`): a link is removed or refused as what it is.
Object stores have none.
"""

from __future__ import annotations

import contextlib
import posixpath
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from ....core.errors import BloomsealError, UsageError
from ....core.storage.ref import FileRef
from ....keytools.material.store import MaterialStore, tidy
from ....storage.atomic import fault_point
from ....storage.objects import NO_MARKERS, put_in_place
from ...listing import is_hidden, open_filesystem, split_uri
from .linkless import LinklessFolder
from .plan import MAX_PLAN_BYTES, Plan

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem

    from ....policy import TablePolicy

__all__ = ["ABANDONED", "TEMPORARY", "Job", "Staged", "TableFolder", "jobs_in", "recover"]

TEMPORARY: Final = "_bloomseal_temporary"
ABANDONED: Final = timedelta(hours=24)
"""A job that has written nothing for so long, and has no plan, is taken for dead."""
_PLAN: Final = "plan.json"
_SUCCESS: Final = "_SUCCESS"
_REMOVALS, _BETWEEN_REMOVALS = 10, 0.1
"""Attempts to remove a folder, and seconds between them."""


@dataclass(frozen=True, slots=True)
class Staged:
    """A complete file that waits in the job's folder.

    Attributes:
        attempt: the folder of the task attempt that wrote it.
        name: its path below the table when it is in place.
        size: bytes.
    """

    attempt: str
    name: str
    size: int


@dataclass(frozen=True)
class TableFolder:
    """A table's folder, the same for driver and executors.

    Attributes:
        base: URI of its file system; None: local.
        folder: its path on it.
    """

    base: str | None
    folder: str

    @classmethod
    def at(cls, path: str) -> TableFolder:
        """The folder at a local path or URI; a relative path is resolved here, on the driver.

        Raises:
            UsageError: a file system that can't be opened.
        """
        return cls(*split_uri(path))

    @property
    def local(self) -> LinklessFolder | None:
        """The folder, if it is on this machine."""
        return LinklessFolder(self.folder) if self.base is None else None

    @property
    def filesystem(self) -> FileSystem:
        """Its file system; a local one reaches nothing outside the folder, and follows no link in it."""
        found = open_filesystem(self.base) if self.local is None else self.local.filesystem
        assert found is not None  # noqa: S101  # there is a base
        return found

    def path(self, *parts: str) -> str:
        return posixpath.join(self.folder, *filter(None, parts))

    def make_folder(self, path: str, *, below: str | None = None) -> None:
        """Object stores need none, and would keep an empty object for it.

        Args:
            below: a folder above it that must be there.

        Raises:
            FileNotFoundError: it is not.
        """
        if self.filesystem.type_name in NO_MARKERS:
            return
        if below is None:
            self.filesystem.create_dir(path, recursive=True)
            return
        for part in posixpath.relpath(path, below).split("/"):
            below = posixpath.join(below, part)
            self.filesystem.create_dir(below, recursive=False)

    def files(self, *below: str) -> list[str]:
        """Visible files of the table, as paths below it, in no order. A link is one, too: readers would follow it."""
        found = _entries(self, self.path(*below))
        names = [posixpath.relpath(one.path, self.folder) for one in found if _is_leaf(one)]
        return [name for name in names if not is_hidden(name)]

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """One commit at a time, from its look at the files that it replaces to its end: of two overwrites the later one
        replaces the earlier one's files, too. Object stores have no locks, and let everybody in. The caller's job has a
        folder.

        Raises:
            BloomsealError: others on this machine have been at it for a minute.
        """
        with contextlib.ExitStack() as held:
            if self.local is not None:
                with self.errors("wait for other writers of the table"):
                    held.enter_context(self.local.locked(self.path(TEMPORARY)))
            yield

    @contextlib.contextmanager
    def errors(self, doing: str) -> Iterator[None]:
        """The storage's errors as ours."""
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error).splitlines()[0][:200] or type(error).__name__
            named = isinstance(error.filename, str) and error.filename.startswith(f"{self.folder}/")
            raise BloomsealError(f"can't {doing}: {reason}", file=error.filename if named else self.folder) from None


@dataclass(frozen=True)
class Job:
    """One write to a table. It travels to the executors.

    Attributes:
        table: the table's folder.
        name: no other job's.
        policy: whose footer key plans are under. It holds no key.
    """

    table: TableFolder
    name: str
    policy: TablePolicy

    @property
    def folder(self) -> str:
        return self.table.path(TEMPORARY, self.name)

    def begin(self) -> None:
        """Make the job's folder, on the driver. Its tasks don't: one that is cancelled too late would make it again
        after `abort`.
        """
        with self.table.errors("make a folder"):
            self.table.make_folder(self.folder)

    def commit(self, files: Sequence[Staged], replaced: Iterable[str]) -> None:
        """Put the files into place, then remove those that they replace.

        Args:
            files: of committed attempts only; what other attempts left goes with the job's folder.
            replaced: visible files, as paths below the table.

        Raises:
            BloomsealError: a file is not there as it was written, or a link is where a file is to go; nothing has
                changed then. Or the storage failed on the way: the next write to the table goes on from there.
            KeyAccessError: the table's footer key can't be used; nothing has changed.
        """
        if any(file.name in replaced for file in files):
            raise UsageError("a new file has the name of one that it replaces", file=self.table.folder)
        with self.table.errors("look at the files just written"):
            self._check(files)
        plan = Plan(
            tuple((posixpath.join(file.attempt, file.name), file.name) for file in files), tuple(sorted(replaced))
        )
        stored = plan.sealed(self.policy, self.name)
        fault_point("staged")
        with self.table.errors("write the commit's plan"):
            self.table.make_folder(self.folder)
            _write(self.table, posixpath.join(self.folder, _PLAN), stored)
        fault_point("planned")
        self._carry_out(plan)

    def abort(self) -> None:
        """Leave no trace. A job whose plan stands can't go back any more: it is left to the next write."""
        with self.table.errors("remove the job's folder"):
            if not self._has_plan():
                self._remove_folder()

    def finish(self) -> bool:
        """Carry out the plan that a dead job left; False where there is none.

        Raises:
            FormatError, IntegrityError, KeyAccessError, PolicyError: as `Plan.opened`. Nothing has changed.
        """
        path = posixpath.join(self.folder, _PLAN)
        try:
            with self.table.filesystem.open_input_file(path) as stream:
                text = stream.read(min(stream.size(), MAX_PLAN_BYTES + 1))
        except FileNotFoundError:
            return False
        self._carry_out(Plan.opened(text, self.policy, self.name, path))
        return True

    def _check(self, files: Sequence[Staged]) -> None:
        if not files:
            return
        paths = [posixpath.join(self.folder, file.attempt, file.name) for file in files]
        for file, info in zip(files, self.table.filesystem.get_file_info(paths), strict=True):
            if not info.is_file or info.size != file.size:
                raise BloomsealError(
                    "a file just written is gone or has changed",
                    file=info.path,
                    hint=f"nothing else may tidy up below {TEMPORARY}",
                )
        if self.table.local is not None:
            # Before the plan stands, while there is a way back: it raises where a link is in the way.
            self.table.local.get_file_info([self.table.path(file.name) for file in files])

    def _carry_out(self, plan: Plan) -> None:
        """Every step may have been done before, by a job that died or by another one that finds the plan at this
        moment.
        """
        table = self.table
        with table.errors("put the new files into place; the next write to the table goes on"):
            _delete(table, _SUCCESS)
            for folder in sorted({posixpath.dirname(name) for _, name in plan.files}):
                table.make_folder(table.path(folder))
            for staged, name in plan.files:
                source = posixpath.join(self.folder, staged)
                # Key material first: a file without it can't be read.
                _move(table, MaterialStore(FileRef(source)).path, MaterialStore(FileRef(table.path(name))).path)
                _move(table, source, table.path(name))
                fault_point("moved")
            for name in plan.replaced:
                _delete(table, name)
                _delete(table, MaterialStore(FileRef(name)).path)
                if table.base is None:
                    _delete(table, _checksum(name))
                fault_point("removed")
            _remove_empty_folders(table, {posixpath.dirname(name) for name in plan.replaced})
            _write(table, table.path(_SUCCESS), b"")
            fault_point("successful")
            self._remove_folder()

    def _has_plan(self) -> bool:
        return _is_leaf(self.table.filesystem.get_file_info(posixpath.join(self.folder, _PLAN)))

    def _remove_folder(self) -> None:
        # Tasks that were cancelled may go on for a moment: a file that comes while its folder is emptied stops the
        # removal.
        for attempt in range(_REMOVALS):
            try:
                self.table.filesystem.delete_dir(self.folder)
                break
            except FileNotFoundError:
                break
            except OSError:
                if attempt + 1 == _REMOVALS:
                    raise
                time.sleep(_BETWEEN_REMOVALS)
        _remove_empty_folders(self.table, {TEMPORARY})


def jobs_in(table: TableFolder) -> list[str]:
    """The jobs whose folders are there, at work or dead."""
    with table.errors("look for jobs"):
        return [
            info.base_name for info in _entries(table, table.path(TEMPORARY), recursive=False) if not _is_leaf(info)
        ]


def recover(table: TableFolder, policy: TablePolicy, now: datetime | None = None) -> list[str]:
    """Finish what jobs that died had planned, and remove what others left that never came so far.

    Jobs at work are not disturbed: one that carries out its plan at this moment is helped, and one without a plan is
    taken for dead only if it has written nothing for `ABANDONED`.

    Returns:
        The jobs that were finished or removed.

    Raises:
        BloomsealError: the storage failed.
        FormatError, IntegrityError, KeyAccessError, PolicyError: a plan that is not one of a writer of this table, or
            whose key can't be had.
    """
    now = now or datetime.now(UTC)
    done = []
    if table.local is not None:
        tidy(table.folder)
    with table.errors("look for jobs that died"):
        for info in _entries(table, table.path(TEMPORARY), recursive=False):
            job = Job(table, info.base_name, policy)
            if _is_leaf(info):
                continue
            inside = _entries(table, job.folder)
            if job.finish():
                done.append(job.name)
            elif all(_age(one, now) > ABANDONED for one in [info, *inside]):
                job.abort()
                done.append(job.name)
    return done


def _age(info: FileInfo, now: datetime) -> timedelta:
    # Folders of object stores have no time; their files do.
    return timedelta.max if info.mtime is None else now - info.mtime


def _entries(table: TableFolder, folder: str, *, recursive: bool = True) -> list[FileInfo]:
    from pyarrow.fs import FileSelector

    found: list[FileInfo] = table.filesystem.get_file_info(
        FileSelector(folder, allow_not_found=True, recursive=recursive)
    )
    return found


def _move(table: TableFolder, source: str, target: str) -> None:
    filesystem = table.filesystem
    try:
        filesystem.move(source, target)
    except OSError:
        # Done before, or there was none (key material inside the files).
        if _is_leaf(filesystem.get_file_info(source)):
            raise


def _delete(table: TableFolder, name: str) -> None:
    path = table.path(name)
    try:
        table.filesystem.delete_file(path)
    except OSError:
        if _is_leaf(table.filesystem.get_file_info(path)):
            raise


def _is_leaf(info: FileInfo) -> bool:
    """A file, or what stands in the place of one: a link, a pipe."""
    from pyarrow.fs import FileType

    return info.type not in (FileType.NotFound, FileType.Directory)


def _remove_empty_folders(table: TableFolder, names: Iterable[str]) -> None:
    """Local ones only: elsewhere a folder can't be removed without what somebody else has just put there."""
    if (local := table.local) is None:
        return
    for name in sorted(names, reverse=True):
        while name:
            try:
                local.remove_empty_folder(table.path(name))
            except OSError:
                break
            name = posixpath.dirname(name)


def _write(table: TableFolder, path: str, data: bytes) -> None:
    if table.local is not None:
        table.local.replace(path, data)
        return
    put_in_place(table.filesystem, path, data)


def _checksum(name: str) -> str:
    """Where Hadoop keeps the checksums of a local file."""
    return posixpath.join(posixpath.dirname(name), f".{posixpath.basename(name)}.crc")
