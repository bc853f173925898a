"""What a reader of the data source sees while others write, and what writers at the same time leave: without a JVM."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.core.errors import BloomsealError

if TYPE_CHECKING:
    from bloomseal.spark.source.options import SourceOptions

st = pytest.importorskip("pyspark.sql.types")

Write = Callable[..., None]


@pytest.fixture
def settings(tmp_path: Path) -> SourceOptions:
    from bloomseal.spark.source.options import Defaults, SourceOptions

    ring = bs.Keyring(tmp_path / "keys.json", create=True)
    ring.create("footer")
    tables = {"t": {"footer_key": "footer"}}
    policy = bs.Policy.from_dict({"version": 1, "kms": f"keyring://{ring.path}", "tables": tables})
    one_value_a_file = {"row_group_size": "1", "target_file_bytes": "1"}
    return SourceOptions.parse({"path": str(tmp_path / "t"), **one_value_a_file}, Defaults(policy=policy))


@pytest.fixture
def write(settings: SourceOptions) -> Write:
    """Writes files of one value each."""
    from bloomseal.spark.source.writer import TableWriter

    def write(*values: int, overwrite: bool = True) -> None:
        writer = TableWriter(settings, st.StructType().add("id", "long"), overwrite)
        writer.commit([writer.write(iter([pa.record_batch({"id": pa.array(values)})]))])

    return write


def ids(settings: SourceOptions) -> list[int]:
    """The values in the files that a reader finds."""
    found = []
    for one in settings.find_files().files:
        with settings.open(one) as file:
            found += file.read().column("id").to_pylist()
    return sorted(found)


def test_of_overwrites_at_the_same_time_the_later_one_stays(
    settings: SourceOptions, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have written; then both look which files they replace, if they are let."""
    from bloomseal.spark.source.writer import TableWriter

    write(0)
    both, replaced = threading.Barrier(2), TableWriter.replaced

    def looked(self: TableWriter, files: Any) -> set[str]:
        found = replaced(self, files)
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(1)
        return found

    monkeypatch.setattr(TableWriter, "replaced", looked)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, (1, 2)))
    assert ids(settings) in ([1], [2])
    assert not (Path(settings.paths[0]) / "_bloomseal_temporary").exists()


def test_a_reader_waits_for_a_commit_and_sees_no_mixture(
    settings: SourceOptions, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(1, 2)
    with ThreadPoolExecutor(1) as pool:
        readers: list[Future[list[int]]] = []

        def reached(point: str) -> None:
            if point == "moved" and not readers:
                readers.append(pool.submit(ids, settings))
                with pytest.raises(TimeoutError):
                    readers[0].result(0.3)

        monkeypatch.setattr("bloomseal.spark.source.commit.placing.fault_point", reached)
        write(3, 4)
        assert [one.result() for one in readers] == [[3, 4]]


def test_a_commit_that_comes_and_goes_during_a_look_is_noticed(settings: SourceOptions, write: Write) -> None:
    from bloomseal.spark.source.files.settled import settled

    write(1)
    looks = []

    def look() -> list[str]:
        found = sorted(path.name for path in Path(settings.paths[0]).glob("*.parquet"))
        if not looks:
            write(2)
        looks.append(found)
        return found

    assert settled([(None, settings.paths[0])], look) == looks[1]
    assert len(looks) == 2
    assert looks[0] != looks[1]


def test_commits_without_end_are_told(settings: SourceOptions, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    from bloomseal.spark.source.files.settled import settled

    monkeypatch.setattr("bloomseal.spark.source.files.settled._PATIENCE", 0.0)
    write(1)
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1
        assert looks < 10, "it would look for ever"
        write(looks, overwrite=False)

    with pytest.raises(BloomsealError, match="changed each time"):
        settled([(None, settings.paths[0])], look)
    assert looks == 3


@pytest.mark.parametrize("part", ["", "k=1/l=2"])
def test_what_was_cut_off_is_an_error_until_a_write_finishes_it(
    settings: SourceOptions, write: Write, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    from bloomseal.spark.source.files.settled import settled

    class Killed(BaseException): ...

    def killed(point: str) -> None:
        if point == "moved":
            raise Killed

    monkeypatch.setattr("bloomseal.spark.source.files.settled._PATIENCE", 0.1)
    write(1, 2)
    with monkeypatch.context() as dying:
        dying.setattr("bloomseal.spark.source.commit.placing.fault_point", killed)
        with pytest.raises(Killed):
            write(3, 4)
    with pytest.raises(BloomsealError, match=r"cut off.*plan\.json"):
        settled([(None, f"{settings.paths[0]}/{part}")], lambda: None)
    with pytest.raises(BloomsealError, match="the next write to the table finishes"):
        ids(settings)
    write(5, overwrite=False)
    assert ids(settings) == [3, 4, 5]


@pytest.mark.parametrize("job", ["0", "1804289383", "overwrite-8f14e45f"])
def test_spark_s_own_overwrite_is_waited_for_and_its_append_is_not(
    settings: SourceOptions, write: Write, monkeypatch: pytest.MonkeyPatch, job: str
) -> None:
    """Its commit begins with taking `_SUCCESS` away, and ends with putting it back."""
    monkeypatch.setattr("bloomseal.spark.source.files.settled._PATIENCE", 0.1)
    write(1)
    table = Path(settings.paths[0])
    (table / "_temporary" / job).mkdir(parents=True)
    assert ids(settings) == [1]
    (table / "_SUCCESS").unlink()
    with pytest.raises(BloomsealError, match="under way"):
        ids(settings)
    (table / "_temporary" / job).rmdir()
    assert ids(settings) == [1]
