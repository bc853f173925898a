"""How many absent values filters let pass: at most 1.5 times as many as was asked for, whoever built them."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.orc
import pytest

import bloomseal as bs
from bloomseal import DecryptionSpec, orc
from bloomseal.keytools import MasterKeys
from support.jvm import JavaUnavailableError
from support.orc_java import java_orc_write, memory_keys

_KEY = bytes(range(16))
_SPEC = DecryptionSpec(keys=MasterKeys({"pii": _KEY}), allow_ctr=True, allow_plaintext=True)
_STRIDE, _GROUPS, _ASKED = 5_000, 8, 8_000


def _values() -> tuple[list[int], list[int]]:
    """Those of the file, and others between them."""
    chance = random.Random(9)
    every = chance.sample(range(1 << 40), _STRIDE * _GROUPS + _ASKED)
    return every[:-_ASKED], every[-_ASKED:]


def _java(path: Path, fpp: float, *, encrypt: str = "") -> None:
    rows = [[value, f"t{value}"] for value in _values()[0]]
    keys = memory_keys(("pii", 0, _KEY))
    try:
        java_orc_write(
            path, "struct<number:bigint,text:string>", rows, keys, encrypt=encrypt, filters="number,text", fpp=fpp,
            stride=_STRIDE,
        )  # fmt: skip
    except JavaUnavailableError as error:
        pytest.skip(str(error))


def _written(path: Path, fpp: float, by: str) -> None:
    values = _values()[0]
    table = pa.table({"number": values, "text": [f"t{value}" for value in values]})
    if by == "C++":
        pyarrow.orc.write_table(
            table, path, bloom_filter_columns=[1, 2], bloom_filter_fpp=fpp, row_index_stride=_STRIDE
        )
    elif by == "attached":
        pyarrow.orc.write_table(table, path, row_index_stride=_STRIDE)
        bs.attach_filters(path, {"number": bs.FilterSpec(fpp=fpp), "text": bs.FilterSpec(fpp=fpp)})
    elif by == "Java":
        _java(path, fpp)
    else:
        _java(path, fpp, encrypt="pii:number,text")
        orc.repair_filters(path, decryption=_SPEC)


@pytest.mark.parametrize("fpp", [0.05, 0.01, 0.001])
@pytest.mark.parametrize(
    "by", ["C++", "attached", *(pytest.param(one, marks=pytest.mark.jvm) for one in ("Java", "repaired"))]
)
def test_absent_values_that_pass(by: str, fpp: float, tmp_path: Path) -> None:
    path = tmp_path / "a.orc"
    _written(path, fpp, by)
    present, absent = _values()
    with bs.open_file(path, decryption=_SPEC) as file:
        assert sum(stripe.num_row_groups for stripe in file.stripes) == _GROUPS
        for column, of in (("number", int), ("text", lambda value: f"t{value}")):
            assert None in {one.untrusted for one in file.filters if one.column == column}
            maybe = file.maybe_present(column, [of(value) for value in absent])
            assert maybe.shape == (_GROUPS, _ASKED)
            assert fpp / 4 < maybe.mean() < 1.5 * fpp, column
            held = file.maybe_present(column, [of(value) for value in present])
            assert all(held[place // _STRIDE, place] for place in range(len(present)))
