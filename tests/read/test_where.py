"""A condition in SQL keeps the rows that DuckDB keeps, whatever statistics, indexes and filters rule out before."""

from __future__ import annotations

import datetime as dt
import functools
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.orc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bloomseal as bs
import bloomseal.duckdb
from bloomseal.read.predicate.where import parse_where

_ROWS = 400
_TEXTS = [
    "",
    "a",
    "ab",
    "abc",
    "b",
    "it's",
    'q"q',
    "é",
    "éa",
    "e_f",
    "100%",
    "\\n",
    "zz\nzz",
    "Zoë 🌻",
    "NULL",
    "078-05-1120",
]
_KEYS = bs.DecryptionSpec(bs.ExplicitKeys(footer_key=b"f" * 16, column_keys={"s": b"s" * 16}))

Opened = tuple[list[bs.SealedFile], duckdb.DuckDBPyConnection]


def _table() -> pa.Table:
    source = random.Random(7)

    def some(values: list[Any], *, ordered: bool = False) -> list[Any]:
        drawn = [source.choice(values) for _ in range(_ROWS)]
        drawn = sorted(drawn) if ordered else drawn
        return [None if source.random() < 0.1 else value for value in drawn]

    inner = [None if value is None else {"b": value, "c": None} for value in some([1, 2, 3])]
    return pa.table(
        {
            "row": pa.array(range(_ROWS)),
            "i": pa.array(some(list(range(-20, 20)), ordered=True), pa.int64()),
            "small": pa.array(some([-128, -1, 0, 5, 127]), pa.int8()),
            "s": pa.array(some(_TEXTS), pa.string()),
            "my col": pa.array(some(_TEXTS, ordered=True), pa.large_string()),
            "d": pa.array(some([dt.date(1990 + n, 3, 7) for n in range(20)], ordered=True), pa.date32()),
            "m": pa.array(some([Decimal(n) / 4 for n in range(-20, 20)]), pa.decimal128(12, 2)),
            "f": pa.array(some([-1.5, 0.0, -0.0, 0.25, 1e10, float("inf")]), pa.float64()),
            "g": pa.array(some([-1.5, 0.0, 0.25, 8.0]), pa.float32()),
            "t": pa.array(
                some([dt.datetime(2024, 1, n, 3, 4, 5) for n in range(1, 20)], ordered=True), pa.timestamp("us")
            ),
            "flag": pa.array(some([True, False]), pa.bool_()),
            "n": pa.array(inner, pa.struct({"b": pa.int32(), "c": pa.string()})),
            "always": pa.array(range(_ROWS), pa.int32()),
        },
        schema=None,
    )


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """The same rows in a file with everything that rules rows out, and in one with nothing; and in DuckDB."""
    folder, table = tmp_path_factory.mktemp("where"), _table()
    encryption = bs.EncryptionSpec(footer_key=b"f" * 16, column_keys={"s": b"s" * 16}, complete=True)
    filters = {name: bs.FilterSpec(fpp=0.1) for name in ("i", "small", "s", "my col", "d", "m", "f", "t", "n.b")}
    rich = {"bloom_filters": filters, "write_page_index": True, "data_page_size": 100, "write_batch_size": 10}
    files = []
    for name, options in (("rich", rich), ("bare", {"write_statistics": False, "row_group_size": 1000})):
        options = {"row_group_size": 50, "encryption": encryption, **options}
        bs.write_table(table, folder / name, **options)
        files.append(bs.open_file(folder / name, decryption=_KEYS))
    connection = duckdb.connect()
    connection.register("rows", table)
    connection.execute("create table people as select * from rows")
    return files, connection


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


_LITERALS: dict[str, st.SearchStrategy[str]] = {
    "i": st.integers(-25, 25).map(str) | st.sampled_from(["'7'", "(-3)", "null", "9223372036854775807"]),
    "small": st.sampled_from(["-128", "-1", "0", "5", "127", "null"]),
    "s": st.sampled_from([*map(_quoted, _TEXTS), "'nowhere'", "null"]),
    '"my col"': st.sampled_from([*map(_quoted, _TEXTS), "'nowhere'"]),
    "d": st.sampled_from(["'1995-03-07'", "date '2001-03-07'", "'1999-01-01'::date", "'2003-03-07'", "null"]),
    "m": st.sampled_from(["1.25", "-2.5", "'0.75'", "3", "0", "1.255", "null"]),
    "f": st.sampled_from(["0", "-1.5", "0.25", "0.1", "10000000000", "null"]),
    "g": st.sampled_from(["0", "-1.5", "0.25", "8"]),
    "t": st.sampled_from(["'2024-01-05 03:04:05'", "timestamp '2024-01-09 03:04:05'", "'2024-01-11'", "null"]),
    "n.b": st.sampled_from(["1", "2", "9", "null"]),
    "always": st.integers(-1, _ROWS).map(str),
}
_PATTERNS = st.sampled_from(
    ["a%", "%a", "_", "%", "", "a_c", "é%", "e\\_f", "e_f", "100%", "zz%", "%'%", "Zoë _", "abc", "%\n%"]
)


@st.composite
def _leaves(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from([*_LITERALS, "s", "my col", "flag"]))
    if name == "flag":
        return draw(st.sampled_from(["flag", "flag = true", "flag is null", "flag <> false", "flag = 'false'"]))
    name = '"my col"' if name == "my col" else name
    literal = _LITERALS[name]
    shape = draw(st.integers(0, 8))
    if shape == 0:
        return f"{name} is {draw(st.sampled_from(['', 'not ']))}null"
    if shape == 1:
        listed = ", ".join(draw(st.lists(literal, min_size=1, max_size=4)))
        return f"{name} {draw(st.sampled_from(['', 'not ']))}in ({listed})"
    if shape == 2:
        return f"{name} {draw(st.sampled_from(['', 'not ']))}between {draw(literal)} and {draw(literal)}"
    if shape in (3, 4) and name in ("s", '"my col"'):
        escape = draw(st.sampled_from(["", "", " escape '\\'"]))
        return f"{name} {draw(st.sampled_from(['', 'not ']))}like {_quoted(draw(_PATTERNS))}{escape}"
    op = draw(st.sampled_from(["=", "==", "<>", "!=", "<", "<=", ">", ">="]))
    return f"{draw(literal)} {op} {name}" if shape == 5 else f"{name} {op} {draw(literal)}"


_CONDITIONS = st.recursive(
    _leaves(),
    lambda inner: (
        st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner)
        | st.builds("not {}".format, inner.map("({})".format))
        | st.builds("{} or {} and {}".format, inner, inner, inner).map("({})".format)
    ),
    max_leaves=5,
)


@given(condition=_CONDITIONS)
@settings(max_examples=300, deadline=None)
def test_the_rows_that_duckdb_would_pick(opened: Opened, condition: str) -> None:
    files, connection = opened
    question = f"select row from people where {condition} order by row"  # noqa: S608
    expected = [row for (row,) in connection.execute(question).fetchall()]
    for file in files:
        kept = file.read(["row"], parse_where(condition, file.walk.footer.schema))
        assert kept.column("row").to_pylist() == expected


@pytest.mark.parametrize(
    "factor",
    ["({} = {} or {} < {})", "({0} = {1} or {0} = {3})"],  # one cannot be asked for together, the other can
)
def test_more_alternatives_than_pruning_multiplies_out(opened: Opened, factor: str) -> None:
    names = ["i", "always", "row", "small", "m", "d", "i", "always"]
    values = {"i": -19, "always": 7, "row": 9, "small": 5, "m": 0, "d": "'1990-03-07'"}
    condition = " and ".join(factor.format(name, values[name], "always", 20) for name in names if name != "d")
    condition = f"({condition}) or ({condition} and d = {values['d']})"
    question = f"select row from people where {condition} order by row"  # noqa: S608
    expected = [row for (row,) in opened[1].execute(question).fetchall()]
    file = opened[0][0]
    assert file.read(["row"], parse_where(condition, file.walk.footer.schema)).column("row").to_pylist() == expected
    assert file.stats.decoded < 8


@pytest.mark.parametrize(
    ("condition", "decoded"),
    [
        ("i = -15 or i = 15", 2),
        ("not (i <> 15)", 1),
        ("always between 60 and 70", 1),
        ("always < 50 and not always < 0", 1),
        ("(i = -15 or i = 15) and (always < 100 or always is null)", 1),
        ("\"my col\" like 'Zoë%'", 2),
        ("i is null and always = 399", 1),
        ("not (i is null or always < 350)", 1),
        ("row is null", 0),
    ],
)
def test_conditions_rule_row_groups_out(opened: Opened, condition: str, decoded: int) -> None:
    """The property above would also hold for a reader that prunes nothing."""
    file = opened[0][0]
    file.read(["row"], parse_where(condition, file.walk.footer.schema))
    assert file.stats.decoded <= decoded


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_python_takes_the_same_sql_wherever_rows_are_chosen(tmp_path: Path, kind: str) -> None:
    rows = pa.table({"id": [1, 2, 3], "ssn": ["a", None, "c"], "n": [1.5, 2.5, 3.5]})
    lake = tmp_path / "lake"
    for country in ("DE", "FR"):
        (lake / f"country={country}").mkdir(parents=True)
        place = lake / f"country={country}" / f"0.{kind}"
        bs.write_table(rows, place, bloom_filters=["ssn"]) if kind == "parquet" else pa.orc.write_table(rows, place)
    text = "ssn is not null and (id = 3 or n < 2)"
    assert bs.read_table(place, where=text)["id"].to_pylist() == [1, 3]
    table = bs.open_table(lake)
    assert table.read(["id"], text + " and country = 'FR'")["id"].to_pylist() == [1, 3]
    assert table.scan(["id"], "ssn = 'c'").read_all().num_rows == 2
    with duckdb.connect() as connection:
        bloomseal.duckdb.register(connection, "lake", lake, where="ssn like 'c%'")
        assert connection.sql("select count(*) from lake").fetchall() == connection.sql("select 2").fetchall()
    for wrong in ("ssn", "nothing = 1", "id = 'secret-value'", ""):
        for read in (lambda: bs.read_table(place, where=wrong), lambda: table.read(where=wrong)):  # noqa: B023
            with pytest.raises(bs.UsageError) as caught:
                read()
            assert "secret-value" not in str(caught.value)
    with duckdb.connect() as connection, bs.open_file(place) as file:
        view = functools.partial(bloomseal.duckdb.register, connection, "view")
        for call in (
            functools.partial(bs.read_table, lake),
            table.read,
            table.scan,
            file.read,
            lambda **x: view(lake, **x),
        ):
            with pytest.raises(bs.UsageError, match="'filters'") as caught:
                call(filters="id = 1")
            assert caught.value.hint == "where="


def test_rows_are_erased_by_sql(tmp_path: Path) -> None:
    ring = bs.Keyring(tmp_path / "keys.json", create=True)
    ring.create("footer")
    rows = pa.table({"id": [1, 2, 3], "ssn": ["a", None, "c"]})
    (tmp_path / "lake").mkdir()
    bs.write_table(rows, tmp_path / "lake" / "0.parquet", encryption=bs.EncryptionSpec("footer", keys=ring))
    table = bs.open_table(tmp_path / "lake", decryption=bs.DecryptionSpec(ring))
    table.erase("ssn = 'c'", journal=tmp_path / "journal")
    left = bs.read_table(tmp_path / "lake", decryption=bs.DecryptionSpec(ring))
    assert left["id"].to_pylist() == [1, 2]
    assert "'c'" not in (tmp_path / "journal").read_text()
