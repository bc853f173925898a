"""Attack: a length in a manifest leads out of its block."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.storage.logs.avro import walker
from bloomseal.storage.logs.decoded import need_avro

memory = pytest.importorskip("pyiceberg.catalog.memory")


def varint(number: int) -> bytes:
    number, made = (number << 1) ^ (number >> 63), b""
    while number > 0x7F:
        made, number = made + bytes([number & 0x7F | 0x80]), number >> 7
    return made + bytes([number])


def avro(schema: Any, block: bytes, count: int = 1, *, sync: bytes = bytes(16)) -> bytes:
    told = {"avro.schema": json.dumps(schema).encode(), "avro.codec": b"null"}
    header = b"Obj\x01" + varint(len(told))
    for name, value in told.items():
        header += varint(len(name)) + name.encode() + varint(len(value)) + value
    return header + b"\x00" + bytes(16) + varint(count) + varint(len(block)) + block + sync


def record(*fields: Any) -> Any:
    named = [{"name": f"f{number}", "type": kind, "field-id": number} for number, kind in enumerate(fields)]
    return {"type": "record", "name": "r", "fields": named}


ARRAY = {"type": "array", "items": "long", "element-id": 5}


@pytest.mark.parametrize(
    ("schema", "block"),
    [
        (record("string"), varint(1 << 20)),
        (record("string"), varint(-1)),
        (record("bytes"), varint(3) + b"ab"),
        (record("long"), b"\x80"),
        (record("long"), b""),
        (record("long"), b"\x00\x00"),  # something behind
        (record("double"), bytes(7)),
        (record({"type": "fixed", "name": "f", "size": 9}), bytes(8)),
        (record({"type": "fixed", "name": "f", "size": 4, "logicalType": "uuid"}), bytes(4)),
        (record({"type": "string", "logicalType": "uuid"}), varint(1) + b"x"),
        (record({"type": "string", "logicalType": "timestamp-micros"}), varint(1) + b"x"),
        (record({"type": "fixed", "name": "f", "size": 1, "logicalType": "decimal", "precision": 38, "scale": 0}), b"x"),
        (record(["null", "string"]), varint(2) + varint(1) + b"x"),
        (record(["string", "null"]), varint(0) + varint(1) + b"x"),
        (record(ARRAY), varint(1 << 40)),
        (record(ARRAY), varint(-1) + varint(500) + varint(1) + b"\x00"),
        (record({"type": "array", "items": ["null", "long"]}), varint(1) + b"\x00\x00"),
        (record({"type": "map", "values": "long"}), b"\x00"),
        (record({"type": "enum", "symbols": ["a"]}), b"\x00"),
        (record({"type": {"type": "string"}}), varint(0)),
        (record("nobody's"), b"\x00"),
    ],
)  # fmt: skip
def test_values_that_leave_their_block(schema: Any, block: bytes) -> None:
    with pytest.raises(bs.FormatError, match="can't be understood"):
        need_avro(avro(schema, block), "x")


def test_blocks_that_leave_the_file() -> None:
    whole = avro(record("long"), b"\x02")
    need_avro(whole, "x")
    for cut in {*range(1, 40)} - {19}:  # which leaves a file without blocks
        with pytest.raises(bs.FormatError, match="can't be understood"):
            need_avro(whole[:-cut], "x")


def test_keys_and_values_in_another_order() -> None:
    pair = record("long", "string")
    with pytest.raises(ValueError):  # noqa: PT011
        walker({"type": "array", "logicalType": "map", "items": pair})
    for one, name in zip(pair["fields"], ("key", "value"), strict=True):
        one["name"] = name
    assert walker({"type": "array", "logicalType": "map", "items": pair})(b"\x02\x06\x02x\x00", 0) == 5


ROWS = {
    "i": pa.array([1, 2], pa.int32()),
    "l": pa.array([1, None], pa.int64()),
    "s": pa.array(["a", "b"]),
    "b": pa.array([True, False]),
    "d": pa.array([dt.date(2026, 1, 1), None]),
    "m": pa.array([decimal.Decimal("1.25"), decimal.Decimal("-7.50")], pa.decimal128(20, 2)),
    "t": pa.array([dt.datetime(2026, 1, 1), dt.datetime(2026, 1, 2)], pa.timestamp("us")),
    "f": pa.array([1.5, 2.5], pa.float32()),
    "x": pa.array([b"1234", b"5678"], pa.binary(4)),
    "u": pa.array([uuid.UUID(int=1).bytes, uuid.UUID(int=2).bytes], pa.binary(16)),
}


def table(folder: Path, parts: tuple[str, ...]) -> Any:
    catalog = memory.InMemoryCatalog("t", warehouse=f"file://{folder}")
    catalog.create_namespace("n")
    rows = pa.table(ROWS)
    made = catalog.create_table("n.t", schema=rows.schema)
    if parts:
        with made.update_spec() as spec:
            for name in parts:
                spec.add_identity(name)
    for _ in range(2):
        made.append(rows)
    return made


@pytest.mark.parametrize("parts", [(), ("i", "s", "d"), ("m", "l"), ("b", "t"), ("x",)])
def test_tables_of_every_type_are_read(tmp_path: Path, parts: tuple[str, ...]) -> None:
    table(tmp_path, parts)
    assert bs.open_table(tmp_path / "n/t").read().num_rows == 4


def test_a_list_in_clear_that_leaves_its_block(tmp_path: Path) -> None:
    """Of a table that nobody has sealed."""
    made = table(tmp_path, ())
    place = Path(made.current_snapshot().manifest_list.removeprefix("file://"))
    data = place.read_bytes()
    schema = json.loads(_told(data)["avro.schema"])
    place.write_bytes(avro(schema, varint(1 << 30) + b"file:/x"))
    with pytest.raises(bs.FormatError, match="can't be understood"):
        bs.open_table(tmp_path / "n/t")


def _told(data: bytes) -> dict[str, str]:
    from bloomseal.storage.logs.decoded import avro_header

    return avro_header(data, "x")
