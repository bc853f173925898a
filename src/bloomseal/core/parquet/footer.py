"""Opening, verifying, sealing and signing a footer (Parquet encryption, section 5)."""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from ..cached import cached_property
from ..encryption import (
    FRAME_BYTES,
    NONCE_BYTES,
    SIGNATURE_BYTES,
    Algorithm,
    ModuleCipher,
    ModuleType,
    file_aad,
    framed_length,
)
from ..encryption import module_aad as make_aad
from ..errors import FormatError, UnsupportedError, UsageError
from ..limits import MAX_KEY_METADATA_BYTES, MAX_ORDINAL
from ..storage.source import Source
from ..thrift import Cursor, Struct
from ..thrift.compact import SeenLists
from ..thrift.structs import ColumnChunk, RowGroup, RowGroupHead, decode, decode_at, decode_element
from ..writers import Claim, application_and_version, known_wrong
from .expectation import Expectation
from .layout import MAGIC, MAGIC_ENCRYPTED, FileMeta, Group, Tail, read_tail
from .schema import Schema

# Below this many column chunks a footer's decoded ones are all kept; above it only those of the last row group are.
_KEEP_CHUNKS = 20_000
# So many chunks of a row group are decoded one by one; who asks for more most likely wants all.
_SINGLE_CHUNKS = 4
# Of so few columns, the second one that is asked for brings all; the first one does in files of few row groups. Many of
# those are mostly ruled out by one column, and all would take twice the time and five times the memory.
_NARROW = 8
_FEW_GROUPS = 16
# Files of one table have one schema: so many are remembered, to be taken apart once.
_REMEMBERED = 16
_SMALL_LISTS = 4096
_SEEN = SeenLists()
"""Schemas, key-value metadata and column orders, which the files of one table have in common."""
_BY_TYPE, _IEEE_754 = [1], [2]
"""ColumnOrder."""
_COLUMNS_FIRST = b"\x19"
"""Header of the list that every writer puts first into a row group, RowGroup.columns."""


class FileCrypto(NamedTuple):
    """A file's EncryptionAlgorithm and footer key metadata.

    Attributes:
        algorithm: how pages are sealed.
        aad_prefix: the prefix in force, stored or supplied; empty where there is none.
        aad_unique: aad_file_unique.
        prefix_stored: the prefix stands in the file.
        plaintext_footer: the footer is in clear and signed.
        footer_key_metadata: what leads to the footer key; may be empty.
    """

    algorithm: Algorithm
    aad_prefix: bytes
    aad_unique: bytes
    prefix_stored: bool
    plaintext_footer: bool
    footer_key_metadata: bytes

    @property
    def file_aad(self) -> bytes:
        return file_aad(self.aad_prefix, self.aad_unique)

    def algorithm_struct(self) -> Struct:
        """EncryptionAlgorithm (section 5.1)."""
        inner = Struct()
        if self.aad_prefix and self.prefix_stored:
            inner.set_binary(1, self.aad_prefix)
        inner.set_binary(2, self.aad_unique)
        if self.aad_prefix and not self.prefix_stored:
            inner.set_boolean(3, True)
        union = Struct()
        union.set_struct(1 if self.algorithm is Algorithm.AES_GCM_V1 else 2, inner)
        return union


class FooterKind(StrEnum):
    """The kinds of footers (Parquet encryption, section 5)."""

    PLAINTEXT = "plaintext"
    SIGNED = "signed"
    ENCRYPTED = "encrypted"


class Peek(NamedTuple):
    """A footer before any key is asked for: all of it is the word of whoever wrote the bytes.

    Attributes:
        kind: what the magic, and the presence of an EncryptionAlgorithm, say.
        tail: the bytes from where the footer begins.
        algorithm: the raw EncryptionAlgorithm; None for a plaintext file.
        key_metadata: leads to the footer key; may be empty.
        clear: the serialised FileMetaData; empty under an encrypted footer.
        sealed: the framed footer module, or the signature; empty for a plaintext file.
    """

    kind: FooterKind
    tail: Tail
    algorithm: Struct | None = None
    key_metadata: bytes = b""
    clear: bytes = b""
    sealed: bytes = b""

    @property
    def offset(self) -> int:
        """Where the footer begins."""
        return self.tail.offset

    @property
    def nonce(self) -> bytes:
        """That of the footer module or of the signature."""
        start = 4 if self.kind is FooterKind.ENCRYPTED else 0
        return self.sealed[start : start + NONCE_BYTES]

    def inner(self) -> tuple[Algorithm, Struct]:
        """The algorithm and its AesGcmV1 or AesGcmCtrV1.

        Raises:
            UnsupportedError: another algorithm.
        """
        assert self.algorithm is not None  # noqa: S101
        for number, algorithm in ((1, Algorithm.AES_GCM_V1), (2, Algorithm.AES_GCM_CTR_V1)):
            if (inner := self.algorithm.struct(number)) is not None:
                return algorithm, inner
        raise UnsupportedError("an encryption algorithm that is neither AES_GCM_V1 nor AES_GCM_CTR_V1")

    def crypto(self, expectation: Expectation) -> list[FileCrypto]:
        """The file's encryption, once for every AAD prefix that it may have been written with.

        Raises:
            UnsupportedError: an unknown algorithm, or a file without aad_file_unique.
            PolicyError: algorithm or prefix are not the expected ones.
        """
        algorithm, inner = self.inner()
        expectation.algorithm(algorithm)
        stored, unique, wanted = inner.binary(1), inner.binary(2), bool(inner.boolean(3))
        if unique is None:
            raise UnsupportedError(
                "the file has no aad_file_unique, so its modules are not bound to it (DuckDB writes such files)",
                hint="write it again with an implementation that uses AADs",
            )
        signed = self.kind is FooterKind.SIGNED
        return [
            FileCrypto(algorithm, prefix, unique, bool(stored), signed, self.key_metadata)
            for prefix in expectation.prefix(stored, wanted, unique)
        ]


def peek(source: Source) -> Peek:
    """Look at a file's end, without a key.

    Raises:
        FormatError: not a Parquet file, or a broken footer.
    """
    tail = read_tail(source)
    if tail.encrypted:
        cursor = Cursor(tail.data)
        head = Struct.read(cursor)
        framed = tail.data[cursor.position :]
        if framed_length(framed, ModuleType.FOOTER) != len(framed) or len(framed) < FRAME_BYTES:
            raise FormatError("the footer's length prefix does not fit", module=ModuleType.FOOTER.label)
        metadata = _bounded(head.binary(2))
        return Peek(FooterKind.ENCRYPTED, tail, head.struct(1) or Struct(), metadata, sealed=framed)
    plain = Struct.parse(tail.data, remember=FileMeta.ROW_GROUPS)
    algorithm = plain.struct(FileMeta.ALGORITHM)
    if algorithm is None:
        return Peek(FooterKind.PLAINTEXT, tail, clear=tail.data)
    if len(tail.data) <= SIGNATURE_BYTES:
        raise FormatError("the footer is too short for its signature", module=ModuleType.FOOTER.label)
    metadata = _bounded(plain.binary(FileMeta.SIGNING_KEY))
    clear, signature = tail.data[:-SIGNATURE_BYTES], tail.data[-SIGNATURE_BYTES:]
    return Peek(FooterKind.SIGNED, tail, algorithm, metadata, clear, signature)


def _bounded(key_metadata: bytes | None) -> bytes:
    if key_metadata is not None and len(key_metadata) > MAX_KEY_METADATA_BYTES:
        raise FormatError(f"footer key metadata of {len(key_metadata)} bytes")
    return key_metadata or b""


class Footer:
    """An opened footer: the raw FileMetaData and what is read from it, lazily.

    Attributes:
        raw: the serialised FileMetaData (zero padding may follow it).
        offset: where the footer begins in the file.
        crypto: None for a plaintext file.
        verified: opened with the footer key, or its signature checked; True for a plaintext file, which promises
            nothing.
    """

    def __init__(self, raw: bytes, offset: int, crypto: FileCrypto | None, verified: bool) -> None:
        self.raw = raw
        self.offset = offset
        self.crypto = crypto
        self.verified = verified
        self._groups: list[RowGroupHead] = []
        self.struct = Struct.parse(
            raw,
            remember=FileMeta.ROW_GROUPS,
            each=lambda cursor: self._groups.append(decode_at(RowGroupHead, cursor)),
            alike=_SEEN,
        )
        self.row_groups = self.struct.elements(FileMeta.ROW_GROUPS)
        limit = MAX_ORDINAL + 1
        if len(self.row_groups) > limit:
            raise FormatError(f"{len(self.row_groups)} row groups; the limit is {limit}")
        self._decoded: dict[int, dict[int, ColumnChunk]] = {}
        self._split: tuple[int, list[bytes]] = -1, []

    @cached_property
    def schema(self) -> Schema:
        return _schema(self.struct.fields.get(FileMeta.SCHEMA))

    @property
    def num_rows(self) -> int:
        return self.struct.integer(FileMeta.NUM_ROWS) or 0

    @property
    def created_by(self) -> str:
        return (self.struct.binary(FileMeta.CREATED_BY) or b"").decode(errors="replace")

    @cached_property
    def counts_nulls(self) -> bool:
        """Whether its writer's numbers of nulls mean something. Never where nobody has authenticated who that was."""
        return self.verified and not self.wrong(Claim.PARQUET_NULL_COUNTS)

    def wrong(self, claim: Claim) -> bool:
        """Whether its writer is known to be wrong about this."""
        return claim in self._wrong

    @cached_property
    def _wrong(self) -> frozenset[Claim]:
        writer = application_and_version(self.created_by)
        return frozenset(claim for claim in Claim if known_wrong(claim, *writer) is not None)

    @cached_property
    def ordered(self) -> list[bool]:
        """For each leaf: have min_value and max_value an order that is known (parquet.thrift, ColumnOrder)?

        Of floats that is IEEE_754_TOTAL_ORDER, whose bounds leave NaN out: under TYPE_ORDER writers differ about NaN
        and zeros. Never where nobody has authenticated the schema: the logical type says how bounds compare.
        """
        orders = _orders(self.struct.fields.get(FileMeta.COLUMN_ORDERS)) if self.verified else []
        leaves = self.schema.leaves
        if len(orders) != len(leaves):
            return [False] * len(leaves)
        return [
            order == (_IEEE_754 if leaf.type.floating else _BY_TYPE) for order, leaf in zip(orders, leaves, strict=True)
        ]

    def row_group(self, index: int) -> RowGroupHead:
        """A row group, without its column chunks.

        Raises:
            UsageError: there is no such row group.
            FormatError: an ordinal out of order, or a negative number of rows.
        """
        if not 0 <= index < len(self.row_groups):
            raise UsageError(f"no such row group; the file has {len(self.row_groups)}", row_group=index)
        group = self._groups[index]
        if group.ordinal is not None and group.ordinal != index:
            # Modules are bound to ordinals; a row group that claims another one's place is a moved one.
            raise FormatError(f"the row group's ordinal says {group.ordinal}", row_group=index)
        if (group.num_rows or 0) < 0:
            raise FormatError("a negative number of rows", row_group=index)
        return group

    def chunk(self, row_group: int, column: int) -> ColumnChunk:
        """A decoded ColumnChunk.

        Raises:
            UsageError: there is no such row group.
            FormatError: broken Thrift, another number of columns than the schema has, or none of that number; or as
                `row_group`.
        """
        # No lock: threads that ask at once may both decode.
        if (known := self._decoded.get(row_group)) is not None and (chunk := known.get(column)) is not None:
            return chunk
        self.row_group(row_group)
        leaves = len(self.schema.leaves)
        if not 0 <= column < leaves:
            raise FormatError(f"no column {column} in a schema of {leaves} columns", row_group=row_group)
        if known is None and len(self.row_groups) * leaves > _KEEP_CHUNKS:
            self._decoded.clear()
        chunks = self._decoded.setdefault(row_group, {})
        single = _SINGLE_CHUNKS if leaves > _NARROW else 0 if len(self.row_groups) <= _FEW_GROUPS else 1
        decoded = self._decode(row_group, column, every=len(chunks) >= single)
        chunks.update(decoded)
        return decoded[column]

    def chunk_raw(self, row_group: int, column: int) -> bytes:
        """The raw ColumnChunk."""
        split, chunks = self._split
        if split != row_group:
            group = Struct.parse(self.row_groups[row_group], remember=Group.COLUMNS)
            chunks = group.elements(Group.COLUMNS)
            self._split = row_group, chunks
        if column >= len(chunks):
            raise FormatError("fewer column chunks than the schema has columns", row_group=row_group)
        return chunks[column]

    def _decode(self, row_group: int, column: int, *, every: bool) -> dict[int, ColumnChunk]:
        raw, leaves = self.row_groups[row_group], len(self.schema.leaves)
        if not every and raw[:1] == _COLUMNS_FIRST and Cursor(raw, 1).list_header()[1] == leaves:
            return {column: decode_element(ColumnChunk, raw, 1, column)}
        chunks = decode(RowGroup, raw, container_limit=max(leaves, _SMALL_LISTS)).columns or []
        if len(chunks) != leaves:
            raise FormatError(f"{len(chunks)} column chunks for the schema's {leaves} columns", row_group=row_group)
        return dict(enumerate(chunks))


@lru_cache(maxsize=_REMEMBERED)
def _schema(field: tuple[int, bytes] | None) -> Schema:
    return Schema(_elements(field))


@lru_cache(maxsize=_REMEMBERED)
def _orders(field: tuple[int, bytes] | None) -> list[list[int]]:
    """The members of each ColumnOrder, of which there should be one."""
    return [list(Struct.parse(order).fields) for order in _elements(field)]


def _elements(field: tuple[int, bytes] | None) -> list[bytes]:
    struct = Struct()
    if field is not None:
        struct.fields[0] = field
    return struct.elements(0)


def seal_footer(metadata: bytes, crypto: FileCrypto, cipher: ModuleCipher) -> bytes:
    """Everything from FileCryptoMetaData to the final PARE (section 5.1)."""
    head = Struct()
    head.set_struct(1, crypto.algorithm_struct())
    if crypto.footer_key_metadata:
        head.set_binary(2, crypto.footer_key_metadata)
    aad = make_aad(crypto.file_aad, ModuleType.FOOTER)
    body = head.to_bytes() + bytes(cipher.seal(metadata, ModuleType.FOOTER, aad))
    return body + len(body).to_bytes(4, "little") + MAGIC_ENCRYPTED


def sign_footer(metadata: bytes, crypto: FileCrypto, cipher: ModuleCipher) -> bytes:
    """FileMetaData, signature, length and PAR1 (section 5.2); the metadata must hold the algorithm already."""
    body = metadata + cipher.sign(metadata, make_aad(crypto.file_aad, ModuleType.FOOTER))
    return body + len(body).to_bytes(4, "little") + MAGIC


def plain_footer(metadata: bytes) -> bytes:
    """FileMetaData, length and PAR1."""
    return metadata + len(metadata).to_bytes(4, "little") + MAGIC
