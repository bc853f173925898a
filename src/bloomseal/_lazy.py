"""Public names that load on first use, so that whoever needs few of them pays for few."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["deferred", "lazily"]


class _Deferred:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self._name), name)
        setattr(self, name, value)
        return value


def deferred(name: str) -> Any:
    """The module of this name, which is loaded when something of it is asked for: ``pyarrow.compute`` takes as long to
    load as a first look-up takes that finds nothing.
    """
    return _Deferred(name)


def lazily(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The ``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: its ``__name__``.
        homes: public name → the module that defines it, relative to the package; a module's own name → "".
    """

    def get(name: str) -> Any:
        if (home := homes.get(name)) is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if not home:
            return import_module(f".{name}", package)
        value = getattr(import_module(f".{home}", package), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted({*vars(sys.modules[package]), *homes})
