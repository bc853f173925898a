"""Files that three writers make at random, with and without indexes, read by us and by pyarrow.

    python tests/orc/differential.py 500 --seed 1

makes 500 files by each writer at hand: the C++ writer in pyarrow, the Java library that PySpark ships, and pyorc (the
C++ writer with more of its settings), where it is installed.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc

import bloomseal as bs
from orc.generated import columns
from support.orc_java import java_orc_write

__all__ = ["WRITERS", "compare"]

_SCHEMA = (
    "struct<b:tinyint,h:smallint,i:int,l:bigint,f:float,d:double,flag:boolean,c:char(5),v:varchar(9),p:decimal(20,3),"
    "q:decimal(9,0),n:date,t:string,w:timestamp,s:struct<x:int,y:string>,e:array<bigint>,m:map<string,int>>"
)


def by_cpp(path: Path, chance: random.Random) -> None:
    """All settings of pyarrow's writer; it always makes indexes."""
    table = columns(chance.choice([1, 7, 300, 1_500]), seed=chance.randrange(1 << 30))
    filters = [one for one in range(1, 20) if chance.random() < 0.5]
    pyarrow.orc.write_table(
        table,
        path,
        file_version=chance.choice(["0.11", "0.12"]),
        batch_size=chance.choice([1, 64, 1_024]),
        stripe_size=chance.choice([1_000, 40_000, 1 << 26]),
        compression=chance.choice(["uncompressed", "zlib", "snappy", "lz4", "zstd"]),
        row_index_stride=chance.choice([1, 100, 10_000]),
        dictionary_key_size_threshold=chance.choice([0.0, 0.5, 1.0]),
        bloom_filter_columns=filters,
        bloom_filter_fpp=chance.choice([0.5, 0.05, 1e-6]),
    )


def _row(chance: random.Random, number: int, lacking: float) -> list[Any]:
    def some(value: Any) -> Any:
        return None if chance.random() < lacking else value

    text = f"{chance.choice(['', 'a', 'é'])}{number % chance.choice([3, 50, 1_000])}"
    floats = [0.0, -0.0, chance.uniform(-9, 9), 0.1]
    return [
        some(chance.randint(-128, 127)),
        some(chance.randint(-(2**15), 2**15 - 1)),
        some(chance.choice([number, chance.randint(-(2**31), 2**31 - 1)])),
        some(chance.choice([number, chance.randint(-(2**63), 2**63 - 1)])),
        some(chance.choice(floats)),
        some(chance.choice(floats)),
        some(chance.random() < 0.5),
        some(text[:5]),
        some(text[:9]),
        some(f"{chance.randint(-(10**6), 10**6)}.{chance.choice(['5', '25', '0'])}"),
        some(str(chance.randint(-999, 999) * 1_000)),
        some(chance.randint(-30_000, 30_000)),
        some(text),
        some(chance.randint(-2_000_000_000_000, 3_000_000_000_000)),
        some([some(number), some(text)]),
        some([some(number + place) for place in range(chance.randint(0, 3))]),
        some([[f"k{place}", some(number)] for place in range(chance.randint(0, 3))]),
    ]


def by_java(path: Path, chance: random.Random) -> None:
    """With a stride of 0 it makes no index, and its stripe statistics count nothing."""
    count, lacking = chance.choice([1, 7, 300, 1_500]), chance.choice([0.0, 0.1, 0.9, 1.0])
    names = ["b", "h", "i", "l", "f", "d", "flag", "c", "v", "p", "q", "n", "t", "w", "s.x", "s.y", "e._elem"]
    java_orc_write(
        path,
        _SCHEMA,
        [_row(chance, number, lacking) for number in range(count)],
        filters=",".join(name for name in names if chance.random() < 0.5),
        compression=chance.choice(["NONE", "ZLIB", "SNAPPY", "LZ4", "ZSTD"]),
        stride=chance.choice([0, 0, 1_000, 1_000, 10_000]),
        stripe_rows=chance.choice([100, 1_000, 10_000_000]),
        fpp=chance.choice([0.5, 0.05, 1e-6]),
    )


def by_pyorc(path: Path, chance: random.Random) -> None:
    """The C++ writer, without an index, too."""
    import datetime as dt
    import decimal

    import pyorc

    kinds = [one for one in pyorc.CompressionKind if one.name in ("NONE", "ZLIB", "SNAPPY", "LZ4", "ZSTD")]
    lacking = chance.choice([0.0, 0.1, 0.9, 1.0])
    with path.open("wb") as sink:
        writer = pyorc.Writer(
            sink,
            _SCHEMA,
            batch_size=chance.choice([1, 64, 1_024]),
            stripe_size=chance.choice([1_000, 40_000, 1 << 26]),
            row_index_stride=chance.choice([0, 0, 100, 10_000]),
            compression=chance.choice(kinds),
            bloom_filter_columns=[one for one in range(1, 22) if chance.random() < 0.5],
            bloom_filter_fpp=chance.choice([0.5, 0.05, 1e-6]),
            dict_key_size_threshold=chance.choice([0.0, 0.5, 1.0]),
        )
        for number in range(chance.choice([1, 7, 300, 1_500])):
            row = _row(chance, number, lacking)
            for place, made in (
                (9, decimal.Decimal),
                (10, decimal.Decimal),
                (11, lambda days: dt.date(1970, 1, 1) + dt.timedelta(days)),
                (13, lambda millis: dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=millis)),
                (14, tuple),
                (16, dict),
            ):
                row[place] = None if row[place] is None else made(row[place])
            writer.write(tuple(row))
        writer.close()


WRITERS: dict[str, Callable[[Path, random.Random], None]] = {"C++": by_cpp, "Java": by_java, "pyorc": by_pyorc}


def compare(path: Path, chance: random.Random) -> Counter[str]:
    """Hold our answers about a file against pyarrow's rows; how many of which kind there were.

    Raises:
        AssertionError: one is wrong.
    """
    told: Counter[str] = Counter(files=1)
    theirs = pyarrow.orc.read_table(path)
    assert repr(bs.read_table(path).to_pydict()) == repr(theirs.to_pydict()), path
    assert bs.verify(path).ok
    told["rows"] += theirs.num_rows
    with bs.open_file(path) as file:
        told["without index"] += not file.tail.row_index_stride
        for name, array in _leaves(theirs):
            values = array.drop_null().unique().to_pylist()
            asked = chance.sample(values, min(len(values), 40))
            if asked:
                maybe = file.maybe_present(name, asked)
                missing = [one for one, found in zip(asked, maybe.any(axis=0), strict=True) if not found]
                assert not missing, (path, name, missing)
                told["values asked"] += len(asked)
    for name in theirs.column_names:
        own = theirs[name]
        if pa.types.is_nested(own.type):
            continue
        _conditions(path, name, own, chance, told)
    return told


def _conditions(path: Path, name: str, own: pa.ChunkedArray, chance: random.Random, told: Counter[str]) -> None:
    values = own.drop_null().unique().to_pylist()
    field = pc.field(name)
    asked: list[tuple[pc.Expression, pa.ChunkedArray]] = [(field.is_null(), pc.is_null(own))]
    for value in chance.sample(values, min(len(values), 2)):
        scalar = pa.scalar(value, own.type)
        asked.append((field == scalar, pc.equal(own, scalar)))
        if not pa.types.is_boolean(own.type) and not pa.types.is_binary(own.type):
            asked.append((field > scalar, pc.greater(own, scalar)))
            asked.append((field <= scalar, pc.less_equal(own, scalar)))
    for condition, hits in asked:
        found = bs.read_table(path, columns=[name], where=condition).num_rows
        assert found == pc.sum(pc.cast(hits, pa.int64())).as_py() or (found == 0 and not pc.any(hits).as_py()), (
            path,
            name,
            str(condition),
        )
        told["conditions"] += 1


def _leaves(table: pa.Table) -> list[tuple[str, pa.ChunkedArray]]:
    """Columns, and what is inside of them, by the names that ORC gives them."""
    found = []
    for name in table.column_names:
        column = table[name].combine_chunks()
        kind = column.type
        if pa.types.is_struct(kind):
            parts = [(f"{name}.{one.name}", pc.struct_field(column, [at])) for at, one in enumerate(kind)]
        elif pa.types.is_map(kind):
            parts = [(f"{name}._key", column.keys), (f"{name}._value", column.items)]
        elif pa.types.is_list(kind):
            parts = [(f"{name}._elem", column.flatten())]
        else:
            parts = [(name, column)]
        found += [(one, pa.chunked_array(values) if isinstance(values, list) else values) for one, values in parts]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", type=int, help="by each writer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--writers", nargs="*", default=[*WRITERS], choices=[*WRITERS])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in given.writers:
            told: Counter[str] = Counter()
            for number in range(given.files):
                chance = random.Random(f"{given.seed} {name} {number}")
                path = Path(folder) / "a.orc"
                WRITERS[name](path, chance)
                try:
                    told += compare(path, chance)
                except Exception:
                    print(f"{name}, file {number} of seed {given.seed}", file=sys.stderr)
                    path.rename(Path(tempfile.gettempdir()) / f"differs-{name}-{given.seed}-{number}.orc")
                    raise
            print(name, dict(told))


if __name__ == "__main__":
    main()
