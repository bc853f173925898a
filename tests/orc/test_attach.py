"""Filters for ORC files that have none: of a folder too, read by pyarrow and by Java, which prune by them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.orc as po
import pytest

import bloomseal as bs
from bloomseal.cli.main import main
from bloomseal.core.errors import UnsupportedError, UsageError
from bloomseal.orc import index
from bloomseal.orc.index import need_range
from bloomseal.orc.layout import OrcLayout
from bloomseal.orc.protobuf import Message, encoded
from support.jvm import JavaUnavailableError, start_jvm
from support.orc_java import java_orc_rows, java_orc_write

from .generated import columns

_COLUMNS = ["i16", "i32", "i64", "f64", "text", "data", "day", "dec15", "dec38", "group.inner", "list._elem"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, codec in enumerate(("zstd", "zlib", "uncompressed")):
        rows = columns(1_200, seed=number)
        options = {"row_index_stride": 300, "stripe_size": 20_000, "batch_size": 100}
        po.write_table(rows, tmp_path / f"{number}.orc", compression=codec, **options)
    return tmp_path


def test_a_folder_gets_filters(folder: Path) -> None:
    before, sizes = bs.open_table(folder).read(), [path.stat().st_size for path in sorted(folder.iterdir())]
    dry = bs.attach_filters(folder, _COLUMNS, dry_run=True)
    assert [path.stat().st_size for path in sorted(folder.iterdir())] == sizes
    reports = bs.attach_filters(folder, _COLUMNS)
    assert [one.new_size for one in reports.values()] == [path.stat().st_size for path in sorted(folder.iterdir())]
    assert [one.filters for one in reports.values()] == [one.filters for one in dry.values()]
    table = bs.open_table(folder)
    assert table.read().equals(before)
    assert po.read_table(folder / "0.orc").equals(before.slice(0, 1_200))
    report = table.verify(filters=True)
    assert report.ok
    for path, one in report.files.items():
        assert one.filters_true == sum(made["row_groups"] for made in reports[path].filters) > 4 * len(_COLUMNS) - 1
    assert table.read(["i8"], [("text", "==", "nobody")]).num_rows == 0
    assert table.stats.pruned_by_filter == table.stats.row_groups >= 12
    inner = before["group"].drop_null()[0].as_py()["inner"]
    assert table.read(["i8"], [("group.inner", "==", inner)]).num_rows > 0
    again = bs.attach_filters(folder / "1.orc", {"text": bs.FilterSpec(fpp=0.001)})
    assert again.replaced == len({one["stripe"] for one in again.filters})


def test_what_nobody_would_believe_is_refused(folder: Path) -> None:
    path = folder / "0.orc"
    whole = path.read_bytes()
    for column in ("bool", "i8"):
        with pytest.raises(UsageError, match="nobody would believe"):
            bs.attach_filters(path, [column])
    with pytest.raises(UnsupportedError, match="different ways"):
        bs.attach_filters(path, ["moment"])  # moments before 1900
    assert path.read_bytes() == whole


@pytest.mark.jvm
def test_java_prunes_by_attached_filters(tmp_path: Path) -> None:
    try:
        start_jvm()
    except JavaUnavailableError as error:
        pytest.skip(str(error))
    path = tmp_path / "java.orc"
    rows = [[number, f"n{number}"] for number in range(5_000)]
    java_orc_write(path, "struct<id:bigint,name:string>", rows, stride=1_000, stripe_rows=2_500)
    assert len(java_orc_rows(path, column="name", value="n1700")) > 1_000
    bs.attach_filters(path, ["name"])
    assert java_orc_rows(path, column="name", value="n1700") == rows[1_000:2_000]
    assert java_orc_rows(path, column="name", value="nobody") == []
    assert java_orc_rows(path) == rows


def test_the_command_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: object, code: int = 0) -> str:
        assert main([str(one) for one in arguments]) == code, capsys.readouterr()
        return capsys.readouterr().out

    told = json.loads(run("attach", folder, "--bloom-filter", "text", "--format", "json"))
    assert len(told) == 3
    assert told[0]["filters"][0]["column"] == "text"
    assert "text" in run("attach", folder / "0.orc", "--bloom-filter", "text", "--dry-run")
    assert run("probe", folder, "text", "nobody", code=1)
    found = json.loads(run("probe", folder / "0.orc", "i64", "0", "--format", "json"))
    assert found["row_groups"] >= 4
    assert found["maybe_present"]
    rows = run("read", folder, "--columns", "i32", "--where", "i32 = 0", "--format", "csv")
    assert set(rows.split()[1:]) == {"0"}
    assert json.loads(run("show", folder / "0.orc", "--format", "json"))["file_format"] == "ORC"
    assert json.loads(run("verify", folder, "--filters", "--format", "json"))[0]["ok"]
    assert run("audit", folder, "--deep", code=4)


_LATE = 16_725_225_600_000
"""Milliseconds; the first of the year 2500."""


def _said(first: int, least: int, greatest: int) -> Message:
    """Statistics of moments: field `first` is the least of them."""
    ends = encoded(first, 2 * least) + encoded(first + 1, 2 * greatest)  # as zigzag has what is not negative
    return Message(memoryview(encoded(1, 5) + encoded(9, ends)))


@pytest.mark.parametrize("first", [1, 3])
def test_moments_that_pyarrow_can_not_hold_are_refused_by_either_statistics(tmp_path: Path, first: int) -> None:
    po.write_table(pa.table({"when": pa.array([0], pa.timestamp("us"))}), tmp_path / "one.orc")
    with bs.open_file(tmp_path / "one.orc") as file:
        column = file.schema.leaf("when")
    need_range([(_said(first, 0, 1), column)], said=True)
    with pytest.raises(UnsupportedError, match="1677 to 2262"):
        need_range([(_said(first, 0, _LATE), column)])


@pytest.mark.parametrize("version", [24, 25])
def test_filters_over_moments_of_which_nothing_is_said(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"when": pa.array([0, 1], pa.timestamp("us")), "n": [1, 2]})
    po.write_table(table, tmp_path / "one.orc")
    with bs.open_file(tmp_path / "one.orc") as file:
        when, number = file.schema.leaf("when"), file.schema.leaf("n")
    only_nulls = Message(memoryview(encoded(1, 0)))
    monkeypatch.setattr(index, "_PYARROW", version)
    need_range([(only_nulls, when), (None, number)], said=True)
    need_range([(None, when)])
    monkeypatch.setattr(OrcLayout, "stripe_statistics", lambda *_: None)
    if version < 25:
        with pytest.raises(UnsupportedError, match="no statistics tell"):
            bs.attach_filters(tmp_path / "one.orc", ["when"])
    else:
        bs.attach_filters(tmp_path / "one.orc", ["when"])
