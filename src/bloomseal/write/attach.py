"""Adding filters to an existing file, plain or encrypted, without touching a page.

The file's bytes up to its footer are copied as they are; the filters are appended, and the metadata of the columns
concerned and the footer are sealed again under the keys that they had. Everything else is spliced.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..core.decryption import DecryptionSpec, unsigned
from ..core.encryption import ModuleCipher, ModuleType
from ..core.errors import BloomsealError, FormatError, KeyAccessError, UnsupportedError
from ..core.parquet.footer import plain_footer, seal_footer, sign_footer
from ..core.parquet.layout import Column, FileMeta, Meta
from ..core.parquet.schema import Leaf
from ..core.parquet.walk import Chunk, Walk
from ..core.sbbf import SplitBlockBloomFilter
from ..core.storage.ref import FileRef
from ..core.storage.source import Source
from ..core.thrift import Struct
from ..format.hashes.chunk_hashes import chunk_hashes
from ..format.opening import open_footer
from ..keytools.signatures.signers import tail_signer
from ..notebook import ShownInNotebooks
from ..sbbf import FilterSpec
from ..specs import decryption_for
from ..storage.atomic import AtomicFile, fault_point
from ..storage.formats import Format, format_at
from ..storage.places import open_source
from .assemble import filter_modules
from .key_metadata import footer_cipher, with_chunks
from .writer import FilterRequest, check_filters, resolve_filters

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

    from ..orc.rewrite.report import OrcRewriteReport
    from ..policy import TablePolicy

Progress = Callable[[int, int], None]


@dataclass
class AttachReport(ShownInNotebooks):
    """What `attach_filters` did, or would do.

    Attributes:
        path: the file.
        dry_run: nothing was written.
        filters: one entry per filter: row_group, column, num_bytes, sealed, false_positive_probability, replaced.
        zeroed_bytes: bytes of replaced filters that stood in clear, overwritten with zeros.
        dead_bytes: bytes that nothing refers to any more: replaced filters, zeroed or sealed.
        old_size, new_size: of the file, in bytes.
        signed_by: who signed the new file, by his name in the policy; None where nobody has to.
    """

    path: str
    dry_run: bool
    filters: list[dict[str, Any]] = field(default_factory=list)
    zeroed_bytes: int = 0
    dead_bytes: int = 0
    old_size: int = 0
    new_size: int = 0
    signed_by: str | None = None


def attach_filters(
    path: str | os.PathLike[str] | FileRef,
    bloom_filters: FilterRequest,
    *,
    decryption: DecryptionSpec | TablePolicy | None = None,
    filesystem: FileSystem | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> AttachReport | OrcRewriteReport:
    """Add filters to a file, or replace those it has. Pages, indexes and all other columns stay byte for byte. Of an
    ORC file see `bloomseal.orc.rewrite.verbs.attach_filters`.

    Each column is read once. A filter of an encrypted column is sealed with the column's key, one of a plaintext column
    stands in clear. A replaced filter that stood in clear is overwritten with zeros. The file identity stays, so an
    older copy of the file still opens: attaching is no rotation.

    Args:
        bloom_filters: dotted column path → `FilterSpec` (or True), or a list of such paths.
        decryption: must lead to the footer key and to the keys of these columns.
        dry_run: build the filters and report, but write nothing.
        progress: called with (column chunks done, column chunks in all).

    Raises:
        KeyAccessError: a key that is needed is not at hand.
        FormatError, IntegrityError, UsageError; BloomsealError where the storage failed or somebody else changed the
            file meanwhile. In every case the file is as it was.
    """
    with open_source(path, filesystem) as source:
        if format_at(source) is Format.ORC:
            from ..orc.rewrite.verbs import attach_filters as attach_to_orc

            return attach_to_orc(source.ref, bloom_filters, decryption=decryption, dry_run=dry_run, progress=progress)
        decryption = decryption_for(decryption, source.ref)
        footer, keys = open_footer(source, decryption)
        walk = Walk(source, footer, keys)
        if footer.crypto is not None:
            footer_cipher(walk, "attaching")
        attaching = _Attaching(walk, resolve_filters(footer.schema, bloom_filters), dry_run)
        if dry_run:
            return attaching.run(None, progress)
        sign = tail_signer(decryption, source.ref)
        with AtomicFile(source.ref, replaces=source.identity, like=source, sign=sign) as out:
            report = attaching.run(out, progress)
            report.signed_by = None if sign is None else sign.name
            out.commit(lambda reopened: attaching.check(reopened, unsigned(decryption)))
        return report


class _Attaching:
    def __init__(self, walk: Walk, specs: list[tuple[Leaf, FilterSpec]], dry_run: bool) -> None:
        self.walk = walk
        self.specs = specs
        self.report = AttachReport(walk.source.name, dry_run, old_size=walk.source.size)
        self._samples: dict[tuple[int, int], int] = {}
        self._position = walk.footer.offset

    def run(self, out: AtomicFile | None, progress: Progress | None) -> AttachReport:
        footer = self.walk.footer
        if out is not None:
            out.copy_from(self.walk.source, footer.offset)
            fault_point("copied")
        groups = list(footer.row_groups)
        total, done = len(groups) * len(self.specs), 0
        for index in range(len(groups)):
            changed: dict[int, bytes] = {}
            for leaf, spec in self.specs:
                chunk = self.walk.chunk(index, leaf.index)
                try:
                    changed[leaf.index] = self._attach(chunk, spec, out)
                except BloomsealError as error:
                    raise error.at(file=self.walk.source.name, **chunk.place) from error.__cause__
                done += 1
                if progress is not None:
                    progress(done, total)
            groups[index] = with_chunks(groups[index], changed)
            fault_point(f"row group {index}")
        self._finish(groups, out)
        return self.report

    def check(self, reopened: Source, decryption: DecryptionSpec | None) -> None:
        """Before the new file takes the old one's name."""
        footer, keys = open_footer(reopened, decryption)
        check_filters(Walk(reopened, footer, keys), self.specs, self._samples)

    def _attach(self, chunk: Chunk, spec: FilterSpec, out: AtomicFile | None) -> bytes:
        """Build and write one filter; the new raw ColumnChunk."""
        cipher = self.walk.cipher(chunk)
        meta = Struct.parse(self.walk.meta_raw(chunk))
        self.walk.meta(chunk)
        replaced = self._drop_old(chunk, out)
        hashes = chunk_hashes(self.walk, chunk.row_group, chunk.leaf)
        bloom_filter = spec.build(hashes)
        if len(hashes):
            self._samples[chunk.row_group, chunk.leaf.index] = int(hashes[len(hashes) // 2])
        self._note(chunk, bloom_filter, replaced)
        length = 0
        position = self._position
        if out is not None:
            for module in filter_modules(bloom_filter, cipher, lambda kind: self.walk.aad(chunk, kind)):
                out.write(module)
                length += len(module)
        self._position += length
        meta.set_i64(Meta.BLOOM_OFFSET, position)
        meta.set_i32(Meta.BLOOM_LENGTH, length)
        return self._protected(chunk, meta, cipher)

    def _note(self, chunk: Chunk, bloom_filter: SplitBlockBloomFilter, replaced: bool) -> None:
        self.report.filters.append(
            {
                "row_group": chunk.row_group,
                "column": chunk.leaf.name,
                "num_bytes": bloom_filter.num_bytes,
                "sealed": chunk.encrypted,
                "false_positive_probability": bloom_filter.false_positive_probability(),
                "replaced": replaced,
            }
        )

    def _drop_old(self, chunk: Chunk, out: AtomicFile | None) -> bool:
        try:
            old = self.walk.stored_filter(chunk)
        except (FormatError, UnsupportedError):
            # Where it ends nobody knows. Over a plaintext column nothing is lost if it stays as it is, unnamed.
            if chunk.encrypted:
                raise
            return True
        if old is None:
            return False
        self.report.dead_bytes += old.length
        if not old.sealed:
            # Left as it is, it would answer whoever reads past the metadata.
            self._check_no_overlap(chunk, old.offset, old.length)
            self.report.zeroed_bytes += old.length
            if out is not None:
                out.zero(old.offset, old.length)
        return True

    def _check_no_overlap(self, chunk: Chunk, offset: int, length: int) -> None:
        """A filter offset that points into pages would make us zero them."""
        if offset + length > self.walk.footer.offset or offset < 4:
            raise FormatError("the filter to replace reaches into the footer or the magic", **chunk.place)  # type: ignore[arg-type]
        for group in range(len(self.walk.footer.row_groups)):
            for other in self.walk.chunks(group):
                try:
                    start, size = self.walk.extent(other)
                except KeyAccessError:
                    continue
                if offset < start + size and start < offset + length:
                    raise FormatError("the filter to replace overlaps pages", **chunk.place)  # type: ignore[arg-type]

    def _protected(self, chunk: Chunk, meta: Struct, cipher: ModuleCipher | None) -> bytes:
        """The chunk's raw ColumnChunk around its new metadata, sealed where it was sealed."""
        struct = Struct.parse(self.walk.footer.chunk_raw(chunk.row_group, chunk.leaf.index))
        crypto = self.walk.footer.crypto
        if cipher is None or crypto is None:
            struct.set_struct(Column.META, meta)
            return struct.to_bytes()
        sealed = chunk.view.encrypted_column_metadata is not None
        if not sealed and not crypto.plaintext_footer:
            struct.set_struct(Column.META, meta)
            return struct.to_bytes()
        # Arrow C++ leaves footer-key columns open under a plaintext footer; where the filter lies is nobody's business,
        # so such a column's metadata is sealed from now on, as parquet-java does.
        kind = ModuleType.COLUMN_META_DATA
        aad = self.walk.aad(chunk, kind, row_group=chunk.meta_ordinal)
        struct.set_binary(Column.SEALED_META, cipher.seal(meta.to_bytes(), kind, aad))
        if crypto.plaintext_footer:
            clear = struct.struct(Column.META) or meta.copy()
            clear.remove(*(Meta.REVEALING if not sealed else (Meta.BLOOM_OFFSET, Meta.BLOOM_LENGTH)))
            struct.set_struct(Column.META, clear)
        return struct.to_bytes()

    def _finish(self, groups: list[bytes], out: AtomicFile | None) -> None:
        footer = self.walk.footer
        metadata = footer.struct.copy()
        metadata.set_list(FileMeta.ROW_GROUPS, groups)
        raw = metadata.to_bytes()
        if footer.crypto is None:
            end = plain_footer(raw)
        elif footer.crypto.plaintext_footer:
            end = sign_footer(raw, footer.crypto, self.walk.keys.footer())
        else:
            end = seal_footer(raw, footer.crypto, self.walk.keys.footer())
        if out is not None:
            out.write(end)
            self.report.new_size = self._position + len(end)
