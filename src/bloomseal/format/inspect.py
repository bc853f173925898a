"""Inspect: what a reader sees of a file, without any key or with those at hand, and what it can't."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from ..core.decryption import DecryptionSpec
from ..core.errors import BloomsealError, KeyAccessError
from ..core.keys.material import KeyMetadata
from ..core.parquet.expectation import NO_EXPECTATION
from ..core.parquet.footer import FooterKind, peek
from ..core.parquet.keys_at_hand import KeysAtHand
from ..core.parquet.layout import Column, FileMeta, Meta
from ..core.parquet.walk import Chunk, Protection, Walk
from ..core.storage.source import Source
from ..core.thrift import Cursor, Struct
from ..core.thrift.structs import BloomFilterHeader, KeyValue, decode, decode_at
from ..notebook import ShownInNotebooks
from .opening import open_footer

_EXPOSED = {
    Meta.KEY_VALUE: "key-value metadata",
    Meta.STATISTICS: "min/max statistics",
    Meta.ENCODING_STATS: "page encoding counts",
    Meta.BLOOM_OFFSET: "Bloom filter offset",
    Meta.BLOOM_LENGTH: "Bloom filter length",
    Meta.SIZE_STATISTICS: "size statistics",
    Meta.GEOSPATIAL: "geospatial statistics",
}
_HEADER_BYTES = 64
_FOOTERS = {
    FooterKind.PLAINTEXT: "plaintext",
    FooterKind.SIGNED: "plaintext, signed",
    FooterKind.ENCRYPTED: "encrypted",
}


@dataclass
class ColumnFacts:
    """The facts of one column, as far as they are seen.

    Attributes:
        column: dotted path.
        type: physical and logical type.
        protection: ``plaintext``, ``footer key`` or ``column key``; in ORC also ``masked``, without an encrypted form.
        key: what its key metadata says, never a wrapped key.
        filter: ``none``, ``in clear``, ``sealed``, or ``not visible`` where its metadata is sealed under another key.
        exposed: fields about the values of an encrypted column that stand in clear.
    """

    column: str
    type: str
    protection: str
    key: str | None
    filter: str
    exposed: list[str] = field(default_factory=list)


@dataclass
class Inspection(ShownInNotebooks):
    """The facts of one file, as far as they are seen; None stands for those that take the footer key.

    Attributes:
        path, size: the file and its bytes.
        footer: ``plaintext``, ``plaintext, signed`` or ``encrypted``.
        algorithm: None for a plaintext file.
        aad_prefix: ``none``, ``stored: …`` or ``to be supplied``.
        footer_key: what the footer's key metadata says.
        created_by, num_rows, num_row_groups, key_value_keys: from a readable footer.
        columns: from a readable footer.
        hidden: what can't be seen, in words.
        refused: why the keys at hand, or what is expected of the file, did not open it; None where they did, or there
            are none. The facts are then those that anybody sees.
        file_format: ``Parquet`` or ``ORC``.
    """

    path: str
    size: int
    footer: str
    algorithm: str | None = None
    aad_prefix: str | None = None
    footer_key: str | None = None
    created_by: str | None = None
    num_rows: int | None = None
    num_row_groups: int | None = None
    key_value_keys: list[str] | None = None
    columns: list[ColumnFacts] | None = None
    hidden: list[str] = field(default_factory=list)
    file_format: str = "Parquet"
    refused: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def inspect_parquet(source: Source, decryption: DecryptionSpec | None = None) -> Inspection:
    """Look at a file. Opens its footer and its columns' metadata where keys are given; no page, and no filter.

    Raises:
        FormatError: not a Parquet file, or a broken footer.
    """
    try:
        return _inspect(source, decryption)
    except BloomsealError as error:
        raise error.at(file=source.name) from error.__cause__


def _inspect(source: Source, decryption: DecryptionSpec | None) -> Inspection:
    ends = peek(source)
    seen = Inspection(source.name, source.size, _FOOTERS[ends.kind])
    if ends.kind is not FooterKind.PLAINTEXT:
        crypto = ends.crypto(NO_EXPECTATION)[0]
        seen.algorithm = str(crypto.algorithm)
        seen.footer_key = describe_key(crypto.footer_key_metadata)
        if crypto.prefix_stored:
            seen.aad_prefix = f"stored: {crypto.aad_prefix.decode(errors='backslashreplace')}"
        else:
            seen.aad_prefix = "to be supplied" if ends.inner()[1].boolean(3) else "none"
    if decryption is not None:
        try:
            footer, keys = open_footer(source, decryption)
            _look_at_footer(Walk(source, footer, keys), seen)
            return seen
        except BloomsealError as error:
            seen.refused = error.what
    if ends.kind is FooterKind.ENCRYPTED:
        seen.hidden = ["schema, row counts, columns, filters, statistics: all inside the encrypted footer"]
    else:
        footer = open_footer(source, None, keyless=True)[0]
        _look_at_footer(Walk(source, footer, KeysAtHand(footer.crypto, None)), seen)
    return seen


def _look_at_footer(walk: Walk, seen: Inspection) -> None:
    footer = walk.footer
    seen.created_by = footer.created_by
    seen.num_rows = footer.num_rows
    seen.num_row_groups = len(footer.row_groups)
    pairs = (decode(KeyValue, raw) for raw in footer.struct.elements(FileMeta.KEY_VALUE))
    seen.key_value_keys = [(pair.key or b"").decode(errors="replace") for pair in pairs]
    seen.columns = [_look_at_column(walk, index) for index in range(len(footer.schema.leaves))]
    if any(facts.filter == "not visible" for facts in seen.columns):
        seen.hidden.append("filters, statistics and positions of columns whose metadata is sealed")


def _look_at_column(walk: Walk, index: int) -> ColumnFacts:
    leaf = walk.footer.schema.leaves[index]
    chunks = [walk.chunk(group, index) for group in range(len(walk.footer.row_groups))]
    facts = ColumnFacts(leaf.name, str(leaf.type), str(Protection.PLAINTEXT), None, "none")
    if chunks:
        facts.protection = str(chunks[0].protection)
        if chunks[0].protection is Protection.COLUMN_KEY:
            facts.key = describe_key(chunks[0].key_metadata)
    states = {_filter_state(walk, chunk) for chunk in chunks}
    facts.filter = " and ".join(sorted(states - {"none"})) or "none"
    exposed: dict[str, None] = {}
    for chunk in chunks:
        exposed.update(dict.fromkeys(_exposed(walk, chunk)))
    facts.exposed = list(exposed)
    return facts


def _exposed(walk: Walk, chunk: Chunk) -> Iterator[str]:
    crypto = walk.footer.crypto
    if not chunk.encrypted or crypto is None or not crypto.plaintext_footer:
        return
    clear = Struct.parse(walk.footer.chunk_raw(chunk.row_group, chunk.leaf.index)).struct(Column.META)
    for number, name in _EXPOSED.items():
        if clear is not None and number in clear:
            yield name


def _filter_state(walk: Walk, chunk: Chunk) -> str:
    """The state of a filter whose place can be seen; nothing is opened but the metadata that tell the place."""
    meta = chunk.view.meta_data
    if chunk.view.encrypted_column_metadata is not None:
        try:
            meta = walk.meta(chunk)
        except BloomsealError:
            return "not visible"
    if meta is None or meta.bloom_filter_offset is None:
        return "none"
    try:
        room = min(_HEADER_BYTES, walk.source.size - meta.bloom_filter_offset)
        header = decode_at(BloomFilterHeader, Cursor(bytes(walk.source.read(meta.bloom_filter_offset, room))))
    except BloomsealError:
        return "sealed"
    return "in clear" if header.num_bytes and header.algorithm and header.hash else "sealed"


def describe_key(key_metadata: bytes) -> str | None:
    """Key metadata in words: the master key of key tools, an id as text, or its length. Wrapped keys are left out."""
    if not key_metadata:
        return None
    try:
        metadata = KeyMetadata.from_bytes(key_metadata)
    except KeyAccessError:
        text = key_metadata.decode(errors="replace")
        return f"id {text}" if text.isprintable() and len(text) <= 100 else f"{len(key_metadata)} opaque bytes"
    if metadata.material is None:
        return f"external material, reference {metadata.reference}"
    wrapping = "double" if metadata.material.double_wrapping else "single"
    return f"master key {metadata.material.master_key}, {wrapping} wrapping"
