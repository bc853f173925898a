"""Names that forge lines, turn round or steer a terminal, wherever an error, a warning or a report shows them."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bloomseal as bs
from bloomseal.core.errors import BloomsealError, BloomsealWarning
from bloomseal.core.keys.access import KmsAccessError, Problem, shown
from bloomseal.core.text import articled, safe_text

HOSTILE = "a\r\nforged: ok\x1b[2J\u202etxt\u200b\u2028\U000e0041\udcff"


def test_names_have_the_article_that_they_are_said_with() -> None:
    names = [
        "INT64",
        "int32",
        "object",
        "array",
        "LZ4",
        "html",
        "Iceberg",
        "BYTE_ARRAY string",
        "uint8",
        "UUID",
        "float",
    ]
    assert [articled(name).split()[0] for name in names] == ["an"] * 7 + ["a"] * 4


def test_no_message_writes_the_article_of_a_name_by_itself() -> None:
    fixed = {"{what}", "{column.sensitivity}"}  # words of ours, none of which begins with a vowel
    for path in (Path(__file__).parents[1] / "src").rglob("*.py"):
        assert set(re.findall(r"\ban? (\{[^}]*\})", path.read_text())) <= fixed, path


@given(st.text())
def test_one_line_of_printable_characters_and_nothing_else_changed(text: str) -> None:
    shown_text = safe_text(text)
    assert shown_text.isprintable()
    if text.isprintable():
        assert shown_text == text


def test_the_escapes_name_the_code_point() -> None:
    assert safe_text("x\n\u202e\U000e0041é \u4e2d") == "x\\u000a\\u202e\\U000e0041é \u4e2d"


def test_every_format_and_control_character_is_escaped() -> None:
    import unicodedata

    bad = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    codes = [code for code in range(0x11000) if unicodedata.category(chr(code)) in bad]
    assert len(codes) > 1000
    assert all(safe_text(chr(code)).startswith("\\") for code in codes)
    assert sys.maxunicode == 0x10FFFF
    assert safe_text("\U0010ffff") == "\\U0010ffff"


@pytest.mark.parametrize("place", ["what", "file", "column", "module", "hint"])
def test_an_error_shows_hostile_places_safely_and_keeps_them_exactly(place: str) -> None:
    error = BloomsealError(**{"what": "it failed", place: HOSTILE})
    assert str(error).isprintable()
    assert error.to_dict()[place] == HOSTILE
    assert json.loads(json.dumps(error.to_dict()))[place] == HOSTILE


def test_master_keys_and_warnings_are_shown_safely() -> None:
    assert shown(HOSTILE).isprintable()
    assert str(KmsAccessError.because(Problem.DENIED, HOSTILE, HOSTILE)).isprintable()
    assert str(BloomsealWarning(HOSTILE)).isprintable()


def test_a_column_that_is_not_there_forges_no_line() -> None:
    import pyarrow as pa

    with pytest.raises(bs.UsageError) as caught:
        bs.write_table(pa.table({HOSTILE[:-1]: [1]}), "unused", bloom_filters={"other\nok": True})
    assert str(caught.value).isprintable()
