"""ORC: a look-up in a file of many row groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc

import bloomseal as bs
from bloomseal import orc

from .. import data, floors
from ..timing import CantError, Ceiling, Comparison, Contender, Goal
from ..workspace import Workspace, row

_GROUPS, _BATCH = 1_000, 2_000
_ASK, _PROBE, _READ = "Bloomseal, maybe_present", "Bloomseal, probe", "Bloomseal, table read"
_PEER = "pyorc, predicate read"
_FLOOR = "the filters read and inflated, nothing asked"


@row("orc")
def orc_lookup(work: Workspace) -> Iterator[Comparison]:
    """A text that is absent from an ORC file of 1,000 row groups, opened afresh."""
    stride = max(10, work.size.rows // 2 // _GROUPS)
    table = data.people(0, stride * _GROUPS).select(["ssn", "city"])
    for compression in ("uncompressed", "zstd", "zlib"):
        path = work.path(f"{compression}.orc")
        pyarrow.orc.write_table(
            table,
            path,
            row_index_stride=stride,
            stripe_size=1 << 30,
            compression=compression,
            bloom_filter_columns=[1],
            bloom_filter_fpp=0.0001,
        )
        value = _absent(path)
        yield Comparison(
            f"ORC, an absent text, {_GROUPS:,} row groups of {stride:,} rows, {compression}",
            [
                Contender(_ASK, _ask(path, value), ours=True),
                Contender(_PROBE, _probe(path, value), ours=True),
                Contender(_READ, _read(path, value), ours=True),
                Contender(_PEER, _pyorc(path, "ssn", "city", value)),
                Contender("pyarrow.orc, the column decoded", _scan(path, value)),
                Contender(_FLOOR, floors.ask_orc(path, "ssn")),
            ],
            [
                Goal(_ASK, _PEER, 10, False, "≥ 10× faster than pyorc, maybe_present", _FLOOR),
                Goal(_PROBE, _PEER, 2, False, "≥ 2× faster than pyorc, probe"),
                Goal(_READ, _PEER, 1, False, "≥ 1× as fast as pyorc, table read"),
            ],
            answer=0,
            repetitions=work.size.short_repetitions,
            note="One stripe, written by pyarrow; pyorc asks the same filters. Of compressed filters all must be inflated.",
        )


@row("orc-batch")
def orc_batch(work: Workspace) -> Iterator[Comparison]:
    """Thousands of texts asked of 1,000 row groups at once."""
    stride = max(10, work.size.rows // 2 // _GROUPS)
    path = work.path("batch.orc")
    table = data.people(0, stride * _GROUPS).select(["ssn"])
    pyarrow.orc.write_table(
        table, path, row_index_stride=stride, stripe_size=1 << 30, bloom_filter_columns=[1], bloom_filter_fpp=0.0001
    )
    values = pa.array(data.absent_ssns(_BATCH))
    count = _BATCH * _GROUPS
    with orc.open_file(path) as file:
        yield Comparison(
            f"ORC, {_BATCH:,} texts asked of {_GROUPS:,} row groups of {stride:,} rows",
            [Contender(_ASK, lambda: file.maybe_present("ssn", values).shape, ours=True, work=count)],
            [Ceiling(_ASK, count / 20_000_000, "≥ 20,000,000 probes per second and core")],
            answer=(_GROUPS, _BATCH),
            work_unit="probes",
            repetitions=work.size.repetitions,
        )


@row("orc-one")
def orc_one(work: Workspace) -> Iterator[Comparison]:
    """One row of one big stripe: the row group is cut out of the streams."""
    rows = work.size.rows // 2
    path = work.path("one.orc")
    text = [f"{number * 7919 % 10_000_019:040d}" for number in range(rows)]
    table = pa.table({"id": range(rows), "text": text})
    pyarrow.orc.write_table(table, path, compression="zstd", stripe_size=1 << 30, bloom_filter_columns=[1])
    number = rows * 5 // 8
    yield Comparison(
        f"ORC, one row of one stripe of {rows:,}, zstd",
        [
            Contender(
                _READ, lambda: bs.read_table(path, columns=["text"], filters=[("id", "==", number)]).num_rows, ours=True
            ),
            Contender(_PEER, _pyorc(path, "id", "text", number)),
            Contender("pyarrow.orc, both columns decoded", lambda: _scan_one(path, number)),
        ],
        [],
        answer=1,
        repetitions=work.size.short_repetitions,
    )


def _scan_one(path: Path, number: int) -> int:
    import pyarrow.compute as pc

    return int(pyarrow.orc.ORCFile(path).read().filter(pc.field("id") == number).num_rows)


def _absent(path: Path) -> str:
    """A value that no filter takes for present."""
    candidates = data.absent_ssns(1_000)
    with orc.open_file(path) as file:
        groups = [one.verdicts for one in file.probe("ssn", candidates)]
    return next(
        value
        for value, seen in zip(candidates, zip(*groups, strict=True), strict=True)
        if all(verdict is bs.Verdict.ABSENT for verdict in seen)
    )


def _ask(path: Path, value: str) -> Callable[[], int]:
    def run() -> int:
        with orc.open_file(path) as file:
            return int(file.maybe_present("ssn", [value]).sum())

    return run


def _probe(path: Path, value: str) -> Callable[[], int]:
    def run() -> int:
        with orc.open_file(path) as file:
            return sum(one.verdicts[0] is not bs.Verdict.ABSENT for one in file.probe("ssn", [value]))

    return run


def _read(path: Path, value: str) -> Callable[[], int]:
    return lambda: bs.read_table(path, columns=["city"], filters=[("ssn", "==", value)]).num_rows


def _pyorc(path: Path, column: str, other: str, value: str | int) -> Callable[[], int]:
    """Rows of two columns, by a predicate on the first."""

    def run() -> int:
        try:
            import pyorc
        except ImportError as error:
            raise CantError("pyorc is not installed") from error
        kind = pyorc.TypeKind.STRING if isinstance(value, str) else pyorc.TypeKind.LONG
        asked: Any = pyorc.PredicateColumn(kind, column) == value
        with path.open("rb") as file:
            rows = list(pyorc.Reader(file, column_names=[column, other], predicate=asked))
        return sum(one[0] == value for one in rows)

    return run


def _scan(path: Path, value: str) -> Callable[[], int]:
    def run() -> int:
        import pyarrow.compute as pc

        column = pyarrow.orc.ORCFile(path).read(columns=["ssn"])["ssn"]
        return int(pc.sum(pc.equal(column, pa.scalar(value))).as_py())

    return run
