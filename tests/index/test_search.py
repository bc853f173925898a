"""A run is searched for many fingerprints at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import bloomseal as bs
from bloomseal.index.folder import IndexFolder
from bloomseal.index.manifest import Manifest
from bloomseal.index.runs.shard import RunReader
from bloomseal.index.runs.writer import RunWriter

I64 = npt.NDArray[np.int64]


def cases() -> list[tuple[I64, I64, int]]:
    draw = np.random.default_rng(7)
    found: list[tuple[I64, I64, int]] = []
    for bits in (1, 5, 18):
        for count, asked, values in (
            (1, 1, 2),
            (1, 50, 3),
            (40, 7, 9),
            (500, 500, 90),
            (20_000, 60, 1 << 30),
            (60, 20_000, 64),
        ):
            entries = np.sort((draw.integers(0, values, count) << bits) | draw.integers(0, 1 << bits, count))
            found.append((entries, np.sort(draw.integers(0, values + 2, asked)) << bits, bits))
    most = (1 << 62) - 1
    found.append((np.array([0, most - 1, most]), np.array([0, 1 << 8, most >> 8 << 8]), 8))
    return found


@pytest.mark.parametrize(("entries", "low", "bits"), cases())
def test_the_entries_of_each_range_are_found(entries: I64, low: I64, bits: int, tmp_path: Path) -> None:
    keys = {"footer_key": b"f" * 16, "column_keys": {"ssn": b"c" * 16}}
    decryption = bs.DecryptionSpec(bs.ExplicitKeys(**keys))
    folder = IndexFolder(str(tmp_path), "ssn", decryption, bs.EncryptionSpec(**keys))
    folder.make()
    most = (1 << bits) - 1
    with RunWriter(folder, Manifest(("ssn",), bytes(32), 62 - bits, 0.001), most, bits) as writer:
        writer.add(entries)
        reader = RunReader(folder, writer.finish())
    owners, places = reader.find((low >> bits).astype(np.uint64))
    reader.close()
    wanted = [
        (number, one & most)
        for number, begin in enumerate(low.tolist())
        for one in entries[(entries >= begin) & (entries <= begin + most)].tolist()
        if one & most < most  # the last place is filling
    ]
    assert sorted(zip(owners.tolist(), places.tolist(), strict=True)) == sorted(wanted)
