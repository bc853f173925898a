"""`python -m bench.indexed_spark FOLDER make [files] | lookup | join KEYS | spread [SHARE…]`: a sealed index through
Spark, on two cores.

``make`` leaves a table of 1,000 files × 10 row groups of 2,000 rows in FOLDER, sealed, with filters and an index, and
in plaintext with filters; one of a single file; and keys, of which one is in each of 5 % of the row groups, and the
others nowhere. Then each job stands beside the same Spark's own over the sealed files, the same over those in
plaintext, and `bss.read` without the index. ``spread`` joins 100,000 keys, of which one is in each row group of a share
of the files (all in turn: 1, 5, 30, 60, 90 and 100 %). Told are the least time by the clock, the least processor time
of all processes, and the ratios to the last, which is Spark over plaintext, and of ``spread`` the join without index.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import bloomseal as bs
import bloomseal.spark as bss

from .small_files_spark import compare
from .sparkside import KEYRING, POLICY, Jobs

_GROUPS: Final = 10
_ROWS: Final = 2_000
_HIT: Final = 0.05
_SHARES: Final = (1, 5, 30, 60, 90, 100)
"""Of the files, in percent."""
_MANY: Final = 1_000_000
"""More keys are joined twice, and told of the second time."""


def values(first: int, count: int) -> pa.Array:
    """Each once in the table, in no order."""
    numbers = (np.arange(first, first + count, dtype=np.int64) * 1_000_003) % 10_000_000_019
    return pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 11, "0")


def make(folder: Path, files: int = 1_000) -> None:
    folder.mkdir(exist_ok=True)
    ring = bs.Keyring(folder / KEYRING, create=True)
    for name in ("footer", "pii"):
        ring.create(name)
    column = 'email = { key = "pii", filter = { fpp = 0.01 } }'
    (folder / POLICY).write_text(
        f'version = 1\nkms = "keyring://{ring.path}"\n[tables.people]\nfooter_key = "footer"\ncomplete = true\n'
        f"[tables.people.columns]\n{column}\n"
    )
    policy = bs.Policy.load(folder / POLICY).for_table("people")
    rows = _GROUPS * _ROWS
    filters = {"email": bs.FilterSpec(fpp=0.01)}
    (folder / "many-clear").mkdir()
    for name, count in (("one", 1), ("many", files)):
        (folder / name).mkdir()
        for i in range(count):
            table = pa.table({"email": values(i * rows, rows), "ssn": range(i * rows, (i + 1) * rows)})
            bs.write_table(table, folder / name / f"{i:05d}.parquet", encryption=policy, row_group_size=_ROWS)
            if name == "many":
                bs.write_table(
                    table, folder / "many-clear" / f"{i:05d}.parquet", bloom_filters=filters, row_group_size=_ROWS
                )
        bs.open_table(folder / name, decryption=policy).index("email").build()
    rng = np.random.default_rng(2)
    hit = np.sort(rng.choice(files * _GROUPS, int(_HIT * files * _GROUPS), replace=False))
    for wanted in (100_000, 1_000_000, 10_000_000):
        _keys(folder / f"keys-{wanted}.parquet", hit, wanted)
    for share in _SHARES:
        chosen = np.sort(rng.choice(files, max(1, files * share // 100), replace=False))
        groups = (chosen[:, None] * _GROUPS + np.arange(_GROUPS)).ravel()
        _keys(folder / f"spread-{share}.parquet", groups, 100_000)


def _keys(path: Path, groups: np.ndarray, wanted: int) -> None:
    """One key of each of these row groups, and others that are nowhere."""
    there = pa.concat_arrays([values(int(group) * _ROWS + 7, 1) for group in groups])
    nowhere = pc.utf8_lpad(pa.array(np.arange(wanted - len(there))).cast(pa.string()), 12, "x")
    pq.write_table(pa.table({"email": pa.concat_arrays([there, nowhere])}), path)


class Indexed(Jobs):
    """The jobs, with a choice whether indexes are asked."""

    def found(self, path: str, value: str, use_index: str) -> int:
        rows = bss.read(self._spark, path, where=f"email = '{value}'", table="people", use_index=use_index)
        return len(rows.collect())

    def natively(self, path: str, value: str) -> int:
        frame = self._spark.read.parquet(path)
        return len(frame.where(frame["email"] == value).collect())

    def joined(self, path: str, keys: str, use_index: str) -> int:
        wanted = self._spark.read.parquet(keys)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows = bss.semi_join(self._spark, path, "email", wanted, table="people", use_index=use_index)
        return int(rows.selectExpr("count(ssn)").first()[0])


def main() -> None:
    folder, what = Path(sys.argv[1]).absolute(), sys.argv[2]
    if what == "make":
        make(folder, *map(int, sys.argv[3:]))
        return
    jobs = Indexed(folder)
    many, one, clear = (str(folder / name) for name in ("many", "one", "many-clear"))
    files = len(list((folder / "many").glob("*.parquet")))
    if what == "lookup":
        there, nowhere = values(files * _GROUPS * _ROWS // 2, 1)[0].as_py(), "nowhere"
        for value in (there, nowhere):
            print("a value that is there" if value == there else "a value that is nowhere")
            compare(
                {
                    "bss.read with index": lambda value=value: jobs.found(many, value, "require"),
                    "bss.read without index": lambda value=value: jobs.found(many, value, "never"),
                    "Spark's own, sealed files": lambda value=value: jobs.natively(many, value),
                    "Spark's own, plaintext files": lambda value=value: jobs.natively(clear, value),
                }
            )
        print("an empty query of the source: a table of one file")
        compare({"bss.read": lambda: jobs.found(one, nowhere, "require")})
    elif what == "join":
        keys = str(folder / f"keys-{sys.argv[3]}.parquet")
        compare(
            {
                "semi_join with index": lambda: jobs.joined(many, keys, "require"),
                "semi_join without index": lambda: jobs.joined(many, keys, "never"),
                "Spark's own, sealed files": lambda: jobs.semi_join(many, "native", keys),
                "Spark's own, plaintext files": lambda: jobs.semi_join(clear, "native", keys),
            },
            *((1, 1) if int(sys.argv[3]) > _MANY else ()),
        )
    elif what == "spread":
        for share in map(int, sys.argv[3:]) if sys.argv[3:] else _SHARES:
            print(f"100,000 keys, in {share} % of the files")
            keys = str(folder / f"spread-{share}.parquet")
            compare(
                {
                    "semi_join with index": lambda keys=keys: jobs.joined(many, keys, "auto"),
                    "semi_join without index": lambda keys=keys: jobs.joined(many, keys, "never"),
                }
            )
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
