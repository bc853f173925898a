"""What is renamed is on the disk when the call returns."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bloomseal.storage.folder import Folder
from bloomseal.storage.replacement import replace

THREADS = 8


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
