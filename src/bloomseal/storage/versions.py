"""What tells one version of an object in a store from the next, as a listing has it."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..core.storage.ref import FileRef
from ..core.storage.source import refusal
from .objects import abstract_filesystem

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo

_TAGS: Final = ("ETag", "etag", "generation", "VersionId", "version_id")
"""As s3fs, gcsfs and adlfs call them; the first one counts, which listings tell as well as single looks. Arrow's own
clients tell none in a listing."""
_TAGGED: Final = frozenset(["s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"])
"""The protocols of these clients. A tag of another one may be made of size and second (WebDAV, by nginx), or be a weak
one (RFC 9110), which two versions may bear."""
_TIMES: Final = ("LastModified", "last_modified", "updated", "mtime", "modified", "created")


class ObjectVersion(NamedTuple):
    """A version of an object.

    Attributes:
        size: bytes.
        mtime: nanoseconds since 1970; 0 where nobody tells. Of S3 it is the second in which the upload began.
        tag: an entity tag, version or generation; empty where the client tells none.
    """

    size: int
    mtime: int
    tag: str


def version_at(ref: FileRef) -> ObjectVersion | None:
    """The version that is there now; None where there is none.

    Raises:
        UsageError: nobody could look.
    """
    from pyarrow.fs import FileType

    assert ref.filesystem is not None  # noqa: S101
    abstract = abstract_filesystem(ref.filesystem)
    try:
        if abstract is not None:
            abstract.invalidate_cache()
            return _of_fsspec(abstract.info(ref.path), abstract)
        info = ref.filesystem.get_file_info(ref.path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise refusal("can't look at the object", ref.path, error) from error
    return _of_arrow(info) if info.type is FileType.File else None


def versions_below(ref: FileRef) -> dict[str, ObjectVersion]:
    """The objects below a folder, by one listing: path → version.

    Raises:
        UsageError: it can't be listed.
    """
    from pyarrow.fs import FileSelector, FileType

    assert ref.filesystem is not None  # noqa: S101
    abstract = abstract_filesystem(ref.filesystem)
    try:
        if abstract is not None:
            abstract.invalidate_cache()
            found = abstract.find(ref.path, detail=True)
            return {path.lstrip("/"): _of_fsspec(info, abstract) for path, info in found.items()}
        entries = ref.filesystem.get_file_info(FileSelector(ref.path, recursive=True, allow_not_found=True))
    except (OSError, ValueError) as error:
        raise refusal("can't list the folder", ref.path, error) from error
    return {one.path.lstrip("/"): _of_arrow(one) for one in entries if one.type is FileType.File}


def _of_arrow(info: FileInfo) -> ObjectVersion:
    return ObjectVersion(int(info.size or 0), int(info.mtime_ns or 0), "")


def _of_fsspec(info: dict[str, Any], abstract: Any) -> ObjectVersion:
    below = abstract
    while below.protocol == "dir":
        below = below.fs
    given = below.protocol
    protocols = {given} if isinstance(given, str) else {*given}
    tag = ""
    if protocols & _TAGGED:
        tag = next((f"{name}={info[name]}" for name in _TAGS if info.get(name)), "")
    elif "memory" in protocols and below is abstract and info.get("type") == "file":
        # What is written into an object in memory ("r+b") changes none of its times.
        tag = f"blake2b={hashlib.blake2b(abstract.cat_file(info['name']), digest_size=16).hexdigest()}"
    return ObjectVersion(int(info.get("size") or 0), next(map(_nanoseconds, _given(info)), 0), tag)


def _given(info: dict[str, Any]) -> list[Any]:
    return [info[name] for name in _TIMES if info.get(name) is not None]


def _nanoseconds(value: Any) -> int:
    if isinstance(value, datetime):
        value = value.timestamp()
    return int(value * 1_000_000_000) if isinstance(value, int | float) else 0
