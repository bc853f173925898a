"""Rows that go out: moments beyond what Python's own types hold, with pandas and on a machine without it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import bloomseal as bs

from .conftest import Run

_WITHOUT_PANDAS = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pandas":
            raise ImportError(name)
sys.meta_path.insert(0, Missing())
from bloomseal.cli.main import main
sys.exit(main(sys.argv[1:]))
"""

FINE = {
    "t": pa.array([1, 1_700_000_000_000_001_000, None], pa.timestamp("ns")),
    "tz": pa.array([1, 1_001, 0], pa.timestamp("ns", "Asia/Kolkata")),
    "tm": pa.array([1, 2_000_000_003, 5_000], pa.time64("ns")),
    "l": pa.array([[1], [], None], pa.list_(pa.timestamp("ns"))),
    "s": pa.array([{"x": 1}, {"x": None}, None], pa.struct([("x", pa.time64("ns"))])),
    "m": pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.timestamp("ns"))),
}
SHOWN = [
    {
        "t": "1970-01-01T00:00:00.000000001",
        "tz": "1970-01-01T05:30:00.000000001+05:30",
        "tm": "00:00:00.000000001",
        "l": ["1970-01-01T00:00:00.000000001"],
        "s": {"x": "00:00:00.000000001"},
        "m": [["a", "1970-01-01T00:00:00.000000001"]],
    },
    {
        "t": "2023-11-14T22:13:20.000001",
        "tz": "1970-01-01T05:30:00.000001001+05:30",
        "tm": "00:00:02.000000003",
        "l": [],
        "s": {"x": None},
        "m": [],
    },
    {"t": None, "tz": "1970-01-01T05:30:00+05:30", "tm": "00:00:00.000005", "l": None, "s": None, "m": None},
]


def test_nanoseconds_are_shown(run: Run, folder: Path) -> None:
    """Spark's INT96 has them; of times they were cut off."""
    bs.write_table(pa.table(FINE), folder / "t.parquet")
    assert run("read", "t.parquet", "--format", "json").rows == SHOWN
    assert "00:00:00.000000001" in run("read", "t.parquet").out
    csv = run("read", "t.parquet", "--format", "csv", "-c", "tm,l").out.splitlines()
    assert csv[1] == '00:00:00.000000001,"[""1970-01-01T00:00:00.000000001""]"'


@pytest.mark.parametrize("kind", ["json", "csv", "table"])
def test_nanoseconds_need_no_pandas(run: Run, folder: Path, kind: str) -> None:
    """No extra installs it, and the default answer was an unexpected error."""
    bs.write_table(pa.table(FINE), folder / "t.parquet")
    command = [sys.executable, "-c", _WITHOUT_PANDAS, "read", "t.parquet", "--format", kind, "--columns", "t,tm,l"]
    bare = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (bare.returncode, bare.stderr) == (0, "")
    assert "1970-01-01T00:00:00.000000001" in bare.stdout


def test_advice_about_nanoseconds_and_spans_needs_no_pandas(run: Run, folder: Path) -> None:
    rows = {"t": pa.array([1, 2], pa.timestamp("ns")), "span": pa.array([1, 2], pa.duration("ns"))}
    bs.write_table(pa.table(rows), folder / "t.parquet", bloom_filters=["t"])
    command = [sys.executable, "-c", _WITHOUT_PANDAS, "advise", "t.parquet", "--format", "json"]
    bare = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (bare.returncode, bare.stderr) == (0, "")


def test_years_beyond_python(run: Run, folder: Path) -> None:
    far = {
        "d": pa.array([5_000_000, 0], pa.date32()),
        "ms": pa.array([10**13, 253_402_300_800_000], pa.timestamp("ms")),
        "tz": pa.array([10**15, 0], pa.timestamp("ms", "UTC")),
    }
    bs.write_table(pa.table(far), folder / "far.parquet")
    assert run("read", "far.parquet", "--format", "json").rows == [
        {"d": "15659-07-15", "ms": "2286-11-20T17:46:40", "tz": "33658-09-27T01:46:40.000+00:00"},
        {"d": "1970-01-01", "ms": "10000-01-01T00:00:00.000", "tz": "1970-01-01T00:00:00+00:00"},
    ]
    assert run("read", "far.parquet").code == 0
    assert run("read", "far.parquet", "--format", "csv", "-c", "d,ms").out.splitlines()[1].startswith("15659-07-15,")
    refused = run("read", "far.parquet", "--output", "far.csv")
    assert refused.code == 2
    assert "column tz" in refused.err
    assert not (folder / "far.csv").exists()


def test_rows_without_columns_of_moments_are_as_before(run: Run, folder: Path) -> None:
    rows = pa.table({"a": [1, None], "u": pa.array([b"x" * 16, None], pa.binary(16)).cast(pa.uuid())})
    bs.write_table(rows, folder / "u.parquet")
    found = run("read", "u.parquet", "--format", "json").rows
    assert found == [{"a": 1, "u": "78787878-7878-7878-7878-787878787878"}, {"a": None, "u": None}]
