"""One element out of a long list of structs, without decoding those before it."""

from __future__ import annotations

import pytest

from bloomseal.core.errors import FormatError
from bloomseal.core.thrift import Struct, encode_list
from bloomseal.core.thrift.structs import PageLocation, decode_element


def _list(count: int) -> bytes:
    elements = []
    for number in range(count):
        location = Struct()
        location.set_i64(1, 1_000 + number)
        location.set_i32(2, 7)
        location.set_binary(40, b"of a later version")
        elements.append(location.to_bytes())
    return encode_list(elements)


@pytest.mark.parametrize("count", [1, 2, 14, 15, 16, 300])
def test_every_element_is_the_one_asked_for(count: int) -> None:
    value = b"before" + _list(count) + b"what follows"
    for number in {0, count // 2, count - 1}:
        found = decode_element(PageLocation, value, len(b"before"), number)
        assert (found.offset, found.size, found.first_row) == (1_000 + number, 7, None)


def test_an_element_beyond_the_end() -> None:
    with pytest.raises(FormatError):
        decode_element(PageLocation, _list(3), 0, 3)


def test_a_list_cut_short() -> None:
    with pytest.raises(FormatError):
        decode_element(PageLocation, _list(16)[:100], 0, 15)
