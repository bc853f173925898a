"""The folder of an index: ``_bloomseal_index/COLUMN`` in the table's. Its files are ordinary encrypted Parquet.

Each has one column, which bears the data column's name, so that keys, policies, rotation and audits take it for what it
is as sensitive as.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ..core.decryption import unsigned
from ..core.encryption import Algorithm, SecretKey
from ..core.errors import BloomsealError, Hint, IntegrityError, MissingFileError, PolicyError, UsageError
from ..core.keys.explicit import ExplicitKeys
from ..core.parquet.chunk import Protection
from ..core.storage.ref import FileRef
from ..keytools.sources import as_key_source
from ..policy import TablePolicy
from ..read.parquet import ParquetFile
from ..specs import EncryptionSpec, decryption_for, encryption_for
from ..storage.places import open_source
from .facts.sameness import state_at
from .manifest import FileState, IndexRun, Manifest, Shard
from .place import MANIFEST, IndexPlace, folder_name, is_signed

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

    from ..core.decryption import DecryptionSpec

if TYPE_CHECKING:
    Decryption = DecryptionSpec | TablePolicy | None
    Encryption = EncryptionSpec | TablePolicy | None

_TAIL: Final = 64 << 10


class IndexFolder(IndexPlace):
    """The sealed files of the index of one column of one table.

    Args:
        root: the table's folder.
        column: dotted path; or, with `named`, the folder's own name.
        decryption: of the table, and so of its index.
        encryption: what seals the column, and so its index; None: `decryption`, where that is a table's policy.
        filesystem: None: this machine's.
    """

    def __init__(
        self,
        root: str,
        column: str,
        decryption: Decryption = None,
        encryption: Encryption = None,
        *,
        named: bool = False,
        filesystem: FileSystem | None = None,
    ) -> None:
        super().__init__(root, column if named else folder_name(column), filesystem)
        if encryption is None and isinstance(decryption, TablePolicy):
            encryption = decryption
        self.decryption, self.encryption = decryption, encryption

    # Reading ---------------------------------------------------------------------------------------------------------

    def state(self) -> FileState | None:
        """Of the manifest; None where there is none, or nobody could look."""
        try:
            return state_at(self.ref(MANIFEST))
        except BloomsealError:
            return None

    def load(self, name: str = MANIFEST) -> Manifest | None:
        """The manifest; None where there is none.

        Args:
            name: of a draft, see `write_manifest`.

        Raises:
            BloomsealError: it does not authenticate, is of another column, or its keys can't be had.
        """
        try:
            with self.open(name) as file:
                made = Manifest.from_values(leaf_of(file.read()).to_pylist())
                if file.leaves.leaves[0].path != made.path or self.name != folder_name(made.column):
                    raise IntegrityError("the manifest is that of another column's index", file=file.path)
                spec = decryption_for(self.decryption, self.ref(name))
                if spec and spec.signers and not all(shard.keys for run in made.runs for shard in run.shards):
                    # Whoever may wrap keys could put a run of his own in the place of one that the KMS opens.
                    raise PolicyError("an index whose runs are not pinned", file=file.path, hint="index rebuild")
                return made
        except MissingFileError:
            return None

    def readable(self) -> Manifest | None:
        """The manifest; None where there is none, or it can't be read: a rebuild takes its place."""
        try:
            return self.load()
        except BloomsealError:
            return None

    def open(self, name: str, keys: Mapping[str, SecretKey] | None = None) -> ParquetFile:
        """One file of the index.

        Args:
            keys: its data keys, see `Shard.keys`; None, or empty: they are asked for. The manifest is sealed under the
                same master keys, so who has opened it could ask for them.

        Raises:
            BloomsealError: as `open_file`; and it must be sealed as this room seals, whatever the caller allows of
                data.
        """
        ref = self.ref(name)
        decryption = decryption_for(self.decryption, ref)
        if not is_signed(ref):
            decryption = unsigned(decryption)
        if decryption is not None:
            decryption = replace(decryption, keys=_own(decryption.keys))
        if keys and decryption is not None:
            columns = {column: key for column, key in keys.items() if column}
            decryption = replace(decryption, keys=ExplicitKeys(keys.get(""), columns))
        source = open_source(ref)
        try:
            # Footer, column index and offset index lie at the end, and come in one request.
            source.hold_end(_TAIL)
            file = ParquetFile(source, decryption)
            _check_sealed(file)
        except BaseException:
            source.close()
            raise
        return file

    def open_shard(self, shard: Shard) -> ParquetFile:
        """One file of a run, if it is the one that the manifest means.

        Raises:
            IntegrityError: it is another one: under the same key, one run's file would open in the place of another's.
        """
        file = self.open(shard.file, shard.keys)
        crypto = file.walk.footer.crypto
        if crypto is None or crypto.aad_unique != shard.unique or file.num_rows != shard.entries:
            file.close()
            raise IntegrityError("a file of the index is not the one that its manifest names", file=file.path)
        return file

    def with_keys(self, shard: Shard) -> Shard:
        """The shard, which is opened, with its data keys.

        Raises:
            As `open_shard`.
        """
        with self.open_shard(shard) as file:
            return shard._replace(keys=keys_of(file))

    # Writing ---------------------------------------------------------------------------------------------------------

    def write_manifest(self, manifest: Manifest, name: str = MANIFEST) -> None:
        """Put it in the place of the one that is there, all at once. The caller has the lock.

        Args:
            name: another one: a draft, for processes that work on an index which is not there yet.

        Raises:
            BloomsealError: it could not be written; the old one stays.
        """
        values = pa.array(manifest.to_values(), pa.binary())
        self.write(name, manifest.path, values, compression="zstd")

    def need_usable(self, column: str) -> None:
        """Whether the index could be written: what a dry run asks.

        Raises:
            UsageError: nothing seals the column. KeyAccessError, PolicyError: a master key can't be used.
        """
        from ..keytools.tools import KeyTools  # look-ups need not load it

        spec = _narrowed(self.encryption, self.ref(MANIFEST), column)
        named = [key for key in (spec.footer_key, *(spec.column_keys or {}).values()) if isinstance(key, str)]
        if named and isinstance(source := as_key_source(spec.keys), KeyTools):
            source.need_usable(named)

    def write(self, name: str, path: tuple[str, ...], values: pa.Array, **options: Any) -> None:
        """One file of one column.

        Raises:
            UsageError: nothing seals the column. KeyAccessError. BloomsealError: the storage failed.
        """
        from ..write.writer import FileWriter  # look-ups need not load this

        ref = self.ref(name)
        rows = _as_table(path, values)
        spec = _narrowed(self.encryption, ref, ".".join(path))
        with FileWriter(
            ref, rows.schema, encryption=spec, bloom_filters={}, row_group_size=max(rows.num_rows, 1),
            use_dictionary=False, write_page_index=True, **options,
        ) as writer:  # fmt: skip
            writer.write_table(rows)

    def remove_runs(self, runs: Iterable[IndexRun]) -> None:
        """Remove the files of runs that no manifest names."""
        for run in runs:
            for shard in run.shards:
                self.remove(shard.file)


def keys_of(file: ParquetFile) -> dict[str, SecretKey]:
    """The data keys of an open file of an index, as `Shard.keys` has them."""
    chunk = file.walk.chunk(0, 0)
    keys = {"": file.walk.keys.footer().key}
    if chunk.protection is Protection.COLUMN_KEY and (cipher := file.walk.cipher(chunk)) is not None:
        keys[chunk.leaf.name] = cipher.key
    return keys


def leaf_of(rows: pa.Table) -> pa.ChunkedArray:
    """The values of the only leaf of a table, without nesting."""
    column = rows.column(0)
    while pa.types.is_struct(column.type):
        column = pa.chunked_array([chunk.field(0) for chunk in column.chunks], column.type.field(0).type)
    return column


def _as_table(path: tuple[str, ...], values: pa.Array) -> pa.Table:
    field = pa.field(path[-1], values.type, nullable=False)
    for name in reversed(path[:-1]):
        values = pa.StructArray.from_arrays([values], fields=[field])
        field = pa.field(name, values.type, nullable=False)
    return pa.Table.from_arrays([values], schema=pa.schema([field]))


def _check_sealed(file: ParquetFile) -> None:
    """Nothing but this decides what is in an index; a caller who allows plaintext data does not allow plaintext
    here.
    """
    walk = file.walk
    crypto = walk.footer.crypto
    if crypto is None or not walk.footer.verified:
        raise PolicyError("a file of an index that nothing authenticates", file=file.path, hint="index rebuild")
    if crypto.algorithm is not Algorithm.AES_GCM_V1:
        raise PolicyError("a file of an index whose pages nothing authenticates", file=file.path, hint="index rebuild")
    if len(walk.footer.schema.leaves) != 1 or file.num_row_groups > 1:
        raise IntegrityError("no file of an index", file=file.path, hint="index rebuild")
    for group in range(file.num_row_groups):
        if not walk.chunk(group, 0).encrypted:
            raise PolicyError("a file of an index with a plaintext column", file=file.path, hint="index rebuild")


def _own(keys: Any) -> Any:
    """The same keys, but none that anybody with a public key can have wrapped: he would choose the answers."""
    source = None if keys is None else as_key_source(keys)
    own = getattr(source, "for_own_use", None)  # of key tools, which look-ups by other keys need not load
    return keys if own is None else own()


def _narrowed(encryption: Encryption, ref: FileRef, column: str) -> EncryptionSpec:
    """What seals the data column, for a file of that column alone.

    Raises:
        UsageError: nothing does.
    """
    spec = encryption_for(encryption, ref)
    if spec is None:
        raise UsageError("an index is sealed, and there is no key for it", column=column, hint=Hint.ENCRYPTION)
    given = spec.column_keys or {}
    parts = column.split(".")
    names = [".".join(parts[:end]) for end in range(len(parts), 0, -1)]
    name = next((name for name in names if name in given), None)
    if name is None and given and not spec.complete:
        raise UsageError(
            "the column is in plaintext, and so has no index", column=column, hint="a key for it, or complete=True"
        )
    keys = None if name is None else {name: given[name]}
    signers = spec.signers if is_signed(ref) else None
    spec = replace(spec, keys=_own(spec.keys))
    return replace(
        spec, column_keys=keys, plaintext_footer=False, complete=False, algorithm=Algorithm.AES_GCM_V1, signers=signers
    )
