"""Two watches: over whatever is shown or kept, for key bytes and tokens in any spelling; over the file systems, for
plaintext.

`Secrets` asks one thing after another. `PlaintextWatch` is a process of its own that reads, without a pause, all files
below some folders and all files that a process and its descendants have open for writing, those without a name too.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import pickle
import stat
import subprocess
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

__all__ = ["PlaintextWatch", "Secrets", "chain", "forms"]


def forms(secret: bytes) -> Iterator[str]:
    """How a secret may look in text."""
    yield secret.decode("latin-1")
    yield repr(secret)[2:-1]
    yield repr(bytearray(secret))[12:-2]
    yield str(list(secret))[1:-1]
    yield secret.hex()
    yield secret.hex().upper()
    yield secret.hex(" ")
    yield secret.hex(":")
    for encode in (base64.b64encode, base64.urlsafe_b64encode, base64.b32encode):
        yield encode(secret).decode().rstrip("=")


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error, its causes and contexts, suppressed ones too."""
    while error is not None:
        yield error
        if error.__cause__ is not None:
            yield from chain(error.__cause__)
        error = error.__context__


class Secrets:
    """What nobody may see. Failures name the place, and which secret by number: never the secret itself."""

    def __init__(self, *secrets: bytes | str) -> None:
        self._forms: list[tuple[int, str, bytes]] = []
        self._count = 0
        self.add(*secrets)

    def add(self, *secrets: bytes | str) -> None:
        for secret in secrets:
            raw = secret.encode() if isinstance(secret, str) else bytes(secret)
            assert len(raw) >= 8, "too short to be looked for"
            for form in dict.fromkeys(forms(raw)):
                self._forms.append((self._count, form, form.encode("latin-1", "replace")))
            self._count += 1

    def found(self, told: str | bytes) -> list[int]:
        """The numbers of the secrets that stand in there."""
        if isinstance(told, str):
            return sorted({number for number, text, _ in self._forms if text in told})
        return sorted({number for number, _, raw in self._forms if raw in told})

    def clean(self, told: str | bytes, where: str) -> None:
        if numbers := self.found(told):
            raise AssertionError(f"{where} holds secrets {numbers}")

    def clean_error(self, error: BaseException, where: str) -> None:
        """The error with all that it is chained to: message, arguments, fields, report, pickle, traceback."""
        for one in chain(error):
            self.clean(f"{one!s} {one!r} {one.args!r} {vars(one)!r}", f"{where}: {type(one).__name__} in the chain")
        lines = "".join(traceback.format_exception(error))
        # Lines of source stand in a traceback as they are: a secret that a test has typed there is not told by the
        # error.
        shown = [line for line in lines.splitlines() if not line.startswith("    ")]
        self.clean("\n".join(shown), f"{where}: the traceback")
        self.clean_object(error, where)

    def clean_object(self, one: Any, where: str) -> None:
        """Repr, text, fields, plain data, HTML, and what a pickle had when it was refused or done."""
        from bloomseal import BloomsealError  # this file is a program, too, which knows no packages

        texts: list[Callable[[], object]] = [lambda: repr(one), lambda: str(one), lambda: f"{one}"]
        methods = (getattr(one, name, None) for name in ("to_dict", "to_json", "_repr_html_", "facts"))
        texts += [method for method in methods if callable(method)]
        for text in texts:
            try:
                told = text()
            except TypeError:
                continue
            except BloomsealError as refusal:  # of a file that is broken
                self.clean_error(refusal, where)
                continue
            self.clean(told if isinstance(told, str) else repr(told), f"{where}: {type(one).__name__}")
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            file = io.BytesIO()
            try:
                pickle.Pickler(file, protocol).dump(one)
            except Exception as refusal:
                self.clean(str(refusal), f"{where}: the refusal to pickle")
            self.clean(file.getvalue(), f"{where}: pickle {protocol}")

    def clean_tree(self, *folders: Path, but: Collection[Path] = ()) -> int:
        """All files below, and how many. `but`: those that hold secrets on purpose."""
        seen = 0
        for path in _files(folders):
            if Path(path) not in but:
                seen += 1
                with contextlib.suppress(FileNotFoundError):
                    self.clean(Path(path).read_bytes(), path)
        return seen


class PlaintextWatch:
    """A context in which `markers` must reach no disk. `but`: files that may hold them; `pause`: seconds
    between two looks, for jobs that last.

    Attributes:
        found: place → marker, once the context was left.
        passes, files: how often it looked, and at how many states of files.
    """

    def __init__(
        self, roots: Iterable[Path], markers: Iterable[bytes], but: Iterable[Path] = (), *, pause: float = 0.0005
    ) -> None:
        self._told = {
            "pid": os.getpid(),
            "roots": [str(root) for root in roots],
            "markers": [marker.hex() for marker in markers],
            "but": [str(path) for path in but],
            "pause": pause,
        }
        self.found: dict[str, str] = {}
        self.passes = self.files = 0

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-S", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(self._told) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "watching\n"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        out, _ = self._process.communicate(timeout=120)
        told = json.loads(out)
        self.found, self.passes, self.files = told["found"], told["passes"], told["files"]

    def clean(self) -> None:
        assert not self.found, f"plaintext reached a disk: {self.found}"
        assert self.passes > 1
        assert self.files > 0


def _files(folders: Iterable[Path | str]) -> Iterator[str]:
    for folder in folders:
        for where, _, names in os.walk(folder):
            yield from (os.path.join(where, name) for name in names)  # noqa: PTH118


def _family(pid: int) -> Iterator[int]:
    """A process and its descendants."""
    yield pid
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            with contextlib.suppress(OSError):
                for child in Path(f"/proc/{pid}/task/{thread}/children").read_text().split():
                    yield from _family(int(child))


def _open_for_writing(pid: int) -> Iterator[str]:
    for number in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208
        with contextlib.suppress(OSError, StopIteration):
            info = Path(f"/proc/{pid}/fdinfo/{number}").read_text()
            flags = int(next(line.split()[1] for line in info.splitlines() if line.startswith("flags:")), 8)
            if flags & (os.O_WRONLY | os.O_RDWR):
                yield f"/proc/{pid}/fd/{number}"


def _watch(told: dict[str, Any], begun: Callable[[], None], stopped: Callable[[], bool]) -> dict[str, Any]:
    markers = [bytes.fromhex(one) for one in told["markers"]]
    exempt, found, passes, looked = set(told["but"]), {}, 0, 0
    seen: dict[tuple[int, int], tuple[int, int]] = {}
    while True:
        last = passes > 0 and stopped()
        places = list(_files(told["roots"]))
        for pid in _family(told["pid"]):
            if pid != os.getpid():
                with contextlib.suppress(OSError):
                    places += _open_for_writing(pid)
        for place in places:
            with contextlib.suppress(OSError):
                status = os.stat(place)  # noqa: PTH116
                state = (status.st_size, status.st_mtime_ns)
                name = (status.st_dev, status.st_ino)
                if not stat.S_ISREG(status.st_mode) or seen.get(name) == state:
                    continue
                real = os.readlink(place) if place.startswith("/proc/") else place  # noqa: PTH115
                if real in exempt:
                    continue
                with open(place, "rb") as file:
                    data = file.read()
                seen[name] = state
                looked += 1
                for marker in markers:
                    if marker in data:
                        found[real] = marker.decode("latin-1")
        passes += 1
        if passes == 1:
            begun()
        if last:
            return {"found": found, "passes": passes, "files": looked}


if __name__ == "__main__":
    import select

    given = json.loads(sys.stdin.readline())

    def _stopped() -> bool:
        return bool(select.select([sys.stdin], [], [], given["pause"])[0])

    print(json.dumps(_watch(given, lambda: print("watching", flush=True), _stopped)), flush=True)
