"""Thousands of values in one predicate, over many files: the same rows as a set look-up finds, and what survives of
them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bloomseal as bs

ROWS = 4_000
COLUMNS: dict[str, Any] = {
    "text": [f"customer-{i:07}" for i in range(ROWS)],
    "number": list(range(-ROWS // 2, ROWS // 2)),
    "score": [float("nan") if i % 37 == 0 else -0.0 if i % 41 == 0 else i / 3 for i in range(ROWS)],
    "day": [None if i % 5 == 0 else dt.date(2000, 1, 1) + dt.timedelta(i) for i in range(ROWS)],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many")
    rows = pa.table(COLUMNS)
    for number in range(4):
        part = rows.slice(number * 1000, 1000)
        filters = {name: bs.FilterSpec(fpp=0.001) for name in COLUMNS}
        bs.write_table(part, folder / f"{number}.parquet", bloom_filters=filters, row_group_size=100)
    return folder


@pytest.mark.parametrize("column", list(COLUMNS))
@pytest.mark.parametrize("op", ["in", "not in"])
def test_the_rows_are_those_of_a_set(folder: Path, column: str, op: str) -> None:
    values = COLUMNS[column]
    asked = [value for value in values[:2500:7] if value is not None] + values[3990:] * 2
    asked = [value for value in asked if value is not None]
    if op == "in":
        asked.append(None)
    plain = {value for value in asked if value is not None and value == value}
    found = bs.read_table(folder, columns=["number"], where=[(column, op, asked)])["number"].to_pylist()
    wanted = [
        number
        for number, value in zip(COLUMNS["number"], values, strict=True)
        if value is not None and (value in plain) is (op == "in")
    ]
    assert found == wanted
    assert len(asked) > 16


@pytest.mark.parametrize("column", ["text", "number", "day"])
def test_survivors_leave_out_what_bounds_and_filters_rule_out(folder: Path, column: str) -> None:
    asked = [value for value in COLUMNS[column][150:190] if value is not None]
    with bs.open_file(folder / "0.parquet") as file:
        left = file.survivors(column, file.key_set(column, asked))
        assert left.row_groups == (1,)
        assert (len(left.excluded), left.by_statistics, left.by_filter, left.without_filter) == (9, 9, 0, 0)
        strangers = file.key_set(column, pa.array(COLUMNS[column][1000:]))
        assert file.survivors(column, strangers).row_groups == ()
        assert file.survivors(column, file.key_set(column, [])).by_statistics == 10


def test_survivors_agree_with_the_answers_to_each_value(folder: Path) -> None:
    rng = np.random.default_rng(5)
    with bs.open_file(folder / "2.parquet") as file:
        for _ in range(30):
            asked = rng.choice(ROWS * 50, size=50)
            texts = [f"customer-{i:07}" for i in asked]
            some = file.maybe_present("text", texts).any(axis=1)
            assert set(file.survivors("text", file.key_set("text", texts)).row_groups) <= set(np.flatnonzero(some))
            held = {int(i - 2000) // 100 for i in asked if 2000 <= i < 3000}
            assert held <= set(file.survivors("text", file.key_set("text", texts)).row_groups)
        assert file.survivors("score", file.key_set("score", [float("nan")])).without_filter == 10
        with pytest.raises(bs.UsageError):
            file.key_set("number", ["x"])


class Labelled:
    """As a pandas Series: it is gone through in order, but ``[]`` takes labels."""

    def __init__(self, values: list[Any], labels: list[int]) -> None:
        self._values, self._labels = values, labels

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, label: int) -> Any:
        return self._values[self._labels.index(label)]


@pytest.mark.parametrize("make", [lambda keys: Labelled(keys, [2, 0, 1]), iter, dict.fromkeys])
@pytest.mark.parametrize(
    ("column", "keys"), [("number", [-1050, -1950, -1450]), ("text", [f"customer-{i:07}" for i in (950, 50, 550)])]
)
def test_keys_come_in_anything_that_can_be_gone_through(folder: Path, column: str, keys: list[Any], make: Any) -> None:
    with bs.open_file(folder / "0.parquet") as file:
        assert file.survivors(column, file.key_set(column, make(keys))).row_groups == (0, 5, 9)
