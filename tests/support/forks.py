"""Work in a forked child."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

_PATIENCE_SECONDS = 60


def holds_in_a_child(holds: Callable[[], object]) -> bool:
    """Does it hold in a forked child? One that hangs is ended, and counts as no, as one that raises does."""
    if (child := os.fork()) == 0:
        code = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # pytest-timeout has a handler of its own
            signal.alarm(_PATIENCE_SECONDS)
            code = 0 if holds() else 1
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0
