"""Files stay open between the question for their schemas and that for rows; and what may happen to them meanwhile."""

from __future__ import annotations

import gc
import os
import resource
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import bloomseal as bs
import bloomseal.polars as bp
from bloomseal.core.storage.source import Source
from bloomseal.read.parquet import ParquetFile
from bloomseal.table import scan
from bloomseal.table.query import parts, workers
from bloomseal.table.query.query import Fragment

KEYS: dict[str, Any] = {"footer_key": b"f" * 16, "column_keys": {"id": b"c" * 16}}
FILES, ROWS = 5, 100
WANTED = "3-15"
FILTERS = [("id", "==", WANTED)]


class Retriever:
    """Keys, how often they were asked for, and whether they may be had."""

    def __init__(self) -> None:
        self.asked = 0
        self.withdrawn = False

    def retrieve_key(self, _: bytes, column: str | None) -> bytes:
        self.asked += 1
        if self.withdrawn:
            raise bs.KeyAccessError("withdrawn")
        return b"c" * 16 if column == "id" else b"f" * 16


def part(number: int, name: str = "") -> pa.Table:
    return pa.table({"id": [f"{name}{number}-{i}" for i in range(ROWS)], "n": range(ROWS)})


def write(path: Path, rows: pa.Table) -> None:
    bs.write_table(
        rows, path, encryption=bs.EncryptionSpec(**KEYS), row_group_size=10,
        bloom_filters={"id": bs.FilterSpec(fpp=0.0001)},
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "t").mkdir()
    for number in range(FILES):
        write(tmp_path / "t" / f"{number}.parquet", part(number))
    return tmp_path / "t"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were opened, in turn."""
    names: list[str] = []
    before = parts.open_file

    def noted(ref: Any, **more: Any) -> ParquetFile:
        names.append(Path(ref.path).name)
        return before(ref, **more)

    monkeypatch.setattr(parts, "open_file", noted)
    return names


@pytest.fixture(autouse=True)
def all_is_closed() -> Iterator[None]:
    """Whatever ends a test, no file stays open behind it."""
    gc.collect()
    files = open_files()
    yield
    gc.collect()
    assert open_files() <= files


def open_files() -> int:
    return sum(one.fd is not None for one in gc.get_objects() if isinstance(one, Source))


def failure(run: Callable[[], object]) -> str:
    """The message alone: an error holds on to the frames that it went through, and those to files."""
    try:
        run()
    except Exception as error:
        return str(error)
    return ""


def table_of(folder: Path, keys: Any = None) -> bs.SealedTable:
    return bs.open_table(folder, decryption=bs.DecryptionSpec(keys or bs.ExplicitKeys(**KEYS), partition_by=["p"]))


def lazy_of(folder: Path, keys: Any = None) -> pl.LazyFrame:
    return bp.scan(folder, decryption=bs.DecryptionSpec(keys or bs.ExplicitKeys(**KEYS), partition_by=["p"]))


@pytest.mark.parametrize(
    "filters", [None, FILTERS, [("n", ">", 50)], [("id", "in", [f"{i % 5}-{i}" for i in range(99)])]]
)
def test_a_stream_opens_each_file_once(folder: Path, opened: list[str], filters: Any) -> None:
    table = table_of(folder)
    found = table.scan(where=filters).read_all()
    assert sorted(opened) == [f"{number}.parquet" for number in range(FILES)]
    streamed = table.stats
    assert found.to_pylist() == table.read(where=filters).to_pylist()
    assert streamed == table.stats


def test_polars_opens_each_file_once_for_the_schema_and_once_for_rows(folder: Path, opened: list[str]) -> None:
    lazy = lazy_of(folder)
    for times in (1, 2):
        assert lazy.filter(pl.col("id") == WANTED).collect()["n"].to_list() == [15]
        assert len(opened) == (1 + times) * FILES


def test_only_so_many_stay_open(folder: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "_MOST_OPEN", 2)
    assert table_of(folder).scan(["n"]).read_all().num_rows == FILES * ROWS
    assert len(opened) == FILES + FILES - 2


def test_none_stays_open_where_descriptors_are_few(folder: Path, opened: list[str]) -> None:
    """A process with so few that it could not open all files at the same time."""
    table = table_of(folder)
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert table.read().num_rows == FILES * ROWS  # what is loaded late, is loaded
    reserve = [os.open(folder, os.O_RDONLY)]
    try:
        # None is left among those that other tests hold, so that it is known how many are left.
        highest = max(int(one.name) for one in Path("/dev/fd").iterdir())
        while reserve[-1] < highest:
            reserve.append(os.dup(reserve[0]))
        resource.setrlimit(resource.RLIMIT_NOFILE, (reserve[-1] + 20, most))
        reserve += [os.dup(reserve[0]) for _ in range(10)]
        opened.clear()
        assert table.scan().read_all().num_rows == FILES * ROWS
        assert len(opened) == 2 * FILES
        lazy = lazy_of(folder)
        assert len(opened) == 3 * FILES
        assert lazy.collect().height == FILES * ROWS
        assert len(opened) == 4 * FILES
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))
        for fd in reserve:
            os.close(fd)


@pytest.mark.parametrize("through", ["scan", "polars"])
def test_an_error_leaves_no_file_open(folder: Path, through: str) -> None:
    """Though the error, and all frames that it came through, are still there."""
    (folder / "3.parquet").write_bytes(b"not a file")
    before = open_files()
    with pytest.raises(bs.FormatError) as found:
        table_of(folder).scan() if through == "scan" else lazy_of(folder)
    assert open_files() == before
    del found


@pytest.mark.parametrize("how", ["renamed", "in place", "gone"])
@pytest.mark.parametrize("number", [0, 3])
@pytest.mark.parametrize("through", ["scan", "polars"])
def test_what_was_replaced_meanwhile_is_opened_anew(folder: Path, through: str, number: int, how: str) -> None:
    """Also a file of which the filters had left nothing."""
    filters = [("id", "in", [WANTED, "new0-7"])]
    reader = table_of(folder).scan(where=filters) if through == "scan" else None
    lazy = lazy_of(folder).filter(pl.col("id").is_in([WANTED, "new0-7"])) if reader is None else None
    path, aside = folder / f"{number}.parquet", folder.parent / "aside"
    write(aside, part(0, "new"))
    if how == "renamed":
        aside.replace(path)
    elif how == "in place":
        path.write_bytes(aside.read_bytes())
    else:
        path.unlink()

    def rows() -> list[str]:
        found = lazy.collect() if lazy is not None else reader.read_all()  # type: ignore[union-attr]
        return sorted(found["id"].to_list() if lazy is not None else found["id"].to_pylist())

    if how == "gone":
        assert f"{number}.parquet" in failure(rows)
    else:
        assert rows() == (["new0-7"] if number == 3 else sorted([WANTED, "new0-7"]))


@pytest.mark.parametrize("through", ["scan", "polars"])
def test_what_lies_outside_the_table_meanwhile_is_refused(folder: Path, tmp_path: Path, through: str) -> None:
    inside = folder / "p=1"
    inside.mkdir()
    (folder / "3.parquet").rename(inside / "3.parquet")
    if through == "scan":
        run = table_of(folder).scan(where=FILTERS).read_all
    else:
        run = lazy_of(folder).filter(pl.col("id") == WANTED).collect  # type: ignore[assignment]
    inside.rename(tmp_path / "outside")
    inside.symlink_to(tmp_path / "outside")
    assert "outside the table" in failure(run)


@pytest.mark.parametrize("places", [0, 1, 3])
@pytest.mark.parametrize("filters", [None, [("n", ">=", 0)], [("id", "in", [f"{part}-1" for part in range(FILES)])]])
def test_streams_hold_only_so_many_files_open_at_the_same_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch, places: int, filters: Any
) -> None:
    """More would be too many for the system, where many threads read streams."""
    monkeypatch.setattr(scan, "_MOST_OPEN", places)
    monkeypatch.setattr(scan, "_BLOCK", 1)
    table = table_of(folder)
    before, rows = open_files(), 0
    readers = [table.scan(["n"], filters, threads=1) for _ in range(4)]
    for count, reader in enumerate(readers, 1):
        rows += next(iter(reader)).num_rows
        # Each that has begun has the file whose turn it is, too.
        assert open_files() - before <= count + places * len(readers)
    rows += sum(reader.read_all().num_rows for reader in readers)
    assert rows == len(readers) * FILES * (1 if filters and filters[0][0] == "id" else ROWS)


def test_a_right_that_was_withdrawn_meanwhile_ends(folder: Path) -> None:
    keys = Retriever()
    lazy = lazy_of(folder, keys)
    keys.withdrawn = True
    assert "withdrawn" in failure(lazy.select(pl.len()).collect)


@pytest.mark.parametrize("begun", [False, True])
def test_a_reader_that_is_dropped_closes_its_files(folder: Path, begun: bool) -> None:
    before = open_files()
    gc.disable()  # at once, and not when garbage is collected
    try:
        reader = table_of(folder).scan(threads=1)
        if begun:
            reader.read_next_batch()
        assert open_files() > before
        del reader
        assert open_files() == before
    finally:
        gc.enable()


def test_a_broken_filter_is_told_by_the_reader_at_its_turn(folder: Path) -> None:
    with bs.open_file(folder / "2.parquet", decryption=bs.DecryptionSpec(bs.ExplicitKeys(**KEYS))) as file:
        place = file.walk.meta(file.walk.chunk(1, 0)).bloom_filter_offset
    assert place is not None
    data = bytearray((folder / "2.parquet").read_bytes())
    data[place + 20] ^= 1
    (folder / "2.parquet").write_bytes(data)
    # In the range of the broken row group's statistics, so that its filter is asked.
    reader = table_of(folder).scan(where=[("id", "in", ["0-15", "2-155", "4-15"])], threads=1)
    assert reader.read_next_batch()["id"].to_pylist() == ["0-15"]
    with pytest.raises(bs.IntegrityError, match=r"2\.parquet"):
        reader.read_all()


def test_a_look_up_takes_no_thread_but_the_callers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_SHORT", 60)
    threads: set[str] = set()
    made = Fragment._make
    pieces = Fragment.pieces

    def noted(fragment: Fragment, *rest: Any) -> None:
        threads.add(threading.current_thread().name)
        made(fragment, *rest)

    def read(fragment: Fragment, group: int, size: int) -> Iterator[pa.Table]:
        threads.add(threading.current_thread().name)
        yield from pieces(fragment, group, size)

    monkeypatch.setattr(Fragment, "_make", noted)
    monkeypatch.setattr(Fragment, "pieces", read)
    assert table_of(folder).scan(where=[("id", "==", "4-99")], threads=4).read_all().num_rows == 1
    assert threads == {threading.current_thread().name}


@pytest.mark.parametrize("wide_from", [1, 5, 9])
@pytest.mark.parametrize("threads", [1, 2])
def test_files_whose_floats_differ_are_decoded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wide_from: int, threads: int
) -> None:
    """What a value means in the table is settled before any row is decoded."""
    for i in range(10):
        kind = pa.float32() if i < wide_from else pa.float64()
        bs.write_table(pa.table({"x": pa.array([0.5, 0.1], kind), "i": [i, i]}), tmp_path / f"{i}.parquet")
    decoded = []
    pieces = ParquetFile.pieces

    def counted(self: ParquetFile, plan: Any, part: int, size: int) -> Iterator[pa.Table]:
        decoded.append(self.path)
        yield from pieces(self, plan, part, size)

    monkeypatch.setattr(ParquetFile, "pieces", counted)
    table = bs.open_table(tmp_path)
    found = table.read(where=[("x", ">=", 0.1)], threads=threads)
    assert found.column("i").to_pylist() == [i for i in range(10) for _ in range(2)]
    assert len(decoded) == 10
    expected = [
        i
        for i in range(10)
        for x in (0.5, 0.1)
        if (float(pa.scalar(x, pa.float32()).as_py()) if i < wide_from else x) <= 0.1
    ]
    found = table.read(where=[("x", "<=", 0.1)], threads=threads)
    assert found.column("i").to_pylist() == expected
