"""Threads on many files: the same answers however many there are, and one alone where work takes no time."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.core.errors import FormatError, UsageError
from bloomseal.table.query import workers
from bloomseal.table.query.workers import side_by_side

KEYS: dict[str, Any] = {"footer_key": b"f" * 16, "column_keys": {"a": b"a" * 16}}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> bs.SealedTable:
    folder = tmp_path_factory.mktemp("t")
    for number in range(24):
        rows = np.arange(number * 100, number * 100 + 100)
        data = pa.table({"a": rows, "b": [f"{row % 7}" for row in rows]})
        spec = bs.EncryptionSpec(**KEYS)
        bs.write_table(data, folder / f"{number:02}.parquet", encryption=spec, bloom_filters=["a"], row_group_size=50)
    return bs.open_table(folder, decryption=bs.DecryptionSpec(bs.ExplicitKeys(**KEYS)))


@pytest.mark.parametrize("threads", [1, 2, 7, None])
@pytest.mark.parametrize(
    ("filters", "rows"),
    [
        (None, 2400),
        ([("a", "==", 1234)], 1),
        ([("a", "in", list(range(0, 2400, 10)))], 240),
        ([("a", "in", np.arange(-5000, 3000, 3))], 800),
        ([("b", "==", "3")], 343),
        ([("a", "==", -1)], 0),
    ],
)
def test_threads_change_no_answer(table: bs.SealedTable, threads: int | None, filters: Any, rows: int) -> None:
    found = table.read(where=filters, threads=threads)
    assert found.num_rows == rows
    assert found.equals(table.read(where=filters, threads=1))
    assert found["a"].to_pylist() == sorted(found["a"].to_pylist())


def test_many_values_are_asked_by_several_threads(table: bs.SealedTable) -> None:
    maybe = table.maybe_present("a", np.arange(-20_000, 20_000))
    assert maybe.shape == (24, 40_000)
    assert maybe[:, 20_000:22_400].any(axis=0).all()
    assert not maybe.any(axis=0).all()


def test_work_that_takes_long_is_done_by_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_SHORT", 0)
    together = threading.Barrier(4, timeout=30)

    def work(item: int) -> int:
        if item > 1:
            together.wait()
        return item * 2

    assert side_by_side(work, range(42), 4) == [item * 2 for item in range(42)]


def test_work_that_takes_no_time_is_done_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_SHORT", 60)
    threads = set()

    def work(item: int) -> int:
        threads.add(threading.get_ident())
        return item

    assert side_by_side(work, range(40), 4) == [*range(40)]
    assert threads == {threading.get_ident()}


def test_the_first_error_in_order_is_raised(table: bs.SealedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    def work(item: int) -> int:
        if item % 3 == 2:
            raise FormatError(f"no {item}")
        return item

    for short in (0, 60):
        monkeypatch.setattr(workers, "_SHORT", short)
        with pytest.raises(FormatError, match="no 2"):
            side_by_side(work, range(40), 4)
    with pytest.raises(UsageError, match="number of threads: 0"):
        table.read(threads=0)


def test_a_broken_file_is_named_whatever_the_threads(tmp_path: Path) -> None:
    for number in range(5):
        bs.write_table(pa.table({"a": [number]}), tmp_path / f"{number}.parquet")
    whole = (tmp_path / "3.parquet").read_bytes()
    (tmp_path / "3.parquet").write_bytes(whole[:-9] + b"\xff" + whole[-8:])
    for threads in (1, 2, 5):
        with pytest.raises(bs.BloomsealError) as caught:
            bs.open_table(tmp_path).read(where=[("a", "==", 4)], threads=threads)
        assert caught.value.file == str(tmp_path / "3.parquet")
