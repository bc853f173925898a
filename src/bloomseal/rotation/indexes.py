"""What sealed indexes know of files that a rotation changes: the values are the same, and are not hashed again."""

from __future__ import annotations

import posixpath
import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import unquote

from ..core.errors import BloomsealError, BloomsealWarning
from ..core.forked import new_lock
from ..core.storage.ref import FileRef
from ..index.facts.members import Members
from ..index.facts.sameness import content_of
from ..index.place import columns_in
from ..index.sealed import SealedIndex
from ..policy import TablePolicy
from ..read.file import SealedFile
from ..read.open import open_file
from ..storage.discovery.kinds import is_of_index
from .settings import Decryption, Encryption

if TYPE_CHECKING:
    from ..core.parquet.walk import Walk


@dataclass
class CarriedOver:
    """Files that were made anew, per index. Threads may share it.

    A fact is carried over by authenticated identities alone: the file that was opened is the one that it is about, and
    the file that is there afterwards is the one that was made of it.
    """

    _found: dict[tuple[str, str], dict[str, tuple[FileRef, bytes, bytes]]] = field(default_factory=dict)
    _columns: dict[str, list[str]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=new_lock)

    def note(self, ref: FileRef, old: Walk, new: Walk) -> None:
        """A file, as it was, and as it will be. Of a plaintext file no index knew anything: it is hashed."""
        for column in self._columns_of(ref):
            leaves = [one for one in old.footer.schema.leaves if one.name == column]
            known = old.footer.crypto is not None and len(leaves) == 1
            was = content_of(old, leaves[0]) if known else b""
            made = content_of(new, new.footer.schema.leaf(column)) if known else b""
            self._add(ref, column, was, made)

    def touch(self, ref: FileRef) -> None:
        """A file whose pages stay as they are."""
        for column in self._columns_of(ref):
            self._add(ref, column, b"", b"")

    def _add(self, ref: FileRef, column: str, was: bytes, made: bytes) -> None:
        relative = posixpath.relpath(ref.path, ref.root)
        if is_of_index(relative):
            return
        with self._lock:
            self._found.setdefault((ref.root or "", column), {})[relative] = ref, was, made

    def _columns_of(self, ref: FileRef) -> list[str]:
        if ref.root is None:
            return []
        with self._lock:
            if ref.root not in self._columns:
                self._columns[ref.root] = [unquote(name) for name in columns_in(ref.root, ref.filesystem)]
            return self._columns[ref.root]

    def __reduce__(self) -> tuple[type[CarriedOver], tuple[()]]:
        # A job goes to Spark's executors without what was found so far.
        return CarriedOver, ()

    def tell(self, policy: Encryption | Decryption) -> None:
        """Bring the indexes up to date, if this is a policy: nobody else knows the keys that open an index of before
        and seal one of now. One that can't be is told by a BloomsealWarning: its next update hashes the
        files.
        """
        if not isinstance(policy, TablePolicy):
            return
        for (root, column), files in self._found.items():
            refs = [ref for ref, _, _ in files.values()]
            place = FileRef(root, refs[0].filesystem)
            members = Members(place, refs, list(files), partial(_open, refs, policy))
            try:
                index = SealedIndex(members, column, policy)
                if index.exists:
                    index.update(carried={path: (old, new) for path, (_, old, new) in files.items()})
            except BloomsealError as error:
                told = f"{root}: the index of {column} is not up to date: {error.what}"
                warnings.warn(told, BloomsealWarning, stacklevel=4)


def _open(refs: Sequence[FileRef], policy: TablePolicy, number: int) -> SealedFile:
    return open_file(refs[number], decryption=policy)
