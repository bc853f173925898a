"""Peak memory, each job in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from bloomseal import FilterSpec

from .. import data
from ..peak import write
from ..timing import CantError, Comparison, Contender, Goal, Timed
from ..workspace import Workspace, row

__all__ = ["FRUGAL", "WHOLE", "measured"]

FRUGAL = "ARROW_DEFAULT_MEMORY_POOL=jemalloc"
WHOLE = "the plaintext of one row group"
_JOBS = {
    "write": ("Bloomseal, streaming write", 3.0, "write ≤ 3 row groups"),
    "read": ("Bloomseal, reading row by row group", 3.0, "read ≤ 3 row groups"),
    "lookup": ("Bloomseal, point look-up", 1.0, "look-up ≤ the surviving row group and the filters"),
    "attach": ("Bloomseal, attach to one column", 1.0, "attach ≤ one column and its filter"),
}


@row("memory")
def memory(work: Workspace) -> Iterator[Comparison]:
    """Peak memory over what the process held before, beside what the job has to hold; with large row groups and small
    ones.
    """
    for group in dict.fromkeys((work.size.big_group, work.size.row_group)):
        rows = 2 * group if group == work.size.big_group else work.size.rows
        sealed = work.path(f"memory-{group}.parquet")
        write(work.keys, sealed, data.batches(0, rows, max(group // 20, 1)), group)
        table = data.people(0, group)
        for job, (name, bound, text) in _JOBS.items():
            needed, what = _needed(table, job, rows // group)
            size = f"row groups of {group:,} rows, {table.nbytes / 1e6:.2g} MB"
            frugal = f"{name}, {FRUGAL}"
            yield Comparison(
                f"memory: {job}, {size}",
                [
                    Contender(name, measured("bloomseal", job, work, sealed, rows, group), ours=True, warm_up=0),
                    Contender(
                        frugal,
                        measured("bloomseal", job, work, sealed, rows, group, frugal=True),
                        ours=True,
                        warm_up=0,
                    ),
                    Contender(f"pyarrow, {job}", measured("pyarrow", job, work, sealed, rows, group), warm_up=0),
                    Contender(what, lambda needed=needed: Timed(needed)),
                ],
                [Goal(one, what, bound, True, text) for one in (name, frugal)],
                unit="B",
                repetitions=work.size.memory_repetitions,
                note="Arrow's own memory pool (mimalloc) holds on to what was freed a moment ago, which small row groups don't outweigh.",
            )


def _needed(group: pa.Table, job: str, groups: int) -> tuple[float, str]:
    bitset = FilterSpec(ndv=group.num_rows).build(np.zeros(0, dtype=np.uint64)).num_bytes
    if job == "lookup":
        return group.nbytes + bitset * groups, "the surviving row group and the filters"
    if job == "attach":
        return group.column("email").nbytes + bitset, "one column chunk and its filter"
    return group.nbytes, WHOLE


def measured(
    who: str, job: str, work: Workspace, sealed: Path, rows: int, group: int, *, frugal: bool = False
) -> Callable[[], Timed]:
    """What a process of its own needs for a job, see `peak`."""
    name, _, value = FRUGAL.partition("=")

    def run() -> Timed:
        arguments = [
            who,
            job,
            str(sealed),
            str(work.folder),
            str(rows),
            str(group),
            data.ssn(rows * 5 // 8),
        ]
        done = subprocess.run(
            [sys.executable, "-m", "bench.peak", *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=Path(__file__).parents[2],
            env={**os.environ, **({name: value} if frugal else {})},
        )
        if done.returncode:
            raise CantError(done.stderr.strip().splitlines()[-1].rpartition("Error: ")[2])
        return Timed(json.loads(done.stdout)["peak"])

    return run
