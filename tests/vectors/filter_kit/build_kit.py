"""Makes the filter kit: ``PYTHONPATH=src:tests python -m vectors.filter_kit.build_kit tests/vectors/filter-kit``.

Each wrong file has one fault, of a class that writers have had. The fault is in the filter only: schema, pages and
footer are right, and the values are the same whether they are looked up or scanned.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from itertools import chain
from pathlib import Path
from typing import Any

from vectors.filter_kit.reference import RIGHT, SALTS, Kind, denied
from vectors.filter_kit.tiny_parquet import Chunk, Column, Type, file_of

BLOCKS = 16
UTF8, DECIMAL, DATE, TIMESTAMP_MICROS, UINT_32, INT_8, INT_16 = 0, 5, 6, 10, 13, 15, 16
Values = list[Any]


@dataclass(frozen=True)
class Kept:
    """A column and its values, as people see them and as they are stored.

    Attributes:
        shown: value → what stands in the manifest; None: it stands there as it is.
    """

    column: Column
    values: Values
    store: Callable[[Any], bytes]
    shown: Callable[[Any], Any] | None = None

    def stored(self) -> list[bytes | None]:
        return [None if value is None else self.store(value) for value in self.values]


def _packed(form: str) -> Callable[[Any], bytes]:
    return lambda value: struct.pack(form, value)


def _integers(count: int, step: int, start: int) -> Values:
    return [start + step * number for number in range(count)]


def _all(pages: list[list[Any]]) -> list[Any]:
    return list(chain.from_iterable(pages))


def _int96(nanoseconds: int) -> bytes:
    return struct.pack("<QI", nanoseconds % 86_400_000_000_000, 2_440_588 + nanoseconds // 86_400_000_000_000)


TEXTS = [f"patient {number * 7919 % 10_000:04d}, ward {number % 9}" for number in range(64)]
COLUMNS = {
    "text": Kept(Column("v", Type.BYTE_ARRAY, UTF8), TEXTS, str.encode),
    "int64": Kept(Column("v", Type.INT64), _integers(64, 7_919_000_003, -5), _packed("<q")),
    "int32": Kept(Column("v", Type.INT32), _integers(64, -7919, 99), _packed("<i")),
    "int8": Kept(Column("v", Type.INT32, INT_8), _integers(64, 4, -128), _packed("<i")),
    "int16": Kept(Column("v", Type.INT32, INT_16), _integers(64, 1021, -32_768), _packed("<i")),
    "uint32": Kept(
        Column("v", Type.INT32, UINT_32), _integers(64, 67_000_001, 3), lambda v: struct.pack("<I", v & 0xFFFFFFFF)
    ),
    "date": Kept(
        Column("v", Type.INT32, DATE), _integers(64, 97, 11_000), _packed("<i"),
        lambda days: date.fromordinal(days + date(1970, 1, 1).toordinal()).isoformat(),
    ),
    "timestamp": Kept(
        Column("v", Type.INT64, TIMESTAMP_MICROS), _integers(64, 86_399_999_983, 1_700_000_000_000_000), _packed("<q")
    ),
    "int96": Kept(Column("v", Type.INT96), _integers(64, 86_399_999_983_001, 10**18), _int96),
    "float": Kept(Column("v", Type.FLOAT), [number / 8 - 3 for number in range(64)], _packed("<f"), repr),
    "double": Kept(Column("v", Type.DOUBLE), [number / 3 for number in range(64)], _packed("<d"), repr),
    "zeros": Kept(
        Column("v", Type.DOUBLE), [-0.0, *(number + 0.5 for number in range(63))], _packed("<d"), repr
    ),
    "decimal": Kept(
        Column("v", Type.FIXED_LEN_BYTE_ARRAY, DECIMAL, 9, 2, 20), _integers(64, 123_456_789_012_345, -70_000),
        lambda value: value.to_bytes(9, "big", signed=True),
        lambda value: f"{'-' if value < 0 else ''}{abs(value) // 100}.{abs(value) % 100:02d}",
    ),
    "nulls": Kept(
        Column("v", Type.BYTE_ARRAY, UTF8), [text if number % 3 else None for number, text in enumerate(TEXTS)],
        str.encode,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """A class of bug.

    Attributes:
        reason: what the writer does wrong.
        columns: the kinds of columns that show it.
        hashed: stored value → the bytes that go into the filter in its place.
        kind: how the filter is made.
        left: of the hashed values, those that get there.
        after: what happens to the bitset.
        dictionary: the pages hold indices: "all", or "first" before the writer falls back to plain values.
    """

    reason: str
    columns: tuple[str, ...]
    hashed: Callable[[bytes], bytes] = bytes
    kind: Kind = RIGHT
    left: Callable[[list[list[bytes]]], list[bytes]] = lambda pages: _all(pages)
    after: Callable[[bytes], bytes] = bytes
    dictionary: str = ""
    blocks: int = BLOCKS


def _utf16(value: bytes) -> bytes:
    return value.decode().encode("utf-16-le")


def _widened(source: str, target: str) -> Callable[[bytes], bytes]:
    return lambda value: struct.pack(target, *struct.unpack(source, value))


FAULTS = {
    "seed": Fault("XXH64 with a seed other than 0", ("int64", "text"), kind=Kind(seed=0x9747B28C)),
    "salts": Fault(
        "the mask is made with other salts: the right ones, rotated by one",
        ("int64",), kind=Kind(salts=(*SALTS[1:], SALTS[0])),
    ),
    "modulo-block": Fault(
        "the block is the upper half of the hash modulo the number of blocks, not multiply and shift",
        ("int64",), kind=Kind(modulo=True),
    ),
    "halves-swapped": Fault(
        "the lower half of the hash chooses the block, and the upper half the bits", ("int64",),
        kind=Kind(halves_swapped=True),
    ),
    "words-big-endian": Fault(
        "the words of the bitset are stored with the greatest byte first", ("text",), kind=Kind(big_endian=True)
    ),
    "length-prefix-hashed": Fault(
        "byte arrays are hashed with the length before them, as they stand in a page", ("text",),
        hashed=lambda value: struct.pack("<I", len(value)) + value,
    ),
    "utf16-hashed": Fault("texts are hashed as UTF-16, the writer's own form", ("text",), hashed=_utf16),
    "truncated-values-hashed": Fault(
        "byte arrays are hashed after statistics have cut them off, here at 8 bytes", ("text",),
        hashed=lambda value: value[:8],
    ),
    "int32-hashed-as-int64": Fault(
        "values of 32 bits are hashed as 64 bits", ("int32", "date"), hashed=_widened("<i", "<q")
    ),
    "uint32-hashed-as-uint64": Fault(
        "unsigned values of 32 bits are hashed as 64 bits", ("uint32",), hashed=_widened("<I", "<Q")
    ),
    "int8-hashed-unextended": Fault("values of 8 bits are hashed as one byte", ("int8",), hashed=lambda v: v[:1]),
    "int16-hashed-unextended": Fault("values of 16 bits are hashed as two bytes", ("int16",), hashed=lambda v: v[:2]),
    "float-hashed-as-double": Fault("FLOAT values are hashed as DOUBLE", ("float",), hashed=_widened("<f", "<d")),
    "signed-zeros-folded": Fault(
        "-0.0 is hashed as 0.0: its own plain encoding is another one", ("zeros",),
        hashed=lambda value: struct.pack("<d", struct.unpack("<d", value)[0] + 0.0),
    ),
    "timestamp-in-milliseconds": Fault(
        "timestamps are hashed in another unit than the column's", ("timestamp",),
        hashed=lambda value: struct.pack("<q", struct.unpack("<q", value)[0] // 1000),
    ),
    "int96-hashed-as-int64": Fault(
        "INT96 timestamps are hashed as nanoseconds since 1970", ("int96",),
        hashed=lambda v: struct.pack(
            "<q", struct.unpack("<QI", v)[0] + (struct.unpack("<QI", v)[1] - 2_440_588) * 86_400_000_000_000
        ),
    ),
    "decimal-little-endian": Fault(
        "decimals are hashed with the smallest byte first; they are stored with the greatest first", ("decimal",),
        hashed=lambda value: value[::-1],
    ),
    "decimal-minimal-length": Fault(
        "decimals of fixed length are hashed without the bytes that only extend the sign", ("decimal",),
        hashed=lambda v: (n := int.from_bytes(v, "big", signed=True)).to_bytes(n.bit_length() // 8 + 1, "big", signed=True),
    ),
    "second-page-missing": Fault(
        "only the values of the first data page are in the filter", ("int64", "text"), left=lambda pages: pages[0]
    ),
    "dictionary-fallback-missing": Fault(
        "the filter is made from the dictionary; values that were written plainly after the dictionary was full are missing",
        ("text",), left=lambda pages: pages[0], dictionary="first",
    ),
    "dictionary-first-page-only": Fault(
        "of the dictionary only those values are in the filter to which the first data page points",
        ("text",), left=lambda pages: pages[0], dictionary="all",
    ),
    "null-slots-hashed": Fault(
        "null slots are counted as values: they are hashed as empty texts, and as many values at the end are left out",
        ("nulls",), left=lambda pages: [b"", *_all(pages)[: len(_all(pages)) // 2]],
    ),
    "bitset-truncated": Fault(
        "the bitset is cut off after it was filled, and the header gives the smaller size", ("int64",),
        after=lambda bitset: bitset[: len(bitset) // 2],
    ),
    "bitset-padded": Fault(
        "the bitset is filled up with zeros to a power of two after it was filled", ("int64",),
        after=lambda bitset: bitset.ljust(1 << (len(bitset) - 1).bit_length(), b"\0"), blocks=11,
    ),
    "bitset-halves-folded": Fault(
        "the bitset is halved by joining its two halves; adjacent blocks are the ones that fall together", ("int64",),
        after=lambda b: bytes(x | y for x, y in zip(b[: len(b) // 2], b[len(b) // 2 :], strict=True)),
    ),
    "bitset-empty": Fault("the filter was never filled", ("text",), after=lambda bitset: bytes(len(bitset))),
}  # fmt: skip


def _pages(values: list[Any], count: int = 2) -> list[list[Any]]:
    size = -(-len(values) // count)
    return [values[start : start + size] for start in range(0, len(values), size)]


def _chunk(kept: Kept, fault: Fault) -> Chunk:
    stored = kept.stored()
    pages = _pages(stored)
    there = [[value for value in page if value is not None] for page in pages]
    bitset = fault.kind.bitset(map(fault.hashed, fault.left(there)), fault.blocks)
    entries = {"": [], "all": _all(there), "first": there[0]}[fault.dictionary]
    indexed = {"": 0, "all": len(pages), "first": 1}[fault.dictionary]
    return Chunk(pages, fault.after(bitset), list(dict.fromkeys(entries)), indexed)


def _entry(name: str, group: int, kept: Kept, chunk: Chunk, column: str, reason: str | None) -> dict[str, Any]:
    values = [value for value in kept.values if value is not None]
    stored = [value for value in chunk.values if value is not None]
    bitset = (chunk.filter_of or chunk).bitset
    width = len(stored[0]) if kept.column.type is not Type.BYTE_ARRAY else 13
    others = [bytes([0xA5 + number]) * width for number in range(4)]
    return {
        "file": name,
        "row_group": group,
        "column": column,
        "type": kept.column.type.name,
        "right": reason is None,
        "reason": reason,
        "values": [value if kept.shown is None else kept.shown(value) for value in values],
        "stored": [value.hex() for value in stored],
        "denied": len(denied(bitset, stored)),
        "others": [value.hex() for value in others],
        "denied_others": len(denied(bitset, others)),
    }


def _right() -> Fault:
    return Fault("", ())


def files() -> tuple[dict[str, bytes], list[dict[str, Any]]]:
    """The kit: file name → bytes, and the entries of its manifest."""
    made: dict[str, bytes] = {}
    entries: list[dict[str, Any]] = []

    def add(name: str, kept: Kept, fault: Fault, reason: str | None) -> None:
        chunk = _chunk(kept, fault)
        made[name] = file_of([kept.column], [[chunk]])
        entries.append(_entry(name, 0, kept, chunk, "v", reason))

    for kind, kept in COLUMNS.items():
        add(f"right-{kind}.parquet", kept, _right(), None)
    for dictionary in ("all", "first"):
        add(f"right-dictionary-{dictionary}.parquet", COLUMNS["text"], Fault("", (), dictionary=dictionary), None)
    add("right-eleven-blocks.parquet", COLUMNS["int64"], Fault("", (), blocks=11), None)
    also = Fault("", (), left=lambda pages: [b"", *_all(pages)])
    add("right-nulls-as-well.parquet", COLUMNS["nulls"], also, None)
    for slug, fault in FAULTS.items():
        for kind in fault.columns:
            add(f"wrong-{slug}-{kind}.parquet", COLUMNS[kind], fault, fault.reason)
    _exchanged(made, entries)
    return made, entries


def _exchanged(made: dict[str, bytes], entries: list[dict[str, Any]]) -> None:
    """Two filters, each right, whose offsets were exchanged: between columns, and between row groups."""
    text, numbers = COLUMNS["text"], COLUMNS["int64"]
    columns = [Column("a", Type.BYTE_ARRAY, UTF8), Column("b", Type.INT64)]
    pair = [_chunk(text, _right()), _chunk(numbers, _right())]
    pair[0].filter_of, pair[1].filter_of = pair[1], pair[0]
    name, reason = "wrong-offsets-of-columns.parquet", "the offsets of two columns' filters are exchanged"
    made[name] = file_of(columns, [pair])
    for kept, chunk, column in zip((text, numbers), pair, "ab", strict=True):
        entries.append(_entry(name, 0, kept, chunk, column, reason))
    name, reason = "wrong-offsets-of-row-groups.parquet", "the offsets of two row groups' filters are exchanged"
    other = Kept(text.column, [f"{value}, second" for value in text.values], str.encode)
    groups = [_chunk(text, _right()), _chunk(other, _right())]
    groups[0].filter_of, groups[1].filter_of = groups[1], groups[0]
    made[name] = file_of([text.column], [[chunk] for chunk in groups])
    for number, (kept, chunk) in enumerate(zip((text, other), groups, strict=True)):
        entries.append(_entry(name, number, kept, chunk, "v", reason))


def build(folder: Path) -> None:
    """Write the files and the manifest."""
    made, entries = files()
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in made.items():
        (folder / name).write_bytes(data)
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
    told = f'{{"kit": "Parquet Bloom filters, right and wrong", "version": 1, "chunks": [\n{lines}\n]}}\n'
    (folder / "manifest.json").write_text(told, encoding="utf-8")


if __name__ == "__main__":
    build(Path(sys.argv[1]))
