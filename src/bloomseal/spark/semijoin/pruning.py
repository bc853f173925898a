"""Pruning a table by a big set of keys: probed on the executors, against every row group's statistics and sealed
filter.
"""

from __future__ import annotations

import functools
import math
import os
import pickle
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from ...errors import BloomsealError, BloomsealWarning, UsageError
from ...format.expectation import Expectation
from ...format.pages.statistics import bounds
from ...policy import Policy, TablePolicy
from ...sbbf import KeySet
from ..given import PARTITION_INFERENCE
from ..jobs.common import described, job_table, packs
from ..listing import TableFiles, qualified
from ..opening import open_table_file, table_of
from ..session import show_figures
from .sealed_keyset import SealedKeys, identity_of, place_of, values_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from ...read.file import SealedFile
    from ..source.files.tree import Tree

__all__ = ["Prediction", "PruneResult", "PrunedFile", "prune"]

_SAMPLES: Final = 3
_SAMPLED_FILES: Final = 12
_LEAST_SAMPLE: Final = 8
"""Row groups that must have been asked before their answers say anything of the others."""
_NOT_WORTH: Final = 0.9
"""Where more than this share of the row groups is expected to survive by chance, pruning can't pay."""


@dataclass(frozen=True, slots=True)
class PrunedFile:
    """What is left of one file.

    Attributes:
        file: its path.
        row_groups: indexes of those that may hold a key.
        seen: row groups in the file.
        by_statistics, by_filter: how many were ruled out.
        without_filter: survivors that no filter could be asked about.
        failure: why the file could not be asked; all of it then survives.
        identity: tells the file that was asked from one put in its place; None where it was not asked.
    """

    file: str
    row_groups: tuple[int, ...]
    seen: int
    by_statistics: int = 0
    by_filter: int = 0
    without_filter: int = 0
    failure: str | None = None
    identity: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What was expected before the executors were asked, from a few row groups of the table.

    Attributes:
        keys: distinct keys.
        asked: keys that a row group's minimum and maximum leave to ask its filter for, on average.
        fpp: the filters' false positive probability, exact from their bits, on average; None where there is no filter.
        share: of the row groups that hold no key, those that survive all the same: 1 - (1 - fpp)^asked, on average.
        row_groups: how many the prediction rests on.
        left: of the row groups that were asked for a sample, those that may hold a key, by chance or since they do.
        sampled: how many were asked.
    """

    keys: int
    asked: float
    fpp: float | None
    share: float
    row_groups: int
    left: float = 0.0
    sampled: int = 0

    @property
    def pays(self) -> bool:
        """Can pruning spare anything that is worth it?"""
        return self.share <= _NOT_WORTH and not self._everywhere

    @property
    def _everywhere(self) -> bool:
        """Are the keys spread over all of the table, so that their own rows leave nothing to rule out?"""
        return self.sampled >= _LEAST_SAMPLE and self.left > _NOT_WORTH

    def __str__(self) -> str:
        if self.fpp is None:
            return (
                f"{self.keys} keys: the row groups have no filter that can be asked; {self.share:.0%} survive by chance"
            )
        told = f"{self.keys} keys, {self.asked:.0f} of them within a row group's bounds, at fpp {self.fpp:.2g}"
        told += f": {self.share:.0%} of the row groups without a match survive by chance"
        if self._everywhere:
            told += f"; {self.left:.0%} of {self.sampled} row groups that were asked may hold a key"
        elif not self.pays:
            wanted = 1 - 0.9 ** (1 / max(self.asked, 1))
            told += f"; filters of fpp {wanted:.0e} would leave 10%"
        return told


@dataclass(frozen=True, slots=True)
class PruneResult:
    """What may hold a key.

    Attributes:
        path, column: of what.
        seen: one entry per file of the table, in order of their names.
        prediction: what was expected.
        base: URI of the files' file system; None: local.
    """

    path: str
    column: str
    seen: tuple[PrunedFile, ...]
    prediction: Prediction
    base: str | None = None

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
             "by_filter": whole, "without_filter": whole, "failure": pa.string()}
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
            f"{n['without_filter']} left without one, {n['failed']} files failed); expected: {self.prediction}"
        )


def prune(
    spark: SparkSession,
    path: str | os.PathLike[str],
    column: str,
    keys: Any,
    *,
    policy: Policy | TablePolicy | str | os.PathLike[str] | None = None,
    table: str | None = None,
    files_per_task: int = 20,
) -> PruneResult:
    """The files and row groups of a table in which any of these keys may be: all others hold none, proven by statistics
    or by an authenticated filter.

    The keys are hashed once, here. To the tasks go hashes and orderings only, sealed under a key that is derived from
    the column's own: they tell the values to whoever can try candidates. An executor opens them with the same right
    that it needs for the filters.

    Args:
        path: the table's folder.
        column: dotted path. Repeated columns may be probed too.
        keys: a DataFrame (of Spark, pandas or Polars), an Arrow table or array, or a list; of the column's type. Nulls
            match nothing.
        policy, table: whose keys open the files; default: the policy that `enable` was given.
        files_per_task: files that one task looks at.

    Raises:
        UsageError: no policy, no files, no such column, texts with a collation, or keys of the wrong kind.
        KeyAccessError, IntegrityError, PolicyError: a sample of the files can't be opened here.

    Warns:
        BloomsealWarning: by the prediction pruning can't pay.
    """
    chosen = job_table(spark, path, policy, table)
    question = Question.of(spark, path, column, values_of(keys, column), chosen)
    if not question.prediction.pays:
        warnings.warn(f"pruning can't pay: {question.prediction}", BloomsealWarning, stacklevel=2)
    return question.ask(spark, files_per_task)


@dataclass(frozen=True, slots=True)
class Question:
    """A table, a column and keys, looked at as far as the driver does."""

    path: str
    column: str
    values: Any
    table: TablePolicy
    files: TableFiles
    case_sensitive: bool
    sealed: SealedKeys
    prediction: Prediction
    tree: Tree

    @classmethod
    def of(
        cls, spark: SparkSession, path: str | os.PathLike[str], column: str, values: Any, table: TablePolicy
    ) -> Question:
        """Hash the keys, seal them, and predict from a few files what asking all of them will bring."""
        from ..source.files.tree import find_files
        from ..source.pushdown import collated
        from ..source.types import stored_type

        typed = str(spark.conf.get(PARTITION_INFERENCE, "true")).lower() == "true"
        # What Spark would read: others' rows are not the table's.
        tree = find_files([qualified(spark, path)], infer=typed, expected=Expectation.of_table(table))
        files = TableFiles(tree.files[0].base if tree.files else None, tuple(file.name for file in tree.files))
        case_sensitive = str(spark.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"
        sealed, keys, seen, left, sampled = None, None, [], 0, 0
        refused: BloomsealError | None = None
        for name in (files.names[place] for place in _some(len(files.names), _SAMPLED_FILES)):
            try:
                with open_table_file(name, table, files.base) as file:
                    leaf = place_of(file, column, case_sensitive=case_sensitive)
                    if leaf is None:
                        continue
                    if collated(stored_type(file, file.walk.footer.schema.leaves[leaf].path)):
                        raise UsageError(
                            "by its collation, texts of other bytes are equal too: filters know bytes",
                            column=column, hint="where()",
                        )  # fmt: skip
                    kind = file.walk.footer.schema.leaves[leaf].type
                    if keys is None or sealed is None:
                        keys = file.key_set(file.columns[leaf], values)
                        sealed = SealedKeys.of(keys, kind, file, leaf, files.base)
                    if kind == sealed.column_type:
                        seen += list(_chances(file, leaf, keys))
                        answer = file.survivors(file.columns[leaf], keys)
                        left, sampled = left + len(answer.row_groups), sampled + answer.seen
            except UsageError:
                raise
            except BloomsealError as error:
                refused = error  # the executors will tell, of each file
        if sealed is None and refused is not None:
            raise refused
        if sealed is None or keys is None:
            what = "no such column in the files" if files.names else "there are no files"
            raise UsageError(what, file=os.fspath(path), column=column, hint="values of partition columns: where()")
        prediction = replace(_predicted(len(keys), seen), left=left / max(sampled, 1), sampled=sampled)
        return cls(os.fspath(path), column, values, table, files, case_sensitive, sealed, prediction, tree)

    def ask(self, spark: SparkSession, files_per_task: int) -> PruneResult:
        """Ask all files. Those whose column is of another type are asked again, with the keys hashed for it."""
        found: dict[str, PrunedFile] = {}
        sealed, names = self.sealed, self.files.names
        while names:
            task = functools.partial(
                _ask, pickle.dumps(self.table), self.files.base, self.case_sensitive, self.column, sealed
            )
            with described(spark, f"ask {self.path} for {len(names)} files' filters"):
                answers = packs(spark, names, files_per_task).mapPartitions(task).collect()
            found |= {name: answer for name, answer in answers if answer is not None}
            names = tuple(name for name, answer in answers if answer is None)
            if names:
                sealed = self._sealed_for(names[0])
        seen = tuple(found[name] for name in self.files.names)
        result = PruneResult(self.path, self.column, seen, self.prediction, self.files.base)
        show_figures(spark, "bloomseal: what pruning left", result.counts)
        return result

    def open(self, spark: SparkSession, files_per_task: int) -> PruneResult:
        """Open all files under the policy and rule nothing out."""
        task = functools.partial(_opened, pickle.dumps(self.table), self.files.base)
        with described(spark, f"open {len(self.files.names)} files of {self.path}"):
            seen = packs(spark, self.files.names, files_per_task).mapPartitions(task).collect()
        return PruneResult(self.path, self.column, tuple(seen), self.prediction, self.files.base)

    def _sealed_for(self, name: str) -> SealedKeys:
        with open_table_file(name, self.table, self.files.base) as file:
            leaf = place_of(file, self.column, case_sensitive=self.case_sensitive)
            assert leaf is not None  # noqa: S101
            kind = file.walk.footer.schema.leaves[leaf].type
            return SealedKeys.of(file.key_set(file.columns[leaf], self.values), kind, file, leaf, self.files.base)


_Answer = tuple[str, PrunedFile | None]
"""A file, and what is left of it; None where the keys are hashed for another type than its column's."""


def _ask(
    policy: bytes, base: str | None, case_sensitive: bool, column: str, sealed: SealedKeys, names: Iterable[str]
) -> Iterator[_Answer]:
    table = table_of(policy)
    keys: KeySet | None = None
    for name in names:
        try:
            keys = keys or sealed.open(table)
            with open_table_file(name, table, base) as file:
                yield name, _asked(file, column, keys, sealed, case_sensitive)
        except BloomsealError as error:
            # Raised, it would end the job. What could not be asked may hold anything.
            yield name, PrunedFile(name, (), 0, failure=error.what)


def _opened(policy: bytes, base: str | None, names: Iterable[str]) -> Iterator[PrunedFile]:
    table = table_of(policy)
    for name in names:
        try:
            with open_table_file(name, table, base) as file:
                every = tuple(range(file.num_row_groups))
                yield PrunedFile(name, every, len(every), without_filter=len(every), identity=identity_of(file))
        except BloomsealError as error:
            yield PrunedFile(name, (), 0, failure=error.what)


def _asked(file: SealedFile, column: str, keys: KeySet, sealed: SealedKeys, case_sensitive: bool) -> PrunedFile | None:
    leaf = place_of(file, column, case_sensitive=case_sensitive)
    every = tuple(range(file.num_row_groups))
    if leaf is None:
        return PrunedFile(file.path, every, len(every), without_filter=len(every), identity=identity_of(file))
    kind = file.walk.footer.schema.leaves[leaf].type
    if kind != sealed.column_type:
        return None
    left = file.survivors(file.columns[leaf], keys)
    return PrunedFile(
        file.path, left.row_groups, left.seen, left.by_statistics, left.by_filter, left.without_filter,
        identity=identity_of(file),
    )  # fmt: skip


def _some(count: int, most: int = _SAMPLES) -> list[int]:
    """A few indexes, spread over all."""
    return sorted({round(i * (count - 1) / (most - 1)) for i in range(most)}) if count else []


def _chances(file: SealedFile, leaf: int, keys: KeySet) -> Iterator[tuple[int, float | None]]:
    """Of a few row groups: keys within the bounds, and the filter's false positive probability."""
    footer = file.walk.footer
    for group in _some(file.num_row_groups):
        meta = file.walk.meta(file.walk.chunk(group, leaf))
        asked = keys.between(*(bounds(meta, footer.schema.leaves[leaf], footer.type_ordered[leaf]) or (None, None)))
        bloom_filter = None if keys.undecided else file.filter(group, file.columns[leaf])
        yield len(asked), None if bloom_filter is None else bloom_filter.false_positive_probability()


def _predicted(keys: int, seen: Sequence[tuple[int, float | None]]) -> Prediction:
    if not seen:
        return Prediction(keys, keys, None, 1.0, 0)
    chances = [
        (1.0 if asked else 0.0) if fpp is None else -math.expm1(asked * math.log1p(-min(fpp, 1 - 1e-12)))
        for asked, fpp in seen
    ]
    known = [fpp for _, fpp in seen if fpp is not None]
    return Prediction(
        keys,
        sum(asked for asked, _ in seen) / len(seen),
        sum(known) / len(known) if known else None,
        sum(chances) / len(chances),
        len(seen),
    )
