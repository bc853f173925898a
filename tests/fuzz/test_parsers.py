"""Mutated bytes into each parser: only errors of ours come out.

The mutations start from lawful bytes, so that they get past the first check: flips, cuts, repeated and exchanged pieces,
and the numbers that break parsers. Many more examples run under `torture`.
"""

from __future__ import annotations

import contextlib
import functools
import io
import warnings
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bloomseal as bs
from bloomseal.format.footer import Footer, plain_footer
from bloomseal.format.layout import FileMeta, read_tail
from bloomseal.read.file import SealedFile
from bloomseal.storage.source import Source
from bloomseal.thrift import Struct
from bloomseal.thrift.schema_structs import SchemaElement
from bloomseal.thrift.structs import BloomFilterHeader, ColumnChunk, PageHeader, RowGroup, decode

_TROUBLE = [
    b"\xff\xff\xff\xff\x07",
    b"\xff" * 10,
    b"\x80" * 9 + b"\x01",
    b"\x00",
    b"\x19\xfc",
    b"\x1c",
    b"\x01",
    b"\x7f",
]


@st.composite
def mutations(draw: st.DrawFn, original: bytes, *, start: int = 0) -> bytes:
    """One to four mutations of `original` from `start` on."""
    data = bytearray(original)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(start, max(len(data) - 1, start)))
        length = draw(st.integers(1, 24))
        match draw(st.integers(0, 5)):
            case 0 if at < len(data):
                data[at] ^= 1 << draw(st.integers(0, 7))
            case 1:
                data[at : at + length] = b""
            case 2:
                data[at:at] = data[at : at + length]
            case 3:
                piece = draw(st.sampled_from(_TROUBLE))
                data[at : at + len(piece)] = piece
            case 4:
                data[at:at] = draw(st.sampled_from(_TROUBLE))
            case _:
                other = draw(st.integers(start, max(len(data) - 1, start)))
                data[at : at + length] = data[other : other + length]
    return bytes(data)


@functools.cache
def seeds() -> dict[str, bytes]:
    """A plaintext file of pyarrow with filters, nested columns, dictionaries, V2 pages and page indexes, and its parts."""
    table = pa.table(
        {
            "i": pa.array([1, None, 3, 4], pa.int32()),
            "s": ["a", "b", None, "a"],
            "l": pa.array([[1], [], None, [2, 3]], pa.list_(pa.int64())),
            "m": pa.array([[("k", 1.5)], None, [], []], pa.map_(pa.string(), pa.float64())),
            "t": pa.array([1, 2, 3, None], pa.timestamp("us", "UTC")),
            "d": pa.array([1, 2, None, 4], pa.decimal128(20, 0)),
        }
    )
    found = {}
    for version in ("1.0", "2.0"):
        sink = io.BytesIO()
        pq.write_table(table, sink, data_page_version=version, write_page_index=True, row_group_size=2)
        found[f"file {version}"] = sink.getvalue()
    data = found["file 1.0"]
    found["footer"] = read_tail(Source.memory(data)).data
    footer = Struct.parse(found["footer"])
    found["row group"] = footer.elements(FileMeta.ROW_GROUPS)[0]
    found["column chunk"] = Struct.parse(found["row group"]).elements(1)[0]
    found["schema element"] = footer.elements(FileMeta.SCHEMA)[1]
    found["page header"] = data[4:64]
    found["bloom header"] = bytes.fromhex("1540 1c1c0000 1c1c0000 1c1c0000 00".replace(" ", "")) + bytes(32)
    return found


def struct_whole(data: bytes) -> None:
    """Every accessor of every field; and what parsed must serialise and parse to the same again."""
    struct = Struct.parse(data, remember=4)
    again = Struct.parse(struct.to_bytes())
    assert again.fields == struct.fields
    for field in struct.fields:
        for read in (struct.integer, struct.boolean, struct.string, struct.struct, struct.elements):
            try:
                read(field)
            except bs.BloomsealError:
                continue


def footer_whole(data: bytes) -> None:
    footer = Footer(data, 4, None, True)
    _ = footer.num_rows, footer.created_by, footer.type_ordered, footer.schema.top_level
    leaves = range(len(footer.schema.leaves))
    footer.schema.cut(leaves[:1])
    footer.schema.cut(leaves, physical=True)
    for index in range(len(footer.row_groups)):
        footer.row_group(index)


def file_whole(data: bytes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bs.BloomsealWarning)
        file = SealedFile(Source.memory(data), None)
        _ask(file)


def _ask(file: SealedFile) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: file.row_groups,
        file.verify,
        lambda: file.probe("i", [1, 2]),
        lambda: file.probe("s", ["a"]),
        lambda: file.filter(0, "t"),
        lambda: file.read(["i", "s"]),
        lambda: file.read(["i"], filters=[("s", "==", "a"), ("i", "<", 4)]),
        lambda: file.read(filters=[("d", ">", 1)]),
    ]
    for call in calls:
        try:
            call()
        except bs.BloomsealError:
            continue


_PARSERS: dict[str, tuple[str, Callable[[bytes], Any]]] = {
    "compact struct": ("footer", struct_whole),
    "row group view": ("row group", lambda data: decode(RowGroup, data, container_limit=4096)),
    "column chunk view": ("column chunk", lambda data: decode(ColumnChunk, data)),
    "schema element view": ("schema element", lambda data: decode(SchemaElement, data)),
    "page header view": ("page header", lambda data: decode(PageHeader, data)),
    "bloom header view": ("bloom header", lambda data: decode(BloomFilterHeader, data)),
    "footer": ("footer", footer_whole),
    "footer of a file": ("footer", lambda data: file_whole(seeds()["file 1.0"][: -8 - len(seeds()["footer"])] + plain_footer(data))),
    "pages V1": ("file 1.0", file_whole),
    "pages V2": ("file 2.0", file_whole),
}  # fmt: skip
_QUICK = {"footer of a file": 150, "pages V1": 150, "pages V2": 150}


def _run(name: str, examples: int) -> None:
    seed, parse = _PARSERS[name]
    original = seeds()[seed]

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(mutations(original, start=4 if seed.startswith("file") else 0))
    def mutated(data: bytes) -> None:
        with contextlib.suppress(bs.BloomsealError):
            parse(data)

    mutated()


@pytest.mark.parametrize("name", _PARSERS)
def test_lawful_bytes_pass(name: str) -> None:
    """The seed itself parses, so that mutations start behind the first check."""
    seed, parse = _PARSERS[name]
    parse(seeds()[seed])


@pytest.mark.parametrize("name", _PARSERS)
def test_only_our_errors_leave(name: str) -> None:
    _run(name, _QUICK.get(name, 400))


@pytest.mark.torture
@pytest.mark.parametrize("name", _PARSERS)
def test_only_our_errors_leave_at_length(name: str) -> None:
    _run(name, 20_000)


@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_bytes_at_all(data: bytes) -> None:
    for parse in (struct_whole, footer_whole, file_whole):
        try:
            parse(data)
        except bs.BloomsealError:
            continue
