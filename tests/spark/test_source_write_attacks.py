"""Whoever writes to a table's folder, without a key, does not make a writer of the table act outside it, nor act by
orders of his.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import multiprocessing
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.core.encryption import SecretKey
from bloomseal.core.errors import BloomsealError, FormatError, IntegrityError, KeyAccessError, PolicyError
from bloomseal.policy import Policy, TablePolicy
from bloomseal.spark.source.commit.linkless import LinklessFolder
from bloomseal.spark.source.commit.placing import TEMPORARY, Job, Staged, TableFolder, recover
from bloomseal.spark.source.commit.plan import Plan

JOB = "0" * 32
Folders = tuple[Path, Path]


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    ring = bs.Keyring(tmp_path_factory.mktemp("keys") / "keys.json", create=True)
    for name in ("footer", "old footer", "theirs"):
        ring.create(name)
    tables = {
        "mine": {"footer_key": "footer", "previous_footer_keys": ["old footer"]},
        "theirs": {"footer_key": "theirs"},
    }
    return Policy.from_dict({"version": 1, "kms": f"keyring://{ring.path}", "tables": tables})


@pytest.fixture(scope="module")
def policy(policies: Policy) -> TablePolicy:
    return policies.for_table("mine")


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    """A table of two files, and a folder outside it with files of the same names."""
    for place in ("table", "outside"):
        for name in ("a=1/old", "a=2/old", "old", "_SUCCESS", "plan.json"):
            (tmp_path / place / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / place / name).write_text(place)
    (tmp_path / "table" / "old").unlink()
    (tmp_path / "table" / "plan.json").unlink()
    return tmp_path / "table", tmp_path / "outside"


def contents(folder: Path) -> dict[str, str]:
    """What is in a folder, links as what they are."""
    found = [path for path in folder.rglob("*") if path.is_symlink() or path.is_file()]
    return {str(one.relative_to(folder)): "link" if one.is_symlink() else one.read_text() for one in found}


def staged(table: Path, *names: str) -> list[Staged]:
    for name in names:
        path = table / TEMPORARY / JOB / "0-0" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("new")
    return [Staged("0-0", name, 3) for name in names]


def plant(table: Path, plan: bytes, *names: str, job: str = JOB) -> None:
    staged(table, *names)
    if job != JOB:
        (table / TEMPORARY / JOB).rename(table / TEMPORARY / job)
    (table / TEMPORARY / job / "plan.json").write_bytes(plan)


def swap(place: Path, target: Path) -> None:
    """Put a link in the place of what is there."""
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
    place.symlink_to(target)


@contextlib.contextmanager
def untouched(folder: Path) -> Iterator[None]:
    before = contents(folder)
    yield
    assert contents(folder) == before


# Orders of a stranger ------------------------------------------------------------------------------------------------


def unsigned(_: Policy) -> bytes:
    return json.dumps({"version": 1, "files": [["0-0/a=1/new", "a=1/new"]], "replaced": ["a=2/old"]}).encode()


def of_nobody(_: Policy) -> bytes:
    return b'{"version":3}\n{"files":[],"replaced":["a=2/old"]}'


def under_a_key_of_his_own(policies: Policy) -> bytes:
    return PLAN.sealed(policies.for_table("theirs"), JOB)


def of_another_table(policies: Policy) -> bytes:
    return PLAN.sealed(replace(policies.for_table("mine"), name="another"), JOB)


def of_another_job(policies: Policy) -> bytes:
    return PLAN.sealed(policies.for_table("mine"), "1" * 32)


def changed(policies: Policy) -> bytes:
    return PLAN.sealed(policies.for_table("mine"), JOB).replace(b"a=2/old", b"a=1/old")


def with_the_key_of_a_file(policies: Policy) -> bytes:
    """Wrapped keys stand in every file; `tests/games/test_footer_reader.py` knows them, too."""
    wrapped = policies.for_table("mine").keys.tools.wrap(SecretKey.generate(256), "footer")
    head = {"version": 3, "master_key": "footer", "wrapped": wrapped}
    return json.dumps(head).encode() + b'\n{"files":[],"replaced":["a=2/old"]}'


def of_a_text_that_is_none(policies: Policy) -> bytes:
    return of_nobody(policies).replace(b"3}", b'3,"master_key":"footer","wrapped":["\xc3\xa9"]}')


def nested_deeply(_: Policy) -> bytes:
    return b"[" * 200_000


PLAN = Plan((("0-0/a=1/new", "a=1/new"),), ("a=2/old",))
FORGERIES: list[tuple[Callable[[Policy], bytes], type[BloomsealError]]] = [
    (unsigned, FormatError),
    (of_nobody, FormatError),
    (under_a_key_of_his_own, PolicyError),
    (of_another_table, IntegrityError),
    (of_another_job, IntegrityError),
    (changed, IntegrityError),
    (with_the_key_of_a_file, IntegrityError),
    (of_a_text_that_is_none, FormatError),
    (nested_deeply, FormatError),
]


@pytest.mark.parametrize(("forged", "error"), FORGERIES, ids=[one.__name__ for one, _ in FORGERIES])
def test_a_plan_is_a_writers_of_the_table_or_none(
    folders: Folders, policies: Policy, forged: Callable[[Policy], bytes], error: type[BloomsealError]
) -> None:
    table, _ = folders
    plant(table, forged(policies), "a=1/new")
    with untouched(table), pytest.raises(error) as told:
        recover(TableFolder.at(str(table)), policies.for_table("mine"))
    assert told.value.file == str(table / TEMPORARY / JOB / "plan.json")


def test_a_plan_under_a_footer_key_of_before_is_finished(folders: Folders, policies: Policy) -> None:
    table, _ = folders
    plant(table, PLAN.sealed(replace(policies.for_table("mine"), footer_key="old footer"), JOB), "a=1/new")
    assert recover(TableFolder.at(str(table)), policies.for_table("mine")) == [JOB]
    assert contents(table) == {"a=1/old": "table", "a=1/new": "new", "_SUCCESS": ""}


def test_a_plan_whose_key_can_not_be_had_is_left_alone(folders: Folders, policy: TablePolicy, tmp_path: Path) -> None:
    table, _ = folders
    plant(table, PLAN.sealed(policy, JOB), "a=1/new")
    bs.Keyring(tmp_path / "other.json", create=True).create("footer")
    stranger = replace(policy, kms=f"keyring://{tmp_path}/other.json")
    with untouched(table), pytest.raises((KeyAccessError, IntegrityError)):
        recover(TableFolder.at(str(table)), stranger)


def test_a_plan_holds_no_key(policy: TablePolicy) -> None:
    text = PLAN.sealed(policy, JOB)
    head = json.loads(text.partition(b"\n")[0])
    assert set(head) == {"version", "master_key", "wrapped"}
    bound = json.dumps(["bloomseal plan of a commit", "mine", JOB]).encode()
    digest = hashlib.sha256(bound + b"\n" + text.partition(b"\n")[2]).digest()
    ring = bs.Keyring(policy.kms.removeprefix("keyring://"))
    assert ring.unwrap_key(head["wrapped"], "footer") == digest


# Links ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["a=1", "a=2", TEMPORARY, f"{TEMPORARY}/{JOB}", f"{TEMPORARY}/{JOB}/0-0/a=1"])
def test_a_died_jobs_plan_is_carried_out_through_no_link(folders: Folders, policy: TablePolicy, place: str) -> None:
    """The plan is genuine; a folder of its paths has been swapped for a link since."""
    table, outside = folders
    plant(table, Plan((("0-0/a=1/old", "a=1/old"),), ("a=2/old",)).sealed(policy, JOB), "a=1/old")
    if place.startswith(TEMPORARY):
        (outside / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(table / TEMPORARY, outside / TEMPORARY, dirs_exist_ok=True)
        swap(table / place, outside / place)
    else:
        swap(table / place, outside)
    with untouched(outside):
        if place == f"{TEMPORARY}/{JOB}":
            assert recover(TableFolder.at(str(table)), policy) == []
        else:
            with pytest.raises(BloomsealError, match="link"):
                recover(TableFolder.at(str(table)), policy)


@pytest.mark.parametrize("there", ["outside", "outside/old", "nowhere"])
def test_an_overwrite_removes_links_and_not_what_they_lead_to(
    folders: Folders, policy: TablePolicy, tmp_path: Path, there: str
) -> None:
    table, outside = folders
    for place in ("a=1", "a=3", "linked"):
        swap(table / place, tmp_path / there)
    folder = TableFolder.at(str(table))
    job = Job(folder, JOB, policy)
    with untouched(outside):
        job.commit(staged(table, "a=2/new"), folder.files())
    assert contents(table) == {"a=2/new": "new", "_SUCCESS": ""}


def test_files_are_not_put_through_a_link_and_the_table_stays_as_it_was(folders: Folders, policy: TablePolicy) -> None:
    table, outside = folders
    swap(table / "a=1", outside)
    folder = TableFolder.at(str(table))
    job = Job(folder, JOB, policy)
    files = staged(table, "a=1/old")
    with untouched(outside), pytest.raises(BloomsealError, match="link") as told:
        job.commit(files, [])
    assert told.value.file == str(table / "a=1")
    job.abort()
    assert contents(table) == {"a=1": "link", "a=2/old": "table", "_SUCCESS": "table"}
    assert recover(folder, policy) == []


@pytest.mark.parametrize("name", ["_SUCCESS", "a=1/.old.crc", "a=1/_KEY_MATERIAL_FOR_old.json"])
def test_links_in_the_place_of_what_a_commit_writes_and_removes(
    folders: Folders, policy: TablePolicy, name: str
) -> None:
    table, outside = folders
    swap(table / name, outside / "old")
    with untouched(outside):
        Job(TableFolder.at(str(table)), JOB, policy).commit(staged(table, "a=2/new"), ["a=1/old"])
    assert contents(table) == {"a=2/new": "new", "a=2/old": "table", "_SUCCESS": ""}


def test_a_staged_file_that_became_a_link_is_not_put_into_place(folders: Folders, policy: TablePolicy) -> None:
    table, outside = folders
    files = staged(table, "a=1/new")
    (outside / "old").write_text("new")  # as long as the file that it stands for
    swap(table / TEMPORARY / JOB / "0-0/a=1/new", outside / "old")
    job = Job(TableFolder.at(str(table)), JOB, policy)
    with untouched(outside), pytest.raises(BloomsealError, match="gone or has changed"):
        job.commit(files, [])
    job.abort()
    assert contents(table) == {"a=1/old": "table", "a=2/old": "table", "_SUCCESS": "table"}


def test_a_job_leaves_what_a_link_in_its_folder_leads_to(folders: Folders, policy: TablePolicy) -> None:
    table, outside = folders
    staged(table, "a=1/new")
    (table / TEMPORARY / JOB / "0-1").symlink_to(outside)
    with untouched(outside):
        Job(TableFolder.at(str(table)), JOB, policy).abort()
    assert not (table / TEMPORARY).exists()


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_plan_that_is_no_file(folders: Folders, policy: TablePolicy, tmp_path: Path, kind: str) -> None:
    """A pipe would keep a reader waiting for ever."""
    table, outside = folders
    plant(table, PLAN.sealed(policy, JOB), "a=1/new")
    plan = table / TEMPORARY / JOB / "plan.json"
    plan.rename(tmp_path / "genuine")
    os.mkfifo(plan) if kind == "pipe" else plan.symlink_to(tmp_path / "genuine")
    with untouched(outside), pytest.raises(BloomsealError, match="can't look for jobs that died"):
        recover(TableFolder.at(str(table)), policy)
    assert (table / "a=2/old").exists()


def test_a_second_name_of_a_file_outside_is_removed_and_the_file_is_not_changed(
    folders: Folders, policy: TablePolicy
) -> None:
    table, outside = folders
    (outside / "old").chmod(0o600)
    for name in ("a=1/hard", f"{TEMPORARY}/{JOB}/plan.json", "_SUCCESS"):
        (table / name).parent.mkdir(parents=True, exist_ok=True)
        (table / name).unlink(missing_ok=True)
        os.link(outside / "old", table / name)
    folder = TableFolder.at(str(table))
    with untouched(outside):
        Job(folder, JOB, policy).commit(staged(table, "a=2/new"), folder.files())
    assert stat.S_IMODE((outside / "old").stat().st_mode) == 0o600
    assert (outside / "old").stat().st_nlink == 1
    assert contents(table) == {"a=2/new": "new", "_SUCCESS": ""}


def test_a_name_that_is_no_text_is_an_error_of_ours(folders: Folders) -> None:
    table, _ = folders
    (Path(os.fsdecode(os.fsencode(table) + b"/\xff"))).write_text("x")
    folder = TableFolder.at(str(table))
    with pytest.raises(BloomsealError, match="UTF-8"), folder.errors("list the table"):
        folder.files()


def _swapping(place: Path, aside: Path, outside: Path, stop: Any) -> None:
    """Folder, link, folder, link."""
    steps = (
        lambda: place.rename(aside),
        lambda: place.symlink_to(outside),
        lambda: place.unlink(),
        lambda: aside.rename(place),
    )
    while not stop.is_set():
        for step in steps:
            with contextlib.suppress(OSError):
                step()


def test_a_folder_that_is_swapped_for_a_link_all_the_time(folders: Folders) -> None:
    """A link may come between every look and every step: what is done is done in the folder that was opened."""
    table, outside = folders
    stop = multiprocessing.Event()
    attacker = multiprocessing.Process(target=_swapping, args=(table / "a=1", table.parent / "aside", outside, stop))
    attacker.start()
    folder = LinklessFolder(str(table))
    steps = (
        lambda: folder.move(f"{table}/a=2/old", f"{table}/a=1/old"),
        lambda: folder.move(f"{table}/a=1/old", f"{table}/a=2/old"),
        lambda: folder.delete_file(f"{table}/a=1/plan.json"),
        lambda: folder.replace(f"{table}/a=1/plan.json", b"ours"),
    )
    done = refused = 0
    try:
        with untouched(outside):
            while min(done, refused) < 100:
                for step in steps:
                    try:
                        step()
                        done += 1
                    except OSError:
                        refused += 1
                        os.sched_yield()
    finally:
        stop.set()
        attacker.join()


# Executors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plant_what", ["link", "second name"])
def test_a_task_writes_to_no_file_that_was_there_before_it(
    folders: Folders, policy: TablePolicy, plant_what: str
) -> None:
    """Names of staged files can be told beforehand by whoever sees the job's folder."""
    types = pytest.importorskip("pyspark.sql.types")
    from bloomseal.spark.source.options import SourceOptions
    from bloomseal.spark.source.writer import TableWriter

    table, outside = folders
    schema = types.StructType().add("text", "string")
    writer = TableWriter(SourceOptions((str(table),), kms=str(policy.kms), table=policy), schema, overwrite=True)
    attempt = Path(writer.place.folder) / "00000-0"
    attempt.mkdir()
    place = attempt / f"part-00000-{writer.place.name}-0-000.parquet"
    place.symlink_to(outside / "old") if plant_what == "link" else os.link(outside / "old", place)
    with untouched(outside), pytest.raises(BloomsealError):
        writer.write(iter([pa.record_batch({"text": ["a"]})]))
    writer.abort([None])
    assert contents(table) == {"a=1/old": "table", "a=2/old": "table", "_SUCCESS": "table"}


def test_a_task_writes_into_no_folder_that_is_a_link(folders: Folders, policy: TablePolicy) -> None:
    types = pytest.importorskip("pyspark.sql.types")
    from bloomseal.spark.source.options import SourceOptions
    from bloomseal.spark.source.writer import TableWriter

    table, outside = folders
    schema = types.StructType().add("text", "string")
    writer = TableWriter(SourceOptions((str(table),), kms=str(policy.kms), table=policy), schema, overwrite=True)
    (Path(writer.place.folder) / "00000-0").symlink_to(outside)
    with untouched(outside), pytest.raises(BloomsealError, match="link"):
        writer.write(iter([pa.record_batch({"text": ["a"]})]))
    writer.abort([None])
    assert not (table / TEMPORARY).exists()


def test_a_job_begins_in_no_folder_that_is_a_link(folders: Folders, policy: TablePolicy) -> None:
    table, outside = folders
    (table / TEMPORARY).symlink_to(outside)
    with untouched(outside), pytest.raises(BloomsealError, match="link"):
        Job(TableFolder.at(str(table)), JOB, policy).begin()


def test_the_tables_own_folder_may_be_a_link(folders: Folders, policy: TablePolicy) -> None:
    """The way to the table is its user's choice."""
    table, outside = folders
    (outside / "way").symlink_to(table)
    folder = TableFolder.at(str(outside / "way"))
    Job(folder, JOB, policy).commit(staged(table, "a=2/new"), folder.files())
    assert contents(table) == {"a=2/new": "new", "_SUCCESS": ""}
