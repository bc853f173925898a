"""The seams: who finds a file's keys (readers, writers) and who guards master keys (KMS clients).

Every interface is structural: an object with the right methods will do, whatever class it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from ..encryption import SecretKey
from ..errors import BloomsealError
from ..storage.ref import FileRef


@runtime_checkable
class KeyRetriever(Protocol):
    """Key metadata → data key. The reader needs no more than this.

    One that knows which columns have keys of their own also has ``check_under_footer_key(key_metadata, column)``. It is
    called where a column says that it is under the footer key, whose key metadata this is, and raises PolicyError if it
    was to be under a key of its own. One that doesn't know leaves it to the file.
    """

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

    def confirm(self) -> set[str] | None:
        """Called before a new file takes the place of the one that it was made from: do the keys that somebody else
        has wrapped lead back to the keys?

        Returns:
            Master keys of which nobody here could tell, since others open what they wrap.

        Raises:
            KeyAccessError: they don't, or it can't be told.
        """
        ...

    def store(self) -> None:
        """Make key material that lives outside the file durable. Call it after the last `new_key` and before the data
        file is renamed into place: a file without its material can't be read, material without its file harms nobody.
        """
        ...

    def commit(self) -> None:
        """The data file is in place: drop the material that only its predecessor needed. Leaving it out harms
        nobody.
        """
        ...

    def discard(self) -> None:
        """Writing failed: undo what `store` left behind. May be called at any time, also twice."""
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

    One that notices, at no cost, that its keys have changed also has ``change_marker()``: some value that differs from
    an earlier one if keys were made, rotated, disabled or destroyed in between. Cached keys are then asked for again.
    """

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        """`key_bytes` (16, 24 or 32) sealed under the master key's current version, as text."""
        ...

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        """What `wrap_key` was given."""
        ...


@dataclass(frozen=True, slots=True)
class KeyDescription:
    """What key metadata tells without any key.

    Attributes:
        master_key: the master key's identifier.
        internal: the material stands in the file itself.
        reference: the material's name in the external store; None where it is internal.
        is_footer_key: as the material says.
        kek_id: base64 of the KEK's 16-byte id; None under single wrapping.
        kms_instance_url: the KMS's address by the writer's account; footer keys only.
        wrapping_version: the master key's version that wrapped the key, where the wrapped text claims one.
    """

    master_key: str
    internal: bool
    reference: str | None
    is_footer_key: bool
    kek_id: str | None
    kms_instance_url: str | None
    wrapping_version: str | None

    @property
    def double_wrapping(self) -> bool:
        return self.kek_id is not None


def wrapped_by(keys: Any, key_metadata: bytes) -> KeyDescription | None:
    """What a file's keys (`ToolsFileKeys.describe`) tell of key metadata; None where they don't. Costs no call."""
    describe = getattr(keys, "describe", None)
    try:
        told: KeyDescription | None = None if describe is None else describe(key_metadata)
    except BloomsealError:
        return None
    return told
