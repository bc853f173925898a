"""A row predicate over a table: what folders and missing columns decide, and what is left for each file.

Negations are moved to the comparisons, so that only ``and`` and ``or`` join them. Then it counts alone whether a
comparison is true: null may stand for false. And a comparison that a file can't be asked may stand for true, as long as
the rows are asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.cached import cached_property
from ...core.errors import UsageError
from ...core.exclusion import Exclusion, by_column, by_folder
from ...read.predicate import condition as said
from ...read.predicate.condition import AllOf, AnyOf, Compare, Expression, Not, Part, columns_of, fold, parts_of

if TYPE_CHECKING:
    from ...core.parquet.expectation import Expectation
    from ...core.parquet.schema import Schema
    from ...core.sbbf import ColumnType
    from ...read.file import SealedFile
    from ...read.predicate.predicate import Predicate
    from .partitions import Partitions

Decide = Callable[[Part, bool], said.Condition | bool | None]
_WHOLE_NUMBERS: Final = ("", "int")
_MOMENTS: Final = ("timestamp", "time")


class Rest(NamedTuple):
    """What the rows of one file are still asked.

    Attributes:
        where: what its own columns are asked, and what may prune; None: nothing.
        again: the rows that are left are asked again, in the table's schema (`Condition.hits`).
    """

    where: said.Condition | None
    again: bool


class Condition:
    """A predicate in which some columns have one value per file.

    Args:
        where: as for `SealedFile.read`. What is no list of tuples has to be bound to the table's schema (`bind`).
        known: column → its value in each file.
        expected: which columns `known` may speak of.

    Attributes:
        columns: of a list of tuples, those that it names.
        schema: where it is bound, the table's top-level columns that it is about.
        needs_schema: is it of a form that has to be bound to the table's schema?

    Raises:
        UsageError: of no form that is known, or a term about a known column that is wrong.
    """

    def __init__(self, where: Any, known: Partitions, expected: Expectation) -> None:
        self._expected = expected
        self._tree = None if where is None else said.shared(where)
        self._partitions, self._known = known, known.values
        self._bound: Predicate | None = None
        self._answers: dict[tuple[int, bool], list[bool]] = {}
        self._implied: dict[int, said.Condition] = {}
        self.columns: set[str] = set()
        self.needs_schema = self._tree is not None and not isinstance(where, list | tuple)
        if self._tree is not None and not self.needs_schema:
            self.columns = {*columns_of(self._tree)}
            try:
                self._ask_known(self._tree, None)
            except UsageError:
                # The files may hold the column in another type, as Polars leaves it.
                if not known.texts:
                    raise
                self.needs_schema = True
            # A narrower float of the files' rounds what folders spell.
            self.needs_schema |= any(
                pa.types.is_floating(known.values[name].type) for name in known.texts.keys() & self.columns
            )

    def bind(self, table: pa.Schema, leaves: Schema) -> None:
        """Find the columns that it is about.

        Raises:
            UsageError: no such column, or a value of the wrong kind.
        """
        from ...read.predicate.predicate import Predicate, implied

        assert self._tree is not None  # noqa: S101
        self._bound, self._leaves = Predicate(self._tree, leaves), leaves
        self.schema = pa.schema(
            [table.field(name) for name in dict.fromkeys(one.path[0] for one in self._bound.leaves)]
        )
        self._ask_known(self._tree, table)
        for part, negated in parts_of(self._tree):
            if isinstance(part, Expression) and not negated and (found := implied(part.tree, leaves)) is not None:
                self._implied[id(part)] = found
                self._ask_known(found, table)

    @property
    def bound(self) -> bool:
        """Whether it is bound to the table's schema."""
        return self._bound is not None

    def hits(self, rows: pa.Table) -> npt.NDArray[np.int64]:
        """The rows that satisfy it, where it is bound; `rows` has the columns of `schema`."""
        assert self._bound is not None  # noqa: S101
        return self._bound.hits(rows)

    @property
    def tree(self) -> said.Condition | None:
        """What it was made of; None: nothing is asked."""
        return self._tree

    @property
    def signature(self) -> Callable[[int], tuple[bool, ...]] | None:
        """What the known columns answer for a file; None where they answer nothing. Files of one schema and one
        signature are asked the same.
        """
        every = list(self._answers.values())
        return (lambda file: tuple(answers[file] for answers in every)) if every else None

    def excluded(self, file: int) -> Exclusion | None:
        """Why no row of this file satisfies it, as far as the known columns say."""
        if self._tree is None or not self._answers:
            return None

        def decide(part: Part, negated: bool) -> said.Condition | bool | None:
            answers = self._answers.get((id(part), negated))
            return self._pruning(part, negated, decide, None) if answers is None else answers[file]

        return self._by_known if _simplified(self._tree, decide) is False else None

    @cached_property
    def _by_known(self) -> Exclusion:
        assert self._tree is not None  # noqa: S101
        return by_folder(self._expected, self._known.keys() & columns_of(self._tree))

    def left(self, number: int, file: SealedFile, decided: Callable[[str], bool]) -> Rest | Exclusion:
        """What the rows of one file must be asked, or why none can satisfy it.

        Args:
            decided: does the known value of this column count in the file?
        """
        if self._tree is None:
            return Rest(None, False)
        schema, exact = file.leaves, True
        lacking: set[str] = set()
        told: set[str] = set()

        def decide(part: Part, negated: bool) -> said.Condition | bool | None:
            nonlocal exact
            known = self._answers.get((id(part), negated))
            if known is not None and all(map(decided, part.columns)):
                told.update(part.columns)
                return known[number]
            if not isinstance(part, Expression) and not schema.has(part.column):
                lacking.add(part.column)
                return _of_null(part, negated)
            if self._bound is None or self._means_the_same(part, file, decided):
                return None
            exact = False
            return self._pruning(part, negated, decide, True)

        left = _simplified(self._tree, decide)
        if left is False:
            return by_column(schema, lacking) or by_folder(self._expected, told)
        return Rest(None if left is True else left, not exact)

    def _pruning(self, part: Part, negated: bool, decide: Decide, unknown: bool | None) -> said.Condition | bool | None:
        """Of an expression over columns that the file has not, or has otherwise: what it implies for the others."""
        found = self._implied.get(id(part)) if not negated else None
        return unknown if found is None else _simplified(found, decide)

    def _means_the_same(self, part: Part, file: SealedFile, decided: Callable[[str], bool]) -> bool:
        """Whether the file's own columns answer as the table's would. A narrower float rounds the value that is
        asked for.
        """
        schema = file.leaves
        if not isinstance(part, Expression):
            mine, whole = schema.leaf(part.column), self._leaves.leaf(part.column)
            return mine.path == whole.path and mine.repeated == whole.repeated and alike(mine.type, whole.type)
        names = list(dict.fromkeys(one.path[0] for one in part.tree.fields()))
        if not all(schema.has(name) and not (name in self._known and decided(name)) for name in names):
            return False
        types = file.plan(names).empty.schema
        return all(types.field(name).type == self.schema.field(name).type for name in names)

    def _ask_known(self, tree: said.Condition, table: pa.Schema | None) -> None:
        for part, negated in parts_of(tree):
            names = {*part.columns}
            if names and all(name in self._known for name in names):
                values = {name: self._known[name] for name in names}
                if table is not None:
                    values = {name: self._partitions.typed(name, table.field(name).type) for name in names}
                self._answers[id(part), negated] = _true_for(part, negated, values)


def _simplified(tree: said.Condition, decide: Decide) -> said.Condition | bool:
    """What is left of it where `decide` says of a comparison that it holds, or that it does not; None: it stays."""

    def of_part(part: Part, negated: bool) -> said.Condition | bool:
        answer = decide(part, negated)
        return answer if answer is not None else Not(part) if negated else part

    def joined(any_of: bool, found: list[said.Condition | bool]) -> said.Condition | bool:
        if any(one is any_of for one in found):
            return any_of
        left = tuple(one for one in found if not isinstance(one, bool))
        if len(left) < 2:
            return left[0] if left else not any_of
        return AnyOf(left) if any_of else AllOf(left)

    return fold(tree, of_part, joined, lambda any_of, found: found is any_of)


def _of_null(part: Part, negated: bool) -> bool:
    """Whether a comparison, or its opposite, holds for null."""
    return isinstance(part, Compare) and part.op == ("valid" if negated else "null")


def alike(one: ColumnType, other: ColumnType) -> bool:
    """Whether a value means the same in both. All but floats are compared exactly, however wide or fine they are."""
    if one == other:
        return True
    numbers = all(kind.kind in _WHOLE_NUMBERS and kind.physical.name in ("INT32", "INT64") for kind in (one, other))
    instants = one.logical is not None and other.logical is not None and one.logical.utc is other.logical.utc
    return numbers or (one.kind == other.kind and (one.kind == "decimal" or (one.kind in _MOMENTS and instants)))


def _true_for(part: Part, negated: bool, values: Mapping[str, pa.Array]) -> list[bool]:
    """Whether the comparison, or its opposite, holds for the values that each file is known to have."""
    asked = Not(part) if negated else part
    (name, array), *others = values.items()
    if others or isinstance(array.type, pa.BaseExtensionType):  # of UUIDs there is no dictionary
        return _flags(asked, pa.table(dict(values)))
    if pa.types.is_null(array.type) and not isinstance(part, Expression):
        return [_of_null(part, negated)] * len(array)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    distinct = array.dictionary_encode()
    rows = pa.table({name: pa.concat_arrays([distinct.dictionary, pa.nulls(1, array.type)])})
    try:
        answers = _flags(asked, rows)
    except UsageError as error:
        raise error.at(column=name) from None
    return [answers[-1 if place is None else place] for place in distinct.indices.to_pylist()]


def _flags(asked: said.Condition, rows: pa.Table) -> list[bool]:
    from ...format.leaves import leaves_of
    from ...read.predicate.predicate import Predicate

    flags = np.zeros(rows.num_rows, dtype=np.bool_)
    flags[Predicate(asked, leaves_of(rows.schema)).hits(rows)] = True
    found: list[bool] = flags.tolist()
    return found
