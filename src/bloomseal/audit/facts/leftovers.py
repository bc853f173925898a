"""Files that lie beside a table and are no part of it: hidden, staged, dead to the log, or left by a writer that was
killed.

No reader takes them, and everybody can read what stands in them in clear.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import posixpath
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ...core.errors import BloomsealError
from ...core.parquet.footer import Footer, FooterKind, peek
from ...core.parquet.layout import MAGIC, MAGIC_ENCRYPTED
from ...core.storage.local import open_regular
from ...core.storage.source import Source
from ...orc.layout import OrcLayout
from ...orc.tail import MAGIC as ORC
from ...storage import replacement
from ...storage.discovery.kinds import FileKind, FoundFile
from ...storage.places import open_source

_PAGE: Final = 0x15
"""How a page's header begins in clear (compact protocol: field 1, an i32). A sealed one begins with its length."""


class Content(StrEnum):
    """What a file holds, as everybody sees it."""

    PLAINTEXT = "plaintext"
    ENCRYPTED = "encrypted"
    NOTHING = "nothing"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Leftover:
    """A file beside a table.

    Attributes:
        path, root: where it is, and the folder that led there.
        kind: why it is no part of the table.
        content: what it holds.
        columns: those of a whole plaintext file, in order of their names; empty where they can't be told.
        why: for UNKNOWN.
    """

    path: str
    root: str | None
    kind: FileKind
    content: Content
    columns: tuple[str, ...] = ()
    why: str = ""


def target_of(path: str) -> str | None:
    """The file whose place a temporary file was to take; None where the name is no such one's."""
    folder, name = posixpath.split(path)
    target = replacement.target_of(name)
    return None if target is None else posixpath.join(folder, target)


def look_at(found: FoundFile) -> Leftover | None:
    """What lies there; None where a living writer has it, or it is gone. Never raises for what is in the file."""
    ref = found.ref
    if found.kind is FileKind.LEFTOVER and ref.filesystem is None and _at_work(ref.path):
        return None
    columns: tuple[str, ...] = ()
    try:
        with open_source(ref) as source:
            content, columns = _content(source, ref.path)
    except FileNotFoundError:
        return None
    except BloomsealError as error:
        return Leftover(ref.path, ref.root, found.kind, Content.UNKNOWN, why=error.what)
    return Leftover(ref.path, ref.root, found.kind, content, columns)


def _content(source: Source, path: str) -> tuple[Content, tuple[str, ...]]:
    if source.size == 0:
        return Content.NOTHING, ()
    head = bytes(source.read(0, min(source.size, 5)))
    if head[:4] == MAGIC_ENCRYPTED:
        return Content.ENCRYPTED, ()
    if head[:3] == ORC:
        return _orc_content(source)
    if head[:4] != MAGIC:
        # Key material and keyrings are no plaintext. What else was on its way to a file, rows as CSV say, is.
        json = (target_of(path) or path).endswith(".json")
        return (Content.ENCRYPTED if json else Content.PLAINTEXT), ()
    if source.size >= 12 and bytes(source.read(source.size - 4, 4)) == MAGIC:
        seen = peek(source)
        if seen.kind is not FooterKind.PLAINTEXT:
            return Content.ENCRYPTED, ()
        leaves = Footer(seen.clear, seen.offset, None, True).schema.leaves
        return Content.PLAINTEXT, tuple(sorted(leaf.name for leaf in leaves))
    # Cut off before its footer: only the first page tells.
    return (Content.PLAINTEXT if head[4:5] == bytes([_PAGE]) else Content.ENCRYPTED), ()


def _orc_content(source: Source) -> tuple[Content, tuple[str, ...]]:
    file = OrcLayout(source)  # refused without its footer, which alone tells what is encrypted
    if file.tail.sealed:
        return Content.ENCRYPTED, ()
    return Content.PLAINTEXT, tuple(sorted(leaf.name for leaf in file.schema.leaves))


def _at_work(path: str) -> bool:
    """Whether its writer lives. The lock says so, and is gone with the process; on a file that others can read it says
    nothing, since each of them could hold it to keep the file from being told.
    """
    with contextlib.suppress(OSError):
        fd = open_regular(path)
        try:
            if os.fstat(fd).st_mode & 0o077:
                return False
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
    return False
