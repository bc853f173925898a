"""`SealedFile`: what an open file answers, whichever format it has.

`bloomseal.read.parquet` and `bloomseal.read.orc` implement it; `bloomseal.read.open` chooses by the file's end. Tables,
indexes, audits, rotations and Spark ask these questions, and never which format a file has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.errors import BloomsealError, Hint, KeyAccessError, UnsupportedError, UsageError
from ..core.parquet.walk import Protection
from ..core.sbbf.probe import several
from ..core.spelling import named_columns, need_our_names
from ..core.storage.source import Source
from ..core.text import counted
from ..core.verdict import Hits, verdicts
from ..notebook import ShownInNotebooks
from ..specs import decryption_for
from ..storage.formats import Format
from .answers import FileAnswer
from .plan import INT96_UNITS, ReadStats
from .without_key import WithoutKey, checked_without_key, without_lost

if TYPE_CHECKING:
    from ..core.decryption import DecryptionSpec
    from ..core.parquet.schema import Leaf, Schema
    from ..format.inspect import Inspection
    from ..format.verify import VerifyReport
    from ..policy import TablePolicy

STREAMED: Final = 1 << 19
"""Bytes of rows that are decoded at a time, of a stream."""
GATHERED: Final = 1 << 26
"""The same, where all rows are kept."""
Values: TypeAlias = "Sequence[Any] | pa.Array | pa.ChunkedArray"


@dataclass(frozen=True, slots=True)
class RowGroupInfo:
    """A row group: its index, rows, and bytes before compression."""

    index: int
    num_rows: int
    total_byte_size: int


class SealedFile(ABC, ShownInNotebooks):
    """An open file, encrypted or not. Threads may share it; make one with `bloomseal.open_file`.

    Rows are decoded in *parts*: row groups of a Parquet file, stripes of an ORC file.

    Attributes:
        source: the bytes.
        stats: what the last `read` did.
    """

    format: ClassVar[Format]

    def __init__(self, source: Source, decryption: DecryptionSpec | TablePolicy | None = None) -> None:
        self.source = source
        self._decryption = decryption_for(decryption, source.ref)
        self.stats = ReadStats()

    @property
    def path(self) -> str:
        return self.source.name

    @property
    @abstractmethod
    def encrypted(self) -> bool:
        """Whether anything in the file is encrypted."""

    @property
    @abstractmethod
    def footer_verified(self) -> bool:
        """Whether the footer was opened or its signature checked with the footer key. A plaintext file's never is."""

    @abstractmethod
    def need_verified(self, what: str) -> None:
        """Refuse what would rely on a footer that could not be verified, if that was not allowed.

        Args:
            what: the use, in a word.

        Raises:
            PolicyError: the footer's signature could not be checked.
        """

    @property
    @abstractmethod
    def identity(self) -> bytes:
        """What differs for every file that was sealed, and stays where only wrapped keys or filters change."""

    @property
    @abstractmethod
    def leaves(self) -> Schema:
        """The columns, as predicates know them."""

    @property
    def columns(self) -> list[str]:
        """Dotted paths of all leaf columns, as tables have them."""
        return [leaf.name for leaf in self.leaves.leaves]

    def leaf(self, column: str) -> Leaf:
        """The leaf of a dotted path.

        Raises:
            UsageError: no such column, or several.
        """
        return self.leaves.leaf(column)

    def has(self, column: str) -> bool:
        """Whether there is a leaf at or below this dotted path."""
        return self.leaves.has(column)

    @property
    @abstractmethod
    def metadata(self) -> dict[bytes, bytes]:
        """What writers have stored beside the rows, by name."""

    @abstractmethod
    def arrow_schema(self, int96_unit: str = "ns") -> pa.Schema:
        """All columns, in the types to which they are decoded."""

    def forget_arrow_schema(self) -> None:  # a format that stores none has none to forget
        """Decode to the format's own types alone from here on: the Arrow schema that some writers store beside them
        makes of a number a duration.
        """

    @abstractmethod
    def column_type(self, column: str) -> str:
        """The column's type, in the format's words."""

    @property
    @abstractmethod
    def num_rows(self) -> int: ...

    @property
    @abstractmethod
    def num_row_groups(self) -> int: ...

    @property
    @abstractmethod
    def row_groups(self) -> list[RowGroupInfo]:
        """All row groups."""

    @property
    @abstractmethod
    def num_parts(self) -> int:
        """How many parts the rows are decoded in."""

    @abstractmethod
    def rows_in_part(self, part: int) -> int:
        """How many rows there are in a part."""

    @abstractmethod
    def bytes_in_part(self, part: int) -> int:
        """How many bytes a part has, all columns together: of Parquet before compression, of ORC as stored."""

    @abstractmethod
    def row_groups_in_part(self, part: int) -> int:
        """How many row groups a part has."""

    @abstractmethod
    def protection(self, leaf: Leaf) -> Protection:
        """Under which key the column is; in plaintext, if it is so in every row group."""

    def seals(self, leaf: Leaf) -> bool:
        """Whether the column is encrypted in any row group."""
        return self.protection(leaf) is not Protection.PLAINTEXT

    @abstractmethod
    def need_key(self, leaf: Leaf) -> None:
        """Open what says where the column's values are.

        Raises:
            KeyAccessError: the column is encrypted, and its key can't be had.
            PolicyError, IntegrityError, FormatError: it does not open, or is not to be believed.
        """

    def without_key(self, leaves: Iterable[Leaf]) -> frozenset[int]:
        """Those of these leaves to whose key this reader has no access. Whoever reads a damaged column is told.

        Raises:
            KeyAccessError: nobody can tell: a KMS that is away is no refusal, nor is a key that does not authenticate.
        """
        found = set()
        for leaf in leaves:
            try:
                self.need_key(leaf)
            except KeyAccessError as error:
                if not error.lacking:
                    raise
                found.add(leaf.index)
            except BloomsealError:
                continue
        return frozenset(found)

    def lost(self, columns: Sequence[str]) -> frozenset[str]:
        """The top-level columns of which a part, of those asked for, is `without_key`."""
        leaves = [leaf for name in columns for leaf in self.leaves.below(name)]
        return frozenset(self.leaves.leaves[index].path[0] for index in self.without_key(leaves))

    @abstractmethod
    def has_filter(self, leaf: Leaf, part: int) -> bool:
        """Whether a part has filters of the column that may rule it out: of an encrypted column sealed ones.

        Raises:
            BloomsealError: as `need_key`.
        """

    @abstractmethod
    def filter(self, part: int, column: str, /) -> Any:
        """The filters of a column in a part: of Parquet a `SplitBlockBloomFilter`, of ORC a list, one per row group;
        None where there is none.

        Raises:
            UsageError: no such column.
            FormatError, IntegrityError: the filter, or the way to it, is broken or altered.
            KeyAccessError, PolicyError: its key is not at hand, or not the expected one.
        """

    @property
    @abstractmethod
    def likeness(self) -> Hashable:
        """Equal for files whose columns have equal names and types; None: nothing tells."""

    @abstractmethod
    def hits(self, column: str, values: Values) -> Iterator[Hits]:
        """As `probe`: one array of answers per row group, not named yet."""

    def probe(self, column: str, values: Values) -> FileAnswer:
        """Ask every row group's filter for these values.

        Args:
            column: dotted path; leaves inside lists and maps may be probed too.
            values: one or many, encoded by the *file's* type and hashed once.

        Returns:
            One list per row group, one `Verdict` per value.

        Raises:
            UsageError: no such column, or a value of the wrong kind.
            PolicyError: the footer could not be verified, so that row groups may be missing.
        """
        return FileAnswer(verdicts(hits) for hits in self.hits(column, values))

    def maybe_present(self, column: str, values: Values) -> npt.NDArray[np.bool_]:
        """As `probe`, for many values: an array of shape (row groups, values), False where a value is absent. A row
        group without a filter is True throughout: it proves nothing.

        Raises:
            BloomsealError: as `probe`.
        """
        values = several(values)
        answers = [hits.maybe for hits in self.hits(column, values)]
        return np.stack(answers) if answers else np.empty((0, len(values)), dtype=np.bool_)

    @abstractmethod
    def plan(self, columns: Sequence[str] | None = None, where: Any = None, *, int96_unit: str = "ns") -> Any:
        """Check a read's arguments, as `read` takes and refuses them, without reading anything."""

    def _wanted(self, columns: Sequence[str] | None, int96_unit: str) -> tuple[list[int], list[str]]:
        """The leaves that are asked for, ascending, and their top-level columns in the order wanted.

        Raises:
            UsageError: no such column, or no such unit.
            UnsupportedError: several columns have the name.
        """
        if int96_unit not in INT96_UNITS:
            raise UsageError("int96_unit= is 'ns' or 'us'")
        schema = self.leaves
        names = schema.top_level if columns is None else named_columns(columns)
        wanted = sorted({leaf.index for name in names for leaf in schema.below(name)})
        order = list(dict.fromkeys(schema.below(name)[0].path[0] for name in names))
        if twice := schema.repeated_names & set(order):
            raise UnsupportedError(
                "several columns have the same name", file=self.path, column=min(twice), hint=Hint.WITHOUT_COLUMN
            )
        return wanted, order

    @abstractmethod
    def skips(self, plan: Any, part: int) -> bool:
        """Whether statistics and filters leave nothing of a part. Of one that they leave, `pieces` asks no more.
        Counts into ``plan.stats``.
        """

    @abstractmethod
    def pieces(self, plan: Any, part: int, size: int = STREAMED) -> Iterator[pa.Table]:
        """The matching rows of a part; where every row is asked for, about so many bytes of them at a time, if the
        format can. Counts into ``plan.stats``.
        """

    def scan(self, plan: Any) -> Iterator[pa.Table]:
        """The matching rows, part by part. Counts into ``plan.stats``."""
        for part in range(self.num_parts):
            yield from self.pieces(plan, part, GATHERED)

    @need_our_names
    def read(
        self,
        columns: Sequence[str] | None = None,
        where: Any = None,
        *,
        int96_unit: str = "ns",
        columns_without_key: WithoutKey = "error",
    ) -> pa.Table:
        """Read rows.

        Row groups are ruled out by statistics, then by filters; of the others the predicate's columns are opened first,
        and the rest only where a row matches. The predicate is applied to the rows, so the answer is exact.

        Args:
            columns: top-level names or dotted paths, in the order wanted; None for all.
            where: SQL, as ``bloomseal read --where`` has it; ``[(column, op, value), ...]`` (all of them), or a list
                of such lists (any of them), with ``= == != < <= > >= in`` and ``not in``, these two with any iterable;
                or a ``pyarrow.compute`` expression, of which comparisons of a column with a literal, ``isin``,
                ``is_null`` and ``is_valid``, joined by ``&`` and ``|``, prune, and the rest only chooses rows.
            int96_unit: ``ns``, or ``us`` for INT96 columns with moments outside of the years 1677 to 2262, such as the
                9999-12-31 of Spark's tables. Neither ever gives another instant than the file's.
            columns_without_key: ``error`` refuses a column to whose key this reader has no access, ``null`` gives
                nulls for it, ``drop`` leaves it out. `where` needs the keys of its columns. A KMS that can't be
                reached, or a key or a column that does not authenticate, is an error whatever this says.

        Raises:
            UsageError: no such column, or a value of the wrong kind.
            KeyAccessError: a column is asked for (also by ``columns=None``) whose key is not at hand.
            UnsupportedError: INT96 moments that `int96_unit` can't hold.
            FormatError, IntegrityError, PolicyError: the file is broken, altered, or not as expected.
        """
        plan = whole = self.plan(columns, where, int96_unit=int96_unit)
        names = self.leaves.top_level if columns is None else named_columns(columns)
        lost = self.lost(names) if checked_without_key(columns_without_key) != "error" else frozenset()
        if lost:
            asked = plan.predicate.leaves if plan.predicate else ()
            for leaf in asked:
                self.need_key(leaf)
            left = [name for name in names if self.leaves.below(name)[0].path[0] not in lost]
            if not (left := left or [leaf.name for leaf in asked][:1]):
                rows = pa.table({"": pa.nulls(self.num_rows)})
                return without_lost(rows, whole.empty.schema, lost, columns_without_key)
            plan = self.plan(left, where, int96_unit=int96_unit)
        result = pa.concat_tables(list(self.scan(plan)) or [plan.empty])
        self.stats = plan.stats
        return without_lost(result, whole.empty.schema, lost, columns_without_key) if lost else result

    @abstractmethod
    def verify(self, *, filters: bool = False) -> VerifyReport:
        """Open whatever the keys can open; with `filters` ask each filter for all values of its column chunk."""

    @abstractmethod
    def inspect(self) -> Inspection:
        """What the file is, as far as the keys at hand allow: rows, columns, keys and filters."""

    def to_dict(self) -> dict[str, Any]:
        """As `inspect`."""
        return self.inspect().to_dict()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise no_rows("file", ".read(columns, where) gives them as a table")

    def close(self) -> None:
        self.source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "encrypted" if self.encrypted else "plaintext"
        name = type(self).__name__
        rows, groups = counted(self.num_rows, "row"), counted(self.num_row_groups, "row group")
        return f"<{name} {self.path}: {rows}, {groups}, {counted(len(self.columns), 'column')}, {state}>"


def no_rows(what: str, hint: str) -> UsageError:
    """An open file or table, handed to somebody who takes rows: they leave it by a call that says so, since what others
    write is plaintext.
    """
    return UsageError(f"an open {what} is not its rows", hint=hint)
