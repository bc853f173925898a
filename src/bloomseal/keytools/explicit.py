"""Data keys that the caller holds: by column, by key id, one for the footer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from ..encryption import SecretKey
from ..errors import KeyAccessError, UsageError

__all__ = ["ExplicitKeys", "KeyValue"]

KeyValue = bytes | SecretKey | tuple[bytes | SecretKey, bytes | str]
"""A data key, alone or with the key metadata that stands for it in the file."""


class ExplicitKeys:
    """A `KeyRetriever` over keys that the caller holds.

    Args:
        footer_key: the key that opens the footer, and every column sealed with the footer key.
        column_keys: dotted column path → key; the path of a group covers all leaves below it.
        keys_by_id: key metadata (an id such as ``"kf"``) → key. An id wins over a column's name, because the file itself
            says which key it used.

    Raises:
        KeyAccessError: a key whose length no AES key has.
        UsageError: a value that is no key.
    """

    __slots__ = ("_by_id", "_columns", "_footer")

    def __init__(
        self,
        footer_key: KeyValue | None = None,
        column_keys: Mapping[str, KeyValue] | None = None,
        keys_by_id: Mapping[str | bytes, bytes | SecretKey] | None = None,
    ) -> None:
        self._by_id: dict[bytes, SecretKey] = {}
        self._footer = None if footer_key is None else self._take(footer_key, "footer_key")
        self._columns = {name: self._take(value, f"column {name}") for name, value in (column_keys or {}).items()}
        # Last, because an entry of the map is the plainest thing that a caller can say about an id.
        for key_id, value in (keys_by_id or {}).items():
            self._by_id[_id(key_id)] = _key(value, "keys_by_id")

    @property
    def columns(self) -> frozenset[str]:
        """The columns that the caller gave a key for, and so takes to be encrypted."""
        return frozenset(self._columns)

    def retrieve_key(self, key_metadata: bytes, column: str | None) -> SecretKey:
        """The key whose id `key_metadata` is; else the column's; for the footer, the footer key.

        Raises:
            KeyAccessError: none of these was given.
        """
        if (key := self._by_id.get(bytes(key_metadata))) is not None:
            return key
        key = self._footer if column is None else self._of_column(column)
        if key is not None:
            return key
        whose = "the footer" if column is None else f"column {column}"
        raise KeyAccessError(
            f"no key for {whose} among the explicit keys",
            column=column,
            hint="footer_key=" if column is None else f"column_keys={{{column!r}: ...}}, or keys_by_id=",
        )

    def _of_column(self, column: str) -> SecretKey | None:
        """The key of the column itself, else of the nearest group above it, as `EncryptionSpec.column_keys` has it."""
        path = column
        while path:
            if (key := self._columns.get(path)) is not None:
                return key
            path = path.rpartition(".")[0]
        return None

    def _take(self, value: KeyValue, where: str) -> SecretKey:
        if not isinstance(value, tuple):
            return _key(value, where)
        if len(value) != 2:
            raise UsageError(f"{where}: a pair of a key and its key metadata was expected")
        key = _key(value[0], where)
        self._by_id[_id(value[1])] = key
        return key

    def __repr__(self) -> str:
        named = ", ".join(sorted(self._columns)) or "none"
        return f"<ExplicitKeys footer: {'yes' if self._footer else 'no'}, columns: {named}, ids: {len(self._by_id)}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("ExplicitKeys are never pickled; let each process get its own keys")


def _id(key_id: str | bytes) -> bytes:
    return key_id.encode() if isinstance(key_id, str) else bytes(key_id)


def _key(value: bytes | SecretKey, where: str) -> SecretKey:
    if isinstance(value, SecretKey):
        return value
    if not isinstance(value, bytes | bytearray | memoryview):
        # A str would be a master key's name: those are resolved by a KeySource, not here.
        raise UsageError(f"{where}: a data key is bytes or a SecretKey, not {type(value).__name__}")
    return SecretKey(bytes(value))
