"""The place of a file, named in one way by all rooms."""

from __future__ import annotations

import os
import posixpath
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import Hint, PolicyError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


@dataclass(frozen=True, slots=True)
class FileRef:
    """The place of a data file, for sources that keep key material beside it.

    Attributes:
        path: the path as its file system knows it.
        filesystem: None means local.
        root: the folder of the table that led to the file; None where the file was named itself.
        like: a local file that the one here is made from; what lies beside it is then no more open than that.
        named: False for a file object, whose place nobody knows.
        fresh: a new file, which replaces none that another writer has put there meanwhile.
    """

    path: str
    filesystem: FileSystem | None = None
    root: str | None = field(default=None, compare=False)
    like: str | None = field(default=None, compare=False)
    named: bool = field(default=True, compare=False)
    fresh: bool = field(default=False, compare=False)


def below(root: str, ref: FileRef) -> str | None:
    """The path from a folder on the same file system to a file or folder in it; None: it lies elsewhere."""
    if ref.filesystem is None:
        path = os.path.relpath(os.path.abspath(ref.path), os.path.abspath(root))  # noqa: PTH100
    else:
        path = posixpath.relpath(f"/{ref.path}", f"/{root}")
    return None if path.split("/")[0] == ".." else path


def path_in_table(ref: FileRef, root: str | None, table: str, what: str) -> str:
    """The path from a table's folder to a file.

    Args:
        root: the folder, where that was said; it wins over the one that the file was found below.
        what: needs it, for messages.

    Raises:
        PolicyError: nobody said where the folder is, or the file is not in it.
    """
    if (folder := root or ref.root) is None or not ref.named:
        why = f"{what} has the file's place, and where the folder of table {table} is was not said"
    elif (path := below(folder, ref)) is None:
        why = f"the file is not in the folder of table {table}, which is {folder}"
    else:
        return path
    raise PolicyError(why, file=ref.path, hint=Hint.TABLE_ROOT)
