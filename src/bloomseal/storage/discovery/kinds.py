"""What a file's name makes of it, and what a look at a place finds. docs/adr/0012-one-rule-of-discovery.md says why."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from ...core.errors import MissingFileError, UsageError
from ...core.storage.ref import FileRef
from ...core.storage.source import Source
from ..folder import TEMPORARY_ENDING
from ..formats import named_format, says_data

if TYPE_CHECKING:
    from ..logs.iceberg_keys import IcebergFileKey, WrappedFileKey
    from ..logs.snapshot import DeleteFile

MATERIAL_PREFIX: Final = "_KEY_MATERIAL_FOR_"
SIGNATURE_PREFIX: Final = "_SIGNATURE_"
INDEX_FOLDER: Final = "_bloomseal_index"
"""In a table's folder: its sealed indexes, hidden from whoever reads the table."""
_HIDDEN: Final = re.compile(r"(?:^|/)(?:\.|_[^=/]*(?![^/]))|\._COPYING_(?![^/])")
"""In a path, a part that hides it. A table has tens of thousands of files, so this is one search for each."""

_OF_LOG: Final = re.compile(
    r"(?:(.*)/)?(?:_delta_log/(?:\d{20}\.(?:json|crc|\d{20}\.compacted\.json|checkpoint\.[^/]*(?:json|parquet))"
    r"|_last_checkpoint|_(?:staged_commits|commits)/\d{20}\.[^/]*\.json|_sidecars/[^./][^/]*)"
    r"|metadata/(?:[^/]*\.metadata\.json(?:\.gz)?|[^/]*\.(?:avro|stats|puffin)|version-hint\.text))"
)
_MARKS: Final = re.compile(r"(?:^|/)(?:_SUCCESS|_(?:committed|started)_\d+|_spark_metadata/\d+(?:\.compact)?)$")
_CHECKSUMS: Final = b"crc\0"


class NothingThereError(MissingFileError):
    """There is neither a file nor a folder."""


class UnseenError(UsageError):
    """Nobody could look, whatever is there: not seen is not absent."""


class FileKind(StrEnum):
    """What a file's name makes of it."""

    DATA = "data"
    """A reader's: the name says Parquet or ORC, and no part of its way is hidden."""
    OTHER = "other"
    """Visible, under a name that says nothing of either. Spark reads it all the same."""
    HIDDEN = "hidden"
    """In no table: a folder or name that begins with ``.``, or with ``_`` and has no ``=``, or ends ``._COPYING_``."""
    LEFTOVER = "leftover"
    """The temporary file, or the lock, of a writer that was killed, or is still at work."""
    DEAD = "dead"
    """In the folder of a table with a log, whose version asked for does not name it."""


class TableLayout(StrEnum):
    """What keeps the list of a table's files, where it is not the folder."""

    DELTA = "Delta"
    ICEBERG = "Iceberg"
    HUDI = "Hudi"


LOGS: Final = {"_delta_log": TableLayout.DELTA, ".hoodie": TableLayout.HUDI}
"""The folder that a table with a log has; of an Iceberg table it is ``metadata``, with such files in it."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file.

    Attributes:
        ref: where it is.
        relative: its path below the folder that was named; its name where it was named itself.
        kind: as its name has it.
        size: bytes, where the listing told it: other file systems do.
        told: by a table's log, see `bloomseal.storage.logs.snapshot.LiveFile`.
        key: of the file, where an encrypted table's manifest has it.
        name: as a table's log spells it.
        deletes: what may delete rows of the file, as a table's log has it.
    """

    ref: FileRef
    relative: str
    kind: FileKind
    size: int | None = field(default=None, compare=False)
    told: str = field(default="", compare=False)
    key: IcebergFileKey | WrappedFileKey | None = field(default=None, compare=False, repr=False)
    name: str = field(default="", compare=False, repr=False)
    deletes: tuple[DeleteFile, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class PlaceProblem:
    """A place that could not be looked at, and why; `leads_out`: since a link or a log leads there, out of the
    table.
    """

    path: str
    why: str
    leads_out: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"

    @property
    def hint(self) -> str | None:
        """What to try."""
        return "name its target too, or follow_links=True (--follow-links of a rotation)" if self.leads_out else None


@dataclass
class FolderContents:
    """What lies at a place, or at several.

    Attributes:
        files: in the order of their relative paths, each file once, however many links lead to it.
        sidecars: external key material.
        signatures: of files, beside them.
        problems: what could not be looked at.
        unsure: with `everything`, what is no problem for a reader, and may still lead to data, or become some: links of
            any name that lead nowhere, files of data that have no end yet, archives.
        logged: with `everything`, Parquet and ORC files in the logs of tables, under names that logs parse by
            themselves not: they are the log's own, which nobody rewrites.
        gone: with `everything`, files that were listed, and gone before they were opened.
        begun: with `everything`, files that begin as Parquet or ORC does, and don't end so: cut off, or unfinished.
        named: with `everything`, folders and files whose own names have ``=`` in them.
        unread: with `everything`, files that are neither data nor a table's metadata: nobody looks into them.
    """

    files: list[FoundFile] = field(default_factory=list)
    sidecars: list[FileRef] = field(default_factory=list)
    signatures: list[FileRef] = field(default_factory=list)
    problems: list[PlaceProblem] = field(default_factory=list)
    unsure: list[PlaceProblem] = field(default_factory=list)
    logged: list[FileRef] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    begun: list[FoundFile] = field(default_factory=list)
    named: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    def take_over(self, other: FolderContents) -> None:
        """All but the files."""
        for one in fields(FolderContents):
            if one.name != "files":
                getattr(self, one.name).extend(getattr(other, one.name))


@dataclass
class Listing(FolderContents):
    """What lies at one place.

    Attributes:
        tables: folders that hold a table with a log, and which; "" is the place itself.
        root: the folder that was searched; None where a file was named.
    """

    tables: dict[str, TableLayout] = field(default_factory=dict)
    root: FileRef | None = None


def is_hidden(relative: str) -> bool:
    """Whether any part of this path below a table is hidden, as Spark and Hive have it. ``_day=1`` is a partition, not
    hidden; a file that Hadoop is still copying is.
    """
    return _HIDDEN.search(relative) is not None


def is_of_index(relative: str) -> bool:
    """Whether it is a file of a table's sealed index (docs/sealed-index.md)."""
    return INDEX_FOLDER in relative.split("/")[:-1]


def table_of_log(relative: str) -> str | None:
    """The folder of the table in whose log a file stands, under a name that logs have; None: in none."""
    found = _OF_LOG.fullmatch(relative)
    return None if found is None else found[1] or ""


def is_mark(relative: str, source: Source) -> bool:
    """Whether it is an engine's mark, an empty file, or a Hadoop checksum."""
    return (
        source.size == 0
        or _MARKS.search(relative) is not None
        or (relative.endswith(".crc") and bytes(source.read(0, min(source.size, 4))) == _CHECKSUMS)
    )


def kind_of(relative: str) -> FileKind:
    """What the name of a file makes of it; `relative` is its path below the table's root."""
    name = posixpath.basename(relative)
    if is_hidden(relative):
        return FileKind.LEFTOVER if is_hidden(name) and name.endswith(TEMPORARY_ENDING) else FileKind.HIDDEN
    return FileKind.OTHER if named_format(name) is None else FileKind.DATA


def promises_data(name: str) -> bool:
    """Whether a hidden file is to become data, by its name. Hadoop's checksums have their file's name too."""
    return name.endswith(TEMPORARY_ENDING) or (says_data(name) and not name.lower().endswith(".crc"))
