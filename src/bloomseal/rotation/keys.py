"""The same data keys under other master keys, or under their current versions.

Re-wrapping goes through the key tools' own bounded calls and cache, so that a rotation asks the KMS no more often than
a reader would: once per distinct KEK, or per wrapped data key under single wrapping.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..core.encryption import SecretKey
from ..core.errors import Hint, UsageError
from ..core.keys.access import KmsAccessError, Problem
from ..core.keys.material import KeyMaterial, material_fields
from ..core.keys.protocols import KmsClient
from ..core.keys.retriever import data_key
from ..keytools.cache import Cache
from ..keytools.keyring.keyring import Keyring
from ..keytools.kms.calls import KmsCalls
from ..keytools.kms.common import claimed_version
from ..keytools.kms_protocols import RewrappingKms
from ..keytools.recipients.recipient import parse_sealed
from ..keytools.recipients_kms import RecipientsKms
from ..keytools.sources import as_key_source
from ..keytools.tools import KeyTools
from ..policy import TablePolicy

Target = Callable[[str, str | None], str | None]
"""A master key's name and the column (None: the footer) → the master key that is to wrap it; None leaves it alone."""

Wrapping = tuple[str, str, str]
"""Master key, wrapped text, new master key: what one re-wrapping by the KMS is about."""


def mapped(master_keys: Mapping[str, str] | None) -> Target:
    """Old name → new name; others are left alone. None: every key under the current version of its own master key."""
    if master_keys is None:
        return lambda master_key, column: master_key  # noqa: ARG005
    return lambda master_key, column: master_keys.get(master_key)  # noqa: ARG005


def by_policy(table: TablePolicy) -> Target:
    """The master key that the policy names for each column, where the present one is among the accepted ones."""

    def target(master_key: str, column: str | None) -> str | None:
        if column is None:
            accepted = {table.footer_key, *table.previous_footer_keys}
            return table.footer_key if master_key in accepted else None
        return table.master_key(column)

    return target


def target_of(decryption: object, master_keys: Mapping[str, str] | None) -> Target:
    """`mapped`, or `by_policy` where that is what the caller gave to open files with."""
    if master_keys is None and isinstance(decryption, TablePolicy):
        return by_policy(decryption)
    return mapped(master_keys)


def key_tools(keys: Any) -> KeyTools:
    """The key tools behind whatever a caller gives for ``keys=``.

    Raises:
        UsageError: it has no master keys.
    """
    source = as_key_source(keys)
    if isinstance(source, KeyTools):
        return source
    raise UsageError(
        f"{type(keys).__name__} has no master keys, so nothing is wrapped that could be wrapped anew",
        hint=Hint.KEYS_TO_WRAP,
    )


def with_material(text: str | bytes, material: KeyMaterial) -> str:
    """Key material's JSON with its wrapping exchanged; fields that are not ours ride along."""
    fields = material_fields(text)
    fields["masterKeyID"] = material.master_key
    fields["wrappedDEK"] = material.wrapped_dek
    if material.double_wrapping:
        fields["wrappedKEK"] = material.wrapped_kek
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)


class Rewrapper:
    """Wraps keys anew; remembers what it has wrapped, so that files under one KEK cost one call.

    Args:
        keys: as for `bloomseal.DecryptionSpec`, with master keys behind it.
        target: which master key is to wrap which key.
        check_keys: unwrap every new wrapping and compare, also where the KMS re-wraps without showing the key. Where it
            doesn't re-wrap, the key is in this process anyway and this is always done.
    """

    def __init__(self, keys: Any, target: Target, *, check_keys: bool = False) -> None:
        self.tools = key_tools(keys)
        self.check_keys = check_keys
        self._target = target
        # Of files that are done at the same time, one asks the KMS, and the others wait for its answer.
        self._current: Cache[str | None] = Cache(math.inf, denial_lifetime=0)
        self._done: Cache[str] = Cache(math.inf, denial_lifetime=0)

    def due(self, material: KeyMaterial, column: str | None, calls: KmsCalls) -> str | None:
        """The master key that is to wrap `material`'s key; None where nothing is to be done.

        Raises:
            PolicyError: the policy accepts the old or the new master key not.
            KeyAccessError: the KMS does not tell its current version.
        """
        new = self._target(material.master_key, column)
        if new is None:
            return None
        if (pins := self.tools.pins) is not None:
            pins.check(material.master_key, column)
            pins.check(new, column)
        if new == material.master_key:
            client = calls.client
            if calls.writes_for_others(new) and parse_sealed(_wrapped(material)) is None and _of_keyring(client):
                return None  # an index's, which is not for recipients to be written by
            had = self.version(material)
            if had is not None and had == self.current_version(new, calls):
                return None
        return new

    def version(self, material: KeyMaterial) -> str | None:
        """The version of the master key that wraps it, by the wrapped text; None where that names none."""
        return claimed_version(_wrapped(material))

    def current_version(self, master_key: str, calls: KmsCalls) -> str | None:
        """The version, or the recipients, that new keys are wrapped for now; asked for once."""
        return self._current.get((id(calls), master_key), lambda: calls.describe(master_key).current)

    def wrapping(self, material: KeyMaterial, new: str) -> Wrapping:
        """What the KMS would be asked; equal for keys that share a KEK."""
        return material.master_key, _wrapped(material), new

    def cost(self, calls: KmsCalls) -> int:
        """Calls to the KMS for one wrapping, at most."""
        server_side = isinstance(calls.client, RewrappingKms)
        return (1 if server_side else 3) + (2 if server_side and self.check_keys else 0)

    def rewrap(self, material: KeyMaterial, new: str, calls: KmsCalls) -> KeyMaterial:
        """`material` under master key `new`. Under double wrapping the KEK is what is wrapped anew.

        Raises:
            KeyAccessError: the KMS refuses, can't be reached, or answers with something else than the same key.
        """
        wrapping = self.wrapping(material, new)
        wrapped = self._done.get((id(calls), wrapping), lambda: self._rewrap(wrapping, calls))
        if material.double_wrapping:
            return replace(material, master_key=new, wrapped_kek=wrapped)
        return replace(material, master_key=new, wrapped_dek=wrapped)

    def unwrap(self, material: KeyMaterial, calls: KmsCalls) -> SecretKey:
        """The data key."""
        return data_key(material, functools.partial(self.tools.unwrap, calls=calls))

    def _rewrap(self, wrapping: Wrapping, calls: KmsCalls) -> str:
        master_key, old, new = wrapping
        client, tools = calls.client, self.tools
        if isinstance(client, RewrappingKms):
            wrapped = calls.rewrap(old, master_key, new)
            tools.check_writer(wrapped, new, calls)
            if not self.check_keys:
                return wrapped
        else:
            wrapped = calls.wrap(tools.unwrap(old, master_key, calls), new)
        # A wrapping that holds another key, once it has replaced the old one, would be the loss of the file.
        if tools.unwrap(wrapped, new, calls) != tools.unwrap(old, master_key, calls):
            raise KmsAccessError.because(Problem.INVALID, new, calls.name, detail="it wrapped another key")
        return wrapped


def _of_keyring(client: KmsClient) -> bool:
    return isinstance(client, RecipientsKms) and isinstance(client.reader, Keyring)


def _wrapped(material: KeyMaterial) -> str:
    return material.wrapped_kek if material.wrapped_kek is not None else material.wrapped_dek
