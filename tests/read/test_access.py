"""How much of a file is read, and from where."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pytest

import bloomseal as bs
from bloomseal.core.parquet.layout import TAIL_BYTES
from bloomseal.core.storage.source import Source
from bloomseal.read.parquet import ParquetFile
from bloomseal.storage.places import open_source

ROWS, GROUPS = 40_000, 8
ENCRYPTION = bs.EncryptionSpec(footer_key=b"f" * 16, column_keys={"text": b"c" * 16}, complete=True)
DECRYPTION = bs.DecryptionSpec(bs.ExplicitKeys(footer_key=b"f" * 16, column_keys={"text": b"c" * 16}))


def table() -> pa.Table:
    rng = np.random.default_rng(3)
    return pa.table({"text": [f"{n:012d}" for n in rng.permutation(ROWS)], "number": rng.random(ROWS)})


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("access") / "t.parquet"
    bs.write_table(table(), path, encryption=ENCRYPTION, bloom_filters={"text": True}, row_group_size=ROWS // GROUPS)
    return path


def counted(path: Path) -> tuple[bs.SealedFile, list[tuple[int, int]]]:
    """The file, and the ranges that are read from it."""
    source = open_source(path)
    ranges: list[tuple[int, int]] = []
    watched = Source(
        source.ref, source.size, lambda at, n: (ranges.append((at, n)), source.read(at, n))[1], source.close
    )
    return ParquetFile(watched, DECRYPTION), ranges


def test_a_probe_reads_the_tail_and_one_range_per_filter(path: Path) -> None:
    file, ranges = counted(path)
    assert [n for _, n in ranges] == [TAIL_BYTES]
    file.probe("text", ["000000000001", "no such value"])
    assert len(ranges) == 1 + GROUPS
    found = [file.walk.filter(file.walk.chunk(group, 0)) for group in range(GROUPS)]
    assert ranges[1 : 1 + GROUPS] == [(one.offset, one.length) for one in found if one is not None]


def test_a_lookup_reads_a_small_part_of_the_file(path: Path) -> None:
    file, ranges = counted(path)
    assert file.read(where=[("text", "==", "000000000001")]).num_rows == 1
    assert file.stats.decoded == 1
    assert sum(n for _, n in ranges) < path.stat().st_size / 3
    file, ranges = counted(path)
    assert file.read(where=[("text", "==", "absent")]).num_rows == 0
    assert sum(n for _, n in ranges) < TAIL_BYTES + GROUPS * 16_500


def test_any_arrow_file_system_serves_for_reading_and_writing(tmp_path: Path) -> None:
    remote = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    data = table()
    bs.write_table(data, "a.parquet", encryption=ENCRYPTION, filesystem=remote)
    report = bs.attach_filters("a.parquet", {"text": True}, decryption=DECRYPTION, filesystem=remote)
    assert len(report.filters) == 1
    assert bs.verify("a.parquet", decryption=DECRYPTION, filesystem=remote).complete
    found = bs.read_table("a.parquet", where=[("text", "==", "000000000077")], decryption=DECRYPTION, filesystem=remote)
    assert found.num_rows == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.parquet"]


def test_a_uri_is_a_path_too(path: Path) -> None:
    with bs.open_file(path.as_uri(), decryption=DECRYPTION) as file:
        assert file.num_rows == ROWS


def test_a_failed_upload_leaves_the_old_file(tmp_path: Path) -> None:
    remote = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    bs.write_table(table(), "a.parquet", encryption=ENCRYPTION, filesystem=remote)
    before = (tmp_path / "a.parquet").read_bytes()
    with pytest.raises(bs.UsageError):
        bs.attach_filters(
            "a.parquet", {"number": bs.FilterSpec(ndv=10, hide_size=True)}, decryption=DECRYPTION, filesystem=remote
        )
    assert (tmp_path / "a.parquet").read_bytes() == before


@pytest.mark.parametrize("name", ["missing.parquet", "no/such/folder/t.parquet"])
def test_a_file_that_is_not_there_is_one_clear_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(bs.UsageError, match="No such file"):
        bs.open_file(tmp_path / name)
    if "/" in name:
        with pytest.raises(bs.UsageError):
            bs.write_table(table(), tmp_path / name)
