"""Pruning a table by a big set of keys: what its sealed indexes, and then every row group's statistics and sealed
filter, leave of it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...core.errors import BloomsealError, BloomsealWarning, UnsupportedError, UsageError
from ...core.exclusion import Reason
from ...core.sbbf import ProbeSet
from ...policy import Policy, TablePolicy
from ...read.parquet import need_parquet
from ...storage.formats import Format, named_format
from ..jobs.common import described, packs
from ..request import Request, with_indexes
from ..source.planning import Files, Plan, by_folders, by_indexes, need_marks, spelled
from ..source.pushdown import collated
from ..source.sealed_keyset import SealedKeys, place_of
from ..source.search import KeySearch, OneOf, mark
from ..source.types import stored_type
from .keys import values_of
from .result import Prediction, PrunedFile, PruneResult

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from ...core.parquet.schema import Leaf
    from ...core.sbbf import ColumnType, ProbeSet
    from ...read.file import SealedFile
    from ...sbbf import KeySet
    from ...table.query.indexes import Held
    from ..source.files.live import Rules
    from ..source.options import SourceOptions
    from ..source.scan import Piece

__all__ = ["KeyQuestion", "prune"]

_SAMPLED_FILES: Final = 12
_MANY: Final = 10_000
"""More keys than these, in a frame or in Arrow, are first looked up in an index that covers every file."""


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
    """The files and row groups of a table in which any of these keys may be: all others hold none, proven by a sealed
    index, by statistics or by an authenticated filter.

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
        BloomsealWarning: most row groups of a sample may hold a key.
    """
    request = Request(spark, path, policy, table, with_indexes(None, use_index, trust))
    question = KeyQuestion.of(request, column, keys)
    if not question.prediction.pays:
        warnings.warn(f"pruning can't pay: {question.prediction}", BloomsealWarning, stacklevel=2)
    plan, where = question.plan, request.settings.paths[0]
    found = {piece.name: PrunedFile(piece.name, (), count, by_index=count) for piece, count in plan.gone}
    if plan.pieces:
        with described(spark, f"ask {where} for {len(plan.pieces)} files' filters"):
            task = functools.partial(_ask, request.settings, question.search, request.tree.rules)
            answers = packs(spark, plan.pieces, files_per_task).mapPartitions(task).collect()
        found |= {one.file: one for one in answers}
    files = request.tree.files
    seen, base = tuple(found[file.name] for file in files), files[0].base if files else None
    return PruneResult(os.fspath(path), column, seen, question.prediction, base, plan.stats.files_not_covered)


def _ask(
    settings: SourceOptions, search: KeySearch, rules: Rules | None, pieces: Iterable[Piece]
) -> Iterator[PrunedFile]:
    for piece in pieces:
        try:
            with settings.open(piece) as file:
                if rules is not None:
                    rules.check(file)
                found = search.ask(file, piece.kept)
                yield PrunedFile(
                    piece.name, found.row_groups, file.num_row_groups, found.by_statistics, found.by_filter,
                    found.without_filter, by_index=found.ruled_out_by(Reason.INDEX),
                )  # fmt: skip
        except BloomsealError as error:
            # Raised, it would end the job. What could not be asked may hold anything.
            yield PrunedFile(piece.name, (), 0, failure=error.what)


@dataclass(frozen=True, slots=True)
class KeyQuestion:
    """A table, a column and keys, looked at as far as the driver does.

    Attributes:
        values: the keys, or those of them that a sealed index knows.
        search: the same for the tasks, sealed.
        plan: what the table's indexes leave of its files.
        use_index: whether runs ask indexes, as in `bloomseal.open_table`.
        alike: the files of the sample have one schema.
    """

    values: Any
    search: KeySearch
    prediction: Prediction
    plan: Plan
    use_index: str
    alike: bool

    @classmethod
    def of(cls, request: Request, column: str, keys: Any) -> KeyQuestion:
        """Hash the keys, those that a sealed index of the whole table knows, or else all; seal them; ask indexes, and a
        few of the files that these leave.

        Raises:
            As `prune`.
        """
        settings, tree = request.settings, request.tree
        if settings.table is None:
            raise UsageError("no policy", hint="policy=, here or in bloomseal.spark.enable")
        if any(named_format(file.name) is Format.ORC for file in tree.files):
            raise UnsupportedError(
                "key sets travel under a column's key, which ORC files lack: semi_join() and prune() take Parquet",
                file=settings.paths[0], column=column, hint="bss.read(…, where=…), or a join of what it reads",
            )  # fmt: skip
        values = values_of(keys, column)
        pieces, _ = by_folders(tree, (), request.zone)
        files = Files(pieces, settings, tree.rules)
        if (known := _known_keys(files, column, values)) is not None:
            # A file that was replaced meanwhile is asked for all keys.
            with contextlib.suppress(UnsupportedError):
                found = _KeySample(files, column, known[0]).question(known[1])
                need_marks(found.search, found.plan)
                if found.prediction.pays:
                    return found
                # They are nearly everywhere: an index would spare nothing, whatever else is asked.
                files = Files(pieces, replace(settings, use_index="never"), tree.rules)
        return _KeySample(files, column, values).question(None)


class _KeySample:
    """What indexes, and a few files, say of keys; the first file with rows seals these."""

    def __init__(self, files: Files, column: str, values: Any) -> None:
        self._files, self._column, self._values = files, column, values
        self._keys: dict[ColumnType, KeySet] = {}
        self._asked: dict[ColumnType, ProbeSet] = {}
        self._sealed: SealedKeys | None = None
        self._empty: SealedKeys | None = None
        self._schemas: set[bytes] = set()
        self._left = self._sampled = 0

    def question(self, marks: frozenset[bytes] | None) -> KeyQuestion:
        """Look at the files.

        Args:
            marks: as `KeySearch` has them.
        """
        files, refused = self._files, None
        plan = by_indexes(files, [self._column], self._ways)
        prediction = Prediction(0, by_index=plan.ruled_out)
        # One at least, with a row group: its column's key seals the keys.
        pieces = plan.pieces or files.pieces
        sample = [pieces[place] for place in _some(len(pieces), _SAMPLED_FILES)]
        for number, piece in enumerate([*sample, *pieces]):
            if self._sealed is not None and (number >= len(sample) or prediction.index_pays):
                break
            if number >= len(sample) and (self._empty is None or refused is not None):
                break  # all but files without rows tell enough
            try:
                with files.settings.open(piece) as file:
                    self._look(file, piece.base)
            except UsageError:
                raise
            except BloomsealError as error:
                refused = error  # the executors will tell, of each file
        if self._sealed is None and refused is not None:
            raise refused
        # Nobody needs the keys where there is no row.
        if (sealed := self._sealed or self._empty) is None:
            what = "no such column in the files" if files.pieces else "there are no files"
            where, hint = files.settings.paths[0], "values of partition columns: where()"
            raise UsageError(what, file=where, column=self._column, hint=hint)
        keys, left = self._keys.get(sealed.column_type, ()), self._left / max(self._sampled, 1)
        prediction = replace(prediction, keys=len(keys), left=left, sampled=self._sampled)
        search = KeySearch(sealed, files.settings, marks)
        return KeyQuestion(self._values, search, prediction, plan, files.settings.use_index, len(self._schemas) == 1)

    def _ways(self, stand_in: SealedFile) -> list[list[Any]]:
        if (place := place_of(stand_in, self._column)) is None:
            return [[]]  # who opens such a file says what it is
        leaf = stand_in.leaves.leaves[place]
        keys = self._keys_for(stand_in, leaf)
        # One object, so that the index is asked once.
        return [[OneOf(leaf, self._asked.setdefault(leaf.type, keys.within(None)))]]

    def _keys_for(self, file: SealedFile, leaf: Leaf) -> KeySet:
        if leaf.type not in self._keys:
            self._keys[leaf.type] = need_parquet(file).key_set(leaf.name, self._values)
        return self._keys[leaf.type]

    def _look(self, file: SealedFile, base: str | None) -> None:
        self._schemas.add(file.leaves.raw)
        if (place := place_of(file, self._column)) is None:
            return
        leaf = file.leaves.leaves[place]
        if collated(stored_type(file, leaf.path)):
            raise UsageError(
                "by its collation, texts of other bytes are equal too: filters know bytes",
                column=self._column, hint="where()",
            )  # fmt: skip
        if not file.num_row_groups:
            self._empty = self._empty or SealedKeys.none(leaf.name, leaf.type, file.path, base)
            return
        keys = self._keys_for(file, leaf)
        self._sealed = self._sealed or SealedKeys.of(keys, leaf.type, file, place, base)
        if leaf.type == self._sealed.column_type:
            found = need_parquet(file).survivors(leaf.name, keys)
            self._left, self._sampled = self._left + len(found.row_groups), self._sampled + file.num_row_groups


def _known_keys(files: Files, column: str, values: Any) -> tuple[pa.Array, frozenset[bytes]] | None:
    """Of many keys those that the table's index of this column knows, and the `mark` of each file that it was held
    against. None where that would not do: there is no index, it does not cover every file, or is not to be asked for so
    many; keys that it can't be asked for; or they are few.
    """
    import pyarrow as pa

    if not isinstance(values, pa.Array | pa.ChunkedArray) or isinstance(values.type, pa.BaseExtensionType):
        return None
    if len(values) <= _MANY or files.settings.trust == "identity" or (indexes := files.indexes()) is None:
        return None
    states = indexes.states()
    held = indexes.held(spelled(indexes, [column]), states)
    if len(held) != 1 or not held[0].coverage.covered.all() or (kind := _kind(held[0], column)) is None:
        return None
    if held[0].too_many(len(values)):
        return None
    from ...table.query.indexes import UnreadableError

    try:
        found = _those_in(held[0], kind, values)
    except (BloomsealError, UnreadableError):
        found = None  # whoever asks for all keys is told why
    if found is None:
        return None
    names = (piece.name for piece in files.pieces)
    return found, frozenset(mark(name, state) for name, state in zip(names, states, strict=True) if state is not None)


def _kind(held: Held, column: str) -> ColumnType | None:
    """The type of the column in all files; None where they differ, or where one has the column by another spelling: of
    that the index has nothing.
    """
    from ...index.lookup import ghost

    kinds = set()
    for doc in np.unique(held.coverage.docs).tolist():
        file = ghost(held.coverage.doc(doc), "")
        place = place_of(file, column)
        leaf = None if place is None else file.leaves.leaves[place]
        kinds.add(None if leaf is None or leaf.name != held.column else leaf.type)
    return kinds.pop() if len(kinds) == 1 else None


def _those_in(held: Held, kind: ColumnType, values: Any) -> pa.Array | None:
    """The values that the index knows; None where of some no hash decides."""
    import pyarrow as pa

    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    values = values.drop_null()
    hashes, owners, undecided = ProbeSet.of(values, kind).hashes()
    if undecided.any():
        return None
    hit = np.zeros(len(values), dtype=np.bool_)
    hit[owners[held.find(hashes).owners]] = True
    return values.filter(pa.array(hit))


def _some(count: int, most: int) -> list[int]:
    """A few indexes, spread over all."""
    return sorted({round(i * (count - 1) / (most - 1)) for i in range(most)}) if count else []
