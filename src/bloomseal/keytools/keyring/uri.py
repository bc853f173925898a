"""``keyring:`` URIs."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from ...core.errors import UsageError
from ...core.keys.access import shown
from .keyring import Keyring


def from_uri(uri: str) -> Keyring:
    """The keyring that the URI names.

    Raises:
        UsageError: a host, query or fragment in the URI; or no path, and the variable is not set.
        PolicyError, KeyAccessError: as `Keyring`.
    """
    parts = urlsplit(uri)
    if parts.netloc or parts.query or parts.fragment:
        raise UsageError(
            f"{shown(uri)} is no keyring URI", hint="keyring:relative/ring.json, or keyring:///absolute/path/ring.json"
        )
    path = unquote(parts.path)
    return Keyring(path) if path.strip("/") else Keyring.from_environment()
