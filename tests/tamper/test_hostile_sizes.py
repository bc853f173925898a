"""Files that claim more than they hold: refused, within the file's own size plus 64 MiB of memory.

Each file is asked everything by a process of its own, which reports what it allocated; a crash would be its exit code.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import bloomseal as bs
from bloomseal.core.encryption import ModuleType
from bloomseal.core.parquet.footer import plain_footer
from bloomseal.core.parquet.layout import MAGIC, MAGIC_ENCRYPTED, Column, FileMeta, Group, Meta
from bloomseal.core.storage.source import Source
from bloomseal.core.thrift import Struct, WireType, encode_binary
from bloomseal.read.parquet import ParquetFile
from support.small_files import judge, small_file

ALLOWANCE = 64 << 20
HUGE = (1 << 31) - 1

_ASK = """
import json, sys, tracemalloc
import numpy, pyarrow.parquet, pyarrow.compute
import bloomseal as bs
from bloomseal.core.sbbf import hashing
path, key = sys.argv[1], sys.argv[2].encode()
spec = bs.DecryptionSpec(bs.ExplicitKeys(footer_key=key)) if key else None
asked = {}
def ask(name, call):
    try:
        call()
        asked[name] = "answered"
    except bs.BloomsealError as error:
        asked[name] = type(error).__name__
    except BaseException as error:
        asked[name] = "LEAK " + repr(error)[:300]
tracemalloc.start()
pyarrow.default_memory_pool()
def all_of_it():
    f = bs.open_file(path, decryption=spec)
    ask("probe", lambda: f.probe("a", [1, 2]))
    ask("filter", lambda: f.filter(0, "a"))
    ask("verify", lambda: not f.verify().ok and (_ for _ in ()).throw(f.verify().failures[0]))
    ask("read", lambda: f.read())
    ask("read filtered", lambda: f.read(where=[("a", "==", 1)]))
    ask("facts", lambda: (f.row_groups, f.num_rows, f.columns, f.column_type("a")))
ask("open", all_of_it)
ask("inspect", lambda: bs.inspect(path) if hasattr(bs, "inspect") else None)
peak = tracemalloc.get_traced_memory()[1] + pyarrow.default_memory_pool().max_memory()
print(json.dumps({"asked": asked, "peak": peak}))
"""


def ask(path: Path, key: bytes = b"") -> dict[str, Any]:
    """What a process of its own got out of the file. Its memory is bounded, so that a test fails before the machine."""
    run = subprocess.run(
        [sys.executable, "-c", "import resource; resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))\n" + _ASK, path, key.decode()],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert run.returncode == 0, f"exit code {run.returncode}: {run.stderr[-500:]}"
    answer: dict[str, Any] = json.loads(run.stdout)
    leaks = {name: said for name, said in answer["asked"].items() if said.startswith("LEAK")}
    assert not leaks
    assert answer["peak"] <= path.stat().st_size + ALLOWANCE, f"{answer['peak'] >> 20} MiB"
    return answer


def element(name: bytes, **fields: int) -> bytes:
    """A SchemaElement: type, type_length, repetition, children, converted, scale, precision."""
    numbers = {"type": 1, "length": 2, "repetition": 3, "children": 5, "converted": 6, "scale": 7, "precision": 8}
    struct = Struct()
    struct.set_binary(4, name)
    for field, value in fields.items():
        struct.set_i32(numbers[field], value)
    return struct.to_bytes()


INT64_COLUMN = [element(b"root", children=1), element(b"a", type=2, repetition=0)]


def column_meta(kind: int = 2, **fields: int) -> Struct:
    meta = Struct()
    values = {
        Meta.TYPE: kind, Meta.CODEC: 0, Meta.NUM_VALUES: 3, Meta.UNCOMPRESSED: 8, Meta.COMPRESSED: 8, Meta.DATA_PAGE: 4,
    } | {getattr(Meta, name): value for name, value in fields.items()}  # fmt: skip
    for field, value in values.items():
        small = (Meta.TYPE, Meta.CODEC, Meta.BLOOM_LENGTH)
        (meta.set_i32 if field in small else meta.set_i64)(field, value)
    # Without these, which must be there, a decoder would refuse the column whatever its sizes.
    meta.set_list(Meta.ENCODINGS, [], WireType.I32)
    meta.set_list(Meta.PATH, [encode_binary(b"a")], WireType.BINARY)
    return meta


def chunk(meta: Struct, **fields: int) -> bytes:
    struct = Struct()
    struct.set_struct(Column.META, meta)
    for name, value in fields.items():
        struct.set_i64(getattr(Column, name), value)
    return struct.to_bytes()


def group(*chunks: bytes, rows: int = 3) -> bytes:
    struct = Struct()
    struct.set_list(Group.COLUMNS, list(chunks))
    struct.set_i64(Group.TOTAL_BYTE_SIZE, 8)
    struct.set_i64(Group.NUM_ROWS, rows)
    return struct.to_bytes()


def footer(schema: list[bytes], groups: list[bytes], rows: int = 3) -> Struct:
    struct = Struct()
    struct.set_i32(FileMeta.VERSION, 1)
    struct.set_list(FileMeta.SCHEMA, schema)
    struct.set_i64(FileMeta.NUM_ROWS, rows)
    struct.set_list(FileMeta.ROW_GROUPS, groups)
    return struct


def raw_footer(*fields: tuple[int, int, bytes]) -> bytes:
    struct = Struct()
    for field, wire, value in fields:
        struct.fields[field] = (wire, value)
    return struct.to_bytes()


BODY = bytes(range(64))


def plain(metadata: bytes | Struct, body: bytes = BODY) -> bytes:
    raw = metadata if isinstance(metadata, bytes) else metadata.to_bytes()
    return MAGIC + body + plain_footer(raw)


LIST, STRUCT, BINARY = 9, 12, 8
CLAIM = b"\xff\xff\xff\xff\x07"  # 2^31 - 1 as a varint


def bloom_header(size: int) -> bytes:
    header, first = Struct(), Struct()
    first.set_struct(1, Struct())
    header.set_i32(1, size)
    for union in (2, 3, 4):
        header.set_struct(union, first)
    return header.to_bytes()


def with_filter(size: int, *, offset: int = 4, **fields: int) -> bytes:
    body = bloom_header(size) + bytes(200)
    meta = column_meta(BLOOM_OFFSET=offset, **fields)
    return plain(footer(INT64_COLUMN, [group(chunk(meta))]), body)


def many_leaves_over_one_chunk() -> bytes:
    """500 columns that all claim the same megabyte."""
    count, size = 500, 1 << 20
    schema = [
        element(b"root", children=count),
        *(element(f"c{i}".encode(), type=2, repetition=0) for i in range(count)),
    ]
    schema[1] = element(b"a", type=2, repetition=0)
    chunks = [chunk(column_meta(COMPRESSED=size)) for _ in range(count)]
    return plain(footer(schema, [group(*chunks)]), bytes(size))


def page_claiming(size: int, uncompressed: int, values: int, codec: int = 0) -> bytes:
    """A data page whose header claims these numbers."""
    data = Struct()
    for field, value in ((1, values), (2, 0), (3, 3), (4, 3)):
        data.set_i32(field, value)
    header = Struct()
    for field, value in ((1, 0), (2, uncompressed), (3, size)):
        header.set_i32(field, value)
    header.set_struct(5, data)
    body = header.to_bytes() + bytes(24)
    meta = column_meta(COMPRESSED=len(body), NUM_VALUES=values, CODEC=codec)
    return plain(footer(INT64_COLUMN, [group(chunk(meta), rows=values)], values), body)


PLAIN_FILES: dict[str, Callable[[], bytes]] = {
    "filter of 2 GiB": lambda: with_filter(HUGE),
    "filter of 2 GiB with its length": lambda: with_filter(HUGE, BLOOM_LENGTH=HUGE),
    "filter of -32 bytes": lambda: with_filter(-32),
    "filter of 0 bytes": lambda: with_filter(0),
    "filter of 128 MiB, lawful but not there": lambda: with_filter(128 << 20),
    "filter at a negative offset": lambda: with_filter(32, offset=-5),
    "filter beyond the end": lambda: with_filter(32, offset=1 << 40),
    "filter length of -1": lambda: with_filter(32, BLOOM_LENGTH=-1),
    "filter shorter than its bitset": lambda: with_filter(64, BLOOM_LENGTH=40),
    "structs nested a million deep": lambda: plain(raw_footer((2, STRUCT, b"\x1c" * 1_000_000))),
    "lists nested a million deep": lambda: plain(raw_footer((2, LIST, b"\x19" * 1_000_000))),
    "lists nested inside an unknown field": lambda: plain(
        footer(INT64_COLUMN, []).to_bytes()[:-1] + b"\x0c\x5e" + b"\x19" * 1_000_000
    ),
    "a list of 2^31 row groups": lambda: plain(raw_footer((2, LIST, b"\x19\x0c"), (4, LIST, b"\xfc" + CLAIM))),
    "a list of 2^31 schema elements": lambda: plain(raw_footer((2, LIST, b"\xfc" + CLAIM))),
    "a list of 2^31 columns": lambda: plain(footer(INT64_COLUMN, [b"\x19\xfc" + CLAIM + b"\x00"])),
    "a string of 2^31 bytes": lambda: plain(raw_footer((6, BINARY, CLAIM))),
    "a million empty row groups": lambda: plain(
        raw_footer(
            (2, LIST, b"\x2c" + b"".join(INT64_COLUMN)),
            (3, 6, b"\x00"),
            (4, LIST, b"\xfc\xc0\x84\x3d" + bytes(1_000_000)),
        )
    ),
    "four million empty row groups": lambda: plain(
        raw_footer((2, LIST, b"\x2c" + b"".join(INT64_COLUMN)), (4, LIST, b"\xfc\x80\x92\xf4\x01" + bytes(4_000_000)))
    ),
    "a million empty schema elements": lambda: plain(
        raw_footer((2, LIST, b"\xfc\xc0\x84\x3d" + bytes(1_000_000)), (4, LIST, b"\x0c"))
    ),
    "a million key-value pairs": lambda: plain(
        raw_footer(
            (2, LIST, b"\x2c" + b"".join(INT64_COLUMN)),
            (4, LIST, b"\x0c"),
            (5, LIST, b"\xfc\xc0\x84\x3d" + bytes(1_000_000)),
        )
    ),
    "a million column orders": lambda: plain(
        raw_footer(
            (2, LIST, b"\x2c" + b"".join(INT64_COLUMN)),
            (4, LIST, b"\x1c" + group(chunk(column_meta()))),
            (7, LIST, b"\xfc\xc0\x84\x3d" + bytes(1_000_000)),
        )
    ),
    "a group of 2^31 children": lambda: plain(footer([element(b"root", children=HUGE), *INT64_COLUMN[1:]], [])),
    "a group of -1 children": lambda: plain(footer([element(b"root", children=-1), *INT64_COLUMN[1:]], [])),
    "a chain of groups": lambda: plain(footer([element(b"g", children=1)] * 5000 + [element(b"a", type=2)], [])),
    "values of 2^31 bytes": lambda: plain(
        footer([INT64_COLUMN[0], element(b"a", type=7, repetition=0, length=HUGE)], [group(chunk(column_meta(7)))])
    ),
    "values of -1 bytes": lambda: plain(
        footer([INT64_COLUMN[0], element(b"a", type=7, repetition=0, length=-1)], [group(chunk(column_meta(7)))])
    ),
    "values of 0 bytes": lambda: plain(
        footer([INT64_COLUMN[0], element(b"a", type=7, repetition=0, length=0)], [group(chunk(column_meta(7)))])
    ),
    "a decimal of 2^31 digits": lambda: plain(
        footer(
            [INT64_COLUMN[0], element(b"a", type=6, repetition=0, converted=5, precision=HUGE, scale=HUGE - 1)],
            [group(chunk(column_meta(6)))],
        )
    ),
    "an unknown physical type": lambda: plain(footer([INT64_COLUMN[0], element(b"a", type=99)], [])),
    "an unknown converted type": lambda: plain(
        footer([INT64_COLUMN[0], element(b"a", type=2, repetition=0, converted=99)], [group(chunk(column_meta()))])
    ),
    "pages of -1 bytes": lambda: plain(footer(INT64_COLUMN, [group(chunk(column_meta(COMPRESSED=-1)))])),
    "pages of 2^62 bytes": lambda: plain(footer(INT64_COLUMN, [group(chunk(column_meta(COMPRESSED=1 << 62)))])),
    "pages at -1": lambda: plain(footer(INT64_COLUMN, [group(chunk(column_meta(DATA_PAGE=-1)))])),
    "-1 values": lambda: plain(footer(INT64_COLUMN, [group(chunk(column_meta(NUM_VALUES=-1)))])),
    "2^62 values": lambda: plain(footer(INT64_COLUMN, [group(chunk(column_meta(NUM_VALUES=1 << 62)))])),
    "-1 rows": lambda: plain(footer(INT64_COLUMN, [group(chunk(column_meta()), rows=-1)])),
    "2^62 rows": lambda: plain(footer(INT64_COLUMN, [group(chunk(column_meta()), rows=1 << 62)], 1 << 62)),
    "an index of 2^31 bytes": lambda: plain(
        footer(INT64_COLUMN, [group(chunk(column_meta(), OFFSET_INDEX=4, OFFSET_INDEX_LENGTH=HUGE))])
    ),
    "an index of -1 bytes": lambda: plain(
        footer(INT64_COLUMN, [group(chunk(column_meta(), COLUMN_INDEX=4, COLUMN_INDEX_LENGTH=-1))])
    ),
    "500 columns over one megabyte": many_leaves_over_one_chunk,
    "a page of 2^31 uncompressed bytes": lambda: page_claiming(24, HUGE, 3),
    "a page of 2^31 bytes before compression": lambda: page_claiming(24, HUGE, 3, codec=1),
    "a page of -1 bytes": lambda: page_claiming(-1, 24, 3),
    "a page of -1 uncompressed bytes": lambda: page_claiming(24, -1, 3),
    "a page of -1 values": lambda: page_claiming(24, 24, -1),
    "a footer longer than the file": lambda: MAGIC + b"\xff\xff\xff\x7f" + MAGIC,
    "a footer of 0 bytes": lambda: MAGIC + bytes(4) + MAGIC,
    "an encrypted footer of 0 bytes": lambda: MAGIC_ENCRYPTED + bytes(4) + MAGIC_ENCRYPTED,
    "twelve zeros": lambda: bytes(12),
    "nothing": lambda: b"",
}


@pytest.mark.parametrize("name", PLAIN_FILES)
def test_a_plaintext_file_with(tmp_path: Path, name: str) -> None:
    path = tmp_path / "hostile.parquet"
    path.write_bytes(PLAIN_FILES[name]())
    asked = ask(path)["asked"]
    # Most cannot even be opened; none may be read as if nothing were wrong.
    assert asked["open"] != "answered" or asked["read"] != "answered" or asked["verify"] != "answered", asked


@pytest.fixture(scope="module")
def traced() -> Iterator[None]:
    """Memory is traced for the whole module: CPython 3.11 crashes if tracing stops while a thread of Arrow's pool lets
    go of a buffer of ours (`traceback_new` writes through a pointer that is null by then).
    """
    tracemalloc.start()
    yield
    time.sleep(1)
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize(
    "module",
    [ModuleType.BLOOM_FILTER_HEADER, ModuleType.BLOOM_FILTER_BITSET, ModuleType.DATA_PAGE_HEADER, ModuleType.DATA_PAGE],
    ids=lambda m: m.label,
)
@pytest.mark.parametrize("claim", [0, 11, 1 << 16, 128 << 20, HUGE, (1 << 32) - 1])
def test_a_sealed_module_that_claims(module: ModuleType, claim: int) -> None:
    """Length prefixes stand in clear, whoever can write to the storage can write them."""
    small = small_file("gcm-encrypted-footer")
    chosen = next(m for m in small.modules if m.kind is module)
    mutated = bytearray(small.data)
    mutated[chosen.start : chosen.start + 4] = claim.to_bytes(4, "little")
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    outcome = judge(small, bytes(mutated), f"{module.label} claims {claim} bytes")
    peak = tracemalloc.get_traced_memory()[1] - before
    assert outcome == "noticed"
    assert peak < len(mutated) + ALLOWANCE


def test_a_row_group_that_is_not_there() -> None:
    small = small_file("gcm-encrypted-footer")
    file = ParquetFile(Source.memory(small.data), small.decryption)
    for index in (-1, 3, 1 << 40):
        with pytest.raises(bs.UsageError, match="no such row group"):
            file.filter(index, "ssn")
