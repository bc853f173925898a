"""Opening, verifying, sealing and signing a footer (Parquet encryption, section 5)."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cached_property, lru_cache

from ..encryption import FRAME_BYTES, SIGNATURE_BYTES, Algorithm, ModuleCipher, ModuleType, file_aad, framed_length
from ..encryption import module_aad as make_aad
from ..errors import FormatError, PolicyError, UnsupportedError, UsageError
from ..limits import MAX_KEY_METADATA_BYTES, MAX_ORDINAL
from ..thrift import Cursor, Struct
from ..thrift.structs import ColumnChunk, RowGroup, RowGroupHead, decode, decode_at, decode_element
from .layout import MAGIC, MAGIC_ENCRYPTED, FileMeta, Group, Tail
from .schema import Schema

__all__ = ["FileCrypto", "Footer", "parse_crypto", "seal_footer", "sign_footer"]

# Below this many column chunks a footer's decoded ones are all kept; above it only those of the last row group are.
_KEEP_CHUNKS = 20_000
# So many chunks of a row group are decoded one by one; who asks for more most likely wants all.
_SINGLE_CHUNKS = 4
# Files of one table have one schema: so many are remembered, to be taken apart once.
_REMEMBERED = 16
_SMALL_LISTS = 4096
_COLUMNS_FIRST = b"\x19"
"""Header of the list that every writer puts first into a row group, RowGroup.columns."""


@dataclass(frozen=True, slots=True)
class FileCrypto:
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


def parse_crypto(
    algorithm: Struct, key_metadata: bytes | None, supplied: bytes | None, *, plaintext_footer: bool, keyless: bool
) -> FileCrypto:
    """Read an EncryptionAlgorithm and settle the AAD prefix.

    Args:
        supplied: the prefix that the caller expects.
        keyless: only looking: a prefix that is neither stored nor supplied is no error.

    Raises:
        UnsupportedError: an unknown algorithm, or a file without aad_file_unique.
        PolicyError: the prefix is missing, different, or supplied to a file that knows of none.
    """
    if 1 in algorithm:
        kind, inner = Algorithm.AES_GCM_V1, algorithm.struct(1)
    elif 2 in algorithm:
        kind, inner = Algorithm.AES_GCM_CTR_V1, algorithm.struct(2)
    else:
        raise UnsupportedError("an encryption algorithm that is neither AES_GCM_V1 nor AES_GCM_CTR_V1")
    if inner is None:
        raise FormatError("an empty EncryptionAlgorithm")
    stored, unique, wanted = inner.binary(1), inner.binary(2), bool(inner.boolean(3))
    if unique is None:
        raise UnsupportedError(
            "the file has no aad_file_unique, so its modules are not bound to it (DuckDB writes such files)",
            hint="write it again with an implementation that uses AADs",
        )
    if key_metadata is not None and len(key_metadata) > MAX_KEY_METADATA_BYTES:
        raise FormatError(f"footer key metadata of {len(key_metadata)} bytes")
    if supplied is not None and not stored and not wanted:
        # Concatenating it would only ever fail to authenticate; saying so tells a moved file from a damaged one.
        raise PolicyError("an AAD prefix was supplied, but the file was written without one", hint="aad_prefix=None")
    if supplied is not None and stored and supplied != stored:
        raise PolicyError("the AAD prefix stored in the file is not the expected one: a file from another place?")
    if wanted and not stored and supplied is None and not keyless:
        raise PolicyError("the file was written with an AAD prefix that it does not store", hint="aad_prefix=")
    return FileCrypto(
        kind, supplied or stored or b"", unique, bool(stored), plaintext_footer, key_metadata if key_metadata else b""
    )


class Footer:
    """An opened footer: the raw FileMetaData and what is read from it, lazily.

    Attributes:
        raw: the serialised FileMetaData (zero padding may follow it).
        offset: where the footer begins in the file.
        crypto: None for a plaintext file.
        verified: opened with the footer key, or its signature checked; True for a plaintext file, which promises nothing.
    """

    def __init__(self, raw: bytes, offset: int, crypto: FileCrypto | None, verified: bool) -> None:
        self.raw = raw
        self.offset = offset
        self.crypto = crypto
        self.verified = verified
        self._groups: list[RowGroupHead] = []
        self.struct = Struct.parse(
            raw, remember=FileMeta.ROW_GROUPS, each=lambda cursor: self._groups.append(decode_at(RowGroupHead, cursor))
        )
        self.row_groups = self.struct.elements(FileMeta.ROW_GROUPS)
        limit = MAX_ORDINAL + 1
        if len(self.row_groups) > limit:
            raise FormatError(f"{len(self.row_groups)} row groups; the limit is {limit}")
        self._decoded: dict[int, dict[int, ColumnChunk]] = {}
        self._split: tuple[int, list[bytes]] = -1, []
        self._lock = threading.Lock()

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
    def type_ordered(self) -> list[bool]:
        """For each leaf: does ColumnOrder say TYPE_ORDER, so that min_value and max_value have a meaning?"""
        known = _type_ordered(self.struct.fields.get(FileMeta.COLUMN_ORDERS))
        return known if len(known) == len(self.schema.leaves) else [False] * len(self.schema.leaves)

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
            FormatError: broken Thrift, another number of columns than the schema has, or as `row_group`.
        """
        self.row_group(row_group)
        with self._lock:
            if row_group not in self._decoded and len(self.row_groups) * len(self.schema.leaves) > _KEEP_CHUNKS:
                self._decoded.clear()
            chunks = self._decoded.setdefault(row_group, {})
            if column not in chunks:
                chunks.update(self._decode(row_group, column, every=len(chunks) >= _SINGLE_CHUNKS))
            return chunks[column]

    def chunk_raw(self, row_group: int, column: int) -> bytes:
        """The raw ColumnChunk."""
        with self._lock:
            if self._split[0] != row_group:
                group = Struct.parse(self.row_groups[row_group], remember=Group.COLUMNS)
                self._split = row_group, group.elements(Group.COLUMNS)
            chunks = self._split[1]
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
def _type_ordered(field: tuple[int, bytes] | None) -> list[bool]:
    return [1 in Struct.parse(order) for order in _elements(field)]


def _elements(field: tuple[int, bytes] | None) -> list[bytes]:
    struct = Struct()
    if field is not None:
        struct.fields[0] = field
    return struct.elements(0)


def split_encrypted(tail: Tail) -> tuple[Struct, bytes]:
    """FileCryptoMetaData and the framed footer of a PARE file."""
    cursor = Cursor(tail.data)
    crypto = Struct.read(cursor)
    framed = tail.data[cursor.position :]
    if framed_length(framed, ModuleType.FOOTER) != len(framed) or len(framed) < FRAME_BYTES:
        raise FormatError("the footer's length prefix does not fit", module=ModuleType.FOOTER.label)
    return crypto, framed


def split_signed(tail: Tail) -> tuple[bytes, bytes]:
    """FileMetaData and signature of a plaintext footer with an encryption algorithm."""
    if len(tail.data) <= SIGNATURE_BYTES:
        raise FormatError("the footer is too short for its signature", module=ModuleType.FOOTER.label)
    return tail.data[:-SIGNATURE_BYTES], tail.data[-SIGNATURE_BYTES:]


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
