"""Files that Spark has marked as written by the calendar before 1582: their old dates are other days than they say."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import bloomseal as bs
from bloomseal.core.errors import UnsupportedError

KEYS = bs.ExplicitKeys(footer_key=b"f" * 16)
MARK = {b"org.apache.spark.version": b"4.0.0", b"org.apache.spark.legacyDateTime": b""}
SPARK_2 = {b"org.apache.spark.version": b"2.4.8"}
OLD, MODERN = dt.date(1000, 1, 1), dt.date(2020, 1, 1)


def table(*days: dt.date | None) -> pa.Table:
    moments = [None if day is None else dt.datetime(day.year, day.month, day.day) for day in days]
    return pa.table(
        {
            "id": range(len(days)),
            "d": pa.array(days, pa.date32()),
            "t": pa.array(moments, pa.timestamp("us", "UTC")),
            "n": pa.array(moments, pa.timestamp("us")),
            "nested": [{"d": day} for day in days],
        }
    )


def sealed(path: Path, rows: pa.Table, metadata: dict[bytes, bytes], **options: Any) -> Path:
    plain = path.with_suffix(".plain")
    pq.write_table(rows.replace_schema_metadata(metadata), plain, **options)
    bs.seal_file(plain, path, encryption=bs.EncryptionSpec(footer_key=b"f" * 16), bloom_filters={"d": bs.FilterSpec()})
    return path


@pytest.mark.parametrize("metadata", [MARK, SPARK_2])
@pytest.mark.parametrize(
    "filters", [None, [("d", "==", OLD)], [("d", "<", dt.date(1582, 10, 20))], pc.field("d") == MODERN]
)
def test_old_dates_are_refused_however_they_are_asked_for(
    tmp_path: Path, metadata: dict[bytes, bytes], filters: Any
) -> None:
    path = sealed(tmp_path / "old.parquet", table(OLD, MODERN), metadata)
    spec = bs.DecryptionSpec(KEYS)
    with pytest.raises(UnsupportedError, match="by an older calendar"):
        bs.read_table(path, columns=["d"], where=filters, decryption=spec)
    for column in ("t", "nested", "nested.d") if filters is None else ():
        with pytest.raises(UnsupportedError, match="by an older calendar"):
            bs.read_table(path, columns=[column], decryption=spec)
    if filters is None:
        with pytest.raises(UnsupportedError, match="by an older calendar"):
            bs.probe(path, "d", [MODERN], decryption=spec)
        assert bs.read_table(path, columns=["id", "n"], decryption=spec).num_rows == 2
        assert bs.verify(path, decryption=spec).ok


def test_where_no_date_is_old_nothing_differs(tmp_path: Path) -> None:
    """By the statistics of each row group."""
    spec = bs.DecryptionSpec(KEYS)
    for number, days in enumerate(((MODERN, None), (None, None), (dt.date(1900, 1, 1),))):
        path = sealed(tmp_path / f"{number}.parquet", table(*days), MARK)
        assert bs.read_table(path, decryption=spec).column("d").to_pylist() == list(days)
        assert bs.read_table(path, where=[("d", "==", OLD)], decryption=spec).num_rows == 0
    path = sealed(tmp_path / "unknown.parquet", table(MODERN), MARK, write_statistics=False)
    with pytest.raises(UnsupportedError, match="by an older calendar"):
        bs.read_table(path, decryption=spec)
    path = sealed(tmp_path / "both.parquet", table(MODERN, OLD), MARK, row_group_size=1)
    with pytest.raises(UnsupportedError, match="row group 1"):
        bs.read_table(path, columns=["d"], decryption=spec)
    for metadata in ({}, {b"org.apache.spark.version": b"3.0.0"}, {b"org.apache.spark.version": b"no version"}):
        path = sealed(tmp_path / "new.parquet", table(OLD), metadata)
        assert bs.read_table(path, columns=["d"], decryption=spec).column("d").to_pylist() == [OLD]
        path.unlink()


def test_int96_of_the_older_calendar(tmp_path: Path) -> None:
    for metadata, refused in (({b"org.apache.spark.legacyINT96": b""}, True), (SPARK_2, True), (MARK, False)):
        for moment in (np.datetime64("1899-12-31T12:00:00"), np.datetime64("1900-01-01T00:00:00")):
            rows = pa.table({"t": pa.array([moment.astype("datetime64[us]")])}).replace_schema_metadata(metadata)
            pq.write_table(rows, tmp_path / "t.parquet", use_deprecated_int96_timestamps=True)
            if refused and moment < np.datetime64("1900"):
                with pytest.raises(UnsupportedError, match="older calendar"):
                    bs.read_table(tmp_path / "t.parquet")
            else:
                assert bs.read_table(tmp_path / "t.parquet").num_rows == 1
