"""Indexes of tables that lie in object stores, in tables with a log, and in several folders."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.index.facts.sameness import _COARSE
from crash.s3_endpoint import Endpoint, serving
from index.test_index import DECRYPTION, ENCRYPTION, KEYS, part
from support.patched import patch_everywhere


def write(place: str, rows: pa.Table, filesystem: Any = None, **options: Any) -> None:
    named = {name: key for name, key in KEYS["column_keys"].items() if name in rows.column_names}
    spec = bs.EncryptionSpec(footer_key=KEYS["footer_key"], column_keys=named)
    bs.write_table(rows, place, encryption=spec, row_group_size=10, filesystem=filesystem, **options)


def opened(place: Any, use_index: Any = "auto", **options: Any) -> bs.SealedTable:
    return bs.open_table(place, decryption=DECRYPTION, use_index=use_index, **options)


def finds(table: bs.SealedTable, number: int, files: int, row: int = 17) -> None:
    """A value of one file: that one is opened, and no other."""
    value = part(number).column("k")[row].as_py()
    assert table.read(["n"], [("k", "==", value)]).column("n").to_pylist() == [row]
    assert table.stats.files_unopened == files - 1
    assert table.read(["n"], [("k", "==", -1)]).num_rows == 0
    assert table.maybe_present("k", [value, -1]).sum() == 1


@pytest.fixture
def memory() -> Iterator[str]:
    filesystem = fsspec.filesystem("memory")
    for number in range(4):
        write(f"memory://lake/t/{number}.parquet", part(number))
    yield "memory://lake/t"
    filesystem.rm("/lake", recursive=True)


def test_a_store_whose_client_tells_versions(memory: str) -> None:
    index = opened(memory).index("k", encryption=ENCRYPTION)
    assert index.build().covered == 4
    finds(opened(memory, "require"), 2, 4)
    # Replaced: of the same size, and read by its own filters until the next update.
    write(f"{memory}/2.parquet", part(7))
    value = part(7).column("k")[3].as_py()
    table = opened(memory)
    assert table.read(["n"], [("k", "==", value)]).num_rows == 1
    assert (table.stats.files_not_covered, table.stats.files_unopened) == (1, 3)
    report = opened(memory).index("k", encryption=ENCRYPTION).update()
    assert (report.hashed, report.covered) == (1, 4)
    finds(opened(memory, "require"), 7, 4)
    fsspec.filesystem("memory").rm("/lake/t/0.parquet")
    again = opened(memory).index("k", encryption=ENCRYPTION)
    assert again.compact(everything=True).entries == 90
    assert again.check().ok
    assert again.show().covered == 3
    assert again.rebuild().ok
    finds(opened(memory, "require"), 1, 3)
    again.drop()
    assert opened(memory).index("k").exists is False
    assert opened(memory).read(["n"], [("k", "==", value)]).num_rows == 1


def test_a_run_that_is_gone_from_a_store_makes_look_ups_slower_only(memory: str) -> None:
    opened(memory).index("k", encryption=ENCRYPTION).build()
    filesystem = fsspec.filesystem("memory")
    (run,) = [path for path in filesystem.find("/lake/t/_bloomseal_index") if "run-" in path]
    filesystem.rm(run)
    table = opened(memory)
    with pytest.warns(bs.BloomsealWarning, match="can't be used"):
        assert table.read(["n"], [("k", "==", part(3).column("k")[4].as_py())]).num_rows == 1


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    with serving() as endpoint:
        yield endpoint


def test_a_store_whose_client_tells_size_and_time_only(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow's S3 client lists no entity tags: by `auto` no fact counts there, by time and by identity they do."""
    monkeypatch.setattr("bloomseal.index.facts.sameness._COARSE", _COARSE // 2)
    endpoint.reset()
    filesystem = endpoint.filesystem()
    filesystem.create_dir("lake")
    for number in range(3):
        write(f"lake/t/{number}.parquet", part(number), filesystem)
    index = opened("lake/t", filesystem=filesystem).index("k", encryption=ENCRYPTION)
    assert index.build().ok
    doubtful = opened("lake/t", filesystem=filesystem)
    assert doubtful.read(["n"], [("k", "==", part(1).column("k")[0].as_py())]).num_rows == 1
    assert doubtful.stats.files_not_covered == 3
    for trust in ("time", "identity"):
        finds(opened("lake/t", "require", filesystem=filesystem, trust=trust), 1, 3)
    write("lake/t/1.parquet", part(9), filesystem)
    for trust in ("time", "identity"):
        table = opened("lake/t", filesystem=filesystem, trust=trust)
        assert table.read(["n"], [("k", "==", part(9).column("k")[0].as_py())]).num_rows == 1
        assert table.stats.files_not_covered == 1
    assert index.update().covered == 3
    finds(opened("lake/t", "require", filesystem=filesystem, trust="time"), 9, 3)
    # The index loaded, a value that is nowhere costs no request but one listing, made once.
    table = opened("lake/t", "require", filesystem=filesystem, trust="time")
    table.read(["n"], [("k", "==", -1)])
    before = len(endpoint.requests)
    table.read(["n"], [("k", "==", -2)])
    assert len(endpoint.requests) == before


def test_identity_authenticates_every_covered_footer(tmp_path: Path) -> None:
    for number in range(3):
        write(str(tmp_path / f"{number}.parquet"), part(number))
    opened(tmp_path).index("k", encryption=ENCRYPTION).build()
    for path in tmp_path.glob("*.parquet"):
        path.touch()  # times tell nothing any more
    assert opened(tmp_path).read(["n"], [("k", "==", -1)]).num_rows == 0
    finds(opened(tmp_path, "require", trust="identity"), 2, 3)
    write(str(tmp_path / "2.parquet"), part(5))
    table = opened(tmp_path, trust="identity")
    assert table.read(["n"], [("k", "==", part(5).column("k")[2].as_py())]).num_rows == 1
    assert table.stats.files_not_covered == 1
    with pytest.raises(bs.UsageError, match="unknown trust"):
        opened(tmp_path, trust="name")


def test_a_query_for_too_many_values_asks_the_files(tmp_path: Path) -> None:
    for number in range(3):
        write(str(tmp_path / f"{number}.parquet"), part(number))
    opened(tmp_path).index("k", encryption=ENCRYPTION).build(max_keys=5)
    values = part(1).column("k").to_pylist()
    for count, unopened in ((5, 2), (6, 0)):
        table = opened(tmp_path)
        assert table.read(["n"], [("k", "in", values[:count])]).num_rows == count
        assert table.stats.files_unopened == unopened
        # No file has filters.
        assert table.maybe_present("k", values[:count]).sum() == (count if unopened else 3 * count)
    finds(opened(tmp_path, "require"), 1, 3)
    assert opened(tmp_path, "require").read(["n"], [("k", "in", values)]).num_rows == 30
    assert opened(tmp_path).index("k").show().max_keys == 5
    assert opened(tmp_path).index("k", encryption=ENCRYPTION).rebuild().ok
    assert opened(tmp_path).index("k").show().max_keys == 5


def test_tables_of_several_folders(tmp_path: Path) -> None:
    for number in range(6):
        place = tmp_path / f"f{number % 3}"
        place.mkdir(exist_ok=True)
        write(str(place / f"{number}.parquet"), part(number))
    folders = [str(tmp_path / f"f{number}") for number in range(3)]
    for folder in folders[:2]:
        opened(folder).index("k", encryption=ENCRYPTION).build()
    for number in range(6):
        for filters in (
            [("k", "==", part(number).column("k")[11].as_py())],
            [
                [("k", "==", part(number).column("k")[11].as_py())],
                [("k", "==", part((number + 1) % 6).column("k")[3].as_py())],
            ],
        ):
            table, plain = opened(folders), opened(folders, "never")
            assert table.read(None, filters).equals(plain.read(None, filters))
            assert table.stats.files_not_covered == 2
            assert table.stats.files_unopened >= 2
            assert table.scan(None, filters).read_all().equals(plain.read(None, filters))
        value = part(number).column("k")[11].as_py()
        assert (
            opened(folders).maybe_present("k", [value]) >= opened(folders, "never").maybe_present("k", [value])
        ).all() or (opened(folders).maybe_present("k", [value]).sum() >= 1)
    opened(folders[2]).index("k", encryption=ENCRYPTION).build()
    finds(opened(folders, "require"), 4, 6)
    with pytest.raises(bs.UnsupportedError, match="one folder"):
        opened(folders).index("k")


def test_a_look_up_reads_a_run_by_two_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tail with footer, column index and offset index; and the page in question."""
    from bloomseal.core.storage.source import Source
    from bloomseal.index.runs import shard
    from bloomseal.storage.places import open_source

    monkeypatch.setattr(shard, "_KEPT_ENTRIES", 0)
    rows = pa.table({"k": range(0, 90_000, 3)})
    write(str(tmp_path / "0.parquet"), rows.slice(0, 15_000))
    write(str(tmp_path / "1.parquet"), rows.slice(15_000))
    opened(tmp_path).index("k", encryption=ENCRYPTION).build()
    reads: list[tuple[str, int]] = []

    def counted(path: Any, filesystem: Any = None) -> Source:
        source = open_source(path, filesystem)
        inner = source._read
        name = Path(source.name).name
        source._read = lambda offset, length: (reads.append((name, length)), inner(offset, length))[1]
        return source

    patch_everywhere(monkeypatch, open_source, counted)
    counts = []
    for absent in range(1, 25, 3):
        reads.clear()
        assert opened(tmp_path, "require").read(["k"], [("k", "==", absent)]).num_rows == 0
        counts.append(len([one for one in reads if one[0].startswith("run-")]))
        assert not [one for one in reads if one[0] in ("0.parquet", "1.parquet")]
        assert [one for one in reads if one[0] == "manifest.parquet"]
    # The last pages of a run come with its tail.
    assert max(counts) == 2, counts


def test_delta_tables(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    for number in range(3):
        write(str(tmp_path / f"{number}.parquet"), part(number))
    from deltalake.transaction import AddAction, create_table_with_add_actions

    def action(number: int) -> Any:
        path = tmp_path / f"{number}.parquet"
        return AddAction(path.name, path.stat().st_size, {}, 1, True, "{}")

    create_table_with_add_actions(
        str(tmp_path),
        deltalake.Schema.from_arrow(part(0).schema),
        [action(0), action(1)],
        mode="append",
        partition_by=[],
    )
    index = opened(tmp_path).index("k", encryption=ENCRYPTION)
    assert (index.build().covered, index.show().files) == (2, 2)
    finds(opened(tmp_path, "require"), 1, 2)
    held = deltalake.DeltaTable(str(tmp_path))
    held.create_write_transaction([action(2)], mode="append", schema=held.schema(), partition_by=[])
    assert opened(tmp_path).index("k", encryption=ENCRYPTION).update().hashed == 1
    finds(opened(tmp_path, "require"), 2, 3)
    # A later commit removes everything: the files are still there, and drop out by the log's listing.
    held = deltalake.DeltaTable(str(tmp_path))
    held.create_write_transaction([action(2)], mode="overwrite", schema=held.schema(), partition_by=[])
    finds(opened(tmp_path, "require"), 2, 1)
    assert opened(tmp_path, "require").read(["n"], [("k", "==", part(0).column("k")[0].as_py())]).num_rows == 0
    finds(opened(tmp_path, "require", version=0), 1, 2)


def test_iceberg_tables(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    from pyiceberg.catalog.memory import InMemoryCatalog

    catalog = InMemoryCatalog("test", warehouse=f"file://{tmp_path}/ice")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", schema=part(0).schema)
    place = Path(table.location().removeprefix("file://"))
    for number in range(3):
        if number == 2:
            table.delete("n >= 0")
        table.append(part(number))
    for path in place.rglob("*.parquet"):
        bs.seal_file(path, encryption=ENCRYPTION)
    index = opened(place).index("k", encryption=ENCRYPTION)
    assert (index.build().covered, index.show().files) == (1, 1)
    finds(opened(place, "require"), 2, 1)
    assert opened(place, "require").read(["n"], [("k", "==", part(0).column("k")[0].as_py())]).num_rows == 0
    # An older snapshot names other files: covered when they were hashed too.
    older = table.metadata.snapshots[1].snapshot_id
    assert opened(place, version=older).index("k", encryption=ENCRYPTION).update().hashed == 2
    finds(opened(place, "require", version=older), 1, 2)
    finds(opened(place, "require"), 2, 1)


def test_names_of_a_table_with_a_log_count_in_a_store(memory: str) -> None:
    from bloomseal.index.facts.members import Members
    from bloomseal.storage.places import resolve_path

    table = opened(memory)
    whole = table._indexes.only
    assert whole is not None
    told = ["a", "b", "a", ""]
    logged = Members(resolve_path(memory), whole.refs, whole.relative, whole.open, logged=told)
    states = logged.states()
    assert states == [logged.state(number) for number in range(4)]
    assert states[0] == states[2] != states[1]
    assert states[3] is None  # a log that tells nothing but the name proves nothing


def test_a_log_tells_a_file_from_another_of_its_name(tmp_path: Path) -> None:
    """Files that were there before their table was made have any name, and have it again when they are made anew."""
    deltalake = pytest.importorskip("deltalake")
    from deltalake.transaction import AddAction, create_table_with_add_actions

    from bloomseal.storage.discovery.tables import find_files

    def told(number: int, changed: int, size: int = 7) -> str:
        path = tmp_path / f"{number}"
        path.mkdir()
        write(str(path / "a.parquet"), part(0))
        create_table_with_add_actions(
            str(path), deltalake.Schema.from_arrow(part(0).schema), [AddAction("a.parquet", size, {}, changed, True, "{}")],
            mode="append", partition_by=[],
        )  # fmt: skip
        first, again = (find_files(str(path)).files[0].told for _ in range(2))
        assert first == again != ""
        held = deltalake.DeltaTable(str(path))
        anew = [AddAction("a.parquet", size, {}, changed + 1, True, "{}")]
        held.create_write_transaction(anew, mode="overwrite", schema=held.schema(), partition_by=[])
        assert find_files(str(path)).files[0].told not in ("", first)
        return first

    # Another table, another time, another size.
    assert len({told(0, 1), told(1, 1), told(2, 2), told(3, 1, 8)}) == 4


def test_an_iceberg_table_tells_a_file_from_another_of_its_name(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    import pyarrow.parquet as pq
    from pyiceberg.catalog.memory import InMemoryCatalog

    from bloomseal.storage.discovery.tables import find_files

    catalog = InMemoryCatalog("test", warehouse=f"file://{tmp_path}/ice")
    catalog.create_namespace("n")
    told = []
    for rows in (part(0), part(0), part(5)):
        table = catalog.create_table("n.t", schema=part(0).schema)
        place = Path(table.location().removeprefix("file://"))
        (place / "data").mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, place / "data" / "a.parquet")
        table.add_files([f"file://{place}/data/a.parquet"])
        told += [found.told for found in find_files(str(place)).files]
        table.delete("n >= 0")
        pq.write_table(rows.slice(0, 29), place / "data" / "a.parquet")
        table.add_files([f"file://{place}/data/a.parquet"])
        told += [found.told for found in find_files(str(place)).files]
        catalog.drop_table("n.t")
        shutil.rmtree(place)
    assert "" not in told
    assert len({*told}) == len(told) == 6
