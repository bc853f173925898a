"""What verifying a whole table found."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..core.errors import BloomsealError
from ..format.verify import VerifyReport
from ..notebook import ShownInNotebooks
from ..read.parquet import need_parquet
from ..storage.logs.snapshot import DeleteKind
from .query.parts import TableParts
from .query.workers import side_by_side

if TYPE_CHECKING:
    from typing import Any

    from ..index.update import UpdateReport
    from .scan import Progress


@dataclass
class CompactionReport(ShownInNotebooks):
    """What `SealedTable.compact` did, or would do.

    Attributes:
        dry_run: nothing was written.
        files: one entry per new file: output, files (those that it replaces), rows, old_size, new_size,
            signed_by.
        left: file → why it can't become part of another one, however small it is.
        failed: the first of some files that were to become one → why they did not. They are as they were.
        finished: files that an earlier run, which was killed, had replaced already, and that are gone now.
        kept: old files that somebody exchanged meanwhile; they are still there.
        indexes: column → what was done to its sealed index, see `SealedIndex.update`.
    """

    dry_run: bool = False
    files: list[dict[str, Any]] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    finished: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    indexes: dict[str, UpdateReport] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Nothing failed, and no file holds rows that another one holds."""
        return not self.failed and not self.kept

    def to_dict(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "ok": self.ok,
            "indexes": {column: one.to_dict() for column, one in self.indexes.items()},
        }


@dataclass
class TableVerifyReport(ShownInNotebooks):
    """What `SealedTable.verify` found.

    Attributes:
        files: file → its report; files that could not be opened are not among them. Position and equality deletes of an
            Iceberg table have one of their own, deletion vectors belong to their data file.
        failures: file → why it could not be opened or read.
    """

    files: dict[str, VerifyReport] = field(default_factory=dict)
    failures: dict[str, BloomsealError] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Every file was opened, and nothing that was opened is broken."""
        return not self.failures and all(report.ok for report in self.files.values())

    @property
    def complete(self) -> bool:
        """Every module of every file was opened and found authentic."""
        return not self.failures and all(report.complete for report in self.files.values())

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data."""
        return {
            "ok": self.ok,
            "complete": self.complete,
            "failures": {path: error.to_dict() for path, error in self.failures.items()},
            "files": {path: report.to_dict() for path, report in self.files.items()},
        }

    def shown(self) -> dict[str, Any]:
        """As `to_dict`, a row for each file, those that could not be opened first."""
        failed = [{"file": path, "ok": False, "why": str(error)} for path, error in self.failures.items()]
        opened = [
            {"file": path, "ok": one.ok, "complete": one.complete, "why": "; ".join(map(str, one.failures))}
            for path, one in sorted(self.files.items(), key=lambda item: item[1].ok)
        ]
        return {"ok": self.ok, "complete": self.complete, "files": failed + opened}


def verify_files(
    parts: TableParts, threads: int | None, *, filters: bool = False, progress: Progress | None = None
) -> TableVerifyReport:
    """Verify each file, and what says which of its rows were deleted; see `SealedTable.verify`."""
    snapshot, count = parts.snapshot, len(parts.files)
    deletes = (
        [] if snapshot is None or not count else [one for one in snapshot.deletes if one.kind is not DeleteKind.VECTOR]
    )
    paths = [*(found.ref.path for found in parts.files), *(one.file.path for one in deletes)]

    done = itertools.count(1)

    def one(number: int) -> VerifyReport | BloomsealError:
        try:
            with parts.open(number) if number < count else parts.open_deletes(deletes[number - count]) as file:
                if number < count and parts.files[number].deletes:
                    need_parquet(file).deleted  # noqa: B018 - reads them
                return file.verify(filters=filters)
        except BloomsealError as error:
            return error.at(file=paths[number])
        finally:
            if progress is not None:
                progress(next(done), len(paths))

    report = TableVerifyReport()
    for path, result in zip(paths, side_by_side(one, range(len(paths)), threads), strict=True):
        if isinstance(result, VerifyReport):
            report.files[path] = result
        else:
            report.failures[path] = result
    return report
