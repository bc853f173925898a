"""Sets of probe values: the way through whole arrays gives what the way value by value gives."""

from __future__ import annotations

import datetime as dt
import pickle
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bloomseal.core.errors import UsageError
from bloomseal.core.sbbf import ColumnType, LogicalType, PhysicalType, ProbeSet, SplitBlockBloomFilter, encode_value


def column(physical: str, length: int | None = None, kind: str = "", **rest: Any) -> ColumnType:
    return ColumnType(PhysicalType[physical], length, LogicalType(kind, **rest) if kind else None)


INT32, INT64 = column("INT32"), column("INT64")
FLOAT, DOUBLE, STRING = column("FLOAT"), column("DOUBLE"), column("BYTE_ARRAY", None, "string")
TIMES = ["2020-01-01", "NaT", "2021-05-05T01:02:03.5"]

ARRAYS = [
    (np.arange(-5, 100), INT32),
    (np.arange(-5, 100, dtype=np.int8), INT64),
    (np.array([1, 2, 3], dtype=">i4"), INT32),
    (np.array([1 << 31, 5, -(1 << 31) - 1]), INT32),
    (np.array([(1 << 64) - 1, 5], dtype=np.uint64), INT64),
    (np.array([(1 << 64) - 1, 5], dtype=np.uint64), column("INT64", None, "int", bit_width=64, signed=False)),
    (np.array([-1, 5, 1 << 32, (1 << 32) - 1]), column("INT32", None, "int", bit_width=32, signed=False)),
    (pa.array([1, None, 200, -1, 300]), column("INT32", None, "int", bit_width=8, signed=False)),
    (pa.array([1, None, 3]), DOUBLE),
    (np.array([0.0, -0.0, np.nan, 1.1, 1e39, -1e-60, np.inf]), FLOAT),
    (np.array([0.0, -0.0, np.nan, 1.1, 6e4], dtype=np.float16), FLOAT),
    (np.array([0.0, -0.0, np.nan, 1.1], dtype=np.float32), DOUBLE),
    (np.array([0.0, 1.1], dtype=np.longdouble), DOUBLE),
    (np.array([0.0, 1.5, np.nan]), column("FIXED_LEN_BYTE_ARRAY", 2, "float16")),
    (pa.array([0.0, None, -0.0, 2.5])[1:], DOUBLE),
    ([float(i) for i in range(100)] + [None], FLOAT),
    ([*range(100), None, 1 << 40], INT32),
    ([1 << i for i in range(100)], INT64),
    ([str(i) for i in range(100)] + [None], STRING),
    ([str(i).encode() for i in range(100)], column("BYTE_ARRAY")),
    ([str(i).encode() for i in range(100)], STRING),
    ([b"%04d" % i for i in range(100)], column("FIXED_LEN_BYTE_ARRAY", 4)),
    ([Decimal(i) for i in range(100)], column("BYTE_ARRAY", None, "decimal", precision=9, scale=2)),
    (np.array(["a", "b", "c"]), STRING),
    (np.array(["a", None], dtype=object), STRING),
    (np.array(TIMES, "M8[us]"), column("INT64", None, "timestamp", unit="us")),
    (np.array(TIMES, "M8[ms]"), column("INT64", None, "timestamp", unit="us")),
    (np.array(TIMES, "M8[us]"), column("INT64", None, "timestamp", unit="ms")),
    (np.array(["2020-01-01", "NaT"], "M8[D]"), column("INT32", None, "date")),
    (pa.array([dt.datetime(2020, 1, 1, tzinfo=dt.UTC), None]), column("INT64", None, "timestamp", unit="us", utc=True)),
    (pa.array([dt.time(1, 2, 3), None]), column("INT64", None, "time", unit="us")),
    (pa.array([dt.time(1, 2, 3), None]), column("INT32", None, "time", unit="ms")),
    (pa.array([dt.date(2020, 1, 1), None]), column("INT32", None, "date")),
    (pa.array(["a", "b", None]).dictionary_encode(), STRING),
    (pa.chunked_array([["a", "b", None], [], ["c"]]), STRING),
    (pa.array(["a", None, "b" * 20], pa.string_view())[1:], STRING),
    (pa.array([uuid.UUID(int=5).bytes, None], pa.uuid()), column("FIXED_LEN_BYTE_ARRAY", 16, "uuid")),
    (pa.array([Decimal("1.25"), None, Decimal("1.256")]), column("INT64", None, "decimal", precision=18, scale=2)),
    (pa.nulls(3), INT64),
    (pa.array([], pa.int64()), INT64),
    ([], INT64),
]


@pytest.mark.parametrize(("values", "column_type"), ARRAYS)
def test_arrays_ask_what_their_values_ask(values: Any, column_type: ColumnType) -> None:
    every_other = SplitBlockBloomFilter(4096)
    for i, value in enumerate(values):
        if i % 2 == 0 and encode_value(value, column_type):
            every_other.insert(value, column_type)
    single = [every_other.check(value, column_type) for value in values]
    probes = ProbeSet.of(values, column_type)
    assert probes.check(every_other).tolist() == single
    assert ProbeSet.of(iter(values), column_type).check(every_other).tolist() == single
    assert probes.none_in(every_other) is not any(single)
    for value, present in zip(values, single, strict=True):
        assert ProbeSet.of([value], column_type).none_in(every_other) is not present
    empty = [encode_value(value, column_type) is None for value in values]
    assert probes.check(SplitBlockBloomFilter(32)).tolist() == empty
    assert len(probes) == len(single)


def test_one_set_asks_many_filters() -> None:
    probes = ProbeSet.of(np.arange(1000), INT64)
    for start in range(0, 1000, 250):
        part = SplitBlockBloomFilter(1 << 14)
        for number in range(start, start + 250):
            part.insert(number, INT64)
        answer = probes.check(part)
        assert answer[start : start + 250].all()
        assert np.count_nonzero(answer) < 260


@pytest.mark.parametrize(
    ("values", "column_type"),
    [
        ("abc", STRING),
        (b"abc", STRING),
        (5, INT64),
        (np.zeros((2, 2)), DOUBLE),
        (np.array(5), INT64),
        ([1, "2"], INT64),
        (["a"] * 99 + ["\ud800"], STRING),
        ([b"\xff"] * 99, STRING),
        (np.array([True]), INT64),
        (np.array([1.5]), INT64),
        (pa.array(["a"]), INT64),
        (pa.array([5], pa.timestamp("us")), column("INT64", None, "timestamp", unit="us", utc=True)),
        (pa.array([[1]]), INT64),
    ],
)
def test_what_cannot_be_asked(values: Any, column_type: ColumnType) -> None:
    with pytest.raises(UsageError):
        ProbeSet.of(values, column_type)


def test_it_tells_nobody_its_values() -> None:
    probes = ProbeSet.of([78051120], INT64)
    assert repr(probes) == "<ProbeSet of 1 values>"
    with pytest.raises(UsageError, match="not pickled"):
        pickle.dumps(probes)
