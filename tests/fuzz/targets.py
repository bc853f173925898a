"""What is fuzzed: every parser, by the name of its folder in `corpus/`, with lawful bytes to start from.

A target takes bytes. It may raise our errors only, whatever the bytes are.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq

import bloomseal as bs
from bloomseal.cli.arguments.csv_input import CsvReader
from bloomseal.cli.arguments.text_input import TextInput
from bloomseal.core.keys.material import KeyMaterial, KeyMetadata
from bloomseal.core.parquet.footer import Footer, plain_footer
from bloomseal.core.parquet.layout import FileMeta, read_tail
from bloomseal.core.parquet.schema import Schema
from bloomseal.core.storage.ref import FileRef
from bloomseal.core.storage.source import Source
from bloomseal.core.thrift import Struct
from bloomseal.core.thrift.schema_structs import SchemaElement
from bloomseal.core.thrift.structs import (
    BloomFilterHeader,
    ColumnChunk,
    ColumnIndex,
    OffsetIndex,
    PageHeader,
    RowGroup,
    decode,
)
from bloomseal.index.manifest import FACTS, IndexRun, Manifest, Shard
from bloomseal.keytools.keyring import keyfile
from bloomseal.keytools.material.store import MaterialStore
from bloomseal.policy.file import Policy
from bloomseal.read.parquet import ParquetFile
from bloomseal.read.predicate.where import parse_where
from bloomseal.rotation.journal import Journal
from bloomseal.sbbf import batch

__all__ = ["CORPUS", "TARGETS", "run", "seeds"]

CORPUS = Path(__file__).parent / "corpus"


@functools.cache
def seeds() -> dict[str, bytes]:
    """Lawful bytes: a plaintext file of pyarrow with filters, nested columns, dictionaries, V1 or V2 pages and page
    indexes, its parts, and what stands beside files.
    """
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
    found["levels"] = bytes([3, 4]) + bytes([0x08, 0x01, 0x03, 0b10110001, 0x02])
    material = KeyMaterial("pii", "d3JhcHBlZA==", False, kek_id="a2Vr", wrapped_kek="a2Vrcw==")
    found["key metadata"] = KeyMetadata(material).to_bytes()
    found["key material"] = material.to_json(internal=False).encode()
    found["sidecar"] = json.dumps({"ref1": material.to_json(internal=False)}).encode()
    with tempfile.TemporaryDirectory() as folder:
        keyring = bs.Keyring(Path(folder) / "ring.json", create=True)
        keyring.create("pii")
        found["keyring"] = (Path(folder) / "ring.json").read_bytes()
        with Journal(Path(folder) / "j", "rekey", "digest") as journal:
            journal.begin("a.parquet", (1, 2))
            journal.end()
        found["journal"] = (Path(folder) / "j").read_bytes()
    found["policy"] = (
        b'version = 1\nkms = "keyring:ring.json"\n[defaults]\nkek_bits = 128\n[tables.people]\nfooter_key = "footer"\n'
        b'aad_prefix = "{table}/{path}/"\n[tables.people.columns.ssn]\nkey = "pii"\nsensitivity = "restricted"\n'
        b"filter = {fpp = 0.01, ndv = 1000}\n"
    )
    found["column index"] = _indexes(data)[0]
    found["offset index"] = _indexes(data)[1]
    head, facts, doc = _manifest().to_values()
    found["manifest head"], found["manifest facts"], found["manifest doc"] = head, facts, doc
    sink = io.BytesIO()
    orc_table = table.select(["i", "s", "t"])
    pa.orc.write_table(orc_table, sink, bloom_filter_columns=[1, 2], row_index_stride=10_000, compression="zlib")
    found["orc"] = sink.getvalue()
    found["csv"] = b'name,ssn,born,n\n"Ada, A",078-05-1120,1815-12-10,1\nBob,219-09-9999,,2.5\n'
    found["where"] = b"(s = 'a' or i in (1, 2)) and not (d between 1 and 2) and s like 'a%' and t is not null"
    return found


def _indexes(data: bytes) -> tuple[bytes, bytes]:
    """Column index and offset index of the first column, as they stand in the file."""
    with ParquetFile(Source.memory(data), None) as file:
        view = file.walk.chunk(0, 0).view
    places = (view.column_index_offset, view.column_index_length), (view.offset_index_offset, view.offset_index_length)
    (one, its), (other, others) = places
    assert one is not None
    assert its is not None
    assert other is not None
    assert others is not None
    return data[one : one + its], data[other : other + others]


@functools.cache
def _manifest() -> Manifest:
    """An index of two runs that covers one file."""
    shards = (Shard("run-0123456789abcdef-0.parquet", b"u" * 8, 4000, 100, 5, 900),)
    runs = (IndexRun("0123456789abcdef", 4, 3, shards), IndexRun("fedcba9876543210", 4, 2, ()))
    fact = {"path": "0.parquet", "inode": 1, "size": 2, "mtime": 3, "ctime": 4, "tag": "", "groups": 3, "doc": 0}
    fact |= {"content": bytes(16), "run": runs[0].id, "base": 0, "stride": 1}
    retired = {"run-0123456789abcdef-1.parquet": 1.5}
    facts = pa.Table.from_pylist([fact], FACTS)
    return Manifest(("k",), bytes(32), 40, 0.5, runs=runs, facts=facts, docs=(b"PAR1",), retired=retired)


def _as_manifest(place: int, data: bytes) -> None:
    values = [seeds()[name] for name in ("manifest head", "manifest facts", "manifest doc")]
    values[place] = data
    made = Manifest.from_values(values)
    repr(made)
    Manifest.from_values(made.to_values())


def _orc(data: bytes) -> None:
    with bs.open_file(data) as file:
        for call in (
            lambda: file.stripes,
            lambda: file.filters,
            lambda: file.probe("i", [1]),
            lambda: file.probe("s", ["a"]),
        ):
            with contextlib.suppress(bs.BloomsealError):
                call()


def struct_whole(data: bytes) -> None:
    """Every accessor of every field; and what parsed must serialise and parse to the same again."""
    struct = Struct.parse(data, remember=4)
    again = Struct.parse(struct.to_bytes())
    assert again.fields == struct.fields
    for field in struct.fields:
        for read in (struct.integer, struct.boolean, struct.binary, struct.struct, struct.elements):
            with contextlib.suppress(bs.BloomsealError):
                read(field)


def footer_whole(data: bytes) -> None:
    footer = Footer(data, 4, None, True)
    _ = footer.num_rows, footer.created_by, footer.ordered, footer.schema.top_level
    leaves = range(len(footer.schema.leaves))
    footer.schema.cut(leaves[:1])
    footer.schema.cut(leaves, physical=True)
    for index in range(len(footer.row_groups)):
        footer.row_group(index)


def file_whole(data: bytes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bs.BloomsealWarning)
        file = ParquetFile(Source.memory(data), None)
        calls: list[Callable[[], Any]] = [
            lambda: file.row_groups,
            file.verify,
            lambda: file.probe("i", [1, 2]),
            lambda: file.probe("s", ["a"]),
            lambda: file.filter(0, "t"),
            lambda: file.read(["i", "s"]),
            lambda: file.read(["i"], where=[("s", "==", "a"), ("i", "<", 4)]),
            lambda: file.read(where=[("d", ">", 1)]),
        ]
        for call in calls:
            with contextlib.suppress(bs.BloomsealError):
                call()


def _footer_in_a_file(data: bytes) -> None:
    file_whole(seeds()["file 1.0"][: -8 - len(seeds()["footer"])] + plain_footer(data))


def _levels(data: bytes) -> None:
    """A bit width, a count, and runs: numpy's tally and the kernels' agree."""
    import numpy as np

    if len(data) < 2:
        return
    width, count = data[0] % 34, data[1] * 8
    runs = np.frombuffer(data, dtype=np.uint8)[2:]
    tallies = np.zeros(1 << min(width, 12), dtype=np.int64)
    batch.tally(runs, width, count, tallies)


def _where(data: bytes) -> None:
    parse_where(data.decode("utf-8", "replace"), _schema())


@functools.cache
def _schema() -> Schema:
    return Footer(seeds()["footer"], 4, None, True).schema


@contextlib.contextmanager
def _at(name: str, data: bytes) -> Iterator[str]:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:  # noqa: PTH112, S108
        path = Path(folder) / name
        path.write_bytes(data)
        yield str(path)


def _sidecar(data: bytes) -> None:
    with _at("_KEY_MATERIAL_FOR_a.parquet.json", data) as path:
        entries = MaterialStore(FileRef(str(Path(path).with_name("a.parquet")), None)).read()
        for text in entries.values():
            KeyMaterial.from_json(text)


def _policy(data: bytes) -> None:
    with _at("policy.toml", data) as path:
        policy = Policy.load(path)
        for name in policy.tables:
            repr(policy.for_table(name))


def _journal(data: bytes) -> None:
    with _at("journal", data) as path:
        Journal(path, "rekey", "digest").close()


def _csv(data: bytes) -> None:
    with _at("a.csv", data) as path, ExitStack() as stack:
        for _ in CsvReader(TextInput(path, "csv", stack), {}, {}).batches:
            pass


TARGETS: dict[str, tuple[str, Callable[[bytes], Any]]] = {
    "struct": ("footer", struct_whole),
    "row-group": ("row group", lambda data: decode(RowGroup, data, container_limit=4096)),
    "column-chunk": ("column chunk", lambda data: decode(ColumnChunk, data)),
    "schema-element": ("schema element", lambda data: decode(SchemaElement, data)),
    "page-header": ("page header", lambda data: decode(PageHeader, data)),
    "filter-header": ("bloom header", lambda data: decode(BloomFilterHeader, data)),
    "column-index": ("column index", lambda data: decode(ColumnIndex, data)),
    "offset-index": ("offset index", lambda data: decode(OffsetIndex, data)),
    "manifest-head": ("manifest head", functools.partial(_as_manifest, 0)),
    "manifest-facts": ("manifest facts", functools.partial(_as_manifest, 1)),
    "orc": ("orc", _orc),
    "footer": ("footer", footer_whole),
    "footer-in-a-file": ("footer", _footer_in_a_file),
    "file-v1": ("file 1.0", file_whole),
    "file-v2": ("file 2.0", file_whole),
    "levels": ("levels", _levels),
    "key-metadata": ("key metadata", KeyMetadata.from_bytes),
    "key-material": ("key material", KeyMaterial.from_json),
    "sidecar": ("sidecar", _sidecar),
    "keyring": ("keyring", lambda data: keyfile.load(data, None)),
    "policy": ("policy", _policy),
    "journal": ("journal", _journal),
    "csv": ("csv", _csv),
    "where": ("where", _where),
}
"""Name → the seed's name, and the parser."""


def run(name: str, data: bytes) -> None:
    """Give bytes to a target. What is not an error of ours leaves."""
    with contextlib.suppress(bs.BloomsealError):
        TARGETS[name][1](data)
