"""Work that nothing breaks off: half of it would be worse than none."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def uninterrupted(work: Callable[[], T]) -> T:
    """What `work` returns. Ctrl-C comes to the main thread alone: another one works, and an interrupt is raised when
    that one has come to its end, or has not begun.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    from concurrent.futures import Future, ThreadPoolExecutor, wait

    done: Future[T] = Future()

    def run() -> None:
        if done.set_running_or_notify_cancel():
            try:
                done.set_result(work())
            except BaseException as error:
                done.set_exception(error)

    try:
        with ThreadPoolExecutor(1) as pool:
            try:
                pool.submit(run)
            except RuntimeError:
                run()  # the interpreter ends, and begins no thread any more
            return done.result()
    except BaseException:
        # An interrupt while the thread is started leaves a thread that works, and that the pool knows nothing of.
        if not done.cancel():
            wait([done])
        raise
