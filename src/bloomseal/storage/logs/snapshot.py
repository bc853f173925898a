"""What a table's log says: the live files of one version, and what their rows are."""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import unquote

from ...core.errors import BloomsealError, MissingDependencyError, PolicyError, UsageError
from ...core.storage.ref import FileRef
from ...core.text import articled

if TYPE_CHECKING:
    import pyarrow as pa

    from .iceberg_keys import IcebergFileKey, WrappedFileKey

T = TypeVar("T")
BOUNDS: Final = "smallest and greatest values"
PARTITIONS: Final = "partition values"
PREDICATE: Final = "a predicate that names it"
_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(/.*)", re.DOTALL)
_SCHEMES: Final = {"s3": "s3", "gcs": "gs", "abfs": "abfss"}


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A file that a version of a table names.

    Attributes:
        path: on the table's file system; the URI as it stands where it leads to another one.
        partition: the values of partition columns, by name, as the log has them.
        told: what tells the file from another one that the log, or another table's, names likewise; empty: nothing.
        key: of the file, in an encrypted table.
        name: as the log spells it.
        deletes: what may delete rows of the file.
        elsewhere: the path leads to another file system than the table's.
    """

    path: str
    partition: Mapping[str, Any] = field(default_factory=dict)
    told: str = ""
    key: IcebergFileKey | WrappedFileKey | None = field(default=None, repr=False)
    name: str = ""
    deletes: tuple[DeleteFile, ...] = ()

    @property
    def elsewhere(self) -> bool:
        return _URI.match(self.path) is not None


class DeleteKind(StrEnum):
    """How a delete file says which rows were deleted."""

    VECTOR = "a deletion vector"
    POSITIONS = "position deletes"
    VALUES = "equality deletes"


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A file, or of a deletion vector the part of one, that says which rows of others were deleted.

    Attributes:
        file: where it is, and its key.
        records: rows that it deletes, or has.
        columns: of equality deletes, those that are compared.
        offset, size: of a deletion vector, its bytes in the (opened) file.
        length: of an encrypted deletion vector's file; None: as the storage has it.
        data_file: of position deletes, the only file that they are about; None: the manifest does not say.
    """

    file: LiveFile
    kind: DeleteKind
    records: int
    columns: tuple[str, ...] = ()
    offset: int = 0
    size: int = 0
    length: int | None = None
    data_file: str | None = None


def told_apart(*facts: Any) -> str:
    """What a log tells of a file beside its name, in one word: `LiveFile.told`.

    A table that was dropped and made again of files of the same names has another log; a file that was taken out, and
    one of its name put in, was written at another time.
    """
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Naming:
    """How a table's log finds its columns in a file.

    Attributes:
        names: of the table's columns and what is inside them, as `fields_in` has them.
        ids: column → id, where files are matched by ids; empty where by names.
        mapped: column → id in files that bear no ids; None: the log does not say.
        doubted: a column that the log knows by two names or ids, so that no file can be asked by names; None: there is
            none.
    """

    names: tuple[str, ...] = ()
    ids: Mapping[str, int] = field(default_factory=dict)
    mapped: Mapping[str, int] | None = None
    doubted: str | None = None


@dataclass(frozen=True)
class LogPlaces:
    """Where a file lies that an Iceberg table's metadata, or a delete file, name.

    Attributes:
        location: the table's, as the metadata have it; what is named below it lies below `folder`, wherever the table
            was copied to. None: a copy of the metadata elsewhere, which tells nothing of that.
        folder: the table's.
        local: it is on this machine's own file system.
        strict: refuse what is named elsewhere.
    """

    location: str | None
    folder: str
    local: bool
    strict: bool = False

    def __call__(self, place: str) -> str:
        """The path on the table's file system; a URI as it is, where it leads to another one.

        Raises:
            PolicyError: it is not below the location that the metadata say.
        """
        inside = None if self.location is None else below(place, self.location)
        if inside is not None:
            return f"{self.folder.rstrip('/')}/{inside}"
        if self.strict:
            raise PolicyError("the metadata name a file outside of the table's location", file=place)
        return _placed(place, self.folder, local=self.local)


@dataclass(frozen=True)
class Snapshot:
    """One version of a table.

    Attributes:
        version: its number or id, as the log has it.
        schema: of its rows, partition columns among them.
        files: the live files, in the order of their paths.
        deletes: the files that say which rows were deleted.
        path_of: where a file lies that the log, or a delete file, names.
        compared: `schema`, with columns that the table no longer has and that deletes compare; None: there are none.
        naming: how columns are found in files.
        stored: partition columns that the files store as a rule: the log's value counts only where one does not.
    """

    version: int | str | None
    schema: pa.Schema
    files: tuple[LiveFile, ...]
    deletes: tuple[DeleteFile, ...] = ()
    naming: Naming = field(default_factory=Naming)
    stored: tuple[str, ...] = ()
    path_of: LogPlaces | None = field(default=None, repr=False, compare=False)
    compared: pa.Schema | None = field(default=None, repr=False)

    def without_files(self) -> Snapshot:
        """What holds for all files, for processes that are told of some."""
        return replace(self, files=(), deletes=())


@dataclass
class History:
    """All that a log still describes.

    Attributes:
        paths: every file that any retained version names, or has removed.
        versions: how many versions are retained.
        problems: what of the log could not be read, in words: there may be more files.
        elsewhere: folders outside of the table's, where the log says that its files go.
        held: file of the log → column → what of the column's values stands in it.
    """

    paths: set[str] = field(default_factory=set)
    versions: int = 0
    problems: list[str] = field(default_factory=list)
    elsewhere: set[str] = field(default_factory=set)
    held: dict[str, dict[str, set[str]]] = field(default_factory=dict)

    def hold(self, file: str, column: str, what: str) -> None:
        """A file of the log holds values of a column."""
        self.held.setdefault(file, {}).setdefault(column, set()).add(what)


def fields_in(fields: Iterable[pa.Field], above: str = "") -> Iterator[tuple[str, pa.Field]]:
    """Dotted path and field of columns and of all that is inside them. Elements of lists are called ``list.element``,
    those of maps ``map.key`` and ``map.value``.
    """
    import pyarrow as pa

    types = pa.types
    lists = (types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_list_view, types.is_large_list_view)
    for one in fields:
        yield (path := above + one.name), one
        kind, inner = one.type, []
        if types.is_struct(kind):
            inner = [*kind]
        elif types.is_map(kind):
            inner = [kind.key_field.with_name("key"), kind.item_field.with_name("value")]
        elif any(is_list(kind) for is_list in lists):
            inner = [kind.value_field.with_name("element")]
        yield from fields_in(inner, f"{path}.")


def library(name: str, extra: str, load: Callable[[], T]) -> T:
    """An optional library.

    Raises:
        MissingDependencyError: it isn't installed.
    """
    try:
        return load()
    except ImportError:
        pass
    raise MissingDependencyError(f"this needs the library {name}", hint=f"pip install 'bloomseal[{extra}]'")


def opened(ref: FileRef, load: Callable[[], T]) -> T:
    """What a library makes of a table.

    Raises:
        UsageError: it can't; its own words may name other places.
    """
    try:
        return load()
    except BloomsealError:
        raise
    except Exception as error:
        failed = type(error).__name__
    raise UsageError(f"the table can't be opened ({failed})", file=ref.path)


def location(ref: FileRef) -> str:
    """A place as table libraries take it.

    Raises:
        UsageError: on a file system that they don't know.
    """
    if ref.filesystem is None:
        return ref.path
    if (scheme := _SCHEMES.get(ref.filesystem.type_name)) is None:
        raise UsageError(f"tables on {articled(ref.filesystem.type_name)} file system can't be opened", file=ref.path)
    return f"{scheme}://{ref.path}"


def below(place: str, location: str) -> str | None:
    """The path of a place below a table's location; None where it is elsewhere."""
    inside = place.removeprefix(f"{location.rstrip('/')}/")
    odd = posixpath.normpath(inside) != inside or inside.startswith("/") or inside.split("/")[0] == ".."
    return None if inside == place or odd else inside


def in_table(name: str, ref: FileRef) -> str:
    """Where a file lies that a Delta log names, as `LogPlaces` has it. Delta percent-encodes its paths; Iceberg writes
    them down as they are, ``p=a%2Fb`` being the folder's own name.
    """
    return _placed(unquote(name), ref.path, local=ref.filesystem is None)


def _placed(name: str, folder: str, *, local: bool) -> str:
    if (uri := _URI.match(name)) is None:
        return name if name.startswith("/") else f"{folder.rstrip('/')}/{name}"
    scheme, host, path = uri.groups()
    if (scheme.lower() == "file") != local:
        return name
    return path if local else "/".join(part for part in (host or "", path.lstrip("/")) if part)
