"""Look-ups with and without a sealed index, in one run, as ratios: ``python -m bench.sealed_index [files]``."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import bloomseal as bs

KEYS: dict[str, Any] = {"footer_key": b"f" * 16, "column_keys": {"ssn": b"c" * 16}}
ROWS = 5_000


def least(work: Callable[[], object], times: int = 5) -> float:
    """The least processor time, in seconds."""
    spent = []
    for _ in range(times):
        began = time.process_time()
        work()
        spent.append(time.process_time() - began)
    return min(spent)


def main(files: int = 2_000) -> None:
    encryption = bs.EncryptionSpec(**KEYS)
    decryption = bs.DecryptionSpec(bs.ExplicitKeys(**KEYS))
    with tempfile.TemporaryDirectory() as home:
        root = Path(home)
        for number in range(files):
            ids = [(7919 * i + number) % (ROWS * files) for i in range(number * ROWS, (number + 1) * ROWS)]
            rows = pa.table({"ssn": [f"{one:09d}" for one in ids], "n": range(ROWS)})
            bs.write_table(
                rows, root / f"{number}.parquet", encryption=encryption, row_group_size=1_000, bloom_filters=["ssn"]
            )
        index = bs.open_table(root, decryption=decryption).index("ssn", encryption=encryption)
        began = time.process_time()
        report = index.build()
        hashed = report.entries / (time.process_time() - began)
        facts = index.show()
        tables = [bs.open_table(root, decryption=decryption, use_index=how) for how in ("require", "never")]  # type: ignore[arg-type]
        for what, value in (("absent", "x"), ("present", rows.column("ssn")[17].as_py())):
            quick, slow = (least(lambda t=one, v=value: t.read(filters=[("ssn", "==", v)])) for one in tables)  # type: ignore[misc]
            print(f"{what}: 1/{slow / quick:.0f} of the time without an index; {1e3 * quick:.1f} ms for {files} files")
        print(
            f"{facts.entries} entries, {8 * facts.bytes / facts.entries:.1f} bits each; {hashed:.3g} values hashed a second"
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
