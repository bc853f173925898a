"""No value of a file is ever absent, whatever its type, and the filters tell most others."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal import UsageError, Verdict
from bloomseal.read.orc.file import OrcFile

from .generated import columns, write

_UNTRUSTED = ("bool", "i8", "f32")
_UNDECIDED = ("wall", "moment")
"""Timestamps before 1900 are never decided."""


def _groups(file: OrcFile, stride: int) -> Iterator[slice]:
    start = 0
    for stripe in file.stripes:
        for group in range(stripe.num_row_groups):
            rows = min(stride, stripe.num_rows - stride * group)
            yield slice(start, start + rows)
            start += rows
    assert start == file.num_rows


def _values(table: pa.Table, column: str) -> list[list[Any]]:
    """The leaf's values, row by row."""
    whole = table[column.partition(".")[0]].to_pylist()
    if column.endswith("._elem"):
        return [row or [] for row in whole]
    if "." in column:
        return [[row and row[column.rpartition(".")[2]]] for row in whole]
    return [[row] for row in whole]


def _counted(path: Path, table: pa.Table, column: str, stride: int) -> tuple[int, int, int]:
    """Present values called absent, absent values called absent, absent values in all."""
    rows = _values(table, column)
    known = list({value for row in rows for value in row if value is not None})
    missed = told = other = 0
    with bs.open_file(path) as file:
        for answer, part in zip(file.verdicts(column, known), _groups(file, stride), strict=True):
            here = {value for row in rows[part] for value in row}
            for value, verdict in zip(known, answer.verdicts, strict=True):
                absent = verdict == Verdict.ABSENT
                if value in here:
                    missed += absent
                else:
                    other, told = other + 1, told + absent
            assert (answer.untrusted is not None) == (column in _UNTRUSTED and Verdict.NO_FILTER in answer.verdicts)
    return missed, told, other


@pytest.mark.parametrize("compression", ["uncompressed", "zlib", "snappy", "lz4", "zstd"])
def test_no_value_is_ever_absent(compression: str, tmp_path: Path) -> None:
    path, table = tmp_path / "all.orc", columns(3_000)
    write(table, path, compression=compression)
    with bs.open_file(path) as file:
        assert len(file.stripes) > 2 or compression != "uncompressed"
        assert file.compression == compression.replace("uncompressed", "none")
        leaves = [one.name for one in file.schema.leaves]
    assert {"group.inner", "list._elem", "dec38"} < set(leaves)
    for column in leaves:
        missed, told, other = _counted(path, table, column, 700)
        assert missed == 0, column
        if column not in (*_UNTRUSTED, *_UNDECIDED, "nulls"):
            assert told >= 0.98 * other, column


@pytest.mark.parametrize(("stride", "stripe_size", "fpp"), [(1, 1 << 26, 0.1), (333, 1 << 26, 1e-9), (10_000, 1, 0.05)])
def test_any_stride_and_stripe(stride: int, stripe_size: int, fpp: float, tmp_path: Path) -> None:
    path, table = tmp_path / "one.orc", columns(1_000, seed=stride).select(["i64", "text", "dec15", "list"])
    write(table, path, stride=stride, stripe_size=stripe_size, fpp=fpp, compression="zlib")
    for column in ("i64", "text", "dec15", "list._elem"):
        missed, told, other = _counted(path, table, column, stride)
        assert missed == 0, column
        assert told >= (1 - 1.5 * fpp) * other, column


@pytest.mark.parametrize("compression", ["zlib", "zstd"])
def test_many_compressed_stripes(compression: str, tmp_path: Path) -> None:
    path, chance = tmp_path / "many.orc", random.Random(5)
    values = [chance.getrandbits(63) for _ in range(60_000)]
    write(pa.table({"a": values}), path, stride=2_000, stripe_size=1 << 16, compression=compression)
    asked = values[::100]
    with bs.open_file(path) as file:
        assert len(file.stripes) > 2
        verdicts = [answer.verdicts for answer in file.verdicts("a", asked)]
        for own, part in zip(verdicts, _groups(file, 2_000), strict=True):
            inside = [own[place // 100] for place in range(part.start, part.stop) if place % 100 == 0]
            assert set(inside) == {Verdict.MAYBE_PRESENT}
    maybe = sum(own.count(Verdict.MAYBE_PRESENT) for own in verdicts) - len(asked)
    assert maybe < 0.015 * len(asked) * len(verdicts)


def test_a_filter_is_read_over_several_compression_chunks(tmp_path: Path) -> None:
    path, table = tmp_path / "big.orc", pa.table({"a": range(60_000)})
    for compression in ("zlib", "snappy", "lz4", "zstd"):
        write(table, path, stride=10_000, fpp=1e-9, stripe_size=1 << 26, compression=compression)
        with bs.open_file(path) as file:
            filters = file.filter(0, "a")
            assert filters is not None
            assert sum(len(one.bitset) for one in filters) > 2 * 65_536
            answers = file.verdicts("a", [0, 59_999, 60_000])
        assert answers[0].verdicts == [Verdict.MAYBE_PRESENT, Verdict.ABSENT, Verdict.ABSENT]
        assert answers[-1].verdicts == [Verdict.ABSENT, Verdict.MAYBE_PRESENT, Verdict.ABSENT]


def test_statistics_answer_where_no_filter_is(tmp_path: Path) -> None:
    path = tmp_path / "bare.orc"
    pyarrow_orc = pytest.importorskip("pyarrow.orc")
    pyarrow_orc.write_table(pa.table({"a": [1, 5], "t": ["x", "y"], "n": pa.nulls(2, pa.string())}), path)
    with bs.open_file(path) as file:
        assert file.verdicts("a", [0, 3, 6])[0].verdicts == [Verdict.ABSENT, Verdict.NO_FILTER, Verdict.ABSENT]
        assert file.verdicts("t", ["a"])[0].verdicts == [Verdict.NO_FILTER]
        assert file.verdicts("n", ["a", None])[0].verdicts == [Verdict.ABSENT, Verdict.NO_FILTER]
        assert file.filters == []


def test_null_nan_and_signed_zero(tmp_path: Path) -> None:
    path = tmp_path / "odd.orc"
    write(pa.table({"e": [-0.0, 1.5], "d": [0.0, 2.5]}), path)
    with bs.open_file(path) as file:
        maybe = Verdict.MAYBE_PRESENT
        assert file.verdicts("e", [None, float("nan"), 0.0, -0.0, 0])[0].verdicts == [maybe] * 5
        assert file.verdicts("d", [None, float("nan"), 0.0, -0.0, 0])[0].verdicts == [maybe] * 5
        assert file.verdicts("e", [1.5, 2.5])[0].verdicts == [maybe, Verdict.ABSENT]


def test_values_of_the_wrong_kind_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "all.orc"
    write(columns(10), path)
    with bs.open_file(path) as file:
        wrong: dict[str, Any] = {
            "i32": "1",
            "text": 1,
            "day": dt.datetime(2020, 1, 1),
            "wall": dt.date(2020, 1, 1),
            "moment": dt.datetime(2020, 1, 1),
            "dec15": 1.5,
        }
        for column, value in wrong.items():
            with pytest.raises(UsageError):
                file.verdicts(column, [value])
        assert file.verdicts("dec15", [Decimal("0.001")])[0].verdicts == [Verdict.ABSENT]
        for column in ("nowhere", "group", "list", ""):
            with pytest.raises(UsageError):
                file.verdicts(column, [1])
        with pytest.raises(UsageError, match="i16"):
            file.verdicts("i-16", [1])


def test_moments_in_utc_are_wall_clock_times(tmp_path: Path) -> None:
    path, noon = tmp_path / "t.orc", dt.datetime(2024, 7, 1, 12, 0, 0, 123_456)
    write(pa.table({"t": pa.array([noon], pa.timestamp("us"))}), path)
    with bs.open_file(path) as file:
        asked = [noon, noon.replace(tzinfo=dt.UTC), noon.replace(hour=13)]
        maybe = Verdict.MAYBE_PRESENT
        assert file.verdicts("t", asked)[0].verdicts == [maybe, maybe, Verdict.ABSENT]


def test_the_file_tells_its_filters(tmp_path: Path) -> None:
    path = tmp_path / "all.orc"
    write(columns(100), path, compression="zstd")
    with bs.open_file(path) as file:
        told = {info.column: info for info in file.filters}
        assert told["text"].untrusted is None
        assert told["text"].kind == "BLOOM_FILTER_UTF8"
        assert "tinyint" in str(told["i8"].untrusted)
        assert file.encrypted_columns == []
        filters = file.filter(0, "text")
        assert filters is not None
        assert filters[0].num_hashes == 7
        assert str(file.schema.leaf("dec15")) == "dec15: decimal(15, 2)"


def test_many_values_are_asked_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, values = tmp_path / "parts.orc", list(range(0, 4_000, 3))
    write(pa.table({"a": values}), path, stride=500)
    with bs.open_file(path) as file:
        whole = file.verdicts("a", range(4_000))
        for module in ("filters", "asking.values"):
            monkeypatch.setattr(f"bloomseal.orc.{module}.MOST_POSITIONS", 100)
        assert file.verdicts("a", range(4_000)) == whole
    assert sum(answer.verdicts.count(Verdict.MAYBE_PRESENT) for answer in whole) >= len(values)
