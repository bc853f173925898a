"""What a compaction knows of a file before it touches one: whether all of it opens, and which others it agrees with."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from ..core.errors import BloomsealError, Hint, UsageError
from ..core.parquet.keys_at_hand import need_verified
from ..core.parquet.schema import Leaf, Schema
from ..core.sbbf import LogicalType, PhysicalType
from ..core.storage.ref import FileRef
from ..format.pages.inflate import codec_to_write
from ..policy import TablePolicy
from ..read.file import SealedFile
from ..read.open import open_file
from ..read.parquet import ParquetFile
from ..specs import EncryptionSpec
from ..storage.discovery.kinds import FoundFile
from ..storage.discovery.tables import refuse_part_of_table
from ..write.encode import Encoder
from .files import ChangedError, DataFile, mark_of
from .jobs import Rekey
from .settings import Decryption, Encryption

RECORD: Final = b"bloomseal.replaces"
"""Where a new file names those that it replaces, in its key-value metadata."""
TOKEN: Final = re.compile(r"-[0-9a-f]{16}$")
"""Of a new file's name, before its ending."""
_APART: Final = {RECORD, b"pandas", b"ARROW:schema"}
"""What differs from file to file and says nothing of what the rows mean."""


@dataclass(frozen=True)
class Kind:
    """What a new file is made with.

    Attributes:
        schema: of its rows, with their key-value metadata.
        leaves: of the schema that pyarrow writes for them.
        sealing: what seals them.
        options: for pyarrow's writer.
    """

    schema: pa.Schema
    leaves: Schema
    sealing: Encryption
    options: dict[str, Any]


@dataclass
class Candidate:
    """A file that may become part of another one.

    Attributes:
        mark: what differs once another file stands in its place.
        identity: as `SealedFile.identity`.
        why: it stays as it is, whatever its size.
        alike: equal for files that may become one.
        data, decoded: bytes of its pages, compressed and not.
        filters, sealed: its columns that have filters, and that are encrypted.
        replaces: name → identity of the files whose rows it holds.
    """

    found: FoundFile
    mark: tuple[int, ...] | None
    size: int
    rows: int
    identity: bytes
    why: str | None = None
    alike: Hashable = None
    data: int = 0
    decoded: int = 0
    filters: set[str] = field(default_factory=set)
    sealed: set[str] = field(default_factory=set)
    replaces: dict[str, bytes] = field(default_factory=dict)

    @property
    def ref(self) -> FileRef:
        return self.found.ref

    @property
    def folder(self) -> str:
        return posixpath.dirname(self.ref.path)

    @property
    def name(self) -> str:
        return posixpath.basename(self.ref.path)


class Kinds:
    """The kinds of files that a table has.

    Args:
        given: what seals the new files; a `DecryptionSpec`: the master keys of the old ones.

    Attributes:
        known: `Candidate.alike` → the kind; or why there can be no such file.
    """

    def __init__(self, given: Encryption | Decryption | None) -> None:
        self._given = given
        self.known: dict[Hashable, Kind | str] = {}

    def look(self, found: FoundFile, file: SealedFile) -> Candidate:
        """One file, which is open.

        Raises:
            BloomsealError: a column can't be opened; the file is another one by now.
        """
        one = Candidate(found, mark_of(found.ref), file.source.size, file.num_rows, file.identity)
        if not isinstance(file, ParquetFile):
            one.why = "ORC: the engine that writes such files merges them"
        elif found.ref.filesystem is None and Path(found.ref.path).is_symlink():
            one.why = "a link, which would lead nowhere"
        elif self._given is None or not file.encrypted:
            one.why = "in plaintext, where nothing tells a file from others: seal it first"
        elif file.source.identity not in (None, one.mark):
            raise ChangedError("the file was changed by someone else meanwhile", file=file.path)
        else:
            self._open(file, one)
        return one

    def _open(self, file: ParquetFile, one: Candidate) -> None:
        walk = file.walk
        need_verified(walk.footer, file.source, "the new file")
        for group in range(file.num_row_groups):
            for chunk in walk.chunks(group):
                walk.cipher(chunk)
                meta = walk.meta(chunk)
                one.data += meta.total_compressed_size or 0
                one.decoded += meta.total_uncompressed_size or 0
                if chunk.encrypted:
                    one.sealed.add(chunk.leaf.name)
                if meta.bloom_filter_offset is not None:
                    one.filters.add(chunk.leaf.name)
        one.replaces = _record(file)
        if not one.rows:
            one.why = "without rows"
            return
        if isinstance(self._given, TablePolicy | EncryptionSpec):
            sealing, settings = self._given, None
        else:
            assert self._given is not None  # noqa: S101
            try:
                sealing = Rekey(self._given).sealing(walk, self._given)
            except UsageError as error:
                error.hint = Hint.ENCRYPTION  # explicit keys, which nothing can make anew
                raise error.at(file=file.path) from None
            settings = repr((sealing.footer_key, sealing.column_keys, sealing.key_bits, sealing.aad_prefix, sealing))
        schema = file.arrow_schema().remove_metadata()
        told = {name: value for name, value in file.metadata.items() if name not in _APART}
        types = file.leaves.raw, schema.serialize().to_pybytes()
        one.alike = one.folder, *types, frozenset(told.items()), settings
        if one.alike not in self.known:
            self.known[one.alike] = _kind(file, schema.with_metadata(told), sealing)
        if isinstance(kind := self.known[one.alike], str):
            one.why = kind


def _record(file: ParquetFile) -> dict[str, bytes]:
    """The files that this one replaces. The footer was authenticated; and it is that of the compaction, since the file
    has its identity still. Whatever writes it anew, perhaps without some rows, gives it another.
    """
    try:
        told = json.loads(file.metadata[RECORD])
        own = told["file"] == file.identity.hex()
        return {str(name): bytes.fromhex(one) for name, one in told["files"].items() if own}
    except (KeyError, ValueError, TypeError, AttributeError):
        return {}


def need_no_log(refs: Iterable[FileRef]) -> None:
    """Refuse files that were named one by one, and that a table's log names, too: it would not know of the new ones.

    Raises:
        UsageError: there is a log.
    """
    for folder, ref in {posixpath.dirname(ref.path): ref for ref in refs if ref.root is None}.items():
        refuse_part_of_table(replace(ref, path=folder), inside=True)


def need_compacted(files: Sequence[DataFile], decryption: Decryption | None) -> None:
    """Refuse a folder in which a compaction was killed before it had removed the old files. Once either they or the new
    file have another identity, nobody can tell any more that their rows are there twice.

    Raises:
        UsageError: an old file is still there.
    """
    there = {file.ref.path: file.ref for file in files if file.outside is None and file.unseen is None}
    unfinished: list[str] = []
    for path, ref in there.items() if decryption is not None else ():
        if TOKEN.search(path.removesuffix(".parquet")) is None:
            continue
        try:
            with open_file(ref, decryption=decryption) as new:
                held = _record(new) if isinstance(new, ParquetFile) else {}
            for name, identity in held.items():
                if (old := there.get(f"{posixpath.dirname(path)}/{name}")) is None:
                    continue
                with open_file(old, decryption=decryption) as file:
                    still = file.identity == identity
                if still:
                    unfinished.append(old.path)
        except BloomsealError:
            continue  # a file that does not open is not changed either
    if unfinished:
        raise UsageError(
            "a compaction was killed before it had removed this file",
            file=unfinished[0],
            hint="bloomseal compact ends it; then this again",
        )


def _kind(file: ParquetFile, schema: pa.Schema, sealing: Encryption) -> Kind | str:
    leaves, walk = file.leaves.leaves, file.walk
    physical = {leaf.type.physical for leaf in leaves if leaf.type.logical and leaf.type.logical.kind == "decimal"}
    options: dict[str, Any] = {
        "compression": {leaf.name: codec_to_write(walk.meta(walk.chunk(0, leaf.index)).codec) for leaf in leaves},
        "store_decimal_as_integer": bool(physical & {PhysicalType.INT32, PhysicalType.INT64}),
        "use_deprecated_int96_timestamps": any(leaf.type.physical is PhysicalType.INT96 for leaf in leaves),
    }
    if file.leaves.files:
        return "values of type FILE may point to bytes of the file that are no column's"
    try:
        made = Encoder(schema, dict(options), file.path).template.schema
    except UsageError as error:
        return error.what
    for old, new in zip(leaves, made.leaves, strict=False):
        if _without_width(old) != new:
            was, becomes = (f"{one.type}, levels {one.repetition} and {one.definition}" for one in (old, new))
            return f"column {old.name} would be stored otherwise: {becomes}, instead of {was}"
    return Kind(schema, made, sealing, options)


def _without_width(leaf: Leaf) -> Leaf:
    """DuckDB and others say of INT64 that it has 64 bits and a sign, which it has anyway."""
    implied = {PhysicalType.INT32: 32, PhysicalType.INT64: 64}.get(leaf.type.physical)
    if implied is None or leaf.type.logical != LogicalType("int", bit_width=implied):
        return leaf
    return replace(leaf, type=replace(leaf.type, logical=None))
