"""Conditions of every form over a table whose files differ: the same rows as without pruning, and filters that are
used.

The long runs go on where a killed one ended, if it is of the same code and BLOOMSEAL_TORTURE names a folder for them.
"""

from __future__ import annotations

import functools
import operator
import os
import random
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import bloomseal as bs
from bloomseal.core.parquet.walk import Walk
from bloomseal.read.predicate.condition import AllOf, AnyOf, Compare, Condition, Like, Not
from bloomseal.read.predicate.predicate import Predicate
from bloomseal.read.predicate.values import Values
from bloomseal.read.predicate.where import parse_where

KEYS: dict[str, Any] = {"footer_key": b"f" * 16, "column_keys": {"ssn": b"c" * 16}}
SPEC = bs.DecryptionSpec(bs.ExplicitKeys(**KEYS), partition_by=["country", "day"])
ROWS = 40
PLACES = ["DE", "FR", "DE", "__HIVE_DEFAULT_PARTITION__", "XX"]
COUNTS = (1, 20, 2000)
"""Files of the tables that are asked 500 conditions."""


def nested(ids: range) -> pa.Array:
    kind = pa.struct([("a", pa.int64()), ("b", pa.string())])
    return pa.array(
        [None if i % 13 == 0 else {"a": i % 50, "b": None if i % 5 == 0 else f"b{i % 9}"} for i in ids], kind
    )


def part(number: int) -> pa.Table:
    """Ids that grow from 32 to 64 bits, scores that change their width, and a column that came late."""
    ids = range(number * ROWS, (number + 1) * ROWS)
    table = pa.table(
        {
            "id": pa.array([None if i % 11 == 0 else i for i in ids], pa.int32() if number < 2 else pa.int64()),
            "ssn": [f"{i:06d}" for i in ids],
            "score": pa.array([i / 10 for i in ids], pa.float32() if number % 2 else pa.float64()),
        }
    )
    table = table.append_column("info", nested(ids))
    if number % len(PLACES) > 1:
        table = table.append_column("late", pa.array([None if i % 9 == 0 else f"l{i % 7}" for i in ids]))
    return table


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``sealed``, and the same rows in ``plain``."""
    return build(tmp_path_factory.mktemp("conditions"), len(PLACES))


def build(root: Path, count: int) -> Path:
    # Many files have two row groups each, a few have four.
    group = 10 if count <= COUNTS[1] else 20
    for number in range(count):
        country = PLACES[number % len(PLACES)]
        for kind in ("sealed", "plain"):
            path = root / kind / f"country={country}" / f"day={number}" / f"{number}.parquet"
            path.parent.mkdir(parents=True)
            if kind == "plain":
                pq.write_table(part(number), path)
                continue
            bs.write_table(
                part(number), path, row_group_size=group, encryption=bs.EncryptionSpec(**KEYS),
                bloom_filters={"ssn": True, "id": True, "score": True, "info.b": True},
            )  # fmt: skip
    return root


def plain_copy(root: Path, files: int) -> pa.Table:
    """The rows as pyarrow reads them from the plaintext files, in the widest types."""
    schemas = [part(number).schema for number in range(min(files, len(PLACES)))]
    folders = pa.schema([("country", pa.string()), ("day", pa.int32())])
    schema = pa.unify_schemas([*schemas, folders], promote_options="permissive")
    return ds.dataset(root / "plain", schema=schema, partitioning=ds.partitioning(folders, flavor="hive")).to_table()


def arrows(condition: Condition) -> pc.Expression:
    """The same condition in pyarrow's words; `isin` would call null unequal to all, so it is said one by one."""
    match condition:
        case Not():
            return ~arrows(condition.part)
        case AllOf():
            return functools.reduce(operator.and_, map(arrows, condition.parts))
        case AnyOf():
            return functools.reduce(operator.or_, map(arrows, condition.parts))
        case Like():
            return pc.match_like(pc.field(*condition.column.split(".")), condition.pattern)
    assert isinstance(condition, Compare)
    field, values = pc.field(*condition.column.split(".")), condition.values
    if condition.column == "score":
        values = [float(value) for value in values]
    say = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt}
    match condition.op:
        case "null":
            return field.is_null()
        case "valid":
            return field.is_valid()
        case "in":
            return functools.reduce(operator.or_, [field == value for value in values])
        case "not in":
            return functools.reduce(operator.and_, [field != value for value in values])
    return (say | {">=": operator.ge})[condition.op](field, values[0])


class Course:
    """How far a run came: kept where BLOOMSEAL_TORTURE says, else as long as the test's own folder.

    Attributes:
        folder: of the tables.
        done: conditions that held.
        matched: those of them that held for some rows, and not for all.
    """

    def __init__(self, folder: Path, files: int) -> None:
        if files > COUNTS[1] and (kept := os.environ.get("BLOOMSEAL_TORTURE")):
            folder = Path(kept)
        self.folder, self._told = folder, folder / "done"
        if not self._told.exists():
            build(folder, files)
            self._told.write_text("0 0")
        self.done, self.matched = map(int, self._told.read_text().split())

    def held(self, some: bool) -> None:
        self.done, self.matched = self.done + 1, self.matched + some
        aside = self._told.with_suffix(".new")
        aside.write_text(f"{self.done} {self.matched}")
        aside.replace(self._told)


def sql(rng: random.Random, depth: int = 2, files: int = len(PLACES)) -> str:
    """A condition; every form that ``--where`` knows comes up."""
    most = files * ROWS + 10
    if depth and rng.random() < 0.6:
        one, other = sql(rng, depth - 1, files), sql(rng, depth - 1, files)
        return rng.choice([f"({one} and {other})", f"({one} or {other})", f"not ({one})"])
    column, values = rng.choice(
        [
            ("id", [str(rng.randrange(-3, most)) for _ in range(3)]),
            ("ssn", [f"'{rng.randrange(0, most):06d}'" for _ in range(3)]),
            ("score", [str(rng.randrange(0, most) / 10) for _ in range(3)]),
            ("late", [f"'l{rng.randrange(0, 9)}'" for _ in range(3)]),
            ("info.a", [str(rng.randrange(-1, 52)) for _ in range(3)]),
            ("info.b", [f"'b{rng.randrange(0, 10)}'" for _ in range(3)]),
            ("country", [f"'{name}'" for name in rng.sample(["DE", "FR", "XX", "YY"], 3)]),
            ("day", [str(rng.randrange(-1, files + 1)) for _ in range(3)]),
        ]
    )
    forms = ["= < > <= >= <>", "in", "not in", "between", "null", "not null"]
    if column in ("ssn", "late", "country", "info.b"):
        forms += ["like", "not like"]
    match form := rng.choice(forms):
        case "in" | "not in":
            return f"{column} {form} ({', '.join(values)})"
        case "between":
            low, high = sorted(values[:2])
            return f"{column} between {low} and {high}"
        case "null" | "not null":
            return f"{column} is {form}"
        case "like" | "not like":
            return f"{column} {form} {rng.choice([values[0][:-1] + '%', values[0][:-2] + '_', '%1%']).strip(chr(39))!r}"
        case _:
            return f"{column} {rng.choice(form.split())} {values[0]}"


@pytest.mark.parametrize(
    ("files", "predicates"),
    [
        (1, 40),
        (5, 120),
        (20, 40),
        *(pytest.param(files, 500, marks=[pytest.mark.torture, pytest.mark.timeout(4 * 3600)]) for files in COUNTS),
    ],
)
def test_sql_gives_what_duckdb_gives_and_pyarrow_and_no_pruning(tmp_path: Path, files: int, predicates: int) -> None:
    course = Course(tmp_path, files)
    folder, rng = course.folder, random.Random(17)
    table, base = bs.open_table(folder / "sealed", decryption=SPEC), duckdb.connect()
    everything, arrow = table.read(), plain_copy(folder, files)
    assert sorted(everything.column_names) == sorted(arrow.column_names)
    assert everything.sort_by("ssn").select(arrow.column_names).cast(arrow.schema) == arrow.sort_by("ssn")
    copy = f"read_parquet('{folder}/plain/**/*.parquet', hive_partitioning=true, union_by_name=true)"
    null = "nullif(country, '__HIVE_DEFAULT_PARTITION__')"
    base.execute(f"create table t as select * replace ({null} as country) from {copy}")  # noqa: S608
    asked = 0
    for number in range(predicates):
        text = sql(rng, files=files)
        if files > COUNTS[1] and number % 5:
            # Every fifth condition is asked of all files; the others of some that lie together, for time's sake.
            first = rng.randrange(files)
            text = f"{text} and day between {first} and {first + rng.randrange(60)}"
        if "late" in text and "late" not in everything.column_names:
            continue
        asked += 1
        if asked <= course.done:
            continue
        condition = parse_where(text, table.leaves)
        found = sorted(table.read(["ssn"], condition, threads=1 + (number % 10 == 0))["ssn"].to_pylist())
        unpruned = everything.take(pa.array(Predicate(condition, table.leaves).hits(everything)))
        assert found == sorted(unpruned["ssn"].to_pylist()), text
        assert found == sorted(arrow.filter(arrows(condition))["ssn"].to_pylist()), text
        wanted = base.execute(f"select ssn from t where {text} order by ssn").fetchall()  # noqa: S608
        assert found == [ssn for (ssn,) in wanted], text
        course.held(0 < len(found) < everything.num_rows)
    assert course.done == asked
    assert course.matched > predicates // 4


def expression(rng: random.Random, depth: int = 2) -> pc.Expression:
    if depth and rng.random() < 0.6:
        one, other = expression(rng, depth - 1), expression(rng, depth - 1)
        return rng.choice([one & other, one | other, ~one])
    column, values = rng.choice(
        [
            ("id", [rng.randrange(-3, 210) for _ in range(3)]),
            ("ssn", [f"{rng.randrange(0, 210):06d}" for _ in range(3)]),
            ("score", [rng.randrange(0, 210) / 10 for _ in range(3)]),
            ("late", [f"l{rng.randrange(0, 9)}" for _ in range(3)]),
            (("info", "a"), [rng.randrange(-1, 52) for _ in range(3)]),
            ("country", rng.sample(["DE", "FR", "XX", "YY"], 3)),
            ("day", [rng.randrange(-1, 6) for _ in range(3)]),
        ]
    )
    field, value = pc.field(*column) if isinstance(column, tuple) else pc.field(column), values[0]
    return rng.choice(
        [field == value, field != value, field < value, field >= value, field.isin(values), field.is_null(),
         field.is_valid(), value < field]
    )  # fmt: skip


def test_expressions_give_what_pyarrow_gives(folder: Path) -> None:
    rng = random.Random(18)
    table = bs.open_table(folder / "sealed", decryption=SPEC)
    everything = table.read()
    for _ in range(100):
        filters = expression(rng)
        found = sorted(table.read(["ssn"], filters)["ssn"].to_pylist())
        assert found == sorted(everything.filter(filters)["ssn"].to_pylist()), filters


def equal(column: str, *values: Any) -> Compare:
    return Compare(column, "in", Values(values))


@pytest.mark.parametrize(
    ("condition", "files", "decoded"),
    [
        (equal("ssn", "000055"), 5, 1),
        (Not(Not(equal("ssn", "000055"))), 5, 1),
        (AllOf((equal("ssn", "000055", "000095"), equal("country", "DE"))), 2, 1),
        # The file of 2 lacks nothing, those of 0 and 1 lack `late`, which is null there and so keeps no row.
        (AllOf((equal("ssn", "000005", "000095"), Not(equal("late", "none")))), 5, 1),
        (AnyOf((equal("ssn", "000055"), equal("late", "l1x"))), 5, 1 + 12),
        (equal("id", 56), 5, 1),
        # A narrower float would round what is asked for: its files are read, and asked in the table's type.
        (AllOf((equal("ssn", "000055"), equal("score", 5.5))), 5, 1),
        ((pc.field("ssn") == "000055") & pc.field("ssn").is_valid(), 5, 1),
    ],
)
def test_filters_and_statistics_rule_row_groups_out(folder: Path, condition: Any, files: int, decoded: int) -> None:
    table = bs.open_table(folder / "sealed", decryption=SPEC)
    table.read(["ssn"], condition)
    assert (table.stats.row_groups, table.stats.decoded) == (files * 4, decoded)
    assert table.stats.pruned_by_filter + table.stats.pruned_by_statistics or files == 0


def test_filters_are_opened_for_a_condition(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    ask = Walk.filter

    def counting(self: Walk, chunk: Any, *rest: Any) -> Any:
        opened.append(chunk.leaf.name)
        return ask(self, chunk, *rest)

    monkeypatch.setattr(Walk, "filter", counting)
    table = bs.open_table(folder / "sealed", decryption=SPEC)
    # Between least and greatest, so that only filters can tell.
    assert table.read(["ssn"], equal("ssn", "000055x")).num_rows == 0
    assert opened == ["ssn"]
    assert table.stats.decoded == 0
    opened.clear()
    assert table.read(["ssn"], AllOf((equal("ssn", "000055x"), equal("country", "DE")))).num_rows == 0
    assert opened == []


def test_no_narrower_type_decides_for_the_tables(folder: Path) -> None:
    """A float32 that is next to 4.1 is not 4.1 in a table of doubles."""
    table = bs.open_table(folder / "sealed", decryption=SPEC)
    assert table.schema.field("score").type == pa.float64()
    assert table.read(["ssn"], equal("score", 4.1)).num_rows == 0
    assert table.read(["ssn"], AllOf((Not(equal("score", 4.1)), equal("ssn", "000041")))).num_rows == 1


def test_lists_of_tuples_mean_what_the_tables_type_makes_of_a_value(folder: Path) -> None:
    """One rule for all forms: rows of a narrower file are not compared with a value that was rounded for them."""
    everything = bs.open_table(folder / "sealed", decryption=SPEC).read()
    said = {"==": operator.eq, "<": operator.lt, ">=": operator.ge, "!=": operator.ne, "<=": operator.le}
    for op, value in (("==", 4.1), ("<", 4.1), (">=", 4.1), ("in", [4.1, 4.5]), ("!=", 4.5), ("<=", 14.3)):
        wanted = everything["ssn"].to_pylist()
        keep = partial(operator.contains, value) if op == "in" else lambda x, op=op, value=value: said[op](x, value)
        wanted = [ssn for ssn, x in zip(wanted, everything["score"].to_pylist(), strict=True) if keep(x)]
        for opened in (True, False):  # with the schema at hand, and without
            table = bs.open_table(folder / "sealed", decryption=SPEC)
            assert not opened or table.schema
            assert table.read(["ssn"], [("score", op, value)])["ssn"].to_pylist() == wanted, (op, value)
            assert table.scan(["ssn"], [("score", op, value)]).read_all()["ssn"].to_pylist() == wanted
    # What differs in width alone needs no second pass, and goes on being pruned in each file.
    table = bs.open_table(folder / "sealed", decryption=SPEC)
    table.read(["ssn"], [("id", "==", 56)])
    assert "schema" not in vars(table)
    assert table.stats.decoded == 1


def test_what_is_wrong_is_refused_whatever_files_there_are(folder: Path) -> None:
    table = bs.open_table(folder / "sealed", decryption=SPEC)
    for wrong in (equal("sn", "x"), equal("day", "x"), AllOf((equal("country", "YY"), equal("id", "x"))), AllOf(())):
        with pytest.raises(bs.UsageError):
            table.read(["ssn"], wrong)


@pytest.mark.parametrize(
    ("filters", "files", "decoded"),
    [
        ((pc.field("country") == "DE") & (pc.field("ssn") == "000095"), 2, 1),
        ((pc.field("day") == 2) & (pc.field("ssn") == "000095"), 1, 1),
        ((pc.field("country") == "YY") & (pc.field("ssn") == "000095"), 0, 0),
        ((pc.field("ssn") == "000095") & (pc.field("late") != "x"), 5, 1),
        ((pc.field("late") == "l4") & (pc.field("ssn") < "000100"), 5, 2),
        ((pc.field("country") == "FR") | (pc.field("ssn") == "000095"), 5, 1 + 4),
        (pc.field("late").is_valid() & pc.field("day").isin([1, 2]) & (pc.field("id") == 95), 2, 1),
    ],
)
def test_expressions_over_folders_and_late_columns_prune(folder: Path, filters: Any, files: int, decoded: int) -> None:
    table = bs.open_table(folder / "sealed", decryption=SPEC)
    found = table.read(["ssn"], filters)
    assert found["ssn"].to_pylist() == table.read().filter(filters)["ssn"].to_pylist()
    table.read(["ssn"], filters)
    assert (table.stats.row_groups, table.stats.decoded) == (files * 4, decoded)
