"""Attack: by whoever may write a log, files of a few KB that a library decodes to gigabytes. What they come to is
counted first; docs/threat-model.md has the numbers that are measured here.
"""

from __future__ import annotations

import bz2
import functools
import gzip
import io
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
from bloomseal.core.parquet.footer import plain_footer
from bloomseal.core.parquet.layout import Column, FileMeta, Group, Meta
from bloomseal.core.storage.ref import FileRef
from bloomseal.core.thrift import Cursor, Struct
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


def opened(honest: Path, attacked: Path) -> tuple[str, int]:
    """How opening the attacked table ends, and by how many MiB the peak of memory grows over that of an honest one."""
    run = [sys.executable, "-c", _READER, str(honest), str(attacked)]
    done = subprocess.run(run, capture_output=True, text=True, check=True, timeout=120)
    error, grown = done.stdout.split()
    return error, int(grown)


def _dictionary() -> pa.Table:
    columns = [pa.repeat(letter * 5000, _ROWS) for letter in "xy"]
    return pa.table({"add": pa.StructArray.from_arrays(columns, ["path", "stats"])})


CHECKPOINTS: dict[str, tuple[Callable[[], pa.Table], dict[str, Any]]] = {
    "one entry for all rows": (_dictionary, {"compression": "zstd"}),
    "pages of zeros": (lambda: pa.table({"x": pa.array([bytes(1 << 26)])}), {"compression": "zstd", "use_dictionary": False}),
    "a common prefix": (
        lambda: pa.table({"x": pa.repeat("x" * 5000, _ROWS)}),
        {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY"},
    ),
    "runs of nulls": (lambda: pa.table({f"c{i}": pa.nulls(5_000_000, pa.int64()) for i in range(8)}), {"compression": "zstd"}),
}  # fmt: skip


@functools.cache
def checkpoint(attack: str) -> bytes:
    rows, options = CHECKPOINTS[attack]
    written = io.BytesIO()
    pq.write_table(rows(), written, row_group_size=1 << 24, **options)
    assert len(written.getvalue()) < 250_000
    return written.getvalue()


@pytest.mark.parametrize("attack", CHECKPOINTS)
def test_a_checkpoint_is_counted_before_it_is_decoded(tmp_path: Path, attack: str) -> None:
    honest, attacked = tmp_path / "honest", tmp_path / "attacked"
    import deltalake

    for place in (honest, attacked):
        deltalake.write_deltalake(str(place), pa.table({"n": [1]}))
        deltalake.DeltaTable(str(place)).create_checkpoint()
    bs.open_table(honest)
    path = next((attacked / "_delta_log").glob("*.parquet"))
    path.write_bytes(checkpoint(attack))
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
    (folder / "_delta_log" / f"{1:020}.checkpoint.parquet").write_bytes(checkpoint("one entry for all rows"))
    return folder


def test_a_checkpoint_is_counted_where_it_is_read(tmp_path: Path) -> None:
    """An old one costs nothing as long as nobody asks for its version."""
    table = bombed(tmp_path / "t")
    assert bs.read_table(table).num_rows == 3
    with pytest.raises(bs.FormatError, match="decodes"):
        bs.open_table(table, version=1)


def test_no_link_leads_to_checkpoints_that_are_not_counted(tmp_path: Path) -> None:
    log = bombed(tmp_path / "t") / "_delta_log"
    (tmp_path / "elsewhere").mkdir()
    (log / "_sidecars").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(bs.UsageError, match="no regular file"):
        bs.open_table(tmp_path / "t")


def test_a_checkpoint_in_a_store_is_counted_too(tmp_path: Path) -> None:
    store = SubTreeFileSystem(str(bombed(tmp_path / "t")), LocalFileSystem())
    with pytest.raises(bs.FormatError, match="decodes"):
        DeltaLog(FileRef("", store), version=1)


def _telling(data: bytes, group: dict[int, int], chunk: dict[int, int]) -> bytes:
    """The same Parquet file; its footer says other numbers of the row group and of every column chunk."""
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = Struct.parse(data[start:-8])
    (raw,) = footer.elements(FileMeta.ROW_GROUPS)
    columns = [Struct.parse(one) for one in Struct.parse(raw).elements(Group.COLUMNS)]
    for one in columns:
        meta = one.struct(Column.META)
        assert meta is not None
        for number, value in chunk.items():
            meta.set_i64(number, value)
        one.set_struct(Column.META, meta)
    told = Struct.parse(raw)
    told.set_list(Group.COLUMNS, [one.to_bytes() for one in columns])
    for number, value in group.items():
        told.set_i64(number, value)
    footer.set_list(FileMeta.ROW_GROUPS, [told.to_bytes()])
    footer.set_i64(FileMeta.NUM_ROWS, 1)
    return data[:start] + plain_footer(footer.to_bytes())


def test_numbers_in_a_footer_hide_no_page() -> None:
    """Decoders go on to a chunk's last page, and to its row group's last row, whatever its sums say."""
    rows, written = pa.table({"x": ["a", *["x" * 5000] * _ROWS]}), io.BytesIO()
    pq.write_table(rows, written, row_group_size=1 << 24, data_page_size=1, write_batch_size=64, compression="zstd")
    for values in (1, -(1 << 40)):
        with pytest.raises(bs.FormatError, match="decodes to"):
            need_parquet(_telling(written.getvalue(), {}, {Meta.NUM_VALUES: values}), "x")
    fixed = pa.table({"x": pa.array([None, b"x" * 4096], pa.binary(4096))}).take([0] * _ROWS)
    pq.write_table(fixed, written := io.BytesIO(), compression="zstd")
    with pytest.raises(bs.FormatError, match="decodes to"):
        need_parquet(written.getvalue(), "x")
    pq.write_table(pa.table({"x": [1]}), written := io.BytesIO())
    for chunk in ({Meta.COMPRESSED: -1}, {Meta.DICTIONARY_PAGE: 1 << 40}):
        with pytest.raises(bs.FormatError, match="can't be understood"):
            need_parquet(_telling(written.getvalue(), {}, chunk), "x")
    with pytest.raises(bs.FormatError, match="decodes to"):
        need_parquet(_telling(written.getvalue(), {Group.NUM_ROWS: 1 << 40}, {}), "x")


@pytest.mark.parametrize("codec", ["gzip", "brotli", "zstd"])
def test_a_page_becomes_no_longer_than_its_header_says(codec: str) -> None:
    """Some decoders unpack it as a whole before they compare the two."""
    rows, written = pa.table({"x": ["x" * (1 << 26)]}), io.BytesIO()
    pq.write_table(rows, written, compression=codec, use_dictionary=False, write_statistics=False)
    data, start = written.getvalue(), pq.read_metadata(written).row_group(0).column(0).data_page_offset
    cursor = Cursor(data, start)
    header = Struct.read(cursor)
    length = cursor.position - start
    header.set_i32(2, 100)
    header.set_binary(12, b"")
    header.set_binary(12, bytes(length - len(header.to_bytes())))
    assert len(header.to_bytes()) == length
    with pytest.raises(bs.FormatError, match="can't be understood"):
        need_parquet(data[:start] + header.to_bytes() + data[cursor.position :], "x")


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "brotli", "zstd", "lz4"])
def test_checkpoints_of_every_codec_are_read(tmp_path: Path, codec: str, version: str) -> None:
    import deltalake

    deltalake.write_deltalake(str(tmp_path), pa.table({"n": [1]}))
    deltalake.DeltaTable(str(tmp_path)).create_checkpoint()
    path = next((tmp_path / "_delta_log").glob("*.parquet"))
    pq.write_table(pq.read_table(path), path, compression=codec, data_page_version=version)
    assert bs.open_table(tmp_path).read().num_rows == 1


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
    # Streams of bzip2 one after the other are one, and are made faster.
    streams = times // 1000 if codec == "bzip2" and times % 1000 == 0 else 1
    packed = pack[codec](record * (times // streams)) * streams
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


def test_packed_blocks_are_one_stream(tmp_path: Path) -> None:
    """The decoder goes on where a bzip2 stream ends, and for each copies what is left."""
    _, place = iceberg(tmp_path)
    one = repeated(place, 1, "bzip2")
    packed = bz2.compress(bytes(1 << 26))
    with pytest.raises(bs.FormatError, match="decodes to"):
        need_avro(_with_block(one, bz2.compress(b"x") + packed), "x")
    with pytest.raises(bs.FormatError, match="decodes to"):
        need_avro(_with_block(one, bz2.compress(b"") * 2), "x")


def _with_block(data: bytes, packed: bytes) -> bytes:
    """The same Avro file, of one other block."""
    sync = data[-16:]
    return data[: data.index(sync) + 16] + _long(1) + _text(packed) + sync


def test_the_most_that_a_manifest_may_take(tmp_path: Path) -> None:
    """A list of 2 MB that is decoded, as great as it may become; then it is seen to name one manifest over and over."""
    iceberg(tmp_path / "honest")
    _, place = iceberg(tmp_path / "attacked")
    most = (SMALL_LOG_BYTES + MANIFEST_RATIO * 2_000_000) // (len(str(place)) + 40)  # its record is about as long
    place.write_bytes(repeated(place, most, "deflate", 2_000_000))
    error, grown = opened(tmp_path / "honest/n/t", tmp_path / "attacked/n/t")
    assert error == "FormatError"
    assert grown < 1200


def test_a_manifest_is_decoded_once(tmp_path: Path) -> None:
    """A list of 10 KB could name one as often as it pleases."""
    _, place = iceberg(tmp_path)
    assert bs.open_table(tmp_path / "n/t").read().num_rows == 1
    place.write_bytes(repeated(place, 20_000, "deflate"))
    assert place.stat().st_size < 20_000
    with pytest.raises(bs.FormatError, match="names a manifest twice"):
        bs.open_table(tmp_path / "n/t")


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
