"""Streams cut behind the last row group that is wanted: the same rows, fewer bytes; positions decide nothing."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pytest

import bloomseal as bs
from bloomseal import orc
from bloomseal.keytools import MasterKeys
from bloomseal.orc import clear
from bloomseal.orc.protobuf import Message, encoded
from bloomseal.read.orc.rows import decoded
from support.jvm import JavaUnavailableError
from support.orc_java import java_orc_write, memory_keys

from .generated import columns

ROWS, STRIDE = 24_000, 1_500


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clear, "_WORTH_CUTTING", 0)


@functools.cache
def _table() -> pa.Table:
    table = columns(ROWS, seed=11)
    texts = [None if i % 11 == 0 else [f"t{j}" for j in range(i % 4)] for i in range(ROWS)]
    pairs = [[(f"k{j}", j) for j in range(i % 3)] if i % 5 else None for i in range(ROWS)]
    table = table.append_column("few", pa.array([f"few{i % 5}" for i in range(ROWS)]))
    table = table.append_column("number", pa.array(range(ROWS)))
    table = table.append_column("texts", pa.array(texts))
    return table.append_column("pairs", pa.array(pairs, pa.map_(pa.string(), pa.int64())))


@pytest.fixture(scope="module", params=["uncompressed", "zlib", "snappy", "lz4", "zstd"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cut") / f"{request.param}.orc"
    for version in ("0.12", "0.11") if request.param == "zlib" else ("0.12",):
        options = {"dictionary_key_size_threshold": 0.5, "file_version": version, "row_index_stride": STRIDE}
        pyarrow.orc.write_table(
            _table(), path, compression=request.param, compression_block_size=65_536, batch_size=100, **options
        )
    return path


def test_the_first_row_groups_are_read_of_their_own_bytes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = pyarrow.orc.read_table(path)
    with orc.open_file(path) as file:
        assert len(file.stripes) == 1
        count = file.stripes[0].num_row_groups
        made = clear._made
        calls: list[int] = []
        monkeypatch.setattr(clear, "_made", lambda *given: calls.append(1) or made(*given))
        for leaf in file.schema.leaves:
            top = leaf.name.split(".")[0]
            leaves = [one for one in file.schema.leaves if one.name.split(".")[0] == top]
            if leaf is not leaves[0]:
                continue
            every = decoded(file, 0, leaves, [top])[1]
            read = []
            calls.clear()
            for groups in range(1, count):
                rows, length = decoded(file, 0, leaves, [top], groups)
                assert rows.equals(whole.select([top]).slice(0, groups * STRIDE)), (top, groups)
                read.append(length)
            # The positions of this writer hold: no stripe was read a second time.
            assert len(calls) == count - 1, top
            assert read == sorted(read)
            assert max(read) <= every
            if every > 300_000:
                assert read[0] < every / 2, top


def test_a_look_up_reads_less(path: Path) -> None:
    with bs.open_file(path) as file:
        sizes = []
        for number in (10, 23_990):
            plan = file.plan(["text", "few", "pairs"], [("number", "==", number)])
            found = pa.concat_tables(file.scan(plan))
            assert found.num_rows == 1
            assert found.equals(pyarrow.orc.read_table(path).slice(number, 1).select(["text", "few", "pairs"]))
            sizes.append(plan.bytes_read)
        assert sizes[0] < sizes[1]


def test_positions_decide_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = pyarrow.orc.read_table(path)
    true = clear.lengths_needed

    def lying(
        streams: object,
        columns: object,
        encodings: object,
        indexes: dict[int, list[memoryview]],
        *given: int,
        **more: bool,
    ) -> object:
        for wrong in (0, 1, 7, 1 << 40):
            false = {
                column: [
                    memoryview(encoded(1, b"".join(_varint(wrong) for _ in Message(one).numbers(1)))) for one in entries
                ]
                for column, entries in indexes.items()
            }
            true(streams, columns, encodings, false, *given, **more)  # type: ignore[arg-type]
        false = {
            column: [memoryview(encoded(1, bytes(len(Message(one).numbers(1))))) for one in entries]
            for column, entries in indexes.items()
        }
        return true(streams, columns, encodings, false, *given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(clear, "lengths_needed", lying)
    with bs.open_file(path) as file:
        for number in (10, 13_210, 23_990):
            assert file.read(["text", "i64"], [("number", "==", number)]).equals(
                whole.slice(number, 1).select(["text", "i64"])
            )


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + _varint(value >> 7)


@pytest.mark.jvm
@pytest.mark.parametrize("compression", ["NONE", "ZLIB", "ZSTD"])
def test_encrypted_streams_of_the_java_writer_are_cut(
    compression: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, path = bytes(range(16)), tmp_path / "sealed.orc"
    spec = bs.DecryptionSpec(keys=MasterKeys({"pii": key}), allow_ctr=True)
    schema = "struct<id:bigint,name:string,num:int,few:string,s:struct<a:int,b:string>>"
    rows = [
        [i, f"name{i * 7919 % 9973}" if i % 7 else None, i * 31 % 999, f"few{i % 5}", [i % 3, f"in{i}"]]
        for i in range(9_000)
    ]
    options: dict[str, Any] = {"encrypt": "pii:name,few,num,s", "compression": compression, "buffer_size": 4_096}
    try:
        java_orc_write(path, schema, rows, memory_keys(("pii", 0, key)), **options)
    except JavaUnavailableError as error:
        pytest.skip(str(error))
    made, calls = clear._made, list[int]()
    monkeypatch.setattr(clear, "_made", lambda *given: calls.append(1) or made(*given))
    with bs.open_file(path, decryption=spec) as file:
        sizes = []
        for number in (400, 4_400, 8_400):
            plan = file.plan(None, [("id", "==", number)])
            (row,) = pa.concat_tables(file.scan(plan)).to_pylist()
            assert [*list(row.values())[:4], [*row["s"].values()]] == rows[number]
            sizes.append(plan.bytes_read)
        assert len(calls) == 6
        assert sizes[0] < sizes[1] < sizes[2]
