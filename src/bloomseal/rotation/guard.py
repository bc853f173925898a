"""A last look at the file before a conversion puts another in its place, where the storage itself can't compare and swap."""

from __future__ import annotations

from dataclasses import replace

from ..encryption import SecretKey
from ..errors import UsageError
from ..keytools import as_key_source
from ..keytools.protocols import FileKeys, KeySource
from ..specs import EncryptionSpec
from ..storage.atomic import fault_point
from ..storage.ref import FileRef
from .files import ChangedError, mark_of

__all__ = ["GuardedKeys"]


class GuardedKeys:
    """A key source that compares the file's mark when it is asked to make key material durable, which is the last step before
    the new file is sent to its place. On local file systems the replacement compares by itself, once more.
    """

    def __init__(self, inner: KeySource | None, ref: FileRef) -> None:
        self._inner = inner
        self._ref = ref
        self._before = mark_of(ref)

    @classmethod
    def around(cls, spec: EncryptionSpec, ref: FileRef) -> EncryptionSpec:
        """`spec`, its keys guarded from now on. `ref` is the file that is being converted."""
        return replace(spec, keys=cls(None if spec.keys is None else as_key_source(spec.keys), ref))

    def for_file(self, ref: FileRef, *, writing: bool = False) -> FileKeys:
        """The keys of one file."""
        return _Guarded(self, None if self._inner is None else self._inner.for_file(ref, writing=writing))

    def check(self) -> None:
        """Raises ChangedError where another file stands in the place."""
        if mark_of(self._ref) != self._before:
            raise ChangedError(
                "the file was changed by someone else meanwhile; it was left as it is", file=self._ref.path
            )


class _Guarded:
    def __init__(self, guard: GuardedKeys, inner: FileKeys | None) -> None:
        self._guard = guard
        self._inner = inner

    def retrieve_key(self, key_metadata: bytes, column: str | None) -> bytes | SecretKey:
        return self._named().retrieve_key(key_metadata, column)

    def new_key(self, master_key: str, column: str | None, bits: int) -> tuple[SecretKey, bytes]:
        return self._named().new_key(master_key, column, bits)

    def store(self) -> None:
        self._guard.check()
        if self._inner is not None:
            self._inner.store()
        fault_point("stored")

    def discard(self) -> None:
        if self._inner is not None:
            self._inner.discard()

    def _named(self) -> FileKeys:
        if self._inner is None:
            raise UsageError("a master key's name, and nothing to look it up in")
        return self._inner
