"""Iceberg's metadata, packed: read, and never unpacked beyond what a log may be."""

from __future__ import annotations

import gzip
import itertools
from pathlib import Path

import pyarrow as pa
import pytest

import bloomseal as bs

memory = pytest.importorskip("pyiceberg.catalog.memory")
_catalogs = itertools.count()


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """The metadata file of a table."""
    catalog = memory.InMemoryCatalog(f"packed{next(_catalogs)}", warehouse=f"file://{tmp_path}/ice")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", schema=pa.schema({"a": pa.int64()}))
    table.append(pa.table({"a": [1, 2]}))
    metadata = Path(table.metadata_location.removeprefix("file://"))
    for other in metadata.parent.glob("*.metadata.json"):
        if other != metadata:
            other.unlink()
    there = metadata.with_name(metadata.name.replace(".metadata", ".gz.metadata"))
    there.write_bytes(gzip.compress(metadata.read_bytes()))
    metadata.unlink()
    return there


def test_packed_metadata_are_read(packed: Path) -> None:
    assert bs.read_table(packed.parent.parent)["a"].to_pylist() == [1, 2]


@pytest.mark.parametrize(("members", "padding"), [(1, b""), (100, b""), (2, bytes(8))])
def test_a_few_bytes_do_not_become_gigabytes(
    packed: Path, monkeypatch: pytest.MonkeyPatch, members: int, padding: bytes
) -> None:
    """The library unpacks all of it before it looks."""
    monkeypatch.setattr("bloomseal.storage.logs.decoded.MAX_LOG_BYTES", 100_000)
    assert bs.read_table(packed.parent.parent).num_rows == 2
    first = gzip.compress(b" ") + padding if padding else b""
    packed.write_bytes(first + gzip.compress(b" " * (10_000_000 // members)) * members)
    assert packed.stat().st_size < 100_000
    with pytest.raises(bs.FormatError, match="the limit is 100000"):
        bs.open_table(packed.parent.parent)


def test_what_is_not_packed_as_its_name_says(packed: Path) -> None:
    for data in (b"", b"no gzip", packed.read_bytes()[:-20]):
        packed.write_bytes(data)
        with pytest.raises(bs.UsageError, match="can't be opened"):
            bs.open_table(packed.parent.parent)
