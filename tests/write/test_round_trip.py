"""Whatever table goes in comes out as pyarrow alone would give it back, and its filters know every value of it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bloomseal as bs
from support.flat_tables import FLAT, tables

_KEYS = bs.ExplicitKeys(keys_by_id={"kf": b"f" * 16, "kc": b"c" * 24})
_READ = bs.DecryptionSpec(_KEYS, aad_prefix="p", allow_ctr=True)
_MODES: list[dict[str, Any]] = [
    {},
    {"algorithm": "AES_GCM_CTR_V1"},
    {"plaintext_footer": True},
    {"plaintext_footer": True, "complete": True, "store_aad_prefix": False},
]
_ORDINARY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def plain_round_trip(table: pa.Table, **options: Any) -> pa.Table:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return pq.read_table(pa.BufferReader(sink.getvalue()))


def same(one: pa.Table, other: pa.Table) -> bool:
    """Equal in schema and rows, NaN to NaN, whatever the bits of a NaN and however the chunks are cut."""
    if one.schema != other.schema or one.num_rows != other.num_rows:
        return False
    return all(_same_column(one.column(i), other.column(i)) for i in range(one.num_columns))


def _same_column(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    return one.equals(other) or repr(_scalars(one)) == repr(_scalars(other))


def _scalars(column: pa.ChunkedArray) -> list[str]:
    return [repr(scalar) for scalar in column]


def leaf_values(table: pa.Table, leaf: str) -> list[Any]:
    """The scalars of a flat column; of a nested one, its leaf's Python values."""
    name, _, rest = leaf.partition(".")
    column = table.column(name)
    if not rest:
        return [scalar for scalar in column if scalar.is_valid]
    found: list[Any] = []

    def descend(value: Any, path: list[str]) -> None:
        if value is None:
            return
        if isinstance(value, list):
            # Parquet's names for the levels of a list and a map are not in the Python value.
            for item in value:
                if isinstance(item, tuple):
                    descend(item[path[1] == "value"], path[2:])
                else:
                    descend(item, path[2:])
        elif path:
            descend(value.get(path[0]), path[1:])
        else:
            found.append(value)

    for value in column.to_pylist():
        descend(value, rest.split("."))
    return found


@given(
    table=tables(),
    mode=st.sampled_from(_MODES),
    row_group_size=st.sampled_from([1, 7, 100]),
    dictionary=st.booleans(),
    layout=st.sampled_from(["row_group", "end"]),
    as_integer=st.booleans(),
)
@_ORDINARY
def test_write_then_read(
    tmp_path: Path, table: pa.Table, mode: dict[str, Any], row_group_size: int, dictionary: bool, layout: Any,
    as_integer: bool,
) -> None:  # fmt: skip
    path = tmp_path / "table.parquet"
    spec = bs.EncryptionSpec(
        footer_key=(b"f" * 16, "kf"), column_keys={table.column_names[0]: (b"c" * 24, "kc")}, aad_prefix="p", **mode
    )
    options = {"use_dictionary": dictionary, "store_decimal_as_integer": as_integer}
    leaves = bs.open_file(_plain(tmp_path, table, options)).columns
    carrying = [leaf for leaf in leaves if "boolean" not in leaf]
    bs.write_table(
        table, path, encryption=spec, bloom_filters=dict.fromkeys(carrying, True), row_group_size=row_group_size,
        filter_layout=layout, **options,
    )  # fmt: skip
    with bs.open_file(path, decryption=_READ) as file:
        assert same(file.read(), plain_round_trip(table, **options))
        report = file.verify()
        assert (report.ok, report.inaccessible) == (True, {}), report
        assert file.num_row_groups == -(-table.num_rows // row_group_size)
        stored = plain_round_trip(table, **options)
        for leaf in carrying:
            for group in range(file.num_row_groups):
                values = leaf_values(stored.slice(group * row_group_size, row_group_size), leaf)
                if "duration" in leaf:
                    values = [scalar.value for scalar in values]
                verdicts = file.probe(leaf, values)[group]
                assert bs.Verdict.ABSENT not in verdicts, f"false absent in {leaf}"


def _plain(tmp_path: Path, table: pa.Table, options: dict[str, Any]) -> Path:
    path = tmp_path / "plain.parquet"
    pq.write_table(table, path, **options)
    return path


@given(table=tables(), version=st.sampled_from(["1.0", "2.0"]), index=st.booleans(), int96=st.booleans())
@_ORDINARY
def test_files_of_pyarrow(tmp_path: Path, table: pa.Table, version: str, index: bool, int96: bool) -> None:
    """V1 and V2 pages, page indexes, INT96: plaintext files that others wrote read as they do in pyarrow."""
    options = {"data_page_version": version, "write_page_index": index, "use_deprecated_int96_timestamps": int96}
    path = _plain(tmp_path, table, {**options, "row_group_size": 11})
    with bs.open_file(path) as file:
        assert same(file.read(), pq.read_table(path))
        assert file.verify().ok


@pytest.mark.parametrize("rows", [0, 1, 5])
@pytest.mark.parametrize("name", FLAT)
def test_every_flat_type_by_itself(tmp_path: Path, name: str, rows: int) -> None:
    """Nulls only, and no rows at all: the filters are there and absent is said where it is true."""
    kind, _ = FLAT[name]
    table = pa.table({"a": pa.nulls(rows, kind)})
    path = tmp_path / "nulls.parquet"
    bs.write_table(table, path, encryption=bs.EncryptionSpec(footer_key=b"f" * 16), bloom_filters={"a": True})
    with bs.open_file(path, decryption=bs.DecryptionSpec(bs.ExplicitKeys(footer_key=b"f" * 16))) as file:
        assert same(file.read(), plain_round_trip(table))
        assert file.num_row_groups == min(rows, 1)
        assert file.verify().complete


@pytest.mark.parametrize("dictionary", [True, False], ids=["dictionary", "plain"])
def test_an_empty_row_group_in_a_file_of_pyarrow(tmp_path: Path, dictionary: bool) -> None:
    path = tmp_path / "empty.parquet"
    schema = pa.schema({"a": pa.int64()})
    with pq.ParquetWriter(path, schema, use_dictionary=dictionary) as writer:
        writer.write_table(pa.table({"a": [1, 2]}))
        writer.write_table(schema.empty_table())
        writer.write_table(pa.table({"a": [3]}))
    with bs.open_file(path) as file:
        assert file.read().to_pydict() == {"a": [1, 2, 3]}
        assert file.read(where=[("a", ">", 1)]).to_pydict() == {"a": [2, 3]}
        assert file.verify().ok
