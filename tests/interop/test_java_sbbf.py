"""The same values make the same bits here and in parquet-java, for every type."""

from __future__ import annotations

import re

import numpy as np
import pytest

from bloomseal.core.sbbf import ColumnType, LogicalType, PhysicalType, SplitBlockBloomFilter, hash_array
from support import java_types
from support.java_types import TYPES, arrow_table, message, sample
from support.jvm import JavaDecryption, JavaEncryption, java_filter, java_write

pytestmark = pytest.mark.usefixtures("java")

KEY = b"0123456789abcdef"
COUNT = 200


def footer_type(one: java_types.ColumnType) -> ColumnType:
    """What a footer says about a column of this declaration."""
    found = re.fullmatch(r"(\w+)(?:\((\d+)\))? \{\}(?: \((\w+)(?:\((.*)\))?\))?", one.declaration)
    assert found is not None
    name, length, logical, arguments = found[1], found[2], found[3], (found[4] or "").split(",")
    physical = PhysicalType["BYTE_ARRAY" if name == "binary" else name.upper()]
    units = {"MILLIS": "ms", "MICROS": "us", "NANOS": "ns"}
    match logical:
        case None:
            annotation = None
        case "INTEGER":
            annotation = LogicalType("int", bit_width=int(arguments[0]), signed=arguments[1] == "true")
        case "DECIMAL":
            annotation = LogicalType("decimal", precision=int(arguments[0]), scale=int(arguments[1]))
        case "TIME" | "TIMESTAMP":
            annotation = LogicalType(logical.lower(), unit=units[arguments[0]], utc=arguments[1] == "true")
        case _:
            annotation = LogicalType(logical.lower())
    return ColumnType(physical, int(length) if length else None, annotation)


@pytest.fixture(scope="module")
def bitsets(java: object, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """parquet-java's filter over `COUNT` values of each type, sealed by it and opened by it."""
    path = tmp_path_factory.mktemp("sbbf") / "types.parquet"
    java_write(
        path,
        message(TYPES, "required"),
        sample(TYPES, COUNT, nulls=False),
        encryption=JavaEncryption(KEY),
        filters={one.name: {"ndv": COUNT} for one in TYPES},
    )
    filters = {one.name: java_filter(path, 0, one.name, JavaDecryption(KEY)) for one in TYPES}
    return {name: one.bitset for name, one in filters.items() if one is not None}


@pytest.mark.parametrize("one", TYPES, ids=lambda one: one.name)
def test_python_values_set_the_bits_that_parquet_java_set(
    bitsets: dict[str, bytes], one: java_types.ColumnType
) -> None:
    expected, column_type = bitsets[one.name], footer_type(one)
    ours = SplitBlockBloomFilter(len(expected))
    for i in range(COUNT):
        ours.insert(one.logical(i), column_type)
    assert bytes(ours.bitset) == expected

    theirs = SplitBlockBloomFilter.from_bitset(expected)
    assert all(theirs.check(one.logical(i), column_type, int96_utc=True) for i in range(COUNT))


@pytest.mark.parametrize("one", [one for one in TYPES if one.arrow is not None], ids=lambda one: one.name)
def test_arrow_columns_set_the_bits_that_parquet_java_set(
    bitsets: dict[str, bytes], one: java_types.ColumnType
) -> None:
    expected = bitsets[one.name]
    column = arrow_table([one], COUNT, nulls=False).column(0)
    ours = SplitBlockBloomFilter(len(expected))
    ours.insert_hashes(np.asarray(hash_array(column, footer_type(one))))
    assert bytes(ours.bitset) == expected
