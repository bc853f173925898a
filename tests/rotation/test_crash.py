"""Killed at random moments: every file opens throughout, and after resuming all are rotated."""

from __future__ import annotations

import multiprocessing
import random
import signal
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

import bloomseal as bs
from bloomseal.core.encryption import SecretKey
from support.rotation_tables import TO_SECOND, ciphers, keyring, masters, opens, write
from support.victim import STEPS, run

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["bloomseal.rotation", "bloomseal.read.parquet", "pyarrow.parquet"])


class Table:
    """Files, every other one with its key material beside it."""

    def __init__(self, folder: Path, files: int) -> None:
        self.ring = keyring(folder)
        self.folder = folder / "table"
        self.folder.mkdir()
        self._journals = folder
        self.step = 0
        self.indexes = range(files)
        for index in self.indexes:
            write(self.path(index), bs.KeyTools(self.ring, internal=index % 2 == 0), index)
        self.tools = bs.KeyTools(self.ring)
        self.before = self.data_keys()

    def path(self, index: int) -> Path:
        return self.folder / f"{index:02d}.parquet"

    def start(self) -> BaseProcess:
        arguments = str(self.folder), str(self.ring.path), str(self._journals / f"{self.step}.jsonl"), self.step
        process = processes.Process(target=run, args=arguments)
        process.start()
        return process

    def opens(self, index: int) -> None:
        opens(self.path(index), bs.DecryptionSpec(self.tools), index)

    def opens_while_it_is_rotated(self, index: int) -> None:
        """A reader takes two files one after the other where key material lies beside the data: between the two, one
        rotation may have passed. Then the reader begins again, as it would after any change of a file under its hands.
        """
        for attempt in range(3):
            try:
                self.opens(index)
            except bs.BloomsealError:
                if attempt == 2:
                    raise
            else:
                return

    def data_keys(self) -> dict[int, set[SecretKey]]:
        decryption = bs.DecryptionSpec(self.tools)
        return {index: {cipher.key for cipher in ciphers(self.path(index), decryption)} for index in self.indexes}

    def finish_step(self) -> None:
        """A run came to its end: is everything as it should be? Then on to the next rotation."""
        after = self.data_keys()
        decryption = bs.DecryptionSpec(self.tools)
        if STEPS[self.step % len(STEPS)] == "rekey":
            for index in self.indexes:
                assert not after[index] & self.before[index], index
        else:
            assert after == self.before
        second = self.step % len(STEPS) in (1, 2)
        wanted = set(TO_SECOND.values() if second else TO_SECOND)
        assert {name for index in self.indexes for name in masters(self.path(index), decryption)} == wanted
        assert not list(self.folder.glob(".*")), "what killed runs left aside is gone"
        self.before = after
        self.step += 1


def _torment(table: Table, kills: int, chance: random.Random) -> None:
    # The first run loads the modules, which no later one does: the second tells how long a run takes.
    for _ in range(2):
        began = time.monotonic()
        process = table.start()
        process.join()
        whole = time.monotonic() - began
        assert process.exitcode == 0
        table.finish_step()
    killed = 0
    while killed < kills:
        process = table.start()
        until = time.monotonic() + chance.uniform(0, whole * 0.9)
        while time.monotonic() < until and process.is_alive():
            table.opens_while_it_is_rotated(chance.choice(table.indexes))
        process.kill()
        process.join()
        for index in table.indexes:
            table.opens(index)
        if process.exitcode == 0:
            table.finish_step()
        else:
            assert process.exitcode == -signal.SIGKILL
            killed += 1
    process = table.start()
    process.join()
    assert process.exitcode == 0
    table.finish_step()
    for index in table.indexes:
        table.opens(index)


def test_twenty_kills(tmp_path: Path) -> None:
    _torment(Table(tmp_path, 20), 20, random.Random())


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_two_hundred_kills(tmp_path: Path) -> None:
    _torment(Table(tmp_path, 50), 200, random.Random())
