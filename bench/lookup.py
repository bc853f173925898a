"""A process that looks one value up in the first files of a folder:
`python -m bench.lookup bloomseal|pyarrow|least FOLDER COUNT VALUE`.

Prints JSON: the rows found, the median seconds per file (for the others the mean), and the round trips to the KMS. The
*least* of it is to import what decodes pages, and to read and open each file's footer and filters, whose places it
finds in `PLACES`.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from itertools import pairwise
from pathlib import Path

__all__ = ["PLACES"]

PLACES = "places.json"


def main(who: str, folder: str, count: str, value: str) -> None:
    """Look up and print."""
    if who == "least":
        _least(Path(folder), int(count))
        return
    from .keys import Keys

    paths = sorted(Path(folder).glob("*.parquet"))[: int(count)]
    keys = Keys()
    start = time.perf_counter()
    if who == "bloomseal":
        import bloomseal as bs

        rows, marks = 0, [start]
        for path in paths:
            rows += bs.read_table(path, where=[("ssn", "==", value)], decryption=keys.decryption).num_rows
            marks.append(time.perf_counter())
        per_file = statistics.median(after - before for before, after in pairwise(marks))
    else:
        import pyarrow.dataset as ds

        dataset = ds.dataset([str(path) for path in paths], format=keys.arrow_dataset_format())
        rows = dataset.to_table(filter=ds.field("ssn") == value, use_threads=False).num_rows
        per_file = (time.perf_counter() - start) / len(paths)
    print(json.dumps({"rows": rows, "per_file": per_file, "calls": keys.kms.calls}))


def _least(folder: Path, count: int) -> None:
    import pyarrow.parquet  # noqa: F401
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    # Nothing opens under this key; to seal takes as long as to open.
    cipher, start = AESGCM(bytes(16)), time.perf_counter()
    window = memoryview(bytearray(1 << 20))
    out = memoryview(bytearray(len(window) + 16))
    files = json.loads((folder / PLACES).read_text())
    for name, places in list(files.items())[:count]:
        fd = os.open(folder / name, os.O_RDONLY)
        for offset, length in places:
            os.preadv(fd, [window[:length]], offset)
            cipher.encrypt_into(bytes(12), window[:length], b"", out[: length + 16])
        os.close(fd)
    print(json.dumps({"rows": 1, "per_file": (time.perf_counter() - start) / count, "calls": 0}))


if __name__ == "__main__":
    main(*sys.argv[1:])
