"""What can be done with a file, done with a table wherever one is named instead."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack, cast

from ..core.decryption import DecryptionSpec
from ..read.open import inspect_file, open_file
from ..specs import resolve_policy
from ..storage.discovery.tables import Places, find_files, is_one_file
from ..storage.places import FilePlace

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileSystem

    from ..format.verify import VerifyReport
    from ..policy import PolicyChoice
    from ..read.answers import FileAnswer, TableAnswer
    from ..specs import PolicyArguments
    from ..write.attach import Progress
    from ..write.writer import FilterRequest
    from .report import TableVerifyReport

Path = str | os.PathLike[str]


def probe(
    path: Places,
    column: str,
    values: Sequence[Any] | pa.Array | pa.ChunkedArray,
    *,
    decryption: DecryptionSpec | PolicyChoice | None = None,
    filesystem: FileSystem | None = None,
    **policy: Unpack[PolicyArguments],
) -> FileAnswer | TableAnswer:
    """`open_file(path).probe(column, values)`, or of a table `open_table(path).probe(column, values)`.

    Returns:
        Of a file: one list per row group, one `Verdict` per value. Of a table: a dictionary, file → such lists. Each
        shows itself by row group, and tells `overall` verdicts.
    """
    if is_one_file(path, filesystem):
        with open_file(cast(FilePlace, path), decryption=decryption, filesystem=filesystem, **policy) as file:
            return file.probe(column, values)
    from .open import open_table

    return open_table(path, decryption=decryption, filesystem=filesystem, **policy).probe(column, values)


def verify(
    path: Places,
    *,
    decryption: DecryptionSpec | PolicyChoice | None = None,
    filesystem: FileSystem | None = None,
    filters: bool = False,
    **policy: Unpack[PolicyArguments],
) -> VerifyReport | TableVerifyReport:
    """`open_file(path).verify()`, or of a table `open_table(path).verify()`; both have ``ok`` and ``complete``.

    Args:
        filters: ask each filter for every value of its own column chunk, too. One that denies a value is a failure.
    """
    if is_one_file(path, filesystem):
        with open_file(cast(FilePlace, path), decryption=decryption, filesystem=filesystem, **policy) as file:
            return file.verify(filters=filters)
    from .open import open_table

    table = open_table(path, decryption=decryption, filesystem=filesystem, partitions=False, **policy)
    return table.verify(filters=filters)


def inspect(
    path: Places,
    *,
    decryption: DecryptionSpec | PolicyChoice | None = None,
    filesystem: FileSystem | None = None,
    **policy: Unpack[PolicyArguments],
) -> Any:
    """Look at a file: what anybody sees of it, and with `decryption` what its keys open of footer and metadata. Opens
    no page and no filter. `SealedTable.inspect` sums a table up.

    Returns:
        Of a file: an `Inspection`. Of a table: a list of them, in the order of its files.

    Raises:
        FormatError: neither a Parquet nor an ORC file, or a broken footer.
    """
    opening = resolve_policy(DecryptionSpec, decryption, path, filesystem, **policy)
    if is_one_file(path, filesystem):
        return inspect_file(cast(FilePlace, path), decryption=opening, filesystem=filesystem)
    return [inspect_file(file.ref, decryption=opening) for file in find_files(path, filesystem).files]


def attach_filters(
    path: Places,
    bloom_filters: FilterRequest,
    *,
    decryption: DecryptionSpec | PolicyChoice | None = None,
    filesystem: FileSystem | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
    **policy: Unpack[PolicyArguments],
) -> Any:
    """Add filters to a file, or to every file of a table, or replace those it has.

    Pages stay as they are, byte for byte; a filter is sealed where its column is. One in clear that is replaced becomes
    zeros. Of ORC files: docs/orc.md.

    Args:
        path: a file; or whatever `open_table` takes but Delta and Iceberg tables, whose logs keep the sizes of the
            files.
        bloom_filters: column → `FilterSpec`, or True for the default.
        decryption, policy: as for `open_table`.
        dry_run: tell sizes, write nothing.
        progress: called with (bytes done, bytes of all) of each file.

    Returns:
        Of a file: its report. Of a table: file → report.

    Raises:
        BloomsealError: a file can't be done. In a table the first such file ends it; those before it are done.
    """
    if is_one_file(path, filesystem):
        from ..write import attach

        how: dict[str, Any] = {"filesystem": filesystem, "dry_run": dry_run, "progress": progress}
        opening = resolve_policy(DecryptionSpec, decryption, path, filesystem, **policy)
        return attach.attach_filters(cast(Path, path), bloom_filters, decryption=opening, **how)
    from .open import open_table

    table = open_table(path, decryption=decryption, filesystem=filesystem, partitions=False, **policy)
    return table.attach(bloom_filters, dry_run=dry_run, progress=progress)
