"""`SealedFile`: probe filters, and read exactly the rows asked for, opening as little as possible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.decryption import DecryptionSpec
from ..core.errors import UnsupportedError, UsageError
from ..core.parquet.belief import believed_filter
from ..core.parquet.schema import Schema
from ..core.parquet.walk import Chunk
from ..core.sbbf import ProbeSet, SplitBlockBloomFilter
from ..core.sbbf.probe import several
from ..core.spelling import named_columns
from ..core.storage.ref import FileRef
from ..core.storage.source import Source
from ..format.calendar import need_one_calendar
from ..format.decode import read_row_group
from ..sbbf import KeySet
from ..storage.baton import waiting
from ..storage.lent import lend
from ..storage.places import FilePlace, open_source
from .opened import OpenedFile, RowGroupInfo
from .plan import Asked, ReadPlan, ReadStats
from .prune import RuledOut, Survivors, ruled_out, survivors
from .verdict import Hits, Verdict, verdicts

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

    from ..format.verify import VerifyReport
    from ..policy import TablePolicy
    from .predicate.predicate import Left, Predicate

__all__ = ["ReadPlan", "ReadStats", "RowGroupInfo", "RuledOut", "SealedFile", "Survivors", "Verdict", "open_file"]


class SealedFile(OpenedFile):
    """An open Parquet file, encrypted or not. Threads may share it; make one with `open_file`.

    Attributes:
        stats: what the last `read` did.
    """

    def __init__(self, source: Source, decryption: DecryptionSpec | TablePolicy | None) -> None:
        super().__init__(source, decryption)
        self._not_clear: set[int] = set()  # leaves that were held against the expectation in every row group
        self.stats = ReadStats()

    def filter(self, row_group: int, column: str) -> SplitBlockBloomFilter | None:
        """A column chunk's filter; None where there is none that proves anything.

        On an encrypted column only an authenticated filter counts: one in clear is ignored with a BloomsealWarning.

        Raises:
            PolicyError: the column, or its filter, is in clear, and the caller named it as encrypted.
            FormatError, IntegrityError, KeyAccessError.
        """
        return self._filter(self._walk.chunk(row_group, self._footer.schema.leaf(column).index))

    def probe(self, column: str, values: Sequence[Any] | pa.Array | pa.ChunkedArray) -> list[list[Verdict]]:
        """Ask every row group's filter for these values.

        Args:
            column: dotted path; leaves inside lists and maps may be probed too.
            values: one or many, encoded by the *footer's* type and hashed once.

        Returns:
            One list per row group, one verdict per value.

        Raises:
            UsageError: no such column, or a value of the wrong kind.
            PolicyError: the footer could not be verified, so that row groups may be missing.
        """
        return [verdicts(hits) for hits in self.hits(column, values)]

    def maybe_present(self, column: str, values: Sequence[Any] | pa.Array | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
        """As `probe`, for many values: an array of shape (row groups, values), False where a value is absent. A row
        group without a filter is True throughout: it proves nothing.

        Raises:
            As `probe`.
        """
        values = several(values)
        answers = [hits.maybe for hits in self.hits(column, values)]
        return np.stack(answers) if answers else np.empty((0, len(values)), dtype=np.bool_)

    def hits(self, column: str, values: Sequence[Any] | pa.Array | pa.ChunkedArray) -> Iterator[Hits]:
        """As `probe`: one array of answers per row group, not named yet."""
        self.need_verified("probe")
        leaf = self._footer.schema.leaf(column)
        asked = ProbeSet.of(values, leaf.type, int96_utc=self._int96_utc)
        for group in range(self.num_row_groups):
            need_one_calendar(self._walk, group, [leaf])
            bloom_filter = self._lent_filter(self._walk.chunk(group, leaf.index))
            if bloom_filter is None:
                yield Hits(np.ones(len(asked), dtype=np.bool_), True)
            else:
                with waiting():
                    maybe = asked.check(bloom_filter)
                yield Hits(maybe, False)

    def key_set(self, column: str, values: Sequence[Any] | pa.Array | pa.ChunkedArray) -> KeySet:
        """Values hashed for this column, and for columns of its type in other files: any number for `survivors`.

        Raises:
            UsageError: no such column, or a value of the wrong kind.
        """
        return KeySet.of(values, self._footer.schema.leaf(column).type, int96_utc=self._int96_utc)

    def survivors(self, column: str, keys: KeySet, groups: Sequence[int] | None = None) -> Survivors:
        """The row groups in which one of these values may be, by statistics and filters.

        Args:
            keys: from `key_set`, of this file or of one whose column has the same type.
            groups: the row groups to ask, ascending; None: all.

        Raises:
            As `probe`.
        """
        self.need_verified("probe")
        leaf = self._footer.schema.leaf(column).index
        self._refuse_clear([leaf], None)
        return survivors(self._walk, leaf, keys, self._filter, groups)

    def read(self, columns: Sequence[str] | None = None, filters: Any = None, *, int96_unit: str = "ns") -> pa.Table:
        """Read rows.

        Row groups are ruled out by statistics, then by filters; of the others the predicate's columns are opened first,
        and the rest only where a row matches. The predicate is applied to the rows, so the answer is exact.

        Args:
            columns: top-level names or dotted paths, in the order wanted; None for all.
            filters: ``[(column, op, value), ...]`` (all of them), or a list of such lists (any of them), with the
                operators ``= == != < <= > >= in`` and ``not in``; these two take any iterable, arrays and Series too.
                Or a ``pyarrow.compute`` expression, which means what it means to pyarrow: comparisons of a column with
                a literal, ``isin``, ``is_null`` and ``is_valid``, joined by ``&`` and ``|``, prune; the rest only
                chooses rows.
            int96_unit: ``ns``, or ``us`` for INT96 columns with moments outside of the years 1677 to 2262, such as the
                9999-12-31 of Spark's tables. Neither ever gives another instant than the file's.

        Raises:
            UsageError: no such column, or a value of the wrong kind.
            KeyAccessError: a column is asked for (also by ``columns=None``) whose key is not at hand.
            UnsupportedError: INT96 moments that `int96_unit` can't hold.
            FormatError, IntegrityError, PolicyError.
        """
        plan = self.plan(columns, filters, int96_unit=int96_unit)
        result = pa.concat_tables(list(self.scan(plan)) or [plan.empty])
        self.stats = plan.stats
        return result

    def plan(self, columns: Sequence[str] | None = None, filters: Any = None, *, int96_unit: str = "ns") -> ReadPlan:
        """Check a read's arguments, as `read` takes and refuses them, without reading anything. As `filters` it also
        takes the predicate of another file's plan, if that file has the same schema.
        """
        self.need_verified("read")
        if int96_unit not in ("ns", "us"):
            raise UsageError("int96_unit= is 'ns' or 'us'")
        self._expectation.names(schema := self._footer.schema)
        names = schema.top_level if columns is None else named_columns(columns)
        wanted = sorted({leaf.index for name in names for leaf in schema.below(name)})
        order = list(dict.fromkeys(schema.below(name)[0].path[0] for name in names))
        if twice := schema.repeated_names & set(order):
            raise UnsupportedError("several columns have the same name", file=self.path, column=min(twice))
        predicate = None if filters is None else _predicate(filters, schema, self._int96_utc)
        return self._planned(Asked(wanted, order, predicate, int96_unit))

    def plan_as(self, asked: Asked) -> ReadPlan:
        """As `plan`, of a read that was found good for a file of the same `likeness`: what may differ from file to file
        is checked.
        """
        self.need_verified("read")
        self._expectation.names(self._footer.schema)
        return self._planned(asked)

    def _planned(self, asked: Asked) -> ReadPlan:
        self._refuse_clear(asked.wanted, asked.predicate)
        return ReadPlan(self._walk, *asked, ReadStats(row_groups=self.num_row_groups))

    def scan(self, plan: Any) -> Iterator[pa.Table]:
        """The matching rows, one table per part that has any. Counts into ``plan.stats``."""
        for part in range(self.num_parts):
            if (table := self.scan_part(plan, part)) is not None:
                yield table

    def skips(self, plan: Any, part: int) -> bool:
        """Do statistics and filters leave nothing of a part? Of one that they leave, `scan_part` asks no more. Counts
        into ``plan.stats``.
        """
        left: Left = {}
        if (proof := self.rules_out(plan, part, left)) is None:
            plan.left[part] = left
            return False
        by_filter = proof is RuledOut.BY_FILTER
        plan.stats.count(pruned_by_statistics=not by_filter, pruned_by_filter=by_filter)
        return True

    def scan_part(self, plan: Any, part: int) -> pa.Table | None:
        """The matching rows of a part; None where there are none. Counts into ``plan.stats``."""
        if part not in plan.left and self.skips(plan, part):
            return None
        left = plan.left.pop(part)
        plan.stats.count(decoded=1)
        with waiting():
            if plan.predicate is None:
                how: dict[str, Any] = {"int96_unit": plan.int96_unit, "use_threads": len(plan.wanted) > 1}
                table = read_row_group(self._walk, part, plan.wanted, **how).select(plan.order)
            else:
                table = plan.matching(part, left)
        if table is not None:
            plan.stats.count(rows=table.num_rows)
        return table

    def pieces(self, plan: Any, part: int) -> Iterator[pa.Table]:
        """As `scan_part`, in pieces of a megabyte or less where every row is asked for."""
        if plan.predicate is not None:
            if (found := self.scan_part(plan, part)) is not None:
                yield found
            return
        plan.stats.count(decoded=1)
        for table in plan.pieces(part):
            plan.stats.count(rows=table.num_rows)
            yield table

    def rules_out(self, plan: ReadPlan, row_group: int, left: Left | None = None) -> RuledOut | None:
        """What proves that a row group has no row that the plan asks for; None where nothing does. `left`: see
        `ruled_out`.

        Raises:
            FormatError, IntegrityError, KeyAccessError, PolicyError.
        """
        if plan.predicate is None:
            return None
        return ruled_out(self._walk, row_group, plan.predicate, self._lent_filter, left)

    def verify(self, *, filters: bool = False) -> VerifyReport:
        """Open every module that the keys can open; with `filters` ask each filter for all values of its column
        chunk.
        """
        from ..format.verify import verify_walk  # look-ups need not load this

        return verify_walk(self._walk, filters=filters)

    def _refuse_clear(self, wanted: Sequence[int], predicate: Predicate | None) -> None:
        """Whether a column in plaintext is refused must not depend on which row groups are opened."""
        leaves = {*wanted, *(leaf.index for leaf in predicate.leaves)} if predicate else set(wanted)
        for index in sorted(leaves - self._not_clear):
            if self._expectation.must_be_encrypted(self._footer.schema.leaves[index].name):
                for group in range(self.num_row_groups):
                    self._walk.expected(self._walk.chunk(group, index))
            self._not_clear.add(index)

    def _lent_filter(self, chunk: Chunk) -> SplitBlockBloomFilter | None:
        """As `filter`, in memory that the thread's next filter takes."""
        return believed_filter(self._walk, chunk, (lend(0), lend(1)))

    def _filter(self, chunk: Chunk) -> SplitBlockBloomFilter | None:
        return believed_filter(self._walk, chunk)


def _predicate(filters: Any, schema: Schema, int96_utc: bool) -> Predicate:
    # Arrow's compute functions take as long to load as a small probe takes.
    from .predicate.predicate import Predicate

    if isinstance(filters, Predicate) and filters.suits(schema, int96_utc=int96_utc):
        return filters
    return Predicate(filters, schema, int96_utc=int96_utc)


def open_file(
    path: FilePlace | FileRef,
    *,
    decryption: DecryptionSpec | TablePolicy | None = None,
    filesystem: FileSystem | None = None,
) -> SealedFile:
    """Open a Parquet file: one read of its tail, the footer opened or its signature verified.

    Args:
        path: local path, URI, or path on `filesystem`; a file object that can seek, or the file's bytes; or a place
            that was found in a table.
        filesystem: of pyarrow or fsspec.
        decryption: keys and expectations, or a table's policy (`Policy.for_table`); None for a plaintext file.

    Raises:
        FormatError, IntegrityError, KeyAccessError, PolicyError, UnsupportedError, UsageError.
    """
    source = open_source(path, filesystem)
    try:
        return SealedFile(source, decryption)
    except BaseException:
        source.close()
        raise
