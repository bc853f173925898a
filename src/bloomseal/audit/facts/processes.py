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
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from queue import SimpleQueue
from typing import IO, Any, Final

from ...core.storage.ref import FileRef
from .files.file import FileFacts
from .files.scan import Scanner
from .keys import SidecarView

__all__ = ["FEW_FILES", "Stripped", "scan_all", "stripped", "whole"]

FEW_FILES: Final = 4_000
"""Below that, processes take longer to start than they save."""
_BATCH: Final = 200
_MOST_PROCESSES: Final = 8
_COMMAND: Final = "import sys; sys.path[:] = sys.argv[1:]; from bloomseal.audit.facts.processes import main; main()"

Batch = list[tuple[str, tuple[bytes, ...]]]
Stripped = tuple[FileFacts, set[str] | None]


def scan_all(scanner: Scanner, files: Sequence[FileRef], *, filters: bool = False) -> Iterator[FileFacts]:
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
    with contextlib.ExitStack() as started:
        idle: SimpleQueue[_Process] = SimpleQueue()
        for _ in range(count):
            idle.put(started.enter_context(_Process(filters)))
        pool = ThreadPoolExecutor(count, thread_name_prefix="bloomseal audit")
        # Processes end before threads are waited for, which then find them gone.
        started.callback(pool.shutdown, cancel_futures=True)

        def look(part: Sequence[FileRef]) -> list[FileFacts]:
            process = idle.get()
            try:
                return process.scan(part, scanner)
            finally:
                idle.put(process)

        parts = [files[start : start + _BATCH] for start in range(0, len(files), _BATCH)]
        yield from chain.from_iterable(pool.map(look, parts))


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
    """One process that looks at files: pickles go in and come out, each after its length."""

    def __init__(self, filters: bool) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        with contextlib.suppress(OSError):
            self._child = subprocess.Popen(  # noqa: S603  # ourselves
                [sys.executable, "-I", "-c", _COMMAND, *sys.path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            _send(self._stream("stdin"), filters)

    def scan(self, files: Sequence[FileRef], scanner: Scanner) -> list[FileFacts]:
        """The facts of some files; where the process can't tell, `scanner` looks."""
        batch: Batch = [(ref.path, scanner.prefixes(ref)) for ref in files]
        try:
            _send(self._stream("stdin"), batch)
            told: list[Stripped] = _received(self._stream("stdout"))
        except (OSError, EOFError, ValueError):
            self.close()
            return [scanner.scan(ref) for ref in files]
        return [whole(one, ref) for one, ref in zip(told, files, strict=True)]

    def _stream(self, name: str) -> IO[bytes]:
        if self._child is None:
            raise EOFError
        stream: IO[bytes] = getattr(self._child, name)
        return stream

    def close(self) -> None:
        """End it, whatever it does."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            for stream in (child.stdin, child.stdout):
                with contextlib.suppress(OSError):
                    stream.close()  # type: ignore[union-attr]  # both are pipes
            child.wait()

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def main() -> None:
    """The process: until its input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it ends it
    incoming, outgoing = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else is printed is no answer
    scanner = Scanner(filters=_received(incoming), prefixes=lambda ref: known[ref.path])
    known: dict[str, tuple[bytes, ...]] = {}
    gc.freeze()  # nothing that is there by now goes
    while True:
        try:
            known = dict(_received(incoming))
        except EOFError:
            return
        _send(outgoing, [stripped(scanner.scan(FileRef(path))) for path in known])


def _send(stream: IO[bytes], told: Any) -> None:
    data = pickle.dumps(told, pickle.HIGHEST_PROTOCOL)
    stream.write(len(data).to_bytes(8, "little") + data)
    stream.flush()


def _received(stream: IO[bytes]) -> Any:
    """Between this process and its own child only.

    Raises:
        EOFError: there is nothing more, or only a part of it.
    """
    length = int.from_bytes(stream.read(8), "little")
    data = stream.read(length)
    if not length or len(data) < length:
        raise EOFError
    return pickle.loads(data)  # noqa: S301


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
