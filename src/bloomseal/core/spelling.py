"""A name that nobody knows is answered with the names that are known, the nearest first: one rule for columns and
options.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import fields
from functools import wraps
from typing import Any, Final, TypeVar

from .errors import UsageError

Class = TypeVar("Class", bound=type)
Function = TypeVar("Function", bound=Callable[..., Any])
_OURS: Final = {"filters": "where"}
"""Keyword of pyarrow and pandas → the same here."""
_NEAR: Final = 0.6
_COMPARED: Final = 200  # the comparison is quadratic, and a file may name a column as it likes


def nearest(name: object, known: Iterable[str], *, most: int = 10) -> list[str]:
    """The known names, each once, those first that `name` may be a misspelling of; the others in their order.

    Args:
        most: names at most.
    """
    from difflib import SequenceMatcher  # for whoever has misspelled something

    wanted = str(name)[:_COMPARED].casefold()

    def likeness(other: str) -> float:
        match = SequenceMatcher(None, other[:_COMPARED].casefold(), wanted)
        return match.ratio() if match.real_quick_ratio() >= _NEAR and match.quick_ratio() >= _NEAR else 0.0

    liked = {other: likeness(other) for other in dict.fromkeys(known)}
    return sorted(liked, key=lambda other: -liked[other] if liked[other] >= _NEAR else 0.0)[:most]


def need_known(what: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raises UsageError: an option of `what` that is none of the known ones, which its hint names."""
    for name in given:
        if name not in known:
            hint = f"one of {', '.join(nearest(name, known, most=len(known)))}"
            raise UsageError(f"{what} has no option {name!r}", hint=hint)


def named_options(cls: Class) -> Class:
    """Let a dataclass answer an unknown keyword by a UsageError that names the known ones, instead of a TypeError."""
    make = cls.__init__  # type: ignore[misc]
    known = [one.name for one in fields(cls) if one.init]

    @wraps(make)
    def checked(self: Any, *positional: Any, **given: Any) -> None:
        need_known(cls.__name__, given, known)
        make(self, *positional, **given)

    cls.__init__ = checked  # type: ignore[misc]
    return cls


def need_our_names(function: Function) -> Function:
    """Let a function answer a keyword of pyarrow's by a UsageError that names ours."""

    @wraps(function)
    def checked(*positional: Any, **given: Any) -> Any:
        for name in _OURS.keys() & given:
            raise UsageError(f"{function.__name__} has no argument {name!r}", hint=f"{_OURS[name]}=")
        return function(*positional, **given)

    return checked  # type: ignore[return-value]


def named_columns(columns: Any) -> list[str]:
    """The columns that a caller asks for, each once.

    Raises:
        UsageError: not a list of names, or an empty one.
    """
    names = list(columns) if isinstance(columns, Iterable) and not isinstance(columns, str | bytes) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise UsageError("columns= takes a list of names", hint="columns=None for all")
    return list(dict.fromkeys(names))
