"""The caller's word about the keys to write with, and what a policy says of one file, as specifications."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, cast, overload

from .core.decryption import DecryptionSpec, as_prefix
from .core.encryption import Algorithm, SecretKey
from .core.errors import Hint, UsageError
from .core.keys.explicit import ExplicitKeys
from .core.spelling import named_options
from .core.storage.ref import FileRef
from .core.text import articled

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

    from .policy import PolicyChoice, TablePolicy
    from .storage.logs.iceberg_keys import IcebergFileKey, UnwrapBytes

KeyChoice = str | bytes | SecretKey | tuple[bytes | SecretKey, bytes | str]
"""A master key's name (str), a data key, or a data key with the key metadata to store for it."""


@named_options
@dataclass(frozen=True)
class EncryptionSpec:
    """The keys and modes that encrypt a file.

    Args:
        footer_key: key of the footer, and of every column "under the footer key".
        column_keys: dotted column path → its key; a path above several leaves covers them all. None or empty: uniform
            encryption, every column under the footer key.
        keys: where master keys named by a str come from: a `Keyring`, a `KeyTools`, any KMS client, or a KMS URI.
        algorithm: ``AES_GCM_V1``, or ``AES_GCM_CTR_V1`` (pages by CTR: faster in the JVM, but not authenticated).
        plaintext_footer: leave the footer readable and signed, for readers that know no encryption. Schema, row counts
            and key-value metadata are then open to everybody.
        complete: with `column_keys`, seal all other columns under the footer key instead of leaving them in plaintext.
        aad_prefix: identity of the file (for instance table and file name), bound into every module.
        store_aad_prefix: keep the prefix in the file. Without it readers must supply it, so that a file put in another
            one's place does not open.
        key_bits: length of fresh data keys: 128, 192 or 256.
        access_log: who is told of every key that is made: a path for JSON lines, a callable, a `logging.Logger` or
            ``logging:NAME`` (`bloomseal.keytools.access_log`). None: nobody.
        signers: who may write the table, and who signs here, a `Signers`. None: nothing is signed.

    Raises:
        UsageError: contradicting arguments.
    """

    footer_key: KeyChoice
    column_keys: Mapping[str, KeyChoice] | None = None
    keys: Any = None
    algorithm: Algorithm | str = Algorithm.AES_GCM_V1
    plaintext_footer: bool = False
    complete: bool = False
    aad_prefix: bytes | str | None = None
    store_aad_prefix: bool = True
    key_bits: int = 128
    access_log: Any = None
    signers: Any = None

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "algorithm", Algorithm(self.algorithm))
        except ValueError:
            raise UsageError(f"unknown algorithm {self.algorithm}", hint=" or ".join(Algorithm)) from None
        object.__setattr__(self, "aad_prefix", as_prefix(self.aad_prefix))
        if self.key_bits not in (128, 192, 256):
            raise UsageError(f"AES has no keys of {self.key_bits} bits", hint="128, 192 or 256")
        # From here on a data key is an object that shows a fingerprint and refuses to be pickled.
        object.__setattr__(self, "footer_key", _kept(self.footer_key))
        if self.column_keys is not None:
            if not isinstance(self.column_keys, Mapping):
                raise UsageError(f"column_keys= takes a dict, not {type(self.column_keys).__name__}")
            object.__setattr__(self, "column_keys", {name: _kept(key) for name, key in self.column_keys.items()})
        named = [self.footer_key, *(self.column_keys or {}).values()]
        if self.keys is None and any(isinstance(choice, str) for choice in named):
            raise UsageError(
                "a key given as a str is a master key's name, and there is nothing to look it up in",
                hint=Hint.KEYS_TO_WRITE,
            )

    def __repr__(self) -> str:
        return (
            f"<EncryptionSpec {self.algorithm}, {'plaintext' if self.plaintext_footer else 'encrypted'} footer, "
            f"columns: {', '.join(sorted(self.column_keys or {})) or 'all (uniform)'}>"
        )


class PolicyArguments(TypedDict, total=False):
    """A policy in the place of a specification, in every call that reads or writes.

    Attributes:
        policy: a policy file's path, a `Policy`, or a table's policy; ``decryption=`` and ``encryption=`` take these.
        table: the table's name there. Not needed where there is one table, nor where what is read or written lies in
            the ``root`` of one.
    """

    policy: PolicyChoice | None
    table: str | None


Spec = TypeVar("Spec", DecryptionSpec, EncryptionSpec)


def resolve_policy(
    kind: type[Spec],
    given: Spec | PolicyChoice | None,
    place: Any = (),
    filesystem: FileSystem | None = None,
    *,
    policy: PolicyChoice | None = None,
    table: str | None = None,
) -> Spec | TablePolicy | None:
    """The one rule of what a caller means by ``decryption=`` or ``encryption=``, and by `PolicyArguments`.

    Args:
        given: a specification of this kind, or what `policy` may be.
        place: what is read or written, on `filesystem`: a path, or several.

    Returns:
        The specification; or the policy of one table, found as `Policy.for_table` does.

    Raises:
        UsageError: both, neither of them, or a table of no policy. And as `Policy.load` and `Policy.for_table`.
    """
    name = "decryption=" if kind is DecryptionSpec else "encryption="
    if policy is not None and given is not None:
        raise UsageError(f"policy= says all that {name} does", hint="one of the two")
    chosen = given if policy is None else policy
    if chosen is None or isinstance(chosen, kind):
        if table is None:
            return chosen
        raise UsageError("table= names a table of a policy", hint="policy=")
    from .policy import Policy, TablePolicy, table_policy

    path = isinstance(chosen, str) and (":" not in chosen or os.path.exists(chosen))  # noqa: PTH110  # or a KMS
    if path or isinstance(chosen, os.PathLike | Policy | TablePolicy):
        return table_policy(cast("PolicyChoice", chosen), table, place, filesystem)
    hint = "DecryptionSpec(keys=...)" if kind is DecryptionSpec else "EncryptionSpec(footer_key, keys=...)"
    raise UsageError(f"{name} takes {articled(kind.__name__)} or a policy, not {type(chosen).__name__}", hint=hint)


@overload
def encryption_for(encryption: EncryptionSpec | TablePolicy, file: FileRef | str) -> EncryptionSpec: ...
@overload
def encryption_for(encryption: EncryptionSpec | TablePolicy | None, file: FileRef | str) -> EncryptionSpec | None: ...
def encryption_for(encryption: EncryptionSpec | TablePolicy | None, file: FileRef | str) -> EncryptionSpec | None:
    """A policy's specification for one file of its table; specifications pass through.

    Args:
        file: its final place, never that of a temporary file: an AAD prefix may be made of it.
    """
    if encryption is None or isinstance(encryption, EncryptionSpec):
        return encryption
    return EncryptionSpec(**encryption.encryption_arguments(file))


@overload
def decryption_for(decryption: DecryptionSpec | TablePolicy, file: FileRef | str) -> DecryptionSpec: ...
@overload
def decryption_for(decryption: DecryptionSpec | TablePolicy | None, file: FileRef | str) -> DecryptionSpec | None: ...
def decryption_for(decryption: DecryptionSpec | TablePolicy | None, file: FileRef | str) -> DecryptionSpec | None:
    """As `encryption_for`, to read with."""
    if decryption is None or isinstance(decryption, DecryptionSpec):
        return decryption
    return DecryptionSpec(**decryption.decryption_arguments(file))


def decryption_of_iceberg_file(
    decryption: DecryptionSpec | TablePolicy, file: FileRef, key: IcebergFileKey
) -> DecryptionSpec:
    """How a data file of an encrypted Iceberg table is read: everything in it is under the one key that its manifest
    names, and its AAD prefix is not stored.
    """
    given = decryption_for(decryption, file)
    return replace(
        given,
        keys=ExplicitKeys(key.key),
        aad_prefix=key.prefix,
        previous_aad_prefixes=(),
        complete=True,
        allow_plaintext=False,
        iceberg=None,
    )


def iceberg_unwrap(decryption: DecryptionSpec | TablePolicy) -> UnwrapBytes:
    """The KMS that has the master key of an encrypted Iceberg table.

    Raises:
        UsageError: the keys that were given come from no KMS.
    """
    from .keytools.sources import as_key_source
    from .keytools.tools import KeyTools

    tools = as_key_source(decryption.keys)
    if not isinstance(tools, KeyTools):
        raise UsageError(
            "the keys of an encrypted Iceberg table hang from a master key in a KMS",
            hint="keys= a KMS client, a Keyring or a KMS URI",
        )
    return tools.unwrap_bytes


def _kept(choice: Any) -> KeyChoice:
    """A key choice whose data key, if it has one, is a SecretKey."""
    match choice:
        case str() | SecretKey():
            return choice
        case bytes() | bytearray() | memoryview():
            return SecretKey(bytes(choice))
        case (SecretKey() | bytes() | bytearray() | memoryview() as key, bytes() | bytearray() | str() as metadata):
            return _kept(key), metadata if isinstance(metadata, str) else bytes(metadata)  # type: ignore[return-value]
        case (_, _):
            raise UsageError("a pair is a data key and its key metadata", hint="the data key as bytes")
        case _:
            raise UsageError(f"a key is a master key's name, or a data key as bytes, not {type(choice).__name__}")
