"""Whatever breaks off a commit, the files that the manifest names are there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest

import bloomseal as bs
from bloomseal.index import commit
from bloomseal.index.folder import IndexFolder
from bloomseal.index.update import IndexUpdate
from index.test_index import ENCRYPTION, part
from index.test_stores import opened, write

VERBS: dict[str, Callable[[Any], Any]] = {
    "update": lambda index: index.update(),
    "compact": lambda index: index.compact(everything=True),
    "rebuild": lambda index: index.rebuild(),
}


@pytest.fixture(params=["here", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A table with an index, and one file more."""
    root = str(tmp_path) if request.param == "here" else "memory://interrupted/t"
    for number in range(3):
        write(f"{root}/{number}.parquet", part(number))
    opened(root).index("k", encryption=ENCRYPTION).build()
    write(f"{root}/3.parquet", part(3))
    yield root
    if request.param == "store":
        fsspec.filesystem("memory").rm("/interrupted", recursive=True)


def runs_in(place: str) -> set[str]:
    filesystem, path = fsspec.core.url_to_fs(place)
    return {name.rpartition("/")[2] for name in filesystem.find(f"{path}/_bloomseal_index/k") if "run-" in name}


def whole(place: str) -> int:
    """Files that the index covers, once it was read from end to end."""
    index = opened(place).index("k")
    assert index.check().ok
    return index.show().covered


@pytest.mark.parametrize("verb", VERBS)
def test_an_interrupt_when_the_new_manifest_is_there(place: str, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store's put is not interrupted: Ctrl-C comes when it has ended."""

    def interrupted(name: str) -> None:
        if name == "index manifest":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(commit, "fault_point", interrupted)
        with pytest.raises(KeyboardInterrupt):
            VERBS[verb](opened(place).index("k", encryption=ENCRYPTION))
    assert whole(place) == (3 if verb == "compact" else 4)
    assert opened(place).index("k", encryption=ENCRYPTION).compact(everything=True).runs == 1


@pytest.mark.parametrize("verb", VERBS)
def test_an_error_when_the_new_manifest_is_there(place: str, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer of a store is lost, or a folder can't be synchronised."""
    written = IndexFolder.write_manifest

    def unanswered(self: IndexFolder, *args: Any) -> None:
        written(self, *args)
        raise bs.BloomsealError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(IndexFolder, "write_manifest", unanswered)
        with pytest.raises(bs.BloomsealError, match="no answer"):
            VERBS[verb](opened(place).index("k", encryption=ENCRYPTION))
    assert whole(place) == (3 if verb == "compact" else 4)


@pytest.mark.parametrize("verb", VERBS)
def test_new_runs_are_removed_where_no_manifest_can_name_them(
    place: str, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = runs_in(place)

    def refused(name: str) -> None:
        if name == "index before manifest":
            raise bs.BloomsealError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(commit, "fault_point", refused)
        with pytest.raises(bs.BloomsealError, match="no room"):
            VERBS[verb](opened(place).index("k", encryption=ENCRYPTION))
    assert runs_in(place) == before
    assert whole(place) == 3


def test_new_runs_are_removed_where_the_old_manifest_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(f"{tmp_path}/0.parquet", part(0))
    opened(tmp_path).index("k", encryption=ENCRYPTION).build()
    before = runs_in(str(tmp_path))

    def refused(*_: Any) -> None:
        raise bs.BloomsealError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(IndexFolder, "write_manifest", refused)
        with pytest.raises(bs.BloomsealError, match="no room"):
            opened(tmp_path).index("k", encryption=ENCRYPTION).compact(everything=True)
    assert runs_in(str(tmp_path)) == before


def test_a_manifest_that_nobody_could_read_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(f"{tmp_path}/0.parquet", part(0))
    opened(tmp_path).index("k", encryption=ENCRYPTION).build()
    write(f"{tmp_path}/1.parquet", part(1))
    to = IndexUpdate.to
    monkeypatch.setattr(IndexUpdate, "to", lambda self, current: replace(to(self, current), bits=61))
    with pytest.raises(bs.FormatError, match="contradicts itself"):
        opened(tmp_path).index("k", encryption=ENCRYPTION).update()
    assert whole(str(tmp_path)) == 1
