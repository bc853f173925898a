"""Three-valued logic, NaN, and the bounds of patterns."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.read.predicate.like import prefix_of, regex_of, successor
from bloomseal.read.predicate.where import parse_where


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64(), pa.float16()])
@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("f = 'nan'", []),
        ("f <> 'nan'", [0, 1, 2]),
        ("f > 1", [1]),
        ("not f > 1", [0, 2]),
        ("not f <= 1", [1, 2]),
        ("not (f > 1 or f <= 1)", [2]),
        ("not (f > 1 and f is not null)", [0, 2, 3]),
        ("f is null or not f < 'inf'", [2, 3]),
        ("f in ('nan', 0)", [0]),
        ("f not in (0)", [1, 2]),
    ],
)
def test_nan_is_neither_equal_nor_less_nor_greater(
    tmp_path: Path, kind: pa.DataType, condition: str, rows: list[int]
) -> None:
    table = pa.table({"f": pa.array([0.0, 5.0, math.nan, None]).cast(kind), "row": range(4)})
    bs.write_table(table, tmp_path / "t", bloom_filters={"f": True}, row_group_size=1, write_page_index=True)
    with bs.open_file(tmp_path / "t") as file:
        found = file.read(["row"], parse_where(condition, file.walk.footer.schema))
    assert found.column("row").to_pylist() == rows


@pytest.mark.parametrize(
    ("pattern", "escape", "prefix", "whole"),
    [
        ("abc", "", "abc", True),
        ("a%", "", "a", False),
        ("_a", "", "", False),
        ("a!%b_c", "!", "a%b", False),
        ("", "", "", True),
    ],
)
def test_prefixes(pattern: str, escape: str, prefix: str, whole: bool) -> None:
    assert prefix_of(pattern, escape) == (prefix, whole)


def test_a_pattern_is_no_regular_expression() -> None:
    import pyarrow.compute as pc

    text = "".join(map(chr, range(128))) + "é🌻\\E"
    assert pc.match_substring_regex(pa.array([text, text + "x"]), regex_of(text, "")).to_pylist() == [True, False]
    for one in ".*+?()[]{}|^$\\":
        assert pc.match_substring_regex(pa.array([one, "q", ""]), regex_of(one, "")).to_pylist() == [True, False, False]


@pytest.mark.parametrize(
    ("prefix", "after"),
    [("a", "b"), ("a\U0010ffff", "b"), ("\U0010ffff", None), ("\ud7ff", "\ue000"), ("z\x7f", "z\x80")],
)
def test_the_least_text_behind_a_prefix(prefix: str, after: str | None) -> None:
    assert successor(prefix) == after
    if after is not None:
        assert (prefix + "\U0010ffff" * 3).encode() < after.encode()
