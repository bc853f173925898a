"""Lists that were seen before are stepped over by their bytes, and by nothing less."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomseal import FormatError
from bloomseal.core.thrift import Cursor, Struct, encode_list
from bloomseal.core.thrift.compact import _LONGEST, _MOST, SeenLists


def inner(number: int, text: bytes) -> bytes:
    struct = Struct()
    struct.set_i64(1, number)
    struct.set_binary(2, text)
    return struct.to_bytes()


def outer(*lists: list[bytes]) -> bytes:
    struct = Struct()
    for field, elements in enumerate(lists, 1):
        struct.set_list(field, elements)
    struct.set_i32(20, 7)
    return struct.to_bytes()


elements = st.lists(st.builds(inner, st.integers(-5, 300), st.binary(max_size=80)), max_size=5)


@given(st.lists(st.lists(elements, max_size=3), max_size=8))
def test_a_struct_is_the_same_with_and_without_memory(structs: list[list[list[bytes]]]) -> None:
    seen = SeenLists()
    for lists in [*structs, *structs]:
        raw = outer(*lists)
        assert Struct.parse(raw, alike=seen).fields == Struct.parse(raw).fields


@given(elements, st.integers(0, 400))
def test_a_list_that_is_cut_off_is_broken_though_it_was_seen_whole(wanted: list[bytes], cut: int) -> None:
    raw, seen = outer(wanted), SeenLists()
    Struct.parse(raw, alike=seen)
    short = raw[: cut % len(raw)]
    for memory in (None, seen):
        with pytest.raises(FormatError):
            Struct.parse(short, alike=memory)


def test_lists_that_begin_alike_are_told_apart() -> None:
    seen = SeenLists()
    common = [inner(number, b"x" * 20) for number in range(3)]
    for last in (b"one", b"two", b"a longer one", b"one"):
        raw = outer([*common, inner(9, last)], [inner(1, b"behind")])
        struct = Struct.parse(raw, alike=seen)
        assert struct.elements(1) == [*common, inner(9, last)]
        assert struct.elements(2) == [inner(1, b"behind")]


def test_what_is_remembered_is_bounded() -> None:
    seen = SeenLists()
    for number in range(3 * _MOST):
        seen.skip(Cursor(encode_list([inner(number, b"%09d" % number)])))
    seen.skip(Cursor(encode_list([bytes(1)] * (_LONGEST + 1))))
    assert 0 < len(seen._seen) <= _MOST
    assert max(map(len, seen._seen.values())) <= _LONGEST


def test_the_bytes_that_were_seen_are_given_back() -> None:
    seen, raw = SeenLists(), encode_list([inner(1, b"once and again")])
    first = seen.skip(Cursor(b"\x00" + raw, 1))
    again = Cursor(raw + b"\x00")
    assert seen.skip(again) is first
    assert again.position == len(raw)
    assert again.data[again.position :] == b"\x00"
