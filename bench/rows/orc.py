"""ORC: a look-up in a file of many row groups."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.orc

import bloomseal as bs

from .. import data, floors
from ..timing import CantError, Ceiling, Comparison, Contender, Goal
from ..workspace import Workspace, row

_GROUPS, _BATCH = 1_000, 2_000
_PIECE = 200_000
_CANDIDATES = 1_000
_ASK, _PROBE, _READ = "Bloomseal, maybe_present", "Bloomseal, probe", "Bloomseal, table read"
_PEER = "pyorc, predicate read"
_FLOOR = "the filters read and inflated, nothing asked"


@dataclass(frozen=True)
class _Shape:
    """Of a file with a given number of row groups.

    Attributes:
        stride: rows of a row group.
        stripe_size: bytes of a stripe.
        fpp: asked false positive rate.
    """

    stride: int
    stripe_size: int
    fpp: float


@row("orc")
def orc_lookup(work: Workspace) -> Iterator[Comparison]:
    """A text that is absent from an ORC file of 1,000 row groups, opened afresh."""
    # The first as writers make them unless they are told otherwise, at medium size: row groups of 10,000 rows, stripes
    # of 64 MiB, and Java's false positive rate.
    shapes = [
        _Shape(work.size.rows * 5 // _GROUPS, 64 << 20, 0.01),
        _Shape(max(10, work.size.rows // 2 // _GROUPS), 1 << 30, 0.0001),
    ]
    for shape, compression in itertools.product(shapes, ("uncompressed", "zstd", "zlib")):
        path = work.path(f"{compression}-{shape.stride}.orc")
        _write(path, shape, compression)
        value, wrong = _absent(path)
        yield Comparison(
            f"ORC, an absent text, {_GROUPS:,} row groups of {shape.stride:,} rows, {wrong} taken for it, {compression}",
            [
                Contender(_ASK, _ask(path, value, wrong), ours=True),
                Contender(_PROBE, _probe(path, value, wrong), ours=True),
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
            note="Written by pyarrow; pyorc asks the same filters. Of compressed filters all must be inflated.",
        )


def _write(path: Path, shape: _Shape, compression: str) -> None:
    writer = pyarrow.orc.ORCWriter(
        path,
        row_index_stride=shape.stride,
        stripe_size=shape.stripe_size,
        compression=compression,
        bloom_filter_columns=[1],
        bloom_filter_fpp=shape.fpp,
    )
    rows = shape.stride * _GROUPS
    with writer:
        for first in range(0, rows, _PIECE):
            writer.write(data.people(first, min(_PIECE, rows - first)).select(["ssn", "city"]))


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
    with bs.open_file(path) as file:
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
                _READ, lambda: bs.read_table(path, columns=["text"], where=[("id", "==", number)]).num_rows, ours=True
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


def _absent(path: Path) -> tuple[str, int]:
    """A value that the file lacks, and how many filters take it for present: as many as of most such values."""
    candidates = data.absent_ssns(_CANDIDATES)
    with bs.open_file(path) as file:
        wrong = file.maybe_present("ssn", pa.array(candidates)).sum(axis=0)
    place = np.argsort(wrong)[len(wrong) // 2]
    return candidates[place], int(wrong[place])


def _ask(path: Path, value: str, wrong: int) -> Callable[[], int]:
    def run() -> int:
        with bs.open_file(path) as file:
            return int(file.maybe_present("ssn", [value]).sum()) - wrong

    return run


def _probe(path: Path, value: str, wrong: int) -> Callable[[], int]:
    def run() -> int:
        with bs.open_file(path) as file:
            return sum(one.verdicts[0] is not bs.Verdict.ABSENT for one in file.probe("ssn", [value])) - wrong

    return run


def _read(path: Path, value: str) -> Callable[[], int]:
    return lambda: bs.read_table(path, columns=["city"], where=[("ssn", "==", value)]).num_rows


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
