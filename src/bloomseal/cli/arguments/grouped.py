"""Options that belong together: a command takes them as one object."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, TypeVar

__all__ = ["grouped"]

Function = TypeVar("Function", bound=Callable[..., Any])


def grouped(function: Function, name: str, kind: type[Any], options: Sequence[Callable[[Any], Any]]) -> Function:
    """The command's function with these options, in their order; it takes them as the argument `name`.

    Args:
        kind: a dataclass whose fields they are.
    """

    @functools.wraps(function)
    def wrapper(**given: Any) -> Any:
        own = {one.name: given.pop(one.name) for one in fields(kind)}
        return function(**{name: kind(**own)}, **given)

    decorated: Any = wrapper
    for option in reversed(options):
        decorated = option(decorated)
    found: Function = decorated
    return found
