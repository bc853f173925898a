"""Memory that a thread fills again and again goes to the next thread, and to nobody else meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from bloomseal.storage import lent
from bloomseal.storage.lent import lend


def in_a_thread(work: Callable[[], int]) -> int:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join(30)
    return found[0]


def of_size(size: int) -> int:
    held = lend(7)
    held.take(size)
    return id(held)


def test_a_thread_that_ends_leaves_its_memory_to_the_next() -> None:
    first = in_a_thread(lambda: of_size(1 << 21))
    assert in_a_thread(lambda: lend(7).size) == 1 << 21
    assert in_a_thread(lambda: id(lend(7))) == first


def test_two_threads_never_share_it() -> None:
    both = threading.Barrier(2, timeout=30)
    in_a_thread(lambda: of_size(1 << 20))
    found: list[object] = []

    def work() -> None:
        both.wait()
        found.append(lend(7))
        both.wait()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found[0] is not found[1]


def test_large_memory_goes_with_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lent, "_left_behind", left := [])
    lent._Held.__del__(held := lent._Held(), left, 100)
    assert left == [{}]
    held.scratches[0] = lent.Scratch()
    held.scratches[0].take(101)
    left.clear()
    lent._Held.__del__(held, left, 100)
    assert left == [{}]
