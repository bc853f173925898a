"""Whatever a caller gives for `keys=` → a `KeySource`."""

from __future__ import annotations

import os
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from ..core.encryption import SecretKey
from ..core.errors import BloomsealError, Hint, KeyAccessError, UsageError
from ..core.forked import new_lock
from ..core.keys.access import raised_by
from ..core.keys.protocols import FileKeys, KeyRetriever, KeySource, KmsClient
from ..core.storage.ref import FileRef
from ..core.text import articled

if TYPE_CHECKING:
    from .tools import KeyTools

_KEPT: Final = 64
_lock = new_lock()
_tools: OrderedDict[int, tuple[object, KeyTools]] = OrderedDict()


def as_key_source(keys: Any) -> KeySource:
    """A source of keys from any of the things that can be one.

    Args:
        keys: a `KeySource` (`KeyTools`, for one) as it is; a `Keyring` or any other KMS client, also a subclass of
            pyarrow's, or a KMS URI: key tools over it, shared by all calls that name the same one, and so are their
            caches; `ExplicitKeys` or any other retriever: a source that can read but not make keys.

    Raises:
        UsageError: none of these; or a URI of an unknown scheme.
    """
    if isinstance(keys, str):
        from .kms.registry import client_for

        keys = client_for(keys)
    # isinstance with a protocol takes longer than all else on the way to a key that is at hand.
    if callable(getattr(keys, "for_file", None)):
        source: KeySource = keys
        return source
    if callable(getattr(keys, "wrap_key", None)) and callable(getattr(keys, "unwrap_key", None)):
        return _shared_tools(keys)
    if callable(getattr(keys, "retrieve_key", None)):
        return _Retrieving(keys)
    if isinstance(keys, os.PathLike):
        raise UsageError("keys come from a KMS, not from a path", hint=f"keyring:{os.fspath(keys)}, or Keyring(path)")
    raise UsageError(
        f"keys can't come from {articled(type(keys).__name__)}",
        hint="a Keyring, KeyTools, a KMS client, a KMS URI, or ExplicitKeys",
    )


def _shared_tools(kms: KmsClient) -> KeyTools:
    from .tools import KeyTools

    with _lock:
        if (known := _tools.get(id(kms))) is None:
            # The client is held along with its tools, so that its id can't come to mean another object. The bound is
            # there because nothing says when a caller is done with a client.
            known = _tools[id(kms)] = (kms, KeyTools(kms))
            if len(_tools) > _KEPT:
                _tools.popitem(last=False)
        _tools.move_to_end(id(kms))
        return known[1]


class _Retrieving:
    """A source, and every file's keys, over a bare retriever."""

    def __init__(self, retriever: KeyRetriever) -> None:
        self._retriever = retriever
        self.check_under_footer_key = getattr(retriever, "check_under_footer_key", None)

    def for_file(self, ref: FileRef, *, writing: bool = False) -> FileKeys:  # noqa: ARG002
        return self

    def retrieve_key(self, key_metadata: bytes, column: str | None) -> SecretKey:
        name = type(self._retriever).__name__
        try:
            key = self._retriever.retrieve_key(key_metadata, column)
            if isinstance(key, bytes | bytearray | SecretKey):
                return key if isinstance(key, SecretKey) else SecretKey(bytes(key))
            failure = f"{name} returned no key"
        except BloomsealError as error:
            raise error.at(column=column) from None
        except Exception as error:
            failure = f"{name} failed with {raised_by(error)}"
        # Raised out here, so that the chain ends here: a foreign message may hold a key or a token.
        raise KeyAccessError(failure, column=column)

    def new_key(self, master_key: str, column: str | None, bits: int) -> tuple[SecretKey, bytes]:  # noqa: ARG002
        raise UsageError(
            f"{articled(type(self._retriever).__name__)} has no master keys to wrap new keys with",
            column=column,
            hint=Hint.KEYS_BY_NAME,
        )

    def confirm(self) -> None:
        pass

    def store(self) -> None:
        pass

    def commit(self) -> None:
        pass

    def discard(self) -> None:
        pass

    def __repr__(self) -> str:
        return f"<key source over {type(self._retriever).__name__}>"
