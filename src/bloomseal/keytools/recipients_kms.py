"""Wrapping to a policy's recipients, and unwrapping by the KMS of its readers, as one KMS client."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace

from ..core.errors import BloomsealError, UsageError
from ..core.keys.access import KmsAccessError, Problem
from ..core.keys.protocols import KmsClient
from .keyring.keyring import Keyring
from .kms.calls import answers_at_once, client_of, need_name
from .kms_protocols import DescribingKms, KeyState, MasterKeyFacts, MasterVersion
from .recipients.recipient import Recipient, recipients_of, seal_to_all, version_name


class RecipientsKms:
    """A KMS client that wraps to recipients, and unwraps by another client, if there is one: by itself it holds no
    secret.

    Args:
        recipients: master key → lines, as ``bloomseal keyring recipient`` prints them. Keys under other master keys are
            the reader's affair.
        reader: the client, or the URI, of the KMS that has the private keys; it is not gone to before something is to
            be opened. None: the keyring that the environment names, or none.

    Raises:
        PolicyError, KeyAccessError: as `recipients_of`; or a name that no file can hold.
    """

    kms_name = "the policy"

    def __init__(self, recipients: Mapping[str, Iterable[str]], reader: KmsClient | str | None = None) -> None:
        if isinstance(reader, str) and reader.startswith("recipients:"):
            reader = from_uri(reader)
        inner = reader if isinstance(reader, RecipientsKms) else None
        self.recipients: dict[str, tuple[Recipient, ...]] = {} if inner is None else dict(inner.recipients)
        for name, lines in recipients.items():
            need_name(name, self.kms_name)
            self.recipients[name] = recipients_of(lines)
        self._given: KmsClient | str | None = reader if inner is None else inner._given
        self._found: KmsClient | None = None

    @property
    def reader(self) -> KmsClient | None:
        """Who unwraps; None where this process only writes.

        Raises:
            BloomsealError: the KMS that was named can't be used.
        """
        if self._found is None and (given := self._given or self._of_environment()) is not None:
            self._found = client_of(given)
        return self._found

    @property
    def writes_only(self) -> bool:
        """Nobody was named who could unwrap."""
        return self._given is None and self._of_environment() is None

    @property
    def answers_at_once(self) -> bool:
        """Sealing asks nobody; what opens may."""
        return self.writes_only if self._found is None else answers_at_once(self._found)

    @staticmethod
    def _of_environment() -> str | None:
        return "keyring:" if os.environ.get("BLOOMSEAL_KEYRING") else None

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        """As `KmsClient.wrap_key`."""
        if (known := self.recipients.get(master_key_identifier)) is not None:
            return seal_to_all(known, key_bytes, master_key_identifier)
        return self._need_reader(master_key_identifier).wrap_key(key_bytes, master_key_identifier)

    def wrap_own(self, key_bytes: bytes, master_key_identifier: str) -> str:
        """By the reader's private key, as `Keyring.wrap_own`."""
        reader = self._need_reader(master_key_identifier)
        return (reader.wrap_own if isinstance(reader, Keyring) else reader.wrap_key)(key_bytes, master_key_identifier)

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        """As `KmsClient.unwrap_key`."""
        return self._need_reader(master_key_identifier).unwrap_key(wrapped_key, master_key_identifier)

    def describe(self, master_key_identifier: str, wrapped_key: str | None = None) -> MasterKeyFacts:
        """As `DescribingKms.describe`: who can wrap is the policy's word, and all else that of the reader, if it can be
        asked.
        """
        known = self.recipients.get(master_key_identifier)
        told = MasterKeyFacts(master_key_identifier, state=None if known is None else KeyState.ENABLED)
        try:
            if isinstance(reader := self.reader, DescribingKms):
                told = reader.describe(master_key_identifier, wrapped_key)
        except BloomsealError:
            if known is None:
                raise
        if known is None:
            return told
        return replace(told, current=version_name(known), authenticates_writers=False)

    def opened_by(self, wrapped_key: str, master_key_identifier: str) -> MasterVersion | None:
        """As `DescribingKms.opened_by`."""
        reader = self._need_reader(master_key_identifier)
        return reader.opened_by(wrapped_key, master_key_identifier) if isinstance(reader, DescribingKms) else None

    def change_marker(self) -> Hashable:
        """The reader's, once there is one."""
        marker = getattr(self._found, "change_marker", None)
        return marker() if callable(marker) else None

    @property
    def uri(self) -> str:
        """Another process makes the same client of it.

        Raises:
            UsageError: the reader is an object.
        """
        if not isinstance(self._given, str | None):
            raise UsageError(
                "the policy's KMS is an object, which can't reach the executors", hint="name it by its URI"
            )
        lines = {name: [one.line for one in known] for name, known in self.recipients.items()}
        text = json.dumps({"recipients": lines, "kms": self._given})
        return "recipients:" + base64.urlsafe_b64encode(text.encode()).decode("ascii")

    def _need_reader(self, master_key: str) -> KmsClient:
        if (reader := self.reader) is not None:
            return reader
        raise KmsAccessError.because(
            Problem.DENIED,
            master_key,
            self.kms_name,
            detail="this policy only writes",
            hint="a reader needs kms = ..., or BLOOMSEAL_KEYRING: a keyring with the recipients' private keys",
        )

    def __repr__(self) -> str:
        return f"<RecipientsKms: {', '.join(sorted(self.recipients))}>"


def from_uri(uri: str) -> RecipientsKms:
    """The client that `RecipientsKms.uri` was of.

    Raises:
        UsageError: no such URI.
    """
    try:
        said = json.loads(base64.urlsafe_b64decode(uri.partition(":")[2]))
        return RecipientsKms(said["recipients"], said["kms"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UsageError("no URI of recipients", hint="recipients stand in the policy: [keys.NAME]") from None
