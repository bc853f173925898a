"""Public names that load on first use, so that whoever needs few of them pays for few."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

_IMPORT: Final = re.compile(rb"^    from (\.\S*) import (\w+) as \2$", re.MULTILINE)


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


def lazily(package: str, *modules: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """The ``__all__``, ``__getattr__`` and ``__dir__`` of a package.

    The names are those that its ``__init__.py`` imports for type checkers, one a line: ``from .module import name as
    name``. So each is written once. Modules (``from . import name as name``) are no part of ``__all__``.

    Args:
        package: its ``__name__``.
        modules: of it, which no layer below may import, not even for type checkers.
    """
    module: Any = sys.modules[package]
    source = module.__spec__.loader.get_data(module.__file__)  # also out of a zip file
    homes = {name.decode(): home.decode() for home, name in _IMPORT.findall(source)} | dict.fromkeys(modules, ".")

    def get(name: str) -> Any:
        if (home := homes.get(name)) is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if home == ".":
            return import_module(f".{name}", package)
        value = getattr(import_module(home, package), name)
        setattr(module, name, value)
        return value

    listed = sorted(name for name, home in homes.items() if home != ".")
    return listed, get, lambda: sorted({*vars(module), *homes})
