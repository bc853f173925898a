"""A forked child: no cached key of its parent's outlives its lifetime there, and no lock that was taken hangs it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from bloomseal import Keyring, KeyTools
from bloomseal.core.encryption import SealCounter, SecretKey
from bloomseal.core.storage.ref import FileRef
from bloomseal.keytools import sources
from bloomseal.keytools.cache import Cache
from bloomseal.keytools.kms import registry
from bloomseal.keytools.kms.registry import client_for
from bloomseal.keytools.sources import as_key_source
from support.forks import holds_in_a_child


@pytest.fixture
def ring(tmp_path: Path) -> Keyring:
    made = Keyring(tmp_path / "keys.json", create=True)
    made.create("pii")
    return made


def test_cached_keys_stay_with_the_parent(ring: Keyring) -> None:
    tools = KeyTools(ring)
    key, metadata = tools.for_file(FileRef("t.parquet")).new_key("pii", "ssn", 128)
    assert len(tools._unwrapped) == len(tools._fresh.keks) == 1

    def in_child() -> bool:
        empty = not tools._unwrapped._entries and not tools._fresh.keks._entries
        return empty and tools.for_file(FileRef("t.parquet")).retrieve_key(metadata, "ssn") == key

    assert holds_in_a_child(in_child)
    assert len(tools._unwrapped) == 1
    assert tools.counters.unwraps == 0


def test_a_childs_values_end_by_their_lifetime_without_being_asked_for() -> None:
    cache: Cache[int] = Cache(0.2)
    cache.get("parent's", lambda: 1)

    def in_child() -> bool:
        cache.get("child's", lambda: 2)
        gone = threading.Event()
        while cache._entries:
            gone.wait(0.02)  # the alarm ends this if no timer does
        return True

    assert holds_in_a_child(in_child)


def test_a_load_that_only_the_parent_can_end_is_begun_again() -> None:
    cache: Cache[int] = Cache(60)
    begun, end = threading.Event(), threading.Event()

    def load() -> int:
        begun.set()
        end.wait()
        return 1

    loading = threading.Thread(target=cache.get, args=("a", load))
    loading.start()
    begun.wait()
    assert holds_in_a_child(lambda: cache.get("a", lambda: 2) == 2)
    end.set()
    loading.join()
    assert cache.get("a", lambda: 3) == 1


def test_locks_that_were_taken_hang_no_child(ring: Keyring) -> None:
    tools = as_key_source(ring)
    assert isinstance(tools, KeyTools)
    key, metadata = tools.for_file(FileRef("t.parquet")).new_key("pii", "ssn", 128)
    counter = SealCounter.of(key)
    uri = f"keyring://{ring.path}"

    def in_child() -> bool:
        again = as_key_source(uri).for_file(FileRef("t.parquet")).retrieve_key(metadata, "ssn") == key
        SealCounter.of(key).add()
        return again and as_key_source(ring).for_file(FileRef("t.parquet")).retrieve_key(metadata, "ssn") == key

    taken = [
        tools._unwrapped._lock,
        tools._fresh.keks._lock,
        tools._kms._lock,
        ring._lock,
        registry._lock,
        sources._lock,
    ]
    taken += [counter._lock, SealCounter._registry_lock]
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        for lock in taken:
            lock.acquire()
        held.set()
        done.wait()
        for lock in reversed(taken):
            lock.release()

    holding = threading.Thread(target=hold)
    holding.start()
    held.wait()
    try:
        assert holds_in_a_child(in_child)
    finally:
        done.set()
        holding.join()


def test_calls_under_way_in_the_parent_take_no_place_from_the_child(ring: Keyring) -> None:
    tools = KeyTools(ring, max_parallel=1, timeout=30)
    assert tools._kms._slots.acquire(timeout=1)
    try:
        assert holds_in_a_child(lambda: bool(tools.wrap(SecretKey(bytes(16)), "pii")))
    finally:
        tools._kms._slots.release()


def test_clients_that_uris_name_are_made_again(ring: Keyring) -> None:
    mine = client_for(f"keyring://{ring.path}")
    assert holds_in_a_child(lambda: client_for(f"keyring://{ring.path}") is not mine)
    assert client_for(f"keyring://{ring.path}") is mine
