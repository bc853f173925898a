"""What a reader of the data source sees while others write: without a JVM."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.core.errors import BloomsealError

if TYPE_CHECKING:
    from bloomseal.spark.source.options import SourceOptions

pytest.importorskip("pyspark.sql.types")

Write = Callable[..., None]


@pytest.fixture
def settings(tmp_path: Path) -> SourceOptions:
    from bloomseal.spark.source.options import Defaults, SourceOptions

    ring = bs.Keyring(tmp_path / "keys.json", create=True)
    ring.create("footer")
    tables = {"t": {"footer_key": "footer"}}
    policy = bs.Policy.from_dict({"version": 1, "kms": f"keyring://{ring.path}", "tables": tables})
    (tmp_path / "t").mkdir()
    return SourceOptions.parse({"path": str(tmp_path / "t")}, Defaults(policy=policy))


@pytest.fixture
def write(settings: SourceOptions) -> Write:
    """Writes files of one value each, and commits as `LateDeletes.java` does."""
    table = Path(settings.paths[0])

    def write(*values: int, overwrite: bool = True, moved: Callable[[], None] = lambda: None) -> None:
        old, busy = list(table.glob("*.parquet")) if overwrite else [], table / "_temporary" / "overwrite-1"
        if overwrite:
            busy.mkdir(parents=True, exist_ok=True)
            (table / "_SUCCESS").unlink(missing_ok=True)
        for value in values:
            file = table / f"part-{uuid.uuid4().hex}.parquet"
            bs.write_table(pa.table({"id": [value]}), file, encryption=settings.table)
            moved()
        for file in old:
            file.unlink()
        (table / "_SUCCESS").unlink(missing_ok=True)
        (table / "_SUCCESS").touch()
        shutil.rmtree(table / "_temporary", ignore_errors=True)

    return write


def ids(settings: SourceOptions) -> list[int]:
    """The values in the files that a reader finds."""
    found = []
    for one in settings.find_files().files:
        with settings.open(one) as file:
            found += file.read().column("id").to_pylist()
    return sorted(found)


def test_a_reader_waits_for_a_commit_and_sees_no_mixture(settings: SourceOptions, write: Write) -> None:
    write(1, 2)
    with ThreadPoolExecutor(1) as pool:
        readers: list[Future[list[int]]] = []

        def moved() -> None:
            if not readers:
                readers.append(pool.submit(ids, settings))
                with pytest.raises(TimeoutError):
                    readers[0].result(0.3)

        write(3, 4, moved=moved)
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
def test_what_was_cut_off_is_an_error_until_the_next_overwrite(
    settings: SourceOptions, write: Write, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    from bloomseal.spark.source.files.settled import settled

    class Killed(BaseException): ...

    def killed() -> None:
        raise Killed

    monkeypatch.setattr("bloomseal.spark.source.files.settled._PATIENCE", 0.1)
    write(1, 2)
    with pytest.raises(Killed):
        write(3, 4, moved=killed)
    with pytest.raises(BloomsealError, match=r"cut off.*overwrite-1"):
        settled([(None, f"{settings.paths[0]}/{part}")], lambda: None)
    with pytest.raises(BloomsealError, match="the next overwrite"):
        ids(settings)
    write(5)
    assert ids(settings) == [5]


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
