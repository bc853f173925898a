"""Spark's look-ups ask sealed indexes on the driver: files that these rule out are opened by nobody."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import bloomseal as bs
import bloomseal.spark as bss
from bloomseal.index.facts.members import Members

from .indexed_tables import FILES, ROWS, ids, one, opened, ssn, turned
from .pruned import counts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]


def test_a_read_opens_no_file_that_is_ruled_out(spark: SparkSession, table: Path) -> None:
    for where, want, files in [
        (f"ssn = '{ssn(417)}'", [417], 1),
        (f"ssn IN ('{ssn(417)}', '{ssn(1017)}', 'nowhere') AND id > 5", [417, 1017], 2),
        (f"SSN = '{ssn(3)}'", [3], 1),
        ("ssn = 'nowhere'", [], 0),
    ]:
        frame = bss.read(spark, table, where=where)
        assert ids(frame) == want
        stats = bss.df_stats(frame)
        assert (stats.files, stats.files_unopened, stats.files_not_covered) == (files, FILES - files, 0)
        assert (stats.decoded, stats.pruned_by_index) == (len(want), 5 * FILES - len(want))
        assert bss.read(spark, table, where=where, use_index="never").count() == len(want)
    told = bss.explain(spark, table, f"ssn = '{ssn(417)}'")
    assert f"{FILES - 1} by an index" in told
    assert "59 by an index" in told
    assert "index" not in bss.explain(spark, table, f"ssn = '{ssn(417)}'", use_index="never")


def test_what_is_not_covered_is_read(
    spark: SparkSession, table: Path, indexed: tuple[Path, bs.Policy], recwarn: pytest.WarningsRecorder
) -> None:
    shutil.copy(one(table, indexed[1]), table / "new.parquet")
    frame = bss.read(spark, table, where=f"ssn = '{ssn(417)}'")
    assert ids(frame) == [417, 417]
    stats = bss.df_stats(frame)
    assert (stats.files, stats.files_unopened, stats.files_not_covered) == (2, FILES - 1, 1)
    assert "1 that no index covers" in bss.explain(spark, table, "ssn = 'nowhere'")
    refused = bss.read(spark, table, where=f"ssn = '{ssn(417)}'", use_index="require")
    with pytest.raises(Exception, match="an index is required"):
        refused.collect()
    with pytest.raises(bs.UsageError, match="an index is required"):
        bss.prune(spark, table, "ssn", [ssn(417)], use_index="require")
    with pytest.raises(bs.UsageError, match="nothing of where= can be asked"):
        bss.read(spark, table, where="upper(ssn) = 'X'", use_index="require")
    # A manifest of other bytes: slower, and not wrong.
    manifest = next(table.rglob("manifest.parquet"))
    manifest.write_bytes(manifest.read_bytes()[:-40])
    assert ids(bss.read(spark, table, where=f"ssn = '{ssn(417)}'")) == [417, 417]
    assert ids(bss.semi_join(spark, table, "ssn", [ssn(417)])) == [417, 417]


def test_each_run_asks_anew(spark: SparkSession, table: Path, indexed: tuple[Path, bs.Policy]) -> None:
    frames = [
        bss.read(spark, table, where="ssn = 'somebody else'"),
        bss.semi_join(spark, table, "ssn", ["somebody else"]),
    ]
    assert [frame.count() for frame in frames] == [0, 0]
    turned(table, indexed[1])
    assert [frame.count() for frame in frames] == [ROWS, ROWS]


def test_keys_are_asked_of_the_index(spark: SparkSession, table: Path) -> None:
    keys = [ssn(417), ssn(1017), "nowhere"]
    found = bss.prune(spark, table, "ssn", keys)
    told = counts(found)
    assert (told["files_left"], told["row_groups_left"], told["files_unopened"]) == (2, 2, FILES - 2)
    assert told["by_index"] + told["by_statistics"] == 5 * FILES - 2
    never = counts(bss.prune(spark, table, "ssn", keys, use_index="never"))
    assert (never["by_index"], never["files_unopened"], never["without_filter"]) == (0, 0, never["row_groups_left"])
    frame = bss.semi_join(spark, table, "ssn", keys)
    assert ids(frame) == [417, 1017]
    stats = bss.df_stats(frame)
    assert (stats.files, stats.files_unopened, stats.decoded) == (2, FILES - 2, 2)
    assert ids(bss.read(spark, table, keys={"ssn": keys}, use_index="require")) == [417, 1017]
    assert bss.semi_join(spark, table, "ssn", ["nowhere"]).count() == 0


def test_another_file_after_the_index_was_asked(
    table: Path, indexed: tuple[Path, bs.Policy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between planning and task a file is replaced: it is read as a whole."""
    from pyspark.sql import types as st

    from bloomseal.read.predicate.condition import Compare
    from bloomseal.read.predicate.values import Values
    from bloomseal.spark.source.options import Defaults, SourceOptions
    from bloomseal.spark.source.pushdown import to_text
    from bloomseal.spark.source.reader import TableReader
    from bloomseal.table.query.parts import TableParts

    policy = indexed[1]
    asked = Compare("ssn", "in", Values((ssn(417), "somebody else")))
    given = {"path": str(table), "conditions": to_text([asked])}
    settings = SourceOptions.parse(given, Defaults(policy=policy))
    schema = st.StructType().add("ssn", "string").add("id", "long")
    reader = TableReader(settings, schema)
    seen: list[str] = []
    inner = TableParts.open

    def counted(self: TableParts, number: int) -> Any:
        seen.append(self.files[number].ref.path)
        return inner(self, number)

    path = str(one(table, policy))
    monkeypatch.setattr(TableParts, "open", counted)
    (task,) = reader.partitions()
    (piece,) = task.pieces  # type: ignore[attr-defined]
    assert (seen, piece.name, piece.kept.groups) == ([], path, (0,))
    assert sum(batch.num_rows for batch in reader.read(task)) == 1
    turned(table, policy)
    assert sum(batch.num_rows for batch in reader.read(task)) == ROWS
    assert set(seen) == {path}


def test_an_index_is_built_by_a_job(
    spark: SparkSession, table: Path, indexed: tuple[Path, bs.Policy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several runs, each written by a task, and merged by tasks; what it knows is what the index built in one process
    knows.
    """
    from bloomseal.spark.jobs import compaction

    monkeypatch.setattr(compaction, "_PART_ENTRIES", 400)
    policy = indexed[1]
    before = opened(table, policy).index("ssn").show()
    opened(table, policy).index("ssn").drop()
    made = bss.update_index(spark, table, "ssn", files_per_task=5)
    assert (made.hashed, made.covered, made.entries, made.ok) == (FILES, FILES, FILES * ROWS, True)
    index = opened(table, policy).index("ssn")
    shown = index.show()
    assert (shown.entries, shown.covered, shown.fingerprint_bits) == (before.entries, FILES, before.fingerprint_bits)
    assert shown.runs[0]["shards"] == 3
    assert index.check().ok
    assert not [name for name in [one.name for one in Path(shown.folder).iterdir()] if name.startswith((".", "_"))]
    manifest = index.manifest()
    files = {one.name for one in Path(shown.folder).iterdir()} - {"manifest.parquet"}
    assert files == manifest.files | set(manifest.retired)  # no draft is left
    assert ids(bss.read(spark, table, where=f"ssn = '{ssn(417)}'", use_index="require")) == [417]

    # One more file, one that was only touched, one that nobody can open.
    touched = one(table, policy)
    shutil.copy(touched, table / "new.parquet")
    touched.chmod(0o600)
    (table / "no.parquet").write_bytes(b"PAR1")
    done = bss.update_index(spark, table, "ssn")
    assert (done.hashed, done.refreshed, list(done.left)) == (1, 1, ["no.parquet"])
    (table / "no.parquet").unlink()
    again = opened(table, policy).index("ssn")
    assert (again.show().covered, again.check().ok) == (FILES + 1, True)
    secret = again.manifest().secret
    assert bss.update_index(spark, table, "ssn").hashed == 0
    assert bss.update_index(spark, table, "ssn", rebuild=True).hashed == FILES + 1
    assert opened(table, policy).index("ssn").manifest().secret != secret


def test_an_index_is_compacted_by_a_job(
    spark: SparkSession, table: Path, indexed: tuple[Path, bs.Policy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks merge a range of fingerprints each; until the manifest is there, the old index answers."""
    from bloomseal.index import commit
    from bloomseal.spark.jobs import compaction

    monkeypatch.setattr(compaction, "_PART_ENTRIES", 400)
    policy = indexed[1]
    gone = one(table, policy)
    gone.unlink()
    for number in range(2):
        rows = pa.table({"ssn": [f"more {number} {i}" for i in range(ROWS)], "id": range(ROWS)})
        path = table / f"more-{number}.parquet"
        bs.write_table(rows, path, encryption=policy.for_table("t").at(table), row_group_size=20)
    index = opened(table, policy).index("ssn")
    before = index.manifest()
    assert (before.entries, len(before.runs)) == ((FILES + 2) * ROWS, 2)

    def still_answers(runs: int, entries: int) -> None:
        index = opened(table, policy).index("ssn")
        assert (len(index.manifest().runs), index.manifest().entries) == (runs, entries)
        assert (index.show().covered, index.check().ok) == (FILES + 1, True)
        assert ids(bss.read(spark, table, where="ssn = 'more 1 7'", use_index="require")) == [7]
        assert bss.read(spark, table, where=f"ssn = '{ssn(417)}'", use_index="require").count() == 0

    def files() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in Path(index.folder.path).iterdir()}

    # A run that no task can read.
    kept = files()
    shard = Path(index.folder.path) / before.runs[0].shards[0].file
    shard.write_bytes(bytes(64) + kept[shard.name][64:])
    with pytest.raises(bs.BloomsealError):
        bss.compact_index(spark, table, "ssn", everything=True)
    shard.write_bytes(kept[shard.name])
    assert files() == kept
    still_answers(2, before.entries)
    # The driver dies when all shards are there.
    seen: list[set[str]] = []

    def died(name: str) -> None:
        seen.append(set(files()) - set(kept))
        raise KeyboardInterrupt(name)

    with monkeypatch.context() as dying:
        dying.setattr(commit, "fault_point", died)
        with pytest.raises(KeyboardInterrupt, match="index before manifest"):
            bss.compact_index(spark, table, "ssn", everything=True)
    assert [len(one) for one in seen] == [4]
    still_answers(2, before.entries)
    # Nobody dies.
    told = bss.compact_index(spark, table, "ssn", everything=True)
    assert (told.merged, told.runs, told.entries_before, told.entries) == (2, 1, before.entries, (FILES + 1) * ROWS)
    assert len(opened(table, policy).index("ssn").manifest().runs[0].shards) == 4
    still_answers(1, (FILES + 1) * ROWS)
    assert bss.compact_index(spark, table, "ssn").merged == 0
    with pytest.raises(bs.UsageError, match="no index"):
        bss.compact_index(spark, table, "id")


def test_what_spark_writes_is_indexed_in_the_same_job(
    spark: SparkSession, indexed: tuple[Path, bs.Policy], tmp_path: Path
) -> None:
    policy = indexed[1]
    bss.enable(spark, policy=policy)
    rows = pa.table({"ssn": [ssn(i) for i in range(60)], "id": range(60)})
    frame = spark.createDataFrame(rows).repartition(2)
    folder = tmp_path / "written"
    told = bss.write(frame, folder).indexes["ssn"]
    assert (told.covered, told.entries, told.ok) == (2, 60, True)
    told = bss.write(frame, folder, mode="append").indexes["ssn"]
    assert (told.hashed, told.covered) == (2, 4)
    index = opened(folder, policy).index("ssn")
    assert (index.show().covered, index.check().ok) == (4, True)
    found = bss.read(spark, folder, where=f"ssn = '{ssn(7)}'", use_index="require")
    assert ids(found) == [7, 7]
    assert bss.read(spark, folder, where="ssn = 'nowhere'", use_index="require").count() == 0


@pytest.mark.parametrize("job", [bss.rewrap, bss.rekey])
def test_rotations_leave_the_index_up_to_date(
    spark: SparkSession, table: Path, indexed: tuple[Path, bs.Policy], tmp_path: Path, job: Any
) -> None:
    more = {"journal": tmp_path / "journal", "restart": True} if job is bss.rekey else {}
    before = {path: path.read_bytes() for path in table.glob("*.parquet")}
    if job is bss.rewrap:
        bs.Keyring(str(indexed[1].for_table("t").kms).removeprefix("keyring://")).rotate("pii")
    job(spark, table, policy=indexed[1].for_table("t"), **more).collect()
    assert all(path.read_bytes() != old for path, old in before.items())
    found = opened(table, indexed[1]).index("ssn")
    assert (found.show().covered, found.check().ok) == (FILES, True)
    assert (
        bs.open_table(table, decryption=indexed[1].for_table("t"), use_index="require")
        .read(where=[("ssn", "==", ssn(417))])
        .num_rows
        == 1
    )


def test_tasks_know_files_of_a_log_in_a_store_as_look_ups_do() -> None:
    """An index by the store's tags would cover nothing of such a table when it is asked."""
    from bloomseal.spark.jobs.index_place import Place
    from bloomseal.spark.jobs.indexing import _IndexTask
    from bloomseal.spark.source.files.piece import Piece
    from bloomseal.storage.logs.snapshot import Snapshot

    policy = pickle.dumps(bs.policy.TablePolicy("t", "keyring:k.json", "footer"))
    task = _IndexTask(Place(policy, "mock:///", "/lake/t", "ssn", Snapshot(0, pa.schema([]), ())))
    told = ["a", "", "b"]
    files = [Piece("mock:///", f"/lake/t/{number}", 1, root="/lake/t", told=one) for number, one in enumerate(told)]
    members = task.members(files)
    states = [members.state(number) for number in range(3)]
    assert states == Members(members.root, members.refs, told, _unopened, logged=told).states()
    assert states[0] != states[2]
    assert states[1] is None


def _unopened(_: int) -> Any:
    raise AssertionError
