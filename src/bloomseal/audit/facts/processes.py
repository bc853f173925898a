"""Many files looked at without keys, by as many processes as there are cores: threads of one would wait for each other.

No key is ever sent: paths and AAD prefixes go there, and `FileFacts` come back. A process is started by its own command
line, not by `multiprocessing`, which would run a caller's script again that has no ``if __name__ == "__main__"``.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from ...core.storage.ref import FileRef
from .files.file import FileFacts, FilterCheck
from .files.scan import Scanner
from .keys import SidecarView

__all__ = ["FEW_FILES", "Stripped", "scan_all", "stripped", "whole"]

FEW_FILES: Final = 4_000
"""Below that, processes take longer to start than they save."""
_BATCH: Final = 200
_MOST_PROCESSES: Final = 8
_COMMAND: Final = "import sys; sys.path[:] = sys.argv[1:]; from bloomseal.audit.facts.processes import main; main()"

Stripped = tuple[FileFacts, set[str] | None]


def scan_all(scanner: Scanner, files: Sequence[FileRef], filters: FilterCheck) -> Iterator[FileFacts]:
    """The facts of each file, in the order given; nothing is opened by a key.

    Args:
        scanner: of this process, without keys. It looks at few files, at those that are not local, and at those whose
            process has died.
        filters: as of `Scanner`.
    """
    count = min(_cores(), _MOST_PROCESSES)
    if count < 2 or len(files) < FEW_FILES or any(ref.filesystem is not None for ref in files):
        yield from map(scanner.scan, files)
        return
    batches = [files[start : start + _BATCH] for start in range(0, len(files), _BATCH)]
    with contextlib.ExitStack() as started:
        processes = [started.enter_context(_Process()) for _ in range(count)]
        for number, process in enumerate(processes):
            mine = batches[number::count]
            process.send([[(ref.path, scanner.prefixes(ref)) for ref in batch] for batch in mine], filters)
        for number, batch in enumerate(batches):
            found = processes[number % count].answer()
            if found is None:
                yield from map(scanner.scan, batch)
            else:
                yield from map(whole, found, batch)


def stripped(facts: FileFacts) -> Stripped:
    """What may leave the process: entries beside a file are wrapped keys, and a file system may hold credentials."""
    used = None if facts.sidecar is None else facts.sidecar.used
    facts.ref, facts.sidecar = FileRef(facts.path), None
    return facts, used


def whole(told: Stripped, ref: FileRef) -> FileFacts:
    """The facts again, about the file as it is called here."""
    facts, used = told
    facts.ref = ref
    if used is not None:
        facts.sidecar = SidecarView(ref)
        facts.sidecar.used.update(used)
    return facts


class _Process:
    """One process that looks at files: its batches go in once, and an answer comes out for each."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        with contextlib.suppress(OSError):
            self._child = subprocess.Popen(  # noqa: S603  # ourselves
                [sys.executable, "-I", "-c", _COMMAND, *sys.path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )

    def send(self, batches: list[list[tuple[str, tuple[bytes, ...]]]], filters: FilterCheck) -> None:
        """The paths and AAD prefixes of all that it is to look at."""
        if self._child is not None and self._child.stdin is not None:
            with contextlib.suppress(OSError):
                pickle.dump((filters, batches), self._child.stdin)
                self._child.stdin.close()

    def answer(self) -> list[Stripped] | None:
        """The facts of its next batch; None where it has died."""
        if self._child is None or self._child.stdout is None:
            return None
        try:
            found: list[Stripped] = pickle.load(self._child.stdout)  # noqa: S301  # our own child's
        except (OSError, EOFError, pickle.UnpicklingError):
            self.__exit__()
            return None
        return found

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *_: object) -> None:
        """End it, whatever it does."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            for stream in (child.stdin, child.stdout):
                with contextlib.suppress(OSError):
                    stream.close()  # type: ignore[union-attr]  # both are pipes
            child.wait()


def main() -> None:
    """The process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it ends it
    outgoing = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else is printed is no answer
    filters, batches = pickle.load(sys.stdin.buffer)  # noqa: S301  # from whoever started it
    gc.freeze()  # nothing that is there by now goes
    known: dict[str, tuple[bytes, ...]] = {}
    scanner = Scanner(filters=filters, prefixes=lambda ref: known[ref.path])
    for batch in batches:
        known = dict(batch)
        pickle.dump([stripped(scanner.scan(FileRef(path))) for path in known], outgoing, pickle.HIGHEST_PROTOCOL)
        outgoing.flush()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
