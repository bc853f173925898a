"""Local keys of ORC files, opened by master keys that are at hand or by a KMS (`LocalKeyKms`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, cast

from ..core.encryption import SecretKey
from ..core.errors import UsageError
from ..core.keys.access import KmsAccessError, Problem
from ..core.keys.pins import Pins
from ..core.keys.protocols import KmsClient
from ..core.keys.wrapping import open_by_ctr
from ..core.text import articled
from .keyring.keyring import Keyring
from .kms.calls import KmsCalls
from .kms_protocols import LocalKeyKms
from .tools import KeyTools


def version_of(client: object, number: int) -> str:
    """The KMS's own name for a version that an ORC file names: the files count from 0, a keyring from 1."""
    return str(number + isinstance(client, Keyring))


class MasterKeys:
    """Master keys that the caller holds, for encrypted ORC columns.

    Args:
        keys: name → key, or its versions from 0 on; None for a version that is gone.

    Raises:
        KeyAccessError: a key whose length no AES key has.
        UsageError: a value that is no key.
    """

    kms_name = "the master keys given"
    answers_at_once = True

    def __init__(self, keys: Mapping[str, bytes | SecretKey | Sequence[bytes | SecretKey | None]]) -> None:
        self._keys = {name: _versions(name, given) for name, given in keys.items()}

    def open_local_key(self, encrypted_key: bytes, master_key_identifier: str, version: int) -> bytes:
        """As `LocalKeyKms`. Raises KmsAccessError."""
        versions = self._known(master_key_identifier)
        if version >= len(versions) or (key := versions[version]) is None:
            raise KmsAccessError.because(
                Problem.UNKNOWN, master_key_identifier, self.kms_name, detail=f"version {version}"
            )
        return open_by_ctr(encrypted_key, key)

    def newest_version(self, master_key_identifier: str) -> int:
        """The last one given. Raises KmsAccessError."""
        return len(self._known(master_key_identifier)) - 1

    def _known(self, name: str) -> list[SecretKey | None]:
        if name not in self._keys:
            raise KmsAccessError.because(Problem.UNKNOWN, name, self.kms_name)
        return self._keys[name]

    def __repr__(self) -> str:
        return f"<MasterKeys {', '.join(sorted(self._keys))}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("MasterKeys are never pickled; let each process get its own keys")


def _versions(name: str, given: Any) -> list[SecretKey | None]:
    versions = [given] if isinstance(given, bytes | bytearray | SecretKey) else given
    if isinstance(versions, str) or not isinstance(versions, Sequence) or not versions:
        raise UsageError(f"master key {name}: a key as bytes, or a list of its versions")
    return [one if one is None or isinstance(one, SecretKey) else SecretKey(bytes(one)) for one in versions]


class LocalKeyCalls:
    """Calls to a `LocalKeyKms`: bounded in time, repeated where that helps, failing with our errors only.

    Args:
        pins: the master keys that were agreed on; None: any.
        calls: of key tools over the client, with their times and counters; None: own ones.
    """

    def __init__(self, client: LocalKeyKms, pins: Pins | None = None, calls: KmsCalls | None = None) -> None:
        self._client, self._pins = client, pins
        self._calls = calls or KmsCalls(cast(KmsClient, client), timeout=30.0, attempts=4, max_parallel=16)

    def check(self, master_key: str, column: str) -> None:
        """Whether the column is under a master key that was agreed on. Whoever may write files could else name one of
        his.

        Raises:
            PolicyError: it is not.
        """
        if self._pins is not None:
            self._pins.check(master_key, column)

    def open(self, encrypted_key: bytes, master_key: str, version: int) -> SecretKey:
        """The local key.

        Raises:
            KeyAccessError: refused, unreachable, or an answer of another length.
        """
        key = self._calls.ask("unwraps", master_key, self._client.open_local_key, encrypted_key, master_key, version)
        if not isinstance(key, bytes | bytearray) or len(key) != len(encrypted_key):
            raise KmsAccessError.because(
                Problem.INVALID, master_key, self._calls.name, detail="it returned no key of the right length"
            )
        return SecretKey(bytes(key))

    def open_again(self, encrypted_key: bytes, master_key: str, version: int, key: SecretKey) -> None:
        """Whether the KMS gives this local key once more. A file that is rewritten under it opens by no other.

        Raises:
            KeyAccessError: it does not.
        """
        if self.open(encrypted_key, master_key, version) != key:
            raise KmsAccessError.because(
                Problem.INVALID, master_key, self._calls.name, detail="it opened one local key to two keys"
            )

    def version_of(self, number: int) -> str:
        """As the function of this name."""
        return version_of(self._client, number)

    def newest_version(self, master_key: str) -> int:
        """The version for new local keys.

        Raises:
            KeyAccessError: refused, unreachable, or no number.
        """
        version = self._calls.ask("checks", master_key, self._client.newest_version, master_key)
        if not isinstance(version, int) or version < 0:
            raise KmsAccessError.because(Problem.INVALID, master_key, self._calls.name, detail="it returned no version")
        return version


def local_key_calls(keys: Any) -> LocalKeyCalls:
    """From what a caller gives for ``keys=``: a `Keyring`, `MasterKeys`, a KMS URI, a `LocalKeyKms`, key tools over
    one, or a policy's keys.

    Raises:
        UsageError: nothing that opens local keys.
    """
    if isinstance(keys, str | KmsClient):
        from .sources import as_key_source

        keys = as_key_source(keys)
    client = keys.kms if isinstance(keys, KeyTools) else keys
    if not isinstance(client, LocalKeyKms):
        raise UsageError(
            f"{articled(type(keys).__name__)} can't open the columns of ORC files",
            hint="a Keyring, MasterKeys, or the URI of a keyring or a Hadoop KMS",
        )
    return LocalKeyCalls(client, keys.pins, keys.calls) if isinstance(keys, KeyTools) else LocalKeyCalls(client)
