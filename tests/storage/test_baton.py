"""One thread computes at a time, others wait for disks meanwhile, and nobody waits for ever."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from bloomseal.storage import baton as batons
from bloomseal.storage.baton import Baton, waiting


def test_one_computes_and_all_wait_at_the_same_time() -> None:
    baton, together, computing, most = Baton(), threading.Barrier(4, timeout=30), [0], [0]

    def work(_: int) -> None:
        for _ in range(3):
            with baton.held():
                for _ in range(3):
                    computing[0] += 1
                    most[0] = max(most[0], computing[0])
                    time.sleep(0.0005)
                    computing[0] -= 1
                    with waiting():
                        together.wait()  # all four at once, or it breaks

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert most == [1]


def test_who_does_not_get_it_goes_on_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its holder may be waiting for the very thread that wants it."""
    monkeypatch.setattr(batons, "_PATIENCE", 0.01)
    baton, mine, yours = Baton(), threading.Event(), threading.Event()

    def other() -> None:
        assert mine.wait(30)
        with baton.held():
            yours.set()
            with waiting():
                pass

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(other)
        with baton.held():
            mine.set()
            assert yours.wait(30)
        done.result(30)
    with baton.held(), waiting(), baton.held():
        pass  # given back as often as it was taken


def test_without_one_waiting_is_nothing() -> None:
    with waiting(), waiting():
        pass


def test_it_is_given_back_by_whoever_fails() -> None:
    baton = Baton()
    for _ in range(2):
        with pytest.raises(ValueError, match="once"), baton.held(), waiting():
            raise ValueError("once")
    began = threading.Event()

    def other() -> None:
        with baton.held():
            began.set()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(other).result(30)
    assert began.is_set()


def test_a_baton_within_another_gives_that_one_back() -> None:
    outer, inner = Baton(), Baton()
    with outer.held():
        with inner.held(), waiting():
            assert not outer._lock.acquire(blocking=False)
        with waiting():
            assert outer._lock.acquire(blocking=False)
            outer._lock.release()
    assert outer._lock.acquire(blocking=False)
