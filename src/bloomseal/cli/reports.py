"""The files of ``--report KIND=FILE``: never in the place of anything but an older report of the same kind.

A slip of the hand in a script, ``json=x.parquet``, must not cost a data file; nor may a report lie where readers, or
the next audit, take it for data.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from ..core.errors import UsageError
from ..core.text import articled
from ..storage.discovery.kinds import FileKind, kind_of
from ..storage.folder import Folder
from ..storage.replacement import replace

if TYPE_CHECKING:
    from ..audit.report import Report

KINDS: Final = ("json", "parquet", "findings", "sarif", "html", "cbom")
_PARQUET: Final = {"parquet": b"bloomseal.inventory", "findings": b"bloomseal.findings"}
_MARKS: Final = {
    "json": b'"format": "bloomseal audit"',
    "sarif": b'"name": "bloomseal audit"',
    "html": b"<title>Bloomseal audit",
    "cbom": b'"CycloneDX"',
}
_HEAD: Final = 1 << 24
_DESCRIPTORS: Final = {"/dev/stdout": 1, "/dev/stderr": 2}
_DESCRIPTOR: Final = re.compile(r"/(?:dev|proc/self)/fd/(\d{1,6})")


@dataclass(frozen=True)
class Target:
    """One report to write.

    Attributes:
        kind: one of `KINDS`.
        path: the file.
    """

    kind: str
    path: str

    @classmethod
    def all_of(cls, texts: Sequence[str], audited: Sequence[str]) -> list[Self]:
        """The targets that ``KIND=FILE`` name.

        Args:
            texts: of the options.
            audited: the paths that are looked at.

        Raises:
            UsageError: not of the form; two reports in one file; a name that stands for data, or a place among them; or
                something is there that is no report of this kind.
        """
        targets = [cls._of(text) for text in texts]
        for target in targets:
            target._check_place(audited)
            target._check_old()
        if len({os.path.realpath(target.path) for target in targets}) < len(targets):
            raise UsageError("two reports can't go to one file", hint="a file for each --report")
        return targets

    @classmethod
    def _of(cls, text: str) -> Self:
        kind, equals, path = text.partition("=")
        if kind not in KINDS or not equals or not path:
            raise UsageError(f"--report takes KIND=FILE, the kind one of {', '.join(KINDS)}")
        if "://" in path:
            raise UsageError("a report is a local file", file=path)
        return cls(kind, path)

    def write(self, report: Report) -> None:
        """Write the report, whole or not at all.

        Raises:
            UsageError: it can't be written, or something else has taken the place meanwhile.
            MissingDependencyError: a library for this kind is not installed.
        """
        pieces = _pieces(self.kind, report)
        try:
            if (stream := self._stream()) is not None:
                with open(stream, "wb") as file:
                    file.writelines(pieces)
                return
            folder, name = Folder.of(self.path)
            with folder:
                self._check_in(folder, name)
                replace(folder, name, pieces)
        except OSError as error:
            raise self._refused(error) from None

    def _refused(self, error: OSError) -> UsageError:
        return UsageError(f"the report can't be written: {error.strerror or type(error).__name__}", file=self.path)

    def _check_place(self, audited: Sequence[str]) -> None:
        if self.kind not in _PARQUET:
            if kind_of(Path(self.path).name) is FileKind.DATA:
                raise UsageError(
                    f"{articled(self.kind)} report under a name that says Parquet",
                    file=self.path,
                    hint=f"report.{self.kind}",
                )
            return
        real = os.path.realpath(self.path)
        for place in audited:
            if "://" not in place and real.startswith(os.path.realpath(place).rstrip("/") + "/"):
                raise UsageError(
                    "a Parquet report in a folder that is audited would be taken for data",
                    file=self.path,
                    hint="a file outside the folder",
                )

    def _check_old(self) -> None:
        """Raises UsageError where something is that is no older report of this kind. An empty file is nobody's."""
        try:
            if (stream := self._stream()) is not None:
                os.close(stream)
                return
            folder, name = Folder.of(self.path)
            with folder:
                self._check_in(folder, name)
                folder.need_writable()
        except OSError as error:
            raise self._refused(error) from None

    def _check_in(self, folder: Folder, name: str) -> None:
        try:
            fd = folder.open(name)
        except FileNotFoundError:
            return
        except IsADirectoryError:
            raise UsageError("the report can't be written: a folder is there", file=self.path) from None
        with open(fd, "rb") as file:
            if os.fstat(fd).st_size and not self._is_report(file):
                raise UsageError(
                    f"a file is there that is no {self.kind} report of bloomseal audit; it was left as it is",
                    file=self.path,
                    hint="another name",
                )

    def _is_report(self, file: IO[bytes]) -> bool:
        if self.kind in _PARQUET:
            try:
                return _PARQUET[self.kind] in (pq.read_schema(file).metadata or {})
            except (OSError, pa.ArrowException):
                return False
        return _MARKS[self.kind] in file.read(_HEAD)

    def _stream(self) -> int | None:
        """A descriptor of something that is no file but takes bytes: what this process has open, or a device, which
        only root can make. A pipe in a folder is neither: whoever puts it there would have the command wait for ever.
        """
        number = _DESCRIPTORS.get(self.path)
        if number is None and (found := _DESCRIPTOR.fullmatch(self.path)) is not None:
            number = int(found[1])
        if number is not None:
            return os.dup(number)
        folder, name = Folder.of(self.path)
        with folder:
            status = folder.stat(name)
            if status is None or not stat.S_ISCHR(status.st_mode):
                return None
            return os.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=folder.fd)


def _parquet(rows: pa.Table) -> Iterator[bytes]:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    yield bytes(sink.getvalue())


def _pieces(kind: str, report: Report) -> Iterator[bytes]:
    """A report of a hundred thousand files is never held as a whole.

    Raises:
        MissingDependencyError: a library for this kind is not installed.
    """
    from ..audit.rendering.cbom import to_cbom
    from ..audit.rendering.html import to_html
    from ..audit.rendering.sarif import sarif_pieces
    from ..audit.streamed import encoded

    match kind:
        case "parquet":
            return _parquet(report.inventory)
        case "findings":
            return _parquet(report.findings_table())
        case "json":
            return encoded(report.json_pieces())
        case "sarif":
            return encoded(sarif_pieces(report, base=os.getcwd()))  # noqa: PTH109
        case _:
            return encoded([to_html(report) if kind == "html" else to_cbom(report)])
