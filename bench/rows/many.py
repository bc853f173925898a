"""Many files, and more than one core."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import bloomseal as bs

from .. import data, floors
from ..lookup import PLACES
from ..timing import Ceiling, Comparison, Contender, Goal, Timed
from ..workspace import Workspace, fresh_process, row
from .starting import python

_GROUPS = 5
_LEAST = ", the least of it"


@row("files")
def files(work: Workspace) -> Iterator[Comparison]:
    """Looking one value up in many files, from a cold process to the answer."""
    count, rows = work.size.many_files, work.size.many_rows
    folder = many_files(work, count)
    value = data.ssn(count // 4 * rows + rows // 2)
    half, whole, peer = (
        f"Bloomseal, {count // 2} files",
        f"Bloomseal, {count} files",
        f"pyarrow dataset scan, {count} files",
    )
    least = "the least of it: imports, footers and filters"
    yield Comparison(
        f"look-up in {count} files × {_GROUPS} row groups of {rows // _GROUPS:,} rows, cold process to answer",
        [
            Contender(half, _cold("bloomseal", folder, count // 2, value), ours=True),
            Contender(whole, _cold("bloomseal", folder, count, value), ours=True),
            Contender(peer, _cold("pyarrow", folder, count, value)),
            Contender(least, _cold("least", folder, count, value)),
            Contender(
                "a process that imports pyarrow.parquet and ends",
                python("import pyarrow.parquet", fresh_process(work.folder)),
            ),
        ],
        [Goal(whole, peer, 20, False, "≥ 20× faster than pyarrow's dataset scan", least)],
        repetitions=work.size.repetitions,
        note="One writer wrote all files, under one key encryption key for each master key.",
    )
    yield Comparison(
        "look-up: the price of one more file, in a process under way",
        [
            Contender(
                "Bloomseal, per file", lambda: Timed(_ask("bloomseal", folder, count, value)["per_file"]), ours=True
            ),
        ],
        [Ceiling("Bloomseal, per file", 0.002, "≤ 2 ms per extra file")],
        repetitions=work.size.repetitions,
        note=f"The median over the files. KMS calls in one process over {count} files: {_calls(folder, count, value)}.",
    )


def many_files(work: Workspace, count: int, name: str = "many") -> Path:
    """A folder of files with five row groups each, written under one set of key encryption keys."""
    folder, rows = work.path(name), work.size.many_rows
    folder.mkdir(exist_ok=True)
    spec = bs.FilterSpec(fpp=0.0001, ndv=rows // _GROUPS)
    for i in range(count):
        path = folder / f"{i:05d}.parquet"
        if not path.exists():
            bs.write_table(
                data.people(i * rows, rows),
                path,
                encryption=work.keys.encryption(),
                bloom_filters={"ssn": spec},
                row_group_size=rows // _GROUPS,
            )
    places = {f"{i:05d}.parquet": _places(work, folder / f"{i:05d}.parquet") for i in range(count)}
    (folder / PLACES).write_text(json.dumps(places))
    return folder


def _places(work: Workspace, path: Path) -> list[tuple[int, int]]:
    """Offset and length of the footer, and of each filter."""
    with bs.open_file(path, decryption=work.keys.decryption) as file:
        size = path.stat().st_size
        length = int.from_bytes(file.walk.source.read(size - 8, 4), "little")
        found = [(size - 8 - length, length + 8)]
        leaf = file.walk.footer.schema.leaf("ssn").index
        for group in range(file.num_row_groups):
            bloom = file.walk.filter(file.walk.chunk(group, leaf))
            assert bloom is not None
            found.append((bloom.offset, bloom.length))
    return found


def _cold(who: str, folder: Path, count: int, value: str) -> Callable[[], None]:
    def run() -> None:
        assert _ask(who, folder, count, value)["rows"] == 1

    return run


def _ask(who: str, folder: Path, count: int, value: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.lookup", who, str(folder), str(count), value],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
        env=fresh_process(folder.parent),
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def _calls(folder: Path, count: int, value: str) -> int:
    return int(_ask("bloomseal", folder, count, value)["calls"])


@row("threads")
def threads(work: Workspace) -> Iterator[Comparison]:
    """Two threads on two cores beside one after the other."""
    table, half = work.table, work.size.rows // 2
    parts = [table.slice(0, half), table.slice(half)]

    def write(part: int) -> None:
        path = work.path(f"part-{part}.parquet")
        bs.write_table(
            parts[part],
            path,
            encryption=work.keys.encryption(),
            bloom_filters=work.filters,
            row_group_size=work.size.row_group,
        )

    def look_up(_: int) -> None:
        found = bs.read_table(work.sealed, where=[("ssn", "==", work.present)], decryption=work.keys.decryption)
        assert found.num_rows == 1

    cipher, plaintext = AESGCM(os.urandom(16)), bytes(64 << 20)
    outputs = [bytearray(len(plaintext) + 16) for _ in range(2)]

    def encrypt(part: int) -> None:
        for _ in range(5):
            cipher.encrypt_into(b"n" * 12, plaintext, b"", outputs[part])

    # One for each thread, since each has memory of its own.
    least = [floors.look_up(work.sealed, "ssn", work.present, work.keys.decryption) for _ in range(2)]
    two, one = "two threads", "one thread"
    goal = "≥ 1.6× with two threads"
    for what, jobs, goals in (
        ("AES-GCM alone: what the machine has to give", {"": (encrypt, 2)}, []),
        ("write two halves of the table", {"": (write, 2)}, [Goal(two, one, 1.6, False, goal)]),
        (
            "20 point look-ups",
            {"": (look_up, 20), _LEAST: (lambda number: least[number % 2](), 20)},
            [Goal(two, one, 1.6, False, goal, two + _LEAST, one + _LEAST)],
        ),
    ):
        yield Comparison(
            f"threads: {what}",
            [
                contender
                for name, (job, tasks) in jobs.items()
                for contender in (
                    Contender(two + name, _at_once(job, tasks), ours=not name),
                    Contender(one + name, _one_by_one(job, tasks), ours=not name),
                )
            ],
            goals,
            repetitions=work.size.short_repetitions,
            cores=2,
            note='Both may use both cores. pyarrow\'s pools are set to one thread, so that "one thread" is one.',
        )


def _one_by_one(job: Callable[[int], object], tasks: int) -> Callable[[], None]:
    def run() -> None:
        for number in range(tasks):
            job(number)

    return run


def _at_once(job: Callable[[int], object], tasks: int) -> Callable[[], None]:
    def run() -> None:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda thread: [job(number) for number in range(thread, tasks, 2)], range(2)))

    return run
