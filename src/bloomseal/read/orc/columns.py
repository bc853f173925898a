"""The columns of an ORC file, as Arrow has them and as predicates know them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.orc

from ...core.cached import cached_property
from ...core.errors import FormatError, UnsupportedError
from ...core.parquet.schema import Leaf, Schema
from ...format.leaves import leaves_of
from ...orc.layout import OrcLayout
from ...orc.rows.clear import empty_file
from ...orc.schema import OrcColumn, OrcKind, OrcSchema

_REMEMBERED: Final = 16
"""Files of one table have one schema, as `bloomseal.orc.tail` has it."""


@dataclass(frozen=True)
class Columns:
    """Three views of the same columns: Arrow's types, leaves as predicates know them, and the file's own ids.

    Attributes:
        arrow: as pyarrow decodes them.
        schema: the file's own.
        leaves: those that a predicate can be about; a top-level column of a type that only ORC has (a union) is not
            among them.
        without: top-level columns that `leaves` lacks.
    """

    arrow: pa.Schema
    schema: OrcSchema
    leaves: Schema = field(init=False)
    without: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        if self.schema.columns[0].kind is not OrcKind.STRUCT:
            raise UnsupportedError("an ORC file whose rows are no struct has no columns")
        known = [one for one in self.arrow if not _only_orc(one.type)]
        object.__setattr__(self, "without", tuple(one.name for one in self.arrow if one not in known))
        object.__setattr__(self, "leaves", leaves_of(pa.schema(known)))

    @cached_property
    def stored(self) -> Mapping[int, OrcColumn]:
        """Index of a leaf → the column of the file that it is."""
        found: dict[int, OrcColumn] = {}
        tops = {name: [leaf for leaf in self.leaves.leaves if leaf.path[0] == name] for name in self.leaves.top_level}
        for name, columns in self._top_level():
            if name in self.leaves.repeated_names or name not in tops:
                continue
            if len(columns) != len(tops[name]):
                raise FormatError("pyarrow counts other columns than the file's types", column=name)
            found.update({leaf.index: column for leaf, column in zip(tops[name], columns, strict=True)})
        return found

    def leaf(self, name: str) -> Leaf:
        """The leaf of this name, as tables have it (``tags.list.element``) or as ORC has it (``tags._elem``).

        Raises:
            UsageError: no such column, or several.
        """
        for index, column in self.stored.items():
            if column.name == name and not self.leaves.has(name):
                return self.leaves.leaves[index]
        return self.leaves.leaf(name)

    def names(self, wanted: Collection[int]) -> list[str] | None:
        """What to ask pyarrow's reader for, to decode these leaves and no others; None: it can't tell them apart, and
        decodes all.

        Raises:
            UnsupportedError: a part of what is inside a list or a map.
        """
        paths = [column.name for column in self.schema.columns[1:]]
        names: list[str] = []
        for name in dict.fromkeys(self.leaves.leaves[index].path[0] for index in sorted(wanted)):
            every = [leaf.index for leaf in self.leaves.leaves if leaf.path[0] == name]
            if all(index in wanted for index in every):
                names.append(name)
                continue
            parts = [self.leaves.leaves[index] for index in every if index in wanted]
            for leaf in parts:
                if leaf.repeated:
                    what = "a part of a list or map is not read alone"
                    raise UnsupportedError(what, column=leaf.name, hint=leaf.path[0])
            names += [self.stored[leaf.index].name for leaf in parts]
        # A dot in a name makes a path of it.
        return names if all(paths.count(name) == 1 for name in names) else None

    def cut(self, wanted: Collection[int], order: Collection[str]) -> pa.Schema:
        """The schema of these leaves; `order`: their top-level fields, as they are wanted."""
        found = []
        for name in order:
            every = [leaf for leaf in self.leaves.leaves if leaf.path[0] == name]
            kept = {leaf.path[1:] for leaf in every if leaf.index in wanted}
            whole = self.arrow.field(name)
            found.append(whole if len(kept) == len(every) else whole.with_type(_cut(whole.type, kept)))
        return pa.schema(found)

    def _top_level(self) -> Iterator[tuple[str, list[OrcColumn]]]:
        at = 1
        columns = self.schema.columns
        for one in self.arrow:
            if at >= len(columns):
                raise FormatError("pyarrow counts other columns than the file's types", column=one.name)
            last = columns[at].last
            yield one.name, [column for column in columns[at : last + 1] if column.is_leaf]
            at = last + 1


def columns_of(file: OrcLayout) -> Columns:
    """The columns of a file, in the types to which pyarrow decodes them.

    Raises:
        UnsupportedError: a type that it does not know, or rows that are no struct.
        FormatError: pyarrow can't read the types.
    """
    try:
        return _columns(empty_file(file.tail), file.schema)
    except pa.ArrowNotImplementedError as error:
        raise UnsupportedError("pyarrow does not decode a column of this file", file=file.path) from error
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FormatError(f"pyarrow can't open the file: {type(error).__name__}", file=file.path) from error


@lru_cache(maxsize=_REMEMBERED)
def _columns(empty: bytes, schema: OrcSchema) -> Columns:
    return Columns(pyarrow.orc.ORCFile(pa.BufferReader(empty)).schema, schema)


def _only_orc(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_union(kind)
        or any(_only_orc(kind.field(place).type) for place in range(kind.num_fields))
        or (pa.types.is_struct(kind) and not kind.num_fields)
    )


def _cut(kind: pa.DataType, kept: Collection[tuple[str, ...]]) -> pa.DataType:
    """A struct without the fields that are not kept."""
    fields = []
    for one in kind:
        below = {path[1:] for path in kept if path[:1] == (one.name,)}
        if below:
            fields.append(one if () in below else one.with_type(_cut(one.type, below)))
    return pa.struct(fields)
