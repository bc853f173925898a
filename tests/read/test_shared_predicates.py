"""A predicate that was bound for one file is taken for another of the same schema, and for no other."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.core.parquet.footer import _NARROW

KEYS = bs.ExplicitKeys(footer_key=bytes(16), column_keys={"name": bytes(range(16))})
SPEC = bs.DecryptionSpec(keys=KEYS)


def write(path: Path, start: int, kind: pa.DataType, more: int = 0) -> None:
    numbers = range(start, start + 100)
    columns = {"name": pa.array([f"n{i}" for i in numbers]), "number": pa.array(list(numbers), kind)}
    columns |= {f"more{i}": pa.array([start + i] * 100) for i in range(more)}
    encryption = bs.EncryptionSpec(footer_key=bytes(16), column_keys={"name": bytes(range(16))})
    bs.write_table(pa.table(columns), path, encryption=encryption, bloom_filters={"name": bs.FilterSpec()})


@pytest.mark.parametrize("more", [0, _NARROW, 4 * _NARROW])
def test_for_files_of_one_schema(tmp_path: Path, more: int) -> None:
    found, predicate = [], None
    for start in (0, 100, 50):
        write(tmp_path / f"{start}.parquet", start, pa.int64(), more)
        with bs.open_file(tmp_path / f"{start}.parquet", decryption=SPEC) as file:
            columns = ["name", *(f"more{i}" for i in range(more))]
            plan = file.plan(columns, predicate or [("name", "in", ["n7", "n120"]), ("number", "<", 130)])
            assert predicate is None or plan.predicate is predicate
            predicate = plan.predicate
            for table in file.scan(plan):
                assert [table[f"more{i}"].to_pylist() for i in range(more)] == [[start + i] for i in range(more)]
                found += table["name"].to_pylist()
    assert found == ["n7", "n120", "n120"]


def test_for_no_file_of_another_schema(tmp_path: Path) -> None:
    write(tmp_path / "long.parquet", 0, pa.int64())
    write(tmp_path / "short.parquet", 0, pa.int32())
    with bs.open_file(tmp_path / "long.parquet", decryption=SPEC) as file:
        predicate = file.plan(None, [("number", "==", 7)]).predicate
    with bs.open_file(tmp_path / "short.parquet", decryption=SPEC) as file, pytest.raises(bs.UsageError):
        file.plan(None, predicate)
