"""`python -m bench.small_files_spark FOLDER make | join KEYS | lookup | scan | write | jobs [NAME…] | memory`: Spark
over 6,000 small files and sixteen big ones, on two cores.

``make`` leaves 6,000 files of 500 rows in FOLDER, six copies of 1,000, sealed and in plaintext, both with filters, and
sixteen of 500,000 rows, four copies of four; ``write`` writes four of them anew. Then each job stands beside the same
Spark's own, over the sealed files and over the plaintext ones. Told are the least time by the clock and the least
processor time of all processes, the JVM's included, after four runs to warm up; and the ratios to Spark over plaintext.
``jobs`` tells how much faster verify, audit, rewrap and rekey (or those that are named) are with two tasks than with
one, over 96 files of 1,000,000 rows, beside tasks that do nothing but AES-GCM; and the same without what an empty job
takes, which is Spark's own start. ``rewrap``, which copies files, also stands beside tasks that do nothing but copy and
sync them: that is what disk and memory give. ``memory`` tells how big the JVM's heap and its Python processes are after
each ten of a hundred queries.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import bloomseal as bs
import bloomseal.spark as bss
from bloomseal.spark.jobs.common import as_frame, packs

from . import data
from .many_files_spark import processor
from .sparkside import KEYRING, POLICY, Jobs

_FILES, _COPIES, _ROWS = 1_000, 6, 500
_BIG_FILES, _BIG_COPIES, _BIG_ROWS = 4, 4, 500_000
_JOB_FILES, _JOB_COPIES, _JOB_ROWS = 24, 4, 1_000_000
_RUNS, _WARM_UP = 5, 4
_PIECE = 8 << 20


def make(folder: Path) -> None:
    """The tables, and files of keys."""
    folder.mkdir(exist_ok=True)
    ring = bs.Keyring(folder / KEYRING, create=True)
    for name in ("footer", "pii"):
        ring.create(name)
    columns = "".join(
        f'{name} = {{ key = "pii", filter = {{ fpp = {fpp}, ndv = {_ROWS} }} }}\n'
        for name, fpp in (("ssn", "0.001"), ("email", "0.00001"))
    )
    (folder / POLICY).write_text(
        f'version = 1\nkms = "keyring://{ring.path}"\n[tables.people]\nfooter_key = "footer"\ncomplete = true\n'
        f"[tables.people.columns]\n{columns}"
    )
    table = bs.Policy.load(folder / POLICY).for_table("people")
    filters = {"ssn": bs.FilterSpec(fpp=0.001, ndv=_ROWS), "email": bs.FilterSpec(fpp=0.00001, ndv=_ROWS)}
    for kind, count, copies, rows in (("small", _FILES, _COPIES, _ROWS), ("big", _BIG_FILES, _BIG_COPIES, _BIG_ROWS)):
        sealed, clear = folder / f"{kind}-sealed", folder / f"{kind}-clear"
        sealed.mkdir()
        clear.mkdir()
        for i in range(count):
            people, name = data.people(i * rows, rows), f"{i:05d}.parquet"
            bs.write_table(people, sealed / name, encryption=table, bloom_filters=filters, row_group_size=100_000)
            bs.write_table(people, clear / name, bloom_filters=filters, row_group_size=100_000)
            for number in range(1, copies):
                for at in (sealed, clear):
                    shutil.copy(at / name, at / f"copy{number}-{name}")
    for wanted in (10, 100_000):
        step = _FILES * _ROWS // wanted
        pq.write_table(
            pa.table({"email": [data.email(i * step) for i in range(wanted)]}), folder / f"keys-{wanted}.parquet"
        )


def compare(jobs: dict[str, Callable[[], Any]], runs: int = _RUNS, warm_up: int = _WARM_UP) -> None:
    """In turns; the last is what the others are held against."""
    best: dict[str, tuple[float, float]] = {}
    answers = set()
    for run in range(runs + warm_up):
        for name, job in jobs.items():
            gc.collect()
            wall, work = time.perf_counter(), processor()
            answers.add(job())
            told = time.perf_counter() - wall, processor() - work
            if run >= warm_up:
                was = best.get(name, told)
                best[name] = min(was[0], told[0]), min(was[1], told[1])
            print(f"  {name}: {told[0]:.2f} s, {told[1]:.2f} s of processor", file=sys.stderr, flush=True)
    assert len(answers) == 1, answers
    wall, work = best[[*jobs][-1]]
    for name, (own_wall, own_work) in best.items():
        print(
            f"{name}: {own_wall:.2f} s ({own_wall / wall:.2f}), {own_work:.2f} s of processor ({own_work / work:.2f})"
        )


def two_tasks(jobs: Jobs, folder: Path, names: list[str]) -> None:
    """Each job over the same files, as one task and as two, in turns; and an empty one, which shows what Spark itself
    takes to start tasks, and to bring rows to the driver and into a frame.
    """
    spark, place = jobs._spark, folder / "jobs-sealed"
    ring, policy = bs.Keyring(folder / KEYRING), bs.Policy.load(folder / POLICY)
    if not place.exists():
        place.mkdir()
        for i in range(_JOB_FILES):
            first = place / f"{i:05d}.parquet"
            bs.write_table(
                data.people(i * _JOB_ROWS, _JOB_ROWS),
                first,
                encryption=policy.for_table("people"),
                bloom_filters={"ssn": bs.FilterSpec(fpp=0.001), "email": bs.FilterSpec(fpp=0.00001)},
            )
            for number in range(1, _JOB_COPIES):
                shutil.copy(first, place / f"copy{number}-{first.name}")
    files = [str(path) for path in sorted(place.iterdir())]

    def alone(work: Callable[[str], int], per_task: int) -> int:
        rows = packs(spark, files, per_task).map(lambda name: (name, work(name))).collect()
        return int(as_frame(spark, rows, "file string, bytes bigint").count())

    def rewrapped(per_task: int) -> Any:
        ring.rotate("pii")
        return bss.rewrap(spark, place, table="people", files_per_task=per_task)

    journal = folder / "jobs.jsonl"
    work: dict[str, Callable[[int], Any]] = {
        "empty": lambda per_task: alone(len, per_task),
        "AES-GCM alone": lambda per_task: alone(_sealed, per_task),
        "copies alone": lambda per_task: alone(_copied, per_task),
        "verify": lambda per_task: bss.verify(spark, place, table="people", files_per_task=per_task).count(),
        "audit": lambda per_task: bss.audit(spark, place, table="people", files_per_task=per_task).inventory.count(),
        "rewrap": lambda per_task: rewrapped(per_task).count(),
        "rekey": lambda per_task: bss.rekey(
            spark, place, table="people", files_per_task=per_task, journal=journal, restart=True
        ).count(),
    }
    beside = {"empty", "AES-GCM alone", *({"copies alone"} if "rewrap" in names else set())}
    work = {name: job for name, job in work.items() if not names or name in beside.union(names)}
    best: dict[tuple[str, int], float] = {}
    for run in range(_RUNS + 1):
        for name, job in work.items():
            for tasks in (1, 2):
                gc.collect()
                start = time.perf_counter()
                job(-(-len(files) // tasks))
                told = time.perf_counter() - start
                if run:
                    best[name, tasks] = min(told, best.get((name, tasks), told))

    def gain(name: str, less: str | None = None) -> float:
        one, two = (best[name, tasks] - (best[less, tasks] if less else 0) for tasks in (1, 2))
        return one / two

    print(f"empty: one task {best['empty', 1]:.2f} s, two {best['empty', 2]:.2f} s")
    for name in list(work)[1:]:
        whole, net = gain(name), gain(name, "empty")
        print(
            f"{name}: one task {best[name, 1]:.2f} s, two {best[name, 2]:.2f} s: {whole:.2f} times as fast, "
            f"{whole / gain('AES-GCM alone'):.2f} of AES-GCM's; without an empty job's time {net:.2f} times, "
            f"{net / gain('AES-GCM alone', 'empty'):.2f} of AES-GCM's"
            + (f"; {whole / gain('copies alone'):.2f} of the copies'" if name == "rewrap" else "")
        )


def _sealed(_: str) -> int:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    cipher, text = AESGCM(bytes(16)), bytes(1 << 20)
    out = bytearray(len(text) + 16)
    return sum(cipher.encrypt_into(number.to_bytes(12, "big"), text, None, out) for number in range(1_000))


def _copied(name: str) -> int:
    """A file, put in its own place after a copy by the kernel and a sync: what any way to rewrap a file comes to. The
    disk begins with each piece while the next is copied.
    """
    path, aside = Path(name), Path(f"{name}.copy")
    with path.open("rb") as old, aside.open("wb") as new:
        size, done = os.fstat(old.fileno()).st_size, 0
        while done < size:
            more = os.copy_file_range(old.fileno(), new.fileno(), min(size - done, _PIECE))
            os.posix_fadvise(new.fileno(), done, more, os.POSIX_FADV_DONTNEED)
            done += more
        os.fsync(new.fileno())
        aside.rename(path)
        folder = os.open(path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
    return size


def memory(jobs: Jobs, folder: Path) -> None:
    """After each ten of a hundred queries, with the bridge and with the data source."""
    for i in range(101):
        if i % 10 == 0:
            print(f"after {i} queries: {_sizes(jobs)}", flush=True)
        sealed, value = str(folder / "small-sealed"), data.ssn(i * 7_919)
        if i % 2:
            jobs.lookup(sealed, "source", value)
        else:
            jobs.scan(str(folder / "big-sealed"), "source" if i % 4 else "native")


def _sizes(jobs: Jobs) -> str:
    jvm: Any = jobs._spark.sparkContext._jvm
    jvm.java.lang.System.gc()
    heap = jvm.java.lang.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed()
    sizes: dict[str, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().decode().split("\0")
            if not _below(int(place.name), os.getpid()):
                continue
            pages = int((place / "statm").read_text().split()[1])
        except (OSError, ValueError):
            continue
        kind = "JVM" if "java" in Path(words[0]).name else words[-2] if len(words) > 2 else words[0]
        sizes.setdefault(kind, []).append(pages * os.sysconf("SC_PAGE_SIZE") >> 20)
    told = "; ".join(f"{kind.rpartition('.')[2]} {sorted(each)} MiB" for kind, each in sorted(sizes.items()))
    return f"heap {heap >> 20} MiB; {told}"


def _below(pid: int, ancestor: int) -> bool:
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        if pid == ancestor:
            return True
    return False


def main() -> None:
    """Do it."""
    folder, what = Path(sys.argv[1]).absolute(), sys.argv[2]
    if what == "make":
        make(folder)
        return
    jobs = Jobs(folder)
    sealed, clear = str(folder / "small-sealed"), str(folder / "small-clear")
    if what == "join":
        keys = str(folder / f"keys-{sys.argv[3]}.parquet")
        compare(
            {
                "bss.read(keys=…)": lambda: jobs.semi_join(sealed, "ours", keys),
                "Spark's own, sealed files": lambda: jobs.semi_join(sealed, "native", keys),
                "Spark's own, plaintext files": lambda: jobs.semi_join(clear, "native", keys),
            }
        )
    elif what == "lookup":
        value = data.ssn(_FILES * _ROWS // 2)
        compare(
            {
                "bss.read": lambda: jobs.lookup(sealed, "source", value),
                "the bridge": lambda: jobs.lookup(sealed, "native", value),
                "Spark, plaintext files": lambda: jobs.lookup(clear, "native", value),
            }
        )
    elif what == "scan":
        compare(
            {
                "the data source": lambda: jobs.scan(str(folder / "big-sealed"), "source"),
                "the bridge": lambda: jobs.scan(str(folder / "big-sealed"), "native"),
                "Spark, plaintext files": lambda: jobs.scan(str(folder / "big-clear"), "native"),
            }
        )
    elif what == "write":
        source = str(folder / "big-clear" / "0*.parquet")
        compare(
            {
                "bss.write": lambda: jobs.write(source, "checked"),
                "the bridge": lambda: jobs.write(source, "encrypted"),
                "Spark, plaintext files": lambda: jobs.write(source, "plaintext"),
            }
        )
    elif what == "jobs":
        two_tasks(jobs, folder, sys.argv[3:])
    elif what == "memory":
        memory(jobs, folder)
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
