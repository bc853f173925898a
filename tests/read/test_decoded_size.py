"""Small files that decode to much are refused before the decoder is called; what only looks like it is read."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bloomseal as bs
from bloomseal.core import limits
from bloomseal.format.pages import decoded
from bloomseal.read import file as read_file
from bloomseal.table import sealed

MIB = 1 << 20
LONG = "x" * (8 * MIB)


@pytest.fixture
def one_mib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoded, "MAX_DECODED_BYTES", MIB)


def _texts(rows: int, length: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), ["x" * length]).cast(pa.string())


REPEATED = pa.array([["x" * 2_000] * 2_000])
BOMBS: dict[str, tuple[pa.Array, dict[str, Any]]] = {
    "dictionary": (_texts(2_000, 2_000), {}),
    "dictionary, V2": (_texts(2_000, 2_000), {"data_page_version": "2.0"}),
    "beginnings": (_texts(2_000, 2_000), {"use_dictionary": False, "column_encoding": {"x": "DELTA_BYTE_ARRAY"}}),
    "numbers": (pa.array([1 << 40] * 500_000), {}),
    "nulls": (pa.nulls(500_000, pa.int64()), {}),
    "list": (REPEATED, {}),
    "list of beginnings": (
        REPEATED,
        {"use_dictionary": False, "column_encoding": {"x.list.element": "DELTA_BYTE_ARRAY"}},
    ),
    "struct": (pa.StructArray.from_arrays([_texts(2_000, 2_000)], ["y"]), {}),
}
READS: dict[str, Callable[[Path], Any]] = {
    "read": lambda path: bs.read_table(path),
    "rows": lambda path: bs.read_table(path, where=[("k", ">=", 0)]),
    "scan": lambda path: bs.open_table(path).scan().read_all(),
}


def _written(folder: Path, array: pa.Array, **options: Any) -> Path:
    table = pa.table({"x": array, "k": range(len(array))})
    pq.write_table(table, folder / "t.parquet", **{"compression": "zstd", "store_schema": False, **options})
    return folder / "t.parquet"


@pytest.mark.usefixtures("one_mib")
@pytest.mark.parametrize("read", ["read", "rows"])
@pytest.mark.parametrize("bomb", BOMBS)
def test_few_bytes_are_not_decoded_to_many(tmp_path: Path, bomb: str, read: str) -> None:
    array, options = BOMBS[bomb]
    path = _written(tmp_path, array, **options)
    with pytest.raises(bs.FormatError, match="would be decoded to") as raised:
        bs.read_table(path, columns=["x"]) if read == "read" else READS[read](path)
    assert raised.value.row_group == 0
    assert bs.read_table(path, columns=["k"]).num_rows == len(array)


@pytest.mark.usefixtures("one_mib")
@pytest.mark.parametrize("bomb", [name for name in BOMBS if name.startswith(("list", "beginnings"))])
def test_few_bytes_are_not_decoded_to_many_by_a_scan(tmp_path: Path, bomb: str) -> None:
    """Of the others a scan decodes some rows at a time."""
    array, options = BOMBS[bomb]
    with pytest.raises(bs.FormatError, match="would be decoded to"):
        READS["scan"](_written(tmp_path, array, **options))


@pytest.mark.usefixtures("one_mib")
def test_a_row_group_of_many_nulls_is_read_some_rows_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Together they are more than the limit allows."""
    nulls = pa.nulls(200_000, pa.int64())
    path = _written(tmp_path, nulls)
    for module in (read_file, sealed):
        monkeypatch.setattr(module, "GATHERED", 1 << 16)
    for found in (bs.read_table(path), bs.open_table(path).read()):
        assert found["x"].combine_chunks() == nulls
        assert found["k"].combine_chunks() == pa.array(range(len(nulls)))


@pytest.mark.usefixtures("one_mib")
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"data_page_version": "2.0"},
        {"use_dictionary": False, "column_encoding": {"x": "DELTA_BYTE_ARRAY"}},
        {"compression": "none"},
        {"compression": "snappy"},
    ],
)
def test_one_long_text_among_many_short_ones_is_no_bomb(tmp_path: Path, read: str, options: dict[str, Any]) -> None:
    """Headers alone, and the longest text, would allow hundreds of times as much as there is."""
    array = pa.array(["y" * 100_000, None, *["x"] * 5_000, *["z" * 9] * 5_000])
    path = _written(tmp_path, array, **options)
    again = pq.read_table(path)
    for name in "yz":
        again = again.append_column(name, array)
    options.pop("column_encoding", None)
    pq.write_table(again, path, **{"compression": "zstd", **options})
    found = READS[read](path)
    assert all(found.column(name).combine_chunks() == array for name in "xyz")


@pytest.mark.usefixtures("one_mib")
def test_values_that_are_stored_are_no_bomb(tmp_path: Path) -> None:
    array = pa.array(range(1_000_000))
    assert bs.read_table(_written(tmp_path, array, use_dictionary=False, compression="none")).num_rows == len(array)


_MEASURE = """
import resource, sys
import bloomseal as bs
path, read = sys.argv[1:]
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
bs.read_table(path, columns=["k"]), bs.open_table(path).scan(columns=["k"]).read_all()
before = peak()
try:
    if read == "read":
        bs.read_table(path)
    elif read == "rows":
        bs.read_table(path, where=[("x", "!=", "y")])
    else:
        bs.open_table(path).scan().read_all()
except bs.FormatError as error:
    assert "would be decoded to" in str(error), error
else:
    raise SystemExit("it was decoded")
print((peak() - before) >> 10)
"""


@pytest.mark.parametrize("read", READS)
def test_what_a_bomb_takes(tmp_path: Path, read: str) -> None:
    """The threat model's number, twice over: 2.4 GB from a kilobyte, refused for what its longest text takes."""
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 300, pa.int32()), pa.array([LONG]))
    path = _written(tmp_path, texts, dictionary_pagesize_limit=16 * MIB)
    assert path.stat().st_size < 2_000
    assert 300 * len(LONG) > 2 * limits.MAX_DECODED_BYTES
    done = subprocess.run([sys.executable, "-c", _MEASURE, path, read], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout) < 64, f"{done.stdout} MiB"
