"""Structs go out as they came in: unknown fields, untouched children, long field ids, every type."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.Thrift import TType
from thrift.transport.TTransport import TMemoryBuffer

from bloomseal import FormatError
from bloomseal.core.limits import MAX_LIST_ELEMENTS
from bloomseal.core.thrift import Cursor, Struct, WireType, element_spans, encode_list, with_integers


def written_by_thrift() -> bytes:
    """One field of every type, by the reference library, ids far apart and in order."""
    buffer = TMemoryBuffer()
    out = TCompactProtocol(buffer)
    out.writeStructBegin("s")
    for number, kind, write in (
        (1, TType.BOOL, lambda: out.writeBool(True)),
        (2, TType.BOOL, lambda: out.writeBool(False)),
        (3, TType.BYTE, lambda: out.writeByte(-5)),
        (20, TType.I16, lambda: out.writeI16(-300)),
        (21, TType.I32, lambda: out.writeI32(-(2**31))),
        (22, TType.I64, lambda: out.writeI64(2**63 - 1)),
        (1000, TType.DOUBLE, lambda: out.writeDouble(1.5)),
        (1001, TType.STRING, lambda: out.writeBinary(b"\x00\xff")),
    ):
        out.writeFieldBegin("f", kind, number)
        write()
        out.writeFieldEnd()
    out.writeFieldBegin("l", TType.LIST, 1002)
    out.writeListBegin(TType.BOOL, 20)
    for i in range(20):
        out.writeBool(i % 3 == 0)
    out.writeListEnd()
    out.writeFieldEnd()
    out.writeFieldBegin("m", TType.MAP, 1003)
    out.writeMapBegin(TType.STRING, TType.STRUCT, 1)
    out.writeBinary(b"k")
    out.writeStructBegin("inner")
    out.writeFieldBegin("x", TType.I32, 7)
    out.writeI32(1)
    out.writeFieldEnd()
    out.writeFieldStop()
    out.writeStructEnd()
    out.writeMapEnd()
    out.writeFieldEnd()
    out.writeFieldStop()
    return bytes(buffer.getvalue())


def test_every_type_of_the_reference_library_survives_byte_for_byte() -> None:
    raw = written_by_thrift()
    struct = Struct.parse(raw)
    assert struct.to_bytes() == raw
    assert (struct.boolean(1), struct.boolean(2), struct.boolean(99)) == (True, False, None)
    assert (struct.integer(20), struct.integer(21), struct.integer(22)) == (-300, -(2**31), 2**63 - 1)
    assert struct.binary(1001) == b"\x00\xff"


def test_a_change_leaves_all_else_as_it_was() -> None:
    struct = Struct.parse(written_by_thrift())
    before = dict(struct.fields)
    struct.set_i32(21, 7)
    struct.set_binary(500, b"new")
    struct.remove(1)
    again = Struct.parse(struct.to_bytes())
    assert list(again.fields) == [2, 3, 20, 21, 22, 500, 1000, 1001, 1002, 1003]
    assert (again.integer(21), again.binary(500)) == (7, b"new")
    for field in again.fields.keys() - {21, 500}:
        assert again.fields[field] == before[field]


def test_footers_of_arrow_are_spliced_byte_for_byte() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": [1, 2], "b": [["x"], None]}), sink, write_page_index=True, row_group_size=1)
    data = sink.getvalue()
    raw = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    footer = Struct.parse(raw, remember=4)
    groups = footer.elements(4)
    assert footer.to_bytes() == raw
    assert len(groups) == 2
    for group in groups:
        assert Struct.parse(group).to_bytes() == group
    footer.set_list(4, groups)
    assert footer.to_bytes() == raw


def test_zero_padding_after_a_struct_is_ignored() -> None:
    raw = written_by_thrift()
    assert Struct.parse(raw + bytes(84)).to_bytes() == raw


@given(st.lists(st.binary(max_size=4), max_size=40))
def test_lists_of_any_length(values: list[bytes]) -> None:
    elements = [bytes([len(value)]) + value for value in values]
    raw = encode_list(elements, WireType.BINARY)
    spans = list(element_spans(raw, WireType.BINARY))
    assert [raw[start:end] for start, end in spans] == elements


@given(st.integers(-(2**63), 2**63 - 1), st.integers(1, 30_000))
def test_integers_and_field_ids(value: int, field: int) -> None:
    struct = Struct()
    struct.set_i64(field, value)
    assert Struct.parse(struct.to_bytes()).integer(field) == value


@given(
    first=st.integers(-(2**31), 2**31 - 1),
    second=st.integers(-(2**63), 2**63 - 1),
    new=st.integers(-(2**31), 2**31 - 1),
    gap=st.booleans(),
)
def test_integers_are_replaced_wherever_they_stand(first: int, second: int, new: int, gap: bool) -> None:
    struct = Struct()
    if not gap:
        struct.set_i32(1, first)
    struct.set_i64(2, second)
    struct.set_binary(40, b"what we do not know")
    raw = struct.to_bytes()
    struct.set_i64(2, new)
    assert with_integers(raw, (None, new)) == struct.to_bytes()
    assert with_integers(raw, (None, None)) == raw


def test_an_integer_that_is_not_there_is_not_replaced() -> None:
    struct = Struct()
    struct.set_i32(1, 5)
    struct.set_binary(2, b"text")
    for values in ((1, 1), (1, None, 1)):
        with pytest.raises(FormatError, match="no integer"):
            with_integers(struct.to_bytes(), values)
    with pytest.raises(FormatError):
        with_integers(b"\x15\x80", (None, 1))


def test_a_field_that_stands_twice_is_refused() -> None:
    """Two readers could see two different structs."""
    with pytest.raises(FormatError, match="twice"):
        Struct.parse(b"\x15\x02\x05\x02\x04\x00")


@pytest.mark.parametrize(
    ("what", "raw"),
    [
        ("nothing", b""),
        ("no stop", b"\x15\x02"),
        ("an endless varint", b"\x15" + b"\x80" * 11),
        ("a string past the end", b"\x18\x05ab\x00"),
        ("an unknown type", b"\x1f\x00"),
        ("an unknown element type", b"\x19\x1f\x00"),
        ("more elements than bytes", b"\x19\xf5\xff\xff\x03\x00"),
        ("a map larger than its bytes", b"\x1b\xff\xff\x03\x55\x00"),
        ("lists nested too deeply", b"\x19" * 100 + b"\x00"),
        ("structs nested too deeply", b"\x1c" * 100 + b"\x00" * 100),
        ("a list of too many structs", b"\x19\xfc\x81\x80\x08" + bytes(MAX_LIST_ELEMENTS + 2)),
    ],
)
def test_refused(what: str, raw: bytes) -> None:
    with pytest.raises(FormatError):
        Struct.parse(raw)


def test_values_of_another_type_are_refused() -> None:
    struct = Struct.parse(written_by_thrift())
    for read in (struct.binary, struct.struct, struct.boolean, struct.elements):
        with pytest.raises(FormatError, match="has type"):
            read(21)


def test_a_cursor_moves_past_what_it_reads() -> None:
    raw = written_by_thrift()
    cursor = Cursor(b"xx" + raw + b"rest", 2)
    assert Struct.read(cursor).to_bytes() == raw
    assert cursor.data[cursor.position :] == b"rest"
