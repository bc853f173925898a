"""A process that looks one value up in the first files of a folder: `python -m bench.lookup bloomseal|pyarrow FOLDER COUNT VALUE`.

Prints JSON: the rows found, the median seconds per file (for pyarrow the mean), and the round trips to the KMS.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from itertools import pairwise
from pathlib import Path


def main(who: str, folder: str, count: str, value: str) -> None:
    """Look up and print."""
    from .keys import Keys

    paths = sorted(Path(folder).glob("*.parquet"))[: int(count)]
    keys = Keys()
    start = time.perf_counter()
    if who == "bloomseal":
        import bloomseal as bs

        rows, marks = 0, [start]
        for path in paths:
            rows += bs.read_table(path, filters=[("ssn", "==", value)], decryption=keys.decryption).num_rows
            marks.append(time.perf_counter())
        per_file = statistics.median(after - before for before, after in pairwise(marks))
    else:
        import pyarrow.dataset as ds

        dataset = ds.dataset([str(path) for path in paths], format=keys.arrow_dataset_format())
        rows = dataset.to_table(filter=ds.field("ssn") == value, use_threads=False).num_rows
        per_file = (time.perf_counter() - start) / len(paths)
    print(json.dumps({"rows": rows, "per_file": per_file, "calls": keys.kms.calls}))


if __name__ == "__main__":
    main(*sys.argv[1:])
