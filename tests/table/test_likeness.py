"""Files whose columns are alike are asked the same, found out once; what may still differ is looked at in each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import bloomseal as bs
import bloomseal.polars as bp
from bloomseal.read.parquet import ParquetFile
from bloomseal.table.query import query

KEYS = bs.ExplicitKeys(footer_key=b"f" * 16, column_keys={"id": b"c" * 16})
SEALED: dict[str, Any] = {"footer_key": b"f" * 16, "column_keys": {"id": b"c" * 16}}
DECRYPTION = bs.DecryptionSpec(KEYS, partition_by=["part"])
FILES, ROWS = 6, 20
WAYS: dict[str, Callable[[Path, str], list[int]]] = {
    "read": lambda folder, name: table_of(folder).read(where=[("id", "==", name)])["n"].to_pylist(),
    "scan": lambda folder, name: table_of(folder).scan(where=[("id", "==", name)]).read_all()["n"].to_pylist(),
    "Polars": lambda folder, name: bp.scan(folder, decryption=DECRYPTION).filter(pl.col("id") == name).collect()["n"].to_list(),
}  # fmt: skip


def table_of(folder: Path) -> bs.SealedTable:
    return bs.open_table(folder, decryption=DECRYPTION)


def write(path: Path, number: int, kind: pa.DataType | None = None, **encryption: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    rows = pa.table({"id": pa.array([f"{number}-{i}" for i in range(ROWS)], kind), "n": range(ROWS)})
    bs.write_table(rows, path, encryption=bs.EncryptionSpec(**(encryption or SEALED)), bloom_filters=["id"])


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files for which a read was planned from its arguments."""
    names: list[str] = []
    before = ParquetFile.plan

    def noted(file: ParquetFile, *asked: Any, **more: Any) -> Any:
        names.append(Path(file.path).name)
        return before(file, *asked, **more)

    monkeypatch.setattr(ParquetFile, "plan", noted)
    return names


@pytest.mark.parametrize("remembered", [64, 1])
@pytest.mark.parametrize("threads", [1, 4])
def test_a_read_is_planned_once_for_files_that_are_alike(
    tmp_path: Path, planned: list[str], monkeypatch: pytest.MonkeyPatch, threads: int, remembered: int
) -> None:
    monkeypatch.setattr(query, "_REMEMBERED", remembered)
    for number in range(FILES):
        write(tmp_path / f"{number}.parquet", number, pa.large_string() if number == 3 else pa.string())
    found = table_of(tmp_path).read(where=[("id", "in", [f"{number}-7" for number in range(FILES)])], threads=threads)
    assert found["id"].to_pylist() == [f"{number}-7" for number in range(FILES)]
    # Parquet has one type for both.
    assert found.schema.field("id").type == pa.large_string()
    if threads == 1:
        assert planned == ["0.parquet", "3.parquet", *(["4.parquet"] if remembered == 1 else [])]


@pytest.mark.parametrize("way", WAYS)
def test_each_file_is_held_against_the_expectation(tmp_path: Path, way: str) -> None:
    for number in range(FILES):
        write(tmp_path / f"{number}.parquet", number)
    assert WAYS[way](tmp_path, "4-7") == [7]
    # The same columns; but the one that must be sealed is in clear.
    write(tmp_path / "3.parquet", 3, footer_key=b"f" * 16, column_keys={"n": b"c" * 16})
    with pytest.raises(Exception, match=r"in plaintext where an encrypted one was expected"):
        WAYS[way](tmp_path, "4-7")
    # Also where nothing of it is opened.
    with pytest.raises(bs.PolicyError, match=r"3\.parquet"):
        table_of(tmp_path).read(where=[("n", "==", ROWS)])


def test_each_footer_must_be_verified(tmp_path: Path) -> None:
    class Retriever:
        def retrieve_key(self, key_metadata: bytes, column: str | None) -> bytes:
            if key_metadata == b"f3":
                raise bs.KeyAccessError("not this one")
            return (b"c" if column else b"f") * 16

    for number in range(FILES):
        keys = {"footer_key": (b"f" * 16, f"f{number}".encode()), "column_keys": {"id": (b"c" * 16, b"c")}}
        write(tmp_path / f"{number}.parquet", number, plaintext_footer=True, **keys)
    table = bs.open_table(tmp_path, decryption=bs.DecryptionSpec(Retriever()))
    with pytest.raises(bs.PolicyError, match=r"3\.parquet"):
        table.read(["n"])


@pytest.mark.parametrize("way", WAYS)
def test_what_folders_say_counts_for_each_file(tmp_path: Path, way: str) -> None:
    for number in range(FILES):
        write(tmp_path / f"part={number % 2}" / f"{number}.parquet", number)
    asked = [("id", "in", [f"{number}-7" for number in range(FILES)])]
    either = [[("part", "==", 1), *asked], [("n", "==", 3)]]
    found = table_of(tmp_path).read(["id", "n", "part"], where=either) if way == "read" else (
        table_of(tmp_path).scan(["id", "n", "part"], where=either).read_all() if way == "scan" else
        bp.scan(tmp_path, decryption=DECRYPTION)
        .filter(((pl.col("part") == 1) & pl.col("id").is_in(asked[0][2])) | (pl.col("n") == 3)).collect().to_arrow()
    )  # fmt: skip
    rows = {(row["id"], row["part"]) for row in found.to_pylist()}
    sevens = {(f"{number}-7", 1) for number in range(FILES) if number % 2}
    assert rows == sevens | {(f"{number}-3", number % 2) for number in range(FILES)}
