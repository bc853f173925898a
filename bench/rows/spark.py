"""Spark, warm, on two cores: through the key bridge, through the data source, and as it is without either."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import bloomseal as bs

from .. import data
from ..jvm import need_jvm
from ..sparkside import KEYRING, POLICY
from ..timing import CantError, Comparison, Contender, Goal, Timed, on_cores
from ..workspace import Workspace, row

_GROUPS = 10
_FPP = {"ssn": 0.001, "email": 0.00001}
"""Single values are looked up by SSN. A thousand keys at once, by e-mail, would find every filter of that size maybe
present.
"""
BRIDGE, SOURCE, OFF = "through the bridge", "through the data source", "Spark, encrypted, filters off"


class Side:
    """The process of `bench.sparkside`, asked over its standard streams."""

    def __init__(self, folder: Path) -> None:
        with on_cores(2):
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.sparkside", str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                cwd=Path(__file__).parents[2],
            )
        self._answer()

    def job(self, job: str, **arguments: Any) -> Callable[[], Timed]:
        """A contender's `run`."""

        def run() -> Timed:
            assert self._process.stdin is not None
            print(json.dumps({"job": job, **arguments}), file=self._process.stdin, flush=True)
            told = self._answer()
            if "cant" in told:
                raise CantError(told["cant"])
            return Timed(told["seconds"], told["answer"])

        return run

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise CantError("Spark did not start: no Java 17 or later, or no PySpark")
        return json.loads(line)


@row("spark")
def spark(work: Workspace) -> Iterator[Comparison]:
    """Spark with the bridge and with the data source, beside Spark without them; nothing where there is no JVM."""
    try:
        need_jvm()
    except CantError:
        return
    table = _keys(work)
    side = Side(work.folder)
    try:
        yield from _whole_tables(work, side)
        yield from _lookups(work, side, _table(work, table))
        yield from _many_small(work, side, table)
        yield from _keys_in_small_files(work, side, table)
    finally:
        side.close()


def _whole_tables(work: Workspace, side: Side) -> Iterator[Comparison]:
    compare = functools.partial(_comparison, work)
    plain, how = str(work.plain), ("plaintext", "encrypted", "checked")
    yield compare(
        f"Spark: write {work.size.rows:,} rows, filters on two columns",
        {name: side.job("write", source=plain, how=name) for name in how},
        [Goal("encrypted", "plaintext", 1.25, True, "bridge ≤ 1.25× the same Spark without encryption")],
        answer=work.size.rows,
        note="From Spark's cache, four files. *checked* is `bloomseal.spark.write`, which opens every new file again.",
    )
    sealed, clear = work.path("scan-sealed"), work.path("scan-plain")
    _copy_into(sealed, _written(work, sealed.name, encryption=_policy(work)))
    _copy_into(clear, _written(work, clear.name))
    yield compare(
        f"Spark: scan {4 * work.size.rows:,} whole rows",
        {
            "plaintext": side.job("scan", path=str(clear), through="native"),
            BRIDGE: side.job("scan", path=str(sealed), through="native"),
            SOURCE: side.job("scan", path=str(sealed), through="source"),
        },
        [
            Goal(BRIDGE, "plaintext", 1.25, True, "bridge ≤ 1.25× the same Spark without encryption"),
            Goal(SOURCE, BRIDGE, 2.2, True, "data source ≤ 2.2× Spark's native encrypted read"),
        ],
        note="Rows go to Spark's `noop` sink. Four copies of one file.",
    )


def _lookups(work: Workspace, side: Side, folder: Path) -> Iterator[Comparison]:
    compare = functools.partial(_comparison, work)
    count, rows = work.size.spark_files, work.size.spark_rows
    path, value = str(folder), data.ssn(count // 4 * rows + rows // 2)
    yield compare(
        f"Spark: point look-up in {count} files × {_GROUPS} row groups of {rows // _GROUPS:,} rows",
        {
            BRIDGE: side.job("lookup", path=path, through="native", value=value),
            SOURCE: side.job("lookup", path=path, through="source", value=value),
            OFF: side.job("lookup", path=path, through="native", value=value, filters=False),
        },
        [
            Goal(BRIDGE, OFF, 5, False, "bridge ≥ 5× faster than with filters off"),
            Goal(SOURCE, OFF, 5, False, "data source ≥ 5× faster than with filters off"),
            Goal(SOURCE, BRIDGE, 1.5, True, "data source ≤ 1.5× the bridge"),
        ],
        answer=1,
    )
    keys = work.path("keys-to-join.parquet")
    chosen = max(1, count // 20)
    # A key from each of many rows in a twentieth of the files: the others' row groups hold none.
    wanted = [
        data.email(file * rows + i) for file in range(chosen) for i in range(0, rows, max(1, rows * chosen // 1000))
    ]
    pq.write_table(pa.table({"email": wanted[:1000]}), keys)
    yield compare(
        f"Spark: semi-join of {len(wanted[:1000]):,} keys, in 5 % of {count} files × {_GROUPS} row groups",
        {
            "bloomseal.spark.read(keys=…)": side.job("semi_join", path=path, through="ours", keys=str(keys)),
            "Spark's semi-join": side.job("semi_join", path=path, through="native", keys=str(keys)),
        },
        [Goal("bloomseal.spark.read(keys=…)", "Spark's semi-join", 3, False, "≥ 3× faster than Spark's semi-join")],
        answer=len(wanted[:1000]),
    )


def _many_small(work: Workspace, side: Side, table: bs.TablePolicy) -> Iterator[Comparison]:
    compare = functools.partial(_comparison, work)
    small = work.path("small.parquet")
    bs.write_table(data.people(0, 2_000), small, encryption=table, row_group_size=200)
    audited, planned = work.size.spark_audited, work.size.spark_planned
    for name, count in (("audited", audited), ("planned", planned)):
        _copy_into(work.path(name), small, count)
    yield compare(
        f"Spark: audit {audited:,} files × {_GROUPS} row groups, with keys",
        {
            "on Spark, two tasks at a time": side.job("audit", path=str(work.path("audited")), through="spark"),
            "one process": side.job("audit", path=str(work.path("audited")), through="one process"),
            "a Spark job without work": side.job("nothing"),
        },
        note="The inventory, filters opened. It should take half the time on two cores, but for what starting costs.",
    )
    yield compare(
        f"Spark: plan a look-up over {planned:,} files",
        {
            SOURCE: side.job("plan", path=str(work.path("planned")), through="source", value="x"),
            "Spark's Parquet reader": side.job("plan", path=str(work.path("planned")), through="native", value="x"),
        },
        [Goal(SOURCE, "Spark's Parquet reader", 1, True, "data source ≤ 1× Spark's native planning")],
        note="From the path to the tasks: listing, schema, pushed filters, packing.",
    )


def _keys_in_small_files(work: Workspace, side: Side, table: bs.TablePolicy) -> Iterator[Comparison]:
    """Few keys, of which most files hold none, and so many that every file holds some."""
    count, rows = work.size.spark_audited, 500
    folder = work.path("small-files")
    folder.mkdir()
    filters = {name: bs.FilterSpec(fpp=0.001, ndv=rows) for name in _FPP}
    for i in range(count):
        bs.write_table(
            data.people(i * rows, rows), folder / f"{i:05d}.parquet", encryption=table, bloom_filters=filters,
            row_group_size=rows,
        )  # fmt: skip
    for wanted in (10, 100_000):
        step = max(1, count * rows // wanted)
        chosen = [data.email(number) for number in range(0, count * rows, step)][:wanted]
        keys = work.path(f"{wanted}-keys.parquet")
        pq.write_table(pa.table({"email": chosen}), keys)
        jobs = {
            "bloomseal.spark.read(keys=…)": side.job("semi_join", path=str(folder), through="ours", keys=str(keys)),
            "Spark's semi-join": side.job("semi_join", path=str(folder), through="native", keys=str(keys)),
        }
        yield _comparison(
            work,
            f"Spark: semi-join of {len(chosen):,} keys, spread over {count:,} files of {rows} rows",
            jobs,
            [Goal("bloomseal.spark.read(keys=…)", "Spark's semi-join", 1.2, True, "≤ 1.2× Spark's own semi-join")],
            answer=len(chosen),
            note="The whole call: plan, keys, rows.",
        )


def _comparison(
    work: Workspace,
    title: str,
    jobs: dict[str, Callable[[], Timed]],
    goals: list[Goal] | None = None,
    *,
    answer: object = None,
    note: str = "",
) -> Comparison:
    # A peer that can't is told so; ours must be able to.
    ours = {BRIDGE, SOURCE, "encrypted", "checked", "bloomseal.spark.read(keys=…)"}
    contenders = [
        Contender(name, run, ours=name in ours, warm_up=min(3, work.size.jvm_warm_up), elsewhere=True)
        for name, run in jobs.items()
    ]
    return Comparison(
        title, contenders, goals or [], answer=answer, note=note, repetitions=work.size.repetitions, cores=2
    )


def _keys(work: Workspace) -> bs.TablePolicy:
    """A keyring and a policy in files, as executors need them."""
    ring = bs.Keyring(work.path(KEYRING), create=True)
    for name in ("footer", "pii"):
        ring.create(name)
    ndv = max(1, work.size.spark_rows // _GROUPS)
    columns = "".join(
        f'{name} = {{ key = "pii", filter = {{ fpp = {fpp:.6f}, ndv = {ndv} }} }}\n' for name, fpp in _FPP.items()
    )
    work.path(POLICY).write_text(
        f'version = 1\nkms = "keyring://{ring.path}"\n[tables.people]\nfooter_key = "footer"\ncomplete = true\n'
        f"[tables.people.columns]\n{columns}"
    )
    return _policy(work)


def _policy(work: Workspace) -> bs.TablePolicy:
    return bs.Policy.load(work.path(POLICY)).for_table("people")


def _table(work: Workspace, table: bs.TablePolicy) -> Path:
    """Many files with ten row groups each."""
    folder, rows = work.path("spark-table"), work.size.spark_rows
    folder.mkdir()
    for i in range(work.size.spark_files):
        bs.write_table(
            data.people(i * rows, rows), folder / f"{i:05d}.parquet", encryption=table, row_group_size=rows // _GROUPS
        )
    return folder


def _written(work: Workspace, name: str, **options: Any) -> Path:
    path = work.path(f"{name}.parquet")
    work.write(path, **options)
    return path


def _copy_into(folder: Path, file: Path, count: int = 4) -> None:
    folder.mkdir()
    for i in range(count):
        shutil.copy(file, folder / f"{i:05d}.parquet")
