"""Where a file is: the one way that all rooms name a place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

__all__ = ["FileRef"]


@dataclass(frozen=True, slots=True)
class FileRef:
    """Where a data file is, for sources that keep key material beside it.

    Attributes:
        path: the path as its file system knows it.
        filesystem: None means local.
    """

    path: str
    filesystem: FileSystem | None = None
