"""Fresh keys, wrapped by the KMS directly or through key encryption keys; and what it wrapped, read back."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ..core.encryption import SealCounter, SecretKey
from ..core.errors import KeyAccessError
from ..core.keys.access import KmsAccessError, Problem
from ..core.keys.material import KeyMaterial
from ..core.keys.wrapping import Kek, kek_id, unwrap_locally, wrap_locally
from .cache import Cache
from .kms.calls import KmsCalls

_KEK_ID_BYTES: Final = 16

Wrap = Callable[[SecretKey, str], str]
"""A key, and a master key's name → the wrapped key."""


@dataclass(frozen=True, repr=False)
class FreshKeys:
    """Wraps the keys of new files.

    Attributes:
        kms: what wraps.
        double_wrapping, kek_bits, seal_limit: as of `KeyTools`.
        keks: the KEKs in use, by master key.
        confirmed: wrappings that the KMS has given back.
    """

    kms: KmsCalls
    double_wrapping: bool
    kek_bits: int
    seal_limit: int
    keks: Cache[Kek]
    confirmed: Cache[bool]

    def material_for(self, key: SecretKey, master_key: str, wrap: Wrap, own: dict[str, Kek]) -> KeyMaterial:
        """`key` wrapped under `master_key`.

        Args:
            wrap: has the KMS wrap; not kept, since whoever holds it holds keys.
            own: the file's KEKs, by master key: those for recipients serve one file and go with it.

        Raises:
            KeyAccessError: the KMS would not wrap.
        """
        if not self.double_wrapping:
            return KeyMaterial(master_key, wrap(key, master_key), is_footer_key=False)
        kek = self._kek(master_key, wrap, own)
        return KeyMaterial(
            master_key,
            wrap_locally(key, kek.key, kek.id),
            is_footer_key=False,
            kek_id=base64.b64encode(kek.id).decode("ascii"),
            wrapped_kek=kek.wrapped,
        )

    def read_back(self, material: KeyMaterial, key: SecretKey) -> bool:
        """Whether what the KMS has wrapped was seen to lead back to `key`: not where it is for recipients, and nobody
        here is one. It is asked once for each wrapping, past the cache that remembers what was wrapped here.

        Raises:
            KeyAccessError: it leads to another key, or the KMS won't unwrap; see `Problem`.
        """
        if self.kms.writes_only and self.kms.writes_for_others(material.master_key):
            return False  # wrapped here, by nobody else, and nobody here opens it
        wrapped = material.wrapped_kek or material.wrapped_dek

        def load() -> bool:
            try:
                found = self.kms.unwrap(wrapped, material.master_key)
            except KmsAccessError as error:
                if error.problem is Problem.UNKNOWN and self.kms.writes_for_others(material.master_key):
                    return False  # a keyring for the policy's other master keys, or for something else
                raise
            try:
                if material.kek_id is not None:
                    found = unwrap_locally(material.wrapped_dek, found, kek_id(material.kek_id))
                right = found == key
            except KeyAccessError:
                right = False
            if not right:
                self.keks.forget()  # once the KMS is mended, others are made
                raise KmsAccessError.because(
                    Problem.INVALID, material.master_key, self.kms.name, detail="it wrapped another key"
                )
            return True

        return self.confirmed.get(self.kms.place(material.master_key, wrapped), load)

    def forget(self) -> None:
        """Make new key encryption keys, and read back what was wrapped, from now on."""
        self.keks.forget()
        self.confirmed.forget()

    def _kek(self, master_key: str, wrap: Wrap, own: dict[str, Kek]) -> Kek:
        if self.kms.writes_for_others(master_key):
            if (mine := own.get(master_key)) is None or mine.counter.count >= mine.counter.limit:
                mine = own[master_key] = self._new_kek(master_key, wrap)
            return mine
        name = (self.kms.epoch(), master_key)
        kek = self.keks.get(name, lambda: self._new_kek(master_key, wrap))
        if kek.counter.count >= kek.counter.limit:
            self.keks.forget(name)
            kek = self.keks.get(name, lambda: self._new_kek(master_key, wrap))
        return kek

    def _new_kek(self, master_key: str, wrap: Wrap) -> Kek:
        key = SecretKey.generate(self.kek_bits)
        counter = SealCounter.of(key)
        counter.lower_limit(self.seal_limit)
        return Kek(key, os.urandom(_KEK_ID_BYTES), wrap(key, master_key), counter)
