"""What DuckDB reads of uniformly encrypted files, ours and pyarrow's alike: README's matrix says it."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.parquet import encryption as pe

import bloomseal as bs

KEY = bytes(range(32))
NUMBERS = pa.table({"n": pa.array(range(200_000), pa.int64())})


class Open(pe.KmsClient):  # type: ignore[misc]
    """Hands data keys over as they are, so that DuckDB can be given them."""

    wrapped = b""

    def __init__(self, _: Any) -> None:
        super().__init__()

    def wrap_key(self, key_bytes: bytes, _: str) -> str:
        Open.wrapped = bytes(key_bytes)
        return base64.b64encode(key_bytes).decode()

    def unwrap_key(self, wrapped_key: str, _: str) -> bytes:
        return base64.b64decode(wrapped_key)


def ours(rows: pa.Table, path: Path) -> bytes:
    bs.write_table(rows, path, encryption=bs.EncryptionSpec(footer_key=KEY))
    return KEY


def arrows(rows: pa.Table, path: Path) -> bytes:
    factory = pe.CryptoFactory(Open)
    how = pe.EncryptionConfiguration(
        footer_key="f", uniform_encryption=True, double_wrapping=False, data_key_length_bits=256
    )
    properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), how)
    with pq.ParquetWriter(path, rows.schema, encryption_properties=properties, use_dictionary=False) as writer:
        writer.write_table(rows)
    return Open.wrapped


def total(path: Path, key: bytes) -> int:
    connection = duckdb.connect()
    connection.execute(f"PRAGMA add_parquet_key('k', '{base64.b64encode(key).decode()}')")
    query = "SELECT sum(n) FROM read_parquet($file, encryption_config={footer_key: 'k'})"
    (found,) = connection.execute(query, {"file": str(path)}).fetchone() or (None,)
    return int(found or 0)


@pytest.mark.parametrize("write", [ours, arrows])
def test_column_chunks_of_one_page_are_read(tmp_path: Path, write: Any) -> None:
    rows = NUMBERS.slice(0, 1_000)
    path = tmp_path / "one.parquet"
    assert total(path, write(rows, path)) == sum(range(1_000))


@pytest.mark.parametrize("write", [ours, arrows])
def test_column_chunks_of_several_pages_are_not(tmp_path: Path, write: Any) -> None:
    """A DuckDB that reads them makes this fail, and README's matrix wrong."""
    path = tmp_path / "several.parquet"
    key = write(NUMBERS, path)
    with pytest.raises(duckdb.Error, match="AES tag"):
        total(path, key)
