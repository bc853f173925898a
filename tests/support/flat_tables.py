"""Random Arrow tables of every type that Parquet can hold."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

__all__ = ["FLAT", "NESTED", "columns", "layouts", "tables"]

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


def _ints(kind: pa.DataType) -> st.SearchStrategy[int]:
    bits, unsigned = kind.bit_width, pa.types.is_unsigned_integer(kind)
    least, greatest = (0, (1 << bits) - 1) if unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)
    return st.integers(least, greatest) | st.sampled_from([least, greatest, 0, 1])


def _decimals(kind: pa.DataType) -> st.SearchStrategy[Decimal]:
    most = 10**kind.precision - 1

    def exact(number: int) -> Decimal:
        return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -kind.scale))

    return st.integers(-most, most).map(exact) | st.sampled_from([-most, most, 0]).map(exact)


def _floats(width: int) -> st.SearchStrategy[Any]:
    special = st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1.5])
    return special | st.floats(width=width)  # type: ignore[arg-type]


def _moments(unit: str) -> st.SearchStrategy[int]:
    """Whole numbers of a unit between 1900 and 2200, which every way of writing timestamps can hold."""
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    return st.integers(-2_208_988_800 * per_second, 7_258_118_400 * per_second)


_DICTIONARY = pa.dictionary(pa.int16(), pa.string())
FLAT: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    **{str(k): (k, _ints(k)) for k in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{str(k): (k, _ints(k)) for k in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
    "float16": (pa.float16(), _floats(16).map(np.float16)),
    "float32": (pa.float32(), _floats(32)),
    "float64": (pa.float64(), _floats(64)),
    "string": (pa.string(), _TEXT),
    "large_string": (pa.large_string(), _TEXT),
    "string_view": (pa.string_view(), _TEXT),
    "dictionary": (_DICTIONARY, st.sampled_from(["a", "b", "c", ""])),
    "binary": (pa.binary(), st.binary(max_size=6)),
    "large_binary": (pa.large_binary(), st.binary(max_size=6)),
    "binary_view": (pa.binary_view(), st.binary(max_size=20)),
    "fixed": (pa.binary(3), st.binary(min_size=3, max_size=3)),
    "uuid": (pa.uuid(), st.uuids()),
    "decimal32": (pa.decimal32(7, 2), _decimals(pa.decimal32(7, 2))),
    "decimal64": (pa.decimal64(16, 4), _decimals(pa.decimal64(16, 4))),
    "decimal128": (pa.decimal128(30, 10), _decimals(pa.decimal128(30, 10))),
    "decimal256": (pa.decimal256(60, 5), _decimals(pa.decimal256(60, 5))),
    "date32": (pa.date32(), st.dates()),
    "date64": (pa.date64(), st.dates()),
    "time32[s]": (pa.time32("s"), st.integers(0, 86_399)),
    "time32[ms]": (pa.time32("ms"), st.integers(0, 86_399_999)),
    "time64[us]": (pa.time64("us"), st.times()),
    "time64[ns]": (pa.time64("ns"), st.integers(0, 86_399_999_999_999)),
    **{f"timestamp[{unit}]": (pa.timestamp(unit), _moments(unit)) for unit in ("s", "ms", "us", "ns")},
    **{f"timestamp[{unit}, zone]": (pa.timestamp(unit, "Europe/Paris"), _moments(unit)) for unit in ("ms", "us", "ns")},
}
NESTED: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "list": (pa.list_(pa.int32()), st.lists(st.none() | st.integers(-9, 9), max_size=3)),
    "list of lists": (pa.large_list(pa.list_(pa.string())), st.lists(st.lists(_TEXT, max_size=2), max_size=2)),
    "struct": (
        pa.struct({"x": pa.int64(), "y": pa.struct({"z": pa.string()})}),
        st.fixed_dictionaries({"x": st.none() | st.integers(0, 9), "y": st.none() | st.fixed_dictionaries({"z": _TEXT})}),
    ),
    "map": (
        pa.map_(pa.string(), pa.float64()),
        st.dictionaries(_TEXT, st.none() | st.floats(allow_nan=False), max_size=2).map(lambda d: list(d.items())),
    ),
    "boolean": (pa.bool_(), st.booleans()),
    "null": (pa.null(), st.none()),
    "duration": (pa.duration("us"), st.timedeltas(dt.timedelta(-1000), dt.timedelta(1000))),
}  # fmt: skip


@st.composite
def columns(draw: st.DrawFn, name: str, rows: int, *, nulls: bool = True) -> pa.Array:
    kind, values = (FLAT | NESTED)[name]
    drawn = draw(st.lists(st.none() | values if nulls else values, min_size=rows, max_size=rows))
    if name == "uuid":
        return pa.array([value and value.bytes for value in drawn], kind)
    return pa.array(drawn, kind)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """One to four columns of any types, up to 30 rows, often none."""
    names = draw(st.lists(st.sampled_from(sorted(FLAT | NESTED)), min_size=1, max_size=4, unique=True))
    rows = draw(st.integers(0, 30))
    return pa.table({f"c{i} {name}".replace(".", "_"): draw(columns(name, rows)) for i, name in enumerate(names)})


@st.composite
def layouts(draw: st.DrawFn) -> dict[str, Any]:
    """How pyarrow may lay pages out."""
    return {
        "compression": draw(st.sampled_from(["none", "snappy", "gzip", "brotli", "zstd", "lz4"])),
        "use_dictionary": draw(st.booleans()),
        "dictionary_pagesize_limit": draw(st.sampled_from([1, 20, 1 << 20])),  # beyond it, plain pages follow
        "data_page_version": draw(st.sampled_from(["1.0", "2.0"])),
        "data_page_size": draw(st.sampled_from([1, 40, 300, 1 << 20])),
        "write_batch_size": draw(st.sampled_from([1, 3, 10])),
        "write_page_index": draw(st.booleans()),
        "write_statistics": draw(st.booleans()),
    }
