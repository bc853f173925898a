"""The log of Spark's own streaming file sink.

It notes the files of each batch in ``_spark_metadata``, and Spark reads those and no others: what a batch that failed
has left beside them is not the table's. Its notes are ``0``, ``1``, ``2.compact``: a first line ``v1``, then one line
of JSON for each file.
"""

from __future__ import annotations

import json
import posixpath
import re
from typing import Final
from urllib.parse import unquote

from ....core.errors import BloomsealError, FormatError, UnsupportedError
from ....core.storage.ref import FileRef
from ....storage.logs.decoded import need_readable
from ....storage.places import open_source
from ...listing import open_filesystem, split_uri

SINK_LOG: Final = "_spark_metadata"
_NOTE: Final = re.compile(r"(\d+)(\.compact)?")


def sink_files(base: str | None, root: str) -> frozenset[str] | None:
    """The files that a streaming file sink has committed to this folder, as paths on its file system; None where there
    is no such log.

    Raises:
        FormatError: a log that can't be understood.
        BloomsealError: one that can't be read.
    """
    from pyarrow.fs import FileSelector, FileType, LocalFileSystem

    filesystem = open_filesystem(base) or LocalFileSystem()
    folder = posixpath.join(root, SINK_LOG)
    try:
        if filesystem.get_file_info(folder).type is not FileType.Directory:
            return None
        found = filesystem.get_file_info(FileSelector(folder))
        notes = {(int(note[1]), bool(note[2])): one.path for one in found if (note := _NOTE.fullmatch(one.base_name))}
        # A compacted note repeats all that were before it.
        first = max((number for number, compact in notes if compact), default=-1)
        wanted = [
            path for (number, compact), path in sorted(notes.items()) if number > first or (number == first and compact)
        ]
        live: dict[str, bool] = {}
        for path in wanted:
            with open_source(FileRef(path, open_filesystem(base))) as opened:
                need_readable(opened.size, path)
                live |= _noted(bytes(opened.read(0, opened.size)), path)
    except OSError as error:
        raise BloomsealError("a stream's log can't be read", file=folder) from error
    return frozenset(path for path, added in live.items() if added)


def need_no_stream(path: str) -> None:
    """Refuse to write where a stream's log names the files: no reader would see the new ones.

    Raises:
        UnsupportedError: there is such a log.
    """
    if sink_files(*split_uri(path)) is not None:
        raise UnsupportedError(
            "the folder is a table of a stream of Spark's file sink, whose log names its files",
            file=path,
            hint="another folder; the log would not name what is written here",
        )


def _noted(data: bytes, path: str) -> dict[str, bool]:
    """File → whether it was added, and not removed."""
    lines = data.decode(errors="replace").split("\n")
    try:
        if lines[0] != "v1":
            raise ValueError
        said = [json.loads(line) for line in lines[1:] if line]
        return {split_uri(unquote(one["path"]))[1]: one.get("action", "add") == "add" for one in said}
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise FormatError("a stream's log can't be understood", file=path) from None
