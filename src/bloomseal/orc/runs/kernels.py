"""The walks, compiled (numba): each when it is first asked for, since a file needs one or two of them."""

from __future__ import annotations

import functools
from typing import Any, Final

from numba import types
from numba.extending import register_jitable

from ..._compiled import compiled_for, frozen
from . import walk

for _shared in (
    walk.varint, walk.unzigzag, walk.unpack, walk.patch_at, walk.gaps_are_sound, walk.decode_patched, walk.decode_v1,
    walk.frame_v2, walk.decode_v2, walk.added_up,
):  # fmt: skip
    register_jitable(_shared)  # inlined where the walks call them

_BYTES: Final = frozen(types.uint8)
_NUMBERS: Final = (_BYTES, types.int64, types.boolean, types.int64, types.Array(types.int64, 1, "C"))
_SIGNATURES: Final = {
    "bytes_walk": (_BYTES, types.int64, types.Array(types.int64, 1, "C")),
    "runs_v1": _NUMBERS,
    "runs_v2": _NUMBERS,
    "lz4_walk": (_BYTES,),
}


@functools.cache
def compiled(name: str) -> Any:
    """The function of this name in `walk`."""
    return compiled_for(*_SIGNATURES[name], result=types.int64)(getattr(walk, name))
