"""How loops over many values are compiled (numba). Whoever imports this waits for numba: only rooms' ``kernels`` do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba import types

__all__ = ["compiled_for", "frozen"]


def frozen(dtype: Any) -> Any:
    """An array that a kernel only reads."""
    return types.Array(dtype, 1, "C", readonly=True)


def compiled_for(*signature: Any, result: Any = types.void) -> Callable[[Any], Any]:
    """Compile for one signature; the machine code is cached beside the function's file or in the user's cache
    directory.
    """

    def compiled(function: Any) -> Any:
        try:
            return numba.njit(result(*signature), cache=True, nogil=True, error_model="numpy")(function)
        except RuntimeError:
            # No directory to write to (a read-only image without a home). A shared temporary directory is no way
            # out: whoever puts a file there first would have his code run. So compile again in each process.
            return numba.njit(result(*signature), nogil=True, error_model="numpy")(function)

    return compiled
