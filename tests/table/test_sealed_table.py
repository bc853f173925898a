"""`open_table`: many files, one answer; held against pyarrow on a plaintext copy."""

from __future__ import annotations

import datetime as dt
import gc
import json
import random
import subprocess
import sys
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

import bloomseal as bs
from bloomseal.core.storage.source import Source

KEYS = {"footer_key": b"f" * 16, "column_keys": {"ssn": b"c" * 16}}
SPEC = bs.DecryptionSpec(bs.ExplicitKeys(**KEYS), partition_by=["country", "day", "p", "score"])  # type: ignore[arg-type]
ROWS = 60


def write(path: Path, table: pa.Table, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    encryption = bs.EncryptionSpec(**KEYS) if "ssn" in table.column_names else bs.EncryptionSpec(footer_key=b"f" * 16)  # type: ignore[arg-type]
    filters = {name: True for name in ("ssn",) if name in table.column_names}
    bs.write_table(table, path, encryption=encryption, bloom_filters=filters, **{"row_group_size": 20, **options})
    return path


def part(number: int, kind: pa.DataType = pa.int64()) -> pa.Table:  # noqa: B008
    ids = range(number * ROWS, (number + 1) * ROWS)
    return pa.table(
        {
            "id": pa.array([None if i % 11 == 0 else i for i in ids], kind),
            "ssn": [f"{i:06d}" for i in ids],
            "score": pa.array([i / 4 for i in ids], pa.float32() if number % 2 else pa.float64()),
        }
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three countries, one of them null; types that grow; a column that came late, and one that older files have
    under another place.
    """
    root = tmp_path / "table"
    for number, country in enumerate(["DE", "FR", "DE", "__HIVE_DEFAULT_PARTITION__", "a%2Fb"]):
        table = part(number, pa.int32() if number < 2 else pa.int64())
        if number > 1:
            table = table.append_column("late", pa.array([f"l{i % 7}" for i in range(ROWS)]))
        write(root / f"country={country}" / f"day={number}" / f"{number}.parquet", table)
    return root


def plain(folder: Path) -> pa.Table:
    """The same rows, put together by hand."""
    found = []
    for number, country in [(4, "a/b"), (0, "DE"), (2, "DE"), (1, "FR"), (3, None)]:
        table = part(number)
        late = [f"l{i % 7}" for i in range(ROWS)] if number > 1 else [None] * ROWS
        found.append(
            pa.table(
                {
                    "id": table["id"],
                    "ssn": table["ssn"],
                    "score": table["score"].cast(pa.float64()),
                    "late": pa.array(late, pa.string()),
                    "country": pa.array([country] * ROWS, pa.string()),
                    "day": pa.array([number] * ROWS, pa.int32()),
                }
            )
        )
    return pa.concat_tables(found).select(["id", "ssn", "score", "late", "country", "day"])


def test_schema_and_rows(folder: Path) -> None:
    table = bs.open_table(folder, decryption=SPEC)
    wanted = plain(folder)
    by_id = [("ssn", "ascending")]
    assert dict(zip(table.schema.names, table.schema.types, strict=True)) == dict(
        zip(wanted.schema.names, wanted.schema.types, strict=True)
    )
    found = table.read().select(wanted.column_names)
    assert found.sort_by(by_id).equals(wanted.sort_by(by_id))
    assert table.columns == table.schema.names
    assert len(table) == len(table.files) == 5
    assert bs.read_table(folder, decryption=SPEC).equals(table.read())
    assert table.read(["country"]).column_names == ["country"]
    assert table.read(["day", "late", "id"]).column_names == ["day", "late", "id"]


def condition(rng: random.Random) -> tuple[Any, Any]:
    """A term, and the same as an expression of Arrow's."""
    column, values = rng.choice(
        [
            ("id", [rng.randrange(-5, 310) for _ in range(4)]),
            ("ssn", [f"{rng.randrange(0, 310):06d}" for _ in range(4)]),
            ("score", [rng.randrange(0, 320) / 4 for _ in range(4)]),
            ("late", [f"l{rng.randrange(0, 9)}" for _ in range(2)]),
            ("country", rng.sample(["DE", "FR", "a/b", "XX"], 2)),
            ("day", [rng.randrange(0, 6) for _ in range(2)]),
        ]
    )
    op = rng.choice(["==", "!=", "<", "<=", ">", ">=", "in", "not in"])
    field, value = pc.field(column), values[0]
    wanted = {
        "==": field == value,
        "!=": field != value,
        "<": field < value,
        "<=": field <= value,
        ">": field > value,
        ">=": field >= value,
        "in": field.isin(values),
        "not in": field.is_valid() & ~field.isin(values),
    }[op]
    return (column, op, values if "in" in op else value), wanted


def test_the_same_answers_as_pyarrow(folder: Path) -> None:
    rng = random.Random(16)
    table, wanted = bs.open_table(folder, decryption=SPEC), plain(folder)
    matched = 0
    for _ in range(150):
        filters, expression = [], None
        for _ in range(rng.randrange(1, 3)):
            terms = [condition(rng) for _ in range(rng.randrange(1, 3))]
            filters.append([term for term, _ in terms])
            conjunction = terms[0][1]
            for _, more in terms[1:]:
                conjunction = conjunction & more
            expression = conjunction if expression is None else expression | conjunction
        rows = wanted.filter(expression)
        assert sorted(table.read(["ssn"], filters)["ssn"].to_pylist()) == sorted(rows["ssn"].to_pylist()), filters
        assert table.scan(["ssn"], filters).read_all().num_rows == rows.num_rows
        assert table.read(["country"], filters).num_rows == rows.num_rows
        matched += rows.num_rows
    assert matched


def test_folders_rule_out_files_without_opening_them(folder: Path) -> None:
    for bad in folder.glob("country=FR/**/*.parquet"):
        bad.write_bytes(b"no Parquet")
    table = bs.open_table(folder, decryption=SPEC)
    assert table.read(where=[("country", "==", "DE")]).num_rows == 2 * ROWS
    assert table.read(where=[("country", "!=", "FR"), ("day", ">", 2)]).num_rows == ROWS  # null is not unequal
    with pytest.raises(bs.FormatError):
        table.read(where=[("country", "in", ["FR", "DE"])])


def test_nobody_asks_filters_about_what_they_cannot_answer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = bs.open_table(folder, decryption=SPEC)
    places = set()
    for name in table.files:
        with bs.open_file(name, decryption=SPEC) as file:
            for group in range(file.num_row_groups):
                chunk = file.walk.chunk(group, file.walk.footer.schema.leaf("ssn").index)
                meta = file.walk.meta(chunk)
                places.add((name, meta.bloom_filter_offset))
    read: list[tuple[str, int]] = []
    whole = Source.read, Source.read_into

    def reading(self: Source, offset: int, length: int) -> Any:
        read.append((self.name, offset))
        return whole[0](self, offset, length)

    def reading_into(self: Source, scratch: Any, offset: int, length: int) -> Any:
        read.append((self.name, offset))
        return whole[1](self, scratch, offset, length)

    monkeypatch.setattr(Source, "read", reading)
    monkeypatch.setattr(Source, "read_into", reading_into)
    table.read(where=[("ssn", ">", "000000")])
    table.read(where=[("ssn", "!=", "000007"), ("id", "==", 8)])
    table.read(where=[("day", "==", 1)])
    assert not places & set(read)
    table.read(where=[("ssn", "==", "000007x")])
    table.read(where=[("ssn", "==", "0000075")])
    assert read


@pytest.mark.parametrize("matches", [True, False])
def test_types_that_cannot_meet_are_refused_whatever_matches(folder: Path, matches: bool) -> None:
    write(folder / "country=DE" / "day=9" / "9.parquet", part(9).set_column(0, "id", pa.array(["x"] * ROWS)))
    filters = [("ssn", "==", "000001" if matches else "none")]
    for read in (bs.open_table(folder, decryption=SPEC).read, bs.open_table(folder, decryption=SPEC).scan):
        with pytest.raises(bs.UsageError, match=r"string here and int(32|64) in .*\.parquet.*9\.parquet"):
            read(where=filters)  # type: ignore[operator]
        assert read(["ssn"], filters).schema.names == ["ssn"]  # type: ignore[operator]


def test_a_column_in_file_and_folder_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "score=7" / "a.parquet", part(0))
    with pytest.raises(bs.UsageError, match="in the name of its folder"):
        bs.read_table(tmp_path, decryption=SPEC)
    assert bs.open_table(tmp_path, decryption=SPEC, partitions=False).read().num_rows == ROWS


def test_columns_that_are_nowhere(folder: Path) -> None:
    table = bs.open_table(folder, decryption=SPEC)
    for columns, where in ((["nix"], None), (None, [("nix", "==", 1)]), (["nix"], [("country", "==", "XX")])):
        for read in (table.read, table.scan):
            with pytest.raises(bs.UsageError, match="no such column"):
                read(columns, where)  # type: ignore[operator]
    for wrong in ([("day", "~", 1)], [("day", "in", 7)], [("day", "==", "x")], [("day",)], []):
        with pytest.raises(bs.UsageError):
            table.read(where=wrong)
    empty = table.read(where=[("country", "==", "XX")])
    assert (empty.num_rows, empty.schema) == (0, table.schema)


def test_files_beside_the_folders_have_null(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", part(0))
    write(tmp_path / "day=1" / "b.parquet", part(1))
    table = bs.open_table(tmp_path, decryption=SPEC)
    assert table.read(["day"])["day"].null_count == ROWS
    assert table.read(["ssn"], [("day", "==", 1)]).num_rows == ROWS


def test_widening(tmp_path: Path) -> None:
    pairs = [
        (pa.array([1, 2], pa.int8()), pa.array([3], pa.uint16()), pa.int32()),
        (pa.array([1.5], pa.float32()), pa.array([2.5]), pa.float64()),
        (pa.array([Decimal("1.5")], pa.decimal128(5, 1)), pa.array([Decimal("2.25")], pa.decimal128(8, 2)), pa.decimal128(8, 2)),
        (pa.array(["a"]), pa.array(["b"], pa.large_string()), pa.large_string()),
        (pa.array(["a"]).dictionary_encode(), pa.array(["b"]), pa.string()),
        (pa.array([dt.datetime(2024, 1, 1)], pa.timestamp("ms")), pa.array([dt.datetime(2024, 1, 2)], pa.timestamp("us")), pa.timestamp("us")),
        (pa.array([{"x": 1}]), pa.array([{"y": "b"}]), pa.struct([("x", pa.int64()), ("y", pa.string())])),
        (pa.array([[1]], pa.list_(pa.int32())), pa.array([[2]], pa.list_(pa.int64())), pa.list_(pa.field("element", pa.int64()))),
    ]  # fmt: skip
    for number, (one, other, kind) in enumerate(pairs):
        root = tmp_path / str(number)
        root.mkdir()
        pq.write_table(pa.table({"c": one}), root / "a.parquet")
        pq.write_table(pa.table({"c": other}), root / "b.parquet")
        found = bs.read_table(root)
        assert found.schema.field("c").type == kind
        wanted = [*one.to_pylist(), *other.to_pylist()]
        if pa.types.is_struct(kind):
            wanted = [{"x": 1, "y": None}, {"x": None, "y": "b"}]
        assert found["c"].to_pylist() == wanted


def test_widening_inside_lists_and_maps(tmp_path: Path) -> None:
    """Polars gives lists wide offsets, Spark narrow ones."""
    values = [[("k", [{"a": 1}, None]), ("l", None)]]
    for number, (made, width) in enumerate([(pa.list_, pa.int32()), (pa.large_list, pa.int64())]):
        kind = pa.map_(pa.string(), made(pa.struct({"a": width})))
        pq.write_table(pa.table({"m": pa.array(values, kind)}), tmp_path / f"{number}.parquet")
    table = bs.open_table(tmp_path)
    assert table.schema.field("m").type == pa.map_(pa.string(), pa.large_list(pa.struct({"a": pa.int64()})))
    assert table.read()["m"].to_pylist() == table.scan().read_all()["m"].to_pylist() == values * 2


def test_probe_and_maybe_present(folder: Path) -> None:
    write(folder / "old.parquet", part(7).drop_columns(["ssn"]))
    table = bs.open_table(folder, decryption=SPEC)
    asked = ["000001", "000130", "none"]
    verdicts = table.probe("ssn", asked)
    assert list(verdicts) == table.files
    maybe = table.maybe_present("ssn", asked)
    assert maybe.shape == (6, 3)
    for row, (path, groups) in zip(maybe, verdicts.items(), strict=True):
        assert row.tolist() == [any(group[i] is not bs.Verdict.ABSENT for group in groups) for i in range(3)], path
    assert not maybe[table.files.index(str(folder / "old.parquet"))].any()
    assert maybe[:, 0].sum() >= 1
    assert bs.probe(folder, "ssn", asked, decryption=SPEC) == verdicts
    assert isinstance(maybe, np.ndarray)
    for column, why in (("nix", "no such column"), ("country", "folders' names")):
        with pytest.raises(bs.UsageError, match=why):
            table.probe(column, ["x"])


def test_verify_tells_every_file(folder: Path) -> None:
    table = bs.open_table(folder, decryption=SPEC)
    report = table.verify()
    assert report.ok
    assert not report.complete  # plaintext columns authenticate nothing
    assert list(report.files) == table.files
    bad = Path(table.files[1])
    bad.write_bytes(bad.read_bytes()[:-9] + b"123456789")
    report = bs.verify(folder, decryption=SPEC)
    assert not report.ok
    assert list(report.failures) == [str(bad)]
    assert report.to_dict()["ok"] is False


def test_an_open_table_is_not_taken_for_its_rows(tmp_path: Path) -> None:
    """Whoever takes Arrow's streams would write them as plaintext."""
    import pyarrow.dataset as ds

    (tmp_path / "in").mkdir()
    bs.write_table(pa.table({"id": [1]}), tmp_path / "in" / "a.parquet")
    table = bs.open_table(tmp_path / "in")
    out = tmp_path / "out"
    for write in (lambda: ds.write_dataset(table, out, format="parquet"), lambda: bs.write_dataset(table, out),
                  lambda: bs.write_table(table, tmp_path / "a.parquet"), lambda: pa.table(table)):  # fmt: skip
        with pytest.raises(bs.UsageError, match=r"\.scan\(columns, where\)"):
            write()
    with (
        pytest.raises(bs.UsageError, match=r"\.scan\(\) of an open table"),
        bs.SealedWriter(out, table.schema) as writer,
    ):
        writer.write_table(table)  # type: ignore[arg-type]
    assert [path.name for path in tmp_path.rglob("*.parquet")] == ["a.parquet"]
    assert not out.exists()


def test_facts_of_an_open_table(tmp_path: Path) -> None:
    for number in range(3):
        bs.write_table(pa.table({"id": [1, 2], "name": ["a", "b"]}), tmp_path / f"{number}.parquet")
    table = bs.open_table(tmp_path)
    assert repr(table) == "<SealedTable of 3 files>"
    assert (table.num_rows, table.schema.names) == (6, ["id", "name"])
    assert repr(table) == "<SealedTable of 3 files, 6 rows, 2 columns>"
    seen = table.inspect()
    assert (seen.files, seen.rows, seen.row_groups) == (3, 6, 3)
    assert [(one["column"], one["protection"]) for one in seen.columns] == [("id", "plaintext"), ("name", "plaintext")]
    with table.open(0) as file:
        assert "<td>num_rows</td><td>2</td>" in file._repr_html_()


def test_attach_and_inspect(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / f"p={number}" / "a.parquet", part(number))
    reports = bs.attach_filters(tmp_path, {"id": True}, decryption=SPEC)
    assert list(reports) == bs.open_table(tmp_path).files
    assert all(bs.probe(path, "id", [-1], decryption=SPEC)[0] == [bs.Verdict.ABSENT] for path in reports)
    assert [one.num_rows for one in bs.inspect(tmp_path)] == [None] * 3


def test_a_stream_is_in_order_and_ends_when_it_is_dropped(folder: Path) -> None:
    table = bs.open_table(folder, decryption=SPEC)
    assert table.scan(threads=3).read_all().equals(table.read().combine_chunks()) or (
        table.scan(threads=3).read_all().to_pylist() == table.read().to_pylist()
    )
    for taken in range(3):
        reader = table.scan(threads=2)
        for _ in range(taken):
            reader.read_next_batch()
        del reader
        gc.collect()
        assert not [one for one in threading.enumerate() if one.name.startswith("bloomseal-scan")]
    bad = Path(table.files[-1])
    good = bad.read_bytes()
    reader = table.scan(threads=2)
    bad.write_bytes(good[:-9] + b"123456789")
    with pytest.raises(bs.BloomsealError, match=bad.name):
        reader.read_all()


def test_lists_patterns_and_other_file_systems(folder: Path) -> None:
    table = bs.open_table(f"{folder}/country=*/day=[01]", decryption=SPEC)
    assert sorted(set(table.read(["day"])["day"].to_pylist())) == [0, 1]
    two = [folder / "country=FR" / "day=1" / "1.parquet", folder / "country=DE" / "day=0" / "0.parquet"]
    assert bs.read_table(two, decryption=SPEC)["ssn"].to_pylist() == [
        f"{i:06d}" for i in [*range(ROWS, 2 * ROWS), *range(ROWS)]
    ]
    remote = pafs.SubTreeFileSystem(str(folder.parent), pafs.LocalFileSystem())
    there = bs.open_table("table", decryption=SPEC, filesystem=remote)
    assert there.read().equals(bs.read_table(folder, decryption=SPEC))


def test_no_link_that_came_later_leads_out(folder: Path, tmp_path: Path) -> None:
    table = bs.open_table(folder, decryption=SPEC)
    inside = folder / "country=FR" / "day=1"
    inside.rename(tmp_path / "outside")
    inside.symlink_to(tmp_path / "outside")
    for read in (table.read, table.scan):
        with pytest.raises(bs.UsageError, match="outside the table"):
            read()  # type: ignore[operator]
    assert [error.what for error in table.verify().failures.values()] == ["the file lies outside the table now"]
    with pytest.raises(bs.UsageError, match="leads out"):
        bs.open_table(folder)
    assert bs.open_table(folder, decryption=SPEC, follow_links=True).read().num_rows == 5 * ROWS


def test_one_plain_file_stays_as_it_is(folder: Path) -> None:
    path = folder / "country=DE" / "day=0" / "0.parquet"
    found = bs.read_table(path, decryption=SPEC)
    assert found.column_names == ["id", "ssn", "score"]
    assert bs.open_table(path, decryption=SPEC).read().equals(found)
    assert isinstance(bs.probe(path, "ssn", ["x"], decryption=SPEC), list)
    with pytest.raises(bs.UsageError, match="Delta and Iceberg"):
        bs.read_table(path, decryption=SPEC, version=1)


def test_the_command_line_takes_folders(folder: Path, tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "bloomseal", *arguments], capture_output=True, text=True, check=False
        )

    keys = []
    for name, key in (("footer", b"f" * 16), ("ssn", b"c" * 16)):
        (tmp_path / name).write_text(key.hex())
        keys += ["--key-file", f"{name}={tmp_path / name}"]
    done = run("verify", str(folder), *keys, "--format", "json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)) == 5
    bad = next(folder.glob("country=FR/*/*.parquet"))
    good = bad.read_bytes()
    bad.write_bytes(good[:-9] + b"123456789")
    done = run("verify", str(folder), *keys)
    assert done.returncode == 1
    assert "failed: 1 of 5 files" in done.stdout
    bad.write_bytes(good)
    done = run("attach", f"{folder}/**/*.parquet", "--bloom-filter", "id", *keys, "--format", "json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)) == 5
    assert all(
        group == [bs.Verdict.ABSENT]
        for groups in bs.probe(folder, "id", [-1], decryption=SPEC).values()
        for group in groups
    )
