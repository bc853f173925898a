"""A file's columns against those of the frame, and how they become what Spark asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import types as st

from ...core.errors import BloomsealError, FormatError, UnsupportedError
from ...core.exclusion import Exclusion
from ...core.parquet.schema import Leaf
from ...read.file import SealedFile
from ...read.predicate.condition import AllOf, Compare
from .pushdown import bind
from .types import Convert, converter, file_schema, leaves_below, position_of, select

if TYPE_CHECKING:
    from ...read.plan import Asked


@dataclass
class ColumnLayout:
    """A file's columns against those of the frame.

    Attributes:
        names: column of the frame → top-level name in the file; None where it has none, or none that can be read.
        condition: on the file's own types; None: there is none that is understood; or why no row of it can be kept.
        wanted: the leaves to read.
        asked: what the first file's plan asks of it, and of every other one.
    """

    names: dict[str, str | None]
    condition: AllOf | Exclusion | None
    wanted: list[Leaf]
    converters: dict[tuple[str, pa.DataType], Convert] = field(default_factory=dict)
    asked: Asked | None = None

    @classmethod
    def of(
        cls,
        stored: Mapping[str, st.DataType],
        conditions: Sequence[Compare],
        file: SealedFile,
        masked: frozenset[int],
    ) -> ColumnLayout:
        """Of a file.

        Args:
            stored: the frame's columns that files have.
            conditions: what holds for every row that Spark will keep.
            masked: leaves that are not read, and null.
        """
        schema = file_schema(file)
        leaves = iter(file.leaves.leaves)
        below = [[next(leaves) for _ in range(leaves_below(one.type))] for one in schema]
        names: dict[str, str | None] = {}
        lacking: dict[str, str | None] = {}
        wanted: list[Leaf] = []
        for column, kind in stored.items():
            place = position_of(column, schema.names)
            lacking[column] = None if place is None else schema.names[place]
            chosen = [] if place is None else select(schema.field(place).type, kind, iter(below[place]), masked)
            names[column] = lacking[column] if chosen else None
            wanted += chosen
        wanted = sorted({leaf.index: leaf for leaf in wanted}.values(), key=lambda leaf: leaf.index)
        return cls(names, bind(conditions, stored, lacking, file.leaves), wanted)

    @property
    def columns(self) -> list[str] | None:
        """Dotted paths of what is read; None where nothing is."""
        return [leaf.name for leaf in self.wanted] or None

    def _convert(self, column: str, kind: st.DataType, array: pa.ChunkedArray) -> list[pa.Array]:
        """A decoded column's chunks as Spark wants them."""
        key = column, array.type
        if key not in self.converters:
            leaves = iter([leaf for leaf in self.wanted if leaf.path[0] == self.names[column]])
            self.converters[key] = converter(array.type, kind, leaves)
        function = self.converters[key]
        return array.chunks if function is None else [function(chunk) for chunk in array.chunks]

    def column(self, want: st.StructField, target: pa.Field, column: pa.ChunkedArray) -> Any:
        """A decoded column as Spark wants it.

        Raises:
            UnsupportedError: a value does not fit the type.
            FormatError: it can't be converted.
        """
        try:
            return pa.chunked_array(self._convert(want.name, want.dataType, column), type=target.type)
        except BloomsealError as error:
            raise error.at(column=want.name) from None
        except pa.ArrowInvalid:
            # Its message may hold a value.
            raise UnsupportedError(
                f"a value of the file's {column.type} does not fit {want.dataType.simpleString()}",
                column=want.name,
                hint="a wider type in .schema(...)",
            ) from None
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise FormatError(f"the column can't be converted ({type(error).__name__})", column=want.name) from None
