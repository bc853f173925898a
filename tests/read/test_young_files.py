"""Files of writers younger than this code, made by hand: what it does not know proves nothing, or is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support.surgery import (
    change_chunk,
    change_column_index,
    change_element,
    change_pages,
    column_orders,
    statistics,
    written,
)

import bloomseal as bs
from bloomseal.core.thrift import Struct, WireType

NAN = math.nan
BY_TYPE, IEEE_754, INT96, UNKNOWN = 1, 2, 3, 4
FORMS = {pa.float64(): "<f8", pa.float32(): "<f4", pa.float16(): "<f2"}
KEYS = bs.DecryptionSpec(bs.ExplicitKeys(footer_key=b"f" * 16))
SPEC = bs.EncryptionSpec(footer_key=b"f" * 16)


def _floats(values: list[float | None], kind: pa.DataType, order: int = IEEE_754, **bounds: float) -> bytes:
    """A file of one column of floats, whose statistics are as parquet-java 1.18 writes them."""
    there = sorted((one for one in values if one is not None and not math.isnan(one)), key=_total_order)
    ends = {"min_value": there[0], "max_value": there[-1]} if there else {"min_value": NAN, "max_value": NAN}
    encoded = {name: np.array(value).astype(FORMS[kind]).tobytes() for name, value in (ends | bounds).items()}
    nulls = sum(one is None for one in values)
    nans = len(values) - nulls - len(there)
    table = pa.table({"x": pa.array([None if one is None else np.float64(one) for one in values]).cast(kind)})
    change = statistics(null_count=nulls, nan_count=nans, **encoded)
    return column_orders(change_chunk(written(table, write_page_index=False), change), order)


def _total_order(number: float) -> tuple[float, bool]:
    return number, math.copysign(1.0, number) > 0


def _open(folder: Path, data: bytes, sealed: bool = False) -> bs.SealedFile:
    (folder / "t.parquet").write_bytes(data)
    if not sealed:
        return bs.open_file(folder / "t.parquet")
    bs.seal_file(folder / "t.parquet", folder / "s.parquet", encryption=SPEC)
    return bs.open_file(folder / "s.parquet", decryption=KEYS)


ROWS: list[list[float | None]] = [
    [1.5, NAN, 2.5, None],
    [0.0, 1.0],
    [-1.0, -0.0],
    [-0.0, 0.0],
    [NAN, -NAN],
    [None, 3.0, math.inf],
    [-math.inf, -3.0],
    [0.1, 0.2],
]
ASKED = [-math.inf, -3.0, -1.0, -0.0, 0.0, 0.1, 0.25, 1.5, 2.0, 2.5, 3.0, math.inf, 1e300, 1 << 70, 3]


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("kind", FORMS)
@pytest.mark.parametrize("values", ROWS)
def test_bounds_in_total_order_hide_no_row(
    tmp_path: Path, values: list[float | None], kind: pa.DataType, sealed: bool
) -> None:
    """As without any bounds: for tuples, and for expressions, whose comparisons are pyarrow's."""
    data = _floats(values, kind)
    with _open(tmp_path, data, sealed) as file, _open(tmp_path, column_orders(data, UNKNOWN)) as without:
        for value in ASKED:
            for op in ("==", "!=", "<", "<=", ">", ">="):
                filters = [("x", op, value)]
                assert _same(file, without, filters)
            assert _same(file, without, [("x", "in", [value, NAN])])
            assert _same(file, without, [("x", "not in", [value])])
            if kind != pa.float16() and isinstance(value, float):
                column = pc.field("x")
                for expression in (column < value, column > value, column >= value, column == value, ~(column < value)):
                    assert _same(file, without, expression)
        for expression in (pc.field("x").isin(pa.array([NAN], kind)), pc.is_nan(pc.field("x"))):
            assert kind == pa.float16() or _same(file, without, expression)


def _same(one: bs.SealedFile, other: bs.SealedFile, filters: Any) -> bool:
    rows, expected = (file.read(where=filters).column("x") for file in (one, other))
    return str(rows.to_pylist()) == str(expected.to_pylist())


@pytest.mark.parametrize("kind", FORMS)
def test_bounds_in_total_order_rule_out(tmp_path: Path, kind: pa.DataType) -> None:
    with _open(tmp_path, _floats([1.5, NAN, 2.5], kind)) as file:
        for filters in ([("x", "==", 3.0)], [("x", "<", 1.5)], [("x", ">", 2.5)], [("x", "in", [0.0, -0.0])]):
            assert not file.read(where=filters).num_rows
            assert file.stats.pruned_by_statistics == 1


@pytest.mark.parametrize("order", [BY_TYPE, INT96, UNKNOWN])
def test_floats_in_another_order_prove_nothing(tmp_path: Path, order: int) -> None:
    """Bounds that lie, so that each use of them shows."""
    data = _floats([1.5, 2.5], pa.float64(), order, min_value=8.0, max_value=9.0)
    with _open(tmp_path, data) as file:
        assert file.read(where=[("x", "==", 1.5)]).num_rows == 1
        assert file.read(where=[("x", "<", 5.0)]).num_rows == 2


@pytest.mark.parametrize("orders", [(IEEE_754,), (INT96,), (UNKNOWN,), (BY_TYPE, BY_TYPE), ()])
def test_numbers_in_an_order_that_is_not_theirs_prove_nothing(tmp_path: Path, orders: tuple[int, ...]) -> None:
    table = pa.table({"x": pa.array([1, 2], pa.int64())})
    lie = statistics(min_value=b"\x09" * 8, max_value=b"\x09" * 8)
    data = column_orders(change_chunk(written(table), lie), *orders)
    with _open(tmp_path, data) as file:
        assert file.read(where=[("x", "==", 1)]).num_rows == 1


def test_int96_in_an_order_of_its_own(tmp_path: Path) -> None:
    moments = pa.array([1, 1 << 40], pa.timestamp("us"))
    data = written(pa.table({"x": moments}), use_deprecated_int96_timestamps=True)
    lie = statistics(null_count=0, min_value=b"\x01" * 12, max_value=b"\x01" * 12)
    with _open(tmp_path, column_orders(change_chunk(data, lie), INT96)) as file:
        assert file.read(where=[("x", "==", moments[0].as_py())]).num_rows == 1


def _page_of_nan(index: Struct) -> None:
    """The second page's values are all NaN: so are its bounds."""
    for field, ends in ((2, (1.0, NAN, 5.0)), (3, (2.0, NAN, 6.0))):
        raw = [b"\x08" + np.float64(one).tobytes() for one in ends]
        index.set_list(field, raw, WireType.BINARY)


def test_pages_in_total_order(tmp_path: Path) -> None:
    table = pa.table({"x": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "k": range(6)})
    paged = written(table, use_dictionary=False, write_page_index=True, max_rows_per_page=2, write_batch_size=1)
    for number in (3.0, 4.0):  # the writer of today gives no such index where a page holds NaN alone
        paged = paged.replace(np.float64(number).tobytes(), np.float64(NAN).tobytes(), 1)
    raw = bytearray(change_column_index(column_orders(paged, IEEE_754, BY_TYPE), _page_of_nan))
    with _open(tmp_path, bytes(raw)) as file:
        assert file.read(where=[("x", ">=", 2.0)]).column("k").to_pylist() == [1, 4, 5]
        assert file.read(where=pc.is_nan(pc.field("x"))).column("k").to_pylist() == [2, 3]
        pages = list(file.walk.pages(file.walk.chunk(0, 0)))
    raw[pages[0].offset : pages[0].offset + pages[0].length] = b"\xff" * pages[0].length
    with _open(tmp_path, bytes(raw)) as file:  # nobody may look at the page that the bounds rule out
        assert file.read(where=[("x", "==", 6.0)]).column("k").to_pylist() == [5]


# What rows can't be decoded of ------------------------------------------------------------------------------------


def _in_alp(header: Struct) -> None:
    inner = header.struct(5)
    assert inner is not None
    inner.set_i32(2, 10)
    header.set_struct(5, inner)


def test_pages_in_an_encoding_that_the_decoder_has_not(tmp_path: Path) -> None:
    """ALP: other columns are read, filters are asked, and rows are refused by name."""
    table = pa.table({"x": [1.0, 2.0], "k": [1, 2]})
    data = change_pages(written(table, use_dictionary=False), _in_alp)
    for sealed in (False, True):
        with _open(tmp_path, data, sealed) as file:
            assert file.read(["k"]).column("k").to_pylist() == [1, 2]
            for read in (lambda: file.read(), lambda: file.read(["k"], where=[("x", "==", 1.0)])):
                with pytest.raises(bs.UnsupportedError, match="encoding 10"):
                    read()
            assert file.verify().ok
        with pytest.raises(bs.UnsupportedError, match="encoding 10"):
            bs.attach_filters(file.path, {"x": bs.FilterSpec()}, decryption=KEYS if sealed else None)


def _annotated(kind: int) -> Callable[[Struct], None]:
    def change(element: Struct) -> None:
        union = Struct()
        union.set_struct(kind, Struct())
        element.set_struct(10, union)
        element.remove(6)

    return change


VARIANT, FILE = 16, 19
GROUP = pa.table({"v": pa.array([{"metadata": b"\x01\x00", "value": b"\x0c\x01"}] * 2), "k": [1, 2]})


@pytest.mark.parametrize("kind", [VARIANT, FILE, 40])
def test_groups_of_logical_types_that_are_young(tmp_path: Path, kind: int) -> None:
    data = change_element(written(GROUP), _annotated(kind), 1)
    with _open(tmp_path, data) as file:
        assert file.read(["k"]).column("k").to_pylist() == [1, 2]
        assert file.read().column("v").to_pylist() == GROUP.column("v").to_pylist()
        assert file.read(["k"], where=[("v.value", "==", b"\x0c\x01")]).num_rows == 2
        assert file.probe("v.value", [b"\x0c\x01"]) == [[bs.Verdict.NO_FILTER]]


def test_a_file_type_is_not_sealed(tmp_path: Path) -> None:
    """Its values may point to bytes of the file that are in no module: they would stay behind, or in clear."""
    data = change_element(written(GROUP), _annotated(FILE), 1)
    with pytest.raises(bs.UnsupportedError, match="FILE") as raised:
        _open(tmp_path, data, sealed=True)
    assert raised.value.column == "v"
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


@pytest.mark.parametrize("kind", [VARIANT, FILE, 40])
def test_leaves_of_logical_types_that_are_young(tmp_path: Path, kind: int) -> None:
    """What the type means for bounds and filters is not known: rows are compared as they are stored, or not at all."""
    table = pa.table({"x": [b"a", b"b"], "k": [1, 2]})
    lie = statistics(null_count=0, min_value=b"y", max_value=b"z")
    data = change_element(change_chunk(written(table), lie), _annotated(kind), 1)
    with _open(tmp_path, data) as file:
        assert file.read().column("x").to_pylist() == [b"a", b"b"]
        assert file.read(["k"], where=[("x", "==", b"a")]).column("k").to_pylist() == [1]
