"""Rotations and audits of a table on executors: the same rows as on one machine, done once, resumed where they
ended.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import bloomseal as bs
import bloomseal.spark as bss
from bloomseal import audit, evidence
from bloomseal.policy import Policy, TablePolicy
from bloomseal.rotation import Rewrap, plan, rotate
from bloomseal.spark.jobs.common import as_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore::bloomseal.core.errors.BloomsealWarning"),
]
FILES, ROWS = 5, 600


def table_policy(ring: bs.Keyring, pii: str = "pii", **more: object) -> TablePolicy:
    column = {"key": pii, "sensitivity": "restricted", "filter": {"fpp": 0.01, "ndv": ROWS}}
    if pii != "pii":
        column["previous_keys"] = ["pii"]
    tables = {"people": {"footer_key": "footer", "complete": True, "columns": {"ssn": column}, **more}}
    return Policy.from_dict({"version": 1, "kms": f"keyring://{ring.path}", "tables": tables}).for_table("people")


def fill(folder: Path, policy: TablePolicy) -> list[str]:
    folder.mkdir()
    for number in range(FILES):
        ids = range(number * ROWS, (number + 1) * ROWS)
        rows = pa.table({"id": ids, "ssn": [f"{i:09}" for i in ids]})
        path = folder / f"{number}.parquet"
        bs.write_table(rows, path, encryption=policy, bloom_filters=policy.bloom_filters(), row_group_size=200)
    return [str(path) for path in sorted(folder.glob("*.parquet"))]


@pytest.fixture
def own_ring(spark: SparkSession, tmp_path: Path) -> bs.Keyring:
    ring = bs.Keyring(tmp_path / "keys.json", create=True)
    for name in ("footer", "pii", "pii-2027"):
        ring.create(name)
    return ring


def contents(files: list[str]) -> dict[str, bytes]:
    return {file: Path(file).read_bytes() for file in files}


def versions(files: list[str], policy: TablePolicy) -> set[tuple[str | None, str | None]]:
    found = audit.inventory(files, keys=policy.keys, policy=policy)
    return {(row["master_key"], row["key_version"]) for row in found.to_pylist() if row["column"] == "ssn"}


def test_an_audit_is_the_same_as_on_one_machine(spark: SparkSession, own_ring: bs.Keyring, tmp_path: Path) -> None:
    policy = table_policy(own_ring)
    files = fill(tmp_path / "people", policy)
    # A copy under another name shares its data keys, which only a rule over all files sees; and one that can't be read.
    Path(tmp_path / "people" / "copy.parquet").write_bytes(Path(files[0]).read_bytes())
    Path(tmp_path / "people" / "torn.parquet").write_bytes(Path(files[1]).read_bytes()[:-30])
    external = replace(policy, internal=False)
    bs.write_table(pa.table({"id": [1], "ssn": ["1"]}), tmp_path / "people" / "outside.parquet", encryption=external)
    now = datetime(2030, 1, 1, tzinfo=UTC)
    for with_keys in (True, False):
        here = audit.audit(tmp_path / "people", policy=policy, with_keys=with_keys, now=now)
        there = bss.audit(spark, tmp_path / "people", policy=policy, with_keys=with_keys, now=now, files_per_task=3)
        assert there.report.to_dict(inventory=True) == here.to_dict(inventory=True)
        assert there.report.findings == here.findings
        assert here.findings
        rows = [row.asDict() for row in there.inventory.collect()]
        assert [(row["file"], row["row_group"], row["column"], row["data_key"]) for row in rows] == [
            (row["file"], row["row_group"], row["column"], row["data_key"]) for row in here.inventory.to_pylist()
        ]
        assert there.inventory.columns == here.inventory.column_names
        assert there.findings.count() == len(here.findings)


def test_may_destroy_answers_as_on_one_machine(spark: SparkSession, own_ring: bs.Keyring, tmp_path: Path) -> None:
    policy = table_policy(own_ring)
    files = fill(tmp_path / "people", policy)
    shutil.copytree(tmp_path / "people", tmp_path / "copy")
    external = replace(policy, internal=False)
    bs.write_table(pa.table({"id": [1], "ssn": ["1"]}), tmp_path / "people" / "outside.parquet", encryption=external)
    own_ring.rotate("pii")

    def both(also: list[Path]) -> tuple[dict[str, object], str]:
        answers = (
            audit.may_destroy("pii", "1", tmp_path / "people", also=also, keys=policy.keys, policy=policy, after=0),
            bss.may_destroy(
                spark, "pii", "1", tmp_path / "people", also=also, policy=policy, after=0, files_per_task=3
            ),
        )
        told = [{**answer.to_dict(), "began": None, "ended": None} for answer in answers]
        assert told[0] == told[1]
        return told[0], str(told[0]["answer"])

    told, answer = both([])
    assert (answer, told["needed_by"]) == ("no", [*files, str(tmp_path / "people" / "outside.parquet")])
    assert rotate([tmp_path / "people"], Rewrap(policy), journal=tmp_path / "journal").ok
    assert both([])[1] == "yes"
    assert both([tmp_path / "copy"])[1] == "no"
    Path(files[0]).write_bytes(Path(files[0]).read_bytes()[:-30])
    assert both([])[1] == "unknown"
    with pytest.raises(bs.UsageError, match="it has 1, 2"):
        bss.may_destroy(spark, "pii", "01", tmp_path / "people", policy=policy)


def test_rewrap_wraps_every_file_once(spark: SparkSession, own_ring: bs.Keyring, tmp_path: Path) -> None:
    policy = table_policy(own_ring)
    files = fill(tmp_path / "people", policy)
    own_ring.rotate("pii")
    new = table_policy(own_ring)
    before = contents(files)

    planned = bss.rewrap(spark, tmp_path / "people", policy=new, dry_run=True).collect()
    assert [(row.file, row.action) for row in planned] == [(file, "rewrap") for file in files]
    assert contents(files) == before

    rows = bss.rewrap(spark, tmp_path / "people", policy=new, files_per_task=2).collect()
    assert [(row.file, row.status, row.keys, row.failure) for row in rows] == [(f, "rewrapped", 1, None) for f in files]
    assert versions(files, new) == {("pii", "2")}
    done = contents(files)
    again = bss.rewrap(spark, tmp_path / "people", policy=new).collect()
    assert Counter(row.status for row in again) == {"nothing to do": FILES}
    assert contents(files) == done

    moved = bss.rewrap(spark, tmp_path / "people", policy=table_policy(own_ring, "pii-2027")).collect()
    assert [row.failure for row in moved] == [None] * FILES
    assert versions(files, new) == {("pii-2027", "1")}
    assert all(bs.verify(file, decryption=table_policy(own_ring, "pii-2027")).complete for file in files)


def test_rekey_gives_fresh_keys_and_is_resumed(spark: SparkSession, own_ring: bs.Keyring, tmp_path: Path) -> None:
    policy = table_policy(own_ring)
    path, journal = tmp_path / "people", tmp_path / "journal.jsonl"
    files = fill(path, policy)
    rows_before = bs.read_table(path, decryption=policy)
    keys_before = data_keys(files, policy)
    new = table_policy(own_ring, "pii-2027")
    # One that can't be done yet.
    whole = Path(files[2]).read_bytes()
    Path(files[2]).write_bytes(whole[:-30])

    def run(**more: bool) -> dict[str, tuple[str, str | None]]:
        rows = bss.rekey(spark, path, policy=new, journal=journal, files_per_task=2, **more).collect()
        assert [row.file for row in rows] == files
        return {row.file: (row.status, row.failure) for row in rows}

    first = run()
    failed = first.pop(files[2])
    assert failed[0] == "failed"
    assert failed[1]
    assert set(first.values()) == {("rekeyed", None)}
    done = contents(files)
    Path(files[2]).write_bytes(whole)
    second = run()
    assert second.pop(files[2]) == ("rekeyed", None)
    assert set(second.values()) == {("done before", None)}
    assert {file: data for file, data in contents(files).items() if file != files[2]} == {
        file: data for file, data in done.items() if file != files[2]
    }
    assert data_keys(files, new).isdisjoint(keys_before)
    assert versions(files, new) == {("pii-2027", "1")}
    assert bs.read_table(path, decryption=new).equals(rows_before)

    done = contents(files)
    third = run()
    assert set(third.values()) == {("done before", None)}
    assert contents(files) == done
    assert "rekeyed" in {status for status, _ in run(restart=True).values()}
    assert data_keys(files, new).isdisjoint(keys_before)


def test_a_driver_that_died_finds_what_its_tasks_had_finished(
    spark: SparkSession, own_ring: bs.Keyring, tmp_path: Path
) -> None:
    policy = table_policy(own_ring)
    path, journal = tmp_path / "people", tmp_path / "journal.jsonl"
    files = fill(path, policy)
    bss.rekey(spark, path, policy=policy, journal=journal).collect()
    done = contents(files)
    # The journal as it is while the tasks are at work: all begun, nothing booked; one file had not been reached.
    lines = [line for line in journal.read_text().splitlines() if json.loads(line)["event"] in ("start", "begin")]
    reached = [line for line in lines if files[4] not in line]
    journal.write_text("\n".join(reached) + "\n")
    rows = {row.file: row for row in bss.rekey(spark, path, policy=policy, journal=journal).collect()}
    assert [rows[file].status for file in files] == ["done before"] * 4 + ["rekeyed"]
    assert {file: data for file, data in contents(files).items() if file != files[4]} == {
        file: data for file, data in done.items() if file != files[4]
    }
    assert Path(files[4]).read_bytes() != done[files[4]]


def test_a_task_that_runs_twice_does_the_work_once(spark: SparkSession, own_ring: bs.Keyring, tmp_path: Path) -> None:
    """Two attempts of one task at the same time, as under speculation: each answers for every file, one has done it."""
    from bloomseal.spark.jobs.rotation import RotationTask

    policy = table_policy(own_ring)
    files = fill(tmp_path / "people", policy)
    before = contents(files)
    attempt = RotationTask.of("rekey", policy, files)
    done = spark.sparkContext.parallelize([files, files], 2).flatMap(attempt).collect()
    assert all(outcome.status == "rekeyed" for _, (outcome, _) in done)
    assert Counter(outcome.why for _, (outcome, _) in done) == {None: FILES, "done by an earlier attempt": FILES}
    identities = {file: {identity for name, (_, identity) in done if name == file} for file in files}
    assert all(len(found) == 1 for found in identities.values())
    assert all(content != before[file] for file, content in contents(files).items())
    assert all(bs.verify(file, decryption=policy).complete for file in files)


def test_a_refused_key_is_told_file_by_file(spark: SparkSession, own_ring: bs.Keyring, tmp_path: Path) -> None:
    policy = table_policy(own_ring)
    files = fill(tmp_path / "people", policy)
    before = contents(files)
    own_ring.disable("pii")
    for job in (
        lambda: bss.rewrap(spark, tmp_path / "people", policy=table_policy(own_ring, "pii-2027")),
        lambda: bss.rekey(spark, tmp_path / "people", policy=policy, journal=tmp_path / "journal.jsonl"),
    ):
        rows = job().collect()
        assert [row.file for row in rows] == files
        assert all(row.failure and "pii" in f"{row.failure} {row.left}" for row in rows), rows
    assert contents(files) == before


@pytest.mark.parametrize("job", [bss.rewrap, bss.rekey, bss.audit])
def test_executors_need_a_kms_that_they_can_reach(
    spark: SparkSession, own_ring: bs.Keyring, tmp_path: Path, job: Callable[..., object]
) -> None:
    with pytest.raises(bs.UsageError, match="is an object"):
        job(spark, tmp_path, policy=replace(table_policy(own_ring), kms=own_ring))


def data_keys(files: list[str], policy: TablePolicy) -> set[str]:
    found = audit.inventory(files, keys=policy.keys, policy=policy).to_pylist()
    return {row[name] for row in found for name in ("data_key", "footer_data_key") if row[name] is not None}


def test_evidence_is_the_same_as_on_one_machine(spark: SparkSession, own_ring: bs.Keyring, tmp_path: Path) -> None:
    log = tmp_path / "access.jsonl"
    policy = table_policy(own_ring, access_log=str(log))
    fill(tmp_path / "people", policy)
    log.write_bytes(b"")
    now = datetime(2027, 1, 1, tzinfo=UTC)
    there = bss.evidence(spark, tmp_path / "people", tmp_path / "there.zip", policy=policy, now=now, files_per_task=3)
    opened = Counter(json.loads(line)["column"] for line in log.read_text().splitlines())
    assert opened == {None: FILES, "ssn": FILES}, "the executors' openings are logged"
    here = evidence.make(tmp_path / "people", tmp_path / "here.zip", keys=policy.keys, policy=policy, now=now)
    assert {**there.told, "looked_at": None} == {**here.told, "looked_at": None}
    assert there.told["looked_at"]["files"] == FILES
    assert {name: data for name, data in there.members.items() if name.startswith(("cbom", "inventory"))} == {
        name: data for name, data in here.members.items() if name.startswith(("cbom", "inventory"))
    }
    assert (tmp_path / "there.zip").stat().st_mode & 0o777 == 0o600


def test_rotations_tell_what_an_audit_counts(spark: SparkSession, own_ring: bs.Keyring, tmp_path: Path) -> None:
    """Hidden files and what killed writers have left: told, and left as they are."""
    policy = table_policy(own_ring)
    files = fill(tmp_path / "people", policy)
    beside = {
        tmp_path / "people" / ".hidden.parquet": "hidden",
        tmp_path / "people" / "_staging" / "a.parquet": "hidden",
        tmp_path / "people" / ".part-0.parquet.0123abcd.bloomseal-tmp": "killed writer",
    }
    for path in beside:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(Path(files[0]).read_bytes())
    own_ring.rotate("pii")
    new = table_policy(own_ring)
    before = contents([str(path) for path in beside])
    local = {one.path for one in plan(tmp_path / "people", Rewrap(new)).files}
    for job in (bss.rewrap, bss.rekey):
        planned = {row.file: row for row in job(spark, tmp_path / "people", policy=new, dry_run=True).collect()}
        assert {*planned} == {*files, *map(str, beside)} >= local
        rows = {row.file: row for row in job(spark, tmp_path / "people", policy=new).collect()}
        assert {*rows} == {*planned}
        for path, why in beside.items():
            assert why in planned[str(path)].why
            assert (rows[str(path)].status, rows[str(path)].failure) == ("not in the table", None)
            assert why in rows[str(path)].why
        assert {rows[file].status for file in files} == {"rewrapped" if job is bss.rewrap else "rekeyed"}
    assert contents([str(path) for path in beside]) == before


def test_the_data_source_logs_who_opened_what(
    spark: SparkSession, own_ring: bs.Keyring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the policy's access log, from the executors."""
    # A session that was given a KMS, by another test, takes it for every policy.
    monkeypatch.setattr("bloomseal.spark.request.known_policy", lambda _: (None, None))
    log = tmp_path / "access.jsonl"
    policy = table_policy(own_ring, access_log=str(log))
    files = fill(tmp_path / "people", policy)
    log.write_bytes(b"")
    assert bss.read(spark, tmp_path / "people", columns=["ssn"], policy=policy).count() == FILES * ROWS
    told = [json.loads(line) for line in log.read_text().splitlines()]
    assert {one["file"] for one in told} == set(files)
    assert {(one["action"], one["column"], one["master_key"], one["version"], one["outcome"]) for one in told} >= {
        ("open", None, "footer", "1", "given"),
        ("open", "ssn", "pii", "1", "given"),
    }


def test_a_jobs_answer_is_looked_at_without_another_job(
    spark: SparkSession, tmp_path: Path, own_ring: bs.Keyring
) -> None:
    fill(tmp_path / "people", policy := table_policy(own_ring))
    told = bss.verify(spark, tmp_path / "people", policy=policy)
    context: Any = spark.sparkContext
    context.setJobGroup("looks", "looks")
    try:
        rows = told.collect()
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    assert not context.statusTracker().getJobIdsForGroup("looks")
    assert [row.verdict for row in rows] == ["complete"] * FILES


def test_a_later_rewrap_of_the_session_knows_the_new_versions(
    spark: SparkSession, tmp_path: Path, own_ring: bs.Keyring
) -> None:
    fill(tmp_path / "people", policy := table_policy(own_ring))
    for _ in range(3):
        own_ring.rotate("pii")
        # One worker takes all files, which most likely is the one of the job before.
        done = bss.rewrap(spark, tmp_path / "people", policy=policy, files_per_task=FILES).collect()
        assert [row.status for row in done] == ["rewrapped"] * FILES


def test_a_later_rekey_of_the_session_wraps_under_the_new_versions(
    spark: SparkSession, tmp_path: Path, own_ring: bs.Keyring
) -> None:
    """Also over a KMS that does not tell when its keys change, by a worker that has made key encryption keys before."""
    fill(people := tmp_path / "people", own := table_policy(own_ring))
    guarded = replace(own, kms=f"guarded:{own_ring.path}")
    for turn in range(3):
        own_ring.rotate("pii")
        log = tmp_path / f"{turn}.jsonl"
        done = bss.rekey(spark, people, policy=guarded, journal=log, files_per_task=FILES).collect()
        assert [row.status for row in done] == ["rekeyed"] * FILES
        assert {one.action for one in plan(people, Rewrap(own)).files} == {"none"}


def test_a_rekey_waits_for_a_compaction_that_was_killed(
    spark: SparkSession, tmp_path: Path, own_ring: bs.Keyring
) -> None:
    """With other identities nobody could tell any more that rows are there twice."""
    policy = table_policy(own_ring)
    files = fill(people := tmp_path / "people", policy)
    old = contents(files)
    bs.open_table(people, decryption=policy).compact(target_size=10_000_000)
    Path(files[0]).write_bytes(old[files[0]])  # as a run leaves it that is killed before it has removed this one
    before = {path: path.read_bytes() for path in people.glob("*.parquet")}
    with pytest.raises(bs.UsageError, match="a compaction was killed"):
        bss.rekey(spark, people, policy=policy, journal=tmp_path / "journal.jsonl").collect()
    assert {path: path.read_bytes() for path in people.glob("*.parquet")} == before


def test_names_of_files_that_are_no_text_are_told_with_escapes(spark: SparkSession) -> None:
    rows = [("caf\udce9.parquet", 1, ["\udce9", "é"], None), ("é", None, [], "why")]
    found = as_frame(spark, rows, "file string, size bigint, left array<string>, failure string").collect()
    assert [tuple(row) for row in found] == [("caf\\udce9.parquet", 1, ["\\udce9", "é"], None), ("é", None, [], "why")]


def test_erase_takes_rows_out_of_the_files_that_hold_them(
    spark: SparkSession, own_ring: bs.Keyring, tmp_path: Path
) -> None:
    policy = table_policy(own_ring, aad_prefix="{table}/{path}/")
    files = fill(tmp_path / "t", policy.at(tmp_path / "t"))
    where, journal = [("ssn", "in", ["000000003", "000001204"])], tmp_path / "erase.jsonl"
    planned = bss.erase(spark, tmp_path / "t", where, policy=policy, journal=journal, dry_run=True).collect()
    assert [(row.file, row.status, row.rows) for row in planned if row.file] == [
        (files[0], "to be erased", 1), (files[2], "to be erased", 1)]  # fmt: skip
    done = bss.erase(spark, tmp_path / "t", where, policy=policy, journal=journal).collect()
    assert [(row.file, row.status, row.failure) for row in done if row.file] == [
        (files[0], "erased", None), (files[2], "erased", None)]  # fmt: skip
    assert [row.status for row in done if row.file is None] == ["still held"]
    table = bs.open_table(tmp_path / "t", decryption=policy.at(tmp_path / "t"))
    assert table.read(where=where).num_rows == 0
    assert table.num_rows == FILES * ROWS - 2
