"""The caller's word about the keys that open a file, and about what the file must be."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from .errors import PolicyError, UsageError
from .spelling import named_options


@dataclass(frozen=True)
class IcebergSpec:
    """What the caller expects of an encrypted Iceberg table. The table's metadata are never encrypted, so that nothing
    in them is taken on trust.

    Args:
        encryption_key: the master key that the table must hang from, as ``encryption.key-id`` names it. A table under
            another one, and a plaintext file in the table, are refused.
        min_sequence_number: the least sequence number of the newest manifest; an older state that was put back is
            refused. None: any.
        metadata_hash: SHA-256 of the metadata file in hexadecimal, as a catalog keeps it. None: any.
        allow_unknown_length: accept manifests whose key metadata name no length, as some writers leave them: the
            storage's own word counts then, and a cut behind a block of 1 MiB shows nowhere.
    """

    encryption_key: str
    min_sequence_number: int | None = None
    metadata_hash: str | None = None
    allow_unknown_length: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.encryption_key, str) or not self.encryption_key:
            raise UsageError("encryption_key= takes the name of a master key")
        if not isinstance(self.metadata_hash, str | None):
            raise UsageError("metadata_hash= takes a text of hexadecimal digits")
        if not isinstance(self.min_sequence_number, int | None) or isinstance(self.min_sequence_number, bool):
            raise UsageError("min_sequence_number= takes a number")

    def check_metadata(self, data: bytes) -> None:
        """Whether the metadata file is the one that was pinned.

        Raises:
            PolicyError: it is another one.
        """
        if self.metadata_hash is not None and hashlib.sha256(data).hexdigest() != self.metadata_hash.lower():
            raise PolicyError("the metadata are not those that metadata_hash names")


@named_options
@dataclass(frozen=True)
class DecryptionSpec:
    """The keys that open a file, and the caller's expectations. Handing one over says: this file is encrypted.

    Args:
        keys: `ExplicitKeys`, any `KeyRetriever`, a `Keyring`, a `KeyTools`, a KMS client, or a KMS URI.
        aad_prefix: the prefix that the file must have been written with. Required where the file does not store it,
            compared where it does, refused where the file knows of none.
        encrypted_columns: columns that must be encrypted; a plaintext column or a plaintext filter among them is a
            PolicyError. The columns of `ExplicitKeys.column_keys` are taken as such without saying.
        complete: every column must be encrypted, as `encrypted_columns` has it.
        previous_aad_prefixes: prefixes that older files may have been written with instead.
        allow_plaintext: accept a plaintext file (the key tools of other implementations always do; an attacker who
            may replace files then chooses what is read).
        allow_ctr: open pages under AES_GCM_CTR_V1. Nothing authenticates those, nor, under an encrypted footer, the
            file's word that it is of that algorithm: whoever may alter the file changes chosen values.
        allow_unverified_footer: accept a plaintext footer whose signature can't be checked for want of the footer key.
            Row groups could then be missing, so that *absent* is said of the row groups seen, not of the file.
        int96_utc: INT96 timestamps are canonical UTC instants, so that they can be looked up.
        access_log: who is told of every key that is opened, as for `EncryptionSpec`.
        partition_by: columns whose values stand in the names of folders, or in a table's log, where nothing seals them.
            Of other columns no values are taken from there: any of them could be sealed in the files. Not needed with
            `allow_plaintext`.
        iceberg: what an encrypted Iceberg table must be; `keys` is then the KMS that has its master key. None: no such
            table is opened.
        signers: who may have written the files, a `Signers`; a file that none of them signed is refused before any key
            is asked for. None: anybody.
    """

    keys: Any
    aad_prefix: bytes | str | None = None
    encrypted_columns: Collection[str] = field(default=())
    allow_plaintext: bool = False
    allow_unverified_footer: bool = False
    int96_utc: bool = False
    complete: bool = False
    previous_aad_prefixes: Collection[bytes | str] = field(default=())
    allow_ctr: bool = False
    access_log: Any = None
    partition_by: Collection[str] = field(default=())
    iceberg: IcebergSpec | None = None
    signers: Any = None

    def __post_init__(self) -> None:
        for name in ("encrypted_columns", "partition_by"):
            if isinstance(getattr(self, name), str):
                raise UsageError(f"{name}= takes a list of names")
        if isinstance(self.previous_aad_prefixes, str | bytes):
            raise UsageError("previous_aad_prefixes= takes a list of prefixes")
        object.__setattr__(self, "aad_prefix", as_prefix(self.aad_prefix))
        previous = tuple(prefix for one in self.previous_aad_prefixes if (prefix := as_prefix(one)))
        object.__setattr__(self, "previous_aad_prefixes", previous)

    def __repr__(self) -> str:
        return f"<DecryptionSpec keys: {type(self.keys).__name__}>"


Spec = TypeVar("Spec", bound=DecryptionSpec | None)


def unsigned(spec: Spec) -> Spec:
    """The same without signers: what opens a new file that has not been signed yet."""
    return spec if spec is None or spec.signers is None else replace(spec, signers=None)


def as_prefix(prefix: bytes | str | None) -> bytes | None:
    """An AAD prefix as bytes; None for an empty one."""
    if not prefix:
        return None
    return prefix.encode() if isinstance(prefix, str) else bytes(prefix)
