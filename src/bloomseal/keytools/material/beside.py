"""The key material beside one data file, as its reader finds it and its writer adds to it."""

from __future__ import annotations

import contextlib
import secrets

from ...core.cached import cached_property
from ...core.errors import KeyAccessError
from ...core.keys.access import shown
from ...core.keys.material import COLUMN_KEY_REFERENCE, FOOTER_KEY_REFERENCE, KeyMaterial, KeyMetadata
from ...core.keys.retriever import MaterialRetriever
from ...core.storage.ref import FileRef
from .store import MaterialStore


class MaterialBeside(MaterialRetriever):
    """A retriever for one file with its `MaterialStore`: entries that are there, and new ones until they are stored.

    Args:
        ref: the data file.
    """

    def __init__(self, ref: FileRef) -> None:
        super().__init__(ref.path)
        self._ref = ref
        self._read: dict[str, str] | None = None
        self._new: dict[str, str] = {}

    @cached_property
    def _store(self) -> MaterialStore:
        return MaterialStore(self._ref)  # only where it is asked for: most files keep their material inside

    def beside(self) -> dict[str, str]:
        """All material in the store, by reference, as it was when somebody first asked.

        Raises:
            KeyAccessError: it can't be read.
        """
        if self._read is None:
            self._read = self._store.read()
        return self._read

    def find(self, reference: str) -> KeyMaterial:
        """As `MaterialRetriever.find`, new or stored."""
        if (text := self._new.get(reference)) is None and (text := self.beside().get(reference)) is None:
            raise KeyAccessError(
                f"there is no key material {shown(reference)} beside the file",
                hint=f"{self._store.path} must be there, and belong to the file",
            )
        return KeyMaterial.from_json(text)

    def add(self, material: KeyMaterial) -> KeyMetadata:
        """Keep new material until `store` is called. Returns the key metadata that refers to it."""
        reference = FOOTER_KEY_REFERENCE if material.is_footer_key else f"{COLUMN_KEY_REFERENCE}{len(self._new)}"
        if self.beside():
            # Not the plain names: those may be the old file's, which must open until the new one has taken its place.
            reference = f"{reference}-{secrets.token_hex(4)}"
        self._new[reference] = material.to_json(internal=False)
        return KeyMetadata(reference=reference)

    def store(self) -> None:
        """Make new material durable; nothing where there is none.

        What an older file of the same name refers to stays: until the new file has taken its name, the old one must
        open.

        Raises:
            KeyAccessError: the material can't be written, or another process is writing the same file.
        """
        if not self._new:
            return

        def add(entries: dict[str, str]) -> None:
            if any(entries.get(reference, material) != material for reference, material in self._new.items()):
                raise KeyAccessError(
                    "another process has written key material for this file meanwhile", file=self._ref.path
                )
            entries.update(self._new)

        self._store.change(add)

    def discard(self) -> None:
        """Remove what `store` added; nothing where material is internal."""
        if not self._new:
            return

        def remove(entries: dict[str, str]) -> None:
            for reference, material in self._new.items():
                if entries.get(reference) == material:
                    del entries[reference]

        # It is called while something else has failed already, and material without its file harms nobody.
        with contextlib.suppress(KeyAccessError):
            self._store.change(remove)

    def commit(self) -> None:
        """The data file is in place: drop the material that only its predecessor needed. Leaving it out harms
        nobody.
        """
        if self._new:
            self._store.supersede(self.beside(), self._new)
