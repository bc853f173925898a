"""The metadata files of an Iceberg table: which one counts, what it says, and what the library may read by it."""

from __future__ import annotations

import gzip
import io
import os
import posixpath
import re
from collections.abc import Callable
from typing import Any, Final

from ...core.errors import UsageError
from ...core.storage.local import open_regular
from ...core.storage.ref import FileRef
from ...core.storage.source import refusal
from ..formats import METADATA_ENDINGS
from ..places import names_in, open_source
from .decoded import most_decoded, need_avro, need_readable
from .snapshot import below, library, location, opened

NUMBER: Final = re.compile(r"v?(\d+)(?:-[^/]*)?(?:\.gz)?\.metadata\.json(?:\.gz)?")
"""The name of a metadata file, with its number."""
_HINT: Final = "version-hint.text"
_PACKED: Final = ".gz.metadata.json"
_SAME: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "wasbs": "wasb"}
"""Schemes by which one file system is named in several ways."""


def read_metadata(ref: FileRef) -> bytes:
    """The JSON of one metadata file.

    Raises:
        FormatError: it is too long.
        UsageError: it can't be read.
    """
    with open_source(ref) as source:
        need_readable(source.size, ref.path)
        data = bytes(source.read(0, source.size))
    if not ref.path.endswith(_PACKED):
        return data
    text = opened(ref, lambda: _unpacked(data))
    need_readable(len(text), ref.path, len(data))
    return text


def _unpacked(data: bytes) -> bytes:
    """The text, or as much of it as tells that there is too much. Not counted beforehand by another decoder: they do
    not agree about what may stand between two parts.
    """
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
        return stream.read(most_decoded(len(data)) + 1)


def load(ref: FileRef, data: bytes, folder: FileRef) -> Any:
    """The table that one metadata file describes, as the library has it; folder: the table's."""
    table = library("pyiceberg", "iceberg", _pyiceberg)
    return opened(ref, lambda: table(location(ref), data, location(folder), in_its_folder(ref)))


def in_its_folder(metadata: FileRef) -> bool:
    """Whether a metadata file lies where tables have theirs. A copy elsewhere tells nothing of where the table is."""
    return posixpath.basename(posixpath.dirname(metadata.path)) == "metadata"


def newest_metadata(ref: FileRef) -> tuple[FileRef, FileRef, bool]:
    """The table's folder, its newest metadata file, and whether that is sure."""
    named = posixpath.basename(ref.path) if ref.path.endswith(METADATA_ENDINGS) else None
    inside = posixpath.dirname(ref.path) if named else posixpath.join(ref.path, "metadata")
    numbered: dict[int, list[str]] = {}
    for name in names_of(FileRef(inside, ref.filesystem)):
        if found := NUMBER.fullmatch(name):
            numbered.setdefault(int(found[1]), []).append(name)
    folder = FileRef(posixpath.dirname(inside) or ".", ref.filesystem)
    own = NUMBER.fullmatch(named) if named else None
    if named and not (own and posixpath.basename(inside) == "metadata"):
        # Named by a rule of its own: nothing beside it can be told to be newer.
        return folder, ref, False
    if not numbered:
        raise UsageError("an Iceberg table without metadata", file=ref.path)
    newest = max(numbered)
    if (hinted := _hint(FileRef(posixpath.join(inside, _HINT), ref.filesystem))) is not None and hinted > newest:
        raise UsageError(f"version-hint.text names version {hinted}, and its metadata are not there", file=ref.path)
    if own and int(own[1]) < newest:
        raise UsageError(
            f"newer metadata lie beside these: {numbered[newest][0]}",
            file=ref.path,
            hint="the folder, and a snapshot's id as the version",
        )
    if named:
        return folder, ref, len(numbered[newest]) == 1
    if len(numbered[newest]) > 1:
        raise UsageError(
            f"{len(numbered[newest])} metadata files are the newest; the catalog knows which one counts",
            file=ref.path,
            hint=f"name one of {', '.join(sorted(numbered[newest]))}",
        )
    return folder, FileRef(posixpath.join(inside, numbered[newest][0]), ref.filesystem), True


def names_of(ref: FileRef) -> list[str]:
    """What lies in a folder of metadata. Raises UsageError: nobody could look."""
    try:
        return names_in(ref)
    except OSError as error:
        raise refusal("the table's metadata can't be listed", ref.path, error) from error


def _hint(ref: FileRef) -> int | None:
    try:
        with open_source(ref) as source:
            text = bytes(source.read(0, min(source.size, 64))).decode("ascii", errors="replace").strip()
    except UsageError:
        return None
    return int(text) if text.isdecimal() else None


def _pyiceberg() -> Callable[[str, bytes, str, bool], Any]:
    from pyiceberg.catalog.noop import NoopCatalog
    from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
    from pyiceberg.manifest import read_manifest_list
    from pyiceberg.table import StaticTable
    from pyiceberg.table.metadata import TableMetadataUtil
    from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot

    class _Uncached(IcebergSnapshot):
        """Attack: the library keeps what a list says of a manifest by the manifest's place, and for all tables of the
        process. Whoever writes one table would say what the manifests of another are.
        """

        def manifests(self, io: Any) -> list[Any]:
            return list(read_manifest_list(io.new_input(self.manifest_list)))

    class _Counted(PyArrowFile):
        """A manifest, or a list of them: given to the decoder with what was counted of it."""

        def open(self, seekable: bool = True) -> Any:
            with super().open(seekable) as stream:
                need_readable(len(self), self.location)
                data = stream.read()
            need_avro(data, self.location)
            return io.BytesIO(data)

    class _Near(PyArrowFileIO):
        """What the metadata name is read from the file system that they lie on, and nowhere else."""

        def __init__(self, place: str | None, folder: str) -> None:
            super().__init__({})
            scheme = self.parse_location(folder)[0]
            self._place, self._folder = place, folder.rstrip("/")
            self._scheme = _SAME.get(scheme, scheme)

        def mapped(self, location: str) -> str:
            inside = None if self._place is None else below(location, self._place)
            return location if inside is None else f"{self._folder}/{inside}"

        def new_input(self, location: str) -> PyArrowFile:
            location = self.mapped(location)
            scheme, _, path = self.parse_location(location)
            if _SAME.get(scheme, scheme) != self._scheme:
                raise UsageError(f"the table's metadata lead to another kind of storage: {scheme}")
            if scheme == "file":
                os.close(open_regular(path))
            file = super().new_input(location)
            return _Counted(location, file._path, file._filesystem)

    def table(location: str, data: bytes, folder: str, mapped: bool) -> StaticTable:
        # `StaticTable.from_metadata` takes the metadata's own properties for settings: whoever writes them would name
        # the class that reads files, which is imported and called, and the endpoint that credentials are shown to.
        metadata = TableMetadataUtil.parse_raw(data.decode())
        snapshots = [_Uncached.model_construct(**dict(one)) for one in metadata.snapshots]
        metadata = metadata.model_copy(update={"snapshots": snapshots})
        files = _Near(metadata.location if mapped else None, folder)
        return StaticTable(("static-table", location), metadata, location, files, NoopCatalog("static-table"))

    return table
