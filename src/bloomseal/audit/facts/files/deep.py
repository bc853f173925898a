"""Reads whole files: no nonce may stand twice under one key, over all files; no filter in clear may lie in an encrypted
one.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from ....core.encryption import ModuleType, framed_length
from ....core.errors import BloomsealError
from ....core.limits import MAX_MODULE_BYTES
from ....core.parquet.footer import peek
from ....core.parquet.layout import read_tail
from ....core.parquet.walk import Chunk, Walk
from ....core.storage.source import Source
from ....format.verify import verify_walk
from .copies import copies
from .file import Broken, ChunkFacts, FileFacts, Seen
from .raw_scan import clear_filters, only_sealed

_NONCE = slice(4, 16)
_TYPE = np.dtype([("a", "<u8"), ("b", "<u4")])


@dataclass
class _Used:
    nonces: bytearray = field(default_factory=bytearray)
    starts: list[int] = field(default_factory=list)
    places: list[tuple[str, str]] = field(default_factory=list)


class Nonces:
    """All nonces seen so far, by data key.

    A copy of a file holds the same nonces under the same key and repeats nothing, so that files of one footer count
    once.

    Attributes:
        clear_levels: file and column of V2 pages whose levels are in clear.
        unseen: files in which some modules could not be told apart.
    """

    def __init__(self) -> None:
        self._used: dict[str, _Used] = {}
        self._footers: set[bytes] = set()
        self.clear_levels: set[tuple[str, str]] = set()
        self.unseen: list[str] = []

    def add(self, facts: FileFacts, walk: Walk | None, source: Source) -> None:
        """One file's modules."""
        if facts.algorithm is None:
            return
        # Where an encrypted footer or column metadata hides a filter's place, its bytes still show it.
        known = {chunk.filter_offset for chunk in facts.chunks if chunk.filter == Seen.CLEAR}
        facts.strays = tuple(found for found in clear_filters(source) if found[0] not in known)
        facts.all_sealed = bool(facts.strays) and only_sealed(source, facts.strays)
        footer = hashlib.sha256(read_tail(source).data).digest()
        if footer in self._footers:
            return
        self._footers.add(footer)
        self._footer(facts, source)
        if walk is None:
            self.unseen.append(facts.path)
            return
        for chunk in facts.chunks:
            if not chunk.protection:
                continue
            key = facts.keys[chunk.key].data_key
            if key is None:
                self.unseen.append(facts.path)
                continue
            place = (facts.path, facts.leaves[chunk.leaf][0])
            try:
                nonces = b"".join(self._chunk(facts, chunk, walk, source))
            except BloomsealError as error:
                facts.failed(error)
                self.unseen.append(facts.path)
                continue
            self._note(key, nonces, place)

    def repeated(self) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
        """Every nonce that stands twice under one key, once each: the file and column of the first and of the next."""
        for _, used in sorted(self._used.items()):
            nonces = np.frombuffer(bytes(used.nonces), dtype=_TYPE)
            order = np.argsort(nonces, order=("a", "b"), kind="stable")
            ordered = nonces[order]
            for index in np.flatnonzero(ordered[1:] == ordered[:-1]).tolist():
                if index and ordered[index] == ordered[index - 1]:
                    continue
                first, again = int(order[index]), int(order[index + 1])
                yield _place(used, first), _place(used, again)

    def _note(self, key: str, nonces: bytes, place: tuple[str, str]) -> None:
        used = self._used.setdefault(key, _Used())
        used.starts.append(len(used.nonces) // 12)
        used.places.append(place)
        used.nonces += nonces

    def _footer(self, facts: FileFacts, source: Source) -> None:
        key = facts.keys[1].data_key if len(facts.keys) > 1 else None
        if key is None:
            return
        self._note(key, peek(source).nonce, (facts.path, "footer"))

    def _chunk(self, facts: FileFacts, chunk: ChunkFacts, walk: Walk, source: Source) -> Iterator[bytes]:
        opened = walk.chunk(chunk.row_group, chunk.leaf)
        view = opened.view
        if view.encrypted_column_metadata is not None:
            yield view.encrypted_column_metadata[_NONCE]
        for state, offset in (
            (chunk.column_index, view.column_index_offset),
            (chunk.offset_index, view.offset_index_offset),
        ):
            if state == Seen.SEALED and offset is not None:
                yield bytes(source.read(offset, 16))[_NONCE]
        if chunk.filter == Seen.SEALED and chunk.filter_offset is not None:
            header = framed_length(bytes(source.read(chunk.filter_offset, 4)), ModuleType.BLOOM_FILTER_HEADER)
            yield bytes(source.read(chunk.filter_offset, 16))[_NONCE]
            yield bytes(source.read(chunk.filter_offset + header, 16))[_NONCE]
        try:
            pages = b"".join(self._pages(facts, opened, walk, source))
        except BloomsealError:
            self.unseen.append(facts.path)
            return
        if not chunk.pages_counted:
            chunk.modules += len(pages) // 12 - 2  # it was taken to have one page
            chunk.pages_counted = True
        yield pages

    def _pages(self, facts: FileFacts, chunk: Chunk, walk: Walk, source: Source) -> Iterator[bytes]:
        try:
            walk.cipher(chunk)
        except BloomsealError:
            yield from self._framed(chunk, walk, source)
            return
        for page in walk.pages(chunk):
            yield bytes(source.read(page.offset, 16))[_NONCE]
            if page.clear_levels:
                self.clear_levels.add((facts.path, chunk.leaf.name))
            if page.clear_levels < len(page.stored):
                yield bytes(page.stored[page.clear_levels : page.clear_levels + 16])[_NONCE]

    def _framed(self, chunk: Chunk, walk: Walk, source: Source) -> Iterator[bytes]:
        """Without the key: framing is in clear, so that modules can be followed by their lengths."""
        if chunk.view.meta_data is None:
            self.unseen.append(source.name)
            return
        start, length = walk.extent(replace(chunk, meta=chunk.view.meta_data))
        data = memoryview(source.read(start, length))
        position = 0
        while position < length:
            size = framed_length(data[position:], ModuleType.DATA_PAGE)
            if size > min(length - position, MAX_MODULE_BYTES):
                # A V2 page with clear levels: where its frame begins stands in its sealed header.
                self.unseen.append(source.name)
                return
            yield bytes(data[position : position + 16])[_NONCE]
            position += size


def _place(used: _Used, index: int) -> tuple[str, str]:
    return used.places[bisect_right(used.starts, index) - 1]


def prove(facts: FileFacts, walk: Walk) -> None:
    """Open every module that the keys at hand open, as `bloomseal.verify` does, and note those that don't authenticate,
    or break the specification; those of plaintext columns can only do the latter. Note copies of sealed columns, too.
    """
    facts.broken = tuple(
        Broken(error.row_group or 0, error.column, error.module, error.what) for error in verify_walk(walk).failures
    )
    for row_group in range(len(walk.footer.row_groups) if facts.algorithm is not None and facts.error is None else 0):
        for pair in copies(walk, row_group):
            facts.copies.setdefault(pair, []).append(row_group)
