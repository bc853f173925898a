"""Writes `char.orc` by pyorc 0.12, of the group `bench`: `python tests/vectors/orc/make_char.py`."""

from __future__ import annotations

from pathlib import Path

import pyorc  # type: ignore[import-not-found]

ROWS = [(number, f"c{number * 7919 % 10007}") for number in range(200)]

if __name__ == "__main__":
    with Path(__file__).with_name("char.orc").open("wb") as file:
        options = {"bloom_filter_columns": [1, 2], "bloom_filter_fpp": 0.01, "compression": 0}
        writer = pyorc.Writer(file, "struct<id:int,c:char(12)>", row_index_stride=1000, **options)
        writer.writerows(ROWS)
        writer.close()
