"""Key metadata → data key: the key tools of parquet-java and Arrow, their key material, and the KMS clients below them.

Names load on first use, so that whoever needs none of them pays for none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .access import KmsAccessError, Problem
    from .explicit import ExplicitKeys
    from .keyring import Keyring
    from .protocols import FileKeys, FileRef, KeyDates, KeyRetriever, KeySource, KeyState, KmsClient
    from .sources import as_key_source
    from .tools import KeyDescription, KeyTools

__all__ = [
    "ExplicitKeys",
    "FileKeys",
    "FileRef",
    "KeyDates",
    "KeyDescription",
    "KeyRetriever",
    "KeySource",
    "KeyState",
    "KeyTools",
    "Keyring",
    "KmsAccessError",
    "KmsClient",
    "Problem",
    "as_key_source",
]

_WHERE = {
    "ExplicitKeys": "explicit",
    "FileKeys": "protocols",
    "FileRef": "protocols",
    "KeyDates": "protocols",
    "KeyDescription": "tools",
    "KeyRetriever": "protocols",
    "KeySource": "protocols",
    "KeyState": "protocols",
    "KeyTools": "tools",
    "Keyring": "keyring",
    "KmsAccessError": "access",
    "KmsClient": "protocols",
    "Problem": "access",
    "as_key_source": "sources",
}


def __getattr__(name: str) -> Any:
    if (module := _WHERE.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{module}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
