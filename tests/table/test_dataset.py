"""`write_dataset`: files in Hive folders, each complete or not there, old ones removed last."""

from __future__ import annotations

import datetime as dt
import json
import multiprocessing
import warnings
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import bloomseal as bs
from bloomseal.policy import ColumnPolicy, Sensitivity, TablePolicy

COUNTRIES = ["DE", "F/R", None, "a b=%{é}", "..", "x\n\x1f"]
ROWS = pa.table(
    {
        "id": list(range(600)),
        "country": [COUNTRIES[i % 6] for i in range(600)],
        "ssn": [f"{i:03d}-21-3945" for i in range(600)],
    }
)
ENCRYPTION = bs.EncryptionSpec(footer_key=b"f" * 16, column_keys={"ssn": b"s" * 16})
DECRYPTION = bs.DecryptionSpec(
    bs.ExplicitKeys(footer_key=b"f" * 16, column_keys={"ssn": b"s" * 16}), partition_by=["country"]
)
TEXT = ds.partitioning(pa.schema([("country", pa.string())]), flavor="hive")


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def by_pyarrow(folder: Path, partitioning: Any = TEXT) -> pa.Table:
    return ds.dataset(folder, format="parquet", partitioning=partitioning).to_table().sort_by("id")


def opened(folder: Path, decryption: Any = DECRYPTION) -> pa.Table:
    parts = []
    for name in files(folder):
        with bs.open_file(folder / name, decryption=decryption) as file:
            parts.append(file.read())
    return pa.concat_tables(parts).sort_by("id")


@pytest.mark.parametrize("data", [ROWS, ROWS.to_reader(7), ROWS.to_batches(max_chunksize=11), pl.from_arrow(ROWS)])
def test_pyarrow_reads_the_folders(data: Any, tmp_path: Path) -> None:
    report = bs.write_dataset(data, tmp_path / "t", partition_by=["country"], row_group_size=30)
    assert report.rows == 600
    assert len(report.files) == 6
    assert by_pyarrow(tmp_path / "t").select(ROWS.column_names).cast(ROWS.schema).equals(ROWS)
    assert {path.name for path in (tmp_path / "t").iterdir()} == {
        "country=DE",
        "country=F%2FR",
        "country=__HIVE_DEFAULT_PARTITION__",
        "country=a b%3D%25%7Bé}",
        "country=..",
        "country=x%0A%1F",
    }


def test_our_own_reader_has_the_columns_back(tmp_path: Path) -> None:
    bs.write_dataset(ROWS, tmp_path / "t", encryption=ENCRYPTION, partition_by=["country"], bloom_filters=["ssn"])
    table = bs.open_table(tmp_path / "t", decryption=DECRYPTION)
    assert table.read(ROWS.column_names).sort_by("id").equals(ROWS)
    for country in COUNTRIES:
        if country is not None:
            assert table.read(["id"], [("country", "==", country)]).num_rows == 100
    found = table.read(where=[("country", "==", "F/R"), ("ssn", "in", ["001-21-3945", "002-21-3945"])])
    assert found["id"].to_pylist() == [1]


def test_files_are_sealed_and_hold_what_was_asked(tmp_path: Path) -> None:
    report = bs.write_dataset(
        ROWS, tmp_path / "t", encryption=ENCRYPTION, partition_by=["country"], rows_per_file=40, row_group_size=15,
        bloom_filters=["ssn"],
    )  # fmt: skip
    assert [one["rows"] for one in report.files].count(40) == 12
    assert sum(one["rows"] for one in report.files) == 600
    assert opened(tmp_path / "t").equals(ROWS.drop_columns("country"))
    for one in report.files:
        path = Path(one["path"])
        assert path.stat().st_size == one["bytes"]
        with bs.open_file(path, decryption=DECRYPTION) as file:
            assert [group.num_rows for group in file.row_groups] == ([15, 15, 10] if one["rows"] == 40 else [15, 5])
            assert file.probe("ssn", ["no"])[0] == [bs.Verdict.ABSENT]
    assert json.loads(json.dumps(report.to_dict()))["rows"] == 600


def test_several_columns_of_every_plain_type(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "id": [0, 1, 2, 3],
            "day": [dt.date(2024, 2, 29), None, dt.date(1, 1, 1), dt.date(2024, 2, 29)],
            "flag": [True, False, None, True],
            "shift": pa.array([-1, None, 127, -1], pa.int8()),
            "kind": pa.array(["x", "y", None, "x"]).dictionary_encode(),
        }
    )
    by = ["day", "flag", "shift", "kind"]
    report = bs.write_dataset(rows, tmp_path / "t", partition_by=by)
    assert len(report.files) == 3
    kinds = pa.schema([(name, pa.string() if name == "kind" else rows.schema.field(name).type) for name in by])
    found = by_pyarrow(tmp_path / "t", ds.partitioning(kinds, flavor="hive"))
    assert found.select(rows.column_names).to_pylist() == rows.to_pylist()
    assert "day=2024-02-29/flag=true/shift=-1/kind=x" in {str(Path(name).parent) for name in files(tmp_path / "t")}


@pytest.mark.parametrize("size", [3_000, 20_000, 100_000])
def test_files_are_of_about_the_size_that_was_asked(size: int, tmp_path: Path) -> None:
    rows = pa.table({"id": np.random.default_rng(1).integers(0, 1 << 60, 40_000)})
    report = bs.write_dataset(rows.to_reader(500), tmp_path / "t", bytes_per_file=size, row_group_size=5_000)
    sizes = [one["bytes"] for one in report.files]
    assert 320_000 / size / 1.5 < len(sizes) < 320_000 / size * 3
    assert max(sizes) < size * 1.5
    assert opened(tmp_path / "t", None)["id"].to_pylist() == rows.sort_by("id")["id"].to_pylist()


def test_open_files_and_waiting_rows_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bloomseal.table.dataset._WAITING_BYTES", 1 << 18)
    most = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal most
        for start in range(0, 100_000, 1000):
            most = max(most, len(list((tmp_path / "t").rglob("*.bloomseal-tmp"))))
            ids = np.arange(start, start + 1000)
            yield pa.record_batch({"id": ids, "p": ids % 50})

    before = pa.total_allocated_bytes()
    held = []
    report = bs.write_dataset(
        batches(), tmp_path / "t", partition_by=["p"], row_group_size=100, max_open_files=5,
        progress=lambda _done, _total: held.append(pa.total_allocated_bytes() - before),
    )  # fmt: skip
    assert 1 <= most <= 5
    assert max(held) < 4 << 20
    assert report.rows == 100_000
    found = by_pyarrow(tmp_path / "t", "hive")
    assert found["id"].to_pylist() == list(range(100_000))
    assert found["p"].to_pylist() == [i % 50 for i in range(100_000)]


def test_rows_that_wait_are_few_and_files_not_many(tmp_path: Path) -> None:
    """Partitions whose rows come scattered: one file each, though they are more than may be open."""
    ids = np.arange(20_000)
    report = bs.write_dataset(
        pa.table({"id": ids, "p": ids % 200}).to_reader(500), tmp_path / "t", partition_by=["p"], max_open_files=3
    )
    assert len(report.files) == 200


def test_without_rows_there_is_a_schema(tmp_path: Path) -> None:
    assert len(bs.write_dataset(ROWS.slice(0, 0), tmp_path / "a").files) == 1
    assert bs.read_table(tmp_path / "a").schema.equals(ROWS.schema)
    report = bs.write_dataset(ROWS.slice(0, 0), tmp_path / "b", partition_by=["country"])
    assert report.files == []


@pytest.fixture
def ring(tmp_path: Path) -> bs.Keyring:
    ring = bs.Keyring(tmp_path / "ring.json", create=True)
    ring.create("k")
    return ring


def test_a_prefix_of_the_path_binds_each_file_to_its_folder(tmp_path: Path, ring: bs.Keyring) -> None:
    policy = TablePolicy(
        "t", ring, "k", aad_prefix="{table}/{path}/", store_aad_prefix=False, partition_by=("country",)
    )
    report = bs.write_dataset(
        ROWS, tmp_path / "t", encryption=policy, partition_by=["country"], file_name="part-{i}.parquet"
    )
    here = policy.at(tmp_path / "t")
    assert opened(tmp_path / "t", here).equals(ROWS.drop_columns("country"))
    one, other = (Path(entry["path"]) for entry in report.files[:2])
    one.rename(other)
    with pytest.raises(bs.IntegrityError), bs.open_file(other, decryption=here) as file:
        file.read()


def test_a_root_that_was_said_stays(tmp_path: Path, ring: bs.Keyring) -> None:
    policy = TablePolicy("t", ring, "k", aad_prefix="{table}/{path}/", store_aad_prefix=False, root=str(tmp_path))
    bs.write_dataset(ROWS, tmp_path / "t", encryption=policy)
    assert opened(tmp_path / "t", policy).equals(ROWS)


def test_what_is_protected_becomes_no_folder(tmp_path: Path, ring: bs.Keyring) -> None:
    """Its values would stand in the folders' names, in clear."""

    def policy(name: str = "ssn", **column: Any) -> TablePolicy:
        return TablePolicy("t", ring, "k", columns={name: ColumnPolicy(**column)}, complete=True)

    for encryption in (
        ENCRYPTION,
        policy(key="k"),
        policy(sensitivity=Sensitivity.CONFIDENTIAL),
        policy(sensitivity=Sensitivity.RESTRICTED),
        policy(filter=bs.FilterSpec()),
        policy("SSN", sensitivity=Sensitivity.RESTRICTED),  # which is the same column to Spark
        policy("other", key="k"),  # sealed under the footer key
        TablePolicy("t", ring, "k"),
        TablePolicy("t", ring, "k", partition_by=("country",)),
    ):
        with pytest.raises(bs.PolicyError, match="name of a folder") as caught:
            bs.write_dataset(ROWS, tmp_path / "t", encryption=encryption, partition_by=["ssn"])
        assert (caught.value.column, "partition" in str(caught.value.hint)) == ("ssn", True)
    with pytest.raises(bs.UsageError, match="no filter"):
        bs.write_dataset(ROWS, tmp_path / "t", bloom_filters=["country"], partition_by=["country"])
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    "wrong",
    [
        {"partition_by": "country"},
        {"partition_by": ["nobody"]},
        {"partition_by": ["country", "country"]},
        {"partition_by": ["id", "country", "ssn"]},
        {"partition_by": [1]},
        {"rows_per_file": 0},
        {"bytes_per_file": -1},
        {"row_group_size": 0},
        {"max_open_files": 0},
        {"mode": "replace"},
        {"file_name": "part.parquet"},
        {"file_name": "{i}/x.parquet"},
        {"file_name": "../{i}.parquet"},
        {"file_name": "_{i}.parquet"},
        {"file_name": ".{i}.parquet"},
        {"file_name": "{i}.txt"},
        {"file_name": "{i}-{who}.parquet"},
        {"file_name": 5},
        {"encryption": b"f" * 16},
        {"bloom_filters": ["nobody"]},
        {"compression": 5},
        {"data": 5},
        {"data": pa.table({"id": [1], "country": [1.5]}), "partition_by": ["country"]},
        {"data": pa.table({"id": [1], "country": [Decimal("1.50")]}), "partition_by": ["country"]},
        {"data": pa.table({"id": [1], "country": [b"x"]}), "partition_by": ["country"]},
        {"data": pa.table({"id": [1], "country": [""]}), "partition_by": ["country"]},
        {"data": pa.table({"id": [1], "country": ["__HIVE_DEFAULT_PARTITION__"]}), "partition_by": ["country"]},
        {"data": pa.table({"id": [1], ".x": [1]}), "partition_by": [".x"]},
        {"data": [ROWS, ROWS.select(["id"])]},
    ],
)
def test_wrong_arguments_leave_nothing(wrong: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(bs.UsageError):
        bs.write_dataset(**{"data": ROWS, "folder": tmp_path / "t", **wrong})
    assert not (tmp_path / "t").exists()


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"")
    with pytest.raises(bs.UsageError, match="no folder"):
        bs.write_dataset(ROWS, tmp_path / "t")


def test_existing_files_are_refused_left_or_removed(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    bs.write_dataset(ROWS, folder, partition_by=["country"])
    first = files(folder)
    with pytest.raises(bs.UsageError, match="holds files"):
        bs.write_dataset(ROWS, folder)
    bs.write_dataset(ROWS.slice(0, 12), folder, partition_by=["country"], mode="append")
    assert set(first) < set(files(folder))
    assert by_pyarrow(folder).num_rows == 612
    for name in ("notes.txt", "_SUCCESS", "odd"):
        (folder / name).write_bytes((folder / first[0]).read_bytes() if name == "odd" else b"kept")
    gone = bs.write_dataset(ROWS.slice(0, 1), folder, partition_by=["country"], mode="overwrite")
    assert files(folder) == sorted(
        ["notes.txt", "_SUCCESS", *(str(Path(one["path"]).relative_to(folder)) for one in gone.files)]
    )
    assert len(gone.removed) == 6 + 6 + 1
    assert gone.kept == []
    assert [path.name for path in folder.iterdir() if path.is_dir()] == ["country=DE"]


def test_key_material_goes_with_its_file(tmp_path: Path, ring: bs.Keyring) -> None:
    policy = TablePolicy("t", ring, "k", internal=False)
    folder = tmp_path / "t"
    bs.write_dataset(ROWS, folder, encryption=policy, rows_per_file=200)
    assert len(files(folder)) == 6
    bs.write_dataset(ROWS, folder, encryption=policy, mode="overwrite")
    assert len(files(folder)) == 2
    assert bs.read_table(folder, decryption=policy).equals(ROWS)


def test_a_name_that_is_taken_is_never_replaced(tmp_path: Path) -> None:
    bs.write_dataset(ROWS, tmp_path / "t", file_name="part-{i}.parquet")
    before = (tmp_path / "t/part-0.parquet").read_bytes()
    for existing in ("append", "overwrite"):
        with pytest.raises(bs.UsageError, match="already"):
            bs.write_dataset(ROWS, tmp_path / "t", file_name="part-{i}.parquet", mode=existing)  # type: ignore[arg-type]
    assert files(tmp_path / "t") == ["part-0.parquet"]
    assert (tmp_path / "t/part-0.parquet").read_bytes() == before


def test_two_who_choose_one_name_lose_nothing(tmp_path: Path) -> None:
    """The name was looked for at the beginning only: both said that they had written, and the later one's rows were
    left.
    """
    folder = tmp_path / "t"

    def batches() -> Iterator[pa.Table]:
        yield ROWS  # of more than a row group: its file is begun when the next ones are asked for
        bs.write_dataset(ROWS.slice(0, 2), folder, file_name="part-{i}.parquet", mode="append")

    with pytest.raises(bs.BloomsealError, match="put a file of this name there"):
        bs.write_dataset(batches(), folder, file_name="part-{i}.parquet", row_group_size=1)
    assert bs.read_table(folder).num_rows == 2


_fork = multiprocessing.get_context("fork")


def test_writers_that_make_one_folder_at_once(tmp_path: Path) -> None:
    """One of them found it missing, and then there."""
    for number in range(20):
        folder, start = tmp_path / f"{number}" / "t", _fork.Barrier(2)

        def write(folder: Path = folder, start: Any = start) -> None:
            start.wait(60)
            bs.write_dataset(ROWS, folder, mode="append")

        children = [_fork.Process(target=write) for _ in range(2)]
        for child in children:
            child.start()
        for child in children:
            child.join(60)
        assert [child.exitcode for child in children] == [0, 0]
        assert bs.read_table(folder).num_rows == 2 * len(ROWS)


class BoomError(Exception):
    """The user's own."""


@pytest.mark.parametrize("existing", ["append", "overwrite"])
def test_a_failure_drops_what_has_no_name_and_tells_what_has(existing: Any, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    bs.write_dataset(ROWS, folder, partition_by=["country"])
    before = files(folder)
    new = ROWS.set_column(1, "country", pa.array([f"N{i % 6}" for i in range(600)]))

    def batches(last: Any) -> Iterator[Any]:
        yield new
        if isinstance(last, Exception):
            raise last
        yield last

    for last, kind in ((BoomError(), BoomError), (ROWS.select(["id"]), bs.UsageError)):
        with pytest.raises(kind) as caught:
            bs.write_dataset(
                batches(last), folder, partition_by=["country"], rows_per_file=75, mode=existing, row_group_size=10
            )
        told = "".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
        placed = sorted(set(files(folder)) - set(before))
        assert len(placed) == 6
        assert f"{6} new files had been placed" in told
        assert all(name in told for name in placed)
        assert set(before) < set(files(folder))
        assert not list(folder.rglob("*.bloomseal-tmp"))
        for name in placed:
            (folder / name).unlink()
        assert by_pyarrow(folder).num_rows == 600


def test_a_failure_at_once_leaves_no_folder(tmp_path: Path) -> None:
    def batches() -> Iterator[pa.Table]:
        yield ROWS
        raise BoomError

    with pytest.raises(BoomError):
        bs.write_dataset(batches(), tmp_path / "t", partition_by=["country"], row_group_size=10)
    assert list(tmp_path.iterdir()) == []


def test_no_link_leads_out_of_the_folder(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "t", tmp_path / "elsewhere"
    bs.write_dataset(ROWS, elsewhere)
    folder.mkdir()
    (folder / "country=DE").symlink_to(elsewhere)
    with pytest.raises(bs.UsageError, match="link"):
        bs.write_dataset(ROWS, folder, partition_by=["country"], mode="overwrite")
    with pytest.raises(bs.UsageError, match="link"):
        bs.write_dataset(ROWS, folder, partition_by=["country"], mode="append")
    assert len(files(elsewhere)) == 1
    (folder / "country=DE").unlink()
    (name,) = files(elsewhere)
    (folder / "a.parquet").symlink_to(elsewhere / name)
    bs.write_dataset(ROWS, folder, mode="overwrite")
    assert not (folder / "a.parquet").exists()
    assert files(elsewhere) == [name]


def test_a_folder_exchanged_for_a_link_meanwhile_loses_nothing_elsewhere(tmp_path: Path) -> None:
    """Whoever may write to the table's folder must not have us remove files of ours in another one."""
    folder, elsewhere = tmp_path / "t", tmp_path / "elsewhere"
    bs.write_dataset(ROWS, folder, partition_by=["country"], file_name="part-{i}.parquet")

    def batches() -> Iterator[pa.Table]:
        yield ROWS
        (folder / "country=DE").rename(elsewhere)
        (folder / "country=DE").symlink_to(elsewhere)

    with pytest.raises(bs.BloomsealError, match="remove the old file"):
        bs.write_dataset(batches(), folder, mode="overwrite")
    assert files(elsewhere) == ["part-0.parquet"]


def test_an_old_file_that_somebody_exchanged_stays(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    (old,) = bs.write_dataset(ROWS, folder).files

    def batches() -> Iterator[pa.Table]:
        yield ROWS
        bs.write_table(ROWS.slice(0, 3), old["path"])

    report = bs.write_dataset(batches(), folder, mode="overwrite")
    assert report.kept == [old["path"]]
    assert report.removed == []
    assert bs.read_table(old["path"]).num_rows == 3


@pytest.mark.parametrize("log", ["_delta_log/00000000000000000000.json", ".hoodie/x", "metadata/v1.metadata.json"])
@pytest.mark.parametrize("existing", ["error", "append", "overwrite"])
def test_a_table_with_a_log_is_left_alone(log: str, existing: Any, tmp_path: Path) -> None:
    path = tmp_path / "t" / log
    path.parent.mkdir(parents=True)
    path.write_bytes(b"{}")
    with pytest.raises(bs.BloomsealError, match=r"log|holds files"):
        bs.write_dataset(ROWS, tmp_path / "t", mode=existing)
    assert files(tmp_path / "t") == [log]


def test_fsspec_folders(ring: bs.Keyring) -> None:
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    policy = TablePolicy(
        "t", ring, "k", aad_prefix="{table}/{path}/", store_aad_prefix=False, partition_by=("country",)
    )
    first = bs.write_dataset(ROWS, "memory://people", encryption=policy, partition_by=["country"])
    with pytest.raises(bs.UsageError, match="holds files"):
        bs.write_dataset(ROWS, "memory://people")
    again = bs.write_dataset(
        ROWS, "/people", filesystem=memory, encryption=policy, partition_by=["country"], mode="overwrite"
    )
    assert sorted(again.removed) == sorted(one["path"] for one in first.files)
    found = bs.read_table("memory://people", columns=["id", "ssn"], decryption=policy.at("memory://people"))
    assert found.sort_by("id").equals(ROWS.drop_columns("country"))


@pytest.mark.parametrize(
    ("texts", "warned"),
    [
        (["07495", "10115"], "'07495' for 7495"),
        (["1.50", "2"], "'1.50' for 1.5"),
        (["7495", "10115"], None),
        (["07495", "a"], None),
        (["x y", None], None),
    ],
)
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())], ids=str)
def test_texts_that_readers_take_for_something_else(
    tmp_path: Path, texts: list[Any], warned: str | None, kind: pa.DataType
) -> None:
    rows = pa.table({"id": range(len(texts)), "zip": pa.array(texts, pa.string()).cast(kind)})
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        bs.write_dataset(rows, tmp_path / "t", partition_by=["zip"])
    assert [type(one.message) for one in told] == [bs.BloomsealWarning] * (warned is not None)
    assert warned is None or (warned in str(told[0].message) and "column zip" in str(told[0].message))
    found = bs.open_table(tmp_path / "t", partition_types=pa.schema([("zip", pa.string())])).read()
    assert sorted(map(str, found["zip"].to_pylist())) == sorted(map(str, texts))
