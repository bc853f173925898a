"""A table, or one file, opened by its place."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast

import pyarrow as pa

from ..core.decryption import DecryptionSpec
from ..core.errors import BloomsealWarning, UsageError
from ..core.parquet.expectation import Expectation
from ..core.spelling import nearest, need_our_names
from ..read.open import open_file
from ..read.without_key import WithoutKey, checked_without_key
from ..specs import PolicyArguments, iceberg_unwrap, resolve_policy
from ..storage.discovery.tables import Places, find_files, is_one_file
from ..storage.places import FilePlace
from .query.partitions import Partitions
from .query.parts import TableParts
from .query.workers import workers
from .sealed import SealedTable

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

    from ..policy import PolicyChoice, TablePolicy
    from ..storage.discovery.kinds import FoundFile
    from ..storage.discovery.tables import TableFiles


class OpenTableOptions(PolicyArguments, total=False):
    """The options of `open_table`, for other calls that open a table. See there."""

    decryption: DecryptionSpec | PolicyChoice | None
    version: int | None
    filesystem: FileSystem | None
    partitions: bool
    partition_types: pa.Schema | None
    follow_links: bool
    use_index: Literal["never", "auto", "require"]
    trust: Literal["auto", "time", "identity"]
    columns_without_key: WithoutKey


def open_table(
    path: Places,
    *,
    decryption: DecryptionSpec | PolicyChoice | None = None,
    version: int | None = None,
    filesystem: FileSystem | None = None,
    partitions: bool = True,
    partition_types: pa.Schema | None = None,
    follow_links: bool = False,
    use_index: Literal["never", "auto", "require"] = "auto",
    trust: Literal["auto", "time", "identity"] = "auto",
    columns_without_key: WithoutKey = "error",
    **policy: Unpack[PolicyArguments],
) -> SealedTable:
    """Open a table: list its files, and nothing more.

    Args:
        path: a folder, a pattern (``day=2024-*/*.parquet``), a list of files and folders, a Delta table, an Iceberg
            table (its folder or a ``….metadata.json``), or one file. Which files of a folder count:
            docs/adr/0012-one-rule-of-discovery.md.
        decryption: keys and expectations for all files, or a policy; None for plaintext files.
        version: a Delta table's version, or the id of an Iceberg table's snapshot; None: the current one.
        filesystem: where the path is; None: local, or a URI.
        partitions: folders such as ``country=DE`` give columns. Nothing seals their names: where columns may be sealed,
            `decryption` says which of them are folders (``partition_by``).
        partition_types: types of such columns, where they shall not be inferred (``zip=07495``).
        follow_links: take files to which links lead out of the folder.
        use_index: ``auto`` asks the sealed indexes that the table has (docs/sealed-index.md), ``never`` does not,
            ``require`` refuses a look-up for which an index does not answer for every file.
        trust: by which an index knows files again: ``auto`` by inode, size and times on this machine, by tags in
            stores whose client tells them, by names where a table's log keeps them; ``time`` in stores also by size and
            time; ``identity`` opens every covered file's footer, and authenticates it.
        columns_without_key: for all reads of the table, see `SealedFile.read`. A file whose key of a column is at hand
            gives its values beside the nulls of others; ``drop`` leaves out a column that is null so in any file.
        policy: ``policy=`` and ``table=``, see `bloomseal.specs.PolicyArguments`.

    Raises:
        UsageError: nothing there; a folder without Parquet or ORC files, or a part of it that can't be listed.
        PolicyError: a folder's name, or a log, gives the values of a column that may be a sealed one.
        UnsupportedError: a table whose log says more than which files are live.
        MissingDependencyError: a Delta or Iceberg table, and not its library.
    """
    if partition_types is not None and not isinstance(partition_types, pa.Schema):
        what = f"partition_types= takes a pyarrow schema, not {type(partition_types).__name__}"
        raise UsageError(what, hint='pyarrow.schema({"zip": pyarrow.string()})')
    opening, iceberg = resolve_policy(DecryptionSpec, decryption, path, filesystem, **policy), None
    if opening is not None and opening.iceberg is not None:
        from ..storage.logs.iceberg_encrypted import IcebergOpening  # few tables need it

        iceberg = IcebergOpening(opening.iceberg, iceberg_unwrap(opening))
    found = find_files(path, filesystem, version=version, follow_links=follow_links, iceberg=iceberg)
    if found.snapshot is not None:
        known = Partitions.of_log(found.files, found.live, found.snapshot)
    elif partitions:
        known = Partitions.of_folders(found.files, partition_types)
        _tell_of_folders_above(found.files, known)
        if partition_types is not None and (
            odd := [name for name in partition_types.names if name not in known.values]
        ):
            near = ", ".join(nearest(odd[0], list(known.values)))
            what = "partition_types= names a column that no folder gives"
            raise UsageError(what, column=odd[0], hint=f"one of {near}" if near else None)
    else:
        known = Partitions({})
    if not known.stored:
        for name in known.values:
            Expectation.of_table(opening).outside(name)
    without = checked_without_key(columns_without_key)
    place = path, filesystem
    parts = TableParts(found.files, known, found.snapshot, opening, follow_links, place, without)
    if found.snapshot is not None and found.snapshot.deletes:
        from .query.deletes import DeleteReader  # few tables need it

        parts = replace(parts, deletes=DeleteReader())
    return SealedTable(parts, use_index, trust)


def open_whole(
    path: Places,
    decryption: DecryptionSpec | TablePolicy | None,
    filesystem: FileSystem | None = None,
    *,
    follow_links: bool = False,
) -> tuple[SealedTable, TableFiles]:
    """As `open_table`, with every file that anybody reads, visible Parquet files of other names too; and what else lies
    there. Of a table with a log the files are those that its newest version names.

    Raises:
        UsageError: something could not be looked at. And as `open_table`.
    """
    found = find_files(path, filesystem, everything=True, follow_links=follow_links)
    for problem in found.problems:
        raise UsageError(problem.why, file=problem.path, hint=problem.hint)
    if found.logs:
        return open_table(path, decryption=decryption, filesystem=filesystem, follow_links=follow_links), found
    known = Partitions.of_folders(found.files)
    for name in known.values:
        Expectation.of_table(decryption).outside(name)
    return SealedTable(TableParts(found.files, known, None, decryption, follow_links, (path, filesystem))), found


def _tell_of_folders_above(files: Sequence[FoundFile], known: Partitions) -> None:
    """Warn where files or folders were named one by one, as shells do with ``lake/*/*.parquet``, and what tells their
    rows apart stands above them: pyarrow and Spark leave such columns out, too.
    """
    above: dict[str, set[str | None]] = {}
    for root in {found.ref.path.removesuffix(found.relative) for found in files}:
        for part in root.split("/"):
            name, equals, value = part.partition("=")
            if equals and name and name not in known.values:
                above.setdefault(name, set()).add(value)
    if lost := sorted(name for name, values in above.items() if len(values) > 1):
        warnings.warn(
            f"{', '.join(lost)} in the names of folders above the given places: no column; name the table's folder "
            "instead, or a pattern in quotes",
            BloomsealWarning,
            stacklevel=3,
        )


def as_table(table: SealedTable | Places, options: OpenTableOptions) -> SealedTable:
    """A table that is open, or one opened with these options of `open_table`.

    Raises:
        UsageError: options for a table that is open already; and as `open_table`.
    """
    if not isinstance(table, SealedTable):
        return open_table(table, **options)
    if options:
        raise UsageError("the table is open already", hint="these options go to open_table: " + ", ".join(options))
    return table


@need_our_names
def read_table(
    path: Places,
    *,
    columns: Sequence[str] | None = None,
    where: Any = None,
    decryption: DecryptionSpec | PolicyChoice | None = None,
    version: int | None = None,
    filesystem: FileSystem | None = None,
    threads: int | None = None,
    int96_unit: str = "ns",
    columns_without_key: WithoutKey = "error",
    **policy: Unpack[PolicyArguments],
) -> pa.Table:
    """Read rows of one file, or of a table: `open_table(path).read(columns, where)`.

    Each file is pruned as `SealedFile.read` does it; the keys are resolved once for all that share them.

    Args:
        path: a file (also a file object, or bytes), a folder, a pattern, a list of files, a Delta or Iceberg table: as
            for `open_table`.
        columns, where, int96_unit, columns_without_key: as for `SealedFile.read`; also of the columns that stand in
            folders' names.
        decryption, version, policy: as for `open_table`.
        threads: files read at the same time; None: one per processor.

    Returns:
        The rows, in the order of the files' paths.

    Raises:
        UsageError: no such file, a folder without Parquet or ORC files, a column that no file has, or files whose types
            have none in common.
        FormatError, IntegrityError, KeyAccessError, PolicyError: as for a single file; one bad file refuses the read.
    """
    if isinstance(path, SealedTable):
        raise UsageError("the table is open already", hint="table.read(columns, where)")
    workers(threads)
    if version is None and is_one_file(path, filesystem):
        with open_file(cast(FilePlace, path), decryption=decryption, filesystem=filesystem, **policy) as file:
            return file.read(columns, where, int96_unit=int96_unit, columns_without_key=columns_without_key)
    table = open_table(
        path,
        decryption=decryption,
        version=version,
        filesystem=filesystem,
        columns_without_key=columns_without_key,
        **policy,
    )
    return table.read(columns, where, threads=threads, int96_unit=int96_unit)
