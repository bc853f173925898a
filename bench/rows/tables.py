"""Tables: many values asked for at once, and the memory of a scan."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import bloomseal as bs
import bloomseal.polars

from .. import data
from ..peak import write
from ..timing import Ceiling, Comparison, Contender, Goal, Timed
from ..workspace import Workspace, row
from .many import many_files
from .memory import FRUGAL, WHOLE, measured

_FILES, _IDS = 20, 50_000
_SMALL_ROWS = 5_000
_PER_FILE = 0.0005
_ENCRYPTED, _PLAIN = "pyarrow dataset, is_in, the same files and keys", "pyarrow dataset, is_in, plaintext copy"
_OURS, _OUR_SCAN = "Bloomseal, Arrow array", "Bloomseal, all rows read, then is_in"
_FORMS: dict[str, Callable[[pa.Array], Any]] = {
    _OURS: lambda ids: ids,
    "Bloomseal, list": lambda ids: ids.to_pylist(),
    "Bloomseal, numpy": lambda ids: ids.to_numpy(zero_copy_only=False),
    "Bloomseal, pandas": lambda ids: pd.Series(ids.to_pylist()),
    "Bloomseal, Polars": lambda ids: pl.from_arrow(ids),
}


@row("tables")
def tables(work: Workspace) -> Iterator[Comparison]:
    """Many values asked of a table at once, in every form in which they come; what a full scan holds in memory."""
    files, rows = min(_FILES, work.size.many_files), work.size.many_rows
    folder = many_files(work, files, "ids")
    plain = work.path("ids-plain")
    plain.mkdir(exist_ok=True)
    for i in range(files):
        pq.write_table(data.people(i * rows, rows), plain / f"{i:05d}.parquet", row_group_size=rows // 5)
    count = min(_IDS, files * rows // 4)
    spread = np.sort(np.random.default_rng(7).choice(files * rows, count, replace=False))
    everywhere = pa.array([data.ssn(int(i)) for i in spread])
    for title, ids in (("in all row groups", everywhere), ("in no file", pa.array(data.absent_ssns(count)))):
        yield Comparison(
            f"{len(ids):,} values {title}, of {files} files × 5 row groups of {rows // 5:,} rows",
            [
                *(
                    Contender(name, _ask(work, folder, form(ids)), ours=True, work=count)
                    for name, form in _FORMS.items()
                ),
                Contender(_OUR_SCAN, _read_all(work, folder, ids), ours=True, work=count),
                Contender(_ENCRYPTED, _scan(folder, work.keys.arrow_dataset_format(), ids), work=count),
                Contender(_PLAIN, _scan(plain, "parquet", ids), work=count),
            ],
            [
                Goal(_OURS, _ENCRYPTED, 1.0, True, "≤ pyarrow's scan with is_in of the same files"),
                Goal(_OURS, _OUR_SCAN, 1.0, True, "≤ our own full scan, then is_in"),
                *(
                    Goal(name, _OURS, 1.3, True, f"{name.partition(', ')[2]} ≤ 1.3× an Arrow array")
                    for name in _FORMS
                    if name != _OURS
                ),
            ],
            work_unit="values",
            repetitions=work.size.repetitions,
            note="One thread, the column asked about. pyarrow's is_in gets an Arrow array.",
        )
    for groups in (1, 5):
        yield _one_value(work, groups)
    yield from _through_polars(work)
    yield from _memory(work)


def _small_files(work: Workspace, groups: int) -> tuple[Path, str]:
    """A folder of small files, and a value that one of them has."""
    files, group = work.size.many_files, _SMALL_ROWS // groups
    folder = work.path(f"small-files-{groups}")
    if not folder.exists():
        folder.mkdir()
        for i in range(files):
            bs.write_table(
                data.people(i * _SMALL_ROWS, _SMALL_ROWS),
                folder / f"{i:05d}.parquet",
                encryption=work.keys.encryption(),
                bloom_filters={"ssn": bs.FilterSpec(fpp=0.0001, ndv=group)},
                row_group_size=group,
            )
    return folder, data.ssn(files // 4 * _SMALL_ROWS + group // 2)


def _through_polars(work: Workspace) -> Iterator[Comparison]:
    """As a user meets it: on all cores, of a table that is open and by a path."""
    cores, files = os.cpu_count() or 1, work.size.many_files
    of_file = f"one file of {work.size.rows:,} rows"
    places = [
        (
            f"{files} files × {groups} row group{'s' * (groups > 1)} of {_SMALL_ROWS // groups:,} rows",
            *_small_files(work, groups),
        )
        for groups in (1, 5)
    ]
    pa.set_cpu_count(cores)
    try:
        for title, place, value in (*places, (of_file, work.sealed, work.present)):
            yield _by_polars_or_read(work, title, place, value, cores)
    finally:
        pa.set_cpu_count(1)


def _by_polars_or_read(work: Workspace, title: str, place: Path, value: str, cores: int) -> Comparison:
    decryption, filters = work.keys.decryption, [("ssn", "==", value)]
    table = bs.open_table(place, decryption=decryption)
    lazy, wanted = bloomseal.polars.scan(table), pl.col("ssn") == value
    read, stream, through = "open table, read", "open table, scan", "open table, through Polars"
    read_path, through_path = "path, read_table", "path, through Polars"
    return Comparison(
        f"one value through Polars, all {cores} cores: {title}",
        [
            Contender(read, lambda: table.read(where=filters).num_rows, ours=True),
            Contender(stream, lambda: table.scan(where=filters).read_all().num_rows, ours=True),
            Contender(through, lambda: lazy.filter(wanted).collect().height, ours=True),
            Contender(
                read_path, lambda: bs.read_table(place, where=filters, decryption=decryption).num_rows, ours=True
            ),
            Contender(
                through_path,
                lambda: bloomseal.polars.scan(place, decryption=decryption).filter(wanted).collect().height,
                ours=True,
            ),
        ],
        [
            Goal(stream, read, 1.2, True, "a stream ≤ 1.2× read"),
            Goal(through, read, 1.2, True, "an open table through Polars ≤ 1.2× read"),
            Goal(through_path, read_path, 1.2, True, "a path through Polars ≤ 1.2× read_table"),
        ],
        answer=1,
        repetitions=work.size.repetitions,
        cores=cores,
        note="All columns of the one row that matches. By a path, Polars asks for the schema of all files first.",
    )


def _one_value(work: Workspace, groups: int) -> Comparison:
    """One value in many small files, in a process under way: the price of a file."""
    files, group = work.size.many_files, _SMALL_ROWS // groups
    folder, value = _small_files(work, groups)
    table = bs.open_table(folder, decryption=work.keys.decryption)
    dataset = ds.dataset(sorted(map(str, folder.glob("*.parquet"))), format=work.keys.arrow_dataset_format())
    lazy = bloomseal.polars.scan(table)
    ours, peer = "Bloomseal, one value", "pyarrow dataset, the same files and keys"
    through = "Bloomseal, through Polars"
    asked: dict[str, Any] = {"where": [("ssn", "==", value)], "threads": 1}
    return Comparison(
        f"one value in a table of {files} files × {groups} row group{'s' * (groups > 1)} of {group:,} rows, in a process under way",
        [
            Contender(ours, lambda: table.read(**asked).num_rows, ours=True, work=files),
            Contender(through, lambda: lazy.filter(pl.col("ssn") == value).collect().height, ours=True, work=files),
            Contender(
                peer, lambda: dataset.to_table(filter=ds.field("ssn") == value, use_threads=False).num_rows, work=files
            ),
        ],
        [
            Goal(through, ours, 1.2, True, "through Polars ≤ 1.2× read"),
            *(
                [
                    Ceiling(
                        ours,
                        files * _PER_FILE,
                        f"≤ {_PER_FILE * 1e3} ms a file, {files * _PER_FILE * 1e3:.0f} ms in all",
                    )
                ]
                if groups == 1
                else []
            ),
        ],
        answer=1,
        work_unit="files",
        repetitions=work.size.repetitions,
        note="All columns of the one row that matches; Polars takes all threads, the others one. A row group more is a "
        "filter and its metadata more.",
    )


def _ask(work: Workspace, folder: Path, ids: Any) -> Callable[[], int]:
    table = bs.open_table(folder, decryption=work.keys.decryption)
    return lambda: table.read(["ssn"], [("ssn", "in", ids)], threads=1).num_rows


def _read_all(work: Workspace, folder: Path, ids: pa.Array) -> Callable[[], int]:
    table = bs.open_table(folder, decryption=work.keys.decryption)

    def run() -> int:
        rows = table.read(["ssn"], threads=1)
        return int(rows.filter(pc.is_in(rows["ssn"], value_set=ids)).num_rows)

    return run


def _scan(folder: Path, how: Any, ids: pa.Array) -> Callable[[], int]:
    dataset = ds.dataset(sorted(map(str, folder.glob("*.parquet"))), format=how)
    return lambda: dataset.to_table(columns=["ssn"], filter=ds.field("ssn").isin(ids), use_threads=False).num_rows


def _memory(work: Workspace) -> Iterator[Comparison]:
    for group in dict.fromkeys((work.size.big_group, work.size.row_group)):
        rows = 4 * group
        sealed = work.path(f"scan-{group}.parquet")
        write(work.keys, sealed, data.batches(0, rows, max(group // 20, 1)), group)
        held = data.people(0, group).nbytes
        ours = {f"Bloomseal, scan, {n} thread{'s' * (n > 1)}": f"scan-{n}" for n in (1, 2)}
        yield Comparison(
            f"memory: scan of a table, row groups of {group:,} rows, {held / 1e6:.2g} MB",
            [
                *(
                    Contender(
                        name + (f", {FRUGAL}" if frugal else ""),
                        measured("bloomseal", job, work, sealed, rows, group, frugal=frugal),
                        ours=True,
                        warm_up=0,
                    )
                    for name, job in ours.items()
                    for frugal in (False, True)
                ),
                Contender("pyarrow dataset, scan", measured("pyarrow", "scan-1", work, sealed, rows, group), warm_up=0),
                Contender(WHOLE, lambda held=held: Timed(held)),
            ],
            [Goal(name, WHOLE, 3.0, True, f"{name.partition(', ')[2]} ≤ 3 row groups") for name in ours],
            unit="B",
            repetitions=work.size.memory_repetitions,
        )
