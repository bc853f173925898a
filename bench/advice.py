"""What `bloomseal advise` predicts, held against what is then measured: ``python -m bench.advice [files]``.

Ten tables of different shape; row groups read by a look-up, and bytes on disk, are counted, not timed.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

import bloomseal as bs

KEYS: Final[dict[str, Any]] = {"footer_key": b"f" * 16, "column_keys": {"k": b"c" * 16}}
ENCRYPTION: Final = bs.EncryptionSpec(**KEYS)
DECRYPTION: Final = bs.DecryptionSpec(bs.ExplicitKeys(**KEYS))
LOOK_UPS: Final = 60

Draw = Callable[[np.random.Generator, int, int], Any]
"""From a generator, the number of a file and its rows to the values of its column."""

SHAPES: Final[dict[str, Draw]] = {
    "distinct texts": lambda r, _, n: [f"{x:012d}" for x in r.integers(0, 10**12, n)],
    "distinct numbers": lambda r, _, n: r.integers(0, 1 << 62, n),
    "ascending numbers": lambda _, file, n: np.arange(file * n, (file + 1) * n),
    "nearly ascending": lambda r, file, n: np.arange(file * n, (file + 1) * n) + r.integers(0, n, n),
    "few values": lambda r, _, n: r.integers(0, 20, n),
    "a value in some row groups": lambda r, _, n: r.integers(0, 20 * n, n),
    "customers, ten rows each": lambda r, _, n: np.repeat(r.integers(0, 1 << 40, n // 10), 10),
    "dates of one year": lambda r, _, n: pa.array(r.integers(20_000, 20_365, n), pa.int32()).cast(pa.date32()),
    "half null": lambda r, _, n: pa.array(r.integers(0, 1 << 60, n), mask=r.random(n) < 0.5),
    "prices": lambda r, _, n: np.round(r.gamma(2.0, 2_000.0, n), 2),
}


class Held(NamedTuple):
    """A number, as it was predicted and as it was measured."""

    what: str
    predicted: float
    measured: float

    @property
    def off(self) -> float:
        """How far apart, in shares of what was measured; half a row group counts as none."""
        gap = abs(self.predicted - self.measured)
        return 0.0 if self.what.startswith("row groups") and gap < 0.5 else gap / max(self.measured, 1e-9)


def held(home: Path, draw: Draw, files: int, rows: int, row_group_size: int) -> tuple[bs.ColumnAdvice, list[Held]]:
    """One table: written, asked for advice, then measured with filters and with an index."""
    random = np.random.default_rng(7)
    for number in range(files):
        column = pa.array(draw(random, number, rows))
        bs.write_table(
            pa.table({"k": column}), home / f"{number}.parquet", encryption=ENCRYPTION, row_group_size=row_group_size
        )
    before = _size(home)
    (advice,) = bs.open_table(home, decryption=DECRYPTION).advise()
    values = [one for one in column.take(random.integers(0, rows, LOOK_UPS)).to_pylist() if one is not None]
    groups = advice.row_groups
    found = [Held("row groups now", groups - advice.statistics_present, _read(home, values))]
    bs.attach_filters(home, ["k"], decryption=DECRYPTION)
    found.append(Held("filter bytes", advice.filter_bytes, _size(home) - before))
    found.append(Held("row groups by filters", groups - advice.filter_present, _read(home, values)))
    index = bs.open_table(home, decryption=DECRYPTION).index("k", encryption=ENCRYPTION)
    index.build()
    found.append(Held("index bytes", advice.index_bytes, index.show().bytes))
    found.append(Held("row groups by the index", groups - advice.index_present, _read(home, values, "require")))
    return advice, found


def _size(home: Path) -> int:
    return sum(path.stat().st_size for path in home.glob("*.parquet"))


def _read(home: Path, values: list[Any], use_index: Any = "never") -> float:
    table = bs.open_table(home, decryption=DECRYPTION, use_index=use_index)
    read = 0
    for value in values:
        table.read(["k"], [("k", "==", value)])
        read += table.stats.decoded
    return read / len(values)


def main(files: int = 40) -> None:
    for name, draw in SHAPES.items():
        with tempfile.TemporaryDirectory() as home:
            advice, numbers = held(Path(home), draw, files, 8_000, 2_000)
        told = ", ".join(f"{one.what} {one.predicted:.4g} ({one.measured:.4g})" for one in numbers)
        print(f"{name}: {advice.verdict}; {told}; at most {100 * max(one.off for one in numbers):.0f} % off")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
