"""The data files of a table, as Spark sees the folder and as Bloomseal's reader opens them, on the driver and on
executors.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from ..core.errors import UnsupportedError, UsageError
from ..core.text import articled
from ..storage.discovery import files
from ..storage.discovery.kinds import Listing, NothingThereError, TableLayout
from .versions import check_version

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem
    from pyspark.sql import SparkSession

    from ..policy import TablePolicy

# Hadoop's URIs are not percent-encoded.
_URI: Final = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?=/)(?://(?P<authority>[^/]*))?(?P<path>/.*)?$", re.DOTALL
)


_PATTERN: Final = re.compile(r"[*?\[{]")


@dataclass(frozen=True, slots=True)
class SparkTableFiles:
    """The files of a table.

    Attributes:
        base: URI of their file system, which executors open by themselves; None: local.
        names: their paths on it, sorted. What Spark takes for hidden is left out.
        log: the folder of a Delta, Iceberg or Hudi table in it, whose log says which files are live, and which of them
            it is; None where there is none.
    """

    base: str | None
    names: tuple[str, ...]
    log: tuple[str, TableLayout] | None = None

    def need_no_log(self) -> None:
        """Refuse to write among files that a log names: readers would see none of the new ones, or miss the old ones.

        Raises:
            UnsupportedError: there is such a log.
        """
        if self.log is not None:
            folder, layout = self.log
            raise UnsupportedError(
                f"the folder is {articled(layout)} table, whose log names its files and keeps their sizes",
                file=folder,
                hint="another folder; the log would not name what is written here",
            )


def list_files(spark: SparkSession, path: str | os.PathLike[str], *, to_write: bool = False) -> SparkTableFiles:
    """The data files below a folder; also those without a byte, which Spark passes over when it reads.

    Args:
        to_write: the folder need not be there yet.

    Raises:
        NothingThereError: there is no such folder: a job over nothing must not look like one that found nothing.
        UsageError: a file, a file system that the driver can't open, or what can't be listed: a link out of the table
            too.
    """
    return files_at(qualified(spark, path), to_write=to_write)


def files_at(path: str, *, to_write: bool = False) -> SparkTableFiles:
    """As `list_files`, of a path or URI as Hadoop spells it."""
    try:
        base, found = listing_of(path)
    except NothingThereError:
        if to_write:
            return SparkTableFiles(split_uri(path)[0], ())
        raise
    if found.root is None:
        raise UsageError("a table is a folder, and this is a file", file=path)
    root = found.root.path
    logs = [(f"{root}/{folder}".rstrip("/"), layout) for folder, layout in sorted(found.tables.items())]
    return SparkTableFiles(base, tuple(sorted(one.ref.path for one in found.files)), logs[0] if logs else None)


def listing_of(path: str) -> tuple[str | None, Listing]:
    """What lies at a path or URI, as Hadoop spells them, and the `base` of `SparkTableFiles`: whatever is not hidden,
    by one rule of `bloomseal.storage.discovery.files`.

    Raises:
        NothingThereError: nothing.
        UsageError: a part of it can't be listed, or a link leads out of it.
    """
    base, inside = split_uri(path)
    try:
        found = files.list_files(inside, open_filesystem(base), any_name=True)
    except NothingThereError:
        raise NothingThereError("there is no such path", file=path) from None
    for problem in found.problems:
        raise UsageError(problem.why, file=problem.path, hint=problem.hint)
    return base, found


def in_folder(table: TablePolicy, path: str) -> TablePolicy:
    """The policy of the table at this path or URI. A root that was said wins.

    The one place where a job's table and its policy meet: AAD prefixes with ``{path}`` start from there.
    """
    base, folder = split_uri(path)
    if table.root is None:
        return table.at(folder)
    # Relative to this process, not to an executor.
    return table if base is not None else table.at(os.path.abspath(table.root))  # noqa: PTH100


def classic_jvm(spark: SparkSession) -> Any:
    """The session's JVM, as py4j shows it.

    Raises:
        UsageError: Spark Connect, where there is none.
        UnsupportedError: a Spark before 4.0.
    """
    check_version()
    jvm = getattr(spark, "_jvm", None) if hasattr(spark, "_jsparkSession") else None
    if jvm is None:
        raise UsageError(
            "this needs a session with a JVM of its own, which Spark Connect does not give",
            hint='a classic session (spark-submit); over Connect, spark.read.format("bloomseal")',
        )
    return jvm


def qualified(spark: SparkSession, path: str | os.PathLike[str]) -> str:
    """A path as Spark understands it in this session, with its file system."""
    filesystem, place = _in_hadoop(spark, path)
    return str(filesystem.makeQualified(place).toString())


def matching(spark: SparkSession, path: str | os.PathLike[str]) -> list[str]:
    """As `qualified`, a pattern (``day=2024-0*``) as all that it matches.

    Raises:
        UsageError: it matches nothing.
    """
    filesystem, place = _in_hadoop(spark, path)
    if not _PATTERN.search(os.fspath(path)) or filesystem.exists(place):
        return [qualified(spark, path)]
    if not (found := filesystem.globStatus(place)):
        raise UsageError("nothing matches the pattern", file=os.fspath(path))
    return [str(one.getPath().toString()) for one in found]


def above_pattern(spark: SparkSession, path: str | os.PathLike[str]) -> str | None:
    """The folder in front of the first part that is a pattern, as `qualified`: a table of which the matches are parts.
    None where the path is no pattern.
    """
    parts = os.fspath(path).split("/")
    first = next((place for place, part in enumerate(parts) if _PATTERN.search(part)), None)
    if first is None or matching(spark, path) == [qualified(spark, path)]:
        return None
    return qualified(spark, "/".join(parts[:first]) or ("/" if first else "."))


def _in_hadoop(spark: SparkSession, path: str | os.PathLike[str]) -> tuple[Any, Any]:
    place = classic_jvm(spark).org.apache.hadoop.fs.Path(os.fspath(path))
    return place.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()), place


def open_filesystem(base: str | None) -> FileSystem | None:
    """The file system of `SparkTableFiles.base`.

    Raises:
        UsageError: it can't be opened from here.
    """
    return None if base is None else _open(base)[0]


def split_uri(path: str) -> tuple[str | None, str]:
    """A path or URI, as Hadoop spells them, as the `base` of `SparkTableFiles` and the path on it, absolute.

    Raises:
        UsageError: a file system that can't be opened from here.
    """
    found = _URI.match(path)
    if found is None or found["scheme"] == "file":
        return None, os.path.abspath(found["path"] if found else path)  # noqa: PTH100  # links stay as they are
    scheme = "s3" if found["scheme"] in ("s3a", "s3n") else found["scheme"]
    base = f"{scheme}://{found['authority'] or ''}/"
    return base, f"{_open(base)[1].rstrip('/')}{found['path'] or ''}"


@lru_cache(maxsize=8)
def _open(base: str) -> tuple[FileSystem, str]:
    from pyarrow.fs import FileSystem

    try:
        opened: tuple[FileSystem, str] = FileSystem.from_uri(base)
    except (OSError, ValueError) as error:
        raise UsageError(f"can't look at files of {base}: {type(error).__name__}") from None
    return opened
