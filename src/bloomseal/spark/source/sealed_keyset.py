"""A set of probe values on its way to the executors: hashed, and sealed under a key of the table itself.

Spark broadcasts the content of a task, so that it ends up on disks. Probed values tell as much as the rows that they
find, so they travel sealed. Their key is derived from the probed column's data key. An executor gets that one from the
KMS, as it does to open the column's filters. So nobody opens the set who may not use the column, and no key travels.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from ...core.encryption import ModuleCipher, ModuleType, SecretKey
from ...core.errors import BloomsealError, KeyAccessError
from ...core.sbbf import ColumnType
from ...read.parquet import need_parquet
from ...sbbf import KeySet

if TYPE_CHECKING:
    from ...read.file import SealedFile
    from .files.piece import Piece

_LABEL: Final = b"bloomseal key set for Spark tasks"
_SALT_BYTES: Final = 16


class Opens(Protocol):
    """Opens a file where it was found; `.options.SourceOptions` does."""

    def open(self, one: Piece, /) -> SealedFile: ...


@dataclass(frozen=True, slots=True)
class SealedKeys:
    """A `KeySet` in a form that may be pickled.

    Attributes:
        column_type: of the columns that it can be asked of.
        piece: the file whose column's key seals it.
    """

    column: str
    column_type: ColumnType
    piece: Piece
    _salt: bytes
    _sealed: bytes

    @classmethod
    def of(cls, keys: KeySet, column_type: ColumnType, file: SealedFile, leaf: int, piece: Piece) -> SealedKeys:
        """Seal `keys`, which are of this type, under a key of this file. A plaintext table has none: they travel as
        they are.

        Args:
            file: with a row group, whose column says which key it is under.
            piece: the same, closed.

        Raises:
            KeyAccessError: the column's key can't be had.
        """
        column, salt, data = file.leaves.leaves[leaf].name, os.urandom(_SALT_BYTES), keys.dump()
        cipher = _cipher(file, leaf, salt)
        sealed = data if cipher is None else bytes(cipher.seal(data, ModuleType.FOOTER, _aad(file.path, column)))
        return cls(column, column_type, piece._replace(kept=None, deletes=()), salt, sealed)

    @classmethod
    def none(cls, column: str, column_type: ColumnType, piece: Piece) -> SealedKeys:
        """For a table without a row: no keys, which nobody opens."""
        return cls(column, column_type, piece, b"", b"")

    @property
    def is_empty(self) -> bool:
        """Whether there are no keys in it to be opened."""
        return not self._sealed

    def open(self, settings: Opens) -> KeySet:
        """The set, with the keys of whoever calls.

        Raises:
            KeyAccessError: the column's key can't be had here.
            IntegrityError: the file has other keys than it had.
        """
        with settings.open(self.piece) as file:
            leaf = file.leaves.leaf(self.column).index
            cipher, path = _cipher(file, leaf, self._salt), file.path
        data = self._sealed
        if cipher is not None:
            try:
                data = cipher.open(data, ModuleType.FOOTER, _aad(path, self.column))
            except BloomsealError as error:
                raise error.at(file=path) from None
        return KeySet.load(data, self.column_type)

    def __repr__(self) -> str:
        return f"<SealedKeys for {self.column}>"


def place_of(file: SealedFile, column: str) -> int | None:
    """The leaf of this name, in another case too, as the reader takes it; None where there is none, or several."""
    names = file.columns
    if column in names:
        return names.index(column)
    alike = [i for i, name in enumerate(names) if name.lower() == column.lower()]
    return alike[0] if len(alike) == 1 else None


def _cipher(file: SealedFile, leaf: int, salt: bytes) -> ModuleCipher | None:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    walk = need_parquet(file).walk
    if walk.footer.crypto is None:
        return None
    if not file.num_row_groups:
        # Under the footer's key whoever may use that one, and plants such a file, would have the values.
        raise KeyAccessError("without a row group nothing tells the column's key", file=file.path)
    own = walk.cipher(walk.chunk(0, leaf))
    secret = (own or walk.keys.footer()).key.reveal()
    return ModuleCipher(SecretKey(HKDF(SHA256(), 32, salt, _LABEL).derive(secret)))


def _aad(file: str, column: str) -> bytes:
    return b"\x00".join([_LABEL, file.encode(), column.encode()])
