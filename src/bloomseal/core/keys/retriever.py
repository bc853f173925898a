"""Key metadata → data key, through key material: the reading half of the key tools."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from ..encryption import SecretKey
from ..errors import BloomsealError
from .material import KeyMaterial, KeyMetadata
from .wrapping import kek_id, unwrap_locally

Unwrap = Callable[[str, str], SecretKey]
"""A wrapped key, and the name of a master key → the key. It asks a KMS, which answers for this master key alone; where
it remembers answers, it does so by what was wrapped.
"""


class MaterialRetriever(ABC):
    """A `KeyRetriever` for one file whose keys are wrapped by a KMS, directly or through key encryption keys (KEKs).

    Args:
        path: the file's, for errors.
    """

    def __init__(self, path: str) -> None:
        self._path = path or None
        self._unwrap: Unwrap | None = None

    @abstractmethod
    def unwrapper(self, url: str | None) -> Unwrap:
        """Who unwraps the file's keys.

        Args:
            url: the KMS's address, by the file's account; None where it names none.

        Raises:
            KeyAccessError: the caller has not allowed that address.
        """

    @abstractmethod
    def find(self, reference: str) -> KeyMaterial:
        """Material that lies beside the file.

        Raises:
            KeyAccessError: there is none of that name.
        """

    def material(self, key_metadata: bytes) -> KeyMaterial:
        """The material that `key_metadata` holds or refers to.

        Raises:
            KeyAccessError: no key metadata of key tools, or material that can't be had.
        """
        metadata = KeyMetadata.from_bytes(key_metadata)
        return self.find(metadata.reference or "") if metadata.material is None else metadata.material

    def retrieve_key(self, key_metadata: bytes, column: str | None) -> SecretKey:
        """The data key that `key_metadata` stands for.

        Raises:
            KeyAccessError: see `Problem`; or no key metadata of key tools; or a KMS that is not allowed.
        """
        try:
            material = self.material(key_metadata)
            if column is None or self._unwrap is None:
                # The footer key's KMS is the file's. What a column's material says of itself chooses none: nothing but
                # the footer authenticates it.
                self._unwrap = self.unwrapper(material.kms_instance_url if column is None else None)
            return data_key(material, self._unwrap)
        except BloomsealError as error:
            raise error.at(file=self._path, column=column) from None


def data_key(material: KeyMaterial, unwrap: Unwrap) -> SecretKey:
    """The data key that `material` holds, through its KEK where there is one.

    Raises:
        KeyAccessError: see `Problem`; or broken material.
    """
    if material.kek_id is None or material.wrapped_kek is None:
        return unwrap(material.wrapped_dek, material.master_key)
    kek = unwrap(material.wrapped_kek, material.master_key)
    return unwrap_locally(material.wrapped_dek, kek, kek_id(material.kek_id))
