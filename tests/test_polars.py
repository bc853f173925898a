"""The Polars source: the same rows as Polars has of a plaintext copy, whatever is pushed down."""

from __future__ import annotations

import datetime as dt
import math
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import bloomseal as bs
import bloomseal.polars as bp
from bloomseal.polars import _pushed
from bloomseal.read.predicate.condition import AnyOf
from bloomseal.table.sealed import SealedTable

ENCRYPTION = bs.EncryptionSpec(footer_key=b"f" * 16, column_keys={"text": b"s" * 16}, complete=True)
ENCRYPTION_OF_ALL = bs.EncryptionSpec(footer_key=b"f" * 16)
DECRYPTION = bs.DecryptionSpec(
    bs.ExplicitKeys(footer_key=b"f" * 16, column_keys={"text": b"s" * 16}), partition_by=["part"]
)
DAY = dt.date(2024, 2, 28)
NUMBERS = [0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -2.5, None]


def frame() -> pl.DataFrame:
    chance = random.Random(7)
    some = lambda value: None if chance.random() < 0.1 else value  # noqa: E731
    rows = 600
    return pl.DataFrame(
        {
            "id": range(rows),
            "small": [some(chance.randrange(-5, 5)) for _ in range(rows)],
            "text": [some(chance.choice(["", "a", "b", "ß", "é", "zz"])) for _ in range(rows)],
            "day": [some(DAY + dt.timedelta(chance.randrange(5))) for _ in range(rows)],
            "number": [chance.choice(NUMBERS) for _ in range(rows)],
            "raw": [some(chance.choice([b"", b"a", b"\xff"])) for _ in range(rows)],
            "flag": [some(chance.random() < 0.5) for _ in range(rows)],
            "when": [some(dt.datetime(2024, 1, chance.randrange(1, 9))) for _ in range(rows)],
            "part": [chance.choice(["x", "y/z", None]) for _ in range(rows)],
        },
        schema_overrides={"small": pl.Int8},
    )


@pytest.fixture(scope="module")
def plain() -> pl.DataFrame:
    return frame()


@pytest.fixture(scope="module")
def table(plain: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> bs.SealedTable:
    folder = tmp_path_factory.mktemp("polars") / "t"
    bs.write_dataset(
        plain, folder, encryption=ENCRYPTION, partition_by=["part"], rows_per_file=90, row_group_size=40,
        bloom_filters=["text", "id", "small", "raw"],
    )  # fmt: skip
    return bs.open_table(folder, decryption=DECRYPTION)


def leaf(chance: random.Random) -> pl.Expr:
    name, values = chance.choice(
        [
            ("id", [0, 5, 599, 600, -1]),
            ("small", [-5, 0, 4, 100]),
            ("text", ["", "a", "ß", "nobody"]),
            ("day", [DAY, DAY + dt.timedelta(3), dt.date(1, 1, 1)]),
            ("number", [*NUMBERS[:-1], 7.0]),
            ("raw", [b"", b"\xff", b"no"]),
            ("when", [dt.datetime(2024, 1, 3), dt.datetime(2024, 1, 8)]),
            ("part", ["x", "y/z", "nobody"]),
            ("flag", [True, False]),
        ]
    )
    column, one, other = pl.col(name), chance.choice(values), chance.choice(values)
    return chance.choice(
        [
            lambda: column == one,
            lambda: pl.lit(one) == column,
            lambda: column != one,
            lambda: column < one,
            lambda: pl.lit(one) <= column,
            lambda: column > one,
            lambda: column >= one,
            lambda: column.is_in([one, other]),
            lambda: column.is_in([one, None]),
            lambda: column.is_in([]),
            lambda: column.is_between(
                pl.lit(one), pl.lit(other), closed=chance.choice(["both", "left", "right", "none"])
            ),
            lambda: column.is_null(),
            lambda: column.eq_missing(one),
        ]
    )()


def condition(chance: random.Random, depth: int) -> pl.Expr:
    if depth == 0 or chance.random() < 0.3:
        return leaf(chance)
    one = condition(chance, depth - 1)
    kind = chance.randrange(5)
    if kind == 0:
        return ~one
    other = condition(chance, depth - 1)
    return one & other if kind < 3 else one | other


def test_the_same_rows_as_polars_for_generated_predicates(plain: pl.DataFrame, table: bs.SealedTable) -> None:
    lazy, chance, pushed, matched = bp.scan(table), random.Random(1), 0, 0
    for _ in range(150):
        predicate = condition(chance, 3)
        columns = chance.sample(plain.columns, chance.randrange(1, 4))
        wanted = plain.lazy().filter(predicate).sort("id").select(columns).collect()
        found = lazy.filter(predicate).sort("id").select(columns).collect()
        assert found.equals(wanted, null_equal=True), str(predicate)
        pushed += _pushed(predicate, plain.schema) is not None
        matched += wanted.height > 0
    assert pushed > 30
    assert matched > 75


class Asked:
    """What the source asked the table for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[Any, Any]] = []
        scan = SealedTable.scan_in

        def noted(table: SealedTable, schema: pa.Schema, filters: Any = None) -> Any:
            self.calls.append((schema.names, filters))
            return scan(table, schema, filters)

        monkeypatch.setattr(SealedTable, "scan_in", noted)


def told(condition: AnyOf | None) -> Any:
    """The comparisons, as the list of tuples that says the same."""

    def term(one: Any) -> Any:
        return one.column, one.op, one.values[0] if len(one.values) == 1 and one.op != "in" else tuple(one.values)

    return None if condition is None else [[term(one) for one in part.parts] for part in condition.parts]


@pytest.mark.parametrize(
    ("predicate", "terms"),
    [
        (pl.col("text") == "a", [[("text", "==", "a")]]),
        (pl.lit("a") == pl.col("text"), [[("text", "==", "a")]]),
        (pl.col("text").is_in(["a", "b"]), [[("text", "in", ("a", "b"))]]),
        (pl.col("small") < 3, [[("small", "<", 3)]]),
        (pl.lit(3) < pl.col("id"), [[("id", ">", 3)]]),
        (pl.col("id").is_between(1, 3), [[("id", ">=", 1), ("id", "<=", 3)]]),
        (pl.col("id").is_between(1, 3, closed="right"), [[("id", ">", 1), ("id", "<=", 3)]]),
        ((pl.col("id") == 1) & (pl.col("text") == "a"), [[("id", "==", 1), ("text", "==", "a")]]),
        ((pl.col("id") == 1) | (pl.col("text") == "a"), [[("id", "==", 1)], [("text", "==", "a")]]),
        ((pl.col("id") == 1) & (pl.col("flag")), [[("id", "==", 1)]]),
        ((pl.col("id") == 1) | (pl.col("flag")), None),
        (pl.col("number") == 1.5, [[("number", "==", 1.5)]]),
        (pl.col("number") == math.nan, None),  # Polars finds it
        (pl.col("number") > 1.5, None),  # NaN is the greatest there
        (pl.col("number") < math.inf, [[("number", "<", math.inf)]]),
        (pl.col("id") != 3, [[("id", "!=", 3)]]),
        (pl.col("number") != 1.5, [[("number", "!=", 1.5)]]),
        (pl.col("number") != math.nan, None),
        (pl.col("text").is_null(), [[("text", "null", ())]]),
        (pl.col("number").is_not_null() & (pl.col("id") == 1), [[("id", "==", 1), ("number", "valid", ())]]),
        (pl.col("text").str.to_uppercase() == "A", None),
        (pl.col("id") == pl.col("small"), None),
        (pl.col("id").is_in([]), None),
        (pl.col("part") == "y/z", [[("part", "==", "y/z")]]),
    ],
)
def test_what_is_understood_is_pushed(
    predicate: pl.Expr, terms: Any, table: bs.SealedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked(monkeypatch)
    bp.scan(table).filter(predicate).select("id").collect()
    ((columns, filters),) = asked.calls
    assert told(filters) == terms
    assert "id" in columns
    assert "when" not in columns


@pytest.mark.parametrize(
    ("predicate", "whole"),
    [
        (pl.col("text") == "a", True),
        (pl.col("id").is_in([1, 2]) & ((pl.col("day") > DAY) | (pl.col("raw") != b"a")), True),
        (pl.col("text").is_not_null(), True),
        ((pl.col("id") == 1) & pl.col("flag"), False),
        (pl.col("number") == 1.5, False),  # zeros have signs, and NaN equals itself there
        ((pl.col("id") == 1) | (pl.col("number") < 1.5), False),
    ],
)
def test_polars_evaluates_what_is_not_pushed_as_a_whole(
    predicate: pl.Expr, whole: bool, table: bs.SealedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluated: list[pl.Expr] = []
    before = pl.DataFrame.filter

    def noted(frame: pl.DataFrame, *rest: Any) -> pl.DataFrame:
        evaluated.extend(rest)
        return before(frame, *rest)

    monkeypatch.setattr(pl.DataFrame, "filter", noted)
    bp.scan(table).filter(predicate).select("id").collect()
    assert bool(evaluated) is not whole


def test_a_limit_ends_the_reading_and_columns_are_few(table: bs.SealedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    lazy = bp.scan(table)
    assert lazy.head(3).collect().height == 3
    assert lazy.select(pl.len()).collect().item() == 600
    assert lazy.head(10).filter(pl.col("id") >= 0).collect().height == 10
    assert lazy.filter(pl.col("text") == "nobody").collect().schema == lazy.collect_schema()
    assert len(asked.calls[1][0]) == 1


def test_files_that_differ_have_the_schema_of_the_table(tmp_path: Path) -> None:
    """The types are those of all files, also where a predicate leaves only some of them."""
    for part, rows in (
        ("x", pa.table({"id": pa.array([1, 2], pa.int32())})),
        ("y", pa.table({"id": [3], "new": ["n"]})),
    ):
        (tmp_path / f"part={part}").mkdir()
        bs.write_table(rows, tmp_path / f"part={part}" / "a.parquet")
    lazy = bp.scan(tmp_path)
    assert lazy.collect_schema()["id"] == pl.Int64
    found = lazy.filter(pl.col("part") == "x").collect()
    assert found.schema == lazy.collect_schema()
    assert found.select("id", "new").rows() == [(1, None), (2, None)]
    assert lazy.filter(pl.col("new") == "n").collect()["id"].to_list() == [3]


def test_a_path_and_options(tmp_path: Path, table: bs.SealedTable) -> None:
    bs.write_table(frame(), tmp_path / "a.parquet", encryption=ENCRYPTION)
    found = bp.scan(tmp_path / "a.parquet", decryption=DECRYPTION).filter(pl.col("id") == 5).collect()
    assert found.equals(frame().filter(pl.col("id") == 5), null_equal=True)
    with pytest.raises(bs.UsageError, match="open already"):
        bp.scan(table, decryption=DECRYPTION)
    with pytest.raises(bs.UsageError):
        bp.scan(tmp_path / "no.parquet")


def test_a_column_without_its_key_fails_the_frame(tmp_path: Path) -> None:
    """Never an empty answer."""
    bs.write_table(frame(), tmp_path / "a.parquet", encryption=ENCRYPTION, bloom_filters=["text"])
    lazy = bp.scan(tmp_path / "a.parquet", decryption=DECRYPTION)
    data = bytearray((tmp_path / "a.parquet").read_bytes())
    data[200:260] = bytes(60)
    (tmp_path / "a.parquet").write_bytes(data)
    with pytest.raises(Exception, match="authenticat"):
        lazy.collect()


def test_values_of_an_arrow_table_come_out_as_they_went_in(table: bs.SealedTable, plain: pl.DataFrame) -> None:
    found = pl.from_arrow(table.read(plain.columns))
    assert isinstance(found, pl.DataFrame)
    assert found.sort("id").equals(plain, null_equal=True)
    assert isinstance(table.scan(["id"]), pa.RecordBatchReader)


def test_decimals_of_every_width(tmp_path: Path) -> None:
    """Polars is given one width, and takes others for it (pola-rs/polars issue 22946)."""
    numbers = [None if number % 5 == 0 else Decimal(number - 9).scaleb(-2) for number in range(20)]
    for kind in (pa.decimal32(9, 2), pa.decimal64(18, 2), pa.decimal128(20, 2), pa.decimal256(38, 2)):
        flat = pa.array(numbers, kind)
        places, texts = pa.array(range(0, 21, 2), pa.int32()), pa.array([str(number) for number in range(20)])
        columns = {
            "flat": flat.slice(0, 10),
            "inside": pa.StructArray.from_arrays([flat.slice(0, 10)], ["d"]),
            "listed": pa.ListArray.from_arrays(places, flat),
            "fixed": pa.FixedSizeListArray.from_arrays(flat, 2),
            "mapped": pa.MapArray.from_arrays(places, texts, flat),
        }
        bs.write_table(pa.table(columns), tmp_path / "a.parquet", encryption=ENCRYPTION_OF_ALL, row_group_size=4)
        lazy = bp.scan(tmp_path / "a.parquet", decryption=DECRYPTION)
        found = lazy.collect()
        assert found["flat"].to_list() == numbers[:10]
        assert found["inside"].to_list() == [{"d": number} for number in numbers[:10]]
        assert found["listed"].to_list() == [numbers[at : at + 2] for at in range(0, 20, 2)]
        assert found["fixed"].to_list() == found["listed"].to_list()
        assert [[*row.values()] for row in found["mapped"]] == found["listed"].to_list()
        some = Decimal("-0.05")
        assert lazy.filter(pl.col("flat") == some).collect().height == numbers[:10].count(some) == 1
        assert lazy.filter(pl.col("flat") < some).select("flat").collect()["flat"].to_list() == [
            number for number in numbers[:10] if number is not None and number < some
        ]
    bs.write_table(pa.table({"much": pa.array([1], pa.decimal256(39, 0))}), tmp_path / "b.parquet")
    with pytest.raises(bs.UnsupportedError, match="39 digits"):
        bp.scan(tmp_path / "b.parquet")
