"""Children that are forked while threads of their parent read: they read on, whatever those threads hold."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.core import forked as _forked
from bloomseal.sbbf import batch
from support.forks import holds_in_a_child

FILTERS = [("id", "in", [f"{n}-{n}" for n in range(6)])]
BARE = {
    "core/forked.py": "makes them",
    "keytools/cache.py": "renewed by itself",
    "keytools/helper.py": "a process of its own",
    "keytools/keyring/keyring.py": "renewed by itself",
    "keytools/kms/calls.py": "renewed by itself",
    "keytools/kms/pkcs11.py": "renewed by itself",
    "rotation/run.py": "of one rotation, which ends where it began",
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> bs.SealedTable:
    folder = tmp_path_factory.mktemp("forks")
    keys: dict[str, Any] = {"footer_key": b"f" * 16, "column_keys": {"id": b"c" * 16}}
    encryption = bs.EncryptionSpec(**keys)
    for number in range(6):
        rows = pa.table({"id": [f"{number}-{i}" for i in range(60)], "n": range(60)})
        path = folder / f"{number}.parquet"
        bs.write_table(rows, path, encryption=encryption, bloom_filters={"id": True}, row_group_size=20)
    table = bs.open_table(folder, decryption=bs.DecryptionSpec(bs.ExplicitKeys(**keys)))
    table.index("id", encryption=encryption).build()
    # Not the first read of a process, nor the first of many values, which import: those locks are Python's.
    batch.expect(10_000_000)
    assert table.read(["n"], FILTERS).num_rows == table.scan(["n"], FILTERS).read_all().num_rows == 6
    return table


def test_a_child_reads_on_whatever_its_parents_threads_hold(table: bs.SealedTable) -> None:
    with table.open(0) as file:
        assert file.read(["n"]).num_rows == 60
        held, done = threading.Event(), threading.Event()

        def hold() -> None:
            locks = list(_forked._locks)
            for lock in locks:
                lock.acquire()
            held.set()
            done.wait()
            for lock in locks:
                lock.release()

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        try:
            assert holds_in_a_child(
                lambda: table.read(["n"], FILTERS).num_rows == 6 and file.read(["n"]).num_rows == 60
            )
        finally:
            done.set()
            thread.join()


def test_children_forked_amid_reads_read_on(table: bs.SealedTable) -> None:
    done, wrong = threading.Event(), []

    def read() -> None:
        while not done.is_set():
            wrong.extend([rows for rows in [table.read(["n"], FILTERS).num_rows] if rows != 6])

    threads = [threading.Thread(target=read) for _ in range(6)]
    for thread in threads:
        thread.start()
    try:
        assert all(holds_in_a_child(lambda: table.read(["n"], FILTERS).num_rows == 6) for _ in range(50))
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not wrong


def test_every_lock_that_outlives_a_call_is_free_in_a_child() -> None:
    made = re.compile(r"threading\.(?:Lock|RLock|Condition|Semaphore|BoundedSemaphore)\(|default_factory=threading\.")
    sources = Path(bs.__file__).parent
    bare = {str(one.relative_to(sources)) for one in sources.rglob("*.py") if made.search(one.read_text())}
    assert bare <= set(BARE)
    own = re.compile(r"from functools import .*\bcached_property|functools\.cached_property")
    assert [one.name for one in sources.rglob("*.py") if own.search(one.read_text())] == ["cached.py"]
