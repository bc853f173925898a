"""Spark's Python processes, which plan and run one task after the other."""

from __future__ import annotations

import functools
import gc
import os
from typing import Final

_REUSED: Final = "SPARK_REUSE_WORKER"
"""Spark sets it in the environment of workers that it will use again."""


@functools.cache
def keep_loaded() -> None:
    """What a reused worker has loaded by now stays for good; nothing in other processes.

    Spark has a worker look for garbage behind each task. Modules are none, and to go through them takes 30 ms, of each
    of the three workers that a read of the data source needs.
    """
    if os.environ.get(_REUSED):
        gc.collect()
        gc.freeze()
