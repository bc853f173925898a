"""Which of a footer's column chunks are decoded, and kept, for the ones that are asked for."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bloomseal.core.errors import FormatError
from bloomseal.core.parquet.footer import _FEW_GROUPS, _NARROW, _SINGLE_CHUNKS, Footer
from bloomseal.core.parquet.layout import read_tail
from bloomseal.core.storage.source import Source


def _file(groups: int, columns: int) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({f"c{i}": range(groups) for i in range(columns)}), sink, row_group_size=1)
    made: bytes = sink.getvalue().to_pybytes()
    return made


@pytest.mark.parametrize(
    ("groups", "columns", "alone"),
    [
        (_FEW_GROUPS, _NARROW, 0),
        (_FEW_GROUPS + 1, _NARROW, 1),
        (_FEW_GROUPS, _NARROW + 1, _SINGLE_CHUNKS),
        (_FEW_GROUPS + 1, _NARROW + 1, _SINGLE_CHUNKS),
    ],
)
def test_of_many_row_groups_one_column_does_not_bring_all(groups: int, columns: int, alone: int) -> None:
    data = _file(groups, columns)
    footer, known = Footer(read_tail(Source.memory(data)).data, 4, None, True), pq.read_metadata(pa.BufferReader(data))
    for group in range(groups):
        for asked in range(columns):
            meta = footer.chunk(group, asked).meta_data
            assert meta is not None
            assert meta.data_page_offset == known.row_group(group).column(asked).data_page_offset
            assert len(footer._decoded[group]) == (asked + 1 if asked < alone else columns)


@pytest.mark.parametrize("column", [-1, 3])
def test_a_column_that_is_not_there(column: int) -> None:
    footer = Footer(read_tail(Source.memory(_file(1, 3))).data, 4, None, True)
    for _ in range(2):
        with pytest.raises(FormatError, match="of 3 columns"):
            footer.chunk(0, column)
        footer.chunk(0, 0)
