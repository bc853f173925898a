"""Streams that begin within a run, held against the specification's own examples and against files of a writer."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.orc
import pytest

import bloomseal as bs
from bloomseal.core.errors import FormatError
from bloomseal.orc.protobuf import varint
from bloomseal.orc.rows import clear
from bloomseal.orc.runs.begin import bits_from, bytes_from, integers_from

# ORC specification, "Run Length Encoding": the bytes of each example, and its values.
V1 = [
    ("610007", [7] * 100, False),
    ("61ff64", list(range(100, 0, -1)), False),
    ("fb020306070b", [2, 3, 6, 7, 11], False),
]
V2 = [
    ("0a2710", [10_000] * 5),
    ("5e035ca1ab1edeadbeef", [23_713, 43_806, 57_005, 48_879]),
    (
        "8e132b2107d01e00147028323c46505a646e78828c96a0aab4befce8",
        [2030, 2000, 2020, 1_000_000, *range(2040, 2200, 10)],
    ),
    ("c609020222424246", [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]),
]


def _direct(data: bytes) -> list[int]:
    """The values of one DIRECT run of 64 bits."""
    assert data[0] >> 1 == 0x40 >> 1 | 31
    count = ((data[0] & 1) << 8 | data[1]) + 1
    assert len(data) == 2 + 8 * count
    return [int.from_bytes(data[at : at + 8], "big") for at in range(2, len(data), 8)]


def _v1_literals(data: bytes) -> list[int]:
    found, at = [], 0
    while at < len(data):
        count, at = 256 - data[at], at + 1
        for _ in range(count):
            value, at = varint(memoryview(data), at)
            found.append(value)
    return found


@pytest.mark.parametrize(("text", "values", "signed"), V1)
def test_examples_of_version_1(text: str, values: list[int], signed: bool) -> None:
    data = bytes.fromhex(text)
    assert bytes(integers_from(memoryview(data), 0, version=1, signed=signed)) == data
    for skipped in range(1, len(values)):
        rest = bytes(integers_from(memoryview(data), skipped, version=1, signed=signed))
        assert _v1_literals(rest) == values[skipped:]
    # The run behind it stays as it is.
    assert bytes(integers_from(memoryview(data * 2), len(values), version=1, signed=signed)) == data


@pytest.mark.parametrize(("text", "values"), V2)
def test_examples_of_version_2(text: str, values: list[int]) -> None:
    data = bytes.fromhex(text)
    for skipped in range(1, len(values)):
        rest = bytes(integers_from(memoryview(data + data), skipped, version=2, signed=False))
        assert rest.endswith(data)
        assert _direct(rest[: -len(data)]) == values[skipped:]
        again = integers_from(memoryview(data + data), len(values) + skipped, version=2, signed=False)
        assert _direct(bytes(again)) == values[skipped:]
    with pytest.raises(FormatError):
        integers_from(memoryview(data), len(values) + 1, version=2, signed=False)
    for cut in range(1, len(data)):
        with pytest.raises(FormatError):
            integers_from(memoryview(data)[:cut], 1, version=2, signed=False)


def test_bytes_and_bits() -> None:
    assert bytes(bytes_from(memoryview(b"\x61\x00\xfe\x44\x45"), 99)) == b"\xff\x00\xfe\x44\x45"
    assert bytes(bytes_from(memoryview(b"\x61\x00\xfe\x44\x45"), 101)) == b"\xff\x45"
    assert bytes(bits_from(memoryview(b"\xfe\x44\x45"), 1, 0)) == b"\xff\x45"
    # 0100 0100 0100 0101 without its first three bits.
    assert bytes(bits_from(memoryview(b"\xfe\x44\x45"), 0, 3)) == b"\xfe\x22\x28"
    with pytest.raises(FormatError):
        bytes_from(memoryview(b"\x61"), 1)


def _shapes(rows: int) -> dict[str, Any]:
    chance = np.random.default_rng(3)
    outliers = chance.integers(0, 100, rows)
    outliers[chance.integers(0, rows, rows // 50)] = 1 << 40
    ends = chance.choice(np.array([-(1 << 63), (1 << 63) - 1, 0, -1]), rows)
    nulls = chance.integers(0, 9, rows) == 0
    return {
        "steps": np.arange(rows) * -7,
        "same": np.repeat(np.arange(rows // 40 + 1), 40)[:rows],
        "outliers": outliers,
        "minus": outliers - 5_000,
        "ends": ends,
        "noise": chance.integers(-(1 << 63), (1 << 63) - 1, rows),
        "rising": np.cumsum(chance.integers(0, 30, rows)),
        "falling": -np.cumsum(chance.integers(0, 30, rows)),
        "little": chance.integers(-128, 128, rows).astype(np.int8),
        "flags": pa.array(chance.integers(0, 2, rows).astype(bool), mask=nulls),
        "null": pa.array(chance.integers(0, 1000, rows), mask=nulls),
        "moments": pa.array(chance.integers(-(10**15), 10**17, rows), pa.timestamp("ns"), mask=nulls),
        "lists": pa.array([[*range(i % 5)] if i % 3 else None for i in range(rows)]),
    }


def _equal(found: pa.Table, whole: pa.Table, groups: Sequence[int], stride: int) -> bool:
    return bool(found.equals(whole.slice(groups[0] * stride, len(groups) * stride)))


@pytest.mark.parametrize("version", ["0.11", "0.12"])
@pytest.mark.parametrize("compression", ["uncompressed", "zlib"])
def test_rows_of_each_row_group_alone(version: str, compression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clear, "_WORTH_CUTTING", 0)
    made, calls = clear._made, list[range]()
    monkeypatch.setattr(clear, "_made", lambda *given: calls.append(given[-1]) or made(*given))
    rows, stride, sink = 6_000, 613, io.BytesIO()
    table = pa.table(_shapes(rows))
    pyarrow.orc.write_table(
        table, sink, row_index_stride=stride, batch_size=100, file_version=version, compression=compression
    )
    whole = pyarrow.orc.read_table(io.BytesIO(sink.getvalue()))
    with bs.open_file(sink.getvalue()) as file:
        strides = file.tail.row_index_stride
        count = file.stripes[0].num_row_groups
        for groups in [range(at, at + 1) for at in range(count)] + [range(2, 7)]:
            calls.clear()
            found, _ = file.decoded(0, file.schema.leaves, table.column_names, groups)
            assert _equal(found, whole, groups, strides), groups
            assert calls == [groups]
