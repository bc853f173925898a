"""Streams cut before the first and behind the last row group that is wanted: the same rows, fewer bytes."""

from __future__ import annotations

import functools
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pytest

import bloomseal as bs
from bloomseal.keytools import MasterKeys
from bloomseal.orc.protobuf import Message, encoded, number
from bloomseal.orc.rows import clear, cut
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
    with bs.open_file(path) as file:
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
            every = file.decoded(0, leaves, [top])[1]
            read = []
            calls.clear()
            for groups in range(1, count):
                rows, length = file.decoded(0, leaves, [top], range(groups))
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
        for at in (10, 12_010, 23_990):
            plan = file.plan(["text", "few", "pairs"], [("number", "==", at)])
            found = pa.concat_tables(file.scan(plan))
            assert found.num_rows == 1
            assert found.equals(pyarrow.orc.read_table(path).slice(at, 1).select(["text", "few", "pairs"]))
            every = file.plan(["text", "few", "pairs", "number"])
            assert pa.concat_tables(file.scan(every)).num_rows == ROWS
            assert plan.bytes_read < every.bytes_read


def test_the_middle_is_read_of_its_own_bytes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = pyarrow.orc.read_table(path)
    with bs.open_file(path) as file:
        count = file.stripes[0].num_row_groups
        made, calls = clear._made, list[range]()
        monkeypatch.setattr(clear, "_made", lambda *given: calls.append(given[-1]) or made(*given))
        for top in dict.fromkeys(leaf.name.split(".")[0] for leaf in file.schema.leaves):
            leaves = [one for one in file.schema.leaves if one.name.split(".")[0] == top]
            every = file.decoded(0, leaves, [top])[1]
            for groups in (range(one, one + 1) for one in range(1, count)):
                calls.clear()
                rows, length = file.decoded(0, leaves, [top], groups)
                assert rows.equals(whole.select([top]).slice(groups.start * STRIDE, STRIDE)), (top, groups)
                assert calls == [groups], top
                assert length <= every
            rows, length = file.decoded(0, leaves, [top], range(3, count - 2))
            assert rows.equals(whole.select([top]).slice(3 * STRIDE, (count - 5) * STRIDE)), top


def test_positions_that_do_not_fit_their_columns_are_not_followed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = pyarrow.orc.read_table(path)
    true = clear.parts_needed
    for wrong in (
        lambda numbers: [1 << 40 for _ in numbers],
        lambda numbers: [(1 << 64) - 1 for _ in numbers],
        lambda numbers: numbers[:-1],
        lambda numbers: [*numbers, 0],
        lambda _: [],
    ):

        def lying(*given: Any, wrong: Any = wrong, **more: Any) -> Any:
            false = {
                column: [
                    memoryview(encoded(1, b"".join(map(number, wrong(Message(one).numbers(1)))))) for one in entries
                ]
                for column, entries in given[3].items()
            }
            return true(*given[:3], false, *given[4:], **more)

        monkeypatch.setattr(clear, "parts_needed", lying)
        with bs.open_file(path) as file:
            for at in (10, 13_210, 23_990):
                found = file.read(["text", "i64"], [("number", "==", at)])
                assert found.equals(whole.slice(at, 1).select(["text", "i64"]))


def _end(*places: cut._StreamPosition, compressed: bool = True) -> int:
    entries = [memoryview(bytes([number])) for number in range(len(places))]
    return cut._end(entries, 0, lambda entry: places[entry[0]], 1000, compressed=compressed)


@pytest.mark.parametrize("compressed", [True, False])
def test_a_position_that_is_none_cuts_nothing_off(compressed: bool) -> None:
    assert _end(cut._StreamPosition(), cut._StreamPosition(900), compressed=compressed) == 1000
    assert _end(cut._StreamPosition(400), cut._StreamPosition(900), compressed=compressed) == 400


def test_a_chunk_that_row_groups_share_is_read_to_its_end() -> None:
    place = cut._StreamPosition
    assert _end(place(400, 7), place(400, 9), place(400, 20), place(700), place(900)) == 700
    # A run that has begun may reach into the next chunk.
    assert _end(place(400, 7, 3), place(400, 9), place(700), place(700, 1), place(900)) == 900
    assert _end(place(400, 7), place(400, 9)) == 1000
    assert _end(place(400, 7, 3), place(400, 9), place(700)) == 1000


@pytest.mark.parametrize("seed", range(20))
def test_chunks_that_do_not_ascend_never_cut_before_the_first(seed: int) -> None:
    chance = random.Random(seed)
    places = [cut._StreamPosition(400, 7), *(cut._StreamPosition(chance.randrange(-1, 1000), 7) for _ in range(30))]
    assert 400 < _end(*places) <= 1000


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
        for at in (400, 4_400, 8_400):
            plan = file.plan(None, [("id", "==", at)])
            (row,) = pa.concat_tables(file.scan(plan)).to_pylist()
            assert [*list(row.values())[:4], [*row["s"].values()]] == rows[at]
            sizes.append(plan.bytes_read)
        # The condition's column and the others, each read once.
        assert len(calls) == 6
        assert max(sizes) < 0.7 * sum(stripe.data_length for stripe in file.stripes)


def test_few_bytes_of_many_rows_are_cut_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dictionary's numbers shrink to nothing in the file, and a stripe of them is decoded a row group at a time."""
    monkeypatch.undo()
    few = [f"few{i % 977}" for i in range(10 * 10_000)]
    for name, rows in (("many", few), ("not many", few[: 2 * 10_000])):
        path = tmp_path / f"{name}.orc"
        pyarrow.orc.write_table(pa.table({"few": rows}), path, dictionary_key_size_threshold=1, compression="zstd")
        with bs.open_file(path) as file:
            (leaf,) = file.schema.leaves
            groups = range(file.stripes[0].num_row_groups - 1, file.stripes[0].num_row_groups)
            made = file.cleared(0, [leaf], groups)
            assert sum(one.length for one in file.index(0).streams if not one.is_index) < clear._WORTH_CUTTING
            assert made.first == (groups.start if name == "many" else 0)
            assert file.decoded(0, [leaf], ["few"], groups)[0]["few"].to_pylist() == rows[-10_000:]


def test_a_stream_ends_with_the_chunk_in_which_the_next_row_group_begins(tmp_path: Path) -> None:
    """Texts have no runs that reach into the next chunk; numbers may."""
    rng = random.Random(4)
    rows = [rng.randbytes(30).hex() for _ in range(ROWS)]
    path = tmp_path / "texts.orc"
    block = 65_536  # a row group has 90,000 bytes
    pyarrow.orc.write_table(
        pa.table({"text": rows}), path, compression="zlib", compression_block_size=block, row_index_stride=STRIDE,
        batch_size=100,
    )  # fmt: skip
    with bs.open_file(path) as file:
        (leaf,) = file.schema.leaves
        sizes = []
        for group in range(file.stripes[0].num_row_groups):
            made = file.cleared(0, [leaf], range(group, group + 1))
            assert made.first == group
            sizes.append(len(made.data))
            assert (
                file.decoded(0, [leaf], ["text"], range(group, group + 1))[0]["text"].to_pylist()
                == (rows[group * STRIDE : (group + 1) * STRIDE])
            )
    # From within one chunk to the end of the one in which the next row group begins.
    assert max(sizes) < 90_000 + 2 * block
    assert sum(sizes) / len(sizes) < 90_000 + 1.2 * block
