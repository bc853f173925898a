"""How a writer ends: complete once, or not at all; and arguments that are refused by name."""

from __future__ import annotations

import gc
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bloomseal as bs

ENCRYPTION = bs.EncryptionSpec(footer_key=b"f" * 16)
DECRYPTION = bs.DecryptionSpec(bs.ExplicitKeys(footer_key=b"f" * 16))
UNEVEN = pa.table({"id": [1] * 1000 + list(range(1000))})
TOO_SMALL = {"id": bs.FilterSpec(ndv=20, hide_size=True)}


def _failed(path: Path, threads: int) -> bs.SealedWriter:
    """A writer whose second row group was refused, after the first was taken."""
    writer = bs.SealedWriter(
        path, UNEVEN.schema, encryption=ENCRYPTION, bloom_filters=TOO_SMALL, row_group_size=1000, threads=threads
    )
    writer.write_table(UNEVEN.slice(0, 500))
    with pytest.raises(bs.UsageError, match="row group 1"):
        # With threads the failure is seen some row groups later.
        writer.write_table(pa.concat_tables([UNEVEN.slice(500)] * 4))
    return writer


@pytest.mark.parametrize("threads", [1, 2])
def test_a_writer_that_failed_refuses_all_but_abort(tmp_path: Path, threads: int) -> None:
    """Caught and carried on, it committed a file without the rows that it had taken."""
    writer = _failed(tmp_path / "a.parquet", threads)
    for action in (
        writer.close,
        lambda: writer.write_table(UNEVEN.slice(0, 1)),
        lambda: writer.write_batch(UNEVEN.to_batches()[0]),
        lambda: writer.write_batches(UNEVEN.to_batches()),
    ):
        with pytest.raises(bs.UsageError, match="has failed"):
            action()
    writer.abort()
    writer.abort()
    assert list(tmp_path.iterdir()) == []


def test_leaving_the_block_of_a_writer_that_failed_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(bs.UsageError, match="has failed"), _failed(tmp_path / "a.parquet", 1):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_refused_table_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    with bs.SealedWriter(path, UNEVEN.schema) as writer:
        writer.write_table(UNEVEN)
        for wrong in (pa.table({"other": [1]}), "x", None, UNEVEN.to_batches()[0]):
            with pytest.raises(bs.UsageError):
                writer.write_table(wrong)  # type: ignore[arg-type]
        for wrong in (UNEVEN, 5):
            with pytest.raises(bs.UsageError, match="RecordBatch"):
                writer.write_batch(wrong)
        with pytest.raises(bs.UsageError, match="iterable"):
            writer.write_batches(5)  # type: ignore[arg-type]
    assert bs.read_table(path).equals(UNEVEN)


def test_closing_twice_is_closing_once(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    with bs.SealedWriter(path, UNEVEN.schema, encryption=ENCRYPTION) as writer:
        writer.write_table(UNEVEN)
        writer.close()
        before = path.read_bytes()
        writer.close()
        writer.abort()
    assert path.read_bytes() == before
    assert bs.read_table(path, decryption=DECRYPTION).equals(UNEVEN)
    for action in (lambda: writer.write_table(UNEVEN), lambda: writer.write_batches(UNEVEN.to_batches())):
        with pytest.raises(bs.UsageError, match="closed"):
            action()
    assert path.read_bytes() == before


def test_a_writer_that_was_aborted_takes_no_rows(tmp_path: Path) -> None:
    with bs.SealedWriter(tmp_path / "a.parquet", UNEVEN.schema) as writer:
        writer.write_table(UNEVEN)
        writer.abort()
        with pytest.raises(bs.UsageError, match="aborted"):
            writer.write_table(UNEVEN)
        with pytest.raises(bs.UsageError, match="aborted"):
            writer.close()
    assert list(tmp_path.iterdir()) == []


def test_a_writer_that_is_dropped_leaves_no_file_and_says_so(tmp_path: Path) -> None:
    held = [bs.SealedWriter(tmp_path / "a.parquet", UNEVEN.schema, row_group_size=100)]
    held[0].write_table(UNEVEN)
    assert len(list(tmp_path.iterdir())) == 1
    with pytest.warns(bs.BloomsealWarning, match=r"a\.parquet: a writer was dropped"):
        held.clear()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore:.*a writer was dropped")
def test_a_writer_whose_threads_hold_it_last_leaves_no_file(tmp_path: Path) -> None:
    for _ in range(20):
        held = [bs.SealedWriter(tmp_path / "a.parquet", UNEVEN.schema, row_group_size=100, threads=3)]
        held[0].write_table(UNEVEN)
        held.clear()
    until = time.monotonic() + 120
    while list(tmp_path.iterdir()) and time.monotonic() < until:
        time.sleep(0.01)
    assert list(tmp_path.iterdir()) == []


def test_a_writer_at_the_end_of_the_process_leaves_no_file(tmp_path: Path) -> None:
    code = (
        "import sys, pyarrow as pa, bloomseal as bs\n"
        "t = pa.table({'a': [1]})\n"
        "w = bs.SealedWriter(sys.argv[1], t.schema)\n"
        "w.write_table(t)\n"
        "keep = [w]; keep.append(keep)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "a.parquet"], capture_output=True, text=True, check=True
    )
    assert list(tmp_path.iterdir()) == [], run.stderr


def test_a_forked_process_has_no_say_about_the_file(tmp_path: Path) -> None:
    writer = bs.SealedWriter(tmp_path / "a.parquet", UNEVEN.schema)
    child = os.fork()
    if child == 0:
        try:
            del writer
            gc.collect()
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    writer.write_table(UNEVEN)
    writer.close()
    assert bs.read_table(tmp_path / "a.parquet").equals(UNEVEN)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"row_group_size": 1.5}, "row_group_size= takes a whole number, not float"),
        ({"row_group_size": "10"}, "row_group_size= takes a whole number, not str"),
        ({"row_group_size": None}, "row_group_size="),
        ({"row_group_size": True}, "row_group_size="),
        ({"row_group_size": 0}, "a row group of 0 rows"),
        ({"threads": 2.0}, "threads= takes a whole number, not float"),
        ({"threads": -1}, "-1 threads"),
        ({"filter_layout": 3}, "filter layout"),
        ({"filter_layout": ["end"]}, "filter layout"),
        ({"filesystem": "s3"}, "filesystem= takes one of pyarrow.fs or of fsspec, not str"),
        ({"encryption": b"f" * 16}, "encryption="),
        ({"encryption": "keyring:"}, "encryption="),
        ({"bloom_filters": ["id", 1]}, "a str, not int"),
        ({"bloom_filters": "id"}, "bloom_filters= takes a dict or a list of columns, not str"),
        ({"bloom_filters": {1: True}}, "a str, not int"),
        ({"bloom_filters": {"id": 0.01}}, "not float"),
        ({"compression": 5}, ""),
        ({"compression": {"id": 5}}, ""),
        ({"use_dictionary": 5}, ""),
        ({"data_page_size": "x"}, ""),
        ({"data_page_version": 2}, ""),
        ({"no_such_option": 1}, "no_such_option"),
    ],
)
def test_arguments_of_the_wrong_type_are_refused_by_name(tmp_path: Path, wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(bs.UsageError) as caught:
        bs.write_table(UNEVEN, tmp_path / "a.parquet", **wrong)
    assert says in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "call",
    [
        lambda path: bs.write_table("x", path),
        lambda path: bs.write_table(None, path),
        lambda path: bs.write_table({"id": [1]}, path),
        lambda _: bs.write_table(UNEVEN, io.StringIO()),  # type: ignore[arg-type]
        lambda _: bs.write_table(UNEVEN, None),  # type: ignore[arg-type]
        lambda _: bs.write_table(UNEVEN, b"a.parquet"),  # type: ignore[arg-type]
        lambda path: bs.SealedWriter(path, UNEVEN),
        lambda path: bs.SealedWriter(path, ["id"]),
    ],
)
def test_data_and_places_of_the_wrong_type_are_refused(tmp_path: Path, call: Callable[[Path], object]) -> None:
    with pytest.raises(bs.UsageError, match=r"not|takes|text"):
        call(tmp_path / "a.parquet")
    assert list(tmp_path.iterdir()) == []
