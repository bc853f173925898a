"""The least that a job comes to: the bytes that it must read, open, inflate and decode, with every place known
beforehand, and nothing checked or decided on the way. A goal beyond the floor can't be reached by better code of ours.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import bloomseal as bs
from bloomseal.core.encryption import ModuleType
from bloomseal.core.limits import MAX_ORC_INDEX_BYTES
from bloomseal.core.parquet.page import Page
from bloomseal.core.parquet.walk import Chunk, Walk
from bloomseal.core.storage.source import Scratch
from bloomseal.format.minifile import PageSelection, mini_file
from bloomseal.orc.streams import FILTER_KINDS

__all__ = ["ask_orc", "convert", "look_up"]

_LENGTH_BYTES = 4
_ORC_END = 16 * 1024


def look_up(path: Path, column: str, value: str, decryption: bs.DecryptionSpec) -> Callable[[], int]:
    """Rows with a value that is in one row group: a filter per row group opened, then that one's pages of the column
    opened, inflated and searched, one page of each other column opened, and those pages decoded.
    """
    file = bs.open_file(path, decryption=decryption)
    walk = file.walk
    asked = walk.footer.schema.leaf(column)
    chunks = [walk.chunk(group, asked.index) for group in range(file.num_row_groups)]
    bitsets = [_bitset(walk, chunk) for chunk in chunks]
    found = [len(bs.read_table(path, where=[(column, "==", value)], decryption=decryption))]
    codec, scratch = pa.Codec("snappy"), Scratch()
    needle = len(value).to_bytes(_LENGTH_BYTES, "little") + value.encode()
    # Other row groups' filters may be wrong about it.
    group, (first, hit) = next(
        (group, place)
        for group in np.flatnonzero(file.maybe_present(column, [value])[:, 0]).tolist()
        if (place := _place_of(walk.pages(chunks[group]), codec, needle)) is not None
    )
    start, length = walk.extent(chunks[group])
    searched = list(walk.pages(chunks[group], scratch))
    selected, others = {asked.index: [hit]}, []
    for leaf in walk.footer.schema.leaves:
        if leaf.index != asked.index:
            pages = _at_row(list(walk.pages(walk.chunk(group, leaf.index))), first)
            selected[leaf.index] = pages
            others += pages
    mini = mini_file(walk, group, sorted(selected), selection=PageSelection(selected, hit.num_values))
    opened = memoryview(bytearray(max(page.size for page in searched + others)))
    bitset = memoryview(bytearray(max(size for _, size, _ in bitsets)))
    assert walk.source.fd is not None
    fd = walk.source.fd

    def run() -> int:
        for offset, size, open_into in bitsets:
            open_into(walk.source.read_into(scratch, offset, size), bitset)
        walk.source.read_into(scratch, start, length)
        for page in searched:
            page.open_into(opened[: page.size])
            codec.decompress(opened[: page.size], page.view.uncompressed_size, asbytes=True).rfind(needle)
        for page in others:
            os.pread(fd, page.length, page.offset)
            page.open_into(opened[: page.size])
        table = pq.ParquetFile(pa.BufferReader(pa.py_buffer(mini.view))).read(use_threads=False)
        rows: int = table.filter(pc.equal(table.column(column), value)).num_rows
        return rows

    assert [run()] == found
    return run


def ask_orc(path: Path, column: str) -> Callable[[], int]:
    """The bytes of a column's filters in an ORC file: its end read, as nobody knows without it where they are, and they
    read and inflated. Nothing is parsed, and no filter asked.
    """
    with bs.open_file(path) as file:
        tail, leaf = file.tail, file.schema.leaf(column)
        every = [one for stripe in file.stripes for one in file.index(stripe.index).streams]
        streams = [one for one in every if one.column == leaf.id and one.kind in FILTER_KINDS]
    size, scratch = path.stat().st_size, Scratch()
    end = min(_ORC_END, size)

    def run() -> int:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.pread(fd, end, size - end)
            for stream in streams:
                data = scratch.take(stream.length)
                assert os.preadv(fd, [data], stream.offset) == stream.length
                tail.inflate(data, MAX_ORC_INDEX_BYTES)
        finally:
            os.close(fd)
        return 0

    return run


def convert(source: Path, target: Path, piece: int, *, seal: bool) -> Callable[[], None]:
    """A file read, sealed or opened, and written a piece at a time, synced, and what was written read and opened again.

    Args:
        piece: bytes of plaintext in a module.
    """
    cipher, nonce = AESGCM(b"k" * 16), b"n" * 12
    sealed_piece = cipher.encrypt(nonce, bytes(piece), b"")
    window = bytearray(piece if seal else len(sealed_piece))
    out = bytearray(len(sealed_piece) if seal else piece)
    count = max(1, source.stat().st_size // len(window))

    def run() -> None:
        with source.open("rb", buffering=0) as given, target.open("w+b", buffering=0) as made:
            for _ in range(count):
                given.readinto(window)
                if seal:
                    cipher.encrypt_into(nonce, window, b"", out)
                else:
                    cipher.decrypt_into(nonce, sealed_piece, b"", out)
                made.write(out)
            os.fsync(made.fileno())
            made.seek(0)
            while made.readinto(out) == len(out):
                if seal:
                    cipher.decrypt_into(nonce, out, b"", window)

    return run


def _bitset(walk: Walk, chunk: Chunk) -> tuple[int, int, Callable[[memoryview, memoryview], object]]:
    """Where the filter's sealed bitset is, and what opens it."""
    found, cipher = walk.filter(chunk), walk.cipher(chunk)
    assert found is not None
    assert cipher is not None
    kind = ModuleType.BLOOM_FILTER_BITSET
    size = len(found.bitset) + cipher.overhead(kind)
    aad = walk.aad(chunk, kind)

    def open_into(framed: memoryview, out: memoryview) -> None:
        cipher.open_into(framed, kind, aad, out[: len(found.bitset)])

    return found.offset + found.length - size, size, open_into


def _place_of(pages: Iterable[Page], codec: pa.Codec, needle: bytes) -> tuple[int, Page] | None:
    """The first row of the page with the value, and that page, inflated."""
    first = 0
    for page in pages:
        page.inflated = codec.decompress(page.body(), page.view.uncompressed_size, asbytes=True)
        if needle in page.inflated:
            return first, page
        first += page.num_values
    return None


def _at_row(pages: Sequence[Page], row: int) -> list[Page]:
    """The dictionary page where there is one, and the page that holds this row."""
    first, found = 0, []
    for page in pages:
        if page.ordinal < 0 or first <= row < first + page.num_values:
            found.append(page)
        first += page.num_values
    return found
