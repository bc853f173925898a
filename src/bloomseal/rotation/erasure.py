"""`Erase`: one file without the rows that are to go, in the old one's place, sealed as that one is."""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

from ..core.errors import FormatError
from ..core.keys.material import KeyMetadata
from ..core.parquet.walk import Walk
from ..core.storage.ref import FileRef
from ..keytools.material.store import MaterialStore
from ..policy import TablePolicy
from ..read.open import open_file
from ..read.parquet import ParquetFile, identity_of, need_parquet
from ..sbbf import FilterSpec
from ..specs import EncryptionSpec, KeyChoice, decryption_for, encryption_for
from ..storage.places import open_source
from ..table.row_numbers import MatchedRows
from ..write.key_metadata import key_metadata_in_use
from ..write.without_rows import need_same_types, without_rows
from .delta import DeltaChange
from .files import ChangedError, DataFile, NewFile, mark_of, remove_unchanged
from .indexes import CarriedOver
from .job import Job, Progress
from .jobs import converted
from .keys import key_tools, target_of
from .outcome import FileOutcome, FilePlan, Status
from .settings import Decryption, by_master_key, format_for, like, new_keys_of, tools_or_none

_CHANGED: Final = "the file was changed by someone else meanwhile; it was left as it is"


@dataclass(frozen=True)
class Chosen:
    """One file, and the rows of it that are to go.

    Attributes:
        decryption: what opens it; None: it is plaintext.
        matched: the rows.
        new: where the new file goes: in the old one's place, unless a log names files.
        delta: the transaction of its table's log; None: no log keeps the list of files.
        indexes: those of its table.
    """

    file: DataFile
    decryption: Decryption | None
    matched: MatchedRows
    new: FileRef
    delta: DeltaChange | None
    indexes: CarriedOver

    @property
    def rows(self) -> int:
        """How many rows go."""
        return sum(map(len, self.matched.groups.values()))

    @property
    def left(self) -> int:
        """How many rows stay."""
        return self.matched.rows - self.rows

    @property
    def stamp(self) -> dict[str, Any]:
        """What the journal holds: no value, and no number of a row. The digest tells whether a run that goes on is
        about the same rows; the old file's identity salts it.
        """
        digest = hashlib.sha256(self.matched.identity)
        for group, numbers in sorted(self.matched.groups.items()):
            digest.update(b"%d:%d;" % (group, len(numbers)) + numbers.tobytes())
        return {"rows": self.rows, "left": self.left, "chosen": digest.hexdigest()[:32]}


@dataclass
class Erase(Job):
    """Take rows out of files; see `bloomseal.rotation.erase.erase`.

    Args:
        decryption: what opens the files, or a table's policy; None: they are plaintext.

    Attributes:
        chosen: by the files' names.
    """

    decryption: Decryption | None
    _chosen: dict[str, Chosen] = field(default_factory=dict, init=False, repr=False, compare=False)
    operation: ClassVar[str] = "erase"
    done: ClassVar[Status] = Status.ERASED

    @property
    def chosen(self) -> dict[str, Chosen]:
        """The files with rows that are to go, by their names."""
        return self._chosen

    def target(self, file: DataFile) -> FileRef:
        return self._chosen[file.name].new if file.name in self._chosen else file.ref

    def still_good(self, stamp: Mapping[str, Any]) -> bool:  # noqa: ARG002
        """An earlier run was about other rows."""
        return False

    def plan(self, file: DataFile) -> FilePlan:
        one = self._chosen[file.name]
        with open_source(file.ref) as source:
            format_for(source, self.operation)
        with open_file(file.ref, decryption=one.decryption) as opened:
            found = need_parquet(opened)
            found.need_verified("erasure")
            for leaf in found.leaves.leaves:
                found.need_key(leaf)
            self._spec(one, found.walk)
            found.forget_arrow_schema()
            need_same_types(found.walk)
        why = None if one.left else "no row is left: the file goes"
        return FilePlan(file.name, self.operation, why, file.size, file.size)

    def run(self, file: DataFile, progress: Progress | None = None, *, begun: bool = False) -> FileOutcome:  # noqa: ARG002
        one = self._chosen[file.name]
        if not one.left:
            return self._removed(one)
        ref, target = file.ref, one.new
        decryption = None if one.decryption is None else decryption_for(one.decryption, ref)
        with open_file(ref, decryption=decryption) as opened:
            spec = self._spec(one, need_parquet(opened).walk)
        before, new = MaterialStore(target).read(), NewFile(ref, target)

        def accept(old: Walk, made: Walk) -> None:
            _need_same(one, old)
            if made.footer.num_rows != one.left:
                raise FormatError(f"{made.footer.num_rows} rows are left, and not {one.left}", file=ref.path)
            new.accept(made)

        report = without_rows(ref, target, decryption, spec, one.matched.groups, _filters(one.decryption), accept)
        outcome = converted(file, self.done, report, new, before)
        one.indexes.touch(target)
        if one.delta is not None:
            one.delta.exchange(ref, target, one.left)
        # The journal gets no keys: no key was to be left.
        outcome.keys, outcome.rows, outcome.stamp = [], one.rows, one.stamp
        return outcome

    def _removed(self, one: Chosen) -> FileOutcome:
        """No row is left."""
        ref, before = one.file.ref, mark_of(one.file.ref)
        with open_file(ref, decryption=one.decryption) as opened:
            _need_same(one, need_parquet(opened).walk)
        if one.delta is not None:
            one.delta.exchange(ref, None)
        elif not remove_unchanged(ref if ref.root else replace(ref, root=posixpath.dirname(ref.path)), before):
            raise ChangedError(_CHANGED, file=ref.path)
        size = one.file.size
        return FileOutcome(one.file.name, Status.REMOVED, old_size=size, rows=one.rows, stamp=one.stamp)

    @staticmethod
    def _spec(one: Chosen, walk: Walk) -> EncryptionSpec | None:
        """What seals the new file: the old one's settings, under the master keys that a rekey would take."""
        if walk.footer.crypto is None or one.decryption is None:
            return None
        decryption = decryption_for(one.decryption, walk.source.ref)
        changes: dict[str, Any] = {"access_log": decryption.access_log, "signers": decryption.signers}
        if one.new != one.file.ref and isinstance(one.decryption, TablePolicy):
            changes["aad_prefix"] = encryption_for(one.decryption, one.new).aad_prefix
        if tools_or_none(decryption.keys) is None:
            return like(walk, None, lambda metadata, column: _same_key(walk, metadata, column), changes)
        tools = key_tools(decryption.keys)
        choose = by_master_key(walk, tools, target_of(one.decryption, None))
        return like(walk, new_keys_of(walk, tools), choose, changes)


def _same_key(walk: Walk, metadata: bytes, column: str | None) -> KeyChoice:
    """An explicit data key, which there is no other for."""
    cipher = walk.keys.footer() if column is None else walk.keys.column(metadata, column)
    return cipher.key, metadata


def _need_same(one: Chosen, walk: Walk) -> None:
    """Numbers of rows are those of the file that was looked at, and of no other."""
    # Plaintext files of the same shape may have the same footer, and other rows.
    if identity_of(walk.footer) != one.matched.identity or walk.source.identity != one.matched.mark:
        raise ChangedError(_CHANGED, file=one.file.ref.path)


def _filters(decryption: Decryption | None) -> Mapping[str, FilterSpec]:
    return decryption.bloom_filters() if isinstance(decryption, TablePolicy) else {}


def tidy_material(ref: FileRef, decryption: Decryption | None) -> None:
    """Drop key material beside a file to which its footer does not refer: what a run leaves that was killed just behind
    the file's replacement.

    Raises:
        KeyAccessError: the store can't be read or written. And as `open_file`.
    """
    store = MaterialStore(ref)
    if not (entries := store.read()):
        return
    with open_file(ref, decryption=decryption) as opened:
        if not isinstance(opened, ParquetFile):
            return
        used = {KeyMetadata.from_bytes(metadata).reference for _, metadata in key_metadata_in_use(opened.walk)}
    store.supersede({name: text for name, text in entries.items() if name not in used})
