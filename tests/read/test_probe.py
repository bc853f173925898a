"""Verdicts one by one, and as an array."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import bloomseal as bs

ENCRYPTION = bs.EncryptionSpec(footer_key=b"f" * 16)
DECRYPTION = bs.DecryptionSpec(bs.ExplicitKeys(footer_key=b"f" * 16))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> bs.SealedFile:
    path: Path = tmp_path_factory.mktemp("probe") / "a.parquet"
    table = pa.table({"id": range(3000), "bare": range(3000)})
    bs.write_table(table, path, encryption=ENCRYPTION, bloom_filters={"id": True}, row_group_size=1000)
    return bs.open_file(path, decryption=DECRYPTION)


@pytest.mark.parametrize("values", [range(-500, 3500), pa.array(range(4000)), np.arange(4000), [None, 5, 1 << 70], []])
def test_the_array_says_what_the_verdicts_say(file: bs.SealedFile, values) -> None:
    values = list(values) if isinstance(values, range) else values
    maybe = file.maybe_present("id", values)
    assert maybe.shape == (3, len(values))
    assert maybe.tolist() == [[one is not bs.Verdict.ABSENT for one in group] for group in file.probe("id", values)]


def test_every_value_is_found_in_its_row_group(file: bs.SealedFile) -> None:
    maybe = file.maybe_present("id", np.arange(3000))
    for group in range(3):
        assert maybe[group, group * 1000 : (group + 1) * 1000].all()
    assert maybe.mean() < 0.4


def test_without_a_filter_nothing_is_ruled_out(file: bs.SealedFile) -> None:
    assert file.maybe_present("bare", [-1]).all()
    assert file.probe("bare", [-1]) == [[bs.Verdict.NO_FILTER]] * 3


def test_a_file_without_row_groups_has_no_answers(tmp_path: Path) -> None:
    bs.write_table(pa.table({"id": pa.array([], pa.int64())}), tmp_path / "a.parquet", bloom_filters={"id": True})
    with bs.open_file(tmp_path / "a.parquet") as empty:
        assert empty.maybe_present("id", [1, 2]).shape == (0, 2)
        assert empty.probe("id", [1, 2]) == []
