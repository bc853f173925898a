"""A process that does one job and prints how much memory it took at its peak, over what it held before: see
`rows.memory`.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import bloomseal as bs

from . import data
from .keys import Keys
from .timing import CantError


def resident(field: str) -> int:
    """VmRSS (now) or VmHWM (the peak), in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))


def main(who: str, job: str, sealed: str, folder: str, rows: str, row_group: str, value: str) -> None:
    """Do the job and print its peak."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    keys, count, group = Keys(), int(rows), int(row_group)
    messages: list[pa.Buffer] = []
    run = _jobs(keys, sealed, folder, count // group, group, messages, value).get((who, job))
    if run is None:
        raise CantError("pyarrow adds no filters to an existing file")
    _warm(keys, Path(folder), group)
    # What the rows are made with is not the job's either; the rows are.
    made = data.batches(0, group, max(group // 20, 1)) if job == "write" else ()
    messages += [_message(piece) for piece in made]
    _reset_peak()
    before = resident("VmRSS")
    run()
    print(json.dumps({"peak": max(resident("VmHWM") - before, 1)}))


def _jobs(
    keys: Keys, sealed: str, folder: str, groups: int, group: int, messages: list[pa.Buffer], value: str
) -> dict[tuple[str, str], Callable[[], object]]:
    return {
        ("bloomseal", "write"): lambda: write(keys, Path(folder) / "peak.parquet", _copies(messages, groups), group),
        ("bloomseal", "read"): lambda: _read(keys, sealed),
        ("bloomseal", "lookup"): lambda: bs.read_table(
            sealed, where=[("ssn", "==", value)], decryption=keys.decryption
        ),
        ("bloomseal", "attach"): lambda: _attach(keys, sealed, folder),
        **{("bloomseal", f"scan-{n}"): lambda n=n: _scan(keys, sealed, n) for n in (1, 2)},
        ("pyarrow", "scan-1"): lambda: _arrow_scan(keys, sealed),
        ("pyarrow", "write"): lambda: _arrow_write(keys, folder, _copies(messages, groups), group),
        ("pyarrow", "read"): lambda: _arrow_read(keys, sealed),
        ("pyarrow", "lookup"): lambda: pq.read_table(
            sealed, filters=[("ssn", "==", value)], decryption_properties=keys.arrow_decryption(), use_threads=False
        ),
    }


def _warm(keys: Keys, folder: Path, group: int) -> None:
    """Every job once on a hundred rows: modules, key caches, and kernels where the job will see enough values to load
    them, are the process's, not the job's.
    """
    bs.FilterSpec(num_bytes=1 << 20).build(np.arange(min(6_000_000, 30 * group), dtype=np.uint64))
    small = folder / "peak-small.parquet"
    write(keys, small, [data.people(0, 100)], 100)
    jobs = _jobs(keys, str(small), str(folder), 1, 100, [_message(data.people(0, 100))], data.ssn(0))
    for job in jobs.values():
        job()


def _reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _message(piece: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, piece.schema) as stream:
        stream.write_table(piece)
    return sink.getvalue()


def _copies(messages: list[pa.Buffer], groups: int) -> Iterator[pa.Table]:
    """The rows of so many row groups in pieces, each in memory of its own, as if they came from another process."""
    for _ in range(groups):
        for message in messages:
            with pa.ipc.open_stream(message.to_pybytes()) as arrived:
                yield arrived.read_all()


def write(keys: Keys, path: Path, tables: Iterable[pa.Table], group: int) -> None:
    """A table, written piece by piece, with filters on both string columns."""
    spec = bs.FilterSpec(ndv=group)
    with bs.SealedWriter(
        path,
        data.people(0, 1).schema,
        encryption=keys.encryption(),
        bloom_filters={"ssn": spec, "email": spec},
        row_group_size=group,
    ) as writer:
        for table in tables:
            writer.write_table(table)


def _arrow_write(keys: Keys, folder: str, tables: Iterable[pa.Table], group: int) -> None:
    path = Path(folder) / "peak-arrow.parquet"
    schema = data.people(0, 1).schema
    pieces = []
    with pq.ParquetWriter(path, schema, encryption_properties=keys.arrow_encryption()) as writer:
        for table in tables:
            pieces.append(table)
            if sum(piece.num_rows for piece in pieces) >= group:
                writer.write_table(pa.concat_tables(pieces), row_group_size=group)
                pieces = []


def _read(keys: Keys, path: str) -> None:
    from bloomseal.format.decode import read_row_group

    with bs.open_file(path, decryption=keys.decryption) as file:
        for group in range(file.num_row_groups):
            read_row_group(file.walk, group, range(len(file.columns)))


def _arrow_read(keys: Keys, path: str) -> None:
    with pq.ParquetFile(path, decryption_properties=keys.arrow_decryption()) as file:
        for group in range(file.num_row_groups):
            file.read_row_group(group, use_threads=False)


def _scan(keys: Keys, path: str, threads: int) -> None:
    for _ in bs.open_table(path, decryption=keys.decryption).scan(threads=threads):
        pass


def _arrow_scan(keys: Keys, path: str) -> None:
    for _ in ds.dataset(path, format=keys.arrow_dataset_format()).to_batches(use_threads=False):
        pass


def _attach(keys: Keys, sealed: str, folder: str) -> None:
    copy = Path(folder) / "peak-attach.parquet"
    shutil.copyfile(sealed, copy)
    bs.attach_filters(copy, {"email": bs.FilterSpec()}, decryption=keys.decryption)


if __name__ == "__main__":
    main(*sys.argv[1:])
