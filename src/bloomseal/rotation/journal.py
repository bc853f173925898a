"""The journal: what a run has done, one JSON object per line. That a file is begun is on the disk before it is touched.

::

    {"event": "start", "version": 1, "operation": "rekey", "job": "<digest>", "user": "etl", "host": "etl-3", ...}
    {"event": "begin", "file": "/data/t/0.parquet", "mark": [...], "at": "...", "chain": "<SHA-256 of the line above>"}
    {"event": "done", "file": "/data/t/0.parquet", "status": "rekeyed", "keys": [...], "signed_by": "ops", ...}
    {"event": "failed", "file": "/data/t/1.parquet", "why": "...", ...}
    {"event": "resume", "user": "etl", "host": "etl-4", ...}
    {"event": "end", ...}

It holds paths, names and versions of master keys before and after, who signed the new file, and what went wrong, never
a key or a wrapped one. A last line that a crash has cut off is dropped.

Each line holds the digest of the one before, so that none is altered, taken out or put in between without a trace.
Lines that are cut off at the end leave none: who wants to notice that keeps the last digest elsewhere (an evidence
bundle does).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from .._ownership import home
from ..core.errors import BloomsealError, FormatError, Hint, PolicyError, UsageError
from ..core.forked import new_lock
from ..core.storage.local import read_open
from ..keytools.access_log import host_name, user_name
from ..storage.folder import Folder

_VERSION: Final = 1
_START: Final = b'{"event": "start", '
_LONGEST: Final = 1 << 30
_OF_KEYS: Final = ("column", "master_key", "version", "new_master_key", "new_version")
_NO_LINE: Final = "0" * 64

Mark = tuple[int, ...]
"""What tells a file from another one that takes its place."""


def job_digest(operation: str, facts: Mapping[str, Any], places: Iterable[str]) -> str:
    """What tells one job from another: its operation, its settings (no secrets among them) and the paths it was
    given.
    """
    told = json.dumps([operation, facts, sorted(places)], sort_keys=True, default=str)
    return hashlib.sha256(told.encode()).hexdigest()[:32]


def default_journal(operation: str, digest: str) -> Path:
    """``$XDG_STATE_HOME/bloomseal/rotation/<operation>-<job>.jsonl``, where the state home is by default
    ``~/.local/state``.

    Raises:
        UsageError: this user has no home.
    """
    try:
        state = os.environ.get("XDG_STATE_HOME") or home() / ".local" / "state"
    except OSError as error:
        raise UsageError(f"there is no place for the journal: {error.strerror}", hint=Hint.JOURNAL) from None
    return Path(state) / "bloomseal" / "rotation" / f"{operation}-{digest[:12]}.jsonl"


class Chain:
    """A journal's lines, each the successor of the one before; one by one, since there may be a hundred thousand.

    Attributes:
        count: how many were taken.
        first: the index of the first line that is chained; None where none is: an older version's journal.
        head: the digest of the last line.
    """

    def __init__(self) -> None:
        self.first: int | None = None
        self.head = _NO_LINE
        self.count = 0

    def take(self, line: bytes) -> dict[str, Any]:
        """What the next line tells, which is given with its end.

        Raises:
            FormatError: no line of a journal; or a line was altered, taken out or put in.
        """
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            event = None
        if not isinstance(event, dict) or (self.count == 0) != (event.get("event") == "start"):
            raise FormatError("not a rotation's journal")
        chain = event.get("chain")
        if (chain is None and self.first is not None) or (chain is not None and chain != self.head):
            raise FormatError(f"the journal was altered at line {self.count + 1}, or just before it")
        if chain is not None and self.first is None:
            self.first = self.count
        self.head, self.count = _digest(line), self.count + 1
        return event


class NoJournal:
    """What is booked of a run, where nothing is written: its driver books it.

    Attributes:
        done: file → mark and stamp, for those that were finished.
        begun: files that were begun and not finished, with the mark that they had.
        stamps: files that the unfinished run has begun, also those that it has finished, with what was booked of them.
        finished: the moment at which an earlier run has done everything; None where something is left to do.
        resumed: there was a journal of this job already.
    """

    def __init__(self, path: Path = Path()) -> None:  # it has no state
        self.path = path
        self.done: dict[str, tuple[list[int] | None, dict[str, Any]]] = {}
        self.begun: dict[str, list[int] | None] = {}
        self.stamps: dict[str, dict[str, Any]] = {}
        self.finished: str | None = None
        self.resumed = False

    def begin(self, file: str, mark: Mark | None, *, sync: bool = True, stamp: Mapping[str, Any] | None = None) -> None:
        """A file is about to be touched; without `sync`, after the next `flush`.

        Args:
            stamp: what a run that goes on is to know of it.
        """
        told = {} if stamp is None else {"stamp": stamp}
        self._write(sync=sync, event="begin", file=file, mark=mark, **told)

    def settle(
        self,
        file: str,
        status: str,
        mark: Mark | None,
        stamp: Mapping[str, Any],
        keys: Sequence[Mapping[str, Any]] = (),
        signed_by: str | None = None,
    ) -> None:
        """A file is as it is to be; `stamp` says for how long (`Job.still_good`), `keys` which master keys and versions
        wrapped its keys before and wrap them now (`FileOutcome.keys`), `signed_by` who answers for it from now on.

        It gets to the disk with whatever is booked next. Lost before that, the file counts as begun, and is looked at
        again.
        """
        told = [{name: key.get(name) for name in _OF_KEYS} for key in keys]
        by = {} if signed_by is None else {"signed_by": signed_by}
        self._write(sync=False, event="done", file=file, status=status, mark=mark, stamp=stamp, keys=told, **by)

    def fail(self, file: str, why: str) -> None:
        """A file is as it was; a resumed run tries it again."""
        self._write(event="failed", file=file, why=why)

    def end(self) -> None:
        """Nothing is left to do."""
        self._write(event="end")

    def flush(self) -> None:
        """Whatever was booked is on the disk when this returns."""

    def _write(self, *, sync: bool = True, **event: Any) -> None:
        pass


class Journal(NoJournal):
    """An open journal; one process at a time has it.

    Args:
        path: the file; made where there is none, along with its folder. Its word is believed: nobody else may be able
            to write to it, or to put another file in its place.
        operation, digest: of the job (`job_digest`); a journal of another job is refused.
        restart: put an earlier journal aside, under a name with its date, and begin anew.

    Raises:
        UsageError: another job's journal, another process has it open, somebody else could have written it or could
            exchange it, or the place can't be written to.
        FormatError: no journal, or one that was altered since it was written.
    """

    def __init__(self, path: str | os.PathLike[str], operation: str, digest: str, *, restart: bool = False) -> None:
        super().__init__(Path(path))
        self._lock = new_lock()
        self._last = _NO_LINE
        self._told_who = False
        with contextlib.ExitStack() as held:
            try:
                self._file = self._opened(held, restart=restart)
                self._read(operation, digest)
            except TimeoutError:
                raise UsageError("another run has the journal open", file=str(self.path), hint="wait for it") from None
            except OSError as error:
                raise self._refused(error) from None
            except PolicyError as error:
                raise UsageError(
                    f"others could have written the journal, or could exchange it: {error.what}",
                    file=str(self.path),
                    hint=Hint.JOURNAL,
                ) from None
            self._held = held.pop_all()

    def flush(self) -> None:
        """Whatever was booked is on the disk when this returns."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._unwritten(error) from None

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.fsync(self._file.fileno())
        self._held.close()

    def _opened(self, held: contextlib.ExitStack, *, restart: bool) -> io.FileIO:
        """The file, which nobody else has open."""
        folder = held.enter_context(Folder.own(self.path.parent, shared=True))
        name = self.path.name
        held.enter_context(folder.locked(name, patience=0))
        if restart and (status := folder.stat(name)) is not None and status.st_size:
            aside = f"{name}.{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
            os.rename(name, aside, src_dir_fd=folder.fd, dst_dir_fd=folder.fd)
        return held.enter_context(io.FileIO(folder.open_own(name, os.O_RDWR | os.O_CREAT), "r+"))

    def _refused(self, error: OSError) -> UsageError:
        return UsageError(f"the journal can't be opened: {error.strerror}", file=str(self.path), hint=Hint.JOURNAL)

    def _read(self, operation: str, digest: str) -> None:
        data = read_open(self._file.fileno(), _LONGEST)
        if len(data) > _LONGEST:
            raise FormatError(f"a journal of more than {_LONGEST} bytes", file=str(self.path), hint="--restart")
        whole = data.rfind(b"\n") + 1
        lines = data[:whole].splitlines(keepends=True)
        chain = Chain()
        try:
            start, *events = map(chain.take, lines) if lines else [{"version": _VERSION}]
        except FormatError as error:
            raise error.at(file=str(self.path)) from None
        # Whatever else it is stays whole; of a journal a crash may have left the beginning of the first line only.
        begun = lines or data.startswith(_START) or _START.startswith(data)
        if not begun or start.get("version") != _VERSION:
            raise FormatError("not a rotation's journal", file=str(self.path))
        if whole < len(data):
            # A crash has cut the last line off; left in place, the next one would run into it.
            self._file.truncate(whole)
        self._file.seek(whole)
        if not lines:
            self._told_who = True
            self._write(
                event="start", version=_VERSION, operation=operation, job=digest, user=user_name(), host=host_name()
            )
            return
        self._last = chain.head
        self.resumed = True
        if start.get("operation") != operation or start.get("job") != digest:
            raise UsageError(
                f"the journal belongs to another job ({start.get('operation')})",
                file=str(self.path),
                hint="the same paths and options as then, or another --journal, or --restart",
            )
        for event in events:
            self._take(event)

    def _take(self, event: dict[str, Any]) -> None:
        file = str(event.get("file"))
        self.finished = None
        match event.get("event"):
            case "begin":
                self.begun[file] = event.get("mark")
                self.stamps[file] = event.get("stamp") or {}
            case "done":
                self.begun.pop(file, None)
                self.done[file] = event.get("mark"), event.get("stamp") or {}
            case "end":
                self.finished = str(event.get("at"))
                self.stamps.clear()

    def _write(self, *, sync: bool = True, **event: Any) -> None:
        try:
            with self._lock:
                if not self._told_who:
                    # Somebody goes on with what another run has begun; not before there is something to do.
                    self._told_who = True
                    self._put(event="resume", user=user_name(), host=host_name())
                self._put(**event)
            if sync:
                os.fsync(self._file.fileno())
        except OSError as error:
            raise self._unwritten(error) from None

    def _unwritten(self, error: OSError) -> BloomsealError:
        return BloomsealError(f"the journal can't be written: {error.strerror}", file=str(self.path))

    def _put(self, **event: Any) -> None:
        """A line behind the last one, whose digest it bears."""
        event |= {"at": _now(), "chain": self._last}
        # Names that are no text hold surrogates, which JSON writes just as Python replaces them.
        line = json.dumps(event, ensure_ascii=False).encode(errors="backslashreplace") + b"\n"
        end = self._file.tell()
        if self._file.write(line) < len(line):
            # A full disk takes the part that fits, and the next line would run into it.
            self._file.truncate(end)
            self._file.seek(end)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._last = _digest(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
