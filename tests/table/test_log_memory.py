"""Attack: by whoever may write a log, files of a few KB that a library decodes to gigabytes. What they come to is
counted first; docs/threat-model.md has the numbers that are measured here.
"""

from __future__ import annotations

import bz2
import gzip
import json
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

import bloomseal as bs
from bloomseal.core.limits import MANIFEST_RATIO, MAX_LOG_BYTES, SMALL_LOG_BYTES
from bloomseal.core.storage.ref import FileRef
from bloomseal.storage.logs.decoded import need_avro, need_parquet, need_readable
from bloomseal.storage.logs.delta import DeltaLog

pytest.importorskip("deltalake")
memory = pytest.importorskip("pyiceberg.catalog.memory")

_READER = """
import sys
import bloomseal as bs
def peak():
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) // 1024
bs.open_table(sys.argv[1])
before = peak()
try:
    bs.open_table(sys.argv[2])
except bs.BloomsealError as error:
    print(type(error).__name__, peak() - before)
"""
_ROWS = 200_000
_TEXT = pa.struct([("path", pa.string()), ("stats", pa.string())])


def opened(honest: Path, attacked: Path) -> tuple[str, int]:
    """How opening the attacked table ends, and by how many MiB the peak of memory grows over that of an honest one."""
    run = [sys.executable, "-c", _READER, str(honest), str(attacked)]
    done = subprocess.run(run, capture_output=True, text=True, check=True, timeout=120)
    error, grown = done.stdout.split()
    return error, int(grown)


def _dictionary() -> pa.Table:
    entry = {"path": "x" * 5000, "stats": "y" * 5000}
    return pa.table({"add": pa.array([entry] * _ROWS, _TEXT)})


CHECKPOINTS: dict[str, tuple[Callable[[], pa.Table], dict[str, Any]]] = {
    "one entry for all rows": (_dictionary, {"compression": "zstd"}),
    "pages of zeros": (lambda: pa.table({"x": pa.array([bytes(1 << 26)])}), {"compression": "zstd", "use_dictionary": False}),
    "a common prefix": (
        lambda: pa.table({"x": ["x" * 5000] * _ROWS}),
        {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY"},
    ),
    "runs of nulls": (lambda: pa.table({f"c{i}": pa.nulls(5_000_000, pa.int64()) for i in range(8)}), {"compression": "zstd"}),
}  # fmt: skip


@pytest.mark.parametrize("attack", CHECKPOINTS)
def test_a_checkpoint_is_counted_before_it_is_decoded(tmp_path: Path, attack: str) -> None:
    rows, options = CHECKPOINTS[attack]
    honest, attacked = tmp_path / "honest", tmp_path / "attacked"
    import deltalake

    for place in (honest, attacked):
        deltalake.write_deltalake(str(place), pa.table({"n": [1]}))
        deltalake.DeltaTable(str(place)).create_checkpoint()
    bs.open_table(honest)
    path = next((attacked / "_delta_log").glob("*.parquet"))
    pq.write_table(rows(), path, row_group_size=1 << 24, **options)
    assert path.stat().st_size < 250_000
    error, grown = opened(honest, attacked)
    assert error == "FormatError"
    assert grown < 100


def bombed(folder: Path) -> Path:
    """A table with two checkpoints, the older of which decodes to gigabytes."""
    import deltalake

    for number in range(3):
        deltalake.write_deltalake(str(folder), pa.table({"n": [number]}), mode="append")
        if number:
            deltalake.DeltaTable(str(folder)).create_checkpoint()
    rows, options = CHECKPOINTS["one entry for all rows"]
    pq.write_table(rows(), folder / "_delta_log" / f"{1:020}.checkpoint.parquet", row_group_size=1 << 24, **options)
    return folder


def test_a_checkpoint_is_counted_where_it_is_read(tmp_path: Path) -> None:
    """An old one costs nothing as long as nobody asks for its version."""
    table = bombed(tmp_path / "t")
    assert bs.read_table(table).num_rows == 3
    with pytest.raises(bs.FormatError, match="decodes"):
        bs.open_table(table, version=1)


def test_a_checkpoint_in_a_store_is_counted_too(tmp_path: Path) -> None:
    store = SubTreeFileSystem(str(bombed(tmp_path / "t")), LocalFileSystem())
    with pytest.raises(bs.FormatError, match="decodes"):
        DeltaLog(FileRef("", store), version=1)


def iceberg(folder: Path) -> tuple[Any, Path]:
    """A table of one file, and the list of its manifests."""
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField

    catalog = memory.InMemoryCatalog("t", warehouse=f"file://{folder}")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", schema=Schema(NestedField(1, "n", LongType())))
    table.append(pa.table({"n": [1]}))
    return table, Path(table.current_snapshot().manifest_list.removeprefix("file://"))


def _long(number: int) -> bytes:
    number, made = number << 1, bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes([*made, number])


def _text(value: bytes) -> bytes:
    return _long(len(value)) + value


def repeated(list_of: Path, times: int, codec: str, filler: int = 0, schema: str | None = None) -> bytes:
    """The same list, its one block's record so many times."""
    from pyiceberg.avro.file import AvroFile
    from pyiceberg.io.pyarrow import PyArrowFileIO

    data = list_of.read_bytes()
    with AvroFile[Any](PyArrowFileIO().new_input(str(list_of))) as reader:
        meta, sync = {name: value.encode() for name, value in reader.header.meta.items()}, reader.header.sync
    block = data.split(sync)[1]
    length = next(place for place in range(2, 12) if _long(len(block) - place) == block[1:place])
    record = zlib.decompress(block[length:], -15)
    pack = {
        "deflate": _deflate,
        "bzip2": bz2.compress,
        "zstandard": lambda raw: pa.Codec("zstd").compress(raw).to_pybytes(),
    }
    meta |= {"avro.codec": codec.encode(), "filler": bytes(i % 251 % 128 for i in range(filler))}
    if schema is not None:
        meta["avro.schema"] = schema.encode()
    head = b"Obj\x01" + _long(len(meta)) + b"".join(_text(name.encode()) + _text(value) for name, value in meta.items())
    packed = pack[codec](record * times)
    return head + _long(0) + sync + _long(times) + _text(packed) + sync


def _deflate(raw: bytes) -> bytes:
    packing = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packing.compress(raw) + packing.flush()


@pytest.mark.parametrize("codec", ["deflate", "bzip2", "zstandard"])
def test_a_manifest_is_counted_before_it_is_decoded(tmp_path: Path, codec: str) -> None:
    iceberg(tmp_path / "honest")
    _, place = iceberg(tmp_path / "attacked")
    place.write_bytes(repeated(place, 400_000, codec))
    error, grown = opened(tmp_path / "honest/n/t", tmp_path / "attacked/n/t")
    assert error == "FormatError"
    assert grown < 100


def test_the_most_that_a_manifest_may_take(tmp_path: Path) -> None:
    """A list of 2 MB that passes, as great as it may become. The manifest that it names is not there."""
    iceberg(tmp_path / "honest")
    table, place = iceberg(tmp_path / "attacked")
    most = (SMALL_LOG_BYTES + MANIFEST_RATIO * 2_000_000) // (len(str(place)) + 40)  # its record is about as long
    place.write_bytes(repeated(place, most, "deflate", 2_000_000))
    for manifest in Path(table.location().removeprefix("file://")).glob("metadata/*-m0.avro"):
        manifest.unlink()
    error, grown = opened(tmp_path / "honest/n/t", tmp_path / "attacked/n/t")
    assert error == "UsageError"
    assert grown < 1200


def test_items_that_take_no_byte_are_as_many_as_somebody_says(tmp_path: Path) -> None:
    _, place = iceberg(tmp_path)
    for items in (
        '"null"',
        '{"type": "record", "name": "r", "fields": []}',
        '{"type": "fixed", "name": "f", "size": 0}',
    ):
        schema = '{"type": "record", "name": "m", "fields": [{"name": "x", "type": ["null", {"type": "array", "items": %s}]}]}'
        with pytest.raises(bs.FormatError, match="or more"):
            need_avro(repeated(place, 1, "deflate", schema=schema % items), "x")
    need_avro(place.read_bytes(), "x")


def test_packed_metadata_are_counted_before_they_are_unpacked(tmp_path: Path) -> None:
    table, _ = iceberg(tmp_path)
    newest = Path(table.metadata_location.removeprefix("file://"))
    told = json.loads(newest.read_text()) | {"properties": {"x": "x" * (1 << 26)}}
    packed = newest.with_name(newest.name.replace(".metadata.json", ".gz.metadata.json"))
    packed.write_bytes(gzip.compress(json.dumps(told).encode()))
    newest.unlink()
    with pytest.raises(bs.FormatError, match="decodes to"):
        bs.open_table(tmp_path / "n/t")


def test_what_is_no_such_file_is_refused() -> None:
    for need in (need_avro, need_parquet):
        for data in (b"", b"Obj\x01", b"PAR1PAR1", b"Obj\x01\x02\x02a", bytes(100)):
            with pytest.raises(bs.FormatError, match="can't be understood"):
                need(data, "x")
    with pytest.raises(bs.FormatError, match="the limit is"):
        need_readable(MAX_LOG_BYTES + 1, "x")
