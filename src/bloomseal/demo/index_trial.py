"""The demonstration's picture: a look-up's time against the number of files, with a sealed index and without."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa

from ..policy import Policy
from ..table.open import open_table
from ..write.writer import FileWriter
from .people import FPP, People

_FILES: Final = 400
_ROWS: Final = 500
_GROUPS: Final = 5
_STEPS: Final = 3
_TIMES: Final = 3


def index_growth(folder: Path, kms: str, people: People, rows: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """A table grows by small files, and one person who is not in it is looked up by either way.

    Args:
        folder: where the table is made, and removed.
        kms: URI of a keyring with the master keys ``footer`` and ``pii``.
        rows: of the demonstration: the table has no more of them.

    Returns:
        Per step `files`, and seconds `with_index` and `without`, with the filters alone: the least of three.
    """
    column = {"key": "pii", "filter": {"fpp": FPP}, "index": True}
    tables = {"people": {"footer_key": "footer", "columns": {"ssn": column}}}
    policy = Policy.from_dict({"version": 1, "kms": kms, "tables": tables}).for_table("people")
    most = min(_FILES, max(rows // _ROWS, 4))
    told = []
    with tempfile.TemporaryDirectory(dir=folder, prefix="index-") as root:
        done = 0
        for files in sorted({max(most >> 2 * step, 1) for step in range(_STEPS)}):
            say(f"looking one person up in {files} files, with a sealed index and without")
            for number in range(done, files):
                who = np.arange(number * _ROWS, (number + 1) * _ROWS, dtype=np.uint64)
                some = pa.table({"ssn": people.ssn(who), "id": pa.array(who)})
                with FileWriter(
                    Path(root) / f"{number}.parquet", some.schema, encryption=policy, row_group_size=_ROWS // _GROUPS
                ) as writer:
                    writer.write_table(some)
            done = files
            index = open_table(root, decryption=policy).index("ssn")
            index.update() if index.exists else index.build()
            absent = [("ssn", "==", people.ssn(np.array([most * _ROWS], dtype=np.uint64))[0].as_py())]
            one: dict[str, Any] = {"files": files}
            ways: dict[str, Literal["require", "never"]] = {"with_index": "require", "without": "never"}
            for name, how in ways.items():
                table = open_table(root, decryption=policy, use_index=how)
                look = partial(table.read, where=absent)
                one[name] = min(_seconds(look) for _ in range(_TIMES))
            told.append(one)
    return told


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
