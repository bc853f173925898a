"""The streaming writer: row groups, threads, and what is left after a failure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.write.encode import Encoder

ENCRYPTION = bs.EncryptionSpec(footer_key=b"f" * 16, column_keys={"name": b"n" * 16})
DECRYPTION = bs.DecryptionSpec(bs.ExplicitKeys(footer_key=b"f" * 16, column_keys={"name": b"n" * 16}))
DATA = pa.table({"id": list(range(10_000)), "name": [f"n{n}" for n in range(10_000)]})


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("layout", ["row_group", "end"])
def test_row_groups_keep_their_order_and_their_filters(tmp_path: Path, threads: int, layout: str) -> None:
    path = tmp_path / "a.parquet"
    with bs.SealedWriter(
        path, DATA.schema, encryption=ENCRYPTION, bloom_filters={"name": True, "id": True}, row_group_size=700,
        threads=threads, filter_layout=layout,
    ) as writer:  # fmt: skip
        for start in range(0, len(DATA), 333):
            writer.write_table(DATA.slice(start, 333))
    with bs.open_file(path, decryption=DECRYPTION) as file:
        assert [group.num_rows for group in file.row_groups] == [700] * 14 + [200]
        assert file.read().equals(DATA)
        for group, verdicts in enumerate(file.probe("name", DATA["name"])):
            mine = verdicts[group * 700 : (group + 1) * 700]
            assert set(mine) == {bs.Verdict.MAYBE_PRESENT}


@pytest.mark.parametrize("threads", [1, 3])
def test_a_row_group_that_fails_is_named_and_leaves_no_file(tmp_path: Path, threads: int) -> None:
    uneven = pa.table({"id": [1] * 1000 + list(range(1000))})
    with pytest.raises(bs.UsageError, match="row group 1") as caught:
        bs.write_table(
            uneven, tmp_path / "a.parquet", bloom_filters={"id": bs.FilterSpec(ndv=20, hide_size=True)},
            row_group_size=1000, threads=threads,
        )  # fmt: skip
    assert caught.value.column == "id"
    assert list(tmp_path.iterdir()) == []


def test_an_exception_inside_the_block_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), bs.SealedWriter(tmp_path / "a.parquet", DATA.schema, threads=2) as writer:  # noqa: PT012
        writer.write_table(DATA)
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_no_rows_make_a_file_with_columns(tmp_path: Path) -> None:
    bs.write_table(DATA.slice(0, 0), tmp_path / "a.parquet", encryption=ENCRYPTION, bloom_filters={"name": True})
    assert bs.read_table(tmp_path / "a.parquet", decryption=DECRYPTION).schema.equals(DATA.schema)


@pytest.mark.parametrize(
    "wrong",
    [
        {"row_group_size": 0},
        {"threads": 0},
        {"filter_layout": "middle"},
        {"bloom_filters": {"nobody": True}},
        {"bloom_filters": {"id": "large"}},
        {"data_page_version": "2.0", "encryption": ENCRYPTION},
        {"encryption_properties": None},
        {"compression": "no such"},
        {"use_byte_stream_split": ["name"], "use_dictionary": False},
        {"encryption": bs.EncryptionSpec(footer_key=b"f" * 16, column_keys={"nobody": b"n" * 16})},
    ],
    ids=lambda wrong: "-".join(wrong),
)
def test_wrong_arguments_are_refused_before_anything_is_written(tmp_path: Path, wrong: dict) -> None:
    with pytest.raises(bs.UsageError):
        bs.write_table(DATA, tmp_path / "a.parquet", **wrong)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("threads", [1, 2])
def test_a_dictionary_that_overflows_is_not_tried_again(tmp_path: Path, threads: int) -> None:
    rows = 60_000
    # Few values at first, so that the sample promises a dictionary.
    unique = [f"a value that nobody has twice {n if n > 10_000 else n % 9_000:08d}" for n in range(3 * rows)]
    few = [f"f{n % 5}" for n in range(3 * rows)]
    data = pa.table({"unique": unique, "few": few, "number": range(3 * rows)})
    path = tmp_path / "a.parquet"
    encryption = bs.EncryptionSpec(footer_key=b"f" * 16)
    bs.write_table(
        data, path, encryption=encryption, bloom_filters={"unique": True}, row_group_size=rows, threads=threads,
        dictionary_pagesize_limit=1 << 18,
    )  # fmt: skip
    with bs.open_file(path, decryption=bs.DecryptionSpec(bs.ExplicitKeys(footer_key=b"f" * 16))) as file:
        walk = file.walk
        dictionaries = [
            [any(page.ordinal < 0 for page in walk.pages(walk.chunk(group, column))) for column in range(3)]
            for group in range(3)
        ]
        assert dictionaries == [[True, True, False], [False, True, False], [False, True, False]]
        assert file.read().equals(data)
        assert file.read(["number"], [("unique", "==", unique[-1])])["number"].to_pylist() == [3 * rows - 1]
        assert file.verify().complete


def test_values_that_hardly_repeat_get_no_dictionary(tmp_path: Path) -> None:
    rows = 30_000
    data = pa.table(
        {
            "unique": [f"{n:011d}" for n in range(rows)],
            "nearly": pa.array([None if n % 3 else n // 3 for n in range(rows)], pa.int64()),
            "often": [n % 9_000 for n in range(rows)],
            "half": np.arange(rows, dtype=np.float16),
            "list": [[n] for n in range(rows)],
        }
    )
    bs.write_table(
        data, tmp_path / "a.parquet", row_group_size=10_000, encryption=bs.EncryptionSpec(footer_key=b"f" * 16)
    )
    with bs.open_file(
        tmp_path / "a.parquet", decryption=bs.DecryptionSpec(bs.ExplicitKeys(footer_key=b"f" * 16))
    ) as file:
        for group in range(3):
            first = [next(file.walk.pages(file.walk.chunk(group, column))).ordinal for column in range(5)]
            assert [ordinal < 0 for ordinal in first] == [False, False, True, True, True]
        assert file.read().equals(data)


def test_a_dictionary_that_is_asked_for_stays(tmp_path: Path) -> None:
    data = pa.table({"unique": [f"a value that nobody has twice {n:08d}" for n in range(20_000)]})
    bs.write_table(
        data, tmp_path / "a.parquet", row_group_size=10_000, use_dictionary=True, dictionary_pagesize_limit=1 << 14
    )
    with bs.open_file(tmp_path / "a.parquet") as file:
        for group in range(2):
            assert next(file.walk.pages(file.walk.chunk(group, 0))).ordinal == -1


def test_two_filters_for_one_column_are_refused(tmp_path: Path) -> None:
    """A list's leaf has two names: one request must not undo the other unseen."""
    path, wanted = tmp_path / "a.parquet", {"tags": bs.FilterSpec(num_bytes=64), "tags.list.element": True}
    table = pa.table({"tags": [["a"], ["b"]]})
    with pytest.raises(bs.UsageError, match="two filters"):
        bs.write_table(table, path, bloom_filters=wanted)
    bs.write_table(table, path)
    before = path.read_bytes()
    with pytest.raises(bs.UsageError, match="two filters"):
        bs.attach_filters(path, wanted)
    assert path.read_bytes() == before


@pytest.fixture
def sinks(monkeypatch: pytest.MonkeyPatch) -> list[type]:
    """What the writer encoded into."""
    seen: list[type] = []
    encode_into = Encoder._encode_into
    monkeypatch.setattr(
        Encoder,
        "_encode_into",
        lambda writer, sink, rows: (seen.append(type(sink)), encode_into(writer, sink, rows)),
    )
    return seen


def test_columns_that_are_larger_in_parquet_than_in_arrow(tmp_path: Path, sinks: list[type]) -> None:
    """Arrow holds each value once and Parquet writes it a thousand times: more than the room that was made for it."""
    long = pa.array([f"{number:02}" + "x" * 2_000 for number in range(10)])
    table = pa.table({"name": pa.DictionaryArray.from_arrays(pa.array(list(range(10)) * 600, pa.int8()), long)})
    path = tmp_path / "a.parquet"
    wide = {"compression": "none", "use_dictionary": False}
    bs.write_table(table, path, encryption=ENCRYPTION, bloom_filters={"name": True}, row_group_size=2_000, **wide)
    # Of the schema, of the first row group, and again; then it is known.
    assert sinks == [*[pa.FixedSizeBufferWriter] * 2, pa.BufferOutputStream, *[pa.FixedSizeBufferWriter] * 2]
    assert path.stat().st_size > 12_000_000 > 10 * table.nbytes
    with bs.open_file(path, decryption=DECRYPTION) as file:
        assert file.read()["name"].to_pylist() == table["name"].to_pylist()
        assert bs.Verdict.ABSENT not in file.probe("name", long)[0]


def _views() -> pa.ChunkedArray:
    long = pa.array([f"{number:08}" * 8 for number in range(20_000)], pa.string_view())
    return pa.chunked_array([long.slice(start, 2) for start in range(0, 20_000, 2)])


def _one_dictionary() -> pa.ChunkedArray:
    long = pa.array([f"{number:06}" * 20 for number in range(20_000)])
    return pa.chunked_array(
        [pa.DictionaryArray.from_arrays(pa.array([number], pa.int32()), long) for number in range(4_000)]
    )


@pytest.mark.parametrize("column", [_views, _one_dictionary])
def test_memory_that_chunks_share_is_counted_once(tmp_path: Path, sinks: list[type], column: Callable[[], Any]) -> None:
    """Table.nbytes counts it for every chunk: terabytes, where there are many."""
    table = pa.table({"name": column()})
    assert table.nbytes > 5_000_000_000
    made: list[int] = []
    empty = np.empty
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "empty", lambda size, *rest, **more: (made.append(size), empty(size, *rest, **more))[1])
        bs.write_table(table, tmp_path / "a.parquet", encryption=ENCRYPTION)
    assert max(size for size in made if isinstance(size, int)) < 20_000_000
    assert pa.BufferOutputStream not in sinks
    assert bs.read_table(tmp_path / "a.parquet", decryption=DECRYPTION)["name"].to_pylist() == table["name"].to_pylist()


def test_where_there_is_no_room(tmp_path: Path, sinks: list[type]) -> None:
    def none(size: int, *_: object, **__: object) -> None:
        raise MemoryError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bloomseal.write.encode.np.empty", none)
        bs.write_table(DATA, tmp_path / "a.parquet", encryption=ENCRYPTION)
    assert set(sinks) == {pa.BufferOutputStream}
    assert bs.read_table(tmp_path / "a.parquet", decryption=DECRYPTION).equals(DATA)


def test_a_column_that_only_looks_like_a_keyed_one_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    table = pa.table({"id": [1], "ssn": ["a"], "SSN": ["a"]})
    spec = bs.EncryptionSpec(footer_key=b"0" * 16, column_keys={"ssn": b"1" * 16})
    with pytest.raises(bs.PolicyError, match="differs from that of ssn"):
        bs.write_table(table, tmp_path / "t.parquet", encryption=spec)
    assert not list(tmp_path.iterdir())
    both = bs.EncryptionSpec(footer_key=b"0" * 16, column_keys={"ssn": b"1" * 16, "SSN": b"2" * 16})
    bs.write_table(table, tmp_path / "t.parquet", encryption=both)


@pytest.mark.parametrize("key", [(b"k" * 16, 5), ((b"k" * 16, b"kf"), b"kf"), ("kf", b"k" * 16), (5, b"kf")])
def test_a_pair_is_a_data_key_and_its_metadata(key: Any) -> None:
    for spec in ({"footer_key": key}, {"footer_key": b"k" * 16, "column_keys": {"ssn": key}}):
        with pytest.raises(bs.UsageError, match="a pair is a data key and its key metadata"):
            bs.EncryptionSpec(**spec)
