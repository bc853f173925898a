"""Ctrl-C at the worst moments: while the thread is started that does the work."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import fsspec
import pytest
from pyarrow.fs import FSSpecHandler, PyFileSystem

from bloomseal._uninterrupted import uninterrupted
from bloomseal.storage import objects

START = threading.Thread.start


def interrupted_once(monkeypatch: pytest.MonkeyPatch, *, begun: bool) -> None:
    def start(thread: threading.Thread) -> None:
        monkeypatch.setattr(threading.Thread, "start", START)
        if begun:
            thread.start()
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", start)


def test_an_object_is_whole_before_the_interrupt_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """The upload went on behind it: who looked then met an object of the old one's size with the new one's bytes."""
    left, send, memory = threading.Event(), objects._send_to_fsspec, fsspec.filesystem("memory")

    def slowly(stream: Any, data: Any) -> None:
        left.wait(0.5)
        send(stream, data)

    monkeypatch.setattr(objects, "_send_to_fsspec", slowly)
    interrupted_once(monkeypatch, begun=True)
    with pytest.raises(KeyboardInterrupt):
        objects.put(PyFileSystem(FSSpecHandler(memory)), "/uninterrupted/object", b"whole")
    there = memory.exists("/uninterrupted/object") and memory.cat_file("/uninterrupted/object")
    left.set()
    assert there == b"whole"


def test_work_that_has_not_begun_does_not_begin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    interrupted_once(monkeypatch, begun=False)
    with pytest.raises(KeyboardInterrupt):
        uninterrupted((tmp_path / "a").touch)
    assert not (tmp_path / "a").exists()


def test_errors_and_results_are_those_of_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    assert uninterrupted(lambda: 7) == 7
    with pytest.raises(RuntimeError, match="of the work"):
        uninterrupted(lambda: (_ for _ in ()).throw(RuntimeError("of the work")))

    def none(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none)
    assert uninterrupted(threading.current_thread) is threading.main_thread()
