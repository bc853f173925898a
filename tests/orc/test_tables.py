"""A folder of ORC files is a table: the same rows as without pruning, whatever is asked, and pruning that works."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc as po
import pyarrow.parquet as pq
import pytest

import bloomseal as bs
from bloomseal.core.errors import FormatError, PolicyError, UnsupportedError, UsageError
from bloomseal.orc.protobuf import Message
from bloomseal.orc.schema import OrcColumn
from bloomseal.orc.statistics import GroupStatistics
from bloomseal.read.orc.file import OrcFile, OrcPlan
from bloomseal.read.parquet import need_parquet
from support.orc_files import orc_file, orc_ring

from .generated import columns, write

_NESTED = ("group", "list")
_CODECS = ("zstd", "zlib", "uncompressed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files of all types; in each another column ascends, so that statistics tell row groups apart."""
    folder = tmp_path_factory.mktemp("lake")
    for number, (codec, by) in enumerate(zip(_CODECS, ("i64", "text", "wall"), strict=True)):
        rows = columns(2_100, seed=number).sort_by(by)
        write(rows, folder / f"{number}.orc", compression=codec, stride=200, batch_size=100)
    return folder


def _whole(folder: Path) -> pa.Table:
    return pa.concat_tables([po.read_table(path) for path in sorted(folder.glob("*.orc"))])


def condition(rng: random.Random, values: dict[str, list[Any]], schema: pa.Schema, depth: int = 2) -> pc.Expression:
    if depth and rng.random() < 0.5:
        one, other = (condition(rng, values, schema, depth - 1) for _ in range(2))
        return rng.choice([one & other, one | other, ~one])
    name = rng.choice(sorted(values))
    kind = schema.field(name).type
    field, found = pc.field(name), pa.array([rng.choice(values[name]) for _ in range(3)], kind)
    return rng.choice(
        [field == found[0], field != found[0], field < found[0], field <= found[0], field > found[0],
         field >= found[0], field.isin(found), field.is_null(), field.is_valid(), field == found[1]]
    )  # fmt: skip


def test_generated_conditions_give_what_pyarrow_gives(folder: Path) -> None:
    rng, whole, table = random.Random(3), _whole(folder), bs.open_table(folder)
    assert table.read().equals(whole)
    values = {name: whole[name].drop_null().to_pylist() for name in whole.column_names if name not in _NESTED}
    del values["nulls"]
    done: Counter[str] = Counter()
    for _ in range(70):
        asked = condition(rng, values, whole.schema)
        names = rng.choice([None, ["i32", "text"], ["group", "day"], ["list"]])
        wanted = whole.filter(asked)
        found = table.read(names, asked)
        assert found.equals(wanted if names is None else wanted.select(names)), asked
        done["statistics"] += table.stats.pruned_by_statistics
        done["filter"] += table.stats.pruned_by_filter
        done["matched"] += 0 < found.num_rows < whole.num_rows
        assert table.stats.row_groups == sum(
            (table.stats.pruned_by_statistics, table.stats.pruned_by_filter, table.stats.decoded)
        )
    assert done["statistics"] > 50
    assert done["filter"] > 50
    assert done["matched"] > 15


def test_tuples_nested_fields_and_streams(folder: Path) -> None:
    whole, table = _whole(folder), bs.open_table(folder)
    inner = pc.struct_field(whole["group"], "inner")
    value = inner.drop_null()[17].as_py()
    wanted = whole.filter(pc.equal(inner, value))
    assert table.read(["group.inner", "i8"], [("group.inner", "==", value)]).equals(wanted.select(["group", "i8"]))
    assert table.stats.pruned_by_filter > 0
    with table.scan(["i8"], [("group.inner", "==", value)]) as reader:
        assert reader.read_all().equals(wanted.select(["i8"]))
    assert table.read(["text"], [("i64", ">=", 2**70)]).num_rows == 0
    assert table.maybe_present("i64", [2**70]).any() == False  # noqa: E712
    assert bs.read_table(folder / "0.orc", columns=["i8"]).equals(po.read_table(folder / "0.orc", columns=["i8"]))


def test_only_surviving_stripes_are_decoded(tmp_path: Path) -> None:
    path = tmp_path / "big.orc"
    rows = pa.table({"id": range(60_000), "text": [f"{number:040d}" for number in range(60_000)]})
    write(rows, path, stride=1_000, stripe_size=200_000, batch_size=1_000, compression="uncompressed")
    with bs.open_file(path) as file:
        assert isinstance(file, OrcFile)
        assert file.num_parts > 3
        plan = file.plan(["text"], [("id", "==", 31_234)])
        found = [*file.scan(plan)]
        assert [one["text"].to_pylist() for one in found] == [[f"{31_234:040d}"]]
        assert isinstance(plan, OrcPlan)
        assert plan.stats.decoded == 1
        assert plan.stats.pruned_by_statistics + plan.stats.pruned_by_filter == 59
        assert 0 < plan.bytes_read < path.stat().st_size / 15  # a stripe of 30, and the tail for each pass
        nothing = file.plan(None, [("text", "==", "nobody")])
        assert [*file.scan(nothing)] == []
        assert nothing.bytes_read == 0


def test_statistics_are_parsed_where_filters_leave_a_row_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "one.orc"
    rows = pa.table({"text": [f"{number % 97}-{number}" for number in range(60_000)]})
    write(rows, path, fpp=1e-6, stride=1_000, stripe_size=1 << 26, batch_size=1_000)
    parsed: list[int] = []
    whole = OrcFile.parsed

    def counted(
        file: OrcFile, stripe: int, column: OrcColumn, known: GroupStatistics, at: list[int]
    ) -> list[Message | None]:
        parsed.append(len(at))
        return whole(file, stripe, column, known, at)

    monkeypatch.setattr(OrcFile, "parsed", counted)
    for filters, found, most in (
        ([("text", "==", "nobody")], 0, 0),
        ([("text", "==", "54-31_000")], 0, 0),
        ([("text", "in", ["57-31000", "nobody"])], 1, 1),
        ([[("text", "==", "57-31000"), ("text", ">", "1")], [("text", "==", "nobody")]], 1, 1),
        ([("text", ">=", "96-59")], 58, 60),
    ):
        parsed.clear()
        assert bs.read_table(path, where=filters).num_rows == found
        assert sum(parsed) == most, filters


def test_arrays_of_answers_are_the_verdicts(folder: Path) -> None:
    asked = [None, 0, 2**63 - 1, 17, *range(2_000, 2_040)]
    for path in sorted(folder.glob("*.orc")):
        with bs.open_file(path) as file:
            named = [[one is not bs.Verdict.ABSENT for one in verdicts] for verdicts in file.probe("i64", asked)]
            assert file.maybe_present("i64", asked).tolist() == named
            assert len(named) == file.num_row_groups


def test_nan_hides_no_row(tmp_path: Path) -> None:
    """Where a row group begins with NaN, its bounds are NaN, and the stripe's leave its values out."""
    path = tmp_path / "nan.orc"
    values = [1.0, 2.0, float("nan"), 100.0]
    write(pa.table({"d": values, "f": pa.array(values, pa.float32())}), path, stride=2, batch_size=1)
    for column in ("d", "f"):
        assert bs.read_table(path, where=[(column, ">", 50)])[column].to_pylist() == [100.0]
        assert bs.read_table(path, where=[(column, "==", 100)])[column].to_pylist() == [100.0]
        assert bs.read_table(path, where=[(column, "!=", 1)]).num_rows == 3
        assert bs.read_table(path, where=~(pc.field(column) < 50)).num_rows == 2


def test_null_structs_are_null_inside(tmp_path: Path) -> None:
    path = tmp_path / "structs.orc"
    rows = pa.table({"s": pa.array([None, {"a": 1}], pa.struct([("a", pa.int64())]))})
    write(rows, path)
    assert bs.read_table(path, where=pc.field("s", "a").is_null()).num_rows == 1


def test_folders_names_and_other_endings(folder: Path, tmp_path: Path) -> None:
    for country, name in (("DE", "a.ORC"), ("FR", "part-0.snappy.orc")):
        place = tmp_path / f"country={country}" / name
        place.parent.mkdir()
        place.write_bytes((folder / "0.orc").read_bytes())
    (tmp_path / "country=FR" / "_part.orc").write_bytes(b"hidden")
    table = bs.open_table(tmp_path)
    assert len(table) == 2
    found = table.read(["i8"], [("country", "==", "FR")])
    assert found.num_rows == 2_100
    assert table.columns[-1] == "country"
    bare = tmp_path / "data"
    bare.write_bytes((folder / "1.orc").read_bytes())
    assert bs.read_table(bare, columns=["i8"]).num_rows == 2_100  # its end says ORC, whatever its name


def test_a_folder_of_both_formats_is_refused(tmp_path: Path) -> None:
    rows = pa.table({"a": [1]})
    pq.write_table(rows, tmp_path / "a.parquet")
    po.write_table(rows, tmp_path / "b.orc")
    with pytest.raises(UsageError, match=r"Parquet and ORC files in one table.*\*\.orc"):
        bs.open_table(tmp_path)
    assert bs.open_table(f"{tmp_path}/*.orc").read().equals(rows)
    assert bs.read_table(f"{tmp_path}/*.parquet").equals(rows)


def test_the_verbs_of_files(folder: Path) -> None:
    seen = bs.inspect(folder / "0.orc")
    assert (seen.file_format, seen.num_rows, seen.num_row_groups) == ("ORC", 2_100, 11)
    assert {one.column: one.filter for one in seen.columns}["text"] == "in clear"
    assert len(bs.inspect(folder)) == 3
    report = bs.verify(folder / "0.orc", filters=True)
    assert report.ok
    assert report.filters_true == 11 * 15
    assert not report.complete
    assert bs.probe(folder, "list.list.element", [5, 500])[str(folder / "0.orc")][0][1] == bs.Verdict.ABSENT
    with bs.open_file(folder / "0.orc") as file:
        assert file.probe("list._elem", [5]) == file.probe("list.list.element", [5])
        with pytest.raises(UnsupportedError, match="nothing authenticates"):
            need_parquet(file)
    with pytest.raises(UnsupportedError, match="ORC file"):
        bs.open_table(folder).index("i8").build()


def test_plaintext_where_encryption_is_expected(folder: Path) -> None:
    spec = bs.DecryptionSpec(keys=bs.ExplicitKeys(footer_key=b"f" * 16, column_keys={"text": b"c" * 16}))
    with pytest.raises(PolicyError):
        bs.open_table(folder, decryption=spec).read(["i8"])
    lenient = bs.DecryptionSpec(None, encrypted_columns=["text"], allow_plaintext=True)
    table = bs.open_table(folder, decryption=lenient)
    assert table.read(["i8"]).num_rows == 6_300
    for call in (
        lambda: table.read(["text"]),
        lambda: table.read(["i8"], [("text", "==", "a")]),
        lambda: table.probe("text", ["a"]),
    ):
        with pytest.raises(PolicyError):
            call()


def test_moments_beyond_nanoseconds_are_refused(tmp_path: Path) -> None:
    """Some versions of pyarrow give other moments for them without a word, of which a filter would be built, too."""
    path = tmp_path / "late.orc"
    for year in (2400, 2500):  # the second would come out as a moment after 1900
        po.write_table(pa.table({"t": pa.array([dt.datetime(year, 1, 1)], pa.timestamp("ms"))}), path)
        for refused in (lambda: bs.attach_filters(path, ["t"]), lambda: bs.open_file(path).rows(0, ["t"])):
            with pytest.raises(UnsupportedError, match="1677"):
                refused()
    rows = pa.table({"t": pa.array([dt.datetime(2600, 1, 1)], pa.timestamp("ms")), "a": [1]})
    po.write_table(rows, path)
    with pytest.raises(UnsupportedError, match="1677"):
        bs.read_table(path)
    assert bs.read_table(path, columns=["a"]).num_rows == 1
    po.write_table(pa.table({"t": pa.array([dt.datetime(2260, 1, 1)], pa.timestamp("ms"))}), path)
    assert bs.read_table(path)["t"][0].as_py() == dt.datetime(2260, 1, 1)


def test_types_that_only_orc_has(tmp_path: Path) -> None:
    path = tmp_path / "union.orc"
    kinds, offsets = pa.array([0, 1, 0], pa.int8()), pa.array([0, 0, 1], pa.int32())
    union = pa.UnionArray.from_dense(kinds, offsets, [pa.array([1, 2]), pa.array(["x"])], ["_union_0", "_union_1"])
    po.write_table(pa.table({"u": union, "a": [1, 2, 3]}), path)
    assert bs.read_table(path, columns=["a"], where=[("a", ">", 1)])["a"].to_pylist() == [2, 3]
    with pytest.raises(UnsupportedError, match="only ORC"):
        bs.read_table(path)


def test_altered_files_give_our_errors(folder: Path) -> None:
    sound, chance = (folder / "0.orc").read_bytes(), random.Random(8)
    for _ in range(25):
        data = bytearray(sound)
        for _ in range(3):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            with bs.open_file(bytes(data)) as file:
                file.read(["i32", "text", "wall", "list"], [("i32", "==", 0)])
                file.verify(filters=True)
        except bs.BloomsealError:
            pass
    for size in (0, 3, 10, len(sound) // 2, len(sound) - 1):
        with pytest.raises(FormatError):
            bs.open_file(sound[:size])


def test_an_object_store_is_read_and_probed_by_few_requests(folder: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    store, requests = fsspec.filesystem("memory"), list[tuple[int, int]]()
    whole = _whole(folder)
    for path in sorted(folder.glob("*.orc")):
        store.pipe_file(f"/lake/{path.name}", path.read_bytes())
    place = "memory://lake"
    value = whole["i64"].drop_null()[5].as_py()
    assert bs.read_table(place).equals(whole)
    found = bs.read_table(place, columns=["text", "list"], where=[("i64", "==", value)])
    assert found.equals(whole.filter(pc.field("i64") == value).select(["text", "list"]))
    here, there = (bs.probe(one, "i64", [value, 12_345]) for one in (folder, place))
    assert [*there.values()] == [*here.values()]
    kind = type(store.open("/lake/0.orc"))
    read = kind.read
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            kind, "read", lambda self, length=-1: requests.append((self.tell(), length)) or read(self, length)
        )
        with bs.open_file("memory://lake/0.orc") as file:
            requests.clear()
            file.decode(0, [leaf.index for leaf in file.leaves.leaves])
    # Statistics, stripe footer, and the streams of all columns, which lie side by side.
    assert len(requests) <= 3
    store.rm("/lake", recursive=True)


def test_a_sealed_index_is_refused_in_one_line(tmp_path: Path) -> None:
    ring = orc_ring(tmp_path / "keys.json")
    orc_file(tmp_path / "t" / "a.orc", ring)
    key = bs.EncryptionSpec(footer_key="pii", column_keys={"name": "pii"}, keys=ring)
    table = bs.open_table(tmp_path / "t", decryption=bs.DecryptionSpec(ring, allow_ctr=True))
    with pytest.raises(UnsupportedError, match="nothing authenticates"):
        table.index("name", encryption=key).build()
    assert [one.name for one in (tmp_path / "t").iterdir()] == ["a.orc"]


def test_a_truncated_file_is_refused_as_what_its_name_says(tmp_path: Path) -> None:
    path = tmp_path / "cut.orc"
    write(columns(100), path)
    path.write_bytes(path.read_bytes()[:-7])
    for ask in (
        lambda: bs.open_file(path),
        lambda: bs.inspect(path),
        lambda: bs.read_table(path),
        lambda: bs.attach_filters(path, {"i64": bs.FilterSpec()}),
    ):
        with pytest.raises(FormatError, match="not an ORC file, or truncated") as refused:
            ask()
        assert str(path) in str(refused.value)


def test_types_of_one_table_are_taken_apart_once(tmp_path: Path) -> None:
    """Files of the same types share what was made of them; others do not."""
    for name, rows in (("a", {"x": [1], "y": ["t"]}), ("b", {"x": [2], "y": ["u"]}), ("c", {"x": ["t"], "y": [1]})):
        po.write_table(pa.table(rows), tmp_path / f"{name}.orc")
    with (
        bs.open_file(tmp_path / "a.orc") as a,
        bs.open_file(tmp_path / "b.orc") as b,
        bs.open_file(tmp_path / "c.orc") as c,
    ):
        assert isinstance(a, OrcFile)
        assert isinstance(b, OrcFile)
        assert isinstance(c, OrcFile)
        assert a._columns is b._columns
        assert a.arrow_schema().types == [pa.int64(), pa.string()]
        assert c.arrow_schema().types == [pa.string(), pa.int64()]
        assert [one.read().num_rows for one in (a, b, c)] == [1, 1, 1]
