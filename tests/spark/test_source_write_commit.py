"""The two-phase commit of the data source's files, without Spark: crashes at every step, repeated steps, other file
systems.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.core.errors import BloomsealError, FormatError, UsageError
from bloomseal.core.storage.ref import FileRef
from bloomseal.keytools.material.store import MaterialStore
from bloomseal.policy import Policy, TablePolicy
from bloomseal.spark.source.commit.placing import ABANDONED, TEMPORARY, Job, Staged, TableFolder, recover
from bloomseal.spark.source.commit.plan import Plan

OLD = {"a=1/old-1": "1", "a=2/old-2": "2", "a=3/old-3": "3"}
NEW = {"a=1/new-1": "11", "a=2/new-2": "22", "a=9/new-9": "99"}
POINTS = ("staged", "planned", "moved", "removed", "successful")


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> TablePolicy:
    ring = bs.Keyring(tmp_path_factory.mktemp("keys") / "keys.json", create=True)
    ring.create("footer")
    ring.create("of another table")
    table = {"footer_key": "footer"}
    return Policy.from_dict({"version": 1, "kms": f"keyring://{ring.path}", "tables": {"t": table}}).for_table("t")


def contents(folder: Path) -> dict[str, str]:
    """Visible files and what is in them."""
    found = [path for path in folder.rglob("*") if path.is_file() and TEMPORARY not in path.parts]
    return {str(path.relative_to(folder)): path.read_text() for path in found}


def put(table: TableFolder, files: dict[str, str], *below: str) -> None:
    for name, text in files.items():
        path = table.path(*below, name)
        table.filesystem.create_dir(path.rpartition("/")[0], recursive=True)
        with table.filesystem.open_output_stream(path) as stream:
            stream.write(text.encode())


def staged(job: Job, files: dict[str, str] = NEW, attempt: str = "0-0") -> list[Staged]:
    put(job.table, files, TEMPORARY, job.name, attempt)
    return [Staged(attempt, name, len(text)) for name, text in files.items()]


@pytest.fixture
def table(tmp_path: Path) -> TableFolder:
    table = TableFolder.at(str(tmp_path / "table"))
    put(table, {**OLD, "_SUCCESS": ""})
    return table


def test_committed_files_come_and_replaced_ones_go(table: TableFolder, policy: TablePolicy) -> None:
    job = Job(table, "job", policy)
    files = staged(job)
    staged(job, {"a=1/of-another-attempt": "x"}, "0-1")
    put(table, {"a=1/_KEY_MATERIAL_FOR_old-1.json": "{}", "a=1/.old-1.crc": "crc"})
    put(table, {"a=1/_KEY_MATERIAL_FOR_new-1.json": "{}"}, TEMPORARY, "job", "0-0")
    job.commit(files, ["a=1/old-1", "a=3/old-3"])
    folder = Path(table.folder)
    kept = {"a=2/old-2": "2", "_SUCCESS": "", "a=1/_KEY_MATERIAL_FOR_new-1.json": "{}"}
    assert contents(folder) == {**NEW, **kept}
    assert not (folder / TEMPORARY).exists()
    assert not (folder / "a=3").exists()


def test_an_aborted_job_leaves_no_trace(table: TableFolder, policy: TablePolicy) -> None:
    job = Job(table, "job", policy)
    job.abort()  # none of its tasks came to write
    staged(job)
    job.abort()
    assert contents(Path(table.folder)) == {**OLD, "_SUCCESS": ""}
    assert not (Path(table.folder) / TEMPORARY).exists()


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_any_instant_nothing_is_lost_and_the_next_write_goes_on(
    table: TableFolder, policy: TablePolicy, point: str
) -> None:
    job = Job(table, "job", policy)
    files = staged(job)
    program = "import pickle, sys; job, files, old = pickle.loads(sys.stdin.buffer.read()); job.commit(files, old)"
    ended = subprocess.run(
        [sys.executable, "-c", program],
        input=pickle.dumps((job, files, list(OLD))),
        env={**os.environ, "BLOOMSEAL_FAULT_POINT": point},
        capture_output=True,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
    folder = Path(table.folder)
    now = contents(folder)
    everywhere = {path.name: path.read_text() for path in folder.rglob("*") if path.is_file()}
    whole_old = OLD.items() <= now.items()
    whole_new = NEW.items() <= now.items()
    assert whole_old or whole_new
    assert all(everywhere.get(name.rpartition("/")[2]) == text for name, text in NEW.items())
    # It never stands beside a mixture of both.
    assert ("_SUCCESS" in now) == (point in ("staged", "planned", "successful"))

    assert recover(table, policy) == ([] if point == "staged" else ["job"])
    if point == "staged":
        assert contents(folder) == {**OLD, "_SUCCESS": ""}
        assert recover(table, policy, datetime.now(UTC) + ABANDONED + timedelta(minutes=1)) == ["job"]
        assert contents(folder) == {**OLD, "_SUCCESS": ""}
    else:
        assert contents(folder) == {**NEW, "_SUCCESS": ""}
    assert not (folder / TEMPORARY).exists()


def test_a_job_with_a_plan_does_not_go_back(table: TableFolder, policy: TablePolicy) -> None:
    """Spark calls abort when commit fails; half of the old files may be gone by then."""
    job = Job(table, "job", policy)
    files = staged(job)
    # A folder where a file belongs: the move fails, as it would for want of a right.
    (Path(table.folder) / "a=9" / "new-9").mkdir(parents=True)
    with pytest.raises(BloomsealError, match="the next write to the table goes on"):
        job.commit(files, list(OLD))
    job.abort()
    (Path(table.folder) / "a=9" / "new-9").rmdir()
    assert recover(table, policy) == ["job"]
    assert contents(Path(table.folder)) == {**NEW, "_SUCCESS": ""}


def test_jobs_at_work_are_left_alone(table: TableFolder, policy: TablePolicy) -> None:
    at_work, dead = Job(table, "at work", policy), Job(table, "dead", policy)
    staged(at_work)
    staged(dead)
    long_ago = (datetime.now(UTC) - ABANDONED - timedelta(hours=1)).timestamp()
    for path in [Path(dead.folder), *Path(dead.folder).rglob("*")]:
        os.utime(path, (long_ago, long_ago))
    for path in [Path(at_work.folder), *Path(at_work.folder).rglob("*")]:
        if path.name != "new-9":
            os.utime(path, (long_ago, long_ago))
    assert recover(table, policy) == ["dead"]
    assert Path(at_work.folder).exists()


def test_steps_may_be_repeated(table: TableFolder, policy: TablePolicy) -> None:
    """Two who find the same plan at the same time: one of them finds everything done, also long after."""
    job = Job(table, "job", policy)
    staged(job)
    plan = Plan(tuple((f"0-0/{name}", name) for name in NEW), tuple(sorted(OLD))).sealed(policy, "job").decode()
    put(table, {"plan.json": plan}, TEMPORARY, "job")
    assert job.finish()
    put(table, {"plan.json": plan}, TEMPORARY, "job")
    assert job.finish()
    assert not job.finish()
    assert contents(Path(table.folder)) == {**NEW, "_SUCCESS": ""}


@pytest.mark.parametrize("change", ["gone", "shorter"])
def test_what_is_not_there_as_it_was_written_stops_the_commit(
    table: TableFolder, policy: TablePolicy, change: str
) -> None:
    job = Job(table, "job", policy)
    files = staged(job)
    path = Path(job.folder) / "0-0" / "a=2" / "new-2"
    path.unlink() if change == "gone" else path.write_text("2")
    with pytest.raises(BloomsealError, match="gone or has changed"):
        job.commit(files, list(OLD))
    job.abort()
    assert contents(Path(table.folder)) == {**OLD, "_SUCCESS": ""}


def test_a_new_file_can_not_replace_itself(table: TableFolder, policy: TablePolicy) -> None:
    job = Job(table, "job", policy)
    with pytest.raises(UsageError):
        job.commit(staged(job), list(NEW))


@pytest.mark.parametrize(
    ("files", "replaced"),
    [
        ([], ["../outside"]),
        ([], ["a/../../outside"]),
        ([], [""]),
        ([("OUTSIDE", "inside")], []),
        ([("0-0/x", "..")], []),
        ([("0-0/x", "./y")], []),
    ],
)
def test_a_plan_reaches_nothing_outside_its_table(
    table: TableFolder, policy: TablePolicy, tmp_path: Path, files: list[tuple[str, str]], replaced: list[str]
) -> None:
    """Not even one of a writer of the table."""
    outside = tmp_path / "outside"
    outside.write_text("not theirs")
    plan = Plan(tuple((old.replace("OUTSIDE", str(outside)), new) for old, new in files), tuple(replaced))
    put(table, {"plan.json": plan.sealed(policy, "job").decode()}, TEMPORARY, "job")
    with pytest.raises(FormatError, match="outside its table"):
        recover(table, policy)
    assert outside.read_text() == "not theirs"
    assert contents(Path(table.folder)) == {**OLD, "_SUCCESS": ""}


@pytest.fixture
def remote() -> Iterator[TableFolder]:
    """A file system in memory, reached by its URI as any other."""
    table = TableFolder.at("mock:///bucket/table")
    yield table
    table.filesystem.delete_dir_contents("", accept_root_dir=True)


def test_other_file_systems(remote: TableFolder, policy: TablePolicy) -> None:
    put(remote, OLD)
    job = Job(remote, "job", policy)
    job.commit(staged(job), ["a=1/old-1", "a=2/old-2"])
    assert sorted(remote.files()) == sorted([*NEW, "a=3/old-3"])
    assert remote.filesystem.get_file_info(remote.path("_SUCCESS")).is_file
    assert recover(remote, policy) == []
    second = Job(remote, "second", policy)
    staged(second)
    second.abort()
    assert sorted(remote.files()) == sorted([*NEW, "a=3/old-3"])


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    moto = pytest.importorskip("moto.server")
    from pyarrow.fs import FileSystem

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    name = f"bucket{port}"  # file systems are kept by their address
    FileSystem.from_uri(f"s3://{name}/?allow_bucket_creation=true")[0].create_dir(name)
    yield f"s3a://{name}"
    server.stop()


def test_a_table_on_an_object_store(bucket: str, tmp_path: Path) -> None:
    """Driver and executor in one process, without a JVM."""
    types = pytest.importorskip("pyspark.sql.types")
    from bloomseal.spark.source.files.tree import find_files
    from bloomseal.spark.source.options import SourceOptions
    from bloomseal.spark.source.writer import TableWriter

    bs.Keyring(tmp_path / "keys.json", create=True).create("footer")
    (tmp_path / "policy.toml").write_text(
        f'version = 1\nkms = "keyring://{tmp_path}/keys.json"\n[tables.t]\nfooter_key = "footer"\npartition_by = ["k"]\nmaterial = "external"\n'
        'aad_prefix = "{path}/"\nstore_aad_prefix = false\ncolumns.text.filter = true\n'
    )
    schema = types.StructType().add("text", "string").add("k", "long")
    rows = pa.record_batch({"text": ["a", "b", "c"], "k": [1, 2, 2]})

    def write(overwrite: bool, commit: bool, **more: str) -> TableWriter:
        options = {"path": f"{bucket}/tables/t", "policy": str(tmp_path / "policy.toml"), "partition_by": "k", **more}
        writer: TableWriter = pickle.loads(pickle.dumps(TableWriter(SourceOptions.parse(options), schema, overwrite)))  # noqa: S301
        message = writer.write(iter([rows]))
        writer.commit([message]) if commit else writer.abort([message, None])
        return writer

    table = TableFolder.at(f"{bucket}/tables/t")
    write(overwrite=False, commit=True)
    first = sorted(table.files())
    assert [name.partition("/")[0] for name in first] == ["k=1", "k=2"]
    write(overwrite=True, commit=False)
    assert sorted(table.files()) == first
    write(overwrite=True, commit=True, partition_overwrite_mode="dynamic")
    second = sorted(table.files())
    assert len(second) == 2
    assert not set(first) & set(second)
    policy = bs.Policy.load(tmp_path / "policy.toml").for_table("t")
    found = bs.read_table(table.folder, decryption=policy, filesystem=table.filesystem)
    assert sorted(found.column("text").to_pylist()) == ["a", "b", "c"]
    settings = SourceOptions.parse({"path": f"{bucket}/tables/t", "policy": str(tmp_path / "policy.toml")})
    one, two = find_files(settings.paths).files
    assert {one.root, two.root} == {table.folder}
    assert [settings.open(file).num_rows for file in (one, two)] == [1, 2]
    for place in (one.name, MaterialStore(FileRef(one.name)).path):
        table.filesystem.copy_file(place, place.replace("k=1/", "k=9/"))
    with pytest.raises(bs.IntegrityError):
        settings.open(find_files(settings.paths).files[-1])
