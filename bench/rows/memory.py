"""Peak memory, each job in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from ..timing import CantError, Comparison, Contender, Goal, Timed
from ..workspace import Workspace, row

_WHOLE = "the plaintext of one row group"
_JOBS = {
    "write": ("Bloomseal, streaming write", 3.0, "write ≤ 3 row groups"),
    "read": ("Bloomseal, reading row by row group", 3.0, "read ≤ 3 row groups"),
    "lookup": ("Bloomseal, point look-up", 1.0, "look-up ≤ the surviving row group and the filters"),
    "attach": ("Bloomseal, attach to one column", 1.0, "attach ≤ one column and its filter"),
}


@row("memory")
def memory(work: Workspace) -> Iterator[Comparison]:
    """Peak memory over what the process held before, beside what the job has to hold."""
    for job, (name, bound, text) in _JOBS.items():
        needed, what = _needed(work, job)
        yield Comparison(
            f"memory: {job}",
            [
                Contender(name, _measured("bloomseal", job, work), ours=True, warm_up=0),
                Contender(f"pyarrow, {job}", _measured("pyarrow", job, work), warm_up=0),
                Contender(what, lambda needed=needed: Timed(needed)),
            ],
            [Goal(name, what, bound, True, text)],
            unit="B",
            repetitions=work.size.memory_repetitions,
        )


def _needed(work: Workspace, job: str) -> tuple[float, str]:
    group = work.table.slice(0, work.size.row_group)
    spec = work.filters["ssn"]
    from bloomseal.sbbf import num_bytes

    need = num_bytes(spec.ndv or 1, spec.fpp)
    bitset = 1 << (need - 1).bit_length()
    if job == "lookup":
        filters = bitset * -(-work.size.rows // work.size.row_group)
        return group.nbytes + filters, "the surviving row group and the filters"
    if job == "attach":
        return group.column("email").nbytes + bitset, "one column chunk and its filter"
    return group.nbytes, _WHOLE


def _measured(who: str, job: str, work: Workspace) -> Callable[[], Timed]:
    def run() -> Timed:
        arguments = [
            who,
            job,
            str(work.sealed),
            str(work.folder),
            str(work.size.rows),
            str(work.size.row_group),
            work.present,
        ]
        done = subprocess.run(
            [sys.executable, "-m", "bench.peak", *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=Path(__file__).parents[2],
        )
        if done.returncode:
            raise CantError(done.stderr.strip().splitlines()[-1].rpartition("Error: ")[2])
        return Timed(json.loads(done.stdout)["peak"])

    return run
