"""Values of all types that the C++ writer takes, and files of them."""

from __future__ import annotations

import datetime as dt
import decimal
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc

_EPOCH = dt.datetime(1970, 1, 1)


def columns(rows: int, seed: int = 0) -> pa.Table:
    """A table with a column of each type, nulls among the values, and values at which writers differ."""
    chance = random.Random(seed)
    wide = decimal.Context(60)

    def some(value: Callable[[], Any], kind: pa.DataType) -> pa.Array:
        return pa.array([None if chance.random() < 0.1 else value() for _ in range(rows)], kind)

    def ints(bits: int) -> pa.Array:
        ends = (-(1 << bits - 1), (1 << bits - 1) - 1)
        return some(lambda: chance.choice([*ends, 0, -1, chance.randint(*ends)]), pa.int64()).cast(f"int{bits}")

    def numbers(digits: int, scale: int) -> pa.Array:
        most = 10**digits - 1
        edges = [0, most, -most, 10 ** (digits - 1), -(10 ** (digits - 1)), 5, -5]
        return some(
            lambda: decimal.Decimal(chance.choice([*edges, chance.randint(-most, most)])).scaleb(-scale, wide),
            pa.decimal128(digits, scale),
        )

    def moments(zone: str | None) -> pa.Array:
        def one() -> dt.datetime:
            near = chance.choice([-1, -999, -1_000, -1_001, -500_000, -999_999, -1_000_500, 0, 1, 999])
            micros = chance.choice([near, chance.randint(-(10**7), 10**7), chance.randint(-3 * 10**15, 8 * 10**15)])
            return _EPOCH.replace(tzinfo=dt.UTC if zone else None) + dt.timedelta(microseconds=micros)

        return some(one, pa.timestamp("us", zone))

    def text() -> str:
        return "".join(chance.choice("aé€😀 z\0") for _ in range(chance.randint(0, 30)))

    edges = [0.0, -0.0, float("inf"), float("-inf"), 1e-30]
    inner = some(lambda: chance.randint(0, 10**6), pa.int64())
    return pa.table(
        {
            "bool": some(lambda: chance.random() < 0.5, pa.bool_()),
            "i8": ints(8),
            "i16": ints(16),
            "i32": ints(32),
            "i64": ints(64),
            "f32": some(lambda: chance.choice([*edges, chance.uniform(-9, 9)]), pa.float32()),
            "f64": some(lambda: chance.choice([*edges, chance.uniform(-9, 9)]), pa.float64()),
            "text": some(text, pa.string()),
            "data": some(lambda: chance.randbytes(chance.randint(0, 20)), pa.binary()),
            "day": some(lambda: dt.date.fromordinal(chance.randint(1, 3_652_059)), pa.date32()),
            "wall": moments(None),
            "moment": moments("Europe/Berlin"),
            "dec15": numbers(15, 2),
            "dec38": numbers(38, 5),
            "dec9": numbers(9, 0),
            "group": pa.StructArray.from_arrays([inner], ["inner"]),
            "list": some(lambda: [chance.randint(0, 99) for _ in range(3)], pa.list_(pa.int32())),
            "nulls": pa.nulls(rows, pa.int64()),
        }
    )


def write(table: pa.Table, path: Path, *, fpp: float = 0.01, stride: int = 700, **options: Any) -> None:
    """Write by the C++ writer in pyarrow, with filters for every column."""
    ids = range(1, 100)
    known = [one for one in ids if one <= _last_id(table.schema)]
    pyarrow.orc.write_table(
        table,
        path,
        bloom_filter_columns=known,
        bloom_filter_fpp=fpp,
        row_index_stride=stride,
        **{"stripe_size": 40_000, "batch_size": 500} | options,
    )


def _last_id(schema: pa.Schema) -> int:
    def ids(kind: pa.DataType) -> int:
        return 1 + sum(ids(kind.field(place).type) for place in range(kind.num_fields))

    return sum(ids(field.type) for field in schema)
