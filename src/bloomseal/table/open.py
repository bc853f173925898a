"""A table of many files, read as one."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..errors import UsageError
from ..read.file import open_file
from ..specs import DecryptionSpec
from ..storage.ref import FileRef
from ..storage.source import FilePlace, resolve_path

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

    from ..policy import TablePolicy

__all__ = ["list_files", "read_table"]

Path = FilePlace


def read_table(
    path: Path | Sequence[Path],
    *,
    columns: Sequence[str] | None = None,
    filters: Any = None,
    decryption: DecryptionSpec | TablePolicy | None = None,
    filesystem: FileSystem | None = None,
    threads: int | None = None,
) -> pa.Table:
    """Read rows of one file, of several, or of all Parquet files below a folder.

    Each file is pruned as `SealedFile.read` does it; the keys are resolved once for all that share them.

    Args:
        path: a file (also a file object, or bytes), a folder, or a list of files. In folders, names that begin with ``_`` or ``.`` are passed over.
        columns, filters: as for `SealedFile.read`.
        threads: files read at the same time; None: one per processor.

    Returns:
        The rows, in the order of the files' paths.

    Raises:
        UsageError: no such file, a folder without Parquet files, or files whose columns differ.
        FormatError, IntegrityError, KeyAccessError, PolicyError: as for a single file; one bad file refuses the read.
    """
    refs = list_files(path, filesystem)
    if filters is not None:
        from ..read.predicate import shared

        filters = shared(filters)

    def one(ref: FileRef) -> tuple[list[pa.Table], pa.Table | None]:
        with open_file(ref, decryption=decryption) as file:
            plan = file.plan(columns, filters)
            found = list(file.scan(plan))
            # Only the first file's schema is needed where nothing matches anywhere.
            return found, plan.empty if ref is refs[0] or found else None

    if len(refs) == 1:
        results = [one(refs[0])]
    else:
        with ThreadPoolExecutor(threads or os.cpu_count() or 1) as pool:
            results = list(pool.map(one, refs))
    empty = results[0][1]
    assert empty is not None  # noqa: S101
    for ref, (_, other) in zip(refs, results, strict=True):
        if other is not None and not other.schema.equals(empty.schema):
            raise UsageError(f"its columns are not those of {refs[0].path}", file=ref.path, hint="columns=[...]")
    return pa.concat_tables([empty, *(table for tables, _ in results for table in tables)])


def list_files(path: Path | Sequence[Path], filesystem: FileSystem | None = None) -> list[FileRef]:
    """The files that `path` names, folders searched through, in order.

    Raises:
        UsageError: nothing there, or a folder without Parquet files.
    """
    if isinstance(path, Iterable) and not isinstance(path, str | bytes | bytearray | memoryview | io.IOBase):
        return [ref for one in path for ref in list_files(one, filesystem)]
    ref = resolve_path(path, filesystem)
    if ref.filesystem is None and not os.path.isdir(ref.path):  # noqa: PTH112
        return [ref]
    from pyarrow.fs import FileSelector, FileType, LocalFileSystem

    store = ref.filesystem or LocalFileSystem()
    if store.get_file_info(ref.path).type is not FileType.Directory:
        return [ref]
    inside = sorted(info.path for info in store.get_file_info(FileSelector(ref.path, recursive=True)) if info.is_file)
    wanted = [FileRef(name, ref.filesystem) for name in inside if _is_data(name, ref.path)]
    if not wanted:
        raise UsageError("the folder holds no Parquet files", file=ref.path, hint="files named *.parquet*")
    return wanted


def _is_data(name: str, folder: str) -> bool:
    parts = PurePosixPath(name).relative_to(PurePosixPath(folder)).parts
    return ".parquet" in parts[-1] and not any(part.startswith(("_", ".")) for part in parts)
