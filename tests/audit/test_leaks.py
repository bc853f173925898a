"""Leak demonstrations, and the patterns that they expand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomseal import UsageError
from bloomseal.audit.leaks import demonstrate
from bloomseal.audit.pattern import Pattern
from bloomseal.core.parquet.layout import Meta
from support.lab import Lab, edit_meta, people

PIECES = st.sampled_from([r"\d", r"[a-c]", r"[x\d]", "-", "q", r"\.", r"[A-B_]", r"\w"])
COUNTS = st.sampled_from(["", "", "{2}", "{1,2}", "{0,1}"])
PATTERNS = st.lists(st.tuples(PIECES, COUNTS).map("".join), min_size=1, max_size=3).map("".join)


@given(PATTERNS, st.integers(1, 3000))
def test_samples_are_what_the_pattern_means(text: str, most: int) -> None:
    pattern = Pattern(text)
    drawn = [one for portion in pattern.sample(most) for one in portion]
    assert len(drawn) == min(most, pattern.total)
    assert all(re.fullmatch(text, one) for one in drawn)
    if pattern.total <= most and not re.search(r"\{\d,\d\}", text):
        assert len(set(drawn)) == pattern.total


def test_samples_are_spread() -> None:
    pattern = Pattern(r"\d{3}-\d{2}-\d{4}")
    assert pattern.total == 10**9
    drawn = [one for portion in pattern.sample(1000) for one in portion]
    assert drawn == [
        f"{i * 10**6:09d}"[:3] + "-" + f"{i * 10**6:09d}"[3:5] + "-" + f"{i * 10**6:09d}"[5:] for i in range(1000)
    ]


def test_huge_patterns_cost_nothing() -> None:
    drawn = [one for portion in Pattern(r"\w{200}").sample(10) for one in portion]
    assert len(set(drawn)) == 10


@pytest.mark.parametrize(
    "text", ["a*", "(a|b)", ".", r"\p", "[^a]", "[a", "a{3", "a{3,1}", "a{999}", "[z-a]", r"[a]{x}", "a?"]
)
def test_other_expressions_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Pattern(text)


def test_a_plaintext_column_tells_all(lab: Lab) -> None:
    path = lab.plain(bloom_filters={"ssn": True, "id": True})
    truth = people()["ssn"].to_pylist()
    shown = demonstrate(path, "ssn", [*truth, *(f"absent {i}" for i in range(20_000))])
    assert shown.exact
    assert shown.row_groups == (2, 2)
    assert len(truth) <= shown.confirmed <= len(truth) + 2 * 20_000 * 0.02
    assert shown.precision == pytest.approx(len(truth) / shown.confirmed)
    assert abs(shown.expected_false - (shown.confirmed - len(truth))) < 120
    numbers = demonstrate(path, "id", Pattern(r"\d{1,3}"))
    assert numbers.candidates == 1110
    assert numbers.confirmed >= 400


def test_an_encrypted_column_with_a_filter_in_clear(lab: Lab, tmp_path: Path) -> None:
    # The sealed column's clear metadata points at the plaintext twin of its filter.
    leak = lab.plain("twin.parquet", bloom_filters={"ssn": True}, table=people(200), row_group_size=200)
    from support.lab import chunks

    meta = next(c.meta for c in chunks(leak) if c.leaf.name == "ssn")
    clear = leak.read_bytes()[meta.bloom_filter_offset : meta.bloom_filter_offset + meta.bloom_filter_length]
    path = lab.signed("leaky.parquet", table=people(200))
    data = path.read_bytes()
    footer = int.from_bytes(data[-8:-4], "little") + 8
    place = len(data) - footer
    path.write_bytes(data[:place] + clear + data[place:])

    def spoil(struct: object) -> None:
        struct.set_i64(Meta.BLOOM_OFFSET, place)  # type: ignore[attr-defined]
        struct.set_i32(Meta.BLOOM_LENGTH, len(clear))  # type: ignore[attr-defined]

    edit_meta(path, 1, spoil)
    shown = demonstrate(path, "ssn", people(200)["ssn"].to_pylist() + [f"absent {i}" for i in range(1000)])
    assert not shown.exact
    assert shown.confirmed >= 200
    assert shown.precision is not None
    assert 0.9 < shown.precision <= 1
    assert "BS102" in lab.case(path).ids()


def test_a_sealed_filter_tells_nothing(lab: Lab) -> None:
    for path in (lab.write(bloom_filters={"ssn": True}), lab.signed(bloom_filters={"ssn": True})):
        with pytest.raises(UsageError, match="nothing leaks"):
            demonstrate(path, "ssn", ["000-00-0000"], keys=lab.keyring)


def test_candidates_stay_out_of_messages(lab: Lab) -> None:
    path = lab.plain(bloom_filters={"id": True})
    with pytest.raises(UsageError) as caught:
        demonstrate(path, "id", ["secret"])
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(caught.value.__context__) + repr(caught.value.__cause__)
