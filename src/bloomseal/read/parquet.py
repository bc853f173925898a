"""`ParquetFile`: probe filters, and read exactly the rows asked for, opening as little as possible."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from ..core.errors import Hint, UnsupportedError
from ..core.exclusion import Exclusion
from ..core.forked import new_lock
from ..core.parquet.belief import believed_filter
from ..core.parquet.keys_at_hand import need_verified
from ..core.parquet.layout import FileMeta
from ..core.parquet.schema import Leaf, Schema
from ..core.parquet.walk import Chunk, Protection, Walk
from ..core.sbbf import ProbeSet, SplitBlockBloomFilter
from ..core.storage.source import Source
from ..core.thrift import Struct
from ..core.verdict import Hits
from ..format.calendar import need_one_calendar
from ..format.decode import read_row_group
from ..format.opening import open_footer
from ..sbbf import KeySet
from ..storage.formats import Format
from .file import STREAMED, RowGroupInfo, SealedFile, Values
from .plan import Asked, ReadPlan, ReadStats, likeness
from .prune import RowGroupSelection, ruled_out, select_row_groups

if TYPE_CHECKING:
    from ..core.decryption import DecryptionSpec
    from ..core.parquet.footer import Footer
    from ..format.inspect import Inspection
    from ..format.verify import VerifyReport
    from ..policy import TablePolicy
    from ..storage.logs.deletion_vector import DeletionVector
    from .predicate.predicate import Left, Predicate


class ParquetFile(SealedFile):
    """An open Parquet file.

    Raises:
        FormatError, IntegrityError, KeyAccessError, PolicyError, UnsupportedError.
    """

    format: ClassVar = Format.PARQUET

    def __init__(self, source: Source, decryption: DecryptionSpec | TablePolicy | None = None) -> None:
        super().__init__(source, decryption)
        footer, keys = open_footer(source, self._decryption)
        self._expectation = keys.expectation
        self._footer = footer
        self._walk = Walk(source, footer, keys)
        self._deletes: Callable[[ParquetFile], DeletionVector] | None = None
        self._deleted: DeletionVector | None = None
        self._not_clear: set[int] = set()  # leaves that were held against the expectation in every row group

    @property
    def encrypted(self) -> bool:
        return self._footer.crypto is not None

    @property
    def footer_verified(self) -> bool:
        return self._footer.crypto is not None and self._footer.verified

    def need_verified(self, what: str) -> None:
        allowed = self._decryption is not None and self._decryption.allow_unverified_footer
        if not allowed:
            need_verified(self._footer, self.source, f"a {what}", Hint.VERIFIED_FOOTER)

    def leave_out(self, deletes: Callable[[ParquetFile], DeletionVector]) -> None:
        """Have reads, and counts, leave out the rows that the file's table has deleted. Filters, statistics and
        `verify` are about all rows.

        Args:
            deletes: tells which those are, once rows are asked for.
        """
        self._deletes, self._deleting = deletes, new_lock()

    @property
    def deleted(self) -> DeletionVector | None:
        """The rows that `leave_out` leaves out. Worked out once, however many threads read the file."""
        if self._deletes is None:
            return None
        with self._deleting:
            if self._deleted is None:
                self._deleted = self._deletes(self)
            return self._deleted

    @property
    def walk(self) -> Walk:
        """The file as its modules, each sealed by itself."""
        return self._walk

    @property
    def _int96_utc(self) -> bool:
        return bool(self._decryption and self._decryption.int96_utc)

    @property
    def identity(self) -> bytes:
        return identity_of(self._footer)

    @property
    def leaves(self) -> Schema:
        return self._footer.schema

    @property
    def likeness(self) -> Hashable:
        return likeness(self._footer)

    @property
    def metadata(self) -> dict[bytes, bytes]:
        pairs = map(Struct.parse, self._footer.struct.elements(FileMeta.KEY_VALUE))
        return {pair.binary(1) or b"": pair.binary(2) or b"" for pair in pairs}

    def arrow_schema(self, int96_unit: str = "ns") -> pa.Schema:
        return read_row_group(self._walk, None, range(len(self.leaves.leaves)), int96_unit=int96_unit).schema

    def forget_arrow_schema(self) -> None:
        struct, pairs = self._footer.struct, FileMeta.KEY_VALUE
        kept = [raw for raw in struct.elements(pairs) if Struct.parse(raw).binary(1) != b"ARROW:schema"]
        struct.set_list(pairs, kept)

    def column_type(self, column: str) -> str:
        """The column's physical and logical type, in words."""
        return str(self.leaf(column).type)

    @property
    def num_rows(self) -> int:
        return self._footer.num_rows if self.deleted is None else self.deleted.rows - len(self.deleted)

    @property
    def num_row_groups(self) -> int:
        return len(self._footer.row_groups)

    @property
    def row_groups(self) -> list[RowGroupInfo]:
        views = (self._footer.row_group(index) for index in range(self.num_row_groups))
        return [RowGroupInfo(i, view.num_rows or 0, view.total_byte_size or 0) for i, view in enumerate(views)]

    @property
    def num_parts(self) -> int:
        return self.num_row_groups

    def rows_in_part(self, part: int) -> int:
        rows = self._footer.row_group(part).num_rows or 0
        return rows if self.deleted is None else rows - self.deleted.count(part)

    def bytes_in_part(self, part: int) -> int:
        return self._footer.row_group(part).total_byte_size or 0

    def row_groups_in_part(self, part: int) -> int:  # noqa: ARG002
        return 1

    def protection(self, leaf: Leaf) -> Protection:
        chunks = (self._walk.chunk(group, leaf.index) for group in range(self.num_row_groups))
        return next((chunk.protection for chunk in chunks if chunk.encrypted), Protection.PLAINTEXT)

    def need_key(self, leaf: Leaf) -> None:
        for group in range(self.num_row_groups):
            self._walk.meta(self._walk.chunk(group, leaf.index))

    def has_filter(self, leaf: Leaf, part: int) -> bool:
        chunk = self._walk.chunk(part, leaf.index)
        found = self._walk.filter(chunk)
        return found is not None and (found.sealed or not chunk.encrypted)

    def filter(self, row_group: int, column: str) -> SplitBlockBloomFilter | None:
        """A column chunk's filter; None where there is none that proves anything.

        On an encrypted column only an authenticated filter counts: one in clear is ignored with a BloomsealWarning.

        Raises:
            PolicyError: the column, or its filter, is in clear, and the caller named it as encrypted.
            FormatError, IntegrityError, KeyAccessError.
        """
        return self._filter(self._walk.chunk(row_group, self._footer.schema.leaf(column).index))

    def hits(self, column: str, values: Values) -> Iterator[Hits]:
        """As `probe`: one array of answers per row group, not named yet."""
        self.need_verified("probe")
        leaf = self._footer.schema.leaf(column)
        asked = ProbeSet.of(values, leaf.type, int96_utc=self._int96_utc)
        for group in range(self.num_row_groups):
            need_one_calendar(self._walk, group, [leaf])
            bloom_filter = self._filter(self._walk.chunk(group, leaf.index))
            if bloom_filter is None:
                yield Hits(np.ones(len(asked), dtype=np.bool_), True)
            else:
                yield Hits(asked.check(bloom_filter), False)

    def key_set(self, column: str, values: Values) -> KeySet:
        """Values hashed for this column, and for columns of its type in other files: any number for `survivors`.

        Raises:
            UsageError: no such column, or a value of the wrong kind.
        """
        return KeySet.of(values, self.leaf(column).type, int96_utc=self._int96_utc)

    def survivors(self, column: str, keys: KeySet, groups: Sequence[int] | None = None) -> RowGroupSelection:
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
        return select_row_groups(self._walk, leaf, keys, groups)

    def plan(self, columns: Sequence[str] | None = None, where: Any = None, *, int96_unit: str = "ns") -> ReadPlan:
        """Check a read's arguments, as `read` takes and refuses them, without reading anything."""
        self.need_verified("read")
        self._expectation.names(schema := self._footer.schema)
        wanted, order = self._wanted(columns, int96_unit)
        predicate = None
        if where is not None:
            # Arrow's compute functions take as long to load as a small probe takes.
            from .predicate.predicate import Predicate

            predicate = Predicate(where, schema, int96_utc=self._int96_utc)
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
        plan = ReadPlan(self._walk, *asked, ReadStats(row_groups=self.num_row_groups))
        if self._deletes is not None:
            plan.deletes = lambda: self.deleted
        return plan

    def skips(self, plan: Any, part: int) -> bool:
        left: Left = {}
        if (proof := self.rules_out(plan, part, left)) is None:
            plan.left[part] = left
            return False
        plan.stats.exclude([proof])
        return True

    def pieces(self, plan: Any, part: int, size: int = STREAMED) -> Iterator[pa.Table]:
        if part not in plan.left and self.skips(plan, part):
            return
        left = plan.left.pop(part)
        plan.stats.count(decoded=1)
        for table in plan.rows(part, left, size):
            plan.stats.count(rows=table.num_rows)
            yield table

    def rules_out(self, plan: ReadPlan, row_group: int, left: Left | None = None) -> Exclusion | None:
        """What proves that a row group has no row that the plan asks for; None where nothing does. `left`: see
        `ruled_out`.

        Raises:
            FormatError, IntegrityError, KeyAccessError, PolicyError.
        """
        if plan.predicate is None:
            return None
        return ruled_out(self._walk, row_group, plan.predicate, left)

    def inspect(self) -> Inspection:
        from ..format.inspect import inspect_parquet  # look-ups need not load this

        return inspect_parquet(self.source, self._decryption)

    def verify(self, *, filters: bool = False) -> VerifyReport:
        """Open every module that the keys can open; with `filters` ask each filter for all values of its column
        chunk.
        """
        from ..core.parquet.footer import peek
        from ..format.verify import verify_walk  # look-ups need not load this

        report = verify_walk(self._walk, filters=filters)
        if self._decryption is not None and self._decryption.signers is not None:
            report.signed_by = self._decryption.signers.judge(peek(self.source), self.source.ref).signer
        return report

    def _refuse_clear(self, wanted: Sequence[int], predicate: Predicate | None) -> None:
        """Whether a column in plaintext is refused must not depend on which row groups are opened."""
        leaves = {*wanted, *(leaf.index for leaf in predicate.leaves)} if predicate else set(wanted)
        for index in sorted(leaves - self._not_clear):
            if self._expectation.must_be_encrypted(self._footer.schema.leaves[index].name):
                for group in range(self.num_row_groups):
                    self._walk.expected(self._walk.chunk(group, index))
            self._not_clear.add(index)

    def _filter(self, chunk: Chunk) -> SplitBlockBloomFilter | None:
        return believed_filter(self._walk, chunk)


def identity_of(footer: Footer) -> bytes:
    """See `SealedFile.identity`."""
    return hashlib.sha256(footer.raw).digest() if footer.crypto is None else footer.crypto.aad_unique


def need_parquet(file: SealedFile) -> ParquetFile:
    """The file, for what asks for its modules.

    Raises:
        UnsupportedError: an ORC file, which has none, so that nothing authenticates a part of it.
    """
    if isinstance(file, ParquetFile):
        return file
    what = f"{file.format} file, whose parts nothing authenticates, where this works on Parquet files"
    raise UnsupportedError(what, file=file.path, hint="bloomseal.orc has what such a file can do")
