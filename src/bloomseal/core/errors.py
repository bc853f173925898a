"""The errors of Bloomseal, drawn and then defined.

::

    BloomsealError                what, where (file, row group, column, module), what to try
    ├─ FormatError                the bytes break the specification: truncated, thrift, limit exceeded
    ├─ UnsupportedError           lawful, but not ours: algorithm, hash, compression
    ├─ IntegrityError             authentication failed; wrong key, wrong place or altered bytes give one answer
    ├─ KeyAccessError             key metadata, no such key, access denied, KMS unavailable (retryable), call limit
    ├─ PolicyError                plaintext where encryption is required, wrong AAD prefix, key not allowed
    ├─ UsageError(ValueError)     column not found, value does not fit the column's type
    │  └─ MissingFileError(FileNotFoundError)   no such file
    └─ MissingDependencyError     names the extra to install

No other exception type leaves the package for any input file. No message carries key bytes, a wrapping
token, a probed value or a computed tag.
"""

from __future__ import annotations

import errno
import os
from enum import StrEnum
from typing import Any, Self

from .text import safe_text

_PLACES = ("file", "row_group", "column", "module")


class Hint(StrEnum):
    """Hints that name arguments of the Python API. Another interface has words of its own for each of them."""

    INT96_US = 'int96_unit="us"'
    INT96_NS = 'int96_unit="ns"'
    KEYS = "policy=, or decryption=DecryptionSpec(keys=...)"
    KEYS_TO_WRITE = "keys=bloomseal.Keyring(...), or the data key itself as bytes"
    KEYS_BY_NAME = "keys= a Keyring or KMS, or give the data keys themselves as bytes"
    FOOTER_KEY = "footer_key="
    COLUMN_KEY = "column_keys=, or keys_by_id="
    KMS_OF_FILE = "if you trust it: KeyTools(kms, allowed_urls=[...])"
    OPEN_KEYRING = "Keyring(path, passphrase=...) or BLOOMSEAL_KEYRING_PASSPHRASE"
    CREATE_KEYRING = "bloomseal keyring create, or Keyring(path, create=True)"
    KEY_EXISTS = "exist_ok=True, rotate it, or choose another name"
    SEAL = "seal_file(path, encryption=policy)"
    PLAINTEXT = "leave out decryption=, or DecryptionSpec(allow_plaintext=True)"
    CTR = 'allow_ctr=True, or algorithm = "AES_GCM_CTR_V1" in the policy'
    AAD_PREFIX = "the table's policy and its root, or DecryptionSpec(aad_prefix=)"
    NO_AAD_PREFIX = "aad_prefix=None"
    TABLE_ROOT = "root in the policy, Policy.for_table(name, root=FOLDER), or open the folder as a table"
    TABLE = "table=, or Policy.for_table(name)"
    VERIFIED_FOOTER = "the footer key, or allow_unverified_footer=True"
    ATTACH = "attach_filters, and ask who wrote to the file"
    REBUILD_FILTERS = "rebuild_filters=True, and ask who wrote the file"
    PROBE = "probe() asks its filters"
    SIZE_TO_HIDE = "ndv= or num_bytes= beside hide_size=True"
    HIDDEN_SIZE = "a greater ndv= or num_bytes=, a higher fpp=, or smaller row groups"
    ROW_GROUP_SIZE = "row_group_size= alone decides its rows"
    EXISTING = 'mode="append" or "overwrite"'
    OVERWRITE = "another place, or overwrite=True"
    UNSEAL_PLACE = "output=, or in_place=True"
    OUTPUT = "output="
    FOLLOW_LINKS = "look at the link; follow_links=True"
    NO_PARTITIONS = "see who made the folder; open_table(partitions=False) leaves its name alone"
    PARTITION_BY = 'if it is in no file: partition_by=["COLUMN"] in the policy or the DecryptionSpec'
    WITHOUT_COLUMN = "columns=[...] without it"
    CONDITION = "where="
    MANY_VALUES = '[("column", "in", values)] takes many'
    KEYS_TO_WRAP = "keys= a Keyring, KeyTools or a KMS; or rekey"
    ENCRYPTION = "encryption="
    JOURNAL = "another place: journal="
    ACCESS_LOG = "access_log=, or access_log in the policy"
    SIGNER = "signer=, or BLOOMSEAL_SIGNER"
    OWN_WRITERS = "KeyTools(kms, authentic_writers=True)"


class BloomsealError(Exception):
    """Root of all errors: what happened, where, and what to try next.

    Args:
        what: one sentence without the place.
        file, row_group, column, module: the place, as far as it is known. `row_group` is an index from 0,
            `column` a dotted path, `module` a module's name such as ``"Bloom filter header"``.
        hint: what the reader of the message can try next.
    """

    def __init__(
        self,
        what: str,
        *,
        file: str | None = None,
        row_group: int | None = None,
        column: str | None = None,
        module: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.file = file
        self.row_group = row_group
        self.column = column
        self.module = module
        self.hint = hint

    def at(self, **place: Any) -> Self:
        """Fill in the parts of the place that are not known yet; outer layers know more than inner ones."""
        for name in _PLACES:
            if getattr(self, name) is None and place.get(name) is not None:
                setattr(self, name, place[name])
        return self

    def __str__(self) -> str:
        place = [f"{name.replace('_', ' ')} {value}" for name in _PLACES if (value := getattr(self, name)) is not None]
        text = self.what
        if place:
            text += f" ({', '.join(place)})"
        if self.hint:
            text += f". Try: {self.hint}"
        # Names of columns, keys and files stand in it: none of them may forge a line or steer a terminal.
        return safe_text(text)

    def to_dict(self) -> dict[str, Any]:
        """The error as plain data, for ``--format json`` and reports."""
        return {
            "error": type(self).__name__,
            "what": self.what,
            **{name: getattr(self, name) for name in _PLACES},
            "hint": self.hint,
        }

    def __reduce__(self) -> tuple[Any, ...]:
        # Executors send errors back by pickle; keyword arguments need help to survive it.
        return (_rebuild, (type(self), self.what, {k: v for k, v in self.__dict__.items() if k != "what"}))


class FormatError(BloomsealError):
    """The bytes break the specification: truncated, broken Thrift, or a limit of `bloomseal.core.limits` exceeded."""


class UnsupportedError(BloomsealError):
    """Lawful, but not ours: an unknown encryption algorithm, hash or compression."""


class IntegrityError(BloomsealError):
    """Authentication failed. A wrong key, a wrong place and altered bytes give this one answer, on purpose."""


class KeyAccessError(BloomsealError):
    """A key could not be had: bad key metadata, not found, denied, KMS unavailable, or invocation limit reached.

    `retryable` is True only where the same call may succeed later (the KMS did not answer). `unauthentic` is True where
    what the file holds for the key was asked for, and does not open: altered, or wrapped by somebody under another key.
    `lacking` is True where this reader has no such key: none was given, or the KMS refuses it or has it no more.
    """

    def __init__(
        self, what: str, *, retryable: bool = False, unauthentic: bool = False, lacking: bool = False, **rest: Any
    ) -> None:
        super().__init__(what, **rest)
        self.retryable = retryable
        self.unauthentic = unauthentic
        self.lacking = lacking


class PolicyError(BloomsealError):
    """The file or the call breaks a rule that the caller set: plaintext where encryption is required, a wrong AAD
    prefix, a key or KMS address that is not allowed.
    """


class UsageError(BloomsealError, ValueError):
    """The call is wrong: no such column, a value that does not fit the column's type, contradicting options."""


class MissingFileError(UsageError, FileNotFoundError):
    """There is no such file. ``except FileNotFoundError`` catches it too; `errno` is ``ENOENT``, `filename` is
    `file`.
    """

    def __init__(self, what: str, **rest: Any) -> None:
        super().__init__(what, **rest)
        self.errno = errno.ENOENT
        self.strerror = os.strerror(errno.ENOENT)

    @property
    def filename(self) -> str | None:
        return self.file


class MissingDependencyError(BloomsealError):
    """An optional library is not installed; the hint is the ``pip install`` line."""


def _rebuild(kind: type[BloomsealError], what: str, state: dict[str, Any]) -> BloomsealError:
    error = kind(what)
    error.__dict__.update(state)
    return error


class BloomsealWarning(UserWarning):
    """Something in a file proves less than it claims, such as a filter in clear on an encrypted column."""

    def __str__(self) -> str:
        return safe_text(super().__str__())
