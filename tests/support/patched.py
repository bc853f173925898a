"""A function exchanged wherever it was imported by name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

__all__ = ["patch_everywhere"]


def patch_everywhere(patch: pytest.MonkeyPatch, function: Callable[..., Any], other: Callable[..., Any]) -> None:
    """Every module of ours that has `function` has `other` in its place, and so have those that import it later."""
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "bloomseal" and vars(module).get(function.__name__) is function:
            patch.setattr(module, function.__name__, other)
