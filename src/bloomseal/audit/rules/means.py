"""How the commands of findings reach the keys that an audit was given."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...keytools import Keyring, KeyTools
from ...keytools.pinned import PinnedKeys

__all__ = ["Means"]

_KEYRING: Final = "keyring:"


@dataclass(frozen=True)
class Means:
    """How a command line reaches the keys.

    Attributes:
        options: the options that name them; None where no command line leads to these keys.
        keyring: the keyring's path, where they come from one.
    """

    options: tuple[str, ...] | None = None
    keyring: str | None = None

    @classmethod
    def of(cls, keys: Any) -> Means:
        """As far as the keys themselves tell: a keyring's do, and a KMS that is named by its URI."""
        if isinstance(keys, PinnedKeys):
            keys = keys.tools
        if isinstance(keys, KeyTools):
            keys = keys.kms
        if isinstance(keys, Keyring):
            path = os.path.abspath(keys.path)  # noqa: PTH100
            return cls(("--keyring", path), path)
        if isinstance(keys, str) and keys.startswith(_KEYRING) and "?" not in keys and len(keys) > len(_KEYRING):
            path = os.path.abspath(keys.removeprefix(_KEYRING))  # noqa: PTH100
            return cls(("--keyring", path), path)
        return cls(("--kms", keys)) if isinstance(keys, str) and not keys.startswith(_KEYRING) else cls()

    @classmethod
    def said(cls, options: Sequence[str]) -> Means:
        """As the options of a command line have it; none at all lead to no keys."""
        named = list(options)
        keyring = named[named.index("--keyring") + 1] if "--keyring" in named[:-1] else None
        return cls(tuple(named) or None, keyring)
