"""The data: one seeded generator, three sizes. Every value follows from its row number, so that absent ones are known
too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["SIZES", "Size", "batches", "email", "keys_of_bytes", "people", "ssn"]

_SEED = 20_260_101
# An affine map over the nine digits of an SSN is a bijection: all values differ, in an order that looks random, and
# row numbers that no table has give values that no table holds, from the same range.
_SSN_RANGE, _SSN_FACTOR, _SSN_SHIFT = 10**9, 618_033_989, 271_828_182
_USER_RANGE, _USER_FACTOR, _USER_SHIFT = 10**8, 61_803_399, 14_142_135
_ABSENT_FROM = 900_000_000
_CITIES = 500

Digits = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Size:
    """How much of everything.

    Attributes:
        rows: of the table that is written and looked up.
        row_group: rows per row group of it.
        keys: values hashed, inserted and probed by the kernels.
        big_filter: bytes of the filter far beyond any cache.
        set_files, set_rows: the table of ten row groups per file that key sets are probed against.
        many_files, many_rows: the table of many files with five row groups each.
        spark_files, spark_rows: Spark's table of ten row groups per file.
        spark_audited, spark_planned: small files to audit, and to plan over.
        wide_columns, wide_groups: the widest footer.
        growth: row groups, filter columns, footer sizes and audited files to draw curves over.
        big_group: rows per row group of the table whose memory is measured beside that of small row groups; of some 79
            bytes each.
        repetitions: measured ones, after those to warm up.
        short_repetitions: of short jobs.
        memory_repetitions: of jobs whose memory is measured.
        judged: are goals compared with? On small data constant costs drown everything else.
        jvm_warm_up: runs of a short job until the JVM has compiled it.
    """

    rows: int
    row_group: int
    keys: int
    big_filter: int
    set_files: int
    set_rows: int
    many_files: int
    many_rows: int
    spark_files: int
    spark_rows: int
    spark_audited: int
    spark_planned: int
    wide_columns: int
    wide_groups: int
    growth_groups: tuple[int, ...]
    growth_filters: tuple[int, ...]
    growth_footers: tuple[tuple[int, int], ...]
    growth_audit: tuple[int, ...]
    big_group: int
    repetitions: int = 5
    short_repetitions: int = 11
    memory_repetitions: int = 2
    judged: bool = True
    jvm_warm_up: int = 15


SIZES = {
    "small": Size(
        rows=30_000,
        row_group=3_000,
        keys=50_000,
        big_filter=16 << 20,
        set_files=2,
        set_rows=10_000,
        many_files=8,
        many_rows=1_000,
        spark_files=4,
        spark_rows=2_000,
        spark_audited=20,
        spark_planned=100,
        wide_columns=100,
        wide_groups=10,
        growth_groups=(1, 10, 50),
        growth_filters=(0, 2, 4),
        growth_footers=((50, 5), (100, 10)),
        growth_audit=(4, 8, 16),
        big_group=3_000,
        repetitions=2,
        short_repetitions=2,
        memory_repetitions=1,
        judged=False,
        jvm_warm_up=1,
    ),
    "medium": Size(
        rows=2_000_000,
        row_group=200_000,
        keys=1_000_000,
        big_filter=128 << 20,
        set_files=10,
        set_rows=200_000,
        many_files=200,
        many_rows=100_000,
        spark_files=100,
        spark_rows=500_000,
        spark_audited=1_000,
        spark_planned=10_000,
        wide_columns=1_000,
        wide_groups=50,
        growth_groups=(1, 10, 100, 500, 2_000),
        growth_filters=(0, 1, 2, 5, 10, 20),
        growth_footers=((100, 10), (100, 100), (1_000, 10), (1_000, 50), (1_000, 100)),
        growth_audit=(10, 30, 100, 300, 1_000),
        big_group=1_000_000,
    ),
    "large": Size(
        rows=10_000_000,
        row_group=1_000_000,
        keys=10_000_000,
        big_filter=128 << 20,
        set_files=10,
        set_rows=10_000_000,
        many_files=1_000,
        many_rows=100_000,
        spark_files=400,
        spark_rows=200_000,
        spark_audited=4_000,
        spark_planned=10_000,
        wide_columns=1_000,
        wide_groups=100,
        growth_groups=(1, 10, 100, 1_000, 2_000),
        growth_filters=(0, 1, 2, 5, 10, 20),
        growth_footers=((100, 10), (100, 100), (1_000, 10), (1_000, 50), (1_000, 100)),
        growth_audit=(10, 30, 100, 300, 1_000),
        big_group=1_000_000,
    ),
}


def people(start: int, rows: int) -> pa.Table:
    """Rows `start` to `start + rows` of one endless table: id, ssn (11 bytes), email (29 bytes), balance, city."""
    number = np.arange(start, start + rows, dtype=np.int64)
    random = np.random.default_rng((_SEED, start))
    cities = pa.array([f"City of {i:03d}" for i in range(_CITIES)])
    return pa.table(
        {
            "id": number,
            "ssn": _ssns(number),
            "email": _emails(number),
            "balance": np.round(random.gamma(2.0, 900.0, rows), 2),
            "city": cities.take(pa.array(random.integers(0, _CITIES, rows))),
        }
    )


def batches(start: int, rows: int, size: int) -> Iterator[pa.Table]:
    """The same rows in tables of `size`, made one at a time."""
    for at in range(start, start + rows, size):
        yield people(at, min(size, start + rows - at))


def ssn(row: int) -> str:
    """The SSN in a row. Rows from 900,000,000 on are in no table: their values are absent, yet within the others'
    range.
    """
    return str(_ssns(np.array([row], dtype=np.int64))[0].as_py())


def email(row: int) -> str:
    """The e-mail address in a row, 29 bytes."""
    return str(_emails(np.array([row], dtype=np.int64))[0].as_py())


def absent_ssns(count: int) -> list[str]:
    """SSNs that no table holds."""
    values: list[str] = _ssns(np.arange(_ABSENT_FROM, _ABSENT_FROM + count, dtype=np.int64)).to_pylist()
    return values


def keys_of_bytes(array: pa.Array) -> bytes:
    """The bytes of a string array whose values are all of one length, one after another."""
    buffers = array.buffers()
    offsets = np.frombuffer(buffers[1], np.int32)[array.offset : array.offset + len(array) + 1]
    return memoryview(buffers[2])[int(offsets[0]) : int(offsets[-1])].tobytes()


def ssn_array(start: int, count: int) -> pa.Array:
    """SSNs of consecutive rows."""
    return _ssns(np.arange(start, start + count, dtype=np.int64))


def email_array(start: int, count: int) -> pa.Array:
    """E-mail addresses of consecutive rows."""
    return _emails(np.arange(start, start + count, dtype=np.int64))


def _ssns(row: Digits) -> pa.Array:
    return _template("000-00-0000", [0, 1, 2, 4, 5, 7, 8, 9, 10], _affine(row, _SSN_FACTOR, _SSN_SHIFT, _SSN_RANGE))


def _emails(row: Digits) -> pa.Array:
    user = _affine(row, _USER_FACTOR, _USER_SHIFT, _USER_RANGE)
    return _template("user.00000000@m00.example.org", [15, 16, 5, 6, 7, 8, 9, 10, 11, 12], user + row % 97 * 10**8)


def _affine(row: Digits, factor: int, shift: int, modulus: int) -> Digits:
    return (row % modulus * factor + shift) % modulus


def _template(text: str, places: list[int], numbers: Digits) -> pa.Array:
    """`text` with the decimal digits of a number in `places`, most significant first, for each number."""
    rows = np.tile(np.frombuffer(text.encode(), np.uint8), (len(numbers), 1))
    for place in reversed(places):
        numbers, digit = np.divmod(numbers, 10)
        rows[:, place] += digit.astype(np.uint8)
    offsets = np.arange(0, len(rows) * len(text) + 1, len(text), dtype=np.int32)
    return pa.StringArray.from_buffers(len(rows), pa.py_buffer(offsets), pa.py_buffer(rows.tobytes()))
