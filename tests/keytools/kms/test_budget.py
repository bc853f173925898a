"""What a KMS is asked: calls are counted, never times."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.core.errors import KeyAccessError
from bloomseal.core.storage.ref import FileRef
from bloomseal.keytools import KmsAccessError, Problem
from bloomseal.keytools.cache import Cache
from support.stand_ins import InMemoryKms

FILES, THREADS, LATENCY = 500, 64, 0.05


def metadata_of_many_files(kms: InMemoryKms, *, double: bool, files: int, writers: int = 1) -> list[bytes]:
    """Column keys of `files` files, written by `writers` processes (each has KEKs of its own)."""
    tools = [bs.KeyTools(kms, double_wrapping=double) for _ in range(writers)]
    return [tools[i % writers].for_file(FileRef(f"{i}")).new_key("kc1", "ssn", 128)[1] for i in range(files)]


def resolve_all(tools: bs.KeyTools, metadata: list[bytes], threads: int = THREADS) -> set[str]:
    barrier = threading.Barrier(threads)

    def some(part: int) -> set[str]:
        barrier.wait()  # all at once, so that they meet in the cache
        return {
            tools.for_file(FileRef(f"{i}")).retrieve_key(metadata[i], "ssn").fingerprint
            for i in range(part, len(metadata), threads)
        }

    with ThreadPoolExecutor(threads) as pool:
        return set().union(*pool.map(some, range(threads)))


def test_one_call_serves_all_files_under_one_kek() -> None:
    metadata = metadata_of_many_files(InMemoryKms(), double=True, files=FILES)
    kms = InMemoryKms(latency=LATENCY)
    tools = bs.KeyTools(kms)
    assert len(resolve_all(tools, metadata)) == FILES
    assert kms.calls == {"unwrap": 1}
    assert tools.counters.unwraps == 1
    assert tools.counters.hits == FILES - 1


def test_one_call_per_distinct_kek() -> None:
    metadata = metadata_of_many_files(InMemoryKms(), double=True, files=FILES, writers=7)
    kms = InMemoryKms(latency=LATENCY)
    assert len(resolve_all(bs.KeyTools(kms), metadata)) == FILES
    assert kms.calls == {"unwrap": 7}


def test_single_wrapping_runs_in_parallel_up_to_the_bound() -> None:
    metadata = metadata_of_many_files(InMemoryKms(), double=False, files=FILES)
    kms = InMemoryKms(latency=LATENCY / 10)
    tools = bs.KeyTools(kms, max_parallel=8)
    assert len(resolve_all(tools, metadata)) == FILES
    assert kms.calls == {"unwrap": FILES}
    assert 1 < kms.most_running <= 8
    resolve_all(tools, metadata)
    assert kms.calls == {"unwrap": FILES}  # the second time all keys are known


def test_writing_many_files_at_once_wraps_once() -> None:
    kms = InMemoryKms(latency=LATENCY)
    tools = bs.KeyTools(kms)
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda i: tools.for_file(FileRef(f"{i}")).new_key("kc1", "ssn", 128), range(FILES)))
    assert kms.calls == {"wrap": 1}


def test_probing_many_files_makes_one_call(tmp_path: Path) -> None:
    table = pa.table({"ssn": [f"{i:09d}" for i in range(20)]})
    writer = bs.KeyTools(InMemoryKms())
    spec = bs.EncryptionSpec(footer_key="kf", column_keys={"ssn": "kc1"}, keys=writer)
    for i in range(30):
        bs.write_table(table, tmp_path / f"{i}.parquet", encryption=spec, bloom_filters={"ssn": True})
    kms = InMemoryKms()
    decryption = bs.DecryptionSpec(kms)  # a bare client: its tools, and so its cache, are shared by all files
    for i in range(30):
        bs.probe(tmp_path / f"{i}.parquet", "ssn", ["000000001"], decryption=decryption)
    assert kms.calls == {"unwrap": 2}  # the footer's KEK and the column's


def test_refusals_are_remembered() -> None:
    metadata = metadata_of_many_files(InMemoryKms(), double=True, files=100)
    kms = InMemoryKms({})
    tools = bs.KeyTools(kms)
    for i, one in enumerate(metadata):
        with pytest.raises(KmsAccessError, match="knows no master key") as caught:
            tools.for_file(FileRef(f"file {i}")).retrieve_key(one, "ssn")
        assert caught.value.problem is Problem.UNKNOWN
        assert caught.value.file == f"file {i}"  # the remembered refusal is told with each file's own name
    assert kms.calls == {"unwrap": 1}
    assert tools.counters.denials == 1
    tools.forget()
    kms.keys["kc1"] = InMemoryKms().keys["kc1"]
    assert tools.for_file(FileRef("")).retrieve_key(metadata[0], "ssn").bits == 128


def test_what_may_pass_by_itself_is_tried_again_and_not_remembered() -> None:
    metadata = metadata_of_many_files(InMemoryKms(), double=True, files=1)[0]

    class Recovering(InMemoryKms):
        def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
            self.failing = ConnectionResetError("token=hunter2") if self.calls["unwrap"] < 2 else None
            return super().unwrap_key(wrapped_key, master_key_identifier)

    kms = Recovering()
    tools = bs.KeyTools(kms)
    assert tools.for_file(FileRef("")).retrieve_key(metadata, "ssn").bits == 128
    assert kms.calls == {"unwrap": 3}
    assert tools.counters.retries == 2

    down = InMemoryKms()
    down.failing = TimeoutError()
    tools = bs.KeyTools(down, attempts=2)
    with pytest.raises(KmsAccessError, match="could not be reached") as caught:
        tools.for_file(FileRef("")).retrieve_key(metadata, "ssn")
    assert caught.value.retryable
    assert down.calls == {"unwrap": 2}
    down.failing = None
    assert tools.for_file(FileRef("")).retrieve_key(metadata, "ssn").bits == 128


def test_a_kms_that_never_answers_hangs_nobody() -> None:
    metadata = metadata_of_many_files(InMemoryKms(), double=True, files=3)
    release = threading.Event()

    class Hanging(InMemoryKms):
        def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
            release.wait()
            return super().unwrap_key(wrapped_key, master_key_identifier)

    tools = bs.KeyTools(Hanging(), timeout=0.2, attempts=1, max_parallel=1)
    try:
        for one in metadata:
            with pytest.raises(KmsAccessError, match="could not be reached") as caught:
                tools.for_file(FileRef("")).retrieve_key(one, "ssn")
            assert caught.value.retryable
    finally:
        release.set()


def test_a_kek_that_has_sealed_its_share_is_replaced() -> None:
    kms = InMemoryKms()
    tools = bs.KeyTools(kms, seal_limit=5)
    made = [tools.for_file(FileRef("")).new_key("kc1", "ssn", 128) for _ in range(12)]
    assert kms.calls == {"wrap": 3}
    reader = bs.KeyTools(InMemoryKms())
    assert [reader.for_file(FileRef("")).retrieve_key(metadata, "ssn") for _, metadata in made] == [k for k, _ in made]


def test_a_data_key_stops_at_the_limit(tmp_path: Path) -> None:
    keys = bs.KeyTools(InMemoryKms(), seal_limit=8)
    spec = bs.EncryptionSpec(footer_key="kf", keys=keys)
    table = pa.table({name: list(range(10)) for name in "abcdefgh"})
    with pytest.raises(KeyAccessError, match="its limit is 8"):
        bs.write_table(table, tmp_path / "t.parquet", encryption=spec)
    assert not list(tmp_path.iterdir())


def clocked(lifetime: float, **more: float) -> tuple[Cache[str], list[float], list[str]]:
    now, loads = [0.0], []
    cache: Cache[str] = Cache(lifetime, clock=lambda: now[0], **more)
    return cache, now, loads


def test_values_end_with_their_lifetime() -> None:
    cache, now, loads = clocked(600.0)

    def load() -> str:
        loads.append("x")
        return "value"

    assert cache.get("a", load) == cache.get("a", load) == "value"
    now[0] = 599.9
    cache.get("a", load)
    assert len(loads) == 1
    now[0] = 600.0
    assert len(cache) == 0  # dropped, not merely hidden
    cache.get("a", load)
    assert len(loads) == 2


def test_refusals_end_sooner() -> None:
    cache, now, loads = clocked(600.0)

    def refuse() -> str:
        loads.append("x")
        raise KeyAccessError("no")

    for moment, expected in ((0.0, 1), (59.0, 1), (61.0, 2)):
        now[0] = moment
        with pytest.raises(KeyAccessError):
            cache.get("a", refuse)
        assert len(loads) == expected


def test_the_cache_is_bounded() -> None:
    cache: Cache[int] = Cache(600.0, max_entries=10)
    for i in range(100):
        cache.get(i, lambda i=i: i)
    assert len(cache) == 10
    assert cache.get(99, lambda: -1) == 99
    assert cache.get(0, lambda: -1) == -1


def test_an_interrupted_load_does_not_take_its_waiters_along() -> None:
    cache: Cache[str] = Cache(600.0)
    inside, go_on = threading.Event(), threading.Event()

    def interrupted() -> str:
        inside.set()
        go_on.wait()
        raise KeyboardInterrupt

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(cache.get, "a", interrupted)
        inside.wait()
        second = pool.submit(cache.get, "a", lambda: "value")
        while not cache.hits:  # the second has joined the first's load
            time.sleep(0.001)
        go_on.set()
        assert second.result() == "value"
        assert isinstance(first.exception(), KeyboardInterrupt)
