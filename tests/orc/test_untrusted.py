"""Filters of writers known to be wrong are *maybe*, whatever they say."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.orc
import pytest

import bloomseal as bs
from bloomseal import Verdict
from bloomseal.audit import audit

from .altered import by_version
from .generated import write

ROWS = pa.table({"i": [7, 1 << 40], "t": ["a", "b"], "d": [1.5, 2.5], "f": pa.array([1.5, 2.5], pa.float32())})


@pytest.mark.parametrize("version", ["1.6.0", "1.6.11", "1.7.0", "1.7.1-SNAPSHOT", None, ""])
def test_filters_with_other_hashes_are_maybe(version: str | None, tmp_path: Path) -> None:
    path = tmp_path / "old.orc"
    write(ROWS, path)
    assert bs.open_table(path).read(where=[("t", "==", "aa")]).num_rows == 0
    by_version(path, version)
    with bs.open_file(path) as file:
        assert all("ORC-1024" in str(info.untrusted) for info in file.filters)
        assert file.verdicts("i", [7, 8])[0].verdicts == [Verdict.NO_FILTER] * 2
        assert file.maybe_present("t", ["a", "aa"]).all()
    table = bs.open_table(path)
    assert table.read(where=[("t", "==", "aa")]).num_rows == 0
    assert (table.stats.pruned_by_filter, table.stats.decoded) == (0, 1)
    report = bs.verify(path, filters=True)
    assert (report.filters_true, len(report.filters_unasked)) == (0, 4)


@pytest.mark.parametrize("version", ["1.6.12", "1.7.1", "2.2.2"])
def test_repaired_versions_are_believed(version: str, tmp_path: Path) -> None:
    path = tmp_path / "new.orc"
    write(ROWS, path)
    by_version(path, version)
    with bs.open_file(path) as file:
        assert file.verdicts("t", ["a", "aa"])[0].verdicts == [Verdict.MAYBE_PRESENT, Verdict.ABSENT]


def test_filters_over_float_prove_nothing(tmp_path: Path) -> None:
    path = tmp_path / "f.orc"
    write(ROWS, path)
    with bs.open_file(path) as file:
        (answer,) = file.verdicts("f", [2.0])
        assert answer.verdicts == [Verdict.NO_FILTER]
        assert "stores them as floats" in str(answer.untrusted)
        assert file.verdicts("d", [2.0])[0].verdicts == [Verdict.ABSENT]


@pytest.mark.parametrize(("column", "version"), [("f", "2.2.2"), ("t", "1.7.0"), ("t", None)])
def test_attach_refuses_what_nobody_would_believe(column: str, version: str | None, tmp_path: Path) -> None:
    """A filter of ours can't be told from one of the file's writer."""
    path = tmp_path / "a.orc"
    write(ROWS, path)
    by_version(path, version)
    before = path.read_bytes()
    with pytest.raises(bs.UsageError, match="nobody would believe a filter here"):
        bs.attach_filters(path, {column: bs.FilterSpec()})
    assert path.read_bytes() == before


def test_the_audit_names_them(tmp_path: Path) -> None:
    path = tmp_path / "a.orc"
    write(ROWS, path)
    (found,) = [one for one in audit(path).findings if one.rule.id == "BS211"]
    assert (found.column, found.severity.label) == ("f", "warning")
    assert "stores them as floats" in found.message
    by_version(path, "1.7.0")
    named = {one.column: one.message for one in audit(path).findings if one.rule.id == "BS211"}
    assert named.keys() == {"i", "t", "d", "f"}
    assert all("ORC-1024" in why for why in named.values())
    plain = tmp_path / "b.orc"
    pyarrow.orc.write_table(ROWS, plain)  # no filters
    by_version(plain, "1.7.0")
    assert "BS211" not in {one.rule.id for one in audit(plain).findings}
