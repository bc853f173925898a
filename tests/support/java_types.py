"""Every Parquet type that can carry a Bloom filter, with distinct sample values in physical and in Python form."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import struct
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

__all__ = [
    "INT96_EPOCH_DAY",
    "NESTED_LEAVES",
    "NESTED_SCHEMA",
    "TYPES",
    "ColumnType",
    "message",
    "nested_physical",
    "nested_table",
    "sample",
]

INT96_EPOCH_DAY = 2_440_588  # the Julian day number of 1970-01-01

_EPOCH = dt.datetime(1970, 1, 1)
_START = dt.datetime(2021, 3, 4, 5, 6, 7, 891_000)


@dataclass(frozen=True)
class ColumnType:
    """One leaf type.

    `physical(i)` and `logical(i)` are the i-th sample value as Parquet stores it and as a Python caller holds it;
    distinct for 0 ≤ i < 200. `arrow` is the type from which Arrow writes exactly this Parquet type, None where it
    can't.
    """

    name: str
    declaration: str  # of the message type, with `{}` for the column's name
    physical: Callable[[int], Any]
    logical: Callable[[int], Any]
    arrow: pa.DataType | None = None


def _moment(i: int) -> dt.datetime:
    return _START + dt.timedelta(hours=7 * i, milliseconds=13 * i)


def _micros(i: int) -> int:
    return (_moment(i) - _EPOCH) // dt.timedelta(microseconds=1)


def _utc(i: int) -> dt.datetime:
    return _moment(i).replace(tzinfo=dt.UTC)


def _day_millis(i: int) -> int:
    return 3_600_123 + 411_007 * i


def _clock(i: int) -> dt.time:
    return (_EPOCH + dt.timedelta(milliseconds=_day_millis(i))).time()


def _int96(i: int) -> bytes:
    day, micros = divmod(_micros(i), 86_400_000_000)
    return struct.pack("<qi", micros * 1000, day + INT96_EPOCH_DAY)


def _unscaled(i: int) -> int:
    return (1 if i % 2 == 0 else -1) * (i * 1_234_567 + 89)


def _decimal(scale: int) -> Callable[[int], decimal.Decimal]:
    return lambda i: decimal.Decimal(_unscaled(i)).scaleb(-scale)


def _twos_complement(width: int | None) -> Callable[[int], bytes]:
    """Big-endian; the fewest bytes that hold the value where the width is None."""

    def encode(i: int) -> bytes:
        value = _unscaled(i)
        return value.to_bytes(width or value.bit_length() // 8 + 1, "big", signed=True)

    return encode


def _integer(bits: int, signed: bool, arrow: pa.DataType) -> ColumnType:
    """Samples at both ends of the range; a stored unsigned value is the signed number with the same bits."""
    stored = 64 if bits == 64 else 32

    def logical(i: int) -> int:
        low = -(1 << bits - 1) if signed else 0
        high = low + (1 << bits) - 1
        return low + i // 2 if i % 2 == 0 else high - i // 2

    def physical(i: int) -> int:
        value = logical(i)
        return value - 2**stored if value >= 2 ** (stored - 1) else value

    name = f"{'int' if signed else 'uint'}{bits}"
    declaration = f"int{stored} {{}} (INTEGER({bits},{str(signed).lower()}))"
    return ColumnType(name, declaration, physical, logical, arrow)


def _text(i: int) -> str:
    return f"człowiek-{i}" + "x" * (i % 40)


def _blob(i: int) -> bytes:
    return bytes([i % 256, 0, 255]) * (i % 5 + 1) + b"%d" % i


def _same(value: Callable[[int], Any]) -> tuple[Callable[[int], Any], Callable[[int], Any]]:
    return value, value


def _json_text(i: int) -> str:
    return f'{{"n": {i}}}'


def _uuid(i: int) -> uuid.UUID:
    return uuid.UUID(int=i * 0x1_0001_0001_0001 + 7)


def _float32(i: int) -> float:
    return float(struct.unpack("<f", struct.pack("<f", (i - 100) * 1.1))[0])


def _float16(i: int) -> float:
    return (i - 100) / 8


TYPES: Sequence[ColumnType] = (
    ColumnType("plain_int32", "int32 {}", *_same(lambda i: i * 1_000_003 - 2**26), pa.int32()),
    ColumnType("plain_int64", "int64 {}", *_same(lambda i: i * 1_000_000_000_039 - 2**45), pa.int64()),
    _integer(8, True, pa.int8()),
    _integer(16, True, pa.int16()),
    _integer(32, True, None),
    _integer(64, True, None),
    _integer(8, False, pa.uint8()),
    _integer(16, False, pa.uint16()),
    _integer(32, False, pa.uint32()),
    _integer(64, False, pa.uint64()),
    ColumnType("float32", "float {}", *_same(_float32), pa.float32()),
    ColumnType("float64", "double {}", *_same(lambda i: math.sin(i) * 1e9), pa.float64()),
    ColumnType(
        "float16",
        "fixed_len_byte_array(2) {} (FLOAT16)",
        lambda i: struct.pack("<e", _float16(i)),
        _float16,
        pa.float16(),
    ),
    ColumnType("binary", "binary {}", *_same(_blob), pa.binary()),
    ColumnType("fixed", "fixed_len_byte_array(5) {}", *_same(lambda i: struct.pack(">BI", 7, i)), pa.binary(5)),
    ColumnType("string", "binary {} (STRING)", lambda i: _text(i).encode(), _text, pa.string()),
    ColumnType("enum", "binary {} (ENUM)", lambda i: b"MEMBER_%d" % i, lambda i: f"MEMBER_{i}"),
    ColumnType("json", "binary {} (JSON)", lambda i: _json_text(i).encode(), _json_text, pa.json_()),
    ColumnType("uuid", "fixed_len_byte_array(16) {} (UUID)", lambda i: _uuid(i).bytes, _uuid, pa.uuid()),
    ColumnType("decimal_int32", "int32 {} (DECIMAL(9,2))", _unscaled, _decimal(2)),
    ColumnType("decimal_int64", "int64 {} (DECIMAL(18,4))", _unscaled, _decimal(4)),
    ColumnType(
        "decimal_fixed",
        "fixed_len_byte_array(16) {} (DECIMAL(38,10))",
        _twos_complement(16),
        _decimal(10),
        pa.decimal128(38, 10),
    ),
    ColumnType("decimal_binary", "binary {} (DECIMAL(25,5))", _twos_complement(None), _decimal(5)),
    ColumnType(
        "date",
        "int32 {} (DATE)",
        lambda i: 18_000 + 31 * i,
        lambda i: (_EPOCH + dt.timedelta(18_000 + 31 * i)).date(),
        pa.date32(),
    ),
    ColumnType("time_millis", "int32 {} (TIME(MILLIS,true))", _day_millis, _clock),
    ColumnType("time_micros", "int64 {} (TIME(MICROS,true))", lambda i: _day_millis(i) * 1000, _clock),
    ColumnType("time_nanos", "int64 {} (TIME(NANOS,true))", lambda i: _day_millis(i) * 1_000_000, _clock),
    ColumnType("time_millis_local", "int32 {} (TIME(MILLIS,false))", _day_millis, _clock, pa.time32("ms")),
    ColumnType(
        "time_micros_local", "int64 {} (TIME(MICROS,false))", lambda i: _day_millis(i) * 1000, _clock, pa.time64("us")
    ),
    ColumnType(
        "time_nanos_local",
        "int64 {} (TIME(NANOS,false))",
        lambda i: _day_millis(i) * 1_000_000,
        _clock,
        pa.time64("ns"),
    ),
    ColumnType(
        "timestamp_millis",
        "int64 {} (TIMESTAMP(MILLIS,true))",
        lambda i: _micros(i) // 1000,
        _utc,
        pa.timestamp("ms", "UTC"),
    ),
    ColumnType("timestamp_micros", "int64 {} (TIMESTAMP(MICROS,true))", _micros, _utc, pa.timestamp("us", "UTC")),
    ColumnType(
        "timestamp_nanos",
        "int64 {} (TIMESTAMP(NANOS,true))",
        lambda i: _micros(i) * 1000,
        _utc,
        pa.timestamp("ns", "UTC"),
    ),
    ColumnType(
        "timestamp_millis_local",
        "int64 {} (TIMESTAMP(MILLIS,false))",
        lambda i: _micros(i) // 1000,
        _moment,
        pa.timestamp("ms"),
    ),
    ColumnType("timestamp_micros_local", "int64 {} (TIMESTAMP(MICROS,false))", _micros, _moment, pa.timestamp("us")),
    ColumnType(
        "timestamp_nanos_local",
        "int64 {} (TIMESTAMP(NANOS,false))",
        lambda i: _micros(i) * 1000,
        _moment,
        pa.timestamp("ns"),
    ),
    ColumnType("int96", "int96 {}", _int96, _moment),
)


def message(types: Sequence[ColumnType], repetition: str = "optional") -> str:
    """Message type text with one column per type, named as the type is."""
    return "message m { " + " ".join(f"{repetition} {one.declaration.format(one.name)};" for one in types) + " }"


def sample(types: Sequence[ColumnType], count: int, *, nulls: bool = True) -> list[dict[str, Any]]:
    """Rows in physical form; with `nulls`, every seventh value of a column is missing, at another place in each
    column.
    """
    return [
        {one.name: None if nulls and (i + k) % 7 == 3 else one.physical(i) for k, one in enumerate(types)}
        for i in range(count)
    ]


def arrow_table(types: Sequence[ColumnType], count: int, *, nulls: bool = True) -> pa.Table:
    """The table of which `sample` gives the physical rows; each type must have its `arrow`."""
    columns = {}
    for k, one in enumerate(types):
        values = [None if nulls and (i + k) % 7 == 3 else one.logical(i) for i in range(count)]
        if one.arrow == pa.uuid():  # Arrow takes no UUID objects
            values = [value and value.bytes for value in values]
            columns[one.name] = pa.ExtensionArray.from_storage(pa.uuid(), pa.array(values, pa.binary(16)))
        else:
            columns[one.name] = pa.array(values, one.arrow)
    return pa.table(columns)


NESTED_LEAVES = (
    "id",
    "person.name",
    "person.home.number",
    "tags.list.element",
    "scores.key_value.key",
    "scores.key_value.value",
)

NESTED_SCHEMA = """message m {
    required int64 id;
    optional group person { optional binary name (STRING); optional group home { optional int32 number; } }
    optional group tags (LIST) { repeated group list { optional binary element (STRING); } }
    optional group scores (MAP) { repeated group key_value { required binary key (STRING); optional double value; } }
}"""
"""Struct in struct, list and map, as Arrow lays them out."""


def nested_physical(count: int) -> list[dict[str, Any]]:
    """Rows of `NESTED_SCHEMA`, with absent, empty and null-holding members."""
    return [
        {
            "id": i,
            "person": None
            if i % 5 == 0
            else {"name": b"name %d" % i, "home": None if i % 3 == 0 else {"number": i * 11}},
            "tags": None
            if i % 7 == 0
            else {"list": [{"element": None if k == 1 else b"tag %d" % (i + k)} for k in range(i % 4)]},
            "scores": {
                "key_value": [
                    {"key": b"k%d" % (i + k), "value": None if k == 2 else i / (k + 1)} for k in range(i % 3 + 1)
                ]
            },
        }
        for i in range(count)
    ]


def nested_table(count: int) -> pa.Table:
    """The same rows as an Arrow table."""
    person = pa.struct([("name", pa.string()), ("home", pa.struct([("number", pa.int32())]))])
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("person", person),
            ("tags", pa.list_(pa.string())),
            ("scores", pa.map_(pa.string(), pa.float64())),
        ]
    )
    rows = []
    for row in nested_physical(count):
        owner, tags = row["person"], row["tags"]
        rows.append(
            {
                "id": row["id"],
                "person": owner and {"name": owner["name"].decode(), "home": owner["home"]},
                "tags": tags and [one["element"] and one["element"].decode() for one in tags["list"]],
                "scores": [(one["key"].decode(), one["value"]) for one in row["scores"]["key_value"]],
            }
        )
    return pa.Table.from_pylist(rows, schema=schema)


def leaf_values(rows: Iterable[Any], leaf: str) -> list[Any]:
    """The values of a leaf (dotted path) in physical rows, in order, nulls and absent groups left out."""
    name, _, rest = leaf.partition(".")
    found: list[Any] = []
    for row in rows:
        value = row[name]
        members = value if isinstance(value, list) else [value]
        present = [member for member in members if member is not None]
        found += leaf_values(present, rest) if rest else present
    return found
