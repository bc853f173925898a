"""Plaintext files of any writer, read by us and by pyarrow: rows, conditions and filters have to agree, before `seal`
and after.

By hand: ``python -m tests.read.differential 200 FILE…`` asks each file 200 conditions.
"""

from __future__ import annotations

import functools
import operator
import random
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import bloomseal as bs

__all__ = ["compare"]

_SPEC: Final = bs.EncryptionSpec(footer_key=b"f" * 16)
_KEYS: Final = bs.DecryptionSpec(bs.ExplicitKeys(footer_key=b"f" * 16))
_COMPARED: Final = {
    "==": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}


def compare(path: Path, conditions: int, rng: random.Random) -> int:
    """Hold a file, and what `seal` makes of it, against what pyarrow reads.

    Returns:
        How many answers agreed.

    Raises:
        AssertionError: they did not; it says of which condition.
    """
    rows = _plain(pq.read_table(path))
    columns = [field.name for field in rows.schema if _asked(field.type)]
    asked = [_condition(rows, columns, rng) for _ in range(conditions if columns else 0)]
    agreed = 0
    with tempfile.TemporaryDirectory() as folder:
        sealed = Path(folder) / "sealed.parquet"
        bs.seal_file(path, sealed, encryption=_SPEC, rebuild_filters=True)
        for place, keys in ((path, None), (sealed, _KEYS)):
            with bs.open_file(place, decryption=keys) as file:
                _same(_plain(file.read()), rows.select(file.read().column_names), f"{path}: all rows")
                for tuples, expression in asked:
                    expected = rows.filter(expression).select(columns)
                    for filters in (tuples, expression):
                        if filters is not None and not (filters is expression and _dictionaries(path)):
                            _same(_plain(file.read(columns, filters)), expected, f"{path}: {tuples} {expression}")
                            agreed += 1
                for name in columns:
                    there = rows.column(name).drop_null().unique()
                    found = file.maybe_present(name, there.slice(0, 1_000))
                    assert not len(found) or found.any(axis=0).all(), f"{path}: {name} has values that are told absent"
                    agreed += len(there)
    return agreed


def _same(found: pa.Table, expected: pa.Table, what: str) -> None:
    # As text: NaN is no equal of itself.
    assert str(found.to_pydict()) == str(expected.to_pydict()), what


def _plain(table: pa.Table) -> pa.Table:
    """Without dictionaries."""
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(place, field.name, table.column(place).cast(field.type.value_type))
    return table


def _dictionaries(path: Path) -> bool:
    return any(pa.types.is_dictionary(kind) for kind in pq.read_schema(path).types)


def _asked(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        (types.is_primitive(kind) and not types.is_boolean(kind) and not types.is_float16(kind) and not types.is_duration(kind))
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_decimal128(kind)
    )  # fmt: skip


def _condition(rows: pa.Table, columns: list[str], rng: random.Random) -> tuple[list[Any] | None, pc.Expression]:
    parts = [_comparison(rows, rng.choice(columns), rng) for _ in range(rng.choice([1, 1, 2, 3]))]
    tuples: list[Any] | None = None if any(one is None for one, _ in parts) else [one for one, _ in parts]
    whole = parts[0][1]
    if rng.random() < 0.5:
        for _, expression in parts[1:]:
            whole = whole & expression
    else:
        tuples = None if tuples is None else [[one] for one in tuples]
        for _, expression in parts[1:]:
            whole = whole | expression
    return tuples, whole


def _comparison(rows: pa.Table, name: str, rng: random.Random) -> tuple[Any, pc.Expression]:
    column, there = pc.field(name), rows.column(name).drop_null()
    there = there.filter(pc.invert(pc.is_nan(there))) if pa.types.is_floating(there.type) else there
    if not len(there) or rng.random() < 0.15:
        return None, column.is_null() if rng.random() < 0.5 else column.is_valid()
    op = rng.choice([*_COMPARED, "in"])
    if op == "in":
        values = there.take(pa.array(rng.choices(range(len(there)), k=rng.choice([1, 3, 40]))))
        if pa.types.is_floating(values.type):  # is_in compares bits, and tuples take both zeros for one
            return (name, "in", values), functools.reduce(operator.or_, [column == pc.scalar(one) for one in values])
        return (name, "in", values), column.isin(values.combine_chunks())
    value = there[rng.randrange(len(there))]
    return (name, op, value), pc.Expression._call(_COMPARED[op], [column, pc.scalar(value)])


def main() -> None:
    """Compare files by hand."""
    conditions, *paths = sys.argv[1:]
    total, failed = 0, 0
    for path in map(Path, paths):
        try:
            total += compare(path, int(conditions), random.Random(path.name))
        except AssertionError as error:
            failed += 1
            print("DIFFERS", str(error)[:300])
        except (bs.BloomsealError, pa.ArrowException, OSError) as error:
            print("refused", path, type(error).__name__, str(error)[:200])
    print(f"{len(paths)} files, {total} answers agree, {failed} files differ")


if __name__ == "__main__":
    main()
