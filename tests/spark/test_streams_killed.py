"""Streams whose driver is killed and started again from their checkpoints: no row lost, none doubled."""

from __future__ import annotations

import itertools
import json
import random
import time
from pathlib import Path

import pyarrow as pa
import pytest

import bloomseal as bs

from .cluster import DEADLINE, keyring
from .conftest import PASSPHRASE
from .lives import answer, driver, ended

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]
ROWS = 10
"""Rows of each file that comes in."""


def commits(folder: Path) -> int:
    """The last batch that the query has noted as done. Their number tells less: Spark keeps a hundred notes."""
    noted = (folder / "checkpoint" / "commits").glob("[0-9]*")
    return max((int(one.name) for one in noted if one.name.isdecimal()), default=-1)


@pytest.mark.torture
@pytest.mark.timeout(3600)  # a life takes a minute on a busy machine
@pytest.mark.parametrize("kills", [1, 10])
def test_each_row_is_there_once_whenever_the_driver_was_killed(tmp_path: Path, kills: int) -> None:
    keyring(tmp_path)
    ring = bs.Keyring(tmp_path / "keys.json", passphrase=PASSPHRASE)
    sealing = bs.Policy.load(tmp_path / "policy.toml", kms=ring).for_table("people")
    (tmp_path / "in").mkdir()
    numbers, chance = itertools.count(), random.Random(kills)

    def comes() -> None:
        """One more file, in one step."""
        number = next(numbers)
        ids = range(number * ROWS, (number + 1) * ROWS)
        rows = pa.table({"id": pa.array(ids, pa.int64()), "ssn": [f"ssn-{i}" for i in ids]})
        bs.write_table(rows, aside := tmp_path / f"{number:05d}.parquet", encryption=sealing)
        aside.rename(tmp_path / "in" / aside.name)

    def live() -> None:
        """A driver's life, until the query has done something, and a little longer."""
        with driver(tmp_path, "stream_job.py", "run") as process:
            before = commits(tmp_path)
            comes()
            answer(tmp_path, process, "ready")
            end = time.monotonic() + DEADLINE
            # A life without progress would prove nothing of the next one.
            while commits(tmp_path) <= before:
                if process.poll() is not None:
                    raise ended(tmp_path, process)
                assert time.monotonic() < end, commits(tmp_path)
                comes()
                time.sleep(1)
            for _ in range(3):
                comes()
                time.sleep(chance.uniform(0, 0.7))
            if process.poll() is not None:
                raise ended(tmp_path, process)

    for _ in range(kills):
        live()
    with driver(tmp_path, "stream_job.py", "finish") as process:
        readers = json.loads(answer(tmp_path, process, "{"))
    total = next(numbers) * ROWS
    assert readers.pop("check_table") == [total]
    for reader, ids in readers.items():
        assert ids == list(range(total)), reader
