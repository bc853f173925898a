"""A set of probe values on its way to the executors: hashed, and sealed under a key of the table itself.

Spark broadcasts the content of a task, so that it ends up on disks. Probed values tell as much as the rows that they
find, so they travel sealed. Their key is derived from the probed column's data key. An executor gets that one from the
KMS, as it does to open the column's filters. So nobody opens the set who may not use the column, and no key travels.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ...core.encryption import ModuleCipher, ModuleType, SecretKey
from ...core.errors import BloomsealError, KeyAccessError, UsageError
from ...core.sbbf import ColumnType
from ...sbbf import KeySet
from ..opening import open_table_file

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from ...policy import TablePolicy
    from ...read.file import SealedFile

__all__ = ["SealedKeys", "estimated_bytes", "identity_of", "is_small", "key_column", "place_of", "quoted", "values_of"]

_LABEL: Final = b"bloomseal key set for Spark tasks"
_SALT_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class SealedKeys:
    """A `KeySet` in a form that may be pickled.

    Attributes:
        column_type: of the columns that it can be asked of.
        file: the file whose column's key seals it.
        base: that one's file system.
    """

    column: str
    column_type: ColumnType
    file: str
    base: str | None
    _salt: bytes
    _sealed: bytes

    @classmethod
    def of(cls, keys: KeySet, column_type: ColumnType, file: SealedFile, leaf: int, base: str | None) -> SealedKeys:
        """Seal `keys`, which are of this type, under a key of this file. A plaintext table has none: they travel as
        they are.

        Args:
            file: with a row group, whose column says which key it is under.

        Raises:
            KeyAccessError: the column's key can't be had.
        """
        column, salt, data = file.walk.footer.schema.leaves[leaf].name, os.urandom(_SALT_BYTES), keys.dump()
        cipher = _cipher(file, leaf, salt)
        sealed = data if cipher is None else bytes(cipher.seal(data, ModuleType.FOOTER, _aad(file.path, column)))
        return cls(column, column_type, file.path, base, salt, sealed)

    @classmethod
    def none(cls, column: str, column_type: ColumnType, file: str, base: str | None) -> SealedKeys:
        """For a table without a row: no keys, which nobody opens."""
        return cls(column, column_type, file, base, b"", b"")

    @property
    def is_empty(self) -> bool:
        """Are there no keys in it to be opened?"""
        return not self._sealed

    def without_keys(self) -> SealedKeys:
        """For tasks that ask for none: it can't be opened."""
        return replace(self, _sealed=b"")

    def open(self, table: TablePolicy | None) -> KeySet:
        """The set, with the keys of whoever calls.

        Raises:
            KeyAccessError: the column's key can't be had here.
            IntegrityError: the file has other keys than it had.
        """
        with open_table_file(self.file, table, self.base) as file:
            leaf = file.walk.footer.schema.leaf(self.column).index
            cipher = _cipher(file, leaf, self._salt)
        data = self._sealed
        if cipher is not None:
            try:
                data = cipher.open(data, ModuleType.FOOTER, _aad(self.file, self.column))
            except BloomsealError as error:
                raise error.at(file=self.file) from None
        return KeySet.load(data, self.column_type)

    def __repr__(self) -> str:
        return f"<SealedKeys for {self.column}>"


def identity_of(file: SealedFile) -> bytes:
    """What another file of the same name has otherwise. New filters, and keys that are only wrapped anew, leave a
    sealed file's alone.
    """
    crypto = file.walk.footer.crypto
    return hashlib.sha256(file.walk.footer.raw).digest() if crypto is None else crypto.aad_unique


def place_of(file: SealedFile, column: str, *, case_sensitive: bool = True) -> int | None:
    """The leaf of this name, in another case too where Spark would take that; None where there is none, or several."""
    names = file.columns
    if column in names:
        return names.index(column)
    alike = [i for i, name in enumerate(names) if not case_sensitive and name.lower() == column.lower()]
    return alike[0] if len(alike) == 1 else None


def values_of(keys: Any, column: str) -> Any:
    """What a caller gave as keys, as one array or sequence.

    Args:
        keys: a Spark, pandas or Polars DataFrame, an Arrow table or array, a set, an iterator, or any sequence. Frames
            and tables of several columns must have one of the probed column's name.

    Raises:
        UsageError: none of these.
    """
    import pyarrow as pa

    if isinstance(keys, str | bytes):
        raise UsageError("keys come as a list, an Arrow array or a DataFrame, also a single one")
    if hasattr(keys, "toArrow"):
        return _distinct(key_column(keys, column))
    if hasattr(keys, "__arrow_c_stream__") and hasattr(keys, "columns"):
        keys = pa.table(keys)  # a pandas or Polars frame, a table of pyarrow
    if isinstance(keys, pa.Table | pa.RecordBatch):
        keys = keys.column(_one_of(keys.schema.names, column))
    if hasattr(keys, "dropna"):
        keys = keys.dropna()  # in a column of pandas what is missing is a NaN, of texts too
    # They are gone through more than once: hashed, and again as the frame that Spark joins.
    return list(keys) if isinstance(keys, set | frozenset | dict | Iterator) else keys


def _distinct(frame: DataFrame) -> pa.Array | pa.ChunkedArray:
    """The values of a frame's one column, each once. Where Spark would broadcast the frame in a join of its own, it is
    collected as it is: to shuffle such a one takes longer than all the rest.

    Raises:
        UsageError: lists, maps or structs: no column that is asked has them, and not all have an order.
    """
    import pyarrow as pa
    from pyspark.sql import types as st

    kind = frame.schema.fields[0].dataType
    if isinstance(kind, st.ArrayType | st.MapType | st.StructType):
        raise UsageError(f"keys of {kind.simpleString()}", hint="one column of them, such as key.name")
    if not is_small(frame):
        return frame.distinct().toArrow().column(0)
    found = frame.toArrow().column(0)
    # Of a type that has no order in Arrow nobody has a column to ask, and whoever looks for one says so.
    with contextlib.suppress(pa.ArrowNotImplementedError):
        found = found.unique()
    return found


def is_small(frame: DataFrame) -> bool:
    """Would Spark, by its own estimate, send this to everybody in a join?"""
    session: Any = frame.sparkSession
    small = session._jsparkSession.sessionState().conf().autoBroadcastJoinThreshold()
    return estimated_bytes(frame) <= int(small)


def estimated_bytes(frame: DataFrame) -> int:
    """By Spark, which may know better than the size of the files that it reads, or nothing."""
    return int(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())


def key_column(frame: DataFrame, column: str) -> DataFrame:
    """The frame's column of keys, alone."""
    from pyspark.sql import functions as f

    return frame.select(f.col(quoted(_one_of(frame.columns, column))))


def quoted(name: str) -> str:
    """One name as SQL has it: dots and backticks in it are part of the name."""
    return f"`{name.replace('`', '``')}`"


def _one_of(names: list[str], column: str) -> str:
    if len(names) == 1:
        return names[0]
    alike = [name for name in names if name.lower() == column.lower()]
    if len(alike) != 1:
        raise UsageError("which column holds the keys?", column=column, hint="one column, or one of this name")
    return alike[0]


def _cipher(file: SealedFile, leaf: int, salt: bytes) -> ModuleCipher | None:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    walk = file.walk
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
