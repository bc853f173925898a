"""Frames into Delta tables: sealed files, checked against the policy, and named by one transaction of the log.

Spark needs no connector for it: the files are written by its own Parquet writer, the log by the library ``deltalake``.
The log is never sealed, so it is told of a file its place, its size, the values of its partition columns and its number
of rows: no minimum, no maximum and no count of nulls of any column.
"""

from __future__ import annotations

import json
import os
import posixpath
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import unquote

from ...core.errors import BloomsealError, UnsupportedError, UsageError
from ...core.storage.ref import FileRef
from ...policy import Policy, TablePolicy
from ...storage.logs.delta_writing import committed, load_deltalake, refuse_more_than_files
from ...storage.logs.snapshot import library, location, opened
from ...table.hive import NULL
from ..jobs.upkeep import keep_indexes
from ..listing import in_folder, open_filesystem, qualified, split_uri
from ..session import chosen_table
from .frames import WriteReport, write

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_MARKS: Final = "mapreduce.fileoutputcommitter.marksuccessfuljobs"
"""A file that no version names, and that VACUUM takes for hidden."""


def write_delta(
    df: DataFrame,
    path: str | os.PathLike[str],
    *,
    policy: Policy | TablePolicy | str | os.PathLike[str] | None = None,
    table: str | None = None,
    mode: Literal["error", "append", "overwrite"] = "error",
    partition_by: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
) -> WriteReport:
    """Write a frame into a Delta table as sealed files: a new table, or one more version of it.

    The files go into a folder of their own below the table, where no version names them. Each is opened and held
    against the policy; then one transaction of the log takes them all. Whatever fails before leaves the table as it
    was, and files that the next ``VACUUM`` removes. At last the indexes that the policy wants are brought up to date.

    Args:
        df, path, policy, table: as `write`.
        options: as `write`; and Delta's own ``txnAppId`` and ``txnVersion``, such as the name of a stream's query and
            the number of its batch: a version of the table that has them, or a later number, is not written again.
        mode: ``error`` makes a new table; ``append`` and ``overwrite`` take one that is there, or make one.
        partition_by: columns whose values stand in the log and in folders' names: none that the policy protects. Those
            of the table, where it is there.

    Raises:
        UsageError: as `write`; there is a table already; the frame's columns or partition columns are not the table's.
        UnsupportedError: a table that asks more of a writer than files: constraints, generated columns, change data,
            column mapping. And as `write`.
        PolicyError: files that are not what the policy says: the log doesn't name them.
        BloomsealError: the log did not take them: somebody else changed the table at the same time.
        MissingDependencyError: `deltalake` is not installed.
    """
    deltalake = library("deltalake", "delta", load_deltalake)
    if mode not in ("error", "append", "overwrite"):
        raise UsageError(f"no mode {mode!r}", hint="error, append, overwrite")
    spark = df.sparkSession
    target, extra = qualified(spark, path), dict(options or {})
    once = _transaction(extra)
    base, root = split_uri(target)
    ref = FileRef(root, open_filesystem(base))
    if ref.filesystem is not None:
        raise UnsupportedError("Delta tables are written on local file systems only so far", file=target)
    uri = location(ref)
    exists = opened(ref, lambda: deltalake.DeltaTable.is_deltatable(uri))
    if exists and mode == "error":
        raise UsageError("there is a table already", file=target, hint='mode="append" or "overwrite"')
    version: Any = opened(ref, lambda: deltalake.DeltaTable(uri)) if exists else None
    if version is not None and once is not None and _has(version, *once):
        return WriteReport(os.fspath(path), (), 0, 0, 0, 0)
    if version is not None:
        refuse_more_than_files(version, target)
        _refuse_another_schema(version, df.schema, partition_by, target)
    schema = _log_schema(df.schema, target)
    chosen = in_folder(chosen_table(spark, policy, table), target)
    if chosen.keys.writes_only:
        what = "the log of a Delta table tells rows and bounds, and nobody here can open the files for them"
        raise UnsupportedError(what, file=target, hint="bloomseal.spark.write; or a reader's policy")
    folder = f"bloomseal-{uuid.uuid4().hex}"
    # The index is the table's: the folder of the new files has none.
    columns = {name: replace(column, index=None) for name, column in chosen.columns.items()}
    report = write(
        df, f"{target.rstrip('/')}/{folder}", policy=replace(chosen, columns=columns), mode="append",
        partition_by=partition_by, options={**extra, _MARKS: "false"},
    )  # fmt: skip
    actions = [_action(deltalake, ref, file, partition_by, chosen) for file in report.files]
    arguments: dict[str, Any] = {"mode": "append" if mode == "error" else mode, "partition_by": list(partition_by)}
    if once is not None:
        done = deltalake.Transaction(*once)
        arguments["commit_properties"] = deltalake.CommitProperties(app_transactions=[done])

    def commit() -> None:
        logged = deltalake.Schema.from_arrow(schema)
        if version is None:
            create = deltalake.transaction.create_table_with_add_actions
            create(uri, logged, actions, **{**arguments, "mode": "error"})
        else:
            version.create_write_transaction(actions, schema=logged, **arguments)

    committed(commit, target)
    return replace(report, path=os.fspath(path), indexes=keep_indexes(spark, path, chosen))


def _transaction(options: dict[str, str]) -> tuple[str, int] | None:
    """What Delta calls an application's transaction, taken out of the options."""
    application, version = options.pop("txnAppId", None), options.pop("txnVersion", None)
    if application is None and version is None:
        return None
    if not application or not (version or "").isdecimal():
        raise UsageError("txnAppId and txnVersion belong together, a text and a number")
    return application, int(version or 0)


def _has(table: Any, application: str, number: int) -> bool:
    last = table.transaction_version(application)
    return last is not None and last >= number


def _action(deltalake: Any, ref: FileRef, file: str, partition_by: Sequence[str], table: TablePolicy) -> Any:
    """What the log says of one file."""
    from ..opening import open_table_file

    below = posixpath.relpath(file, ref.path)
    with open_table_file(file, table, None) as opened_file:
        rows, size = opened_file.num_rows, opened_file.source.size
    raws = [part.partition("=")[2] for part in below.split("/")[1:-1]]
    values = {name: None if raw == NULL else unquote(raw) for name, raw in zip(partition_by, raws, strict=True)}
    changed = int(os.stat(file).st_mtime * 1000)  # noqa: PTH116
    # The library quotes the path, as the log has it.
    return deltalake.transaction.AddAction(below, size, values, changed, True, json.dumps({"numRecords": rows}))


def _refuse_another_schema(table: Any, schema: StructType, partition_by: Sequence[str], path: str) -> None:
    import pyarrow as pa
    from pyspark.sql.pandas.types import from_arrow_schema

    kept = from_arrow_schema(pa.schema(table.schema().to_arrow()), prefer_timestamp_ntz=True)
    have = {one.name: one.dataType.simpleString() for one in schema.fields}
    want = {one.name: one.dataType.simpleString() for one in kept.fields}
    if have != want:
        other = sorted(set(have.items()) ^ set(want.items()))[0][0]
        raise UsageError(
            "the frame's columns are not the table's", file=path, column=other, hint="the same names and types"
        )
    if list(partition_by) != list(table.metadata().partition_columns):
        raise UsageError(
            "the table has other partition columns", file=path, hint=f"{list(table.metadata().partition_columns)}"
        )


def _log_schema(schema: StructType, path: str) -> pa.Schema:
    import pyarrow as pa

    from ..source.types import arrow_type

    try:
        return pa.schema([pa.field(one.name, arrow_type(one.dataType), True) for one in schema.fields])
    except BloomsealError as error:
        raise error.at(file=path) from None
