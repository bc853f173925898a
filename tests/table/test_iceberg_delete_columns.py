"""Equality deletes by columns of any type, nested, and dropped from the table since."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bloomseal as bs
from support.spark_tasks import by_tasks

memory = pytest.importorskip("pyiceberg.catalog.memory")
manifests: Any = pytest.importorskip("pyiceberg.manifest")
ice: Any = pytest.importorskip("support.iceberg_deletes")


class Typed:
    """A table of these columns, and two files; `right` has the rows that are left, as the specification has it."""

    def __init__(self, folder: Path, schema: pa.Schema, *files: list[dict[str, Any]]) -> None:
        catalog = memory.InMemoryCatalog(str(folder), warehouse=f"file://{folder}")
        catalog.create_namespace("n")
        self.table = catalog.create_table("n.t", schema=schema)
        self.folder = Path(self.table.location().removeprefix("file://"))
        self.rows = [row for file in files for row in file]
        for file in files:
            self.table.append(pa.Table.from_pylist(file, self.table.schema().as_arrow()))

    def change(self, act: Callable[[Any], object]) -> None:
        with self.table.update_schema() as update:
            act(update)

    def delete(self, values: pa.Table, *ids: int, equal: list[int]) -> None:
        from pyiceberg.table import StaticTable

        path = self.folder / "data" / f"e{len(list(self.folder.glob('data/e*')))}.parquet"
        pq.write_table(ice.with_ids(values, *ids), path)
        told = {"content": 2, "equality_ids": equal, "record_count": values.num_rows}
        new = ice.add_deletes(self.table, (path, manifests.FileFormat.PARQUET, told))
        self.table = StaticTable.from_metadata(f"file://{new}")

    def left(self) -> list[int]:
        table = bs.open_table(self.folder)
        found: list[int] = sorted(table.read()["n"].to_pylist())
        assert table.num_rows == len(found)
        assert [n for row in self.rows if table.read(["n"], [("n", "==", n := row["n"])]).num_rows] == found
        try:
            assert by_tasks(self.folder) == found
        except bs.UnsupportedError as error:
            assert "Spark has no types" in str(error)  # noqa: PT017 - for UUIDs
        return found


KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, False]),
    "fixed": (pa.binary(3), [b"abc", b"abd", b"\0\0\0"]),
    "decimal": (pa.decimal128(9, 2), [Decimal("0.10"), Decimal("-0.10"), Decimal("99.99")]),
    "date": (pa.date32(), [dt.date(1969, 12, 31), dt.date(2024, 2, 29)]),
    "timestamp": (pa.timestamp("us", "UTC"), [dt.datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=dt.UTC)]),
    "uuid": (pa.uuid(), [uuid.UUID(int=n).bytes for n in (1, 2, 1 << 127)]),
    "nested": (pa.struct({"s": pa.string(), "t": pa.string()}), [{"s": "a", "t": "b"}, {"s": "b", "t": "b"}]),
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("dropped", [False, True])
def test_values_of_other_types_and_of_dropped_columns(tmp_path: Path, name: str, dropped: bool) -> None:
    """The column's null is deleted with one of its values; of a struct a field, which is null where the struct is."""
    kind, values = KINDS[name]
    every = [*values, None]
    rows = [{"n": n, "v": every[n % len(every)]} for n in range(12)]
    if name == "nested":
        rows.append({"n": 12, "v": {"s": None, "t": "b"}})
    lake = Typed(tmp_path, pa.schema({"n": pa.int64(), "v": kind}), rows[:5], rows[5:])
    schema = lake.table.schema()
    stored = pa.binary(16) if name == "uuid" else kind
    deleted = pa.table({"v": pa.array([values[0], None], stored)})
    number = schema.find_field("v.s" if name == "nested" else "v").field_id
    if name == "nested":
        inner = [
            pa.field(one, pa.string(), metadata={"PARQUET:field_id": str(schema.find_field(f"v.{one}").field_id)})
            for one in ("s", "t")
        ]
        deleted = deleted.cast(pa.schema({"v": pa.struct(inner)}))
    lake.delete(deleted, schema.find_field("v").field_id, equal=[number])
    gone = [values[0], None]
    if name == "nested":
        lefts = [row["n"] for row in rows if (row["v"] or {}).get("s") not in ("a", None)]
    else:
        lefts = [row["n"] for row in rows if row["v"] not in gone]
    assert lake.left() == lefts
    if dropped:
        metadata = json.loads(Path(lake.table.metadata_location.removeprefix("file://")).read_text())
        (now,) = metadata["schemas"]
        fields = [field for field in now["fields"] if field["name"] != "v"]
        metadata["schemas"].append({**now, "schema-id": 1, "fields": fields})
        metadata["current-schema-id"] = 1
        (lake.folder / "metadata" / "00009-dropped.metadata.json").write_text(json.dumps(metadata))
        assert lake.left() == lefts
        assert bs.read_table(lake.folder).column_names == ["n"]
        with pytest.raises(bs.UsageError, match="no such column"):
            bs.read_table(lake.folder, columns=["v"])


@pytest.mark.parametrize("history", ["kept", "renamed", "taken", "forgotten"])
def test_a_column_that_was_dropped_after_deletes(tmp_path: Path, history: str) -> None:
    """It is found by its number in an older schema; where nobody can tell which column of a file it is, no rows come.
    A file from before it was added has null there.
    """
    from pyiceberg.types import StringType

    lake = Typed(tmp_path, pa.schema({"n": pa.int64()}), [{"n": 0}, {"n": 1}])
    lake.change(lambda to: to.add_column("v", StringType()))
    lake.table.append(pa.table({"n": [2, 3], "v": ["a", "b"]}))
    lake.rows += [{"n": 2}, {"n": 3}]
    if history == "renamed":
        lake.change(lambda to: to.rename_column("v", "w"))
    lake.delete(pa.table({"v": ["a"]}), 2, equal=[2])
    path = Path(lake.table.metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    fields = [field for field in metadata["schemas"][0]["fields"] if field["name"] == "n"]
    if history == "taken":
        fields.append({"id": 9, "name": "v", "required": False, "type": "string"})
        metadata["last-column-id"] = 9
    if history == "forgotten":
        metadata["schemas"] = []
    metadata["schemas"].append({"type": "struct", "schema-id": 7, "fields": fields})
    for snapshot in metadata["snapshots"]:
        snapshot.pop("schema-id", None)
    metadata["current-schema-id"] = 7
    path.write_text(json.dumps(metadata))
    if history == "kept":
        assert lake.left() == [0, 1, 3]
        return
    with pytest.raises(bs.UnsupportedError, match="renamed" if history == "renamed" else "no schema of the table has"):
        bs.read_table(lake.folder)
