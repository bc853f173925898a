"""Data keys that the caller holds: by column, by key id, one for the footer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from ..columns import nearest_entry
from ..encryption import SecretKey
from ..errors import Hint, KeyAccessError, PolicyError, UsageError

_Placed = tuple[SecretKey, bytes | None]

KeyValue = bytes | SecretKey | tuple[bytes | SecretKey, bytes | str]
"""A data key, alone or with the key metadata that stands for it in the file."""


class ExplicitKeys:
    """A `KeyRetriever` over keys that the caller holds, each for the places that it was given for.

    A file names the key of each place by an id that its writer chose. So the id never leads away from the key that the
    caller gave for a place: whoever holds one column's key could else name it for the footer, and forge the file.

    Args:
        footer_key: the key that opens the footer, and every column sealed with the footer key.
        column_keys: dotted column path → key; the path of a group covers all leaves below it. These columns are
            expected to be sealed under these keys, and no other.
        keys_by_id: key metadata (an id such as ``"kf"``) → key, for places that no key was given for above. Whoever
            holds any of these keys could have written any of those places.

    A pair of a key and its id says that the file must name that id.

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
        self._footer = None if footer_key is None else _placed(footer_key, "footer_key")
        self._columns = {name: _placed(value, f"column {name}") for name, value in (column_keys or {}).items()}
        self._by_id = {_id(key_id): _key(value, "keys_by_id") for key_id, value in (keys_by_id or {}).items()}

    @property
    def columns(self) -> frozenset[str]:
        """The columns that the caller gave a key for, and so takes to be encrypted."""
        return frozenset(self._columns)

    def retrieve_key(self, key_metadata: bytes, column: str | None) -> SecretKey:
        """The key given for the column, or for the footer; where none was, the one whose id `key_metadata` is.

        Raises:
            KeyAccessError: none of these was given, or the file names another id than the one given with the key.
        """
        placed = self._footer if column is None else nearest_entry(self._columns, column)
        if placed is not None:
            key, key_id = placed
            if key_id is None or key_id == bytes(key_metadata):
                return key
        elif (known := self._by_id.get(bytes(key_metadata))) is not None:
            return known
        whose = "the footer" if column is None else f"column {column}"
        raise KeyAccessError(
            f"no key for {whose} among the explicit keys"
            if placed is None
            else f"the file names another key for {whose} than the one that was given",
            column=column,
            lacking=placed is None,
            hint=Hint.FOOTER_KEY if column is None else Hint.COLUMN_KEY,
        )

    def check_under_footer_key(self, key_metadata: bytes, column: str) -> None:  # noqa: ARG002
        """A column says that it is under the footer key.

        Raises:
            PolicyError: a key of its own was given for it.
        """
        own = nearest_entry(self._columns, column)
        if own is not None and (self._footer is None or own[0] != self._footer[0]):
            raise PolicyError(
                "the column is under the footer key, and a key of its own was given for it",
                column=column,
                hint="leave the column out of column_keys, if it is meant to be under the footer key",
            )

    def __repr__(self) -> str:
        named = ", ".join(sorted(self._columns)) or "none"
        return f"<ExplicitKeys footer: {'yes' if self._footer else 'no'}, columns: {named}, ids: {len(self._by_id)}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("ExplicitKeys are never pickled; let each process get its own keys")


def _placed(value: KeyValue, where: str) -> _Placed:
    if not isinstance(value, tuple):
        return _key(value, where), None
    if len(value) != 2:
        raise UsageError(f"{where}: a pair of a key and its key metadata was expected")
    return _key(value[0], where), _id(value[1])


def _id(key_id: str | bytes) -> bytes:
    return key_id.encode() if isinstance(key_id, str) else bytes(key_id)


def _key(value: bytes | SecretKey, where: str) -> SecretKey:
    if isinstance(value, SecretKey):
        return value
    if not isinstance(value, bytes | bytearray | memoryview):
        # A str would be a master key's name: those are resolved by a KeySource, not here.
        raise UsageError(f"{where}: a data key is bytes or a SecretKey, not {type(value).__name__}")
    return SecretKey(bytes(value))
