"""Where a file is, and opening it."""

from __future__ import annotations

import os
from functools import partial
from typing import IO, TYPE_CHECKING

from ..core.errors import UsageError
from ..core.storage.local import NO_NAME, can_name, open_regular, pread
from ..core.storage.ref import FileRef
from ..core.storage.source import Buffer, Source, refusal

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem, FileType

FilePlace = str | os.PathLike[str] | IO[bytes] | Buffer
"""A path or URI; a file object opened for bytes; to read from, also the bytes themselves."""


def open_source(path: FilePlace | FileRef, filesystem: FileSystem | None = None) -> Source:
    """Open a file, see `resolve_path`.

    Raises:
        MissingFileError: there is no such file.
        UsageError: it can't be opened.
    """
    ref = path if isinstance(path, FileRef) else resolve_path(path, filesystem)
    try:
        if ref.filesystem is None:
            fd = open_regular(ref.path)
            return Source(ref, os.fstat(fd).st_size, partial(pread, fd), partial(os.close, fd), fd)
        if not ref.named:
            from .objects import plain_file

            if (plain := plain_file(ref.filesystem)) is not None:
                return Source(ref, *plain, lambda: None)
        file = ref.filesystem.open_input_file(ref.path)
        return Source(ref, file.size(), lambda offset, length: file.read_at(length, offset), file.close)
    except (OSError, ValueError) as error:
        raise refusal("can't open the file", ref.path, error) from error


def is_object(value: object) -> bool:
    """Whether it is an open file, or bytes, rather than a path or several."""
    return isinstance(value, bytes | bytearray | memoryview) or any(
        hasattr(value, name) for name in ("read", "write", "to_pybytes")
    )


def resolve_path(path: FilePlace | FileRef, filesystem: FileSystem | None = None) -> FileRef:
    """Where a file is: the one place that tells.

    Args:
        path: a path; a URI such as ``s3://bucket/key``, which pyarrow or else fsspec knows; an open file; or bytes.
        filesystem: of pyarrow or fsspec; None means local.

    Raises:
        UsageError: none of these, or a location that can't be opened.
    """
    if isinstance(path, FileRef):
        return path
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str):
        if not is_object(path):
            kind = type(path).__name__
            hint = "with fsspec.open(...) as file" if kind == "OpenFile" else None
            raise UsageError(f"a path is a str or an os.PathLike of str, or an open binary file, not {kind}", hint=hint)
        from .objects import file_object

        own, name = file_object(path)
        if filesystem is not None:
            raise UsageError("a file object is on no file system", file=name, hint="filesystem=None")
        return FileRef(name, own, named=False)
    if filesystem is not None:
        from .objects import as_filesystem

        filesystem = as_filesystem(filesystem)
    elif "://" in text:
        from pyarrow.fs import FileSystem

        from .objects import TO_PYARROW, fsspec_location

        try:
            filesystem, text = fsspec_location(text) or FileSystem.from_uri(text)
        except (ValueError, OSError) as error:
            if isinstance(error, UsageError):
                raise
            if (scheme := text.partition("://")[0]) not in TO_PYARROW:
                what = f"no storage is known by the scheme {scheme}"
                raise UsageError(
                    what, file=text, hint="filesystem=, or pip install the library that fsspec asks"
                ) from error
            raise refusal("can't open the location", text, error) from error
    if getattr(filesystem, "type_name", None) == "local":
        # pyarrow's own local file system is local too, so that files are locked and renamed there.
        filesystem = None
    if filesystem is None and not can_name(text):
        raise UsageError(NO_NAME, file=text)
    return FileRef(text, filesystem)


def exists(ref: FileRef) -> bool:
    """Whether there is such a file, folder or link. Raises UsageError where nobody could look elsewhere."""
    return os.path.lexists(ref.path) if ref.filesystem is None else type_at(ref).name != "NotFound"


def is_file(ref: FileRef) -> bool:
    """Whether there is a file. Raises as `exists`."""
    return os.path.isfile(ref.path) if ref.filesystem is None else type_at(ref).name == "File"  # noqa: PTH113


def is_folder(ref: FileRef) -> bool:
    """Whether there is a folder. Raises as `exists`."""
    return os.path.isdir(ref.path) if ref.filesystem is None else type_at(ref).name == "Directory"  # noqa: PTH112


def names_in(ref: FileRef) -> list[str]:
    """What lies in a folder.

    Raises:
        OSError: there is no such folder, or nobody could look.
    """
    if ref.filesystem is None:
        return sorted(os.listdir(ref.path or "."))  # noqa: PTH208
    from pyarrow.fs import FileSelector

    return sorted(info.base_name for info in ref.filesystem.get_file_info(FileSelector(ref.path)))


def type_at(ref: FileRef) -> FileType:
    """What stands at a place on a file system that is not local.

    Raises:
        UsageError: nobody could look: not seen is not absent.
    """
    assert ref.filesystem is not None  # noqa: S101
    try:
        return ref.filesystem.get_file_info(ref.path).type
    except (OSError, ValueError) as error:
        raise refusal("can't look at the place", ref.path, error) from error
