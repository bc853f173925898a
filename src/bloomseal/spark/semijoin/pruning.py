"""Pruning a table by a big set of keys: probed on the executors, against every row group's statistics and sealed
filter.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import pickle
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ...core.errors import BloomsealError, BloomsealWarning, UnsupportedError, UsageError
from ...core.parquet.belief import believed_filter
from ...core.parquet.expectation import Expectation
from ...core.parquet.statistics import bounds
from ...index.folder import columns_in
from ...policy import Policy, TablePolicy
from ...sbbf import KeySet
from ...storage.formats import Format, named_format
from ..given import PARTITION_INFERENCE
from ..jobs.common import described, job_table, packs
from ..listing import TableFiles, qualified, split_uri
from ..opening import open_table_file, table_of
from ..session import meanwhile, show_figures
from .hitting import hits_of
from .indexed import AskedIndexes, Left
from .result import Prediction, PrunedFile, PruneResult, index_pays
from .sealed_keyset import SealedKeys, identity_of, place_of, values_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ...index.facts.sighting import Kept
    from ...read.file import SealedFile
    from ...table.query.indexes import Indexes
    from ..source.files.tree import Tree

__all__ = ["Question", "prune"]

_SAMPLES: Final = 3
_SAMPLED_FILES: Final = 12


def prune(
    spark: SparkSession,
    path: str | os.PathLike[str],
    column: str,
    keys: Any,
    *,
    policy: Policy | TablePolicy | str | os.PathLike[str] | None = None,
    table: str | None = None,
    files_per_task: int = 20,
    use_index: str = "auto",
    trust: str = "auto",
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
        use_index, trust: as for `bloomseal.spark.read`. What the table's sealed indexes rule out is not opened, neither
            here nor by a task.

    Raises:
        UsageError: no policy, no files, no such column, texts with a collation, or keys of the wrong kind; an index is
            required, and does not cover every file.
        KeyAccessError, IntegrityError, PolicyError: a sample of the files can't be opened here.

    Warns:
        BloomsealWarning: by the prediction pruning can't pay.
    """
    chosen = job_table(spark, path, policy, table)
    question = Question.of(spark, path, column, keys, chosen, use_index, trust)
    if not question.prediction.pays:
        warnings.warn(f"pruning can't pay: {question.prediction}", BloomsealWarning, stacklevel=2)
    return question.ask(spark, files_per_task)


@dataclass(frozen=True, slots=True)
class Question:
    """A table, a column and keys, looked at as far as the driver does.

    Attributes:
        values: the keys, or those of them that a sealed index knows.
        alike: the files of the sample have one schema.
    """

    path: str
    column: str
    values: Any
    table: TablePolicy
    files: TableFiles
    case_sensitive: bool
    sealed: SealedKeys
    prediction: Prediction
    tree: Tree
    indexes: AskedIndexes
    left: Left
    alike: bool

    @classmethod
    def of(
        cls,
        spark: SparkSession,
        path: str | os.PathLike[str],
        column: str,
        keys: Any,
        table: TablePolicy,
        use_index: str = "auto",
        trust: str = "auto",
        crowded: Callable[[], object] | None = None,
    ) -> Question:
        """List the files, and look at the keys: those that a sealed index of the whole table knows, or else all.

        Args:
            crowded: called as soon as it is known that there are as many keys as files, of a table without a log: it
                may well be read whole.
        """
        from ..source.files.settled import settled
        from ..source.files.tree import find_files

        typed = str(spark.conf.get(PARTITION_INFERENCE, "true")).lower() == "true"
        # What Spark would read: others' rows are not the table's.
        place, expected = qualified(spark, path), Expectation.of_table(table)
        base, folder = split_uri(place)
        # Of keys that an index could be asked for first not all are wanted.
        early = hasattr(keys, "toArrow") and base is None and not columns_in(table.root or folder)
        look = functools.partial(values_of, keys, column)
        with meanwhile(spark, look) if early else contextlib.nullcontext(look) as values:
            tree = settled([(base, folder)], lambda: find_files([place], infer=typed, expected=expected))
            if any(named_format(file.name) is Format.ORC for file in tree.files):
                raise UnsupportedError(
                    "key sets travel under a column's key, which ORC files lack: semi_join() and prune() take Parquet",
                    file=os.fspath(path), column=column, hint="bss.read(…, where=…), or a join of what it reads",
                )  # fmt: skip
            files = TableFiles(tree.files[0].base if tree.files else None, tuple(file.name for file in tree.files))
            case_sensitive = str(spark.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"
            indexes = AskedIndexes(use_index, trust, tree.rules, case_sensitive)
            if (hits := hits_of(indexes, files, table, column, keys)) is not None:
                # A file that was replaced meanwhile is asked for all keys; so is a table of which they leave nothing
                # out.
                with contextlib.suppress(UnsupportedError):
                    pinned = replace(indexes, pinned=hits.states)
                    found = cls._of(path, column, hits.keys, table, files, tree, pinned, hits.indexes)
                    if found.prediction.pays:
                        return replace(found, indexes=replace(pinned, known=found.left))
            every = values()
            many = isinstance(every, Sized) and len(every) >= len(files.names)
            if crowded is not None and many and tree.rules is None:
                crowded()
            return cls._of(path, column, every, table, files, tree, indexes)

    @classmethod
    def _of(
        cls,
        path: str | os.PathLike[str],
        column: str,
        values: Any,
        table: TablePolicy,
        files: TableFiles,
        tree: Tree,
        indexes: AskedIndexes,
        loaded: Indexes | None = None,
    ) -> Question:
        """Hash the keys, seal them, ask sealed indexes, and predict from a few of the files that these leave what
        asking all of them will bring.
        """
        from ..source.pushdown import collated
        from ..source.types import stored_type

        sealed, keys, seen, left, sampled = None, None, [], 0, 0
        refused: BloomsealError | None = None
        schemas: set[bytes] = set()
        of_index = indexes.left(
            files.names, files.base, table, column,
            lambda file, place: file.key_set(file.columns[place], values), loaded,
        )  # fmt: skip
        # One at least, with a row group: its column's key seals the keys.
        names = list(of_index.names) or list(files.names)
        sample = [names[place] for place in _some(len(names), _SAMPLED_FILES)]
        empty: SealedKeys | None = None
        for name in dict.fromkeys([*sample, *names]):
            if sealed is not None and index_pays(of_index.ruled_out):
                break  # it pays, whatever other files say
            if name not in sample and (empty is None or sealed is not None or refused is not None):
                break  # all but files without rows tell enough
            try:
                with open_table_file(name, table, files.base) as file:
                    schemas.add(file.leaves.raw)
                    leaf = place_of(file, column, case_sensitive=indexes.case_sensitive)
                    if leaf is None:
                        continue
                    if collated(stored_type(file, file.walk.footer.schema.leaves[leaf].path)):
                        raise UsageError(
                            "by its collation, texts of other bytes are equal too: filters know bytes",
                            column=column, hint="where()",
                        )  # fmt: skip
                    kind = file.walk.footer.schema.leaves[leaf].type
                    if not file.num_row_groups:
                        empty = empty or SealedKeys.none(file.columns[leaf], kind, file.path, files.base)
                        continue
                    if keys is None or sealed is None:
                        keys = file.key_set(file.columns[leaf], values)
                        sealed = SealedKeys.of(keys, kind, file, leaf, files.base)
                    if kind == sealed.column_type:
                        seen += list(_chances(file, leaf, keys))
                        answer = file.survivors(file.columns[leaf], keys)
                        left, sampled = left + len(answer.row_groups), sampled + file.num_row_groups
            except UsageError:
                raise
            except BloomsealError as error:
                refused = error  # the executors will tell, of each file
        if sealed is None and refused is not None:
            raise refused
        sealed = sealed or empty  # nobody needs the keys where there is no row
        if sealed is None:
            what = "no such column in the files" if files.names else "there are no files"
            raise UsageError(what, file=os.fspath(path), column=column, hint="values of partition columns: where()")
        predicted = _predicted(0 if keys is None else len(keys), seen)
        prediction = replace(predicted, left=left / max(sampled, 1), sampled=sampled, by_index=of_index.ruled_out)
        return cls(
            os.fspath(path), column, values, table, files, indexes.case_sensitive, sealed, prediction, tree, indexes,
            of_index, len(schemas) == 1,
        )  # fmt: skip

    def ask(self, spark: SparkSession, files_per_task: int) -> PruneResult:
        """Ask all files. Those whose column is of another type are asked again, with the keys hashed for it."""
        found = {name: PrunedFile(name, (), groups, by_index=groups) for name, groups in self.left.gone.items()}
        sealed, names = self.sealed, [*self.left.names]
        while names:
            task = functools.partial(
                _ask, pickle.dumps(self.table), self.files.base, self.indexes.brief, self.column, sealed
            )
            with described(spark, f"ask {self.path} for {len(names)} files' filters"):
                asked = [(name, self.left.names[name]) for name in names]
                answers = packs(spark, asked, files_per_task).mapPartitions(task).collect()
            found |= {name: answer for name, answer in answers if answer is not None}
            names = [name for name, answer in answers if answer is None]
            if names:
                sealed = self._sealed_for(names[0])
        seen = tuple(found[name] for name in self.files.names)
        uncovered = self.left.stats.files_not_covered
        result = PruneResult(self.path, self.column, seen, self.prediction, self.files.base, uncovered)
        show_figures(spark, "bloomseal: what pruning left", result.counts)
        return result

    def _sealed_for(self, name: str) -> SealedKeys:
        with open_table_file(name, self.table, self.files.base) as file:
            leaf = place_of(file, self.column, case_sensitive=self.case_sensitive)
            assert leaf is not None  # noqa: S101
            kind = file.walk.footer.schema.leaves[leaf].type
            return SealedKeys.of(file.key_set(file.columns[leaf], self.values), kind, file, leaf, self.files.base)


_Answer = tuple[str, PrunedFile | None]
"""A file, and what is left of it; None where the keys are hashed for another type than its column's."""


def _ask(
    policy: bytes,
    base: str | None,
    indexes: AskedIndexes,
    column: str,
    sealed: SealedKeys,
    files: Iterable[tuple[str, Kept | None]],
) -> Iterator[_Answer]:
    table = table_of(policy)
    keys: KeySet | None = None
    for name, kept in files:
        try:
            with open_table_file(name, table, base) as file:
                if not file.num_row_groups:
                    yield name, PrunedFile(file.path, (), 0, identity=identity_of(file))
                    continue
                keys = keys or sealed.open(table)
                yield name, _asked(file, column, keys, sealed, indexes, kept)
        except BloomsealError as error:
            # Raised, it would end the job. What could not be asked may hold anything.
            yield name, PrunedFile(name, (), 0, failure=error.what)


def _asked(
    file: SealedFile, column: str, keys: KeySet, sealed: SealedKeys, indexes: AskedIndexes, kept: Kept | None
) -> PrunedFile | None:
    if indexes.rules is not None:
        indexes.rules.check(file)
    leaf = place_of(file, column, case_sensitive=indexes.case_sensitive)
    every = tuple(range(file.num_row_groups))
    # Filters of row groups that an index rules out are not opened.
    by_index = indexes.excluded(kept, file) or {}
    groups = tuple(group for group in every if group not in by_index)
    told: dict[str, Any] = {"by_index": len(by_index), "identity": identity_of(file)}
    if leaf is None:
        return PrunedFile(file.path, groups, len(every), without_filter=len(groups), **told)
    kind = file.walk.footer.schema.leaves[leaf].type
    if kind != sealed.column_type:
        return None
    left = file.survivors(file.columns[leaf], keys, groups)
    return PrunedFile(
        file.path, left.row_groups, len(every), left.by_statistics, left.by_filter, left.without_filter, **told
    )


def _some(count: int, most: int = _SAMPLES) -> list[int]:
    """A few indexes, spread over all."""
    return sorted({round(i * (count - 1) / (most - 1)) for i in range(most)}) if count else []


def _chances(file: SealedFile, leaf: int, keys: KeySet) -> Iterator[tuple[int, float | None]]:
    """Of a few row groups: keys within the bounds, and the filter's false positive probability."""
    footer = file.walk.footer
    for group in _some(file.num_row_groups):
        meta = file.walk.meta(file.walk.chunk(group, leaf))
        asked = keys.between(*(bounds(meta, footer.schema.leaves[leaf], footer.ordered[leaf]) or (None, None)))
        bloom_filter = None if keys.undecided else believed_filter(file.walk, file.walk.chunk(group, leaf))
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
