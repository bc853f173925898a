"""``bloomseal write``: CSV, Parquet, Arrow or line-delimited JSON into a sealed Parquet file."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click
import pyarrow as pa
import pyarrow.parquet as pq

from ...core.columns import covers
from ...core.errors import PolicyError, UsageError
from ...core.parquet.footer import Footer
from ...core.parquet.layout import read_tail
from ...core.storage.source import Source
from ...keytools import KeyTools
from ...keytools.kms_protocols import KeyState
from ...policy import TablePolicy
from ...sbbf import FilterSpec
from ...specs import EncryptionSpec, encryption_for
from ...table.dataset import write_dataset
from ...table.hive import check_partitioning
from ...table.writing import SealedWriter
from ...write.writer import resolve_filters
from ..arguments.filters import filter_option, parse_filters
from ..arguments.inputs import FORMATS, Input, kind_of, parse_type
from ..arguments.keys import KeyOptions, key_options
from ..arguments.opening import PolicyOptions, policy_options
from ..arguments.places import need_elsewhere
from ..arguments.sealing import SealingOptions, sealing_options
from ..arguments.several import open_inputs
from ..render import facts, print_json, progress, size, table
from ..state import PATH, State, common_options

__all__ = ["write"]

_COMPRESSIONS: Final = ("zstd", "snappy", "gzip", "lz4", "brotli", "none")
_DEFAULT_ROW_GROUP_SIZE: Final = 1 << 20


@click.command()
@click.argument("sources", type=PATH, metavar="INPUT...", nargs=-1, required=True)
@click.argument("target", type=PATH, metavar="OUTPUT")
@click.option("--input-format", type=click.Choice(FORMATS), help="Kind of INPUT (default: by its name).")
@click.option("--delimiter", metavar="CHARACTER", help="Between the values of CSV (default: , and a tab in .tsv).")
@click.option(
    "--type", "types", multiple=True, metavar="COLUMN=TYPE", help="A column's type, not the inferred one. Repeatable."
)
@filter_option
@sealing_options()
@click.option(
    "--row-group-size", type=click.IntRange(min=1), default=_DEFAULT_ROW_GROUP_SIZE, metavar="ROWS", show_default=True
)
@click.option("--compression", type=click.Choice(_COMPRESSIONS), default="zstd", show_default=True)
@click.option(
    "--partition-by", multiple=True, metavar="COLUMN", help="OUTPUT is a folder; COLUMN's values become folders."
)
@click.option("--rows-per-file", type=click.IntRange(min=1), metavar="N", help="OUTPUT is a folder of files of N rows.")
@click.option(
    "--existing",
    type=click.Choice(["error", "append", "overwrite"]),
    help="What to do with files that are in the folder already (default: error).",
)
@click.option(
    "--check-keys/--no-check-keys", default=None,
    help="Have the KMS open each key that it wrapped, before a file takes its name (default: where one is replaced).",
)  # fmt: skip
@click.option("--plaintext", is_flag=True, help="Write a plaintext file, its filters in clear.")
@click.option("--dry-run", is_flag=True, help="Check options, columns and keys; write nothing.")
@key_options
@policy_options
@common_options()
def write(
    sources: tuple[str, ...],
    target: str,
    input_format: str | None,
    delimiter: str | None,
    types: tuple[str, ...],
    filters: tuple[str, ...],
    row_group_size: int,
    compression: str,
    partition_by: tuple[str, ...],
    rows_per_file: int | None,
    existing: str | None,
    check_keys: bool | None,
    plaintext: bool,
    dry_run: bool,
    sealing: SealingOptions,
    keys: KeyOptions,
    policy: PolicyOptions,
) -> None:
    """Write the rows of INPUT (- is standard input) into OUTPUT, a Parquet file whose columns and filters are sealed.

    INPUT may be a folder or a table of plaintext files, too: its partition columns are columns of OUTPUT.

    Several INPUTs are written one behind the other. They have the same columns in the same order, CSV the same header.
    Of CSV, a column is a number, a date or a moment if every value in it is; numbers with leading zeros, a plus sign or
    more digits than a number holds exactly stay text. .tsv, .gz, .bz2 and .zst are known by their names; OUTPUT - is
    standard output. At most one row group is held in memory. OUTPUT takes its name only when it is complete and was
    reopened and probed. With --partition-by or --rows-per-file OUTPUT is a folder, and its files are placed one by one.
    Explicit keys (--key-file, --key-env) of columns and of the footer need no --column-key and no --footer-key.

    \b
    Examples:
      bloomseal write people.csv people.parquet --keyring keys.json --footer-key footer \\
          --column-key ssn=pii --bloom-filter ssn:fpp=0.001 --type ssn=string
      bloomseal write customers.csv lake/customers --partition-by country --rows-per-file 1000000 \\
          --policy policy.toml --table customers
      bloomseal write - events.parquet --input-format ndjson --key-env footer=FOOTER_KEY --bloom-filter user
    """
    specs = parse_filters(filters)
    encryption = None
    in_folder = bool(partition_by or rows_per_file)
    table_policy = policy.load(keys)
    if table_policy is not None:
        if sealing.said or plaintext:
            raise UsageError("the policy says how files are sealed; options that say it too go without --policy")
        encryption = _by_policy(table_policy, target, in_folder)
        specs = table_policy.bloom_filters() | specs
    elif not plaintext:
        encryption = sealing.spec(keys)
    elif sealing.said:
        raise UsageError("--plaintext and options of encryption exclude one another")
    options: dict[str, Any] = {"compression": compression, "row_group_size": row_group_size, "bloom_filters": specs}
    options["check_keys"] = check_keys
    _check_target(target, sources, in_folder)
    if existing and not in_folder:
        raise UsageError("--existing is about the files of a folder", hint="--partition-by COLUMN or --rows-per-file N")
    with (
        open_inputs(sources, input_format, dict(_typed(item) for item in types), _unescaped(delimiter)) as found,
        _placed(target) as path,
    ):
        files: list[str] | None = None
        rows: int | None
        if dry_run:
            check_partitioning(found.schema.names, table_policy or encryption, partition_by)
            within = pa.schema([field for field in found.schema if field.name not in partition_by])
            _check(within, encryption, specs)
            rows, groups, written = None, None, None
        elif in_folder:
            split: dict[str, Any] = {
                "partition_by": partition_by,
                "rows_per_file": rows_per_file,
                "existing": existing or "error",
            }
            with progress("Sealing") as tell:
                placed = write_dataset(
                    _reader(found, tell), target, encryption=table_policy or encryption, **split, **options
                )
            rows, groups, written = placed.rows, None, sum(one["bytes"] for one in placed.files)
            files = [one["path"] for one in placed.files]
        else:
            rows = 0
            writer = SealedWriter(
                path,
                found.schema,
                encryption=encryption,
                **options,
            )
            with writer, progress("Sealing") as tell:
                for batch, done in found.batches:
                    writer.write_batch(batch)
                    rows += batch.num_rows
                    tell(done, found.total)
            groups, written = _written(path, rows, row_group_size)
            if target == "-":
                _copy_out(path)
                return
        _report(sources, target, found.schema, encryption, specs, rows, groups, written, partition_by, files)


def _by_policy(policy: TablePolicy, target: str, in_folder: bool) -> EncryptionSpec:
    """How the policy seals the file that takes this name, or files of this folder."""
    if in_folder:
        policy = policy if policy.root is not None else policy.at(target)
        target = str(Path(target) / "part.parquet")
    if target == "-" and any(name in (policy.aad_prefix or "") for name in ("{file}", "{path}")):
        raise UsageError("the policy's AAD prefix is made of the file's name, and standard output has none")
    found = encryption_for(policy, target)
    assert found is not None  # noqa: S101
    return found


def _reader(found: Input, tell: Callable[[float, int], None]) -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        for batch, done in found.batches:
            yield batch
            tell(done, found.total)

    return pa.RecordBatchReader.from_batches(found.schema, batches())


def _check_target(target: str, sources: Sequence[str], in_folder: bool) -> None:
    """Refuse, before anything is read, a place that no file can have, or that an input has."""
    if target == "-":
        if in_folder:
            raise UsageError("standard output is no folder")
        if sys.stdout.isatty():
            raise UsageError("a Parquet file is nothing for a terminal", hint="| another program, or > a file")
    elif not in_folder:
        if target.endswith(("/", os.sep)) or Path(target).is_dir():
            hint = "a file's name in it; --rows-per-file N or --partition-by COLUMN fill a folder"
            raise UsageError("the output is a folder", file=target, hint=hint)
        need_elsewhere(target, sources, "another name; bloomseal seal encrypts Parquet files where they are")
        if kind_of(target) not in (None, "parquet"):
            # Most likely OUTPUT was forgotten, and the last INPUT would be lost.
            hint = "OUTPUT comes last, and ends in .parquet; bloomseal read --output writes CSV and the like"
            raise UsageError("the output would be Parquet, and its name says something else", file=target, hint=hint)


@contextlib.contextmanager
def _placed(target: str) -> Iterator[str]:
    """Where to write: for standard output, a file in a folder that only its owner may look into, and that goes
    again.
    """
    if target != "-":
        yield target
        return
    with tempfile.TemporaryDirectory(prefix="bloomseal-") as folder:
        yield str(Path(folder) / "output.parquet")


def _copy_out(path: str) -> None:
    sys.stdout.flush()
    with open(path, "rb") as file:
        shutil.copyfileobj(file, sys.stdout.buffer)
    sys.stdout.buffer.flush()


def _unescaped(delimiter: str | None) -> str | None:
    return "\t" if delimiter in ("\\t", "tab") else delimiter


def _typed(item: str) -> tuple[str, pa.DataType]:
    column, equals, name = item.rpartition("=")
    if not equals or not column:
        raise UsageError("--type takes COLUMN=TYPE")
    return column, parse_type(name)


def _check(schema: pa.Schema, encryption: EncryptionSpec | None, specs: dict[str, FilterSpec]) -> None:
    """What can be known before the first row: columns exist, filters suit them, master keys may be used."""
    sink = pa.BufferOutputStream()
    try:
        pq.write_table(pa.Table.from_batches([], schema), sink)
    except pa.ArrowException as error:
        raise UsageError(f"pyarrow can't encode this table: {type(error).__name__}") from None
    leaves = Footer(read_tail(Source.memory(memoryview(sink.getvalue()))).data, 0, None, True).schema
    resolve_filters(leaves, specs)
    if encryption is None:
        return
    for column in encryption.column_keys or {}:
        leaves.below(column)
    tools = encryption.keys if isinstance(encryption.keys, KeyTools) else getattr(encryption.keys, "tools", None)
    if tools is not None:
        for name in {str(choice) for choice in (encryption.footer_key, *(encryption.column_keys or {}).values())}:
            if (state := tools.calls.describe(name).state) not in (None, KeyState.ENABLED):
                raise PolicyError(f"master key {name} is {state}", hint="bloomseal keyring enable, or another key")


def _written(target: str, rows: int, row_group_size: int) -> tuple[int, int | None]:
    path = Path(target)
    return -(-rows // row_group_size), path.stat().st_size if path.is_file() else None


def _report(
    sources: tuple[str, ...],
    target: str,
    schema: pa.Schema,
    encryption: EncryptionSpec | None,
    specs: dict[str, FilterSpec],
    rows: int | None,
    groups: int | None,
    written: int | None,
    partition_by: tuple[str, ...],
    files: list[str] | None,
) -> None:
    columns = [
        {
            "column": field.name,
            "type": str(field.type),
            "protection": "folders' names" if field.name in partition_by else _protection(field.name, encryption),
            "filter": _filter(field.name, encryption, specs),
        }
        for field in schema
    ]
    if State.current().json:
        print_json(
            {
                "input": sources[0] if len(sources) == 1 else list(sources),
                "output": target,
                "dry_run": rows is None,
                "rows": rows,
                "row_groups": groups,
                "bytes": written,
                **({} if files is None else {"files": files}),
                "algorithm": None if encryption is None else encryption.algorithm,
                "columns": columns,
            }
        )
        return
    table(["column", "type", "protection", "filter"], [list(column.values()) for column in columns])
    facts(
        [
            ("rows", rows),
            ("row groups", groups),
            ("files", None if files is None else len(files)),
            ("size", None if written is None else size(written)),
            ("dry run", "nothing was written" if rows is None else None),
        ],
        title=target,
    )


def _filter(column: str, encryption: EncryptionSpec | None, specs: dict[str, FilterSpec]) -> str:
    if not any(covers(column, name) for name in specs):
        return "none"
    return "in clear" if _protection(column, encryption) == "plaintext" else "sealed"


def _protection(column: str, encryption: EncryptionSpec | None) -> str:
    if encryption is None:
        return "plaintext"
    named = encryption.column_keys or {}
    own = [key for path, key in named.items() if covers(column, path)]
    if own:
        labels = {key if isinstance(key, str) else "explicit" for key in own}
        return f"column key {', '.join(sorted(labels))}"
    return "footer key" if not named or encryption.complete else "plaintext"
