"""A stream gives row groups out in pieces: the same rows as whole ones, and errors of ours."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import bloomseal as bs
from bloomseal.format import decode
from bloomseal.table import scan, sealed
from bloomseal.table.query.query import Fragment
from support.forks import holds_in_a_child

KEYS: dict[str, Any] = {"footer_key": b"f" * 16, "column_keys": {"id": b"c" * 16}}
SPEC = bs.DecryptionSpec(bs.ExplicitKeys(**KEYS), partition_by=["part"])
ROWS = 100


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven rows at a time, two pieces or so ahead."""
    monkeypatch.setattr(decode, "_PIECE_ROWS", (7, 7))
    monkeypatch.setattr(sealed, "STREAMED", 1000)
    monkeypatch.setattr(scan, "STREAMED", 1000)
    monkeypatch.setattr(scan, "_WORTH_RELEASING", 1)


def rows(first: int) -> pa.Table:
    ids = range(first, first + ROWS)
    return pa.table(
        {
            "id": pa.array([None if i % 9 == 0 else i for i in ids], pa.int32() if first else pa.int64()),
            "kind": pa.array([f"k{i % 5}" for i in ids]).dictionary_encode(),
            "list": pa.array([None if i % 7 == 0 else list(range(i % 4)) for i in ids], pa.list_(pa.int64())),
            "deep": pa.array([{"a": i, "b": [str(i)] * (i % 3)} for i in ids]),
            "at": pa.array([dt.datetime(2024, 1, 1) + dt.timedelta(hours=i) for i in ids], pa.timestamp("ns")),
        }
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, first in enumerate((0, ROWS, 2 * ROWS)):
        path = tmp_path / f"part={number}" / "a.parquet"
        path.parent.mkdir()
        bs.write_table(
            rows(first), path, encryption=bs.EncryptionSpec(**KEYS), row_group_size=40,
            use_deprecated_int96_timestamps=True, data_page_size=64,
        )  # fmt: skip
    return tmp_path


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("columns", [None, ["kind", "id"], ["deep.b", "part"], ["at"], ["part"]])
@pytest.mark.parametrize("filters", [None, [("id", ">", 150)], pc.field("id") + 1 > 150, pc.field("part") == 1])
def test_pieces_are_the_rows(folder: Path, threads: int, columns: list[str] | None, filters: Any) -> None:
    table = bs.open_table(folder, decryption=SPEC)
    whole = table.read(columns, filters)
    assert table.stats.rows == whole.num_rows
    told: list[tuple[float, int]] = []
    reader = table.scan(columns, filters, threads=threads, progress=lambda done, total: told.append((done, total)))
    found = reader.read_all()
    assert found.schema.equals(whole.schema, check_metadata=True)
    assert found.to_pylist() == whole.to_pylist()
    assert table.stats.rows == whole.num_rows
    assert told == sorted(told)
    assert {total for _, total in told} == {len(table) if not isinstance(filters, pc.Expression) else told[0][1]}


def test_all_rows_come_in_pieces(folder: Path) -> None:
    table = bs.open_table(folder, decryption=SPEC)
    assert max(batch.num_rows for batch in table.scan()) == 7
    # A condition that only the table's schema can decide is asked of each piece.
    found = table.scan(["id"], pc.field("id") + 1 > ROWS)
    assert 0 < max(batch.num_rows for batch in found) <= 7


def test_rows_are_counted_after_the_tables_own_test(tmp_path: Path) -> None:
    """A value that a file's narrower type would round is asked in the table's schema."""
    for number, kind in enumerate((pa.float32(), pa.float64())):
        bs.write_table(pa.table({"x": pa.array([4.1, 5.5, 4.1], kind)}), tmp_path / f"{number}.parquet")
    table = bs.open_table(tmp_path)
    for filters in (pc.field("x") == 4.1, [("x", "==", 4.1)]):
        assert table.read(["x"], filters).num_rows == 2
        assert table.stats.rows == 2
        assert table.scan(["x"], filters).read_all().num_rows == 2
        assert table.stats.rows == 2


def test_a_piece_that_can_not_be_decoded_is_an_error_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed, "STREAMED", 1)
    path = tmp_path / "a.parquet"
    texts = pa.table({"x": [f"text {i}" for i in range(ROWS)]})
    pq.write_table(texts, path, data_page_size=64, use_dictionary=False, write_statistics=False, write_batch_size=8)
    data = bytearray(path.read_bytes())
    last = data.rindex(b"text 99")
    data[last - 8 : last + 4] = b"\xff" * 12
    path.write_bytes(data)
    reader = bs.open_table(path).scan()
    assert reader.read_next_batch()["x"][0].as_py() == "text 0"
    with pytest.raises(bs.FormatError, match="refused the pages"):
        reader.read_all()


def test_threads_are_at_least_one(folder: Path) -> None:
    table = bs.open_table(folder, decryption=SPEC)
    for threads in (0, -1):
        for work in (table.read, table.scan, table.verify):
            with pytest.raises(bs.UsageError, match=f"number of threads: {threads}"):
                work(threads=threads)


def test_a_look_up_hands_over_only_row_groups_that_filters_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = bs.EncryptionSpec(footer_key=b"f" * 16, column_keys={"id": b"c" * 16})
    for number in range(3):
        ids = [f"{number}-{i}" for i in range(ROWS)]
        bs.write_table(
            pa.table({"id": ids}), tmp_path / f"{number}.parquet", encryption=spec, row_group_size=10,
            bloom_filters={"id": bs.FilterSpec(fpp=0.0001)},
        )  # fmt: skip
    begun: list[tuple[int, int]] = []

    class Noted(scan._Unit):
        def __init__(self, opener: scan.FileOpener, fragment: Fragment, groups: list[int], schema: pa.Schema) -> None:
            begun.extend((fragment.number, group) for group in groups)
            super().__init__(opener, fragment, groups, schema)

    monkeypatch.setattr(scan, "_Unit", Noted)
    table = bs.open_table(tmp_path, decryption=SPEC)
    wanted = [("id", "in", ["1-15", "1-99", "nobody"])]
    assert table.scan(where=wanted).read_all().column("id").to_pylist() == ["1-15", "1-99"]
    assert begun == [(1, 1), (1, 9)]
    streamed = table.stats
    table.read(where=wanted)
    assert streamed == table.stats
    assert (streamed.decoded, streamed.pruned_by_filter + streamed.pruned_by_statistics) == (2, 28)


def test_a_stream_of_the_parent_is_refused_in_a_forked_child(folder: Path) -> None:
    """Its threads are the parent's: the child would wait for them for ever."""
    stream = bs.open_table(folder, decryption=SPEC).scan(["id"], threads=2)
    first = stream.read_next_batch().num_rows

    def refused() -> bool:
        with pytest.raises(Exception, match="scan in each process"):  # Arrow's own, around ours
            stream.read_all()
        return True

    assert holds_in_a_child(refused)
    assert first + stream.read_all().num_rows == 3 * ROWS
