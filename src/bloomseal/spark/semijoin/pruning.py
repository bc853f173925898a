"""The files and row groups in which a key may be: what sealed indexes, and then every row group's statistics and sealed
filter, leave of a table.
"""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from ...core.errors import BloomsealError, BloomsealWarning
from ...core.exclusion import Reason
from ...policy import Policy, TablePolicy
from ..jobs.common import as_frame, described, packs
from ..request import Request, with_indexes
from .question import KeyQuestion

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ...storage.logs.snapshot import Snapshot
    from ..source.files.piece import Piece
    from ..source.options import SourceOptions
    from ..source.search import KeySearch

_PRUNED: Final = (
    "file string, row_groups array<int>, seen bigint, by_statistics bigint, by_filter bigint, by_index bigint, "
    "without_filter bigint, failure string"
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
    use_index: str = "auto",
    trust: str = "auto",
) -> DataFrame:
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

    Returns:
        One row a file: the `row_groups` that may hold a key, of how many (`seen`); how many were ruled out by
        statistics, by filters and by a sealed index (all of a file that nobody opened); survivors that no filter was
        asked about; and `failure`, why a file could not be asked, all of which then survives.

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
    found: dict[str, tuple[Any, ...]] = {
        piece.name: (piece.name, [], piece.kept.seen, 0, 0, piece.kept.seen, 0, None)
        for piece in plan.gone
        if piece.kept is not None
    }
    if plan.pieces:
        with described(spark, f"ask {where} for {len(plan.pieces)} files' filters"):
            task = functools.partial(_ask, request.settings, question.search, request.tree.log)
            answers = packs(spark, plan.pieces, files_per_task).mapPartitions(task).collect()
        found |= {one[0]: one for one in answers}
    return as_frame(spark, [found[file.name] for file in request.tree.files], _PRUNED)


def _ask(
    settings: SourceOptions, search: KeySearch, log: Snapshot | None, pieces: Iterable[Piece]
) -> Iterator[tuple[Any, ...]]:
    for piece in pieces:
        try:
            with settings.open(piece, log) as file:
                left = search.ask(file, piece.kept)
                yield (
                    piece.name, list(left.row_groups), file.num_row_groups, left.by_statistics, left.by_filter,
                    left.ruled_out_by(Reason.INDEX), left.without_filter, None,
                )  # fmt: skip
        except BloomsealError as error:
            # Raised, it would end the job. What could not be asked may hold anything.
            yield piece.name, [], 0, 0, 0, 0, 0, error.what
