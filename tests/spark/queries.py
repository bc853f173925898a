"""Tables with a column of every type, and predicates over them, generated from a seed."""

from __future__ import annotations

import datetime
import decimal
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = """
    id bigint, flag boolean, tiny tinyint, small smallint, num int, big bigint, single float, real double,
    d9 decimal(9,2), d18 decimal(18,4), d38 decimal(38,10), word string, code string, bytes binary, day date,
    moment timestamp, local timestamp_ntz, list array<int>, pairs map<string,int>, place struct<zip:int,town:string>
"""
TOWNS = ["Zürich", "Aarau", "Bern", "", "a'b", "Bern "]
DAY = datetime.date(1984, 3, 7)
MOMENT = datetime.datetime(1984, 3, 7, 12, 30, 15, 123456)


@dataclass(frozen=True)
class Query:
    """A predicate in SQL, and the columns that it names.

    Attributes:
        zeros: it compares a float with zero, which Spark's own reader answers wrongly where there is a filter.
    """

    sql: str
    columns: frozenset[str]
    zeros: bool = False


def rows(count: int, seed: int) -> Iterator[tuple[Any, ...]]:
    """Rows of `SCHEMA`: a tenth of all values null, few enough distinct ones that predicates hit, ranges that wander
    with the id, so that statistics prune too.
    """
    draw = random.Random(seed)
    special = [0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1.5, -2.25]

    def null(value: Any) -> Any:
        return None if draw.random() < 0.1 else value

    def number(bits: int) -> int:
        return draw.choice([0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), draw.randrange(-99, 99)])

    for i in range(count):
        town, base = draw.choice(TOWNS), i // 100
        yield (
            i,
            null(draw.random() < 0.5),
            null(number(8)),
            null(number(16)),
            null(base * 10 + draw.randrange(20)),
            null(number(64)),
            null(draw.choice([*special, float(draw.randrange(50))])),
            null(draw.choice([*special, float(draw.randrange(50))])),
            null(decimal.Decimal(draw.randrange(-500, 500)) / 100),
            null(decimal.Decimal(draw.randrange(-50000, 50000)) / 10000),
            null(decimal.Decimal(draw.randrange(-50, 50)) * decimal.Decimal("12345678901234567.0000000001")),
            null(f"word-{draw.randrange(3 * count)}"),
            null(town),
            null(bytes([draw.randrange(4)] * draw.randrange(4))),
            null(DAY + datetime.timedelta(days=base + draw.randrange(3))),
            null(MOMENT + datetime.timedelta(hours=base * 12 + draw.randrange(48))),
            null(MOMENT - datetime.timedelta(hours=base * 12 + draw.randrange(48))),
            null([null(draw.randrange(9)) for _ in range(draw.randrange(3))]),
            null({key: null(draw.randrange(9)) for key in "abc"[: draw.randrange(4)]}),
            null((null(8000 + draw.randrange(30)), null(town))),
        )


def table(spark: SparkSession, count: int = 1200, seed: int = 1) -> DataFrame:
    """A frame of `rows` in three partitions."""
    return spark.createDataFrame(list(rows(count, seed)), SCHEMA).repartitionByRange(3, "id").sortWithinPartitions("id")


def predicates(count: int, seed: int, *, count_rows: int = 1200) -> list[Query]:
    """Predicates: every comparison over every type, literals that are there and that are not, AND, OR and NOT
    of them.
    """
    draw = random.Random(seed)
    makers = _literals(draw, count_rows)

    def leaf() -> Query:
        column = draw.choice(sorted(makers))
        literal = makers[column]
        sample = [literal() for _ in range(draw.choice([1, 2, 3, 12]))]
        kind = draw.choice(["=", "=", "=", "<=>", "in", "in null", "<", "<=", ">", ">=", "<>", "is", "not in", "like"])
        match kind:
            case "in" | "not in":
                sql = f"{column} {kind} ({', '.join(sample)})"
            case "in null":
                sql = f"{column} in ({', '.join(sample)}, NULL)"
            case "is":
                sample = []
                sql = f"{column} is {draw.choice(['', 'not '])}null"
            case "like" if column in ("word", "code", "place.town"):
                sample = []
                sql = f"{column} like '{draw.choice(['word-1', 'Be', 'Z', ''])}%'"
            case "like":
                sql = f"{column} = {sample[0]}"
            case _:
                sql = f"{column} {kind} {sample[0]}"
        zeros = column in ("single", "real") and any(
            text in ("0.0D", "-0.0D", "0", "CAST(-0.0 AS FLOAT)") for text in sample
        )
        return Query(sql, frozenset([column.split(".")[0]]), zeros)

    def tree(depth: int) -> Query:
        if depth == 0 or draw.random() < 0.4:
            return leaf()
        if draw.random() < 0.25:
            inner = tree(depth - 1)
            return Query(f"NOT ({inner.sql})", inner.columns, inner.zeros)
        left, right = tree(depth - 1), tree(depth - 1)
        sql = f"({left.sql}) {draw.choice(['AND', 'AND', 'OR'])} ({right.sql})"
        return Query(sql, left.columns | right.columns, left.zeros or right.zeros)

    return [tree(2) for _ in range(count)]


def _literals(draw: random.Random, count: int) -> dict[str, Callable[[], str]]:
    def moment(sign: int) -> str:
        return str(MOMENT + datetime.timedelta(hours=sign * draw.randrange(200)))

    def real() -> str:
        return draw.choice(
            [
                "0.0D",
                "-0.0D",
                "1.5D",
                "-2.25D",
                "CAST('NaN' AS DOUBLE)",
                "CAST('Infinity' AS DOUBLE)",
                "7",
                "1e300D",
                "0",
            ]
        )

    def whole() -> str:
        return draw.choice(
            ["0", "1", "-1", "127", "-128", "32767", "9223372036854775807L", "300", "70000", "1.5", "42"]
        )

    def town() -> str:
        return "'" + draw.choice([*TOWNS, "Basel"]).replace("'", "\\'") + "'"

    return {
        "id": lambda: str(draw.randrange(count + 100)),
        "flag": lambda: draw.choice(["true", "false"]),
        "tiny": whole,
        "small": whole,
        "num": lambda: str(draw.randrange(count // 10 + 40)),
        "big": whole,
        "single": lambda: draw.choice([real(), "CAST(1.5 AS FLOAT)", "CAST(-0.0 AS FLOAT)", "CAST(0.1 AS FLOAT)"]),
        "real": real,
        "d9": lambda: f"CAST('{draw.randrange(-500, 500) / 100}' AS DECIMAL(9,2))",
        "d18": lambda: draw.choice(
            ["1.5", "0.0001", f"CAST('{draw.randrange(-50000, 50000) / 10000}' AS DECIMAL(18,4))"]
        ),
        "d38": lambda: (
            f"CAST('{draw.randrange(-50, 50) * decimal.Decimal('12345678901234567.0000000001')}' AS DECIMAL(38,10))"
        ),
        "word": lambda: f"'word-{draw.randrange(3 * count)}'",
        "code": town,
        "bytes": lambda: draw.choice(["X''", "X'00'", "X'0101'", "X'030303'", "X'FF'"]),
        "day": lambda: f"DATE'{DAY + datetime.timedelta(days=draw.randrange(-2, 20))}'",
        "moment": lambda: f"TIMESTAMP'{moment(1)}'",
        "local": lambda: f"TIMESTAMP_NTZ'{moment(-1)}'",
        "place.zip": lambda: str(8000 + draw.randrange(35)),
        "place.town": town,
    }
