"""What pruning a table by keys left of it, and what was expected."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Prediction", "PruneResult", "PrunedFile"]

_LEAST_SAMPLE: Final = 8
"""Row groups that must have been asked before their answers say anything of the others."""
_NOT_WORTH: Final = 0.9
"""Where more than this share of the row groups is left, pruning can't pay."""


@dataclass(frozen=True, slots=True)
class PrunedFile:
    """What is left of one file.

    Attributes:
        file: its path.
        row_groups: indexes of those that may hold a key.
        seen: row groups in the file.
        by_statistics, by_filter: how many were ruled out.
        by_index: how many a sealed index ruled out; all of a file that nobody opened.
        without_filter: survivors that no filter was asked about.
        failure: why the file could not be asked; all of it then survives.
    """

    file: str
    row_groups: tuple[int, ...]
    seen: int
    by_statistics: int = 0
    by_filter: int = 0
    without_filter: int = 0
    failure: str | None = None
    by_index: int = 0


@dataclass(frozen=True, slots=True)
class Prediction:
    """What was expected before the executors were asked.

    Attributes:
        keys: distinct keys.
        sampled: row groups of a few files that were asked, here on the driver.
        left: the share of them that may hold a key, by chance or since they do.
        by_index: the share of all row groups that sealed indexes rule out, before anything is sampled.
    """

    keys: int
    left: float = 0.0
    sampled: int = 0
    by_index: float = 0.0

    @property
    def pays(self) -> bool:
        """Whether pruning can spare anything that is worth it."""
        return self.index_pays or self.sampled < _LEAST_SAMPLE or self.left <= _NOT_WORTH

    @property
    def index_pays(self) -> bool:
        """Whether indexes alone spare enough, whatever filters add."""
        return 1 - self.by_index <= _NOT_WORTH

    def __str__(self) -> str:
        if self.index_pays:
            return f"{self.keys} keys: sealed indexes rule out {self.by_index:.0%} of the row groups"
        return f"{self.keys} keys: {self.left:.0%} of {self.sampled} row groups that were asked may hold one"


@dataclass(frozen=True, slots=True)
class PruneResult:
    """What may hold a key.

    Attributes:
        path, column: of what.
        seen: one entry per file of the table, in order of their names.
        prediction: what was expected.
        base: URI of the files' file system; None: local.
        files_not_covered: files of which no index of the column knows; 0 where there is none.
    """

    path: str
    column: str
    seen: tuple[PrunedFile, ...]
    prediction: Prediction
    base: str | None = None
    files_not_covered: int = 0

    @property
    def surviving(self) -> tuple[PrunedFile, ...]:
        """The files of which something is left."""
        return tuple(one for one in self.seen if one.row_groups or one.failure is not None)

    @property
    def files(self) -> list[str]:
        """Their paths."""
        return [one.file for one in self.surviving]

    @property
    def failures(self) -> dict[str, str]:
        """File → why it could not be asked."""
        return {one.file: one.failure for one in self.seen if one.failure is not None}

    @property
    def counts(self) -> dict[str, int]:
        """Files and row groups, seen and left, and what ruled the others out."""
        return {
            "files": len(self.seen),
            "files_left": len(self.surviving),
            "row_groups": sum(one.seen for one in self.seen),
            "row_groups_left": sum(len(one.row_groups) for one in self.seen),
            "by_statistics": sum(one.by_statistics for one in self.seen),
            "by_filter": sum(one.by_filter for one in self.seen),
            "by_index": sum(one.by_index for one in self.seen),
            "files_unopened": sum(0 < one.seen == one.by_index for one in self.seen),
            "files_not_covered": self.files_not_covered,
            "without_filter": sum(one.without_filter for one in self.seen),
            "failed": len(self.failures),
        }

    def to_arrow(self) -> pa.Table:
        """The surviving files, one row each."""
        import pyarrow as pa

        rows = [{**asdict(one), "row_groups": list(one.row_groups)} for one in self.surviving]
        whole = pa.int64()
        schema = pa.schema(
            {"file": pa.string(), "row_groups": pa.list_(pa.int32()), "seen": whole, "by_statistics": whole,
             "by_filter": whole, "by_index": whole, "without_filter": whole, "failure": pa.string()}
        )  # fmt: skip
        return pa.Table.from_pylist(rows, schema=schema)

    def to_dict(self) -> dict[str, Any]:
        """As plain data: counts, prediction, and the surviving files. No key is in it."""
        return {
            "path": self.path,
            "column": self.column,
            **self.counts,
            "prediction": {**asdict(self.prediction), "pays": self.prediction.pays},
            "surviving": self.to_arrow().to_pylist(),
        }

    def __str__(self) -> str:
        n = self.counts
        return (
            f"{self.column} in {self.path}: {n['files_left']} of {n['files']} files, {n['row_groups_left']} of "
            f"{n['row_groups']} row groups left ({n['by_statistics']} ruled out by statistics, {n['by_filter']} by filters, "
            f"{n['by_index']} by an index, "
            f"{n['without_filter']} left without one, {n['failed']} files failed); expected: {self.prediction}"
        )
