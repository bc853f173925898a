"""Columns are named by dotted paths, and what is said of a group holds for the leaves below it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

__all__ = ["covers", "nearest_entry"]

T = TypeVar("T")


def covers(name: str, column: str) -> bool:
    """Is `column` the column `name`, or a leaf below it?"""
    return column == name or column.startswith(name + ".")


def nearest_entry(entries: Mapping[str, T], column: str) -> T | None:
    """The entry of the column itself, else of the nearest group above it; None where there is none."""
    path = column
    while path:
        if (entry := entries.get(path)) is not None:
            return entry
        path = path.rpartition(".")[0]
    return None
