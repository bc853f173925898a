"""Columns that are named, cut out and refused: maps in part, names that stand twice, types that Parquet lacks."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bloomseal as bs
from bloomseal.policy import TablePolicy

MAPS = pa.table(
    {
        "m": pa.array([[("a", 1)], None, [], [("b", None), ("c", 3)]], pa.map_(pa.string(), pa.int64())),
        "s": pa.array(
            [[("d", {"x": 7, "y": [5]})], None, [], [("e", None), ("f", {"x": 8, "y": [6, 9]})]],
            pa.map_(pa.string(), pa.struct({"x": pa.int64(), "y": pa.list_(pa.int64())})),
        ),
        "l": pa.array(
            [[[{"a": 1, "b": 2}]], None, [], [None]],
            pa.list_(pa.list_(pa.struct({"a": pa.int64(), "b": pa.int64()}))),
        ),
    }
)
VALUES = {
    "m.key_value.key": ["a", "b", "c"],
    "m.key_value.value": [1, 3],
    "s.key_value.key": ["d", "e", "f"],
    "s.key_value.value.x": [7, 8],
    "s.key_value.value.y.list.element": [5, 6, 9],
    "l.list.element.list.element.a": [1],
    "l.list.element.list.element.b": [2],
}


@pytest.mark.parametrize("leaf", VALUES)
def test_each_leaf_of_a_map_or_list_carries_a_filter(tmp_path: Path, leaf: str) -> None:
    path = tmp_path / "maps.parquet"
    bs.write_table(MAPS, path, bloom_filters={leaf: bs.FilterSpec(fpp=1e-6)})
    (verdicts,) = bs.probe(path, leaf, VALUES[leaf])
    assert set(verdicts) == {bs.Verdict.MAYBE_PRESENT}
    absent = "zz" if leaf.endswith("key") else 1234
    assert bs.probe(path, leaf, [absent]) == [[bs.Verdict.ABSENT]]
    assert bs.read_table(path).equals(MAPS)


def test_a_map_read_without_its_keys_is_a_list_of_structs(tmp_path: Path) -> None:
    path = tmp_path / "maps.parquet"
    bs.write_table(MAPS, path)
    found = bs.read_table(path, columns=["m.key_value.value"]).column("m")
    assert found.to_pylist()[3] == {"key_value": [{"value": None}, {"value": 3}]}


def test_a_path_that_two_columns_share_is_refused(tmp_path: Path) -> None:
    """A column whose name holds a dot, and a struct's field: an answer about the wrong one would be a false absent."""
    path = tmp_path / "dotted.parquet"
    bs.write_table(pa.table([pa.array([{"b": 1}]), pa.array([2])], names=["a", "a.b"]), path)
    with pytest.raises(bs.UsageError, match="same name"):
        bs.probe(path, "a.b", [2])
    with pytest.raises(bs.UsageError, match="same name"):
        bs.read_table(path, where=[("a.b", "==", 2)])


def test_a_name_that_stands_twice(tmp_path: Path) -> None:
    path = tmp_path / "twice.parquet"
    table = pa.table([pa.array([1]), pa.array([2]), pa.array([3])], names=["a", "a", "b"])
    with pytest.raises(bs.UsageError, match="same name"):
        bs.write_table(table, path)
    assert not path.exists()
    pq.write_table(table, path)
    with pytest.raises(bs.UnsupportedError, match="same name"):
        bs.read_table(path)
    with pytest.raises(bs.UsageError, match="same name"):
        bs.probe(path, "a", [1])
    assert bs.read_table(path, columns=["b"]).to_pydict() == {"b": [3]}


@pytest.mark.parametrize(
    "column",
    [
        pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])]),
        pa.RunEndEncodedArray.from_arrays([1], [1]),
        pa.array([{}], pa.struct([])),
        pa.array([pa.scalar((1, 2, 3), pa.month_day_nano_interval())]),
    ],
    ids=lambda column: str(column.type),
)
def test_types_that_parquet_lacks_are_a_usage_error(tmp_path: Path, column: pa.Array) -> None:
    with pytest.raises(bs.UsageError, match="can't encode"):
        bs.write_table(pa.table({"a": column}), tmp_path / "no.parquet")
    assert not list(tmp_path.iterdir())


def test_a_dotted_name_and_a_path_that_read_the_same_have_keys_of_their_own(tmp_path: Path) -> None:
    keyring = bs.Keyring(tmp_path / "keyring.json", create=True)
    keyring.create("master")
    table = pa.table({"a.b": ["outer"], "a": [{"b": "inner"}]})
    clear, sealed = tmp_path / "clear.parquet", tmp_path / "sealed.parquet"
    bs.write_table(table, clear)
    spec = bs.EncryptionSpec(footer_key="master", column_keys={"a.b": "master"}, keys=keyring)
    bs.seal_file(clear, sealed, encryption=spec)
    assert bs.read_table(sealed, decryption=bs.DecryptionSpec(keyring)).equals(table)


@pytest.mark.parametrize("complete", [False, True])
def test_a_name_that_reads_as_a_field_of_a_keyed_column(tmp_path: Path, complete: bool) -> None:
    """Readers have dotted names only: they would refuse the file for a column that the key does not reach."""
    keyring = bs.Keyring(tmp_path / "keyring.json", create=True)
    for name in ("footer", "pii"):
        keyring.create(name)

    def policy(columns: dict[str, str]) -> TablePolicy:
        keyed = {name: {"key": key} for name, key in columns.items()}
        table = {"footer_key": "footer", "complete": complete, "columns": keyed}
        return bs.Policy.from_dict({"version": 1, "tables": {"t": table}}, kms=keyring).for_table("t")

    path, table = tmp_path / "t.parquet", pa.table({"a": [1], "a.b": ["x"], "s": [{"a": 1, "a.b": 2}]})
    for columns, column in ({"a": "pii"}, "a.b"), ({"a.b": "pii", "s": "footer", "s.a": "pii"}, "s.a.b"):
        with pytest.raises(bs.PolicyError, match="reads as a field") as refused:
            bs.write_table(table, path, encryption=policy(columns))
        assert refused.value.column == column
        assert not path.exists()
    pq.write_table(table, path)
    before = path.read_bytes()
    with pytest.raises(bs.PolicyError, match="reads as a field"):
        bs.seal_file(path, encryption=policy({"a": "pii"}))
    assert path.read_bytes() == before
    own = policy({"a": "pii", "a.b": "footer", "s.a": "pii", "s.a.b": "pii"})
    bs.write_table(table, path, encryption=own)
    assert bs.read_table(path, decryption=own).equals(table)
    bs.write_table(table, path, encryption=bs.EncryptionSpec(footer_key="footer", keys=keyring))
