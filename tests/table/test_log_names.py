"""Tables whose log knows columns by other names, other types or other rows than their files: what is not the table's is
refused, by every way to ask, and never said to be absent.
"""

from __future__ import annotations

import itertools
import json
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import bloomseal as bs
from bloomseal.audit import audit

deltalake = pytest.importorskip("deltalake")
memory = pytest.importorskip("pyiceberg.catalog.memory")

KEYS: dict[str, Any] = {"footer_key": b"f" * 16, "column_keys": {"ssn": b"c" * 16, "num": b"d" * 16}}
ENCRYPTION = bs.EncryptionSpec(**KEYS)
DECRYPTION = bs.DecryptionSpec(bs.ExplicitKeys(**KEYS))
_catalogs = itertools.count()
OTHER_NAME = pytest.raises(bs.UnsupportedError, match="renamed")


class Ice:
    """An Iceberg table."""

    def __init__(self, root: Path, schema: pa.Schema) -> None:
        catalog = memory.InMemoryCatalog(f"names{next(_catalogs)}", warehouse=f"file://{root}/ice")
        catalog.create_namespace("n")
        self.table = catalog.create_table("n.t", schema=schema)
        self.folder = Path(self.table.location().removeprefix("file://"))

    def append(self, **columns: Any) -> None:
        self.table.append(pa.table(columns))
        self.seal()

    def seal(self) -> None:
        for path in self.folder.rglob("*.parquet"):
            if path.read_bytes()[-4:] == b"PAR1":
                named = {
                    name: KEYS["column_keys"][name] for name in pq.read_schema(path).names if name in ("ssn", "num")
                }
                spec = bs.EncryptionSpec(KEYS["footer_key"], named or None)
                bs.seal_file(path, encryption=spec, bloom_filters=list(named) or None)

    def change(self, **of: Callable[[Any], object]) -> None:
        """Changes of the schema, each a commit of its own: two names can change places."""
        for act in of.values():
            with self.table.update_schema() as update:
                act(update)

    def open(self) -> bs.SealedTable:
        return bs.open_table(self.folder, decryption=DECRYPTION)


@pytest.fixture
def ice(tmp_path: Path) -> Ice:
    return Ice(tmp_path, pa.schema({"id": pa.int64(), "ssn": pa.string()}))


def ways(table: bs.SealedTable, column: str, value: str) -> list[Callable[[], object]]:
    """All ways to look for a value."""
    import bloomseal.polars

    polars = pytest.importorskip("polars")
    lazy = bloomseal.polars.scan
    return [
        lambda: table.read(["id"], [(column, "==", value)]),
        lambda: table.read(["id"], pc.field(column) == value),
        lambda: table.scan(["id"], [(column, "==", value)]).read_all(),
        lambda: table.probe(column, [value]),
        lambda: table.maybe_present(column, [value]),
        lambda: lazy(table).filter(polars.col(column) == value).collect(),
    ]


def test_no_filter_is_asked_for_a_column_that_was_renamed(ice: Ice) -> None:
    """The older file holds the value under the older name: absent, said filters that were asked for the new one."""
    ice.append(id=[1, 2], ssn=["a", "b"])
    ice.change(rename=lambda to: to.rename_column("ssn", "num"))
    ice.append(id=[3], num=["c"])
    for ask in ways(ice.open(), "num", "a"):
        with OTHER_NAME:
            ask()
    # Nor is it hashed for an index, which would say the same.
    report = ice.open().index("num", encryption=ENCRYPTION).build()
    assert (report.files, report.covered, [*report.left.values()]) == (
        2, 1, ["a column that was renamed, or dropped and added again"]
    )  # fmt: skip
    for ask in ways(ice.open(), "num", "a"):
        with OTHER_NAME:
            ask()
    assert ice.open().verify().ok


def test_an_index_is_about_names_that_a_file_had(tmp_path: Path) -> None:
    """Two columns change names: what an index knows by the name is about the other one's values."""
    ice = Ice(tmp_path, pa.schema({"id": pa.int64(), "ssn": pa.string(), "num": pa.string()}))
    ice.append(id=[1, 2], ssn=["a", "b"], num=["x", "y"])
    assert ice.open().index("ssn", encryption=ENCRYPTION).build().ok
    assert ice.open().read(["id"], [("ssn", "==", "x")]).num_rows == 0
    ice.change(
        one=lambda to: to.rename_column("ssn", "t"),
        two=lambda to: to.rename_column("num", "ssn"),
        three=lambda to: to.rename_column("t", "num"),
    )
    for ask in ways(ice.open(), "ssn", "x"):
        with OTHER_NAME:
            ask()


def test_a_dropped_column_is_none_of_the_table(ice: Ice) -> None:
    ice.append(id=[1, 2], ssn=["a", "b"])
    ice.change(drop=lambda to: to.delete_column("ssn"))
    ice.append(id=[3])
    table = ice.open()
    assert table.read().sort_by("id").to_pylist() == [{"id": 1}, {"id": 2}, {"id": 3}]
    for ask in ways(table, "ssn", "a")[:-1]:
        with pytest.raises(bs.UsageError, match="no such column"):
            ask()


def test_the_audit_knows_bounds_by_the_names_that_columns_had(tmp_path: Path) -> None:
    """The manifests go on telling the least and the greatest value of a column that was renamed or dropped."""
    changes: list[Callable[[Any], object]] = [
        lambda to: to.rename_column("ssn", "late"), lambda to: to.delete_column("ssn"),
    ]  # fmt: skip
    for number, change in enumerate(changes):
        ice = Ice(tmp_path / str(number), pa.schema({"id": pa.int64(), "ssn": pa.string()}))
        ice.append(id=[1, 2], ssn=["a", "b"])
        for act in (lambda _: None, change):
            ice.change(act=act)
            found = audit(ice.folder, keys=bs.ExplicitKeys(**KEYS)).findings
            assert [one.column for one in found if one.rule.id == "BS113"] == ["ssn"]


def test_files_without_ids_go_by_the_name_mapping(ice: Ice) -> None:
    """Files from before they were an Iceberg table's: by their names a renamed column was null."""
    path = ice.folder / "data" / "old.parquet"
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"id": [1, 2], "ssn": ["a", "b"]}), path)
    ice.table.add_files([f"file://{path}"])
    ice.seal()
    assert ice.open().read(["id"], [("ssn", "==", "a")]).to_pylist() == [{"id": 1}]
    assert ice.open().maybe_present("ssn", ["a", "no"]).tolist() == [[True, False]]
    ice.change(rename=lambda to: to.rename_column("ssn", "num"))
    with OTHER_NAME:
        ice.open().read()
    for ask in ways(ice.open(), "num", "a"):
        with OTHER_NAME:
            ask()
    with ice.table.transaction() as change:
        change.remove_properties("schema.name-mapping.default")
    with pytest.raises(bs.UnsupportedError, match="without field ids"):
        ice.open().read()


@pytest.mark.parametrize("told", ["none", "", "1", "\u00b2"])
def test_an_id_that_is_none_is_another_columns(ice: Ice, told: str) -> None:
    """Arrow's own schema in a file can say anything: a text ended every read with Python's ValueError."""
    ice.table.append(pa.table({"id": [1], "ssn": ["a"]}))
    [path] = ice.folder.rglob("*.parquet")
    kinds = {"id": pa.int64(), "ssn": pa.string()}
    schema = pa.schema([pa.field(name, kind, metadata={"PARQUET:field_id": told}) for name, kind in kinds.items()])
    pq.write_table(pa.table({"id": [1], "ssn": ["a"]}, schema=schema), path)
    with OTHER_NAME:
        bs.read_table(ice.folder)


def test_names_inside_lists_and_maps_count_too(tmp_path: Path) -> None:
    inner = pa.struct({"x": pa.string()})
    schema = pa.schema({"id": pa.int64(), "l": pa.list_(inner), "m": pa.map_(pa.string(), inner)})
    for path, new in ((("l", "element", "x"), "l.element.x"), (("m", "value", "x"), "m.value.x")):
        ice = Ice(tmp_path / new, schema)
        ice.table.append(pa.Table.from_pylist([{"id": 1, "l": [{"x": "q"}], "m": [("k", {"x": "q"})]}], schema))
        assert bs.read_table(ice.folder).to_pylist() == ice.table.scan().to_arrow().to_pylist()
        ice.change(rename=lambda to, path=path: to.rename_column(path, "z"))
        with pytest.raises(bs.UnsupportedError, match="renamed") as raised:
            bs.read_table(ice.folder)
        assert raised.value.column == new


def test_a_struct_without_fields_in_the_log_is_no_column_of_parquet(ice: Ice) -> None:
    ice.append(id=[1], ssn=["a"])
    metadata = Path(ice.table.metadata_location.removeprefix("file://"))
    told = json.loads(metadata.read_text())
    told["schemas"][-1]["fields"].append(
        {"id": 9, "name": "s", "required": False, "type": {"type": "struct", "fields": []}}
    )
    metadata.write_text(json.dumps(told))
    for filters in ([("s.a", "==", "a")], pc.field("id") == 1):
        with pytest.raises(bs.UnsupportedError, match="no Parquet file has"):
            ice.open().read(where=filters)


def test_a_default_inside_a_struct_is_refused(tmp_path: Path) -> None:
    schema = pa.schema({"id": pa.int64(), "s": pa.struct({"x": pa.string()})})
    ice = Ice(tmp_path, schema)
    ice.table.append(pa.Table.from_pylist([{"id": 1, "s": {"x": "q"}}], schema))
    ice.change(add=lambda to: to.add_column(("s", "z"), _string()))
    metadata = Path(ice.table.metadata_location.removeprefix("file://"))
    told = json.loads(metadata.read_text())
    told |= {"format-version": 3, "next-row-id": 1}
    told["schemas"][-1]["fields"][1]["type"]["fields"][1] |= {"initial-default": "d", "write-default": "d"}
    for snapshot in told["snapshots"]:
        snapshot |= {"first-row-id": 0, "added-rows": 1}
    metadata.write_text(json.dumps(told))
    with pytest.raises(bs.UnsupportedError, match="defaults"):
        bs.open_table(ice.folder)


def _string() -> Any:
    from pyiceberg.types import StringType

    return StringType()


@pytest.mark.parametrize("nested", [False, True])
def test_values_mean_what_they_mean_in_the_wider_type_of_the_log(tmp_path: Path, nested: bool) -> None:
    """The files hold 0.1 as a float, which is more than the double 0.1. Rounded to a float, that one equalled it."""
    from pyiceberg.types import DoubleType

    floats = pa.array([0.1, 0.5], pa.float32())
    column = pa.StructArray.from_arrays([floats], ["f"]) if nested else floats
    ice = Ice(tmp_path, pa.schema({"id": pa.int64(), "f": column.type}))
    ice.table.append(pa.table({"id": [1, 2], "f": column}))
    name, field = ("f.f", pc.field("f", "f")) if nested else ("f", pc.field("f"))
    assert bs.read_table(ice.folder, where=[(name, "==", 0.1)])["id"].to_pylist() == [1]
    ice.change(widen=lambda to: to.update_column(tuple(name.split(".")), DoubleType()))
    table = bs.open_table(ice.folder)
    assert table.read().to_pylist() == ice.table.scan().to_arrow().to_pylist()
    stored = floats[0].as_py()
    cases = {"==": [], "!=": [1, 2], ">": [1, 2], ">=": [1, 2], "<": [], "<=": []}
    for op, expected in cases.items():
        assert table.read(["id"], [(name, op, 0.1)])["id"].to_pylist() == expected
        assert table.scan(["id"], [(name, op, 0.1)]).read_all()["id"].to_pylist() == expected
    assert table.read(["id"], field > 0.1)["id"].to_pylist() == [1, 2]
    assert table.read(["id"], [(name, "in", [0.1, stored])])["id"].to_pylist() == [1]


def _log_more(folder: Path, *actions: dict[str, Any]) -> None:
    number = len(list((folder / "_delta_log").glob("*.json")))
    (folder / "_delta_log" / f"{number:020d}.json").write_text("\n".join(map(json.dumps, actions)))


def _first_add(folder: Path) -> dict[str, Any]:
    lines = (folder / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
    return next(action["add"] for line in lines if "add" in (action := json.loads(line)))


def test_a_file_that_a_log_names_twice_is_refused(ice: Ice, tmp_path: Path) -> None:
    """Its rows count twice, and were read once."""
    path = ice.folder / "data" / "old.parquet"
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"id": [1, 2], "ssn": ["a", "b"]}), path)
    for name in (path, f"{path.parent}/../data/old.parquet"):
        ice.table.add_files([f"file://{name}"], check_duplicate_files=False)
    with pytest.raises(bs.UsageError, match="names it twice"):
        bs.open_table(ice.folder)
    delta = tmp_path / "delta"
    deltalake.write_deltalake(str(delta), pa.table({"id": [1, 2]}))
    add = _first_add(delta)
    _log_more(delta, {"add": add | {"path": add["path"].replace("-", "%2D")}})
    with pytest.raises(bs.UsageError, match="names it twice"):
        bs.open_table(delta)


def test_a_name_in_a_log_that_no_file_can_have_is_told(tmp_path: Path) -> None:
    """Nobody sealed the log; Python's ValueError for the NUL was everybody's."""
    deltalake.write_deltalake(str(tmp_path), pa.table({"id": [1]}))
    _log_more(tmp_path, {"add": _first_add(tmp_path) | {"path": "a%00b.parquet"}})
    with pytest.raises(bs.UsageError, match="no name that a file can have"):
        bs.open_table(tmp_path)
    report = audit(tmp_path)
    assert not report.ok
    assert "no name that a file can have" in report.unseen[0]


def test_a_delta_column_in_another_case_is_refused(tmp_path: Path) -> None:
    """Delta finds it whatever the case; by its name it was null."""
    deltalake.write_deltalake(str(tmp_path), pa.table({"id": [1, 2], "ssn": ["a", "b"]}))
    path = tmp_path / _first_add(tmp_path)["path"]
    bs.write_table(pa.table({"id": [1, 2], "SSN": ["a", "b"]}), path)
    for ask in ways(bs.open_table(tmp_path), "ssn", "a"):
        with pytest.raises(bs.UnsupportedError, match="calls this column ssn"):
            ask()


def _struct(name: str, *values: str) -> pa.Array:
    return pa.StructArray.from_arrays([pa.array(values)], [name])


def test_a_field_in_another_case_inside_a_delta_column_is_refused(tmp_path: Path) -> None:
    """Another file has it as the log does: in this one it was absent, and no error said so."""
    for number in range(2):
        deltalake.write_deltalake(str(tmp_path), pa.table({"id": [number], "s": _struct("a", "b")}), mode="append")
    bs.write_table(pa.table({"id": [0], "s": _struct("A", "a")}), tmp_path / _first_add(tmp_path)["path"])
    asks = ways(bs.open_table(tmp_path), "s.a", "a")
    for number in (0, 2, 3, 4):  # the others name top-level columns
        with pytest.raises(bs.UnsupportedError, match=r"calls this column s\.a"):
            asks[number]()


def test_a_field_that_was_dropped_is_none_of_the_table(tmp_path: Path) -> None:
    """Files hold its values still."""
    inner = pa.struct({"a": pa.string(), "b": pa.string()})
    schema = pa.schema({"id": pa.int64(), "s": inner, "l": pa.list_(inner), "m": pa.map_(pa.string(), inner)})
    ice = Ice(tmp_path, schema)
    value = {"a": "x", "b": "secret"}
    ice.table.append(pa.Table.from_pylist([{"id": 1, "s": value, "l": [value], "m": [("k", value)]}], schema))
    for path in (("s", "b"), ("l", "element", "b"), ("m", "value", "b")):
        ice.change(drop=lambda to, path=path: to.delete_column(path))
    table = bs.open_table(ice.folder)
    assert table.read().to_pylist() == ice.table.scan().to_arrow().to_pylist()
    assert "secret" not in str(table.scan().read_all())
    assert table.read(["s.a"]).to_pylist() == [{"s": {"a": "x"}}]
    asks: list[Callable[[], object]] = [
        *ways(table, "s.b", "secret")[:-1], lambda: table.read(["s.b"]),
        lambda: table.probe("l.list.element.b", ["secret"]), lambda: table.read(pc.field("s", "b") == "secret"),
    ]  # fmt: skip
    for ask in asks:
        with pytest.raises(bs.UsageError):
            ask()


@pytest.mark.parametrize("name", ["num", "s.num"])
def test_a_column_that_no_file_has_yet_is_the_table_s(tmp_path: Path, name: str) -> None:
    """It was "no such column", and inside a struct none of the answer."""
    ice = Ice(tmp_path, pa.schema({"id": pa.int64(), "s": pa.struct({"a": pa.string()})}))
    ice.table.append(pa.table({"id": [1], "s": _struct("a", "x")}))
    ice.change(add=lambda to: to.add_column(tuple(name.split(".")), _string()))
    table = bs.open_table(ice.folder)
    assert table.read().to_pylist() == ice.table.scan().to_arrow().to_pylist()
    assert table.read(["s.a"]).to_pylist() == [{"s": {"a": "x"}}]
    assert table.read(where=[(name, "==", "q")]).num_rows == 0
    assert table.scan(where=[[(name, "==", "q")], [("id", "==", 1)]]).read_all().num_rows == 1
    assert table.maybe_present(name, ["q"]).tolist() == [[False]]
    with pytest.raises(bs.UsageError, match="cannot be asked for an int"):
        table.read(where=[(name, "==", 1)])
    with pytest.raises(bs.UsageError, match="no such column"):
        table.maybe_present(f"{name}.none", ["q"])


def test_a_table_without_files_has_the_columns_of_its_log(tmp_path: Path) -> None:
    deltalake.DeltaTable.create(str(tmp_path), deltalake.Schema.from_arrow(pa.schema({"ssn": pa.string()})))
    table = bs.open_table(tmp_path)
    assert table.read(where=[("ssn", "==", "a")]).num_rows == 0
    with pytest.raises(bs.UsageError, match="no such column"):
        table.read(where=[("num", "==", "a")])


@pytest.mark.parametrize("logged", [True, False])
def test_layers_of_lists_that_writers_name_in_their_own_ways_hide_no_value(tmp_path: Path, logged: bool) -> None:
    """A file with ``l.list.item`` was said to lack the column ``l.list.element``, and each of its values."""
    for number in range(2):
        rows = pa.table(
            {"id": [number], "l": [["x"]], "m": pa.array([[("k", "x")]], pa.map_(pa.string(), pa.string()))}
        )
        deltalake.write_deltalake(str(tmp_path), rows, mode="append")
    path = tmp_path / _first_add(tmp_path)["path"]
    names = {"use_compliant_nested_type": False}
    pq.write_table(pa.table({"id": [0], "l": [["a"]], "s": _struct("n", "a")}), path, **names)
    keys = {"footer_key": KEYS["footer_key"], "column_keys": {"l": KEYS["column_keys"]["ssn"]}}
    spec = bs.EncryptionSpec(**keys)
    for one in tmp_path.glob("*.parquet"):
        bs.seal_file(one, encryption=spec)
    decryption = bs.DecryptionSpec(bs.ExplicitKeys(**keys))
    if not logged:
        shutil.rmtree(tmp_path / "_delta_log")
    table = bs.open_table(tmp_path, decryption=decryption)
    number = [Path(one).name for one in table.files].index(path.name)
    assert table.maybe_present("l.list.element", ["a"])[number].tolist() == [True]
    [verdicts] = table.probe("l.list.element", ["a"])[str(table.files[number])]
    assert verdicts == [bs.Verdict.NO_FILTER]
    # A column that it lacks, with no list about, is lacking.
    assert table.maybe_present("m.key_value.key", ["k"])[number].tolist() == [False]
    report = table.index("l.list.element", encryption=spec).build()
    assert [*report.left.values()] == ["it may have the column by another path"]
    again = bs.open_table(tmp_path, decryption=decryption)
    assert again.maybe_present("l.list.element", ["a"])[number].tolist() == [True]


def metadata_of(table: Any) -> Path:
    return Path(table.metadata_location.removeprefix("file://"))


def test_two_columns_of_one_id_are_refused(tmp_path: Path) -> None:
    """The library keeps one of them, and files would be asked for the other by its name."""
    ice = Ice(tmp_path, pa.schema({"id": pa.int64(), "ssn": pa.string(), "num": pa.string()}))
    ice.table.append(pa.table({"id": [1], "ssn": ["a"], "num": ["b"]}))
    told = json.loads(metadata_of(ice.table).read_text())
    told["schemas"][-1]["fields"][1]["id"] = told["schemas"][-1]["fields"][2]["id"]
    metadata_of(ice.table).write_text(json.dumps(told))
    with pytest.raises(bs.FormatError, match="one id"):
        bs.open_table(ice.folder)


def test_partitions_by_uuid(tmp_path: Path) -> None:
    """Of such a column Arrow makes no dictionary; conditions on it ended in pyarrow's error."""
    from pyiceberg.manifest import FileFormat
    from pyiceberg.typedef import Record

    from support.iceberg_deletes import add_deletes, with_ids

    ice = Ice(tmp_path, pa.schema({"id": pa.int64(), "u": pa.uuid()}))
    ice.table.append(pa.table({"id": [0], "u": pa.array([None], pa.binary(16)).cast(pa.uuid())}))
    with ice.table.update_spec() as update:
        update.add_identity("u")
    values = [uuid.UUID(int=1), uuid.UUID(int=1 << 127)]
    files = []
    for number, value in enumerate(values, 1):
        path = ice.folder / "data" / f"{number}.parquet"
        column = pa.array([value.bytes], pa.binary(16)).cast(pa.uuid())
        pq.write_table(with_ids(pa.table({"id": [number], "u": column}), 1, 2), path)
        files.append((path, FileFormat.PARQUET, {"partition": Record(value)}))
    add_deletes(ice.table, *files, content=0)
    for number, value in enumerate(values, 1):
        assert bs.read_table(ice.folder, where=[("u", "==", value)])["id"].to_pylist() == [number]
    assert bs.read_table(ice.folder, where="u is null")["id"].to_pylist() == [0]


def test_partition_values_of_another_type_are_refused(tmp_path: Path) -> None:
    ice = Ice(tmp_path, pa.schema({"id": pa.int64(), "ssn": pa.string()}))
    with ice.table.update_spec() as update:
        update.add_identity("id")
    ice.table.append(pa.table({"id": [1], "ssn": ["a"]}))
    told = json.loads(metadata_of(ice.table).read_text())
    told["partition-specs"][-1]["fields"][0]["source-id"] = 2
    metadata_of(ice.table).write_text(json.dumps(told))
    with pytest.raises(bs.FormatError, match="partition values that are no large_string"):
        bs.open_table(ice.folder)


def test_no_schema_of_spark_s_brings_a_dropped_column_back(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from pyspark.sql import types as st

    from spark.test_source_read import read

    ice = Ice(
        tmp_path, pa.schema({"n": pa.int64(), "a": pa.string(), "s": pa.struct({"a": pa.string(), "b": pa.string()})})
    )
    ice.table.append(pa.table({"n": [1], "a": ["gone"], "s": [{"a": "gone", "b": "x"}]}))
    ice.change(one=lambda update: update.delete_column("a"), other=lambda update: update.delete_column(("s", "a")))

    def of(field: str) -> st.StructType:
        return st.StructType().add("S", st.StructType().add(field, st.StringType()))

    assert read(ice.folder, schema=of("B")).to_pylist() == [{"S": {"B": "x"}}]
    for wrong in (st.StructType().add("A", st.StringType()), of("a")):
        with pytest.raises(bs.UsageError, match="no such column"):
            read(ice.folder, schema=wrong)


@pytest.mark.parametrize(("nested", "dropped"), [(False, True), (True, True), (False, False)])
def test_spark_takes_no_column_for_one_in_another_case(tmp_path: Path, nested: bool, dropped: bool) -> None:
    pytest.importorskip("pyspark")
    from spark.test_source_read import read

    above = ("s",) if nested else ()
    ice = Ice(
        tmp_path, pa.schema({"n": pa.int64(), "a": pa.string(), "s": pa.struct({"a": pa.string(), "b": pa.string()})})
    )
    ice.table.append(pa.table({"n": [1], "a": ["gone"], "s": [{"a": "gone", "b": "x"}]}))
    ice.change(
        drop=lambda update: dropped and update.delete_column((*above, "a")),
        add=lambda update: update.add_column((*above, "A"), _string()),
    )
    (row,) = bs.read_table(ice.folder).to_pylist()
    assert (row["s"] if nested else row)["A"] is None
    with pytest.raises(bs.UnsupportedError, match="log calls this column"):
        read(ice.folder)
