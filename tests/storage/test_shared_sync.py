"""One sync for all that have written by then; nobody returns before its own is on the disk."""

from __future__ import annotations

import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bloomseal.storage.folder import Folder
from bloomseal.storage.replacement import replace
from bloomseal.storage.shared_sync import SharedSync

THREADS = 8


def test_a_sync_begins_after_what_it_stands_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one sync is under way others write: it does not stand for them, one more sync stands for all of them."""
    shared, began, go = SharedSync(), threading.Event(), threading.Event()
    calls: list[int] = []

    def fsync(fd: int) -> None:
        calls.append(fd)
        if len(calls) == 1:
            began.set()
            assert go.wait(30)

    monkeypatch.setattr(os, "fsync", fsync)
    with ThreadPoolExecutor(THREADS) as pool:
        first = pool.submit(shared.until, shared.wrote(), 7)
        assert began.wait(30)
        numbers = [shared.wrote() for _ in range(THREADS - 1)]
        others = [pool.submit(shared.until, number, 7) for number in numbers]
        assert not any(one.done() for one in others)
        go.set()
        first.result(30)
        for one in others:
            one.result(30)
    assert calls == [7, 7]
    shared.until(shared.wrote(), 7)
    assert calls == [7, 7, 7]


def test_a_sync_that_failed_stands_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    shared, calls = SharedSync(), 0

    def fsync(_: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fsync)
    first, second = shared.wrote(), shared.wrote()
    with pytest.raises(OSError, match="Input/output error"):
        shared.until(first, 7)
    shared.until(second, 7)
    assert calls == 2
    shared.until(first, 7)  # the second stood for it
    assert calls == 2


def test_every_name_is_synced_after_its_renaming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By many threads in one folder: when a replacement returns, a sync of the folder began after its renaming."""
    order: list[tuple[str, str | int]] = []
    real_sync, real_rename = os.fsync, os.rename

    def fsync(fd: int) -> None:
        folder = stat.S_ISDIR(os.fstat(fd).st_mode)
        if folder:
            order.append(("begin", 0))
        real_sync(fd)
        if folder:
            order.append(("end", 0))

    def rename(source: str, target: str, **more: int) -> None:
        real_rename(source, target, **more)  # type: ignore[arg-type]
        order.append(("renamed", target))

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rename", rename)

    def make(number: int) -> None:
        with Folder.at(tmp_path) as folder:
            replace(folder, f"{number}", b"new", mode=0o600)
        order.append(("returned", f"{number}"))

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(make, range(200)))
    renamed = {name: place for place, (what, name) in enumerate(order) if what == "renamed"}
    for place, (what, name) in enumerate(order):
        if what == "returned":
            between = [what for what, _ in order[renamed[name] : place]]
            assert "begin" in between
            assert "end" in between[between.index("begin") :]
