"""Whatever Python object is asked for, of a column of whatever type: an answer, or a UsageError that does not
show it.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st
from tests.support.flat_tables import FLAT
from tests.support.int96_files import NEAR, file_of, of

import bloomseal as bs


class _Zone(dt.tzinfo):
    """A zone that says what no zone may."""

    def utcoffset(self, _moment: dt.datetime | None) -> dt.timedelta | None:
        raise RuntimeError("no offset")


class _Text(str):
    __slots__ = ()

    def encode(self, *_: Any) -> bytes:
        raise RuntimeError("no bytes")


_ARROW = [
    pa.scalar(None), pa.scalar(5, pa.uint64()), pa.scalar((1 << 64) - 1, pa.uint64()), pa.scalar("\0"), pa.scalar(b"\xff", pa.binary()),
    pa.scalar(10**9, pa.date32()), pa.scalar(-(10**17), pa.date64()), pa.scalar(-(1 << 63), pa.timestamp("s")),
    pa.scalar((1 << 63) - 1, pa.timestamp("ns", "UTC")), pa.scalar(5, pa.timestamp("us", "No/Where")), pa.scalar(-1, pa.time32("s")),
    pa.scalar((1 << 63) - 1, pa.time64("ns")), pa.scalar((1 << 63) - 1, pa.duration("s")), pa.scalar([1]), pa.scalar({"a": 1}),
    pa.scalar((1, 2, 3), pa.month_day_nano_interval()), pa.scalar(float("nan")), pa.scalar(Decimal("1.5"), pa.decimal256(70, 60)),
    pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(bytes([0, 0, 0, 0, 1, 0, 0, 0])), pa.py_buffer(b"\xff")])[0],
    pa.Array.from_buffers(pa.decimal128(5, 2), 1, [None, pa.py_buffer(b"\xff" * 15 + b"\x7f")])[0],
]  # fmt: skip
_NUMPY = [
    np.float16("nan"), np.float32(1e38), np.longdouble("1e4000"), np.complex128(1), np.bool_(True), np.str_("\ud800"), np.bytes_(b"\xff"),
    np.timedelta64(5, "D"), np.timedelta64("NaT"), np.datetime64("NaT"), np.datetime64(10**18, "Y"), np.datetime64(-(10**18), "D"),
    np.datetime64(5, "as"), np.datetime64((1 << 63) - 1, "W"), np.void(b"ab"), np.uint64((1 << 64) - 1), np.array(5), np.array([1, 2]),
    np.datetime64("2024-01", "7M"),
]  # fmt: skip
_PYTHON = [
    "\ud800", "a\0b", "", b"", bytearray(b"\xff"), memoryview(b"abcd")[::-1], memoryview(np.arange(4.0).reshape(2, 2)), 10**5000, -(10**400),
    True, 1.5, float("inf"), -0.0, 1j, Decimal("sNaN"), Decimal("NaN"), Decimal("-Infinity"), Decimal("1E+999999999"), Decimal("1E-999999999"),
    Decimal(10**3000), Fraction(1, 3), dt.date.max, dt.datetime.max, dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=23))),
    dt.datetime(2024, 1, 1, tzinfo=_Zone()), dt.time(1, tzinfo=dt.UTC), dt.time.max, dt.timedelta.max, uuid.UUID(int=0), object(), int, [],
    [1], (), {}, {1}, range(3), iter([1]), _Text("a"), Ellipsis,
]  # fmt: skip
_LISTED = [*_ARROW, *_NUMPY, *_PYTHON]
_DRAWN = st.text() | st.binary() | st.integers() | st.decimals() | st.datetimes() | st.floats()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One file per type, of one value and a null, with a filter."""
    folder = tmp_path_factory.mktemp("odd")
    found = {}
    for name, (kind, values) in FLAT.items():
        value = find(values, lambda _: True)
        storage = pa.array([value.bytes if name == "uuid" else value, None], kind)
        found[name] = folder / f"{len(found)}.parquet"
        pq.write_table(pa.table({"x": storage}), found[name], bloom_filter_options={"x": {"ndv": 9}})
    found["INT96"] = folder / "int96.parquet"
    found["INT96"].write_bytes(file_of([of(NEAR), None]))
    found["bool"] = folder / "bool.parquet"
    pq.write_table(pa.table({"x": [True, None]}), found["bool"])
    return found


@settings(deadline=None)
@given(
    name=st.sampled_from([*FLAT, "INT96", "bool"]),
    listed=st.integers(0, 2 * len(_LISTED)),  # by number: some of them can't even be shown
    drawn=_DRAWN,
    op=st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "in", "not in"]),
)
def test_any_object_is_answered_or_refused(files: dict[str, Path], name: str, listed: int, drawn: Any, op: str) -> None:
    needle: Any = _LISTED[listed] if listed < len(_LISTED) else drawn
    column = "t" if name == "INT96" else "x"
    with bs.open_file(
        files[name], decryption=bs.DecryptionSpec(bs.ExplicitKeys(b"f" * 16), allow_plaintext=True, int96_utc=True)
    ) as file:
        for ask in (
            lambda: file.read(where=[(column, op, needle)]),
            lambda: file.read(where=[(column, op, [needle] * 20 if op.endswith("in") else needle)]),
            lambda: file.probe(column, [needle]),
            lambda: file.probe(column, [needle] * 70),
            lambda: file.probe(column, needle),
            lambda: file.survivors(column, file.key_set(column, [needle])),
        ):
            told = _refusal(ask)
            if isinstance(needle, str) and len(needle) > 3:
                assert needle not in told


def test_a_view_of_memory_is_an_array(files: dict[str, Path]) -> None:
    with bs.open_file(files["int32"]) as file:
        value = file.read()["x"][0].as_py()
        for view, rows in ((memoryview(np.array([value])), 1), (memoryview(np.array([value, 7])[::-1]), 1)):
            for op, count in (("in", rows), ("not in", 1 - rows)):
                assert file.read(where=[("x", op, view)]).num_rows == count
        for op in ("in", "not in"):
            with pytest.raises(bs.UsageError, match="one-dimensional"):
                file.read(where=[("x", op, memoryview(np.array([[value]])))])


def _refusal(ask: Callable[[], object]) -> str:
    try:
        ask()
    except bs.UsageError as error:
        return str(error)
    return ""
