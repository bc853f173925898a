"""What a probe gives back: verdicts by row group and value, which show themselves, and no value."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import bloomseal as bs

ABSENT, MAYBE, NONE = bs.Verdict.ABSENT, bs.Verdict.MAYBE_PRESENT, bs.Verdict.NO_FILTER


def test_answers_show_row_groups_and_verdicts_and_no_value(tmp_path: Path) -> None:
    for number in range(2):
        rows = pa.table({"ssn": [f"{number}-{i}" for i in range(60)], "id": range(60)})
        bs.write_table(rows, tmp_path / f"{number}.parquet", row_group_size=2, bloom_filters=["ssn"])
    file = bs.probe(tmp_path / "0.parquet", "ssn", ["0-3", "secret"])
    assert file[1] == [MAYBE, ABSENT] == list(file[1])
    assert file.overall == [MAYBE, ABSENT]
    lines = str(file).splitlines()
    assert (lines[0], lines[1]) == ("row group 0: absent, absent", "row group 1: maybe present, absent")
    assert lines[20:] == ["and 10 more row groups"]
    table = bs.probe(tmp_path, "ssn", ["1-0", "secret"])
    path = str(tmp_path / "1.parquet")
    assert table[path][0] == [MAYBE, ABSENT]
    assert table.overall == [MAYBE, ABSENT]
    assert str(table).splitlines()[:2] == [str(tmp_path / "0.parquet"), "  row group 0: absent, absent"]
    assert "secret" not in repr(table) + repr(file)
    assert repr(bs.probe(tmp_path / "0.parquet", "id", range(12))).splitlines()[0].endswith("no filter, and 2 more")
    assert bs.probe(tmp_path / "0.parquet", "id", [1]).overall == [NONE]


def test_a_file_without_row_groups(tmp_path: Path) -> None:
    bs.write_table(pa.table({"ssn": pa.array([], pa.string())}), tmp_path / "a.parquet")
    found = bs.probe(tmp_path / "a.parquet", "ssn", ["1"])
    assert (found, repr(found), bs.probe([tmp_path / "a.parquet"], "ssn", ["1"]).overall) == ([], "no row groups", [])
