"""Rows from everyday data: whatever speaks Arrow is written as it is, all else is refused with what fits."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import bloomseal as bs
from bloomseal.write.rows_in import rows_in

ROWS = pa.table({"id": list(range(100)), "ssn": [f"{i:03d}-21-3945" for i in range(100)]})
PIECES = ROWS.to_batches(max_chunksize=7)
ENCRYPTION = bs.EncryptionSpec(footer_key=b"f" * 16)
DECRYPTION = bs.DecryptionSpec(bs.ExplicitKeys(footer_key=b"f" * 16))


class OnlyStream:
    """All that the Arrow PyCapsule interface asks of an object."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return ROWS.to_reader(7).__arrow_c_stream__(requested_schema)


SOURCES: dict[str, Callable[[], Any]] = {
    "table": lambda: ROWS,
    "batch": lambda: ROWS.to_batches()[0],
    "reader": lambda: ROWS.to_reader(7),
    "dataset": lambda: ds.dataset(ROWS),
    "scanner": lambda: ds.dataset(ROWS).scanner(),
    "capsule": OnlyStream,
    "struct array": lambda: pa.StructArray.from_arrays([column.combine_chunks() for column in ROWS], ROWS.schema.names),
    "pandas": lambda: ROWS.to_pandas(),
    "polars": lambda: pl.from_arrow(ROWS),
    "polars, lazily": lambda: pl.from_arrow(ROWS).lazy().collect_batches(),  # type: ignore[union-attr]
    "duckdb": lambda: duckdb.from_arrow(ROWS),
    "list of batches": lambda: PIECES,
    "iterator of batches": lambda: iter(PIECES),
    "generator of tables": lambda: (pa.Table.from_batches([piece]) for piece in PIECES),
    "generator of frames": lambda: (pl.from_arrow(piece) for piece in PIECES),
}


@pytest.mark.parametrize("name", SOURCES)
def test_rows_of_every_kind_are_written(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    bs.write_table(SOURCES[name](), path, encryption=ENCRYPTION, bloom_filters=["ssn"], row_group_size=30)
    found = bs.read_table(path, decryption=DECRYPTION)
    assert found.cast(ROWS.schema).equals(ROWS)
    with bs.open_file(path, decryption=DECRYPTION) as file:
        assert [group.num_rows for group in file.row_groups] == [30, 30, 30, 10]
        assert file.probe("ssn", ["005-21-3945", "no"])[0] == [bs.Verdict.MAYBE_PRESENT, bs.Verdict.ABSENT]
    row = bs.read_table(path, where=[("ssn", "==", "042-21-3945")], decryption=DECRYPTION)
    assert row["id"].to_pylist() == [42]


@pytest.mark.parametrize("name", SOURCES)
def test_a_writer_takes_them_too(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    with bs.SealedWriter(path, rows_in(SOURCES[name]()).schema) as writer:
        writer.write(SOURCES[name]())
        writer.write(SOURCES[name]())
    assert bs.read_table(path).num_rows == 200


def test_a_stream_is_not_collected(tmp_path: Path) -> None:
    """Rows leave for the file before the next are asked for."""
    sizes: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(4):
            sizes.append(writer.bytes_written)
            yield ROWS.to_batches()[0]

    with bs.SealedWriter(tmp_path / "a.parquet", ROWS.schema, row_group_size=100) as writer:
        writer.write(batches())
    assert sizes == sorted(set(sizes))


def test_a_stream_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield ROWS.to_batches()[0]
        raise RuntimeError("the user's own")

    with pytest.raises(RuntimeError, match="own"):
        bs.write_table(batches(), tmp_path / "a.parquet", row_group_size=10)

    def engine() -> Iterator[pa.RecordBatch]:
        yield ROWS.to_batches()[0]
        raise pa.ArrowInvalid("can't convert 451-21-3945")

    failing = pa.RecordBatchReader.from_batches(ROWS.schema, engine())
    with pytest.raises(bs.UsageError) as caught:
        bs.write_table(failing, tmp_path / "a.parquet")
    assert "451-21-3945" not in str(caught.value)
    assert caught.value.__cause__ is not None
    assert list(tmp_path.iterdir()) == []


def test_pieces_of_another_schema_are_refused(tmp_path: Path) -> None:
    with pytest.raises(bs.UsageError, match="schema is not the writer's"):
        bs.write_table([ROWS, ROWS.select(["id"])], tmp_path / "a.parquet")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("frame", "columns"),
    [
        (ROWS.to_pandas(), ["id", "ssn"]),
        (ROWS.to_pandas().query("id > 90"), ["id", "ssn"]),
        (ROWS.to_pandas().set_index("id"), ["ssn", "id"]),
        (ROWS.to_pandas().set_index(["id", "ssn"]).assign(x=1), ["x", "id", "ssn"]),
        (ROWS.to_pandas().set_index("id", append=True).query("id > 90"), ["ssn", "id"]),
    ],
)
def test_an_index_is_stored_if_it_has_a_name(frame: pd.DataFrame, columns: list[str], tmp_path: Path) -> None:
    bs.write_table(frame, tmp_path / "a.parquet")
    found = bs.read_table(tmp_path / "a.parquet")
    assert found.column_names == columns
    assert found.num_rows == len(frame)
    asked = pa.Table.from_pandas(frame, preserve_index=True)
    bs.write_table(asked, tmp_path / "b.parquet")
    assert bs.read_table(tmp_path / "b.parquet").column_names == asked.column_names


def test_categories_of_polars_and_pandas_are_dictionaries(tmp_path: Path) -> None:
    for number, frame in enumerate(
        (
            pl.DataFrame({"c": ["u", "v", "u"]}, schema={"c": pl.Categorical}),
            pd.DataFrame({"c": pd.Categorical(["u", "v", "u"])}),
        )
    ):
        path = tmp_path / f"{number}.parquet"
        bs.write_table(frame, path, encryption=ENCRYPTION, bloom_filters=["c"])
        assert bs.read_table(path, decryption=DECRYPTION)["c"].to_pylist() == ["u", "v", "u"]
        assert bs.read_table(path, where=[("c", "==", "v")], decryption=DECRYPTION).num_rows == 1


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        (5, ""),
        (None, ""),
        ("people.csv", ""),
        (b"PAR1", ""),
        ({"id": [1]}, r"pyarrow\.table"),
        ([{"id": 1}], "from_pylist"),
        ([1, 2], "from_pylist"),
        (pd.Series([1], name="id"), "to_frame"),
        (pl.Series("id", [1]), "to_frame"),
        (pl.LazyFrame({"id": [1]}), "collect_batches"),
        (pa.array([1]), ""),
        (ROWS["id"], ""),
        (iter([]), ""),
        (object(), ""),
    ],
)
def test_all_else_is_refused_with_what_fits(data: Any, hint: str, tmp_path: Path) -> None:
    with pytest.raises(bs.UsageError, match="data= ") as caught:
        bs.write_table(data, tmp_path / "a.parquet")
    assert re.search(hint, caught.value.hint or "")
    assert list(tmp_path.iterdir()) == []


def test_a_frame_that_arrow_can_not_take_is_told_by_its_column() -> None:
    with pytest.raises(bs.UsageError, match="ssn") as caught:
        bs.write_table(pd.DataFrame({"ssn": [1, "451-21-3945"]}), io.BytesIO())
    assert "451-21-3945" not in str(caught.value)
    with pytest.raises(bs.UsageError, match="same name"):
        bs.write_table(pd.DataFrame([[1, 2]], columns=["a", "a"]), io.BytesIO())


@pytest.mark.parametrize("wanted", [["ssn"], ("ssn",), {"ssn"}, {"ssn": True}, {"ssn": bs.FilterSpec()}])
def test_filters_are_asked_for_by_dict_or_list_everywhere(wanted: Any, tmp_path: Path) -> None:
    first, second = tmp_path / "a.parquet", tmp_path / "b.parquet"
    bs.write_table(ROWS, first, bloom_filters=wanted)
    assert bs.seal_file(first, second, encryption=ENCRYPTION, bloom_filters=wanted).filters_built == 1
    again = bs.rekey(second, encryption=ENCRYPTION, decryption=DECRYPTION, bloom_filters=wanted)
    assert again.filters_built == 1
    report = bs.attach_filters(second, wanted, decryption=DECRYPTION)
    assert [one["column"] for one in report.filters] == ["ssn"]


@pytest.mark.parametrize("wanted", ["ssn", b"ssn", 5, [5], ["ssn", "ssn"], ["nobody"], {"ssn": "yes"}])
def test_other_requests_for_filters_are_refused(wanted: Any, tmp_path: Path) -> None:
    with pytest.raises(bs.UsageError):
        bs.write_table(ROWS, tmp_path / "a.parquet", bloom_filters=wanted)
    assert list(tmp_path.iterdir()) == []
