"""Attributes that are worked out when they are first asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

__all__ = ["cached_property"]

T = TypeVar("T")

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property
else:

    class cached_property(Generic[T]):  # noqa: N801 - it is read as Python's own
        """As that of functools from Python 3.12 on. The one of 3.11 has a lock for all objects of a class: two of them
        wait for each other, and a child that is forked while one is at work waits for ever.

        Two threads that ask at once may both work it out.
        """

        def __init__(self, make: Callable[[Any], T]) -> None:
            self._make = make
            self.__doc__ = make.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        @overload
        def __get__(self, instance: None, owner: type) -> Self: ...

        @overload
        def __get__(self, instance: object, owner: type) -> T: ...

        def __get__(self, instance: object | None, owner: type) -> T | Self:
            if instance is None:
                return self
            known = instance.__dict__
            if self._name not in known:
                known[self._name] = self._make(instance)
            found: T = known[self._name]
            return found
