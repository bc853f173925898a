"""The seams: who finds a file's keys (readers, writers) and who guards master keys (KMS clients).

Every interface is structural: an object with the right methods will do, whatever class it is.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from ..encryption import SecretKey
from ..storage.ref import FileRef

__all__ = ["CommittingKeys", "ConfirmingKeys", "FileKeys", "KeyRetriever", "KeySource", "KmsClient", "PlacedKeys"]


@runtime_checkable
class KeyRetriever(Protocol):
    """Key metadata → data key. The reader needs no more than this."""

    def retrieve_key(self, key_metadata: bytes, column: str | None) -> bytes | SecretKey:
        """The data key.

        Args:
            key_metadata: the bytes that the file holds for this key; may be empty.
            column: the column's dotted path; None for the footer key.

        Raises:
            KeyAccessError: the key can't be had. Any other exception is taken for a failing retriever.
        """
        ...


@runtime_checkable
class PlacedKeys(Protocol):
    """A retriever that knows which columns have keys of their own. One that doesn't leaves it to the file."""

    def check_under_footer_key(self, key_metadata: bytes, column: str) -> None:
        """A column says that it is under the footer key, whose key metadata this is.

        Raises:
            PolicyError: it was to be under a key of its own.
        """
        ...


@runtime_checkable
class FileKeys(Protocol):
    """The keys of one file, to read with and to write with."""

    def retrieve_key(self, key_metadata: bytes, column: str | None) -> bytes | SecretKey:
        """As `KeyRetriever.retrieve_key`."""
        ...

    def new_key(self, master_key: str, column: str | None, bits: int) -> tuple[SecretKey, bytes]:
        """A fresh data key of `bits` bits wrapped under `master_key`, and the key metadata to store in the file.

        `column` is None for the footer key.
        """
        ...

    def store(self) -> None:
        """Make key material that lives outside the file durable. Call it after the last `new_key` and before the data
        file is renamed into place: a file without its material can't be read, material without its file harms nobody.
        """
        ...

    def discard(self) -> None:
        """Writing failed: undo what `store` left behind. May be called at any time, also twice."""
        ...


@runtime_checkable
class CommittingKeys(Protocol):
    """Keys of one file that keep material beside it, which only the file's predecessor may need."""

    def commit(self) -> None:
        """The data file is in place: drop the material that only its predecessor needed. Leaving it out harms
        nobody.
        """
        ...


@runtime_checkable
class ConfirmingKeys(Protocol):
    """Keys of one file that somebody else has wrapped."""

    def confirm(self) -> None:
        """Called before a new file takes the place of the one that it was made from: do the wrapped keys lead back to
        the keys?

        Raises:
            KeyAccessError: they don't, or it can't be told.
        """
        ...


@runtime_checkable
class KeySource(Protocol):
    """Finds the keys of files."""

    def for_file(self, ref: FileRef, *, writing: bool = False) -> FileKeys:
        """The keys of one file. `writing` says that `new_key` will be called."""
        ...


@runtime_checkable
class KmsClient(Protocol):
    """Guards master keys. Subclasses of ``pyarrow.parquet.encryption.KmsClient`` satisfy it as they are.

    Clients of Bloomseal raise `KmsAccessError`. Of foreign ones, PermissionError is read as *denied*, LookupError as
    *unknown*, TimeoutError and ConnectionError as *unreachable*; anything else as a failure, without its message.
    """

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        """`key_bytes` (16, 24 or 32) sealed under the master key's current version, as text."""
        ...

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        """What `wrap_key` was given."""
        ...
