"""`python -m bench.many_files`: audits, reports and re-wrapping of many small files.

Processor time is what counts on a machine that others use too. Memory is what a report, or another file, adds: by
tracemalloc for reports, by the resident set for audits.
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

import bloomseal as bs
from bloomseal.audit.facts.auditor import Auditor
from bloomseal.audit.facts.places import find_files
from bloomseal.audit.report import audit, judged
from bloomseal.cli.reports import Target
from bloomseal.evidence.collect import Beside, finished, gather
from bloomseal.rotation import Rewrap, rotate

_FOLDER = 1_000


def write(folder: Path, ring: bs.Keyring, count: int, *, signed: bool) -> None:
    """So many copies of a file of four columns and 100 rows, with a filter over the encrypted one."""
    rows = 100
    table = pa.table(
        {
            "ssn": [f"{row:09d}" for row in range(rows)],
            "name": [f"name-{row}" for row in range(rows)],
            "amount": np.arange(rows),
            "paid": [True] * rows,
        }
    )
    folder.mkdir()
    seed = folder / "seed.parquet"
    spec = bs.EncryptionSpec("footer", {"ssn": "pii"}, keys=bs.KeyTools(ring), plaintext_footer=signed)
    bs.write_table(table, seed, encryption=spec, bloom_filters={"ssn": bs.FilterSpec(fpp=0.01)})
    data = seed.read_bytes()
    seed.unlink()
    for number in range(count):
        part = folder / f"part={number // _FOLDER:03d}"
        if number % _FOLDER == 0:
            part.mkdir()
        (part / f"{number:06d}.parquet").write_bytes(data)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def look_at(folder: Path, *, half: bool) -> None:
    """In a process of its own. The last line is for the first process."""
    parts = sorted(folder.iterdir())
    before, wall, own = resident(), time.perf_counter(), time.process_time()
    report = audit(parts[: len(parts) // 2] if half else folder)
    wall, own, files = time.perf_counter() - wall, time.process_time() - own, report.files
    print(
        f"audit without keys, {folder.name}, {files:,} files: {wall:.1f} s by the clock; {own:.1f} s of processor, "
        f"{1e5 * own / files:.0f} s for 100,000 files; "
        f"{(resident() - before) / files / 1e3:.2f} KB resident a file, imports included\n{files} {resident() - before}"
    )


def looks(folder: Path) -> None:
    """All files, and half of them: memory grows by the difference, in which there are no imports."""
    seen = []
    for more in (["--half"], []):
        command = [sys.executable, "-m", "bench.many_files", "--look", folder, *more]
        *told, numbers = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
        seen.append([int(number) for number in numbers.split()])
    (half, less), (files, most) = seen
    print(
        *told,
        f"grown by {(most - less) / (files - half) / 1e3:.2f} KB a file from {half:,} files to {files:,}",
        sep="; ",
    )


def peak(work: Callable[[], object]) -> float:
    gc.collect()
    tracemalloc.start()
    work()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most / 2**20


def bundle(folder: Path, out: Path) -> None:
    """Reports and a bundle about the files, each with findings: a policy that they do not keep."""
    places, now = find_files(folder), datetime(2026, 1, 1, tzinfo=UTC)
    auditor = Auditor(None, bs.Policy.from_dict(_POLICY).for_table("people"), with_keys=False)
    files, _ = auditor.look(places)
    report = judged(auditor, places, files, now=now)

    for kind in ("json", "sarif", "html", "cbom"):
        target = Target(kind, str(out.with_name(f"report.{kind}")))
        most = peak(partial(target.write, report))
        print(
            f"{kind} report of {len(files):,} files with {len(report.findings):,} findings: {most:.1f} MiB at the most beside "
            f"the audit itself, {Path(target.path).stat().st_size / 2**20:.1f} MiB long"
        )

    def make() -> None:
        made = gather(auditor, report, places, Beside(journals=[]), paths=[str(folder)], now=now)
        finished(made, out, [], now, overwrite=True)

    print(
        f"bundle about {len(files):,} files with {len(report.findings):,} findings: {out.stat().st_size if out.exists() else 0:,} "
        f"bytes before, {peak(make):.1f} MiB at the most beside the audit itself, {out.stat().st_size:,} bytes after"
    )


_POLICY = {
    "version": 1,
    "kms": "keyring:///nowhere.json",
    "tables": {"people": {"footer_key": "footer", "columns": {"ssn": {"key": "pii"}, "name": {"key": "pii"}}}},
}


def floor(folder: Path, jobs: int) -> float:
    """Files a second at which their bytes are read, and other bytes as long as their key material take a name beside
    them: what the storage makes of such a rotation, without any of ours. The material itself stays.
    """
    files = sorted(folder.glob("*.parquet"))

    def one(file: Path) -> None:
        with file.open("rb") as data:
            data.read()
        material = file.with_name(f"_KEY_MATERIAL_FOR_{file.name}.json").read_bytes()
        aside = file.with_name(f".{file.name}.aside")
        with aside.open("xb", buffering=0) as new:
            new.write(material)
            os.fsync(new.fileno())
            aside.rename(file.with_name(f"_floor_{file.name}"))

    wall = time.perf_counter()
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, files))
    fd = os.open(folder, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    wall = time.perf_counter() - wall
    for left in folder.glob("_floor_*"):
        left.unlink()
    return len(files) / wall


def rewrap(folder: Path, ring: bs.Keyring, count: int, jobs: int) -> None:
    """External material, one KEK for all, as one writer's run leaves it."""
    folder.mkdir()
    tools = bs.KeyTools(ring, internal=False)
    table = pa.table({"ssn": [f"{row:09d}" for row in range(100)]})
    spec = bs.EncryptionSpec("footer", {"ssn": "pii"}, keys=tools)
    for number in range(count):
        bs.write_table(table, folder / f"{number:06d}.parquet", encryption=spec)
    for name in ("footer", "pii"):
        ring.rotate(name)
    before = floor(folder, jobs)
    syncs, real = [0], os.fsync

    def counted(fd: int) -> None:
        syncs[0] += 1
        real(fd)

    os.fsync = counted
    wall, processor = time.perf_counter(), time.process_time()
    try:
        job = Rewrap(bs.DecryptionSpec(bs.KeyTools(ring)))
        report = rotate(folder, job, journal=folder.parent / f"{folder.name}.jsonl", jobs=jobs)
    finally:
        os.fsync = real
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    assert report.ok, report
    least = max(before, floor(folder, jobs))
    print(
        f"rewrap of {count:,} files beside which their material lies, {jobs} at a time: {count / wall:.0f} files/s by the clock, "
        f"{count / processor:.0f} files/s of processor, {syncs[0] / count:.2f} syncs a file; the floor (read, write, sync, rename) "
        f"is {least:.0f} files/s, {least * wall / count:.1f} times as many"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.many_files", description=__doc__)
    parser.add_argument("--files", type=int, default=10_000, help="to look at (default: 10000)")
    parser.add_argument("--rewrap", type=int, default=1_000, help="files to re-wrap (default: 1000)")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--folder", help="where to make the files (default: the system's temporary folder)")
    parser.add_argument("--keep", metavar="FOLDER", help="only make the files to look at, there, and leave them")
    parser.add_argument("--look", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--half", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.keep:
        place = Path(given.keep)
        place.mkdir()
        ring = bs.Keyring(place / "keys.json", create=True)
        for name in ("footer", "pii"):
            ring.create(name)
        write(place / "plaintext-footers", ring, given.files, signed=True)
        return
    if given.look:
        look_at(given.look, half=given.half)
        return
    with tempfile.TemporaryDirectory(dir=given.folder) as place:
        folder = Path(place)
        ring = bs.Keyring(folder / "keys.json", create=True)
        for name in ("footer", "pii"):
            ring.create(name)
        if given.files:
            for name, signed in (("encrypted-footers", False), ("plaintext-footers", True)):
                write(folder / name, ring, given.files, signed=signed)
                looks(folder / name)
            bundle(folder / "plaintext-footers", folder / "evidence.zip")
        if given.rewrap:
            rewrap(folder / "beside", ring, given.rewrap, given.jobs)


if __name__ == "__main__":
    main()
