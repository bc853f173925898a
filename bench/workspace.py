"""What the rows share: the size, the keys, the files made once, and the registry of rows."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import bloomseal as bs

from . import data
from .data import Size
from .keys import Keys
from .timing import Comparison, Curve

__all__ = ["ROWS", "Row", "Workspace", "fresh_process", "row"]

Result = Comparison | Curve


class Workspace:
    """A folder for the files, and those that several rows read."""

    def __init__(self, size: Size, folder: Path) -> None:
        self.size = size
        self.folder = folder
        self.keys = Keys()

        # A process compiles its kernels, or loads them, once it has seen enough values; none of the rows is about that.
        bs.FilterSpec(num_bytes=1 << 20).build(np.arange(6_000_000, dtype=np.uint64))

    def path(self, name: str) -> Path:
        """A place for a file."""
        return self.folder / name

    @functools.cached_property
    def table(self) -> pa.Table:
        """The table that is written and looked up."""
        return data.people(0, self.size.rows).combine_chunks()

    @functools.cached_property
    def filters(self) -> dict[str, bs.FilterSpec]:
        """Filters on both string columns, of a known number of distinct values."""
        spec = bs.FilterSpec(fpp=0.01, ndv=self.size.row_group)
        return {"ssn": spec, "email": spec}

    def write(self, path: Path, **options: object) -> None:
        """The table, by Bloomseal."""
        bs.write_table(self.table, path, row_group_size=self.size.row_group, **options)  # type: ignore[arg-type]

    @functools.cached_property
    def sealed(self) -> Path:
        """The table under column keys and a footer key, with filters."""
        path = self.path("sealed.parquet")
        self.write(path, encryption=self.keys.encryption(), bloom_filters=self.filters)
        return path

    @functools.cached_property
    def uniform(self) -> Path:
        """The table with every module under the footer key, with filters."""
        path = self.path("uniform.parquet")
        self.write(path, encryption=self.keys.encryption(columns=()), bloom_filters=self.filters)
        return path

    @functools.cached_property
    def plain(self) -> Path:
        """The table in plaintext, with filters in clear."""
        path = self.path("plain.parquet")
        self.write(path, bloom_filters=self.filters)
        return path

    def arrow_write(self, path: Path, *, dictionaries: list[str] | bool = True) -> None:
        """The table, encrypted by pyarrow, without filters; with dictionaries for these columns, or all."""
        schema, properties = self.table.schema, self.keys.arrow_encryption()
        with pq.ParquetWriter(path, schema, encryption_properties=properties, use_dictionary=dictionaries) as writer:
            writer.write_table(self.table, row_group_size=self.size.row_group)

    @functools.cached_property
    def present(self) -> str:
        """An SSN in the middle of the table."""
        return data.ssn(self.size.rows * 5 // 8)

    @functools.cached_property
    def absent(self) -> str:
        """An SSN within the range of the others that no filter of the table's takes for present."""
        candidates = data.absent_ssns(1_000)
        by_group = bs.probe(self.sealed, "ssn", candidates, decryption=self.keys.decryption)
        verdicts = zip(*by_group, strict=True)
        return next(
            value
            for value, seen in zip(candidates, verdicts, strict=True)
            if all(verdict is bs.Verdict.ABSENT for verdict in seen)
        )


def fresh_process(folder: Path) -> dict[str, str]:
    """The environment of a new process that finds bytecode compiled, as that of an installed package is."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}


@dataclass(frozen=True)
class Row:
    """One entry of the suite."""

    name: str
    about: str
    build: Callable[[Workspace], Iterator[Result]]


ROWS: dict[str, Row] = {}


def row(name: str) -> Callable[[Callable[[Workspace], Iterator[Result]]], Callable[[Workspace], Iterator[Result]]]:
    """Register a row; its docstring's first line says what it is about."""

    def register(build: Callable[[Workspace], Iterator[Result]]) -> Callable[[Workspace], Iterator[Result]]:
        ROWS[name] = Row(name, (build.__doc__ or "").strip().splitlines()[0], build)
        return build

    return register
