"""Columns are named by dotted paths, and what is said of a group holds for the leaves below it.

What is inside lists and maps has two names: ``tags.list.element`` in tables and Parquet, ``tags._elem`` in ORC. They
mean one column, by whichever of them it is asked for, expected, or found in a file.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, TypeVar

T = TypeVar("T")

_IN_TABLES: Final = {"_elem": "list.element", "_key": "key_value.key", "_value": "key_value.value"}


def in_tables(column: str) -> str:
    """A path as tables have it, however it is spelled."""
    if "._" not in column:
        return column
    top, *below = column.split(".")
    return ".".join([top, *(_IN_TABLES.get(part, part) for part in below)])


def covers(name: str, column: str) -> bool:
    """Whether `column` is the column `name`, or a leaf below it."""
    name, column = in_tables(name), in_tables(column)
    return column == name or column.startswith(name + ".")


@lru_cache(maxsize=4096)
def meant_by(column: str, names: frozenset[str]) -> str | None:
    """Which of these columns or groups a column is, or could be taken for: some readers tell neither case nor Unicode
    forms apart.
    """
    exact = (name for name in names if covers(name, column))
    alike = (name for name in sorted(names) if covers(folded(name), folded(column)))
    return next(exact, None) or next(alike, None)


def folded(name: str) -> str:
    """The name without case, as engines that ignore case compare it; compatible characters are made equal."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def own_entry(entries: Mapping[str, T], column: str) -> T | None:
    """The entry of the column itself; None where there is none."""
    found = entries.get(column)
    if found is None and "." in column:
        path = in_tables(column)
        found = next((entry for name, entry in entries.items() if in_tables(name) == path), None)
    return found


def nearest_entry(entries: Mapping[str, T], column: str) -> T | None:
    """The entry of the column itself, else of the nearest group above it; None where there is none."""
    found, path = own_entry(entries, column), in_tables(column)
    while found is None and (path := path.rpartition(".")[0]):
        found = own_entry(entries, path)
    return found
