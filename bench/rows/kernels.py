"""Hashing, inserting and probing, beside parquet-java in a warm JVM."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import bloomseal as bs
from bloomseal.core.sbbf import ColumnType, PhysicalType, hash_array
from bloomseal.sbbf import num_bytes

from .. import data
from ..jvm import java_kernels
from ..timing import Comparison, Contender, Goal, Timed
from ..workspace import Workspace, row

U64 = npt.NDArray[np.uint64]
JAVA = "parquet-java"
_INT64 = ColumnType(PhysicalType.INT64)
_STRING = ColumnType(PhysicalType.BYTE_ARRAY)
_SMALL_FILTER = 1 << 20
_WARM_ROUNDS = 20
_ROUNDS = 5
_BLOCK_WORDS = 8
_JAVA_NOTE = (
    f"Of parquet-java the fastest of {_ROUNDS} rounds counts in every repetition, after {_WARM_ROUNDS} to warm up."
)


@row("filter")
def build(work: Workspace) -> Iterator[Comparison]:
    """Building one filter from a column: hash and insert."""
    count = work.size.keys
    spec = bs.FilterSpec(fpp=0.01, ndv=count)
    size = spec.build(np.zeros(0, np.uint64)).num_bytes
    for what, values, kind in (
        ("int64", _integers(count), _INT64),
        ("29-byte strings", data.email_array(0, count), _STRING),
    ):
        yield Comparison(
            f"filter: build over {count:,} {what}",
            [
                Contender(
                    "Bloomseal", lambda v=values, k=kind: spec.build(hash_array(v, k)).is_empty, ours=True, work=count
                ),
                Contender(JAVA, _java(values, size, "hash", "insert", answer=False), work=count),
            ],
            [Goal("Bloomseal", JAVA, 1, False, "faster than parquet-java")],
            answer=False,
            work_unit="values",
            note=_JAVA_NOTE,
            repetitions=work.size.repetitions,
        )


@row("hash")
def hashing(work: Workspace) -> Iterator[Comparison]:
    """XXH64 of whole columns."""
    count = work.size.keys
    integers, strings = _integers(count), data.email_array(0, count)
    yield Comparison(
        f"hash: {count:,} int64",
        [
            Contender("Bloomseal", lambda: len(hash_array(integers, _INT64)), ours=True, work=count),
            Contender(JAVA, _java(integers, _SMALL_FILTER, "hash", answer=count), work=count),
        ],
        [Goal("Bloomseal", JAVA, 5, False, "≥ 5× faster than parquet-java")],
        answer=count,
        work_unit="values",
        note=_JAVA_NOTE,
        repetitions=work.size.repetitions,
    )
    # Each distinct value of a dictionary is hashed once, so its rate is not comparable; one in ten is distinct here.
    repeated = pa.DictionaryArray.from_arrays(
        pa.array(np.arange(count, dtype=np.int32) % (count // 10)), strings[: count // 10]
    )
    layouts = {
        "string": strings,
        "large_string": strings.cast(pa.large_string()),
        "string_view": strings.cast(pa.string_view()),
        "dictionary, a tenth distinct": repeated,
    }
    yield Comparison(
        f"hash: {count:,} strings of 29 bytes",
        [
            *(
                Contender(f"Bloomseal, {name}", lambda a=array: len(hash_array(a, _STRING)) > 0, ours=True, work=count)
                for name, array in layouts.items()
            ),
            Contender(JAVA, _java(strings, _SMALL_FILTER, "hash", answer=True), work=count),
        ],
        [Goal(f"Bloomseal, {name}", JAVA, 1.5, False, f"≥ 1.5× faster than parquet-java, {name}") for name in layouts],
        answer=True,
        work_unit="values",
        note=_JAVA_NOTE,
        repetitions=work.size.repetitions,
    )


@row("blocks")
def blocks(work: Workspace) -> Iterator[Comparison]:
    """Inserting and probing hashes, in cache and far beyond it."""
    count = work.size.keys
    values = _integers(count)
    hashes = hash_array(values, _INT64)
    for size, faster in ((_SMALL_FILTER, 2), (work.size.big_filter, 4)):
        bloom = bs.SplitBlockBloomFilter(size)
        bloom.insert_hashes(hashes)
        memory = np.zeros(size // 4, np.uint32)
        reads, writes = _random_reads(), _random_writes()
        for operation, ours, limit in (
            ("insert", bloom.insert_hashes, writes),
            ("probe", bloom.check_hashes, reads),
        ):
            peer = "random access, one word per block"
            goals = [Goal("Bloomseal", JAVA, faster, False, f"≥ {faster}× faster than parquet-java")]
            if size > _SMALL_FILTER:
                goals.append(Goal("Bloomseal", peer, 2, True, "≤ 2× the random-access limit"))
            yield Comparison(
                f"{operation}: {count:,} hashes, filter of {size >> 20} MiB",
                [
                    Contender("Bloomseal", lambda f=ours: f(hashes) is None and None, ours=True, work=count),
                    Contender(JAVA, _java(values, size, operation, answer=None), work=count),
                    Contender(peer, lambda f=limit, m=memory: f(m, hashes) and None, work=count),
                ],
                goals,
                work_unit="values",
                note=_JAVA_NOTE,
                repetitions=work.size.repetitions,
            )


@row("keyset")
def keyset(work: Workspace) -> Iterator[Comparison]:
    """Probing a big key set against every filter of a table."""
    count, groups = work.size.keys, 10
    paths = [work.path(f"set-{i}.parquet") for i in range(work.size.set_files)]
    per_group = work.size.set_rows // groups
    filters = {"ssn": bs.FilterSpec(fpp=0.01, ndv=per_group)}
    for i, path in enumerate(paths):
        if not path.exists():
            first = next(data.batches(0, 1, 1)).select(["id", "ssn"])
            with bs.SealedWriter(
                path,
                first.schema,
                encryption=work.keys.encryption(("ssn",)),
                bloom_filters=filters,
                row_group_size=per_group,
            ) as writer:
                for table in data.batches(i * work.size.set_rows, work.size.set_rows, per_group):
                    writer.write_table(table.select(["id", "ssn"]))
    keys = data.ssn_array(data._ABSENT_FROM, count)
    sealed_bytes = num_bytes(per_group, 0.01)

    def by_hashes() -> int:
        hashes = hash_array(keys, _STRING)
        probed = 0
        for path in paths:
            with bs.open_file(path, decryption=work.keys.decryption) as file:
                for group in range(file.num_row_groups):
                    bloom = file.filter(group, "ssn")
                    assert bloom is not None
                    probed += len(bloom.check_hashes(hashes))
        return probed

    def by_probe() -> int:
        probed = 0
        for path in paths:
            with bs.open_file(path, decryption=work.keys.decryption) as file:
                probed += sum(len(one) for one in file.probe("ssn", keys))
        return probed

    def by_arrays() -> int:
        probed = 0
        for path in paths:
            with bs.open_file(path, decryption=work.keys.decryption) as file:
                probed += file.maybe_present("ssn", keys).size
        return probed

    bitsets = _bitsets(work, paths)
    size = len(bitsets[0][1])
    cipher, out = AESGCM(os.urandom(16)), bytearray(size)
    sealed = cipher.encrypt(b"n" * 12, bytes(size), b"")

    def floor() -> int:
        hashes = hash_array(keys, _STRING)
        probed = 0
        for bloom, _ in bitsets:
            cipher.decrypt_into(b"n" * 12, sealed, b"", out)
            probed += len(bloom.check_hashes(hashes))
        return probed

    def lists() -> int:
        probed = floor()
        for _ in paths:
            # As long as the caller has them, those of one file are all there.
            probed += sum(map(len, [[bs.Verdict.ABSENT] * count for _ in range(groups)])) - groups * count
        return probed

    least = "decryption and kernel, and empty lists of verdicts"
    yield Comparison(
        f"key set: {count:,} keys against {len(paths)} files × {groups} row groups, filters of {size >> 10} KiB",
        [
            Contender("Bloomseal, filters and hashes", by_hashes, ours=True, work=count * len(bitsets)),
            Contender("Bloomseal, SealedFile.maybe_present", by_arrays, ours=True, work=count * len(bitsets)),
            Contender("Bloomseal, SealedFile.probe", by_probe, ours=True, work=count * len(bitsets)),
            Contender("decryption and kernel alone, keys hashed once", floor, work=count * len(bitsets)),
            Contender(least, lists, work=count * len(bitsets)),
        ],
        [
            Goal(
                "Bloomseal, filters and hashes",
                "decryption and kernel alone, keys hashed once",
                3,
                True,
                "≤ 3× the floor, filters and hashes",
            ),
            Goal(
                "Bloomseal, SealedFile.maybe_present",
                "decryption and kernel alone, keys hashed once",
                3,
                True,
                "≤ 3× the floor, SealedFile.maybe_present",
            ),
            Goal(
                "Bloomseal, SealedFile.probe",
                "decryption and kernel alone, keys hashed once",
                3,
                True,
                "≤ 3× the floor, SealedFile.probe",
                least,
            ),
        ],
        answer=count * len(bitsets),
        work_unit="look-ups",
        repetitions=work.size.repetitions,
        note=f"SealedFile.probe makes a Python verdict per key and row group; maybe_present gives an array. A filter at 1 % would need {sealed_bytes >> 10} KiB.",
    )


def _bitsets(work: Workspace, paths: list[Path]) -> list[tuple[bs.SplitBlockBloomFilter, memoryview]]:
    found = []
    for path in paths:
        with bs.open_file(path, decryption=work.keys.decryption) as file:
            for group in range(file.num_row_groups):
                bloom = file.filter(group, "ssn")
                assert bloom is not None
                found.append((bloom, bloom.bitset))
    return found


def _integers(count: int) -> pa.Array:
    return pa.array(np.random.default_rng(7).integers(0, 2**62, count))


def _java(values: pa.Array, size: int, *parts: str, answer: object) -> Callable[[], Timed]:
    """parquet-java's time for some parts of the job, by its own clock, over values that are objects in the JVM
    already.
    """
    rounds = [_WARM_ROUNDS]

    def run() -> Timed:
        times = java_kernels(values, size, rounds[0])
        rounds[0] = _ROUNDS
        return Timed(sum(times[part] for part in parts), answer)

    return run


@functools.cache
def _random_reads() -> Callable[..., Any]:
    import numba

    @numba.njit
    def run(memory: Any, hashes: Any) -> Any:
        blocks, total = np.uint64(len(memory) // _BLOCK_WORDS), np.uint64(0)
        for h in hashes:
            total += np.uint64(memory[(((h >> np.uint64(32)) * blocks) >> np.uint64(32)) * np.uint64(_BLOCK_WORDS)])
        return total

    compiled: Callable[..., Any] = run
    return compiled


@functools.cache
def _random_writes() -> Callable[..., Any]:
    import numba

    @numba.njit
    def run(memory: Any, hashes: Any) -> None:
        blocks = np.uint64(len(memory) // _BLOCK_WORDS)
        for h in hashes:
            memory[(((h >> np.uint64(32)) * blocks) >> np.uint64(32)) * np.uint64(_BLOCK_WORDS)] |= np.uint32(1)

    compiled: Callable[..., Any] = run
    return compiled
