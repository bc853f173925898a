"""The sealed index through `SealedTable`: what it rules out, what it must never rule out, and who may not forge it."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import threading
import warnings
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import bloomseal as bs
from bloomseal.index import compact, update
from bloomseal.index.facts.members import Members
from bloomseal.index.facts.sameness import Clock
from bloomseal.index.fingerprint import Fingerprints, bits_for
from bloomseal.index.folder import IndexFolder
from bloomseal.index.runs import shard, sorter
from bloomseal.index.runs.writer import RunWriter, most_places, place_bits_for
from bloomseal.rotation import Rewrap, rotate

KEYS: dict[str, Any] = {"footer_key": b"f" * 16, "column_keys": {"k": b"c" * 16, "s": b"d" * 16}}
ENCRYPTION = bs.EncryptionSpec(**KEYS)
DECRYPTION = bs.DecryptionSpec(bs.ExplicitKeys(**KEYS), partition_by=["country"])


def write(path: Path, rows: pa.Table, **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    named = {name: key for name, key in KEYS["column_keys"].items() if name in rows.column_names}
    spec = bs.EncryptionSpec(footer_key=KEYS["footer_key"], column_keys=named)
    bs.write_table(rows, path, encryption=spec, **{"row_group_size": 10, **options})


def part(number: int, kind: pa.DataType = pa.int64()) -> pa.Table:  # noqa: B008
    """Unordered keys: statistics rule nothing out."""
    ids = [(7 * i + number) % 300 * 100 + number for i in range(30)]
    return pa.table({"k": pa.array(ids, kind), "s": [f"s{i}" for i in ids], "n": range(30)})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "t"
    for number in range(6):
        write(
            root / f"country={'DE' if number % 2 else 'FR'}" / f"{number}.parquet",
            part(number, pa.int32() if number < 3 else pa.int64()),
        )
    opened(root).index("k", encryption=ENCRYPTION).build()
    return root


def opened(root: Path, use_index: Any = "auto", decryption: Any = DECRYPTION) -> bs.SealedTable:
    return bs.open_table(root, decryption=decryption, use_index=use_index)


def same(root: Path, filters: Any, columns: Any = None, *, auto: Any = "auto") -> bs.SealedTable:
    table, scan = opened(root, auto), opened(root, "never")
    wanted = scan.read(columns, filters)
    assert table.read(columns, filters).equals(wanted)
    assert table.stats.row_groups == scan.stats.row_groups
    assert table.scan(columns, filters).read_all().equals(wanted)
    return table


def test_a_look_up_opens_the_file_that_holds_the_value(folder: Path) -> None:
    value = part(2).column("k")[17].as_py()
    table = same(folder, [("k", "==", value)], auto="require")
    assert (table.stats.files_unopened, table.stats.decoded, table.stats.rows) == (5, 1, 1)
    assert table.stats.pruned_by_index == 17
    assert same(folder, [("k", "==", -1)], auto="require").stats.files_unopened == 6
    assert same(folder, [("k", "in", [value, -1]), ("n", "<", 5)]).stats.files_unopened == 5
    assert same(folder, [("k", "in", [])]).stats.files_unopened == 6


def test_conditions_of_every_form_are_narrowed_and_exact(folder: Path) -> None:
    a, b = part(1).column("k")[3].as_py(), part(4).column("k")[29].as_py()
    assert same(folder, [[("k", "==", a)], [("k", "==", b)]]).stats.files_unopened == 4
    assert same(folder, (pc.field("k") == a) | (pc.field("k") == b)).stats.files_unopened == 4
    joined = [[("k", "==", a), ("n", "<", 99)], [("k", "==", b), ("n", "<", 99)]]
    assert (same(folder, joined).stats.rows, same(folder, joined).stats.files_unopened) == (2, 4)
    # What folders' names say differs from file to file, and so does what is left to ask the index.
    either = [[("country", "==", "DE"), ("k", "==", a)], [("country", "==", "FR"), ("k", "==", b)]]
    assert same(folder, either).stats.rows == 2
    crossed = [[("country", "==", "FR"), ("k", "==", a)], [("country", "==", "DE"), ("k", "==", b)]]
    assert same(folder, crossed).stats.rows == 0
    assert same(folder, [[("k", "==", a)], [("n", "==", 3)]]).stats.files_unopened == 0
    assert same(folder, ~(pc.field("k") == a)).stats.files_unopened == 0
    with pytest.raises(bs.UsageError, match="no such column"):
        opened(folder).read(where=[("k", "==", -1), ("nope", "==", 1)])
    with pytest.raises(bs.UsageError):
        opened(folder).read(where=[("k", "==", "text")])
    with pytest.raises(bs.UsageError, match="no such column"):
        opened(folder).read(["nope"], [("k", "==", -1)])


@pytest.mark.parametrize(
    ("kinds", "value"),
    [
        ((pa.float32(), pa.float64()), lambda i: i / 10),
        ((pa.timestamp("ms"), pa.timestamp("us")), lambda i: datetime(2000, 1, 1) + timedelta(seconds=i)),
    ],
    ids=["floats", "moments"],
)
def test_a_value_means_the_same_in_files_of_other_types(tmp_path: Path, kinds: Any, value: Any) -> None:
    """Where files differ in what a value means, it is bound to the table's type after the index was first asked."""
    for number in range(4):
        made = pa.array([value((7 * i + number) % 30 * 4 + number) for i in range(30)], kinds[number % 2])
        write(tmp_path / "t" / f"{number}.parquet", pa.table({"k": made, "n": range(30)}))
    opened(tmp_path / "t").index("k", encryption=ENCRYPTION).build()
    found = 0
    for i in range(0, 124, 3):
        found += same(tmp_path / "t", [("k", "==", value(i))], auto="require").stats.rows
        same(tmp_path / "t", [("k", "in", [value(i), value(i + 1)]), ("n", "<", 20)], auto="require")
        same(tmp_path / "t", pc.field("k") == pa.scalar(value(i)))
    assert found >= 20


def test_probes_ask_the_index(folder: Path) -> None:
    values = [part(2).column("k")[0].as_py(), -5, part(5).column("k")[29].as_py()]
    table = opened(folder, "require")
    maybe = table.maybe_present("k", values)
    numbers = [int(Path(path).stem) for path in table.files]
    assert {(numbers[i], j) for i, j in zip(*np.nonzero(maybe), strict=True)} == {(2, 0), (5, 2)}
    verdicts = table.probe("k", values)
    assert all(len(groups) == 3 for groups in verdicts.values())
    (two,) = [groups for path, groups in verdicts.items() if path.endswith("/2.parquet")]
    assert [[str(one) for one in group] for group in two] == [
        ["maybe present", "absent", "absent"], ["absent"] * 3, ["absent"] * 3
    ]  # fmt: skip
    with pytest.raises(bs.UsageError):
        table.probe("k", ["text"])


def test_two_indexes_work_together(folder: Path) -> None:
    opened(folder).index("s", encryption=ENCRYPTION).build(pad=True)
    row = part(3).slice(11, 1).to_pylist()[0]
    other = part(1).slice(0, 1).to_pylist()[0]
    assert same(folder, [("k", "==", row["k"]), ("s", "==", row["s"])]).stats.rows == 1
    assert same(folder, [("k", "==", row["k"]), ("s", "==", other["s"])]).stats.files_unopened == 6
    write(folder / "country=DE" / "9.parquet", part(3))
    opened(folder).index("s", encryption=ENCRYPTION).update()
    table = same(folder, [("k", "==", row["k"]), ("s", "==", row["s"])])
    assert (table.stats.rows, table.stats.files_unopened) == (2, 5)


def test_a_padded_index_tells_no_number_of_distinct_values(tmp_path: Path) -> None:
    """Of as many entries as they are: equal fingerprints pack better."""
    sizes: dict[bool, list[int]] = {False: [], True: []}
    for distinct in (2_048, 8_192, 65_536):
        root = tmp_path / str(distinct)
        values = np.arange(65_536) % distinct
        write(root / "0.parquet", pa.table({"k": values.astype(np.int64)}), row_group_size=2_048)
        for pad, found in sizes.items():
            index = opened(root).index("k", encryption=ENCRYPTION)
            index.build(pad=pad)
            (run,) = root.rglob("run-*.parquet")
            found.append(run.stat().st_size)
            same(root, [("k", "==", 7)], auto="require")
            opened(root).index("k", encryption=ENCRYPTION).drop()
    assert len(set(sizes[False])) == 3, "else this test sees nothing"
    assert len(set(sizes[True])) == 1
    assert 65_536 * 8 < sizes[True][0] < 65_536 * 8 * 1.02


@pytest.mark.parametrize("kind", ["float32", "float64", "decimal", "nested", "binary", "date"])
def test_types(tmp_path: Path, kind: str) -> None:
    root = tmp_path / "t"
    ints = [[3, 1, 4], [1, 5, 9], [2, 6, 0]]
    make: dict[str, Any] = {
        "float32": lambda v: pa.array([float(i) * -0.0 if i == 0 else i / 10 for i in v], pa.float32()),
        "float64": lambda v: pa.array([float("nan") if i == 9 else float(i) for i in v]),
        "decimal": lambda v: pa.array([Decimal(i) / 4 for i in v], pa.decimal128(9, 2)),
        "nested": lambda v: pa.array([{"x": i} for i in v]),
        "binary": lambda v: pa.array([bytes([i]) for i in v]),
        "date": lambda v: pa.array(v, pa.date32()),
    }
    column = "k.x" if kind == "nested" else "k"
    for number, values in enumerate(ints):
        write(root / f"{number}.parquet", pa.table({"k": make[kind](values), "n": values}))
    report = opened(root).index(column, encryption=ENCRYPTION).build()
    assert report.ok
    assert opened(root).index(column).check().values == 9
    for value in [*make[kind]([0, 1, 2, 6, 7, 9]).to_pylist(), *([0.0, 0.1] if kind.startswith("f") else [])]:
        asked = value["x"] if kind == "nested" else value
        same(root, [(column, "==", asked)], auto="require")


def test_list_elements_are_probed(tmp_path: Path) -> None:
    root = tmp_path / "t"
    for number in range(3):
        write(root / f"{number}.parquet", pa.table({"k": [[number, 7], [], None, [number * 10]]}))
    leaf = bs.open_file(root / "0.parquet", decryption=DECRYPTION).columns[0]
    opened(root).index(leaf, encryption=ENCRYPTION).build()
    assert opened(root, "require").maybe_present("k", [2, 7, 10, 11]).tolist() == [
        [False, True, False, False], [False, True, True, False], [True, True, False, False]
    ]  # fmt: skip


def test_another_file_under_the_same_name_is_not_ruled_out(folder: Path) -> None:
    """Same size, same times, another inode; then the same inode, written over."""
    path, found = folder / "country=DE" / "1.parquet", 123456
    rows = part(1)
    for _ in range(2):
        before = path.stat()
        write(path, rows.set_column(0, "k", pa.array([found] * 30, pa.int32())))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert same(folder, [("k", "==", found)]).stats.rows == 30
        opened(folder).index("k", encryption=ENCRYPTION).update()
        other = folder.parent / "other.parquet"
        found += 1
        write(other, rows.set_column(0, "k", pa.array([found] * 30, pa.int32())))
        before = path.stat()
        with path.open("r+b") as file:
            file.truncate(0)
            file.write(other.read_bytes())
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert same(folder, [("k", "==", found)]).stats.rows == 30
        opened(folder).index("k", encryption=ENCRYPTION).update()
        found += 1


def test_a_file_exchanged_after_the_index_was_asked_is_read_as_a_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, value = folder / "country=FR" / "2.parquet", part(2).column("k")[0].as_py()
    table = opened(folder)
    plain = table._parts.__class__.open

    def late(parts: Any, number: int) -> Any:
        if parts.files[number].ref.path == str(path) and not late.done:  # type: ignore[attr-defined]
            late.done = True  # type: ignore[attr-defined]
            write(path, part(2).set_column(0, "k", pa.array([0] * 29 + [value], pa.int32())))
        return plain(parts, number)

    late.done = False  # type: ignore[attr-defined]
    monkeypatch.setattr(table._parts.__class__, "open", late)
    assert table.read(where=[("k", "==", value)]).column("n").to_pylist() == [29]


def test_attached_filters_and_wrapped_keys_are_not_hashed_again(tmp_path: Path) -> None:
    ring = bs.Keyring(tmp_path / "keys.json", create=True)
    for name in ("footer", "pii"):
        ring.create(name)
    policy = bs.Policy.from_dict(
        {
            "version": 1,
            "tables": {"t": {"footer_key": "footer", "aad_prefix": "{table}/{path}/", "store_aad_prefix": False,
                             "columns": {"k": {"key": "pii", "index": {"pad": True}}}}},
        },
        kms=ring,
    ).for_table("t")  # fmt: skip
    root = tmp_path / "lake"
    report = bs.write_dataset(part(0), root, encryption=policy, rows_per_file=10)
    assert report.indexes["k"].covered == 3
    assert bs.write_dataset(part(1), root, encryption=policy, mode="append").indexes["k"].hashed == 1
    index = opened(root, decryption=policy).index("k")
    bs.attach_filters(root, ["k"], decryption=policy)
    assert index.show().covered == 0
    done = index.update()
    assert (done.refreshed, done.hashed, done.covered) == (4, 0, 4)
    ring.rotate("pii")
    ring.rotate("footer")
    before = bs.audit.may_destroy("pii", "1", root, keys=ring, policy=policy)
    assert before.answer == "no"
    assert any("_bloomseal_index" in path for path in before.needed_by)
    rotated = rotate(root, Rewrap(policy))
    assert rotated.ok
    assert sum("_bloomseal_index" in str(one) for one in rotated.files) >= 2
    assert rotate(root, Rewrap(policy)).ok
    assert bs.audit.may_destroy("pii", "1", root, keys=ring, policy=policy, after=0).answer == "yes"
    done = opened(root, decryption=policy).index("k").update()
    assert (done.refreshed, done.hashed, done.covered) == (0, 0, 4)  # the rotation has told it
    value = part(1).column("k")[5].as_py()
    table = opened(root, "require", policy)
    assert table.read(where=[("k", "==", value)]).num_rows == 1
    assert table.stats.files_unopened == 3
    assert opened(root, decryption=policy).index("k").check().ok


def test_files_without_row_groups_hide_none(tmp_path: Path) -> None:
    """An empty file bears the base of the file behind it: neither may be taken for the other."""
    root = tmp_path / "t"
    for number in range(4):
        write(root / f"{number}.parquet", part(number).slice(0, 0 if number == 1 else 30))
    opened(root).index("k", encryption=ENCRYPTION).build()
    held = [part(number).column("k")[3].as_py() for number in (0, 2, 3)]

    def all_found() -> None:
        for value in held:
            assert same(root, [("k", "==", value)], auto="require").stats.files_unopened
        assert opened(root).index("k").check().ok

    all_found()
    write(root / "4.parquet", part(4))
    index = opened(root).index("k", encryption=ENCRYPTION)
    index.update()
    assert index.compact(everything=True).entries == 4 * 30
    all_found()
    bs.attach_filters(root / "1.parquet", ["k"], decryption=DECRYPTION)
    assert opened(root).index("k", encryption=ENCRYPTION).update().refreshed == 1
    all_found()


def test_required_where_it_can_not_answer(folder: Path) -> None:
    table = opened(folder, "require")
    with pytest.raises(bs.UsageError, match="covered by none"):
        table.read(where=[("s", "==", "x")])
    assert table.read(["n"]).num_rows == 180
    write(folder / "country=DE" / "7.parquet", part(7))
    with pytest.raises(bs.UsageError, match="1 file covered by none"):
        opened(folder, "require").read(where=[("k", "==", 1)])
    with pytest.raises(bs.UsageError, match="covers 6 of 7 files"):
        opened(folder, "require").probe("k", [1])
    assert same(folder, [("k", "==", part(7).column("k")[0].as_py())]).stats.files_not_covered == 1
    with pytest.raises(bs.UsageError, match="use_index"):
        opened(folder, "always")


def test_a_plaintext_index_or_one_under_the_footer_key_decides_nothing(folder: Path) -> None:
    """Whoever may write to the storage, or has the footer key, puts an index of his own in the place of ours."""
    place = folder / "_bloomseal_index" / "k" / "manifest.parquet"
    with bs.open_file(place, decryption=DECRYPTION) as file:
        values = file.read()
    value = part(2).column("k")[0].as_py()
    lax = bs.DecryptionSpec(bs.ExplicitKeys(**KEYS), allow_plaintext=True)
    uniform = bs.DecryptionSpec(
        bs.ExplicitKeys(footer_key=KEYS["footer_key"], column_keys=KEYS["column_keys"]), partition_by=["country"]
    )
    for forged, decryption in ((None, lax), (bs.EncryptionSpec(footer_key=KEYS["footer_key"]), uniform)):
        bs.write_table(values, place, encryption=forged)
        with pytest.warns(bs.BloomsealWarning, match="can't be used"):
            assert opened(folder, decryption=decryption).read(where=[("k", "==", value)]).num_rows == 1
        with pytest.raises(bs.BloomsealError):
            opened(folder, "require", decryption).read(where=[("k", "==", value)])


def test_one_run_in_the_place_of_another(tmp_path: Path) -> None:
    """Both authenticate under the same key, and have as many entries: only the manifest tells them apart."""
    root = tmp_path / "t"
    write(root / "0.parquet", part(0))
    opened(root).index("k", encryption=ENCRYPTION).build()
    write(root / "1.parquet", part(1))
    index = opened(root).index("k", encryption=ENCRYPTION)
    manifest = index.manifest()
    wanted = index.uncovered()
    report = update.update(index.folder, manifest, index.files, wanted, fresh=False)
    assert report.runs == 2
    one, other = sorted((root / "_bloomseal_index" / "k").glob("run-*"))
    shutil.copy(one, other)
    values = [part(number).column("k")[0].as_py() for number in (0, 1)]
    for value in values:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bs.BloomsealWarning)
            same(root, [("k", "==", value)])
    with pytest.raises(bs.IntegrityError, match="not the one that its manifest names"):
        # One of them is in the run that is gone; a value beyond another run's bounds does not open that.
        [opened(root, "require").read(where=[("k", "==", value)]) for value in values]
    assert opened(root).index("k", encryption=ENCRYPTION).rebuild().ok
    same(root, [("k", "==", values[1])], auto="require")


def test_the_manifest_of_another_column_is_refused(folder: Path) -> None:
    opened(folder).index("s", encryption=ENCRYPTION).build()
    base = folder / "_bloomseal_index"
    shutil.rmtree(base / "k")
    shutil.copytree(base / "s", base / "k")
    with pytest.warns(bs.BloomsealWarning, match="another column"):
        assert opened(folder).read(where=[("k", "==", part(0).column("k")[0].as_py())]).num_rows == 1


def test_a_reader_of_a_run_that_was_compacted_away_loads_the_manifest_once_more(folder: Path) -> None:
    table = opened(folder, "require")
    value = part(2).column("k")[0].as_py()
    index = opened(folder).index("k", encryption=ENCRYPTION)
    manifest = index.manifest()
    held = table._indexes.held(["k"], table._indexes.states())  # loaded, no run opened yet
    assert held
    index.compact(everything=True)
    assert not any((folder / "_bloomseal_index" / "k" / name).exists() for name in manifest.files)
    assert held[0].coverage.docs.min() >= 0
    assert table.read(where=[("k", "==", value)]).num_rows == 1


def test_a_compaction_drops_what_is_about_files_that_are_gone(folder: Path) -> None:
    """Of one run, too, which there is nothing to merge with; and of files that were written anew."""
    index = opened(folder).index("k", encryption=ENCRYPTION)
    before = index.manifest()
    files = sorted((folder / "country=DE").iterdir())
    files[0].unlink()
    write(files[1], part(9))
    index = opened(folder).index("k", encryption=ENCRYPTION)
    assert (index.update().runs, index.show().entries) == (2, before.entries + 30)
    done = index.compact()
    assert (done.merged, done.runs, index.show().entries, done.entries) == (1, 2, 5 * 30, 4 * 30)
    # Whoever has the manifest of before has its data keys: the runs themselves are gone.
    left = {path.name for path in (folder / "_bloomseal_index" / "k").iterdir()}
    assert left == index.manifest().files | {"manifest.parquet"}
    assert (index.compact().merged, index.compact().merged) == (2, 0)  # of like size by now
    assert index.check().ok
    for path in folder.glob("country=*/*.parquet"):
        path.unlink()
    write(folder / "country=DE" / "7.parquet", part(7).slice(0, 0))
    index = opened(folder).index("k", encryption=ENCRYPTION)
    index.compact()
    assert index.show().entries == 0


def test_who_loses_the_race_to_compact_says_nothing_is_left_to_do(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = opened(folder).index("k", encryption=ENCRYPTION)
    written = compact.Merge.written

    def later(merge: compact.Merge, *given: Any, **more: Any) -> Any:
        monkeypatch.undo()
        assert index.compact(everything=True).merged == 1
        return written(merge, *given, **more)

    monkeypatch.setattr(compact.Merge, "written", later)
    assert index.compact(everything=True).merged == 0
    assert index.check().ok
    # A run that is lost is an error.
    assert index.folder.remove(min(index.manifest().files))
    with pytest.raises(bs.BloomsealError, match="No such file"):
        index.compact(everything=True)


def test_two_updaters_at_once_lose_nothing(folder: Path) -> None:
    index = [opened(folder).index("k", encryption=ENCRYPTION) for _ in range(2)]
    for number in (7, 8, 9, 10):
        write(folder / "country=DE" / f"{number}.parquet", part(number))
    tables = [opened(folder).index("k", encryption=ENCRYPTION) for _ in range(2)]
    whole = tables[0].files
    tables[0].files = Members(whole.root, whole.refs[:6], whole.relative[:6], whole.open)
    threads = [threading.Thread(target=one.update) for one in (*tables, *index)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    opened(folder).index("k", encryption=ENCRYPTION).update()
    facts = opened(folder).index("k").show()
    assert facts.covered == 10
    assert opened(folder).index("k").check().ok


@pytest.mark.parametrize("point", ["index shard", "index run", "index before manifest", "index manifest", "renamed"])
def test_killed_at_any_point_it_is_the_old_index_or_the_new(folder: Path, point: str) -> None:
    write(folder / "country=DE" / "7.parquet", part(7))
    code = (
        "import sys; sys.path[:0] = sys.argv[2:]; import bloomseal as bs; from index.test_index import *;"
        "opened(Path(sys.argv[1])).index('k', encryption=ENCRYPTION).update()"
    )
    paths = [str(Path(__file__).parents[1]), str(Path(bs.__file__).parents[1])]
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder), *paths], env={**os.environ, "BLOOMSEAL_FAULT_POINT": point}
    )
    assert done.returncode == -9
    value = part(7).column("k")[4].as_py()
    assert same(folder, [("k", "==", value)]).stats.rows == 1
    assert opened(folder).index("k", encryption=ENCRYPTION).update().ok
    assert same(folder, [("k", "==", value)], auto="require").stats.files_unopened == 6
    assert opened(folder).index("k").check().ok


def test_files_that_are_not_covered_are_told_and_asked(folder: Path) -> None:
    bs.write_table(part(8), folder / "country=DE" / "8.parquet")
    damaged = folder / "country=DE" / "9.parquet"
    write(damaged, part(9))
    data = bytearray(damaged.read_bytes())
    data[60] ^= 1
    damaged.write_bytes(data)
    report = opened(folder).index("k", encryption=ENCRYPTION).update()
    assert sorted(report.left) == ["country=DE/8.parquet", "country=DE/9.parquet"]
    assert not report.ok
    with pytest.raises(bs.BloomsealError):
        opened(folder).read(where=[("k", "==", -1)])


def test_mistakes_are_told(folder: Path, tmp_path: Path) -> None:
    table = opened(folder)
    with pytest.raises(bs.UsageError, match="has an index"):
        table.index("k", encryption=ENCRYPTION).build()
    with pytest.raises(bs.UsageError, match="no such column") as caught:
        table.index("nope", encryption=ENCRYPTION).build()
    assert str(caught.value.hint).startswith("one of k, ")
    with pytest.raises(bs.UsageError, match="in plaintext"):
        table.index("n", encryption=ENCRYPTION).build()
    with pytest.raises(bs.UsageError, match="no key for it"):
        table.index("s").build()
    with pytest.raises(bs.UsageError, match="has no index"):
        table.index("s").update()
    with pytest.raises(bs.UsageError, match="false_places"):
        table.index("s", encryption=ENCRYPTION).build(false_places=2)
    other = bs.EncryptionSpec(footer_key=b"x" * 16, column_keys={"s": b"y" * 16})
    with pytest.raises(bs.BloomsealError):
        table.index("s", encryption=other).build()
    assert not table.index("s").exists
    (tmp_path / "out").mkdir()
    shutil.rmtree(folder / "_bloomseal_index")
    (folder / "_bloomseal_index").symlink_to(tmp_path / "out")
    with pytest.raises(bs.UsageError, match="link"):
        table.index("s", encryption=ENCRYPTION).build()


@pytest.mark.skipif(sys.platform == "darwin", reason="names are UTF-8 there")
def test_a_file_whose_name_is_no_text_is_left_to_its_own_filters(folder: Path) -> None:
    name = "country=DE/caf\udce9.parquet"
    write(folder / name, part(7))
    table = opened(folder)
    report = table.index("k", encryption=ENCRYPTION).update()
    assert report.left == {name: "its name is no UTF-8"}
    wanted = part(7)["k"][3].as_py()
    assert opened(folder).read(where=[("k", "==", wanted)]).num_rows == 1


def test_dry_runs_write_nothing_and_drop_removes_all(folder: Path) -> None:
    before = sorted((folder / "_bloomseal_index" / "k").iterdir())
    write(folder / "country=DE" / "7.parquet", part(7))
    report = opened(folder).index("k", encryption=ENCRYPTION).update(dry_run=True)
    assert list(report.left) == ["country=DE/7.parquet"]
    assert sorted((folder / "_bloomseal_index" / "k").iterdir()) == before
    opened(folder).index("k").drop()
    assert not (folder / "_bloomseal_index").exists()


def test_check_finds_what_an_index_lacks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = update.hashed_places

    def lossy(*arguments: Any) -> Any:
        for place, found in plain(*arguments):
            yield place, found[:-1] if place == 1 else found

    monkeypatch.setattr(update, "hashed_places", lossy)
    opened(folder).index("k", encryption=ENCRYPTION).rebuild()
    report = opened(folder).index("k").check()
    assert not report.ok
    assert (sum(report.missing.values()), len(report.missing)) == (6, 6)


def test_large_runs_are_searched_page_by_page(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard, "_KEPT_ENTRIES", 0)
    rows = np.random.default_rng(5).permutation(60_000)
    for number in range(3):
        ids = rows[20_000 * number : 20_000 * (number + 1)]
        write(folder / "country=DE" / f"b{number}.parquet", pa.table({"k": ids, "n": ids}), row_group_size=4_000)
    index = opened(folder).index("k", encryption=ENCRYPTION)
    index.update()
    index.compact(everything=True)
    assert index.check().ok
    reader = shard.RunReader(index.folder, index.manifest().runs[0])
    assert len(reader._open(reader.run.shards[0])._pages().low) > 4
    for value in (0, 59_999, 31_415, 60_001):
        same(folder, [("k", "==", value)], auto="require")
    same(folder, [("k", "in", list(range(0, 60_000, 7)))], auto="require")


@pytest.mark.parametrize("at_once", [1, 3, 256])
def test_many_values_are_found_as_few_are(folder: Path, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """More values than pages read all pages in turn; entries of one value may lie on pages of several portions."""
    monkeypatch.setattr(shard, "_KEPT_ENTRIES", 0)
    monkeypatch.setattr(shard, "_PAGES_AT_ONCE", at_once)
    draw = np.random.default_rng(at_once)
    manifest = opened(folder).index("k").manifest()
    index = opened(folder).index("k", encryption=ENCRYPTION)
    places = 40_000
    bits = place_bits_for(places)
    # One value is everywhere, so that it fills pages; others are anywhere.
    fingerprints = np.concatenate([np.full(places, 1 << 30), draw.integers(0, 1 << 35, places)])
    entries = np.sort((fingerprints << bits) | np.tile(np.arange(places), 2))
    made = RunWriter(index.folder, manifest, places, bits)
    made.add(entries)
    reader = shard.RunReader(index.folder, made.finish())
    assert len(reader._open(reader.run.shards[0])._pages().low) > 6
    asked = np.unique(np.concatenate([fingerprints[::3], draw.integers(0, 1 << 35, 500)])).astype(np.uint64)
    draw.shuffle(asked)
    which, found = reader.find(asked)
    got = sorted(zip(asked[which].tolist(), found.tolist(), strict=True))
    known = set(asked.tolist())
    assert got == sorted((f, p) for f, p in zip((entries >> bits).tolist(), (entries & ((1 << bits) - 1)).tolist(),
                                                strict=True) if f in known)  # fmt: skip
    few = asked[:5]
    which, found = reader.find(few)
    assert set(zip(few[which].tolist(), found.tolist(), strict=True)) == {
        one for one in got if one[0] in set(few.tolist())
    }
    # A small one is read once, and searched without another look at its pages.
    monkeypatch.setattr(shard, "_KEPT_ENTRIES", len(entries))
    monkeypatch.setattr(shard._OpenShard, "_read", lambda *_: pytest.fail("read again"))
    which, found = reader.find(asked)
    assert sorted(zip(asked[which].tolist(), found.tolist(), strict=True)) == got
    assert reader.between(0, 1 << 62).tolist() == entries.tolist()
    # What is not as the manifest says is refused each time.
    one = reader.run.shards[0]
    other = shard._OpenShard(reader._open(one).file, one._replace(last=one.last + 1))
    for _ in range(2):
        with pytest.raises(bs.FormatError, match="not as indexes are written"):
            other.whole()
    with pytest.raises(bs.FormatError, match="not as indexes are written"):
        other.find(np.array([one.first]), bits)


@pytest.mark.parametrize("kept", [0, 1 << 18])
def test_the_largest_fingerprint_is_found_beside_the_widest_places(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    """The end of its entries is the largest number that a search is made for."""
    monkeypatch.setattr(shard, "_KEPT_ENTRIES", kept)
    index = opened(folder).index("k", encryption=ENCRYPTION)
    manifest = replace(index.manifest(), bits=44)
    places = most_places(manifest.bits)
    made = RunWriter(index.folder, manifest, places, place_bits_for(places))
    last = (1 << manifest.bits) - 1
    made.add((np.array([5, last, last], dtype=np.int64) << made.place_bits) | np.array([1, 0, places - 1]))
    run = made.finish()
    replace(manifest, runs=(run,), facts=manifest.facts.slice(0, 0)).check()
    which, found = shard.RunReader(index.folder, run).find(np.array([last, 7, 5], dtype=np.uint64))
    assert sorted(zip(which.tolist(), found.tolist(), strict=True)) == [(0, 0), (0, places - 1), (2, 1)]
    assert most_places(44) < 1 << 18
    wider = replace(manifest, bits=45, runs=(run,), facts=manifest.facts.slice(0, 0))
    with pytest.raises(bs.FormatError, match="contradicts itself"):
        wider.check()


def test_a_manifest_does_not_choose_how_long_a_check_takes(folder: Path) -> None:
    """Its writer holds the column's key, and claims entries by the quintillion: `check` cuts its work by that."""
    manifest = opened(folder).index("k", encryption=ENCRYPTION).manifest()
    run = manifest.runs[0]
    claimed = run.shards[0]._replace(entries=1 << 62)
    with pytest.raises(bs.FormatError, match="contradicts itself"):
        replace(manifest, runs=(replace(run, shards=(claimed, *run.shards[1:])),)).check()


def test_fingerprints_are_keyed_and_of_the_length_that_was_asked_for() -> None:
    hashes = np.arange(1000, dtype=np.uint64)
    one, other = Fingerprints(b"a" * 32, 40).of(hashes), Fingerprints(b"b" * 32, 40).of(hashes)
    assert len(np.unique(one)) == 1000
    assert not len(np.intersect1d(one, other))
    assert int(one.max()) < 1 << 40
    assert (Fingerprints(b"a" * 32, 20).of(hashes) == one >> np.uint64(20)).all()
    assert bits_for(10**9, 0.001) == 44
    assert bits_for(10, 0.001) == 36
    with_key = Fingerprints(b"a" * 32, 40)
    assert b"a" * 8 not in repr(with_key).encode()


def test_the_clock_waits_until_a_change_would_show(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"1")
    from bloomseal.index.manifest import state_of

    state = state_of(path.stat())
    place = IndexFolder(str(tmp_path), "k")
    place.make()
    assert Clock(place.now).settled(state)
    path.write_bytes(b"2")
    assert state_of(path.stat()) != state
    assert not place.names()


def test_the_secret_stays_where_it_is(folder: Path) -> None:
    manifest = opened(folder).index("k").manifest()
    shown = repr(manifest) + repr(manifest.fingerprints) + repr(opened(folder).index("k").show())
    assert manifest.secret.hex() not in shown
    assert repr(manifest.secret) not in shown
    with pytest.raises(bs.UsageError, match="not pickled"):
        pickle.dumps(manifest)


def test_the_index_is_no_data_and_its_keys_count(folder: Path) -> None:
    table = opened(folder)
    assert not any("_bloomseal_index" in path for path in table.files)
    from bloomseal.storage.discovery.tables import find_files

    others = find_files(folder, everything=True).others
    assert sum("_bloomseal_index" in one.relative for one in others) == 2


def test_a_file_that_is_written_alone_is_added_to_the_indexes_of_its_table(tmp_path: Path) -> None:
    columns = {"k": {"key": "pii", "index": {"max_keys": 1000}}}
    table = {"footer_key": "footer", "columns": columns}
    ring = bs.Keyring(tmp_path / "keys.json", create=True)
    for name in ("footer", "pii"):
        ring.create(name)
    policy = bs.Policy.from_dict({"version": 1, "tables": {"t": table}}, kms=ring).for_table("t")
    root = tmp_path / "lake"
    assert bs.write_dataset(part(0), root, encryption=policy).indexes["k"].covered == 1
    (root / "day=2").mkdir()
    bs.write_table(part(1), root / "day=2" / "1.parquet", encryption=policy)
    with bs.SealedWriter(root / "day=2" / "2.parquet", part(2).schema, encryption=policy) as writer:
        writer.write_table(part(2))
    writer.close()
    index = opened(root, decryption=policy).index("k")
    assert (index.show().covered, index.show().max_keys) == (3, 1000)
    assert index.check().ok
    for number in range(3):
        found = opened(root, "require", policy)
        assert found.read(["n"], [("k", "==", part(number).column("k")[9].as_py())]).num_rows == 1
        assert found.stats.files_unopened == 2
    # A damaged index does not keep the rows from being written.
    (root / "_bloomseal_index" / "k" / "manifest.parquet").write_bytes(b"PAR1")
    with pytest.warns(bs.BloomsealWarning, match="the index of k is not up to date"):
        bs.write_table(part(3), root / "3.parquet", encryption=policy)
    assert bs.read_table(root / "3.parquet", decryption=policy).num_rows == 30


def test_what_does_not_fit_into_memory_waits_in_sealed_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same entries come out, padded or not; nothing is left behind, also where the disk fails on the way."""
    spilled: list[str] = []
    plain = IndexFolder.write

    def write_down(self: IndexFolder, name: str, *arguments: Any, **options: Any) -> None:
        spilled.append(name)
        plain(self, name, *arguments, **options)

    monkeypatch.setattr(IndexFolder, "write", write_down)
    index = opened(folder).index("k", encryption=ENCRYPTION)
    for pad in (False, True):
        monkeypatch.setattr(sorter, "_ENTRIES_AT_ONCE", 8_000_000)
        index.rebuild(pad=pad)
        wanted = index.show().entries
        spilled.clear()
        monkeypatch.setattr(sorter, "_ENTRIES_AT_ONCE", 25)
        monkeypatch.setattr(sorter, "_MERGED_AT_ONCE", 64)
        index.rebuild()
        assert len([name for name in spilled if name.startswith("run-")]) > 3
        # Padding goes by slices.
        assert index.show().entries == wanted if not pad else index.show().entries >= 180
        assert len(index.show().runs) == 1
        assert index.check().ok
        for number in range(6):
            same(folder, [("k", "==", part(number).column("k")[7].as_py())], auto="require")
    held = set(index.folder.names())

    def full(self: IndexFolder, name: str, *arguments: Any, **options: Any) -> None:
        if len(spilled) == 3:
            raise bs.BloomsealError("the disk is full")
        write_down(self, name, *arguments, **options)

    spilled.clear()
    monkeypatch.setattr(IndexFolder, "write", full)
    with pytest.raises(bs.BloomsealError, match="the disk is full"):
        index.rebuild()
    assert set(index.folder.names()) == held
    assert index.check().ok
