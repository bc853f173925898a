"""One manifest in the place of another, and what is left of older ones cleared away."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ..errors import BloomsealError
from ..storage.atomic import fault_point
from .folder import IndexFolder
from .manifest import Manifest

if TYPE_CHECKING:
    from .folder import Decryption, Encryption

__all__ = ["commit"]

_GRACE: Final = 3600.0
"""Seconds for which the files of a run that was compacted away stay: longer than a look-up that has begun takes."""
_ABANDONED: Final = 24 * 3600.0
"""Seconds after which a file that no manifest has named belongs to a job that died, and to none that is at work."""


def commit(
    folder: IndexFolder,
    seen: Manifest,
    encryption: Encryption,
    decryption: Decryption,
    change: Callable[[Manifest], Manifest],
    *,
    fresh: bool = False,
) -> Manifest:
    """Change the manifest that is there now, alone.

    Args:
        seen: the one that the change was worked out from.
        change: makes the new one. Of two who commit, the second is given what the first has made.
        fresh: `seen` takes the place of whatever is there.

    Raises:
        BloomsealError: another index has taken the place of `seen`; the storage failed. Nothing has changed then.
    """
    with folder.place.locked():
        there = _current(folder, decryption, fresh)
        if not fresh and (there is None or there.secret != seen.secret):
            raise BloomsealError("somebody rebuilt or dropped the index meanwhile", file=folder.path, hint="again")
        made = change(seen if fresh or there is None else there)
        now = time.time()
        left = (there.files if there is not None else set()) - made.files
        retired = {**(there.retired if there is not None else {}), **dict.fromkeys(left, now)}
        gone = [name for name, when in retired.items() if now - when > _GRACE]
        made = replace(made, retired={name: when for name, when in retired.items() if name not in gone})
        fault_point("index before manifest")
        folder.write_manifest(made, encryption)
        fault_point("index manifest")
    for name in gone:
        folder.remove(name)
    named = made.files | set(made.retired)
    for name, changed in folder.place.names().items():
        if name.startswith("run-") and name not in named and now - changed > _ABANDONED:
            folder.remove(name)
    return made


def _current(folder: IndexFolder, decryption: Decryption, fresh: bool) -> Manifest | None:
    try:
        found = folder.load(decryption)
    except BloomsealError:
        if not fresh:
            raise
        return None  # a rebuild takes the place of what can't be read
    return None if found is None else found[0]
