"""Rows that go out: CSV, JSON lines, Parquet or Arrow, to standard output or into a file in plaintext; and where an
output may not be: in the place of what it is made of.
"""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, Self

import pyarrow as pa

from ..core.errors import UsageError
from ..storage.discovery.kinds import FileKind
from ..storage.discovery.kinds import kind_of as file_kind
from .arguments.text_input import COMPRESSIONS, EXTENSIONS, is_tabbed, kind_of
from .render import json_line

_GROUP_ROWS: Final = 1 << 17


@dataclass(frozen=True)
class RowOutput:
    """Where rows go.

    Attributes:
        path: the file; None for standard output.
        kind: ``csv``, ``tsv``, ``ndjson``, ``parquet`` or ``arrow``.
        zipped: gzip is around it.
    """

    path: str | None
    kind: str
    zipped: bool = False

    @classmethod
    def of(cls, path: str | None, format: str) -> Self:  # noqa: A002
        """What `--output` and `--format` say.

        Raises:
            UsageError: the file's name says no kind.
        """
        if path == "-" and format == "table":
            raise UsageError("rows on standard output are CSV or JSON lines", hint="--format csv, --format json")
        if path is None or path == "-":
            return cls(None, "ndjson" if format == "json" else format)
        kind, compression = kind_of(path), Path(path).suffix.lower()
        zipped = compression in COMPRESSIONS
        if kind is None or (zipped and (compression != ".gz" or kind in ("parquet", "arrow"))):
            hint = f"a name that ends in {', '.join(EXTENSIONS)}; text also in .gz"
            raise UsageError("the output's name does not tell its format", file=path, hint=hint)
        if kind == "csv" and is_tabbed(path):
            kind = "tsv"
        return cls(path, kind, zipped)

    def write(self, schema: pa.Schema, rows: Iterable[pa.RecordBatch]) -> None:
        """Write all rows. A file takes its name at the end, and is readable for its owner only: it is plaintext.

        Raises:
            UsageError: the file can't be written.
        """
        if self.path is None:
            sys.stdout.flush()
            self._write(schema, rows, sys.stdout.buffer)
            sys.stdout.buffer.flush()
            return
        from ..core.storage.local import NoRegularFileError
        from ..storage.folder import Folder
        from ..storage.replacement import Replacement

        try:
            with Replacement(*Folder.of(self.path), private=True) as new:
                with open(new.fd, "wb", closefd=False) as stream:
                    self._write(schema, rows, stream)
                new.commit()
        except NoRegularFileError as error:
            raise UsageError(f"the rows can't be written: {error.strerror}", file=self.path) from None
        except (OSError, pa.ArrowException) as error:
            reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else type(error).__name__
            raise UsageError(f"the rows can't be written: {reason}", file=self.path) from None

    def _write(self, schema: pa.Schema, rows: Iterable[pa.RecordBatch], stream: IO[bytes]) -> None:
        if not self.zipped:
            _WRITERS[self.kind](schema, rows, stream)
            return
        import gzip

        with gzip.open(stream, "wb") as packed:
            _WRITERS[self.kind](schema, rows, packed)


def _csv(schema: pa.Schema, rows: Iterable[pa.RecordBatch], stream: Any, delimiter: str = ",") -> None:
    from pyarrow import csv

    from .rows import flat, shown_flat

    # A file gets each value as it is. A terminal would take some for commands, a spreadsheet for formulas.
    made = shown_flat if stream.isatty() else flat
    options = csv.WriteOptions(delimiter=delimiter)
    with csv.CSVWriter(stream, made(pa.Table.from_batches([], schema)).schema, write_options=options) as writer:
        for batch in rows:
            writer.write_table(made(pa.Table.from_batches([batch])))


def _tsv(schema: pa.Schema, rows: Iterable[pa.RecordBatch], stream: Any) -> None:
    _csv(schema, rows, stream, "\t")


def _json(schema: pa.Schema, rows: Iterable[pa.RecordBatch], stream: Any) -> None:  # noqa: ARG001
    from .rows import rows_of

    for row in rows_of(rows):
        stream.write(json_line(row).encode() + b"\n")


def _parquet(schema: pa.Schema, rows: Iterable[pa.RecordBatch], stream: Any) -> None:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(stream, schema) as writer:
        for group in _groups(rows, schema):
            writer.write_table(group)


def _arrow(schema: pa.Schema, rows: Iterable[pa.RecordBatch], stream: Any) -> None:
    # A file of Arrow's has one dictionary for each column; every row group has its own.
    plain = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in schema.types]
    spelt = pa.schema([field.with_type(kind) for field, kind in zip(schema, plain, strict=True)], schema.metadata)
    with pa.ipc.new_file(stream, spelt) as writer:
        for batch in rows:
            writer.write_batch(batch.cast(spelt))


_WRITERS: Final = {"csv": _csv, "tsv": _tsv, "ndjson": _json, "parquet": _parquet, "arrow": _arrow}


def _groups(rows: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Batches put together, so that a few rows of each file do not become a row group of their own."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in rows:
        waiting.append(batch)
        count += batch.num_rows
        if count >= _GROUP_ROWS:
            yield pa.Table.from_batches(waiting, schema)
            waiting, count = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting, schema)


def need_elsewhere(target: str, inputs: Sequence[str], hint: str) -> None:
    """Refuse, before anything is read, an output that takes an input's place, or that an input folder would have among
    its data.

    Args:
        target: a file; ``-`` and URIs are let pass.
        inputs: as they were given: files, folders, patterns; ``-`` and URIs are let pass.
        hint: what serves whoever meant it.

    Raises:
        UsageError: it is such a one.
    """
    if target == "-" or "://" in target:
        return
    real = os.path.realpath(target)
    for place in _local(inputs):
        if _same(target, place):
            raise UsageError("the output is an input, and would take its place", file=target, hint=hint)
        inside = real.startswith(os.path.realpath(place).rstrip("/") + "/")
        if inside and file_kind(Path(real).name) is FileKind.DATA:
            raise UsageError(
                f"the output would be data of {place}, which is read", file=target, hint="a file outside the folder"
            )


def _local(inputs: Sequence[str]) -> Iterator[str]:
    for place in inputs:
        if place != "-" and "://" not in place:
            yield from [place] if os.path.lexists(place) else glob.glob(place, recursive=True)  # noqa: PTH207


def _same(one: str, other: str) -> bool:
    """Links, of both kinds, lead to the same file."""
    try:
        return Path(one).is_file() and Path(one).samefile(other)
    except OSError:
        return False
