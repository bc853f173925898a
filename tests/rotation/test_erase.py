"""Rows taken out of tables: all of one person's, none of anybody else's."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import bloomseal as bs
from bloomseal.evidence.rotations import read_journal
from bloomseal.policy import TablePolicy
from bloomseal.read.parquet import ParquetFile
from bloomseal.rotation import Rekey, rotate
from bloomseal.rotation.erase import ErasureReport
from support.orc_files import orc_file, orc_ring

PERSON = "ada@example.com"
WHERE = [("email", "==", PERSON)]
_ROWS = 300


def _rows(number: int) -> pa.Table:
    """Every seventh address is null; the person stands in the files with even numbers."""
    emails = [None if row % 7 == 0 else f"u{number}-{row}@example.com" for row in range(_ROWS)]
    if number % 2 == 0:
        emails[150] = PERSON
    return pa.table(
        {
            "id": range(number * _ROWS, (number + 1) * _ROWS),
            "email": emails,
            "score": [float("nan") if row % 5 == 0 else row / 3 for row in range(_ROWS)],
            "tags": [[str(row)] * (row % 3) for row in range(_ROWS)],
        }
    )


def _left(rows: pa.Table, person: str = PERSON) -> pa.Table:
    return rows.filter(pc.invert(pc.fill_null(pc.equal(rows["email"], person), False)))


def _same(one: pa.Table, other: pa.Table) -> bool:
    """NaN is not equal to itself."""
    plain = [table.set_column(2, "score", pc.fill_null(table["score"].cast(pa.string()), "")) for table in (one, other)]
    return plain[0].equals(plain[1])


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A keyring and a sealed table of five files, with an index."""
    root = tmp_path_factory.mktemp("erase")
    ring = bs.Keyring(root / "keys.json", create=True)
    for name in ("footer", "pii"):
        ring.create(name)
    table = root / "t"
    table.mkdir()
    for number in range(5):
        bs.write_table(_rows(number), table / f"{number}.parquet", encryption=_policy(root), row_group_size=100)
    bs.open_table(table, decryption=_policy(root)).index("email").build()
    return root


def _policy(root: Path, folder: str = "t", **said: Any) -> TablePolicy:
    columns = {"email": {"key": "pii", "filter": True, "index": True}, "id": {"filter": {"num_bytes": 256}}}
    table = {"footer_key": "footer", "complete": True, "aad_prefix": "{table}/{path}/", "store_aad_prefix": False}
    policy = {"version": 1, "tables": {"t": {**table, "columns": columns, **said}}}
    return bs.Policy.from_dict(policy, kms=bs.Keyring(root / "keys.json")).for_table("t", root=root / folder)


@pytest.fixture
def root(tmp_path: Path, made: Path) -> Path:
    copy = Path(shutil.copytree(made, tmp_path / "lake"))
    _open(copy).index("email").update()  # an index knows files by their inodes
    return copy


def _open(root: Path, **options: Any) -> bs.SealedTable:
    return bs.open_table(root / "t", decryption=_policy(root), **options)


def _erase(root: Path, where: Any = WHERE, **options: Any) -> ErasureReport:
    report = _open(root).erase(where, **options)
    assert isinstance(report, ErasureReport)
    return report


def _bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("*.parquet"))}


def test_only_the_files_that_hold_the_person_are_written_and_nobody_else_is_lost(root: Path) -> None:
    before, rows = _bytes(root / "t"), _open(root).read()
    report = _erase(root)
    assert (report.ok, report.rows, report.counts) == (True, 3, {"erased": 3})
    after = _bytes(root / "t")
    names = ("0.parquet", "2.parquet", "4.parquet")
    assert {name for name in names if before[name] != after[name]} == {*names}
    assert all(before[name] == after[name] for name in ("1.parquet", "3.parquet"))
    table = _open(root)
    assert _same(table.read(), _left(rows))
    assert table.schema.equals(rows.schema, check_metadata=True)
    assert table.verify(filters=True).ok
    assert table.read(where=WHERE).num_rows == 0


def test_the_index_answers_for_the_new_files_and_is_purged_by_what_the_report_says(root: Path) -> None:
    report = _erase(root)
    told = [one for one in report.remaining if "index compact" in one]
    assert len(told) == 1
    assert "--column email" in told[0]
    index = _open(root).index("email")
    assert index.uncovered() == []
    assert index.check().ok
    required = _open(root, use_index="require")
    assert required.read(where=WHERE).num_rows == 0
    assert required.read(where=[("email", "==", "u2-151@example.com")]).num_rows == 1
    index.compact()
    assert index.show().entries == len(set(_open(root).read()["email"].drop_null().to_pylist()))


def test_filters_equal_those_built_from_the_rows_that_are_left(root: Path) -> None:
    _erase(root)
    twin = root / "t2"
    twin.mkdir()
    left = _left(_rows(2))
    bs.write_table(left.slice(0, 100), twin / "a", encryption=_policy(root, "t2"))
    bs.write_table(left.slice(100, 99), twin / "b", encryption=_policy(root, "t2"))
    with bs.open_file(root / "t" / "2.parquet", decryption=_policy(root)) as file:
        assert [group.num_rows for group in file.row_groups] == [100, 99, 100]
        for group, name in ((0, "a"), (1, "b")):
            with bs.open_file(twin / name, decryption=_policy(root, "t2")) as fresh:
                for column in ("email", "id"):
                    assert file.filter(group, column).bitset == fresh.filter(0, column).bitset
        assert file.filter(0, "tags") is None


@pytest.mark.parametrize(
    ("where", "gone"),
    [
        ([("score", ">", 1.0)], lambda row: row["score"] > 1.0),
        (pc.field("score") > 1.0, lambda row: row["score"] > 1.0),
        ([("email", "!=", PERSON)], lambda row: row["email"] not in (None, PERSON)),
        ([("email", "not in", [PERSON]), ("id", "<", 900)], lambda row: row["email"] not in (None, PERSON) and row["id"] < 900),
        ([[("id", "==", 3)], [("id", "in", [4, 1499])]], lambda row: row["id"] in (3, 4, 1499)),
    ],
)  # fmt: skip
def test_a_row_for_which_the_condition_is_null_stays(root: Path, where: Any, gone: Callable[[Any], bool]) -> None:
    rows = _open(root).read()
    expected = [row["id"] for row in rows.to_pylist() if not gone(row)]
    report = _erase(root, where)
    left = _open(root).read(["id"])["id"].to_pylist()
    assert left == expected
    assert report.rows == rows.num_rows - len(left)


def test_a_file_without_rows_goes_and_so_does_its_key_material(root: Path) -> None:
    shutil.rmtree(root / "t")
    (root / "t").mkdir()
    policy = _policy(root, material="external")
    for number in range(2):
        bs.write_table(_rows(number), root / "t" / f"{number}.parquet", encryption=policy)
    table = bs.open_table(root / "t", decryption=policy)
    assert table.erase([("id", "<", _ROWS)]).counts == {"removed": 1}
    assert sorted(one.name for one in (root / "t").iterdir()) == ["1.parquet", "_KEY_MATERIAL_FOR_1.parquet.json"]
    assert table.erase([("id", "==", _ROWS)]).counts == {"erased": 1}
    material = json.loads((root / "t" / "_KEY_MATERIAL_FOR_1.parquet.json").read_text())
    assert len(material) == 3  # footer, its usual name, one column
    assert bs.read_table(root / "t", decryption=policy).num_rows == _ROWS - 1


def test_a_link_goes_with_a_file_without_rows(root: Path) -> None:
    away = root / "away"
    away.mkdir()
    (root / "t" / "0.parquet").rename(away / "real.parquet")
    (root / "t" / "0.parquet").symlink_to("../away/real.parquet")
    table = _open(root, follow_links=True)
    assert table.erase([("id", "<", _ROWS), ("id", ">", 0)]).counts == {"erased": 1}
    assert (root / "t" / "0.parquet").is_symlink()
    assert _open(root, follow_links=True).erase([("id", "<", _ROWS)]).counts == {"removed": 1}
    assert [*away.iterdir()] == []
    assert not (root / "t" / "0.parquet").is_symlink()
    assert _open(root).read().num_rows == 4 * _ROWS


def test_a_file_whose_footer_counts_too_few_rows_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    from bloomseal.core.parquet.footer import plain_footer
    from bloomseal.core.parquet.layout import FileMeta

    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [1, 2, 3]}), path)
    whole = path.read_bytes()
    with bs.open_file(path) as file:
        assert isinstance(file, ParquetFile)
        footer = file.walk.footer
        footer.struct.set_i64(FileMeta.NUM_ROWS, 1)
        path.write_bytes(whole[: footer.offset] + plain_footer(footer.struct.to_bytes()))
    assert bs.open_table(path).erase([("id", "==", 2)]).counts == {"erased": 1}
    assert pq.read_table(path)["id"].to_pylist() == [1, 3]


def test_a_folder_that_holds_the_person_alone_goes_as_a_whole(root: Path) -> None:
    lake = root / "parted"
    for country in ("DE", "FR"):
        (lake / f"country={country}").mkdir(parents=True)
        bs.write_table(_rows(0), lake / f"country={country}" / "0.parquet")
    assert bs.open_table(lake).erase([("country", "==", "DE")]).counts == {"removed": 1}
    assert bs.open_table(lake).read(["country"])["country"].unique().to_pylist() == ["FR"]


# What is refused, and leaves all as it was --------------------------------------------------------------------------


def test_all_columns_must_open_before_anything_is_touched(root: Path) -> None:
    shutil.rmtree(root / "t")
    (root / "t").mkdir()
    for number in (0, 2):
        spec = bs.EncryptionSpec(b"f" * 16, {"score": b"s" * 16, "email": b"e" * 16})
        bs.write_table(_rows(number), root / "t" / f"{number}.parquet", encryption=spec)
    before = _bytes(root / "t")
    keys = bs.DecryptionSpec(bs.ExplicitKeys(b"f" * 16, {"email": b"e" * 16}))
    for dry_run in (True, False):
        with pytest.raises(bs.KeyAccessError) as error:
            bs.open_table(root / "t", decryption=keys).erase(WHERE, dry_run=dry_run)
        assert error.value.column == "score"
    assert _bytes(root / "t") == before
    whole = bs.DecryptionSpec(bs.ExplicitKeys(b"f" * 16, {"email": b"e" * 16, "score": b"s" * 16}))
    assert bs.open_table(root / "t", decryption=whole).erase(WHERE).rows == 2
    with bs.open_file(root / "t" / "2.parquet", decryption=whole) as file:
        assert file.verify(filters=True).ok
        assert file.protection(file.leaf("score")).name == "COLUMN_KEY"
        assert file.protection(file.leaf("id")).name == "PLAINTEXT"


def test_a_dry_run_tells_files_and_rows_and_writes_nothing(root: Path) -> None:
    before = _bytes(root)
    report = _erase(root, dry_run=True)
    assert (report.dry_run, report.rows, report.counts) == (True, 3, {"to be erased": 3})
    with pytest.raises(bs.UsageError, match="no option 'dryrun'") as caught:
        _erase(root, dryrun=True)
    assert str(caught.value.hint).startswith("one of dry_run")
    assert _bytes(root) == before
    assert not (root.parent / "state").exists()


@pytest.mark.parametrize("where", [None, [], [("nobody", "==", 1)], [("id", "==", "text")]])
def test_a_condition_that_is_none_erases_nothing(root: Path, where: Any) -> None:
    before = _bytes(root)
    with pytest.raises(bs.UsageError):
        _erase(root, where)
    assert _bytes(root) == before


def test_rows_of_an_orc_file_are_refused_only_where_they_match(tmp_path: Path) -> None:
    ring = orc_ring(tmp_path / "keys.json")
    folder = tmp_path / "orc"
    folder.mkdir()
    orc_file(folder / "a.orc", ring)
    table = bs.open_table(folder, decryption=bs.DecryptionSpec(ring, allow_ctr=True))
    name = table.columns[0]
    value = table.read([name])[name][0].as_py()
    with pytest.raises(bs.UnsupportedError, match="engine"):
        table.erase([(name, "==", value)])
    absent = -(10**6) if isinstance(value, int) else "nobody at all"
    assert table.erase([(name, "==", absent)]).rows == 0


def test_int96_stays_and_a_column_that_would_be_stored_otherwise_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    moments = pa.array([1, 2], pa.timestamp("ns"))
    pq.write_table(pa.table({"id": [1, 2], "at": moments}), folder / "a.parquet", use_deprecated_int96_timestamps=True)
    assert bs.open_table(folder).erase([("id", "==", 1)]).rows == 1
    assert pq.ParquetFile(folder / "a.parquet").schema.column(1).physical_type == "INT96"
    assert pq.read_table(folder / "a.parquet")["at"].to_pylist() == moments[1:].to_pylist()
    # One writer stores all decimals of a file as whole numbers, or none.
    path = folder / "b"
    money = {"id": [7, 8], "price": pa.array([Decimal("1.5"), Decimal("2.5")], pa.decimal128(5, 2))}
    pq.write_table(pa.table(money), path, store_decimal_as_integer=True)
    assert bs.open_table(path).erase([("id", "==", 7)]).rows == 1
    assert pq.ParquetFile(path).schema.column(1).physical_type == "INT32"
    pq.write_table(pa.table({"id": [7], "price": pa.array([b"1"])}), path)
    whole = path.read_bytes()
    # The footer calls the bytes a decimal, as writers of Hive's tables do; pyarrow writes none of those.
    with bs.open_file(path) as file:
        footer = file.walk.footer  # type: ignore[attr-defined]
        elements = footer.struct.elements(2)
        from bloomseal.core.thrift import Struct

        decimal = Struct.parse(elements[2])
        decimal.set_i32(6, 5)
        decimal.set_i32(7, 2)
        decimal.set_i32(8, 5)
        footer.struct.set_list(2, [*elements[:2], decimal.to_bytes()])
        from bloomseal.core.parquet.footer import plain_footer

        path.write_bytes(whole[: footer.offset] + plain_footer(footer.struct.to_bytes()))
    changed = path.read_bytes()
    with pytest.raises(bs.UnsupportedError) as refused:
        bs.open_table(path).erase([("id", "==", 7)])
    assert refused.value.column == "price"
    assert path.read_bytes() == changed


# Runs ----------------------------------------------------------------------------------------------------------------


def test_a_run_that_goes_on_is_about_the_same_rows(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = _open(root).read()
    with monkeypatch.context() as patched:
        patched.setattr("bloomseal.write.without_rows.Encoder.encode", _fails_from_the_second_file())
        report = _erase(root, jobs=1)
        assert not report.ok
        assert report.rows == 1
    with pytest.raises(bs.UsageError, match="other rows") as refused:
        _erase(root, [("email", "==", "u2-151@example.com")])
    assert "--restart" in (refused.value.hint or "")
    report = _erase(root)
    assert (report.ok, report.resumed, report.rows) == (True, True, 3)
    assert report.counts == {"erased": 2, "done before": 1}
    assert _same(_open(root).read(), _left(rows))
    assert _open(root).index("email").uncovered() == []
    other = _erase(root, [("email", "==", "u2-151@example.com")])
    assert (other.resumed, other.rows) == (False, 1)


def _fails_from_the_second_file() -> Callable[..., Any]:
    from bloomseal.write.encode import Encoder

    encode, calls = Encoder.encode, []

    def failing(self: Encoder, rows: pa.Table) -> Any:
        calls.append(rows)
        if len(calls) > 3:  # of the three row groups of the first
            raise bs.BloomsealError("the storage failed")
        return encode(self, rows)

    return failing


def test_key_material_of_the_old_file_goes_with_the_next_run(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bloomseal.keytools.material.store import MaterialStore

    folder, policy = root / "beside", _policy(root, "beside", material="external")
    folder.mkdir()
    bs.write_table(_rows(0), folder / "0.parquet", encryption=policy)
    beside = folder / "_KEY_MATERIAL_FOR_0.parquet.json"

    def failing(*_: object, **__: object) -> None:
        raise bs.KeyAccessError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(MaterialStore, "supersede", failing)
        assert bs.open_table(folder, decryption=policy).erase(WHERE).counts == {"done in part": 1}
    assert len(json.loads(beside.read_text())) > 3
    report = bs.open_table(folder, decryption=policy).erase(WHERE)
    assert (report.ok, report.counts, report.rows) == (True, {"done before": 1}, 1)
    assert len(json.loads(beside.read_text())) == 3
    assert bs.open_table(folder, decryption=policy).verify(filters=True).ok


def test_restart_gives_an_interrupted_run_up(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("bloomseal.write.without_rows.Encoder.encode", _fails_from_the_second_file())
        assert not _erase(root, jobs=1).ok
    assert _erase(root, [("email", "==", "u2-151@example.com")], restart=True).ok


def test_what_an_interrupted_run_has_not_done_is_not_told_as_done(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("bloomseal.write.without_rows.Encoder.encode", _fails_from_the_second_file())
        assert _erase(root, jobs=1).rows == 1
    assert rotate(root / "t", Rekey(_policy(root))).ok  # which files were begun can't be told any more
    report = _erase(root, [("email", "==", "u2-151@example.com")])
    assert report.counts == {"erased": 1, "done before": 1}
    assert report.rows == 2
    assert _open(root).read(where=WHERE).num_rows == 2


def test_a_file_that_took_anothers_place_meanwhile_stays_as_it_is(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row numbers of the one file would take other people's rows out of the other."""
    from bloomseal.rotation.erasure import Erase

    plan = Erase.plan

    def exchanged(self: Erase, file: Any) -> Any:
        found = plan(self, file)
        if file.name.endswith("2.parquet"):
            bs.write_table(_rows(4), root / "t" / "2.parquet", encryption=_policy(root), row_group_size=100)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(Erase, "plan", exchanged)
        report = _erase(root)
    assert report.counts == {"erased": 2, "changed by someone else": 1}
    with bs.open_file(root / "t" / "2.parquet", decryption=_policy(root)) as file:
        assert file.num_rows == _ROWS
    again = _erase(root)
    assert (again.ok, again.resumed, again.rows) == (True, True, 3)
    assert _open(root).read(where=WHERE).num_rows == 0


def test_no_value_stands_in_journal_report_or_evidence(root: Path) -> None:
    report = _erase(root, [("email", "in", [PERSON, "u1-1@example.com"])])
    journal = Path(report.journal).read_bytes()
    told, lines, _ = read_journal(report.journal)
    assert (told.operation, told.files, told.chain) == ("erase", {"erased": 4}, "whole")
    assert told.ended is not None
    for text in (
        journal,
        repr(report).encode(),
        json.dumps(report.to_dict(), default=str).encode(),
        repr(told).encode(),
    ):
        for value in (b"ada@", b"u1-1@", b"example.com"):
            assert value not in text
    assert lines is not None


# Copies, logs, plaintext ----------------------------------------------------------------------------------------------


def test_copies_are_erased_too(root: Path) -> None:
    shutil.copytree(root / "t", root / "copy")
    report = _erase(root, also=[root / "copy"])
    assert report.rows == 6
    assert bs.open_table(root / "copy", decryption=_policy(root, "copy")).read(where=WHERE).num_rows == 0
    assert bs.open_table(root / "copy", decryption=_policy(root, "copy")).num_rows == 5 * _ROWS - 3


def test_files_that_only_spark_reads_are_erased_and_hidden_ones_told(root: Path) -> None:
    (root / "t" / "0.parquet").rename(root / "t" / "part-0")
    bs.write_table(_rows(0), root / "t" / "_old.parquet")
    policy = _policy(root, aad_prefix="fixed")
    for path in (root / "t").glob("*.parquet"):
        path.unlink()
    bs.write_table(_rows(0), root / "t" / "part-0", encryption=policy)
    bs.write_table(_rows(1), root / "t" / "1.parquet", encryption=policy)
    bs.write_table(_rows(0), root / "t" / "_old.parquet")
    (root / "t" / "2026").mkdir()
    shutil.copy(root / "t" / "_old.parquet", root / "t" / "2026" / ".1.parquet.0123abcd.bloomseal-tmp")
    report = bs.open_table(root / "t", decryption=policy).erase(WHERE)
    assert report.rows == 1
    assert any("2 hidden files" in one for one in report.remaining)


def test_a_plaintext_table_stays_plaintext_and_one_with_a_policy_wants_it_sealed(root: Path) -> None:
    folder = root / "plain"
    folder.mkdir()
    rows, path = _rows(0), folder / "0.parquet"
    rows = rows.set_column(1, "email", rows["email"].dictionary_encode())
    pq.write_table(rows, path, row_group_size=100, compression="none")
    assert PERSON.encode() in path.read_bytes()
    assert bs.open_table(folder).erase(WHERE).rows == 1
    # Nor in a dictionary, a statistic or an index of pages.
    assert PERSON.encode() not in path.read_bytes()
    found = pq.read_table(path)
    assert pa.types.is_dictionary(found["email"].type)
    assert _same(found.set_column(1, "email", found["email"].cast(pa.string())), _left(_rows(0)))
    bs.write_table(_rows(0), root / "t" / "plain.parquet")
    with pytest.raises(bs.PolicyError):
        _erase(root)


def test_a_delta_table_gets_a_new_version(root: Path) -> None:
    from deltalake import DeltaTable, write_deltalake

    folder, day = root / "delta", dt.date(2026, 1, 2)
    for number in range(2):
        table = (
            _rows(number).append_column("day", pa.array([day] * _ROWS)).append_column("city", pa.array(["a b"] * _ROWS))
        )
        write_deltalake(str(folder), table.drop_columns("tags"), partition_by=["day", "city"], mode="append")
    table = bs.open_table(folder)
    rows = table.read(["id", "email", "day", "city"])
    report = table.erase(WHERE)
    assert (report.rows, report.counts) == (1, {"erased": 1})
    assert any("VACUUM" in one for one in report.remaining)
    assert any("logRetentionDuration" in one for one in report.remaining)
    fresh = bs.open_table(folder)
    assert fresh.version == 2
    assert fresh.read(["id", "email", "day", "city"]).sort_by("id").equals(_left(rows).sort_by("id"))
    assert sorted(DeltaTable(str(folder)).to_pyarrow_table()["id"].to_pylist()) == sorted(_left(rows)["id"].to_pylist())
    assert bs.open_table(folder, version=1).read(where=WHERE).num_rows == 1
    assert fresh.erase([("id", ">=", 0)]).counts == {"removed": 2}
    assert DeltaTable(str(folder)).version() == 3
    assert len(DeltaTable(str(folder)).file_uris()) == 0


def test_another_plaintext_file_of_the_same_footer_keeps_its_rows(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bloomseal.rotation import erase as module

    files = [root / "plain" / "0.parquet", root / "other"]
    files[0].parent.mkdir()
    for path, names in zip(files, (["ada", "bob"], ["bob", "eve"]), strict=True):
        options = {"use_dictionary": False, "write_statistics": False, "compression": "none"}
        pq.write_table(pa.table({"email": names}), path, **options)

    def looked(*arguments: Any) -> Any:
        found = row_numbers(*arguments)
        files[1].rename(files[0])
        return found

    row_numbers = module.row_numbers
    monkeypatch.setattr(module, "row_numbers", looked)
    report = bs.open_table(files[0].parent).erase([("email", "==", "ada")])
    assert report.counts == {"changed by someone else": 1}
    assert pq.read_table(files[0])["email"].to_pylist() == ["bob", "eve"]


@pytest.mark.parametrize("change", ["overwrite", "optimize", "append"])
def test_a_delta_table_that_somebody_else_changes_meanwhile_keeps_its_rows(
    root: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    from deltalake import DeltaTable, write_deltalake

    from bloomseal.rotation.delta import DeltaChange

    folder = str(root / "delta")
    for number in range(2):
        write_deltalake(folder, _rows(number).drop_columns("tags"), mode="append")
    commit = DeltaChange.commit

    def late(self: DeltaChange) -> None:
        if change == "optimize":
            DeltaTable(folder).optimize.compact()  # changes no data, so that the library sees no conflict
        else:
            write_deltalake(folder, _rows(2).drop_columns("tags"), mode=change)
        rows.append(bs.open_table(folder).read())
        commit(self)

    rows: list[pa.Table] = []
    with monkeypatch.context() as patched:
        patched.setattr(DeltaChange, "commit", late)
        if change == "append":
            assert bs.open_table(folder).erase(WHERE).ok
        else:
            with pytest.raises(bs.BloomsealError, match="taken the same files out"):
                bs.open_table(folder).erase(WHERE)
            assert bs.open_table(folder).num_rows == rows[0].num_rows
    assert bs.open_table(folder).erase(WHERE).ok
    assert bs.open_table(folder).read(["id"]).sort_by("id").equals(_left(rows[0]).select(["id"]).sort_by("id"))


def test_of_a_delta_table_no_single_file_is_changed_and_no_value_that_the_library_garbles(root: Path) -> None:
    from deltalake import DeltaTable, write_deltalake

    folder = str(root / "delta")
    write_deltalake(folder, _rows(0).drop_columns("tags"))
    with pytest.raises(bs.UsageError, match="Delta table"):
        bs.open_table(DeltaTable(folder).file_uris()).erase(WHERE)
    with pytest.raises(bs.UsageError, match="Delta table"):
        bs.open_table(DeltaTable(folder).file_uris()).compact()
    raw = pa.table({"email": [PERSON, "x"], "raw": [b"a", b"a"]})
    write_deltalake(str(root / "raw"), raw, partition_by=["raw"])
    with pytest.raises(bs.UnsupportedError, match="partition column of bytes"):
        bs.open_table(root / "raw").erase(WHERE)


# Files as their writers made them -------------------------------------------------------------------------------------

_TYPES = {
    "text": pa.array(["a", None, "c", "d"]),
    "large": pa.array(["a", None, "c", "d"], pa.large_string()),
    "raw": pa.array([b"a", None, b"\xff", b""]),
    "fixed": pa.array([b"ab", None, b"cd", b"ef"], pa.binary(2)),
    "i8": pa.array([1, None, -3, 4], pa.int8()),
    "u32": pa.array([1, None, 2**32 - 1, 4], pa.uint32()),
    "u64": pa.array([1, None, 2**64 - 1, 4], pa.uint64()),
    "half": pa.array([1.5, None, 2.5, -0.0], pa.float16()),
    "flag": pa.array([True, None, False, True]),
    "day": pa.array([1, None, -3, 4], pa.date32()),
    "ms": pa.array([1, None, -3, 4], pa.timestamp("ms", "Europe/Berlin")),
    "ns": pa.array([1, None, -3, 4], pa.timestamp("ns")),
    "seconds": pa.array([1, None, -3, 4], pa.timestamp("s")),
    "took": pa.array([1, None, -3, 4], pa.duration("us")),
    "time": pa.array([1, None, 3, 4], pa.time64("us")),
    "money": pa.array([Decimal("1.50"), None, Decimal("-2.25"), Decimal(0)], pa.decimal128(9, 2)),
    "wide": pa.array([Decimal("1.50"), None, Decimal("-2.25"), Decimal(0)], pa.decimal256(50, 2)),
    "kind": pa.array(["x", None, "y", "x"]).dictionary_encode(),
    "list": pa.array([[1, None], None, [], [4]], pa.list_(pa.int32())),
    "struct": pa.array([{"a": 1, "b": [["x"]]}, None, {"a": None, "b": None}, {"a": 4, "b": []}]),
    "map": pa.array([[("k", 1)], None, [], [("l", None)]], pa.map_(pa.string(), pa.int64())),
    "nothing": pa.nulls(4),
}
_WRITERS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "without": {"compression": "none", "use_dictionary": False, "write_statistics": False, "write_page_index": False},
    "delta": {
        "compression": {"id": "gzip", "text": "brotli"},
        "use_dictionary": ["kind"],
        "column_encoding": {"id": "DELTA_BINARY_PACKED", "text": "DELTA_BYTE_ARRAY", "took": "BYTE_STREAM_SPLIT"},
        "store_schema": False,
    },
    "old": {"version": "1.0", "use_compliant_nested_type": False, "store_decimal_as_integer": True},
}


@pytest.mark.parametrize("how", _WRITERS)
@pytest.mark.parametrize("sealed", [False, True])
def test_whatever_a_file_holds_is_stored_as_before(tmp_path: Path, how: str, sealed: bool) -> None:
    path = tmp_path / "t" / "a.parquet"
    path.parent.mkdir()
    required = pa.field("id", pa.int64(), nullable=False)
    table = pa.table({"id": range(4), **_TYPES})
    table = table.cast(pa.schema([required, *[table.schema.field(name) for name in _TYPES]], {"origin": "a test"}))
    skipped = [] if how != "old" else ["half", "ns"]  # of which version 1.0 makes something else
    table = table.drop_columns(skipped)
    pq.write_table(table, path, row_group_size=2, **_WRITERS[how])
    keys: Any = None
    if sealed:
        spec = bs.EncryptionSpec(b"f" * 16, {"text": b"t" * 16}, complete=True, plaintext_footer=how == "old",
                                 algorithm="AES_GCM_CTR_V1" if how == "delta" else "AES_GCM_V1", aad_prefix=b"here")  # fmt: skip
        bs.seal_file(path, encryption=spec)
        explicit = bs.ExplicitKeys(b"f" * 16, {"text": b"t" * 16})
        keys = bs.DecryptionSpec(explicit, aad_prefix=b"here", allow_ctr=how == "delta")
    with bs.open_file(path, decryption=keys) as file:
        before = _stored(file)
        rows = file.read()
    for gone in ([("id", "==", 1)], [("id", "in", [2, 3])]):
        assert bs.open_table(path.parent, decryption=keys).erase(gone).ok
    with bs.open_file(path, decryption=keys) as file:
        assert file.read().to_pylist() == rows.slice(0, 1).to_pylist()
        assert file.read().schema.equals(rows.schema, check_metadata=True)
        assert file.verify(filters=True).ok
        after = _stored(file)
    assert after == {**before, "groups": [before["groups"][0]]}


def _stored(file: bs.SealedFile) -> dict[str, Any]:
    """What a file says of its columns, and how their pages are made."""
    from bloomseal.core.parquet.layout import FileMeta, Meta
    from bloomseal.core.thrift import Struct, WireType

    assert isinstance(file, ParquetFile)
    walk, crypto = file.walk, file.walk.footer.crypto
    groups = []
    for group in range(file.num_row_groups):
        chunks = []
        for chunk in walk.chunks(group):
            meta = Struct.parse(walk.meta_raw(chunk))
            used = {raw[0] >> 1 for raw in meta.elements(Meta.ENCODINGS, WireType.I32)}
            encodings = {8 if one == 2 else one for one in used} - {0, 3}  # dictionaries have two names
            facts = (meta.integer(Meta.CODEC), meta.elements(Meta.PATH, WireType.BINARY), Meta.STATISTICS in meta)
            indexed = walk.footer.chunk(group, chunk.leaf.index).offset_index_offset is not None
            chunks.append((chunk.leaf.name, chunk.protection, encodings, facts, indexed))
        groups.append(chunks)
    how = (
        None if crypto is None else (crypto.algorithm, crypto.aad_prefix, crypto.prefix_stored, crypto.plaintext_footer)
    )
    fields = {name: walk.footer.struct.raw(name) for name in (FileMeta.SCHEMA, FileMeta.CREATED_BY)}
    return {"groups": groups, "crypto": how, "metadata": file.metadata, **fields}
