"""Several processes change one file at once: nothing that one of them was told is done is lost."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bloomseal as bs

F = b"f" * 16
SPEC = bs.EncryptionSpec(footer_key=F)
KEYS = bs.DecryptionSpec(bs.ExplicitKeys(F))
DATA = pa.table({name: list(range(50)) for name in "abc"})
ROUNDS = 150


def _rounds(act: Callable[[int], object], gate: Any, answers: Any, rounds: int) -> None:
    for number in range(rounds):
        gate.wait(120)
        try:
            act(number)
        except bs.BloomsealError as error:
            answers.put((number, str(error)))
        except BaseException:
            answers.put((number, traceback.format_exc()))
        else:
            answers.put((number, None))
        gate.wait(120)


def _together(acts: list[Callable[[int], object]], rounds: int, after: Callable[[int, list[str | None]], None]) -> None:
    """Each of `acts` in a process of its own, round by round; `after` is told how each came out."""
    fork = multiprocessing.get_context("fork")
    gate = fork.Barrier(len(acts) + 1)
    queues = [fork.SimpleQueue() for _ in acts]
    children = [
        fork.Process(target=_rounds, args=(act, gate, queue, rounds)) for act, queue in zip(acts, queues, strict=True)
    ]
    for child in children:
        child.start()
    try:
        for number in range(rounds):
            gate.wait(120)
            gate.wait(120)
            after(number, [queue.get()[1] for queue in queues])
    finally:
        gate.abort()
        for child in children:
            child.kill()
            child.join(30)


def test_two_that_attach_lose_no_filter(tmp_path: Path) -> None:
    """Both succeeded, and one's filter was gone, in five rounds of 400."""
    for number in range(ROUNDS):
        bs.write_table(DATA, tmp_path / f"{number}.parquet", encryption=SPEC)
    lost, told = [], 0

    def attach(column: str) -> Callable[[int], object]:
        return lambda number: bs.attach_filters(tmp_path / f"{number}.parquet", {column: True}, decryption=KEYS)

    def after(number: int, answers: list[str | None]) -> None:
        nonlocal told
        path = tmp_path / f"{number}.parquet"
        with bs.open_file(path, decryption=KEYS) as file:
            present = [file.filter(0, column) is not None for column in "abc"]
        lost.extend(number for there, answer in zip(present, answers, strict=True) if there != (answer is None))
        for answer in filter(None, answers):
            told += 1
            assert "changed by someone else meanwhile" in answer
            assert "Try: again" in answer

    _together([attach(column) for column in "abc"], ROUNDS, after)
    assert lost == []
    assert told > 0, "no two ever met: the test shows nothing"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"{number}.parquet" for number in range(ROUNDS))


@pytest.mark.parametrize("internal", [True, False])
def test_attach_rekey_and_rewrap_at_once(tmp_path: Path, internal: bool) -> None:
    """Whatever the order, the file opens, holds its rows, and every attached filter of a run that succeeded."""
    ring = bs.Keyring(tmp_path / "ring.json", create=True)
    ring.create("k")
    ring.create("second")
    folder = tmp_path / "t"
    folder.mkdir()

    def tools() -> bs.KeyTools:
        return bs.KeyTools(ring, internal=internal)

    rounds = 40
    for number in range(rounds):
        bs.write_table(DATA, folder / f"{number}.parquet", encryption=bs.EncryptionSpec("k", keys=tools()))

    def place(number: int) -> Path:
        return folder / f"{number}.parquet"

    def decryption() -> bs.DecryptionSpec:
        return bs.DecryptionSpec(tools())

    acts: list[Callable[[int], object]] = [
        lambda number: bs.attach_filters(place(number), {"a": True}, decryption=decryption()),
        lambda number: bs.rekey(
            place(number), decryption=decryption(), encryption=bs.EncryptionSpec("k", keys=tools())
        ),
        lambda number: bs.rewrap(place(number), decryption=decryption(), master_keys={"k": "second"}),
    ]

    def after(number: int, answers: list[str | None]) -> None:
        assert None in answers, answers
        for answer in filter(None, answers):
            assert "Traceback" not in answer, answer
        with bs.open_file(place(number), decryption=decryption()) as file:
            assert file.read().equals(DATA)
            assert file.verify().complete
            if answers[0] is None:
                assert file.filter(0, "a") is not None

    _together(acts, rounds, after)
    assert not list(folder.glob("*bloomseal-tmp"))
