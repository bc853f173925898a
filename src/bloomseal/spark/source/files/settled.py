"""A look at a table's folder that no overwrite changes meanwhile: old files or new ones, never both.

An overwrite takes ``_SUCCESS`` away before its first file moves, and has a folder in ``_temporary`` until it puts it
back (`LateDeletes.java`); before, and while it appends, both are there. So who finds none under way, before and after
his look, with the same ``_SUCCESS``, has seen a state of the table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from ....core.errors import BloomsealError
from ...listing import open_filesystem

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_TEMPORARY: Final = "_temporary"
"""Of each overwrite that commits a folder in it, and ``0`` of jobs by Spark's own protocol."""
_SUCCESS: Final = "_SUCCESS"
_PATIENCE: Final = 10.0
"""Seconds that a reader waits for a commit to end: moving files takes milliseconds."""
_PAUSE: Final = 0.05
_LOOKS: Final = 3
"""Looks at a table that changes, at least, however long each takes."""

Found = TypeVar("Found")


class _SettledState(NamedTuple):
    success: tuple[int | None, ...]
    under_way: str | None


def settled(folders: Iterable[tuple[str | None, str]], look: Callable[[], Found]) -> Found:
    """What `look` finds in these folders.

    Args:
        folders: the URI of the file system (None: local), and the path on it. Of a folder of a partition the commits
            are those of the table above; files have none.

    Raises:
        BloomsealError: a commit has been under way for ten seconds, or was cut off; or the table changed during each of
            the looks. Whatever `look` raises.
    """
    places = list(dict.fromkeys((base, _above_partitions(folder)) for base, folder in folders))
    end, looks = time.monotonic() + _PATIENCE, 0
    states = [_state(*place) for place in places]
    while True:
        busy = next((one.under_way for one in states if one.under_way is not None), None)
        if busy is None:
            before, found, looks = states, look(), looks + 1
            if (states := [_state(*place) for place in places]) == before:
                return found
        else:
            time.sleep(_PAUSE)
            states = [_state(*place) for place in places]
        # Where commits follow one another without end, so would the looks.
        if time.monotonic() > end and (busy is not None or looks >= _LOOKS):
            break
    if busy is None:
        what = "the table changed each time that its files were looked at"
        raise BloomsealError(what, file=places[0][1], hint="read again, when fewer writers are at work")
    raise BloomsealError(
        "an overwrite is under way, or was cut off: some of the table's files may be old, others new",
        file=busy, hint="read again; the next overwrite mends what was cut off",
    )  # fmt: skip


def _above_partitions(folder: str) -> str:
    folder = folder.rstrip("/")
    while "=" in folder.rpartition("/")[2][1:]:
        folder = folder.rpartition("/")[0]
    return folder


def _state(base: str | None, folder: str) -> _SettledState:
    from pyarrow.fs import FileSelector, FileType, LocalFileSystem

    filesystem: FileSystem = open_filesystem(base) or LocalFileSystem()
    try:
        success, temporary = filesystem.get_file_info([f"{folder}/{name}" for name in (_SUCCESS, _TEMPORARY)])
        under_way = None
        if temporary.type is FileType.Directory and success.type is FileType.NotFound:
            jobs = filesystem.get_file_info(FileSelector(temporary.path, allow_not_found=True))
            under_way = next((job.path for job in jobs if job.type is FileType.Directory), None)
    except OSError:
        # Whoever lists it will say why it can't be looked at.
        return _SettledState((), None)
    return _SettledState((success.mtime_ns,), under_way)
