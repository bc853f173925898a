"""Writes `second.orc` by pyorc 0.12, of the group `bench`: `python tests/vectors/orc/make_second.py`."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyorc  # type: ignore[import-not-found]

MICROS = (
    -1,
    -999,
    -1_000,
    -1_001,
    -500_000,
    -999_000,
    -999_001,
    -999_999,
    -1_000_000,
    -1_000_001,
    1_500_000,
    -(10**12),
)
"""Since 1970."""

if __name__ == "__main__":
    utc = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    moments = [utc + dt.timedelta(microseconds=one) for one in MICROS]
    with Path(__file__).with_name("second.orc").open("wb") as file:
        options = {"bloom_filter_columns": [1, 2], "bloom_filter_fpp": 0.001, "compression": 0}
        kinds = "struct<t:timestamp,i:timestamp with local time zone>"
        writer = pyorc.Writer(file, kinds, row_index_stride=1000, **options)  # in UTC
        writer.writerows([(one, one) for one in moments])
        writer.close()
