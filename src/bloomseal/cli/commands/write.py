"""``bloomseal write``: CSV, Parquet, Arrow or line-delimited JSON into a sealed Parquet file."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import click
import pyarrow as pa
import pyarrow.parquet as pq

from ...core.columns import covers
from ...core.errors import UsageError
from ...core.parquet.footer import Footer
from ...core.parquet.layout import read_tail
from ...core.storage.source import Source
from ...keytools.tools import KeyTools
from ...policy import TablePolicy
from ...sbbf import FilterSpec
from ...specs import EncryptionSpec, encryption_for
from ...table.dataset import write_dataset
from ...table.hive import check_partitioning
from ...table.writing import SealedWriter
from ...write.writer import resolve_filters
from ..arguments.inputs import Input, InputOptions, open_inputs
from ..arguments.keys import KeyOptions
from ..arguments.opening import WITHOUT_POLICY, PolicyOptions
from ..arguments.options import option, options
from ..arguments.sealing import SealingOptions, filter_option
from ..arguments.text_input import kind_of
from ..command import PATH, Command
from ..output import need_elsewhere
from ..render import answer, progress

_COMPRESSIONS: Final = ("zstd", "snappy", "gzip", "lz4", "brotli", "none")


@dataclass
class _Encryption:
    """How the output is sealed: by a policy, by options, or not at all."""

    plaintext: bool = option("--plaintext", is_flag=True, help="Write a plaintext file, its filters in clear.")
    sealing: SealingOptions = field(default_factory=SealingOptions)
    keys: KeyOptions = field(default_factory=KeyOptions)
    policy: PolicyOptions = field(default_factory=PolicyOptions)

    def of(self, target: str, *, in_folder: bool) -> tuple[EncryptionSpec | None, TablePolicy | None]:
        """What one file is sealed by, and the policy that says so, if one does."""
        if (policy := self.policy.load(self.keys, [target])) is not None:
            if self.sealing.said or self.plaintext:
                what = "the policy says how files are sealed; options that say it too go without"
                raise UsageError(what, hint=WITHOUT_POLICY)
            return _by_policy(policy, target, in_folder), policy
        if not self.plaintext:
            return self.sealing.spec(self.keys, "; or --plaintext if that is meant"), None
        if self.sealing.said:
            raise UsageError("--plaintext and options of encryption exclude one another")
        return None, None


@dataclass
class _Layout:
    """The files to write."""

    row_group_size: int = option(
        "--row-group-size", type=click.IntRange(min=1), default=1 << 20, metavar="ROWS", show_default=True
    )
    compression: str = option("--compression", type=click.Choice(_COMPRESSIONS), default="zstd", show_default=True)
    partition_by: tuple[str, ...] = option(
        "--partition-by", multiple=True, metavar="COLUMN", help="OUTPUT is a folder; COLUMN's values become folders."
    )
    rows_per_file: int | None = option(
        "--rows-per-file", type=click.IntRange(min=1), metavar="N", help="OUTPUT is a folder of files of N rows."
    )
    mode: Literal["error", "append", "overwrite"] | None = option(
        "--mode",
        type=click.Choice(["error", "append", "overwrite"]),
        help="What to do with files that are in the folder already (default: error).",
    )
    check_keys: bool | None = option(
        "--check-keys/--no-check-keys",
        default=None,
        help="Have the KMS open each key that it wrapped, before a file takes its name (default: where one is replaced).",
    )

    @property
    def in_folder(self) -> bool:
        """Whether the output is a folder."""
        return bool(self.partition_by or self.rows_per_file)

    def check(self, target: str, sources: Sequence[str]) -> None:
        """Refuse, before anything is read, a place that no file can have, or that an input has."""
        if target == "-":
            if self.in_folder:
                raise UsageError("standard output is no folder")
            if sys.stdout.isatty():
                raise UsageError("a Parquet file is nothing for a terminal", hint="| another program, or > a file")
        elif not self.in_folder:
            _check_file(target, sources)
        if self.mode and not self.in_folder:
            hint = "--partition-by COLUMN or --rows-per-file N"
            raise UsageError("--mode is about the files of a folder", hint=hint)


@click.command(cls=Command, first=("--policy", "--keyring", "--footer-key", "--column-key", "--bloom-filter"))
@click.argument("sources", type=PATH, metavar="INPUT...", nargs=-1, required=True)
@click.argument("target", type=PATH, metavar="OUTPUT")
@options(InputOptions, "inputs")
@filter_option
@options(_Layout, "layout")
@click.option("--dry-run", is_flag=True, help="Check options, columns and keys; write nothing.")
@options(_Encryption, "sealed")
def write(
    sources: tuple[str, ...],
    target: str,
    inputs: InputOptions,
    filters: dict[str, FilterSpec],
    layout: _Layout,
    dry_run: bool,
    sealed: _Encryption,
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
    encryption, policy = sealed.of(target, in_folder=layout.in_folder)
    if policy is not None:
        filters = policy.bloom_filters() | filters
    layout.check(target, sources)
    with open_inputs(sources, inputs) as found:
        if dry_run:
            check_partitioning(found.schema.names, policy or encryption, layout.partition_by)
            within = pa.schema([field for field in found.schema if field.name not in layout.partition_by])
            _check(within, encryption, filters)
            done: dict[str, Any] = {"rows": None, "row_groups": None, "bytes": None}
        elif layout.in_folder:
            done = _write_folder(found, target, layout, policy or encryption, filters)
        elif target != "-":
            done = _write_file(found, target, layout, encryption, filters)
        else:
            # In a folder that only its owner may look into, and that goes again.
            with tempfile.TemporaryDirectory(prefix="bloomseal-") as folder:
                path = str(Path(folder) / "output.parquet")
                _write_file(found, path, layout, encryption, filters)
                _copy_out(path)
            return
    told = {
        "input": sources[0] if len(sources) == 1 else list(sources),
        "output": target,
        "dry_run": dry_run,
        **done,
        "algorithm": None if encryption is None else encryption.algorithm,
        "columns": [_column(field, encryption, filters, layout.partition_by) for field in found.schema],
    }
    answer(told, title=target)


def _write_file(
    found: Input, path: str, layout: _Layout, encryption: EncryptionSpec | None, filters: dict[str, FilterSpec]
) -> dict[str, Any]:
    rows = 0
    writer = SealedWriter(
        path,
        found.schema,
        encryption=encryption,
        bloom_filters=filters,
        row_group_size=layout.row_group_size,
        compression=layout.compression,
        check_keys=layout.check_keys,
    )
    with writer, progress("Sealing") as tell:
        for batch, done in found.batches:
            writer.write_batch(batch)
            rows += batch.num_rows
            tell(done, found.total)
    place = Path(path)
    written = place.stat().st_size if place.is_file() else None
    return {"rows": rows, "row_groups": -(-rows // layout.row_group_size), "bytes": written}


def _write_folder(
    found: Input,
    target: str,
    layout: _Layout,
    encryption: EncryptionSpec | TablePolicy | None,
    filters: dict[str, FilterSpec],
) -> dict[str, Any]:
    with progress("Sealing") as tell:
        placed = write_dataset(
            _reader(found, tell),
            target,
            partition_by=layout.partition_by,
            rows_per_file=layout.rows_per_file,
            mode=layout.mode or "error",
            encryption=encryption,
            bloom_filters=filters,
            row_group_size=layout.row_group_size,
            compression=layout.compression,
            check_keys=layout.check_keys,
        )
    written, paths = sum(one["bytes"] for one in placed.files), [one["path"] for one in placed.files]
    return {"rows": placed.rows, "row_groups": None, "bytes": written, "files": paths}


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


def _check_file(target: str, sources: Sequence[str]) -> None:
    if target.endswith(("/", os.sep)) or Path(target).is_dir():
        hint = "a file's name in it; --rows-per-file N or --partition-by COLUMN fill a folder"
        raise UsageError("the output is a folder", file=target, hint=hint)
    need_elsewhere(target, sources, "another name; bloomseal seal encrypts Parquet files where they are")
    if kind_of(target) not in (None, "parquet"):
        # Most likely OUTPUT was forgotten, and the last INPUT would be lost.
        hint = "OUTPUT comes last, and ends in .parquet; bloomseal read --output writes CSV and the like"
        raise UsageError("the output would be Parquet, and its name says something else", file=target, hint=hint)


def _copy_out(path: str) -> None:
    sys.stdout.flush()
    with open(path, "rb") as file:
        shutil.copyfileobj(file, sys.stdout.buffer)
    sys.stdout.buffer.flush()


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
    if isinstance(encryption.keys, KeyTools):
        encryption.keys.need_usable(map(str, (encryption.footer_key, *(encryption.column_keys or {}).values())))


def _column(
    column: pa.Field, encryption: EncryptionSpec | None, filters: dict[str, FilterSpec], partition_by: Sequence[str]
) -> dict[str, str]:
    protection = "folders' names" if column.name in partition_by else _protection(column.name, encryption)
    return {
        "column": column.name,
        "type": str(column.type),
        "protection": protection,
        "filter": _filter(column.name, encryption, filters),
    }


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
