"""Writing a table through Spark, and looking at what came of it: a misspelt option writes plaintext and says
nothing.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from ...core.columns import covers, nearest_entry
from ...core.errors import BloomsealError, KeyAccessError, MissingFileError, PolicyError, UnsupportedError, UsageError
from ...core.parquet.expectation import Expectation
from ...core.parquet.footer import FooterKind, peek
from ...core.parquet.statistics import all_null
from ...core.storage.ref import FileRef
from ...keytools.recipients.recipient import recipients_of, version_name
from ...keytools.signatures.signers import need_signed
from ...policy import Policy, TablePolicy
from ...read.parquet import ParquetFile, need_parquet
from ...storage.discovery.kinds import NothingThereError
from ...storage.formats import Format, named_format
from ...storage.places import open_source
from ...table.query.partitions import columns_of_folders
from ..given import PARTITION_OVERWRITE
from ..guarding import deletes_late
from ..listing import SparkTableFiles, in_folder, list_files, open_filesystem, qualified
from ..opening import check_protection, open_table_file
from ..session import as_active, chosen_table, settings_for
from ..settings import promised, stored_columns, writer_options
from .failures import told_by
from .turns import in_turn

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameWriter, SparkSession

    from ...index.update import UpdateReport
    from ...sbbf import FilterSpec

_THREADS: Final = 8
_SHOWN: Final = 10
_MODES: Final = ("append", "overwrite", "error", "errorifexists", "ignore")


@dataclass(frozen=True, slots=True)
class WriteReport:
    """What was written and checked.

    Attributes:
        path: the table.
        files: the new files; of each what `check_table` looks at is as the policy has it.
        rows, row_groups: in them.
        filters: sealed filters that were opened.
        filter_bytes: their bytes.
        indexes: column → what became of the sealed index that the policy wants of it.
        opened: False where the files are for recipients, and nothing here opens them. Then only that their footers are
            sealed, to these recipients, was looked at, and the numbers are 0.
    """

    path: str
    files: tuple[str, ...]
    rows: int
    row_groups: int
    filters: int
    filter_bytes: int
    indexes: Mapping[str, UpdateReport] = field(default_factory=dict)
    opened: bool = True

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        indexes = {column: one.to_dict() for column, one in self.indexes.items()}
        return {**asdict(replace(self, indexes={})), "files": list(self.files), "indexes": indexes}


@dataclass(frozen=True, slots=True)
class _Checked:
    path: str
    rows: int = 0
    row_groups: int = 0
    filters: int = 0
    filter_bytes: int = 0
    fault: str | None = None


def write(
    df: DataFrame,
    path: str | os.PathLike[str],
    *,
    policy: Policy | TablePolicy | str | os.PathLike[str] | None = None,
    table: str | None = None,
    mode: str = "error",
    partition_by: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    rebalance: bool = False,
) -> WriteReport:
    """Write a frame, encrypted and with filters as the policy has it, and check every new file. Then the sealed indexes
    that the policy wants are built, or brought up to date.

    Args:
        df: rows of a session that `enable` was called for.
        path: the table's folder, as Spark takes it.
        policy, table: see `options`. Default: the policy that `enable` was given.
        mode: ``error``, ``append``, ``overwrite`` or ``ignore``.
        partition_by: columns that become folders, and so can be read by everybody: none that the policy protects.
        options: more options of the writer; they can't contradict the policy.
        rebalance: shuffle the rows first, so that few small files come of it: Spark merges small partitions and splits
            large ones, to ``spark.sql.adaptive.advisoryPartitionSizeInBytes`` each.

    Raises:
        UsageError: before anything is written: misspelt columns, INT96 timestamps, an option that looks like a secret;
            a table of other partition columns, to which rows are added that no read would see; an overwrite where the
            application has a commit protocol of its own, which removes the old files first.
        KeyAccessError: a master key can't be used.
        PolicyError: before anything is written: a column whose name differs from a keyed one's in case or Unicode form
            alone. **After** the commit: files that are not what the policy says. They stay where they are, and the
            message lists them.
        UnsupportedError: see `options`.
    """
    spark = df.sparkSession
    if df.isStreaming:
        raise UsageError("the frame is a stream", hint="bloomseal.spark.write_stream")
    chosen = chosen_table(spark, policy, table)
    if mode not in _MODES:
        raise UsageError(f"no mode {mode!r}", hint=", ".join(_MODES))
    target, extra = os.fspath(path), dict(options or {})
    settings = writer_options(spark, chosen, df.schema, partition_by, extra)
    settings |= settings_for(spark, chosen, qualified(spark, target))
    if rebalance:
        df = df.hint("rebalance", *map(_column, partition_by))
    writer = df.write.format("parquet").options(**{**extra, **settings}).partitionBy(*partition_by)
    from ..source.files.logs import need_no_stream

    with in_turn(qualified(spark, target)):
        # Names of files are never used twice, so that new ones can be told, also by dynamic partition overwrite.
        files = list_files(spark, target, to_write=True)
        files.need_no_log()
        need_no_stream(qualified(spark, target))
        before = set(files.names)
        if before and mode == "ignore":
            return WriteReport(target, (), 0, 0, 0, 0)
        if mode == "append" or (mode == "overwrite" and partition_by and _is_dynamic(spark, extra)):
            from ..source.files.tree import check_folders

            check_folders(qualified(spark, target), partition_by)
        if before and mode == "overwrite":
            _check_overwrite(spark, chosen, target)
        _save(writer.mode(mode), spark, target)
        after = list_files(spark, target)
        new = replace(after, names=tuple(name for name in after.names if name not in before))
    filters = promised(chosen, stored_columns(df.schema, partition_by))
    report = _check(target, new, in_folder(chosen, qualified(spark, target)), filters, fleeting=True)
    from ..jobs.upkeep import keep_indexes

    return replace(report, indexes=keep_indexes(spark, target, chosen))


def _check_overwrite(spark: SparkSession, table: TablePolicy, target: str) -> None:
    """Refuse what would lose the old files."""
    if not deletes_late(spark):
        raise UsageError(
            "the session's own spark.sql.sources.commitProtocolClass removes the old files before the new ones are "
            "written", file=target, hint="unset it before enable",
        )  # fmt: skip
    _check_wrapping(table)


def _save(writer: DataFrameWriter, spark: SparkSession, target: str) -> None:
    """Run the job. What the bridge refused is raised as our own error, without Java's, whose causes hold messages of
    the KMS.
    """
    try:
        with as_active(spark):
            writer.save(target)
    except Exception as error:
        told = told_by(error)
        if told is None:
            raise
    else:
        return
    raise told


def _check_wrapping(table: TablePolicy) -> None:
    """Each JVM has its own keys wrapped, and what is wrong with them shows when the old files are gone: what the KMS
    makes of one under each master key is the most that can be known in time.
    """
    keys = table.keys.storing(internal=True).for_file(FileRef(""))
    columns = {one.key: column for column, one in table.columns.items() if one.key is not None}
    for name, column in {**columns, table.footer_key: None}.items():
        keys.new_key(name, column, table.key_bits)
    keys.confirm()


def _is_dynamic(spark: SparkSession, extra: Mapping[str, str]) -> bool:
    """Whether an overwrite replaces only the folders that it writes to."""
    given = {name.lower(): value for name, value in extra.items()}
    chosen = given.get("partitionoverwritemode") or str(spark.conf.get(PARTITION_OVERWRITE))
    return chosen.lower() == "dynamic"


def _column(name: str) -> Column:
    from pyspark.sql import functions as f

    return f.col(f"`{name.replace('`', '``')}`")  # dots in it are part of the name


def check_table(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    policy: Policy | TablePolicy | str | os.PathLike[str] | None = None,
    table: str | None = None,
) -> WriteReport:
    """Hold all files of a table against its policy: footers verified, every column's metadata sealed under its master
    key, every promised filter there and sealed, no sealed column in the names of folders.

    For tables that were written with `df.write`; `write` does it by itself. Pages are left to `verify`; statistics in
    clear, a log's among them, and what is no data file to `audit`.

    Raises:
        UsageError: no such folder, no file in it, or what can't be listed or read.
        PolicyError: files that are not what the policy says.
        KeyAccessError: a key that the check needs can't be used here, on the driver.
        UnsupportedError: a table of ORC files.
    """
    chosen = in_folder(chosen_table(spark, policy, table), qualified(spark, path))
    files = list_files(spark, path)
    if not files.names:
        raise NothingThereError("there is no file to check", file=os.fspath(path))
    if orc := next((name for name in files.names if named_format(name) is Format.ORC), None):
        raise UnsupportedError("checks take Parquet", file=orc, hint="bloomseal.spark.audit, for ORC too")
    return _check(os.fspath(path), files, chosen, None)


def _check(
    path: str,
    files: SparkTableFiles,
    table: TablePolicy,
    filters: Mapping[str, FilterSpec] | None,
    *,
    fleeting: bool = False,
) -> WriteReport:
    """See `check_table`.

    Args:
        filters: those that are promised; None: the policy's.
        fleeting: a file may be gone: another overwrite has replaced it, and checks its own.
    """
    expected = Expectation.of_table(table)

    def look(file: str) -> _Checked | None:
        try:
            relative = posixpath.basename(file) if table.root is None else posixpath.relpath(file, table.root)
            for column in columns_of_folders(relative, file):
                # Spark takes the values from there.
                expected.outside(column)
            if table.keys.writes_only:
                return _look_without_keys(FileRef(file, open_filesystem(files.base)), table)
            with open_table_file(file, table, files.base) as opened:
                return _look(need_parquet(opened), file, table, filters)
        except BloomsealError as error:
            if fleeting and isinstance(error, MissingFileError):
                return None
            if isinstance(error, UsageError) or (isinstance(error, KeyAccessError) and not error.unauthentic):
                # Not what is wrong with the file, but what can't be seen of it here.
                raise error.at(file=file) from error.__cause__
            return _Checked(file, fault=error.what)

    with ThreadPoolExecutor(_THREADS) as pool:
        seen = [one for one in pool.map(look, files.names) if one is not None]
    if faulty := [one for one in seen if one.fault is not None]:
        listed = "; ".join(f"{one.path}: {one.fault}" for one in faulty[:_SHOWN])
        more = f"; and {len(faulty) - _SHOWN} more" if len(faulty) > _SHOWN else ""
        raise PolicyError(
            f"{len(faulty)} of {len(files.names)} files are not what the policy of {table.name} says: {listed}{more}",
            hint="remove them: they may hold plaintext that anybody reads",
        )
    return WriteReport(
        path,
        tuple(one.path for one in seen),
        sum(one.rows for one in seen),
        sum(one.row_groups for one in seen),
        sum(one.filters for one in seen),
        sum(one.filter_bytes for one in seen),
        opened=not table.keys.writes_only,
    )


def _look_without_keys(ref: FileRef, table: TablePolicy) -> _Checked:
    with open_source(ref) as source:
        found = peek(source)
        if table.authors is not None:
            need_signed(source, found, table.authors)
    if found.kind is not (FooterKind.SIGNED if table.plaintext_footer else FooterKind.ENCRYPTED):
        raise PolicyError("the footer is not sealed as the policy says")
    told = table.keys.describe(found.key_metadata, ref)
    now = version_name(recipients_of(table.recipients.get(table.footer_key, ())))
    if (told.master_key, told.wrapping_version) != (table.footer_key, now):
        raise PolicyError("the footer is not sealed to the policy's recipients")
    return _Checked(ref.path)


def _look(file: ParquetFile, path: str, table: TablePolicy, filters: Mapping[str, FilterSpec] | None) -> _Checked:
    # A footer that nobody has verified says nothing about the file that Spark will read.
    file.need_verified("check")
    missing = [name for name in table.columns if not any(covers(name, leaf) for leaf in file.columns)]
    if missing:
        raise PolicyError(f"there is no column {missing[0]}")
    found = size = 0
    for group in range(file.num_row_groups):
        for chunk in file.walk.chunks(group):
            name = chunk.leaf.name
            check_protection(file, chunk, table)
            # Spark writes what the nearest entry says, be it no filter below a group that has one.
            if filters is None:
                entry = nearest_entry(table.columns, name)
                spec = None if entry is None else entry.filter
            else:
                spec = nearest_entry(filters, name)
            if spec is None or all_null(meta := file.walk.meta(chunk), chunk.leaf) or not meta.num_values:
                continue
            opened = file.walk.filter(chunk)
            if opened is None:
                raise PolicyError(f"column {name} has no filter")
            if chunk.encrypted and not opened.sealed:
                raise PolicyError(f"the filter of column {name} stands in clear")
            if spec.hide_size and len(opened.bitset) != spec._size(0):
                raise PolicyError(
                    f"the filter of column {name} has a size of its own, which tells how many values it holds"
                )
            found, size = found + 1, size + opened.length
    return _Checked(path, file.num_rows, file.num_row_groups, found, size)
