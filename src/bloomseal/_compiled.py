"""How loops over many values are compiled (numba). Whoever imports this waits for numba: only rooms' ``kernels`` do."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numba
from numba import types

from ._ownership import exposure, exposure_of


def frozen(dtype: Any, dimensions: int = 1) -> Any:
    """An array that a kernel only reads."""
    return types.Array(dtype, dimensions, "C", readonly=True)


def compiled_for(*signature: Any, result: Any = types.void) -> Callable[[Any], Any]:
    """Compile for one signature; the machine code is cached beside the function's file or in the user's cache
    directory, unless others could put theirs there.
    """

    def compiled(function: Any) -> Any:
        try:
            made = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
            cached = _is_safe(made.stats.cache_path, function.__code__.co_filename)
        except RuntimeError:
            # No directory to write to (a read-only image without a home). A shared temporary directory is no way
            # out: whoever puts a file there first would have his code run. So compile again in each process.
            cached = False
        if not cached:
            made = numba.njit(nogil=True, error_model="numpy")(function)
        made.compile(result(*signature))
        made.disable_compile()
        return made

    return compiled


def _is_safe(folder: Any, source: str) -> bool:
    """Whether only those can put machine code there who could change the function itself."""
    if os.path.dirname(folder) == os.path.dirname(source):  # noqa: PTH120
        status, owner = os.lstat(folder), os.lstat(source).st_uid
        return exposure_of(status, folder) is None or (status.st_uid == owner and not status.st_mode & 0o022)
    try:
        return exposure(folder) is None
    except OSError:
        return False
