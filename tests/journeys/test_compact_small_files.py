"""A table of many small files becomes one of few: every row and every null is there, before, after, and killed between.

`SealedTable.compact` and ``bloomseal compact``; docs/compact.md.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

import bloomseal as bs
from bloomseal.rotation import Rekey, Seal, compaction, local, rotate

FILES, ROWS = 60, 40
POLICY = """
version = 1
kms = "keyring:keys.json"
[tables.people]
footer_key = "footer"
aad_prefix = "{table}/{path}/"
store_aad_prefix = false
[tables.people.columns.ssn]
key = "pii"
filter = { fpp = 0.001 }
index = true
"""
SIZE = 100_000


def rows_of(number: int) -> pa.Table:
    ids = range(number * ROWS, (number + 1) * ROWS)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "ssn": [None if i % 7 == 0 else f"{7919 * i % 100_003:09d}" for i in ids],
            "tags": pa.array([None if i % 5 == 0 else [f"t{i}"] * (i % 3) for i in ids], pa.list_(pa.string())),
            "cents": pa.array([None if i % 3 == 0 else Decimal(i) / 100 for i in ids], pa.decimal128(9, 2)),
        }
    )


def policy_of(place: Path) -> Any:
    policy = bs.Policy.load(place / "policy.toml", kms=bs.Keyring(place / "keys.json"))
    return policy.for_table("people", root=place / "lake")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("small")
    keyring = bs.Keyring(place / "keys.json", create=True)
    keyring.create("footer")
    keyring.create("pii")
    (place / "policy.toml").write_text(POLICY)
    policy = policy_of(place)
    for number in range(FILES):
        folder = place / "lake" / f"country={'DE' if number % 2 else 'FR'}"
        folder.mkdir(parents=True, exist_ok=True)
        bs.write_table(rows_of(number), folder / f"2026-{number:03d}.parquet", encryption=policy, row_group_size=20)
    return place


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy = tmp_path / "copy"
    shutil.copytree(made, copy)
    monkeypatch.chdir(copy)
    return copy


def opened(place: Path, **options: Any) -> Any:
    return bs.open_table(place / "lake", decryption=policy_of(place), **options)


def files_in(place: Path) -> list[str]:
    return sorted(str(path.relative_to(place)) for path in (place / "lake").rglob("*") if path.is_file())


def data_in(place: Path) -> list[str]:
    return [name for name in files_in(place) if name.endswith(".parquet") and "_bloomseal" not in name]


def times(rows: pa.Table) -> Counter[str]:
    return Counter(json.dumps(row, default=str) for row in rows.to_pylist())


def compacted(place: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bloomseal", "compact", "lake", "--policy", "policy.toml", "--table", "people",
               "--target-size", "100kB", "--format", "json", *options]  # fmt: skip
    return subprocess.run(command, cwd=place, env=os.environ | environment, capture_output=True, text=True, check=False)


def looked_up(place: Path, *numbers: int) -> None:
    """By the index, by filters, and a value that is nowhere."""
    for use in ("require", "never"):
        table = opened(place, use_index=use)
        for number in numbers:
            found = table.read(["id", "country"], where=[("ssn", "==", f"{7919 * number % 100_003:09d}")])
            assert found.to_pylist() == [{"id": number, "country": "DE" if number // ROWS % 2 else "FR"}]
        assert table.read(where=[("ssn", "==", "nobody")]).num_rows == 0
        assert table.read(where=pc.field("ssn").is_null()).num_rows == -(-FILES * ROWS // 7)


def test_sixty_files_become_few(place: Path) -> None:
    opened(place).index("ssn").build()
    before, names = opened(place).read(), files_in(place)
    with opened(place).open(0) as file:
        small = file.filter(0, "ssn").num_bytes
    dry = opened(place).compact(target_size=SIZE, dry_run=True)
    assert (files_in(place), dry.ok, dry.dry_run) == (names, True, True)
    done = compacted(place)
    assert (done.returncode, done.stderr.count("Warning")) == (0, 0)
    told = json.loads(done.stdout)
    assert [one["files"] for one in told["files"]] == [
        [str(Path(path).relative_to(place)) for path in one["files"]] for one in dry.files
    ]
    assert sum(one["rows"] for one in told["files"]) == FILES * ROWS
    assert (told["ok"], told["left"], told["failed"], told["kept"]) == (True, {}, {}, [])
    assert len(data_in(place)) == len(told["files"]) < FILES / 5
    after = opened(place).read()
    assert after.equals(before)  # the rows of a folder in the order of its files
    assert after.schema.equals(before.schema)
    assert opened(place).verify(filters=True).ok
    index = opened(place).index("ssn")
    assert (index.check().ok, index.show().covered, len(index.show().runs)) == (True, len(told["files"]), 1)
    assert index.show().entries == sum(i % 7 != 0 for i in range(FILES * ROWS))
    looked_up(place, 1, 5 * ROWS + 4, FILES * ROWS - 1)
    with opened(place).open(0) as file:
        assert file.num_row_groups == 1
        assert file.filter(0, "ssn").num_bytes >= 8 * small
    again = opened(place).compact(target_size=SIZE)
    assert len(again.files) < len(told["files"])


def test_files_of_three_writers_become_three(tmp_path: Path) -> None:
    """Each writer's own: what they store of Arrow's types differs."""
    ring = bs.Keyring(tmp_path / "keys.json", create=True)
    for name in ("footer", "pii"):
        ring.create(name)
    (tmp_path / "policy.toml").write_text(POLICY)
    policy, lake = policy_of(tmp_path), tmp_path / "lake"
    lake.mkdir()
    rows = pa.table({"id": [1, 2], "ssn": ["a", "b"], "born": [date(2000, 1, 2)] * 2, "cents": [Decimal("1.25")] * 2})
    for number in range(2):
        pd.DataFrame(rows.to_pydict()).to_parquet(lake / f"pandas{number}.parquet")
        pl.DataFrame(rows).write_parquet(lake / f"polars{number}.parquet")
        with duckdb.connect() as connection:
            connection.from_arrow(rows).write_parquet(str(lake / f"duckdb{number}.parquet"))
    assert rotate(lake, Seal(policy), journal=tmp_path / "journal").ok
    before = opened(tmp_path).read().sort_by("id")
    report = opened(tmp_path).compact()
    assert (len(report.files), report.left) == (3, {})
    assert opened(tmp_path).read().sort_by("id").equals(before)


@pytest.mark.parametrize("point", ["checked", "compact placed", "compact removed", "index before manifest"])
def test_killed_and_run_again(place: Path, point: str) -> None:
    opened(place).index("ssn").build()
    before = opened(place).read()
    killed = compacted(place, BLOOMSEAL_FAULT_POINT=point)
    assert killed.returncode == -signal.SIGKILL
    # No row is missing at any instant; between the new file and the end of the old ones some are there twice.
    meanwhile = times(opened(place).read())
    assert meanwhile.keys() == times(before).keys()
    assert (max(meanwhile.values()) == 2) == point.startswith("compact")
    assert opened(place).read(where=[("ssn", "==", f"{7919:09d}")]).num_rows >= 1
    if point.startswith("compact"):  # nobody could tell any more which rows are there twice
        with pytest.raises(bs.UsageError, match="a compaction was killed"):
            rotate(place / "lake", Rekey(policy_of(place)), journal=place / "rekey.jsonl")
        with pytest.raises(bs.UsageError, match="a compaction was killed"):
            opened(place).erase([("id", "==", 1)])
    report = opened(place).compact(target_size=SIZE)
    assert (report.ok, bool(report.finished)) == (True, point.startswith("compact"))
    assert opened(place).read().equals(before)
    assert not [name for name in files_in(place) if name.endswith("bloomseal-tmp")]
    looked_up(place, 1, FILES * ROWS - 1)


def test_a_rotation_that_had_begun_leaves_the_files_of_a_compaction_that_is_killed(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under a new identity nobody could tell any more that their rows are in the new file, too."""
    look = local.need_compacted

    def late(*arguments: Any) -> None:
        look(*arguments)
        monkeypatch.setattr(local, "tidy", lambda _: None)  # it has been there already
        assert compacted(place, BLOOMSEAL_FAULT_POINT="compact placed").returncode == -signal.SIGKILL

    monkeypatch.setattr(local, "need_compacted", late)
    report = rotate(place / "lake", Rekey(policy_of(place)), journal=place / "journal")
    assert not report.ok
    monkeypatch.undo()
    monkeypatch.chdir(place)
    assert compacted(place).returncode == 0
    assert opened(place).read().num_rows == FILES * ROWS


def test_a_compaction_that_had_begun_leaves_the_files_of_another_that_is_killed(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = compaction._Compaction._groups

    def late(*arguments: Any) -> Any:
        assert compacted(place, BLOOMSEAL_FAULT_POINT="compact placed").returncode == -signal.SIGKILL
        return groups(*arguments)

    monkeypatch.setattr(compaction._Compaction, "_groups", late)
    assert not opened(place).compact(target_size=SIZE).ok
    monkeypatch.undo()
    monkeypatch.chdir(place)
    assert compacted(place).returncode == 0
    assert opened(place).read().num_rows == FILES * ROWS


def test_in_a_store_a_file_that_was_exchanged_since_the_look_stays(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compacted(place, BLOOMSEAL_FAULT_POINT="compact placed").returncode == -signal.SIGKILL
    first, policy = min((place / "lake" / "country=DE").glob("2026-???.parquet")), policy_of(place)
    groups = compaction._Compaction._groups

    def late(*arguments: Any) -> Any:
        bs.write_table(rows_of(FILES).slice(1), first, encryption=policy)
        return groups(*arguments)

    monkeypatch.setattr(compaction._Compaction, "_groups", late)
    store = pyarrow.fs.SubTreeFileSystem("/", pyarrow.fs.LocalFileSystem())
    report = bs.open_table(str(place / "lake"), filesystem=store, decryption=policy).compact(target_size=1000)
    assert [Path(one).name for one in report.kept] == [first.name]
    assert bs.read_table(first, decryption=policy).num_rows == ROWS - 1


def test_a_key_that_is_missing_is_told_before_a_file_is_touched(place: Path) -> None:
    names = files_in(place)
    bs.Keyring(place / "keys.json").disable("pii")
    for dry_run in (True, False):
        with pytest.raises(bs.KeyAccessError, match="disabled"):
            opened(place).compact(dry_run=dry_run)
    told = compacted(place)
    assert (told.returncode, json.loads(told.stderr)["column"]) == (2, "ssn")
    assert "disabled" in told.stderr
    assert files_in(place) == names


def plain_folder(place: Path, files: dict[str, pa.Table], keys: dict[str, str], **options: Any) -> tuple[Path, Any]:
    """A folder without a policy, sealed as `keys` has it, and what opens it."""
    folder, ring = place / "other", bs.Keyring(place / "keys.json")
    folder.mkdir(exist_ok=True)
    spec = bs.EncryptionSpec(footer_key="footer", column_keys=keys, keys=ring)
    for name, rows in files.items():
        bs.write_table(rows, folder / name, encryption=spec, **options)
    return folder, bs.DecryptionSpec(ring)


def facts_of(file: Any) -> tuple[Any, ...]:
    """Columns, and per column the codec and the master key."""
    keys = file.walk.keys.wrapped_by
    chunks = list(file.walk.chunks(0))
    codecs = [file.walk.meta(chunk).codec for chunk in chunks]
    return file.leaves.leaves, codecs, [chunk.encrypted and keys(chunk.key_metadata).master_key for chunk in chunks]


def test_without_a_policy_the_master_keys_of_the_files_seal_the_new_one(place: Path) -> None:
    made = {"use_deprecated_int96_timestamps": True, "store_decimal_as_integer": True, "compression": "zstd"}
    moments = pa.array([None, *range(1, ROWS)], pa.timestamp("ns"))
    rows = [rows_of(number).drop_columns("tags").append_column("at", moments) for number in range(3)]
    files = {f"{number}.parquet": one for number, one in enumerate(rows)}
    folder, decryption = plain_folder(place, files, {"ssn": "pii"}, bloom_filters=["ssn"], **made)
    before = bs.read_table(folder, decryption=decryption)
    with bs.open_file(folder / "0.parquet", decryption=decryption) as file:
        old = facts_of(file)
    report = bs.open_table(folder, decryption=decryption).compact()
    assert (report.ok, len(report.files), report.left) == (True, 1, {})
    assert bs.read_table(folder, decryption=decryption).equals(before)
    assert before.equals(pa.concat_tables(rows))
    with bs.open_file(report.files[0]["output"], decryption=decryption) as file:
        assert facts_of(file) == old
        assert file.filter(0, "ssn") is not None
    assert {str(leaf.type).split()[0] for leaf in old[0]} >= {"INT32", "INT96"}


def test_what_does_not_agree_is_left(place: Path) -> None:
    rows = rows_of(0).select(["id", "ssn"])
    other = rows.set_column(0, "id", rows.column("id").cast(pa.int32()))
    required = rows.cast(pa.schema([pa.field("id", pa.int64(), nullable=False), rows.schema.field("ssn")]))
    files = {"a.parquet": rows, "b.parquet": other, "c.parquet": required, "d.parquet": rows}
    folder, decryption = plain_folder(place, files, {"ssn": "pii"})
    uniform, _ = plain_folder(place, {"e.parquet": rows, "f.parquet": rows.slice(0, 0)}, {})
    assert uniform == folder
    pq.write_table(rows, folder / "h.parquet")
    decryption = bs.DecryptionSpec(decryption.keys, allow_plaintext=True)
    before = bs.read_table(folder, decryption=decryption)
    report = bs.open_table(folder, decryption=decryption).compact()
    assert [[Path(path).name for path in one["files"]] for one in report.files] == [["a.parquet", "d.parquet"]]
    assert {Path(path).name: why.split(",")[0].split(":")[0] for path, why in report.left.items()} == {
        "f.parquet": "without rows", "h.parquet": "in plaintext",
    }  # fmt: skip
    assert times(bs.read_table(folder, decryption=decryption)) == times(before)


def test_a_large_file_stays_and_a_file_changed_meanwhile_loses_nothing(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = opened(place).read()
    assert opened(place).compact(target_size=2).files == []
    take_turn, policy = compaction._take_turn, policy_of(place)

    def later(turn: Any, group: Any) -> None:
        monkeypatch.undo()
        assert rotate(group[3].ref.path, Rekey(policy), journal=place / "journal").ok
        take_turn(turn, group)

    monkeypatch.setattr(compaction, "_take_turn", later)
    report = opened(place).compact(target_size=SIZE)
    assert (report.ok, len(report.failed)) == (False, 1)
    assert "changed by someone else" in next(iter(report.failed.values()))
    assert opened(place).read().equals(before)


def test_links_are_left(place: Path) -> None:
    """Whoever may write to the table's folder chooses no file elsewhere that goes."""
    other = place / "elsewhere"
    (place / "lake" / "country=DE").rename(other)
    (place / "lake" / "country=DE").symlink_to(other)
    names = sorted(other.iterdir())
    first = sorted((place / "lake" / "country=FR").iterdir())[0]
    first.rename(place / "x.parquet")
    first.symlink_to(place / "x.parquet")
    before = times(opened(place, follow_links=True).read())
    report = opened(place, follow_links=True).compact(target_size=10_000_000)
    assert (len(report.files), len(report.failed), report.kept) == (1, 1, [])
    assert report.left == {str(first): "a link, which would lead nowhere"}
    assert times(opened(place, follow_links=True).read()) == before
    assert sorted(other.iterdir()) == names


def test_a_file_that_was_put_back_goes_only_where_its_rows_are(place: Path) -> None:
    names = data_in(place)
    kept = {name: (place / name).read_bytes() for name in names[:2]}
    report = opened(place).compact(target_size=10_000_000)
    for name, data in kept.items():
        (place / name).write_bytes(data)
    assert opened(place).compact(target_size=10_000_000, dry_run=True).finished == [str(place / name) for name in kept]
    # Somebody has taken rows out of the new file since: the old one holds what is nowhere else.
    new = Path(report.files[0]["output"])
    table = bs.read_table(new, decryption=policy_of(place))
    bs.write_table(table.slice(1), new, encryption=policy_of(place))
    again = opened(place).compact(target_size=10_000_000)
    assert (again.finished, opened(place).read().num_rows) == ([], FILES * ROWS - 1 + 2 * ROWS)


def test_a_plaintext_file_that_names_others_has_none_removed_once_it_is_sealed(place: Path) -> None:
    """Names and identities of files are no secret: whoever may write to the folder could have any of them removed."""
    first = place / data_in(place)[0]
    with bs.open_file(first, decryption=policy_of(place)) as file:
        record = {"rows": ROWS, "files": {first.name: file.identity.hex()}}
    rows = rows_of(FILES).replace_schema_metadata({"bloomseal.replaces": json.dumps(record)})
    pq.write_table(rows, first.with_name("x-0123456789abcdef.parquet"))
    assert rotate(first.parent, Seal(policy_of(place)), journal=place / "journal").ok
    report = opened(place).compact(target_size=10_000_000)
    assert (report.ok, report.finished) == (True, [])
    assert opened(place).read().num_rows == (FILES + 1) * ROWS


def test_orc_is_left_and_tables_with_a_log_are_refused(place: Path) -> None:
    (place / "orc").mkdir()
    for name in "ab":
        pyarrow.orc.write_table(rows_of(0).select(["id"]), str(place / "orc" / f"{name}.orc"))
    left = bs.open_table(place / "orc").compact().left
    assert [why.split(":")[0] for why in left.values()] == ["ORC", "ORC"]
    from deltalake import write_deltalake

    write_deltalake(str(place / "delta"), rows_of(0))
    with pytest.raises(bs.UnsupportedError, match="log"):
        bs.open_table(place / "delta").compact()


@pytest.mark.torture
def test_two_thousand_files_and_kills_at_any_moment(place: Path) -> None:
    """As above, killed after a random time, again and again, until it is done."""
    import random

    policy, draw = policy_of(place), random.Random(20)
    for number in range(FILES, 2000):
        folder = place / "lake" / f"country={'DE' if number % 2 else 'FR'}"
        bs.write_table(rows_of(number), folder / f"2026-{number:04d}.parquet", encryption=policy)
    opened(place).index("ssn").build()
    before = times(opened(place).read())
    command = [sys.executable, "-m", "bloomseal", "compact", "lake", "--policy", "policy.toml", "--table", "people",
               "--target-size", "300kB"]  # fmt: skip
    for _ in range(20):
        process = subprocess.Popen(command, cwd=place, stdout=subprocess.DEVNULL)
        try:
            assert process.wait(draw.uniform(1, 12)) == 0
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert times(opened(place).read()).keys() == before.keys()
    assert opened(place).compact(target_size=300_000).ok
    assert times(opened(place).read()) == before
    assert len(data_in(place)) < 100
    assert opened(place).index("ssn").check().ok
