"""The KMS as a witness: which master key and version open a wrapped key, whatever the file says. Each question is asked
once.
"""

from __future__ import annotations

import hashlib

from ...core.errors import BloomsealError
from ...keytools import KeyTools, MasterKeyFacts, MasterVersion

__all__ = ["Witness"]


class Witness:
    """The answers of the KMS behind key tools, refusals too.

    Args:
        tools: they say which KMS serves an address that a file names, and bound and repeat the calls.
    """

    def __init__(self, tools: KeyTools) -> None:
        self._tools = tools
        self._opened: dict[tuple[str, str | None, bytes], MasterVersion | str] = {}
        self._names: dict[tuple[str, str | None], MasterKeyFacts | None] = {}

    def opened_by(self, wrapped: str, master_key: str, url: str | None) -> MasterVersion | str:
        """The key and version that open `wrapped`; a text where nobody can tell, and why.

        Args:
            url: the KMS that the footer's key names; None for the one that wraps new keys.
        """
        # By what was wrapped: a hostile file could claim another's KEK id.
        name = master_key, url, hashlib.sha256(wrapped.encode()).digest()
        if (known := self._opened.get(name)) is None:
            try:
                known = self._tools.calls_for(url).opened_by(wrapped, master_key)
            except BloomsealError as error:
                known = error.what
            self._opened[name] = known
        return known

    def identify(self, master_key: str, version: str | None, url: str | None) -> MasterVersion | None:
        """The key and version that these names stand for; None where the KMS does not know them, or does not tell."""
        name = master_key, url
        if name not in self._names:
            try:
                self._names[name] = self._tools.calls_for(url).describe(master_key)
            except BloomsealError:
                self._names[name] = None
        known = self._names[name]
        return None if known is None else known.identify(version)
