"""Row-level deletes of Iceberg tables: deletion vectors, position deletes and equality deletes, by the rules of the
specification. The files are written by other code than reads them; pyiceberg reads them as a second opinion.
"""

from __future__ import annotations

import json
import random
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bloomseal as bs
from bloomseal.storage.logs.deletion_vector import DeletionVector
from support.spark_tasks import by_tasks

memory = pytest.importorskip("pyiceberg.catalog.memory")
manifests: Any = pytest.importorskip("pyiceberg.manifest")
ice: Any = pytest.importorskip("support.iceberg_deletes")

VALUES = {"content": 2}
Deleted = list[tuple[int, str | None]]


class Lake:
    """A table of files with rows ``n``, 0 to 9, 10 to 19 and so on, and ``text``, of which each third is null."""

    def __init__(self, folder: Path, files: int = 3, by: str | None = None) -> None:
        catalog = memory.InMemoryCatalog(str(folder), warehouse=f"file://{folder}")
        catalog.create_namespace("n")
        self.table = catalog.create_table("n.t", schema=pa.schema({"n": pa.int64(), "text": pa.string()}))
        if by is not None:
            with self.table.update_spec() as update:
                update.add_identity(by)
        for number in range(files):
            numbers = range(10 * number, 10 * number + 10)
            texts = [None if n % 3 == 0 else f"t{n // 10 if by else n % 5}" for n in numbers]
            self.table.append(pa.table({"n": pa.array(numbers, pa.int64()), "text": texts}))
        self.folder = Path(self.table.location().removeprefix("file://"))

    @property
    def names(self) -> list[str]:
        """The data files' names, by the rows that they hold."""
        tasks = self.table.scan().plan_files()
        files = {pq.read_table(one.file.file_path)["n"][0].as_py(): one.file.file_path for one in tasks}
        return [files[first] for first in sorted(files)]

    def delete(self, *files: Any, **of: Any) -> None:
        from pyiceberg.table import StaticTable

        self.table = StaticTable.from_metadata(f"file://{ice.add_deletes(self.table, *files, **of)}")

    def positions(self, name: str, *rows: tuple[str | None, int | None], **of: Any) -> None:
        self.delete(ice.write_positions(self.folder / "data" / name, rows), **of)

    def values(self, name: str, table: pa.Table, *ids: int, **of: Any) -> None:
        pq.write_table(ice.with_ids(table, *ids), self.folder / "data" / name)
        told = VALUES | {"equality_ids": [*ids], "record_count": table.num_rows} | of
        self.delete((self.folder / "data" / name, manifests.FileFormat.PARQUET, told))

    def vectors(self, name: str, vectors: dict[str, list[int]], **of: Any) -> None:
        self.delete(*ice.write_puffin(self.folder / "data" / name, vectors), **of)

    def read(self) -> list[int]:
        found = sorted(bs.read_table(self.folder)["n"].to_pylist())
        assert by_tasks(self.folder) == found
        return found


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def test_a_second_opinion(tmp_path: Path) -> None:
    chance = random.Random(7)
    lake = Lake(tmp_path, 5)
    names = lake.names
    lake.positions("p.parquet", *sorted((name, row) for name in names[:3] for row in chance.sample(range(10), 4)))
    lake.positions("q.parquet", *sorted((name, row) for name in names[2:3] for row in chance.sample(range(10), 4)))
    lake.vectors("v.puffin", {name: chance.sample(range(10), 5) for name in names[3:]})
    left = sorted(lake.table.scan().to_arrow()["n"].to_pylist())
    assert len(left) < 50 - 8 - 4 - 10
    assert lake.read() == left


def test_every_reader(lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other, third = lake.names
    lake.vectors("v.puffin", {one: [1], other: list(range(10))})
    lake.positions("p.parquet", (third, 0), (third, 9))
    lake.values("e.parquet", pa.table({"n": pa.array([3, 24], pa.int64())}), 1)
    left = [0, 2, *range(4, 10), *range(21, 24), *range(25, 29)]
    ring = bs.Keyring(tmp_path / "keys.json", create=True)
    ring.create("k")
    table = bs.open_table(lake.folder)
    table.index("n", encryption=bs.EncryptionSpec("k", keys=ring)).build()
    table = bs.open_table(lake.folder, decryption=bs.DecryptionSpec(ring, allow_plaintext=True))
    assert lake.read() == left
    assert table.num_rows == table.inspect().rows == table.read(["text"]).num_rows == len(left)
    assert sum(batch.num_rows for batch in table.scan(["n"])) == len(left)
    for n in range(30):
        assert table.read(["n", "text"], where=[("n", "==", n)]).num_rows == (n in left)
        assert table.read(["text"], where=[("n", "in", [n, 99]), ("n", "<", 1000)]).num_rows == (n in left)
    assert table.read(["text"], where="n in (1, 2, 3, 10, 24)").num_rows == 1
    assert sorted(table.read(["n"], where="text is null")["n"].to_pylist()) == [n for n in left if n % 3 == 0]
    opened = [table.open(number) for number in range(3)]
    assert sorted(file.num_rows for file in opened) == [0, 7, 8]
    assert sum(file.read().num_rows for file in opened) == len(left)
    assert sum(file.rows_in_part(part) for file in opened for part in range(file.num_parts)) == len(left)
    assert table.advise(["n"])
    report = table.verify()
    assert (report.ok, len(report.files)) == (True, 5)
    polars, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    import bloomseal.duckdb as bd
    import bloomseal.polars as bp

    assert bp.scan(lake.folder).select(polars.len()).collect().item() == len(left)
    connection = duckdb.connect()
    bd.register(connection, "t", lake.folder)
    assert connection.sql("select count(*), sum(n) from t").fetchall() == [(len(left), sum(left))]
    from bloomseal.cli.main import main

    assert main(["count", str(lake.folder), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"rows": len(left)}
    assert main(["head", str(lake.folder), "-n", "30", "--format", "json"]) == 0
    assert sorted(json.loads(line)["n"] for line in capsys.readouterr().out.splitlines()) == left


def test_index_lookups_that_open_single_pages(tmp_path: Path) -> None:
    """A row group of many pages, in which indexes, page bounds and searches lead to rows by their numbers."""
    lake = Lake(tmp_path, 0)
    rows = 40_000
    lake.table.append(pa.table({"n": pa.array(range(rows), pa.int64()), "text": [f"t{n}" for n in range(rows)]}))
    (name,) = lake.names
    gone = {0, 1, 777, 19_999, 20_000, rows - 1}
    lake.vectors("v.puffin", {name: [*gone]})
    table = bs.open_table(lake.folder)
    for n in (*gone, 2, 776, 20_001):
        for where in ([("n", "==", n)], [("text", "==", f"t{n}")]):
            assert table.read(["text"], where=where).num_rows == (n not in gone)
    many = [f"t{n}" for n in range(0, rows, 7)]
    assert table.read(["n"], where=[("text", "in", many)]).num_rows == sum(n % 7 == 0 for n in {*range(rows)} - gone)
    assert table.read(where="n >= 0").num_rows == table.num_rows == rows - len(gone)


def test_deletes_are_about_what_was_there_before(lake: Lake) -> None:
    """The n-th file has the sequence number n."""
    one, other, third = lake.names
    lake.positions("p.parquet", (one, 0), (other, 0), (third, 0), sequence_of=2)
    assert lake.read() == [*range(1, 10), *range(11, 30)]
    lake.values("e.parquet", pa.table({"n": pa.array([1, 11, 21], pa.int64())}), 1)
    lake.delete(
        (
            lake.folder / "data" / "e.parquet",
            manifests.FileFormat.PARQUET,
            VALUES | {"equality_ids": [1], "record_count": 3},
        ),
        sequence_of=2,
    )
    assert lake.read() == [*range(2, 10), *range(12, 21), *range(22, 30)]


def test_an_equality_delete_leaves_rows_of_its_own_commit(lake: Lake) -> None:
    pq.write_table(
        ice.with_ids(pa.table({"n": pa.array([1, 11, 21], pa.int64())}), 1), lake.folder / "data" / "e.parquet"
    )
    told = VALUES | {"equality_ids": [1], "record_count": 3}
    lake.delete((lake.folder / "data" / "e.parquet", manifests.FileFormat.PARQUET, told), sequence_of=2)
    assert lake.read() == [0, *range(2, 30)]


def test_a_vector_takes_the_place_of_position_deletes(lake: Lake) -> None:
    one, *_ = lake.names
    lake.positions("p.parquet", (one, 0))
    lake.vectors("v.puffin", {one: [5]})
    assert lake.read() == [n for n in range(30) if n != 5]


def test_null_equals_null(lake: Lake) -> None:
    lake.values("e.parquet", pa.table({"text": pa.array([None, "t1"]), "n": pa.array([3, 4], pa.int64())}), 2, 1)
    assert lake.read() == [n for n in range(30) if n != 3]
    lake.values("f.parquet", pa.table({"text": pa.array([None], pa.string())}), 2)
    assert lake.read() == [n for n in range(30) if n % 3]


def test_a_column_that_older_files_do_not_have(lake: Lake) -> None:
    from pyiceberg.types import IntegerType

    lake.table.update_schema().add_column("late", IntegerType()).commit()
    lake.table.append(pa.table({"n": pa.array([90], pa.int64()), "text": ["x"], "late": pa.array([1], pa.int32())}))
    lake.values("e.parquet", pa.table({"late": pa.array([None], pa.int32()), "n": pa.array([1], pa.int64())}), 3, 1)
    assert lake.read() == [0, *range(2, 30), 90]
    lake.values("f.parquet", pa.table({"late": pa.array([1], pa.int32())}), 3)
    assert lake.read() == [0, *range(2, 30)]


def test_deletes_of_a_partition(tmp_path: Path) -> None:
    lake = Lake(tmp_path, 2, by="text")
    files = {task.file.file_path: task.file.partition for task in lake.table.scan().plan_files()}
    of = {one[0]: one for one in files.values()}
    assert set(of) == {None, "t0", "t1"}
    assert lake.read() == [*range(20)]
    some = pa.table({"n": pa.array(range(0, 20, 2), pa.int64())})
    lake.values("e.parquet", some, 1, partition=of["t1"])
    left = [n for n in range(20) if n < 10 or n % 3 == 0 or n % 2]
    assert lake.read() == left
    name = next(name for name, one in files.items() if one[0] == "t0")
    lake.positions("p.parquet", (name, 0), partition=of["t1"])
    assert lake.read() == left
    lake.positions("q.parquet", (name, 0), partition=of["t0"])
    assert lake.read() == left[:1] + left[2:]
    lake.values("f.parquet", pa.table({"text": ["t0"]}), 2, partition=of["t0"])
    assert lake.read() == [n for n in left if n >= 10 or n % 3 == 0]
    lake.vectors("v.puffin", {name: [1]}, partition=of["t1"])
    with pytest.raises(bs.FormatError, match="of another partition"):
        lake.read()


def test_a_dropped_partition_column_that_a_file_lacks(tmp_path: Path) -> None:
    """The log has its value, in a plan for other processes, too."""
    lake = Lake(tmp_path, 2, by="text")
    files = {task.file.partition[0]: task.file for task in lake.table.scan().plan_files()}
    path = files["t0"].file_path.removeprefix("file://")
    pq.write_table(pq.ParquetFile(path).read().drop(["text"]), path)
    lake.values("f.parquet", pa.table({"text": ["t0"]}), 2, partition=files["t0"].partition)
    left = [n for n in range(20) if n >= 10 or n % 3 == 0]
    assert sorted(bs.read_table(lake.folder)["n"].to_pylist()) == left
    with pytest.raises(bs.UnsupportedError, match="only the table's log"):
        by_tasks(lake.folder)
    metadata = json.loads(Path(lake.table.metadata_location.removeprefix("file://")).read_text())
    (now,) = metadata["schemas"]
    metadata["schemas"].append({**now, "schema-id": 1, "fields": now["fields"][:1]})
    metadata["current-schema-id"] = 1
    (lake.folder / "metadata" / "00099-dropped.metadata.json").write_text(json.dumps(metadata))
    assert lake.read() == left


def test_a_task_with_files_that_have_no_deletes(lake: Lake) -> None:
    """Where nothing may be named outside of the table's location, as in encrypted tables."""
    pytest.importorskip("pyspark")
    from bloomseal.spark.source.files.piece import parts_of
    from bloomseal.spark.source.files.tree import find_files

    one = lake.names[1]
    lake.positions("p.parquet", (one, 3))
    tree = find_files([str(lake.folder)], zone="UTC")
    assert tree.log is not None
    assert tree.log.path_of is not None
    pieces = [piece if piece.in_log == one else piece._replace(deletes=(), in_log="") for piece in tree.files]
    parts = parts_of(pieces, None, replace(tree.log, path_of=replace(tree.log.path_of, strict=True)))
    assert sorted(parts.open(number).num_rows for number in range(3)) == [9, 10, 10]


def test_deletes_by_a_dropped_column_that_spark_would_take_for_another(lake: Lake) -> None:
    from pyiceberg.types import StringType

    with lake.table.update_schema() as schema:
        schema.delete_column("text")
    with lake.table.update_schema() as schema:
        schema.add_column("TEXT", StringType())
    lake.values("e.parquet", pa.table({"text": ["t1"]}), 2)
    (values,) = set(bs.read_table(lake.folder)["TEXT"].to_pylist())
    assert values is None
    with pytest.raises(bs.UnsupportedError, match="log calls this column TEXT"):
        by_tasks(lake.folder)


@pytest.mark.parametrize("count", [0, 1, 4, 9, 100])
def test_equality_deletes_in_a_file_of_many_row_groups(lake: Lake, count: int) -> None:
    """Fewer values than a row group has rows, as many as some have, and more than the file has."""
    for name in lake.names:
        path = name.removeprefix("file://")
        pq.write_table(pq.read_table(path), path, row_group_size=3)
    gone = random.Random(count).sample(range(130), count)
    lake.values("e.parquet", pa.table({"n": pa.array(gone, pa.int64())}), 1)
    assert lake.read() == [n for n in range(30) if n not in gone]


def test_a_file_of_values_that_is_named_twice(lake: Lake) -> None:
    """By other columns: of data files, each compares those that are said of it."""
    path = lake.folder / "data" / "e.parquet"
    rows = pa.table({"n": pa.array([1, 12], pa.int64()), "text": ["t1", "none has it"]})
    pq.write_table(ice.with_ids(rows, 1, 2), path)
    for columns, sequence in ([1, 1], 2), ([1, 2], None):
        told = VALUES | {"record_count": 2, "equality_ids": columns}
        lake.delete((path, manifests.FileFormat.PARQUET, told), sequence_of=sequence)
    assert lake.read() == [0, *range(2, 30)]


# Refusals -------------------------------------------------------------------------------------------------------------


def two_vectors(lake: Lake, one: str) -> None:
    lake.vectors("v.puffin", {one: [1]})
    lake.vectors("w.puffin", {one: [2]})


def older_vector(lake: Lake, one: str) -> None:
    lake.vectors("v.puffin", {one: [1]}, sequence_of=0)


def another_spelling(lake: Lake, one: str) -> None:
    lake.vectors("v.puffin", {one.replace("file://", "file:"): [1]})


def spelled_in_positions(lake: Lake, one: str) -> None:
    lake.positions("p.parquet", (one, 1), (one.replace("file://", "file:"), 1))


def no_such_row(lake: Lake, one: str) -> None:
    lake.vectors("v.puffin", {one: [1, 10]})


def far_away(lake: Lake, one: str) -> None:
    lake.vectors("v.puffin", {one: [1 << 40]})


def no_such_position(lake: Lake, one: str) -> None:
    lake.positions("p.parquet", (one, 10))


def negative(lake: Lake, one: str) -> None:
    lake.positions("p.parquet", (one, -1))


def null_position(lake: Lake, one: str) -> None:
    lake.positions("p.parquet", (one, 1), (one, None))


def fewer_rows(lake: Lake, one: str) -> None:
    path, kind, told = ice.write_puffin(lake.folder / "data" / "v.puffin", {one: [1, 2]})[0]
    lake.delete((path, kind, told | {"record_count": 1}))


def other_count(lake: Lake, one: str) -> None:
    path, kind, _ = ice.write_positions(lake.folder / "data" / "p.parquet", [(one, 1), (one, 2)])
    lake.delete((path, kind, {"record_count": 1}))


def gone(lake: Lake, one: str) -> None:
    lake.vectors("v.puffin", {one: [1]})
    (lake.folder / "data" / "v.puffin").unlink()


def altered(lake: Lake, one: str) -> None:
    lake.vectors("v.puffin", {one: [1]})
    path = lake.folder / "data" / "v.puffin"
    data = path.read_bytes()
    path.write_bytes(data[:30] + bytes([data[30] ^ 1]) + data[31:])


def cut(lake: Lake, one: str) -> None:
    lake.vectors("v.puffin", {one: [1]})
    path = lake.folder / "data" / "v.puffin"
    path.write_bytes(path.read_bytes()[:20])


def no_place(lake: Lake, one: str) -> None:
    path, kind, told = ice.write_puffin(lake.folder / "data" / "v.puffin", {one: [1]})[0]
    lake.delete((path, kind, told | {"content_offset": None}))


def in_orc(lake: Lake, one: str) -> None:
    path, _, told = ice.write_positions(lake.folder / "data" / "p.parquet", [(one, 1)])
    lake.delete((path, manifests.FileFormat.ORC, told))


def of_one_file(lake: Lake, one: str) -> None:
    path, kind, told = ice.write_positions(lake.folder / "data" / "p.parquet", [(one, 1), (lake.names[1], 1)])
    lake.delete((path, kind, told | {"referenced_data_file": one}))


def names_in_bytes(lake: Lake, one: str) -> None:
    path, kind, told = ice.write_positions(lake.folder / "data" / "p.parquet", [(one, 1)])
    pq.write_table(pa.table({"file_path": [one.encode()], "pos": pa.array([1], pa.int64())}), path)
    lake.delete((path, kind, told))


def without_ids(lake: Lake, one: str) -> None:
    pq.write_table(pa.table({"n": [1]}), lake.folder / "data" / "e.parquet")
    lake.delete((lake.folder / "data" / "e.parquet", manifests.FileFormat.PARQUET, VALUES | {"equality_ids": [1]}))


def by_another_column(lake: Lake, one: str) -> None:
    lake.values("e.parquet", pa.table({"n": pa.array([1], pa.int64())}), 1, equality_ids=[2])


def by_no_column(lake: Lake, one: str) -> None:
    lake.values("e.parquet", pa.table({"n": pa.array([1], pa.int64())}), 1, equality_ids=[17])


def outside(lake: Lake, one: str) -> None:
    ice.write_positions(lake.folder.parent / "p.parquet", [(one, 1)])
    lake.delete((lake.folder.parent / "p.parquet", manifests.FileFormat.PARQUET, {"record_count": 1}))


REFUSED: dict[Callable[[Lake, str], None], tuple[type[bs.BloomsealError], str]] = {
    two_vectors: (bs.FormatError, "two deletion vectors"),
    older_vector: (bs.FormatError, "older than the file"),
    another_spelling: (bs.FormatError, "in another way"),
    spelled_in_positions: (bs.FormatError, "in another way"),
    no_such_row: (bs.FormatError, "other rows than the file"),
    far_away: (bs.FormatError, "rows that are not there"),
    no_such_position: (bs.FormatError, "rows that the file does not have"),
    negative: (bs.FormatError, "rows that the file does not have"),
    null_position: (bs.FormatError, "without a file or a position"),
    fewer_rows: (bs.FormatError, "or the manifest, has"),
    other_count: (bs.FormatError, "of which the manifest says 1"),
    gone: (bs.UsageError, "is not there"),
    altered: (bs.FormatError, "checksum"),
    cut: (bs.FormatError, "outside the file"),
    no_place: (bs.FormatError, "does not say the place"),
    of_one_file: (bs.FormatError, "of other data files"),
    names_in_bytes: (bs.FormatError, "of types binary and int64"),
    in_orc: (bs.UnsupportedError, "delete files in ORC"),
    without_ids: (bs.UnsupportedError, "without field ids"),
    by_another_column: (bs.FormatError, "without a column that they compare"),
    by_no_column: (bs.UnsupportedError, "that no schema of the table has"),
    outside: (bs.UsageError, "leads out of the table"),
}


@pytest.mark.parametrize("attack", REFUSED, ids=lambda one: one.__name__)
def test_what_is_not_lawful_is_refused(lake: Lake, attack: Callable[[Lake, str], None]) -> None:
    attack(lake, lake.names[0])
    kind, message = REFUSED[attack]
    for read in (lambda: lake.read(), lambda: bs.open_table(lake.folder).num_rows, lambda: by_tasks(lake.folder)):
        with pytest.raises(kind, match=message) as refused:
            read()
        assert refused.value.file is not None
    try:
        assert not bs.open_table(lake.folder).verify().ok
    except bs.BloomsealError as error:
        assert isinstance(error, kind)  # noqa: PT017


def test_columns_whose_values_are_not_compared(tmp_path: Path) -> None:
    catalog = memory.InMemoryCatalog("f", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", schema=pa.schema({"x": pa.float64()}))
    table.append(pa.table({"x": [1.5]}))
    path = Path(table.location().removeprefix("file://")) / "data" / "e.parquet"
    pq.write_table(ice.with_ids(pa.table({"x": [1.5]}), 1), path)
    ice.add_deletes(table, (path, manifests.FileFormat.PARQUET), **VALUES, equality_ids=[1])
    with pytest.raises(bs.UnsupportedError, match="by a column of double, which the specification of Iceberg forbids"):
        bs.read_table(path.parents[1])


# Vectors --------------------------------------------------------------------------------------------------------------


def unpacked(blob: bytes, rows: int, count: int, parts: int = 3) -> list[int]:
    sizes = [rows // parts] * (parts - 1)
    vector = DeletionVector([*sizes, rows - sum(sizes)])
    vector.add_blob(blob, count)
    assert len(vector) == sum(map(vector.count, range(parts)))
    ends = [*sizes, rows - sum(sizes)]
    found = np.concatenate([vector.among(part, np.arange(size)) for part, size in enumerate(ends)])
    return np.flatnonzero(found).tolist()


@pytest.mark.parametrize("runs", [False, True])
def test_vectors_of_another_writer(runs: bool) -> None:
    chance = random.Random(3)
    rows = 500_003
    sets = [
        [],
        [0],
        [rows - 1],
        [*range(rows)],
        [*range(65_536, 131_072)],
        [*range(0, rows, 3)],
        [*range(100_000, 400_000)],
    ]
    sets += [sorted(chance.sample(range(rows), count)) for count in (1, 100, 4096, 4097, 60_000)]
    sets += [sorted({n for start in chance.sample(range(rows - 50), 200) for n in range(start, start + 50)})]
    for one in sets:
        assert unpacked(ice.blob_of(one, runs=runs), rows, len(one)) == one
    assert len(DeletionVector([])) == 0


def framed(content: bytes) -> bytes:
    content = b"\xd1\xd3\x39\x64" + content
    return len(content).to_bytes(4, "big") + content + zlib.crc32(content).to_bytes(4, "big")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        struct.pack("<Q", 1 << 60),
        struct.pack("<QI", 1, 0) + struct.pack("<II", 12346, 1 << 31),
        struct.pack("<QI", 1, 0) + struct.pack("<II", 12347 | 0xFFFF << 16, 0),
        struct.pack("<QI", 1, 1 << 31) + struct.pack("<IIHHI", 12346, 1, 0, 0, 0) + b"\0\0",
        struct.pack("<QI", 1, 0) + struct.pack("<IIHHI", 12346, 1, 0, 0xFFFF, 0) + bytes(8192),
        struct.pack("<QI", 1, 0) + struct.pack("<IBHH", 12347, 1, 0, 0xFFFF) + struct.pack("<HHHHH", 2, 0, 9, 5, 9),
        struct.pack("<QIIIII", 2, 1, 12346, 0, 1, 12346) + bytes(4),
    ],
)
def test_bombs(content: bytes) -> None:
    """Numbers of rows, containers and bitmaps that no file has, told by a few bytes."""
    vector = DeletionVector([1000])
    tracemalloc.start()
    try:
        with pytest.raises(bs.FormatError, match="can't be understood"):
            vector.add_blob(framed(content), 1)
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()


def test_mutants_of_vectors() -> None:
    """The right rows, or an error of ours."""
    chance = random.Random(11)
    rows = 200_000
    whole = [
        (ice.blob_of(one, runs=runs), one)
        for runs in (False, True)
        for one in ([5, 70_000, 199_999], [*range(0, 30_000, 2)], [*range(60_000, 150_000)])
    ]
    for _ in range(1700):
        blob, wanted = chance.choice(whole)
        data = bytearray(blob[8:-4])
        for _ in range(chance.randint(1, 3)):
            data[chance.randrange(min(len(data), 60))] = chance.randrange(256)
        if chance.random() < 0.3:
            del data[chance.randrange(len(data)) :]
        try:
            found = unpacked(framed(bytes(data)), rows, len(wanted))
        except bs.FormatError:
            continue
        assert len(found) == len(wanted)
        assert all(0 <= row < rows for row in found)


def test_deletes_of_a_table_without_files(tmp_path: Path) -> None:
    lake = Lake(tmp_path, 1)
    (name,) = lake.names
    lake.table.delete()
    lake.positions("p.parquet", (name, 1))
    table = bs.open_table(lake.folder)
    assert (table.num_rows, table.read().num_rows, table.verify().ok, len(table)) == (0, 0, True, 0)


def test_too_many_rows_are_no_memory() -> None:
    with pytest.raises(bs.UnsupportedError, match="the limit is"):
        DeletionVector([1 << 40])
    with pytest.raises(bs.FormatError, match="fewer rows than none"):
        DeletionVector([5, -1])


def test_mutants_of_delete_files(lake: Lake) -> None:
    one, other, _ = lake.names
    lake.vectors("v.puffin", {one: [1, 2]})
    lake.positions("p.parquet", (other, 3), (other, 4))
    lake.values("e.parquet", pa.table({"n": pa.array([25], pa.int64())}), 1)
    left = lake.read()
    chance = random.Random(5)
    files = [lake.folder / "data" / name for name in ("v.puffin", "p.parquet", "e.parquet")]
    refused = 0
    for _ in range(80):
        path = chance.choice(files)
        data = path.read_bytes()
        if chance.random() < 0.2:
            changed = data[: chance.randrange(len(data))]
        else:
            place = chance.randrange(len(data))
            changed = data[:place] + bytes([data[place] ^ (1 << chance.randrange(8))]) + data[place + 1 :]
        path.write_bytes(changed)
        try:
            found = lake.read()
        except bs.BloomsealError:
            refused += 1
        else:
            # Nothing authenticates a plaintext table: another row may be named, of as many.
            assert len(found) >= len(left) - 2
        finally:
            path.write_bytes(data)
    assert refused > 12
