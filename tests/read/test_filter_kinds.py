"""A filter whose header names another kind, or the known one and another beside it, proves nothing and keeps
the rows.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.surgery import change_chunk, written

import bloomseal as bs
from bloomseal.core.parquet.layout import Meta
from bloomseal.core.thrift import Struct


def _union(*members: int) -> Struct:
    made = Struct()
    for member in members:
        made.set_struct(member, Struct())
    return made


def _with_filter(algorithm: Struct, hashing: Struct, compression: Struct) -> bytes:
    """A file over 1 to 3 whose filter holds no value, and says so for all that ask."""
    header = Struct()
    header.set_i32(1, 32)
    for field, union in ((2, algorithm), (3, hashing), (4, compression)):
        header.set_struct(field, union)
    data = written(pa.table({"x": [1, 2, 3]}))
    end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    module = header.to_bytes() + b"\x01" * 32

    def point(meta: Struct) -> None:
        meta.set_i64(Meta.BLOOM_OFFSET, end)
        meta.set_i32(Meta.BLOOM_LENGTH, len(module))

    return change_chunk(data[:end] + module + data[end:], point)


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("members", [(), (2,), (1, 2), (1, 40), (2, 3)])
def test_other_kinds_are_maybe(tmp_path: Path, place: int, members: tuple[int, ...]) -> None:
    unions = [_union(1)] * 3
    unions[place] = _union(*members)
    (tmp_path / "t.parquet").write_bytes(_with_filter(*unions))
    with bs.open_file(tmp_path / "t.parquet") as file:
        with pytest.warns(bs.BloomsealWarning, match="not one that the specification knows"):
            assert file.probe("x", [2]) == [[bs.Verdict.NO_FILTER]]
        with pytest.warns(bs.BloomsealWarning):
            assert file.read(where=[("x", "==", 2)]).num_rows == 1


def test_the_known_kind_is_asked(tmp_path: Path) -> None:
    """So that the cases above are kept for their own reason."""
    (tmp_path / "t.parquet").write_bytes(_with_filter(*[_union(1)] * 3))
    with bs.open_file(tmp_path / "t.parquet") as file:
        assert file.probe("x", [2]) == [[bs.Verdict.ABSENT]]
