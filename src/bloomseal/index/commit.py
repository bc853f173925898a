"""One manifest in the place of another, and what is left of older ones cleared away."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from ..core.errors import BloomsealError
from ..storage.atomic import fault_point
from .folder import IndexFolder
from .manifest import IndexRun, Manifest

_GRACE: Final = 3600.0
"""Seconds for which a store keeps the files of a run that was compacted away. It has no lock: a manifest that somebody
else is writing may name the run again. On this machine it goes at once, and a look-up that has begun loads the new
manifest."""
_ABANDONED: Final = 24 * 3600.0
"""Seconds after which a file that no manifest has named belongs to a job that died, and to none that is at work."""


def commit(
    folder: IndexFolder,
    seen: Manifest,
    change: Callable[[Manifest], Manifest],
    runs: Sequence[IndexRun],
    *,
    fresh: bool = False,
) -> Manifest:
    """Change the manifest that is there now, alone.

    Args:
        seen: the one that the change was worked out from.
        change: makes the new one. Of two who commit, the second is given what the first has made.
        runs: new ones, which no manifest names yet. Their files are the caller's no more: they are removed where it is
            sure that no manifest names them.
        fresh: `seen` takes the place of whatever is there.

    Raises:
        BloomsealError: another index has taken the place of `seen`; the storage failed. Nothing has changed then.
    """
    begun = False
    try:
        with folder.locked():
            there = folder.readable() if fresh else folder.load()
            if not fresh and (there is None or there.secret != seen.secret):
                raise BloomsealError("somebody rebuilt or dropped the index meanwhile", file=folder.path, hint="again")
            made = change(seen if fresh or there is None else there)
            now = time.time()
            left = (there.files if there is not None else set()) - made.files
            retired = {**(there.retired if there is not None else {}), **dict.fromkeys(left, now)}
            grace = 0.0 if folder.filesystem is None else _GRACE
            gone = [name for name, when in retired.items() if now - when >= grace]
            made = replace(made, retired={name: when for name, when in retired.items() if name not in gone})
            made.check()  # what nobody could read does not take the place of what is read
            fault_point("index before manifest")
            begun = True
            folder.write_manifest(made)
            fault_point("index manifest")
    except BaseException:
        if not begun or _is_old(folder, runs):
            folder.remove_runs(runs)
        raise
    kept = {run.id for run in made.runs}
    folder.remove_runs(run for run in runs if run.id not in kept)
    named = made.files | set(made.retired)
    old = [name for name, changed in folder.names().items() if name.startswith("run-") and now - changed > _ABANDONED]
    for name in (*gone, *(name for name in old if name not in named)):
        folder.remove(name)
    return made


def _is_old(folder: IndexFolder, runs: Sequence[IndexRun]) -> bool:
    """Whether it is sure that the manifest which could not be written is not there. An interrupt (Ctrl-C) and an error
    may come when it is: runs that it names must stay. What nobody names goes after a day.
    """
    if folder.filesystem is not None:
        return False  # a store's answer was lost, and not what it was sent
    try:
        found = folder.load()
    except BloomsealError:
        return False
    return found is None or not {run.id for run in runs} & {run.id for run in found.runs}
