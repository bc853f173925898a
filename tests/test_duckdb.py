"""Sealed tables in DuckDB: views that can be asked again, look-ups by values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import bloomseal as bs
import bloomseal.duckdb as bd

ROWS = pa.table(
    {"id": list(range(500)), "ssn": [f"s{i % 250}" for i in range(500)], "day": [i % 5 for i in range(500)]}
)
ENCRYPTION = bs.EncryptionSpec(footer_key=b"f" * 16, column_keys={"ssn": b"s" * 16})
DECRYPTION = bs.DecryptionSpec(
    bs.ExplicitKeys(footer_key=b"f" * 16, column_keys={"ssn": b"s" * 16}), partition_by=["day"]
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    bs.write_dataset(
        ROWS, tmp_path / "t", encryption=ENCRYPTION, partition_by=["day"], bloom_filters=["ssn"], row_group_size=30
    )
    return tmp_path / "t"


@pytest.fixture
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


def test_a_view_answers_every_query(folder: Path, database: duckdb.DuckDBPyConnection) -> None:
    """A reader that was registered is empty the second time."""
    database.register("plain", ROWS)
    bd.register(database, "people", folder, decryption=DECRYPTION)
    for sql in (
        "select count(*), sum(id) from {}",
        "select day, min(ssn) from {} group by day order by day",
        "select a.id from {} a join {} b on a.id = b.id + 250 where a.ssn = 's7' order by 1",
        "select ssn from {} where id > 490 order by ssn",
    ):
        wanted = database.sql(sql.format("plain", "plain")).fetchall()
        assert wanted
        assert database.sql(sql.format("people", "people")).fetchall() == wanted
        assert database.sql(sql.format("people", "people")).fetchall() == wanted


def test_a_part_of_a_table_is_a_view(folder: Path, database: duckdb.DuckDBPyConnection) -> None:
    table = bs.open_table(folder, decryption=DECRYPTION)
    wanted = (value for value in ["s7", "s8"])
    bd.register(database, "part", table, columns=["id"], where=[("ssn", "in", wanted), ("day", "==", 2)])
    for _ in range(2):
        assert database.sql("select * from part order by id").fetchall() == [(7,), (257,)]
    with pytest.raises(bs.UsageError, match="open already"):
        bd.register(database, "x", table, decryption=DECRYPTION)


def test_look_ups(folder: Path, database: duckdb.DuckDBPyConnection) -> None:
    table = bs.open_table(folder, decryption=DECRYPTION)
    relation = database.sql("select * from (values ('s7'), ('nobody'))")
    for values in (["s7", "nobody"], np.array(["s7"]), pa.array(["s7"]), relation):
        found: Any = bd.lookup(database, table, "ssn", values, columns=["id"])
        assert sorted(found.fetchall()) == [(7,), (257,)]
        assert found.aggregate("count(*)").fetchall() == [(2,)]
    assert bd.lookup(database, folder, "ssn", [], decryption=DECRYPTION).fetchall() == []
    with pytest.raises(bs.UsageError, match="one column"):
        bd.lookup(database, table, "ssn", database.sql("select 1, 2"))


def test_an_altered_file_fails_the_query(folder: Path, database: duckdb.DuckDBPyConnection) -> None:
    bd.register(database, "people", folder, decryption=DECRYPTION)
    path = sorted(folder.rglob("*.parquet"))[0]
    data = bytearray(path.read_bytes())
    data[100:160] = bytes(60)
    path.write_bytes(data)
    with pytest.raises(duckdb.Error):
        database.sql("select * from people").fetchall()
