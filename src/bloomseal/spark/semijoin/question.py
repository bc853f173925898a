"""A table, a column and keys, looked at as far as the driver does: what sealed indexes leave, and what a few files
say.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ...core.errors import BloomsealError, UnsupportedError, UsageError
from ...core.sbbf import ProbeSet
from ...read.parquet import need_parquet
from ...storage.formats import Format, named_format
from ..request import Request
from ..source.planning import Files, Plan, by_folders, by_indexes, need_marks, spelled
from ..source.pushdown import collated
from ..source.sealed_keyset import SealedKeys, place_of
from ..source.search import KeySearch, OneOf, mark
from ..source.types import stored_type
from .keys import values_of

if TYPE_CHECKING:
    import pyarrow as pa

    from ...core.parquet.schema import Leaf
    from ...core.sbbf import ColumnType, ProbeSet
    from ...read.file import SealedFile
    from ...sbbf import KeySet
    from ...table.query.indexes import Held
    from ..source.files.piece import Piece

_SAMPLED_FILES: Final = 12
_LEAST_SAMPLE: Final = 8
"""Row groups that must have been asked before their answers say anything of the others."""
_NOT_WORTH: Final = 0.9
"""Where more than this share of the row groups is left, pruning can't pay."""
_NOT_WORTH_BESIDE_SPARK: Final = 0.4
"""The same where Spark's own reader can take them all: it does with half the work for each, and nobody asks indexes."""
_MANY: Final = 10_000
"""More keys than these, in a frame or in Arrow, are first looked up in an index that covers every file."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What was expected before the executors were asked.

    Attributes:
        keys: distinct keys.
        sampled: row groups of a few files that were asked, here on the driver.
        left: the share of them that may hold a key, by chance or since they do.
        by_index: the share of all row groups that sealed indexes rule out, before anything is sampled.
        most: the share that may be left where pruning pays.
    """

    keys: int
    left: float = 0.0
    sampled: int = 0
    by_index: float = 0.0
    most: float = _NOT_WORTH

    @property
    def pays(self) -> bool:
        """Whether pruning can spare anything that is worth it."""
        return self.index_pays or self.sampled < _LEAST_SAMPLE or self.left <= self.most

    @property
    def everywhere(self) -> bool:
        """Whether pruning can't pay either where our own reader has to read the table."""
        return not replace(self, most=_NOT_WORTH).pays

    @property
    def index_pays(self) -> bool:
        """Whether indexes alone spare enough, whatever filters add."""
        return 1 - self.by_index <= self.most

    def __str__(self) -> str:
        if self.index_pays:
            return f"{self.keys} keys: sealed indexes rule out {self.by_index:.0%} of the row groups"
        return f"{self.keys} keys: {self.left:.0%} of {self.sampled} row groups that were asked may hold one"


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
    def of(cls, request: Request, column: str, keys: Any, *, beside_spark: bool = False) -> KeyQuestion:
        """Hash the keys, those that a sealed index of the whole table knows, or else all; seal them; ask indexes, and a
        few of the files that these leave.

        Args:
            beside_spark: Spark's own reader can read the table whole.

        Raises:
            As `.pruning.prune`.
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
        pieces, _ = by_folders(tree, ())
        files = Files(pieces, settings, tree.log)
        most = _NOT_WORTH_BESIDE_SPARK if beside_spark else _NOT_WORTH
        if (known := _known_keys(files, column, values)) is not None:
            if known.left > most:  # an index would spare too little, whatever else is asked
                files = Files(pieces, replace(settings, use_index="never"), tree.log)
            else:
                # A file that was replaced meanwhile is asked for all keys.
                with contextlib.suppress(UnsupportedError):
                    found = _KeySample(files, column, known.values, most).question(known.marks)
                    need_marks(found.search, found.plan)
                    return found
        return _KeySample(files, column, values, most).question(None)


class _KeySample:
    """What indexes, and a few files, say of keys; the first file with rows seals these."""

    def __init__(self, files: Files, column: str, values: Any, most: float) -> None:
        self._files, self._column, self._values, self._most = files, column, values, most
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
        prediction = Prediction(0, by_index=plan.ruled_out, most=self._most)
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
                    self._look(file, piece)
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

    def _look(self, file: SealedFile, piece: Piece) -> None:
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
            self._empty = self._empty or SealedKeys.none(leaf.name, leaf.type, piece)
            return
        keys = self._keys_for(file, leaf)
        self._sealed = self._sealed or SealedKeys.of(keys, leaf.type, file, place, piece)
        if leaf.type == self._sealed.column_type:
            found = need_parquet(file).survivors(leaf.name, keys)
            self._left, self._sampled = self._left + len(found.row_groups), self._sampled + file.num_row_groups


class _KnownKeys(NamedTuple):
    """Keys that an index knows.

    Attributes:
        values: of the keys.
        left: the share of the table's row groups that they are in.
        marks: the `mark` of each file that the index was held against.
    """

    values: pa.Array
    left: float
    marks: frozenset[bytes]


def _known_keys(files: Files, column: str, values: Any) -> _KnownKeys | None:
    """Of many keys those that the table's index of this column knows. None where that would not do: there is no index,
    it does not cover every file, or is not to be asked for so many; keys that it can't be asked for; or they are few.
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
    marks = (mark(name, state) for name, state in zip(names, states, strict=True) if state is not None)
    return _KnownKeys(*found, frozenset(marks))


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


def _those_in(held: Held, kind: ColumnType, values: Any) -> tuple[pa.Array, float] | None:
    """The values that the index knows, and the share of row groups that they are in; None where of some no hash
    decides.
    """
    import pyarrow as pa

    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    values = values.drop_null()
    hashes, owners, undecided = ProbeSet.of(values, kind).hashes()
    if undecided.any():
        return None
    hit = np.zeros(len(values), dtype=np.bool_)
    hits = held.find(hashes)
    hit[owners[hits.owners]] = True
    return values.filter(pa.array(hit)), len(np.unique(hits.codes)) / max(int(held.coverage.groups.sum()), 1)


def _some(count: int, most: int) -> list[int]:
    """A few indexes, spread over all."""
    return sorted({round(i * (count - 1) / (most - 1)) for i in range(most)}) if count else []
