"""Opening a file of either format: what it is, its end says, as Spark has it, and not its name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..core.storage.ref import FileRef
from ..core.storage.source import Source
from ..storage.formats import Format, format_of, named_format
from ..storage.places import FilePlace, open_source
from .file import SealedFile
from .verdict import Verdict

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileSystem

    from ..core.decryption import DecryptionSpec
    from ..format.inspect import Inspection
    from ..format.verify import VerifyReport
    from ..policy import TablePolicy

__all__ = ["inspect", "open_file", "probe", "verify"]


def _is_orc(source: Source) -> bool:
    # On a file system that is not local the question costs a request.
    if source.ref.filesystem is not None and named_format(source.name) is Format.PARQUET:
        return False
    # One that ends as neither, a truncated one, is refused as that which its name says.
    return (format_of(source) or named_format(source.name)) is Format.ORC


def open_file(
    path: FilePlace | FileRef,
    *,
    decryption: DecryptionSpec | TablePolicy | None = None,
    filesystem: FileSystem | None = None,
) -> SealedFile:
    """Open a Parquet or an ORC file: one read of its tail, of Parquet the footer opened or its signature verified.

    Args:
        path: local path, URI, or path on `filesystem`; a file object that can seek, or the file's bytes; or a place
            that was found in a table.
        filesystem: of pyarrow or fsspec.
        decryption: keys and expectations, or a table's policy (`Policy.for_table`); None for a plaintext file.

    Returns:
        Of an ORC file a `bloomseal.read.orc.file.SealedOrcFile`: what only Parquet has is refused there.

    Raises:
        FormatError, IntegrityError, KeyAccessError, PolicyError, UnsupportedError, UsageError.
    """
    source = open_source(path, filesystem)
    try:
        if _is_orc(source):
            from .orc.file import SealedOrcFile

            return SealedOrcFile(source, decryption)
        return SealedFile(source, decryption)
    except BaseException:
        source.close()
        raise


def inspect(path: FilePlace | FileRef, *, filesystem: FileSystem | None = None) -> Inspection:
    """Look at a file without a key. Opens, verifies and decrypts nothing.

    Raises:
        FormatError: neither a Parquet nor an ORC file, or a broken footer.
    """
    from ..format.inspect import inspect_parquet

    with open_source(path, filesystem) as source:
        if _is_orc(source):
            from .orc.inspect import inspect_orc

            return inspect_orc(source)
        return inspect_parquet(source)


def probe(
    path: FilePlace,
    column: str,
    values: Sequence[Any] | pa.Array | pa.ChunkedArray,
    *,
    decryption: DecryptionSpec | TablePolicy | None = None,
    filesystem: FileSystem | None = None,
) -> list[list[Verdict]]:
    """`open_file(path).probe(column, values)`."""
    with open_file(path, decryption=decryption, filesystem=filesystem) as file:
        return file.probe(column, values)


def verify(
    path: FilePlace,
    *,
    decryption: DecryptionSpec | TablePolicy | None = None,
    filesystem: FileSystem | None = None,
    filters: bool = False,
) -> VerifyReport:
    """`open_file(path).verify(filters=filters)`."""
    with open_file(path, decryption=decryption, filesystem=filesystem) as file:
        return file.verify(filters=filters)
