"""Options that belong together: a dataclass says them once, and a command takes them as one object.

A field is an `option`, an `argument`, or another such object, by ``field(default_factory=...)``. The class's `SECTION`,
if it has one, is the heading of its options in the help.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import field, fields
from typing import Any, TypeVar

import click

from ..command import PATH, SectionOption

Function = TypeVar("Function", bound=Callable[..., Any])


def option(*flags: str, **settings: Any) -> Any:
    """A field of such a class: `click.option`, which puts its value under the field's name."""
    default = () if settings.get("multiple") else settings.get("default", False if settings.get("is_flag") else None)

    def made(name: str, section: str) -> Any:
        return click.option(*flags, name, cls=SectionOption, section=section, **settings)

    return field(default=default, metadata={"made": made})


def argument(**settings: Any) -> Any:
    """As `option`, an argument of the command line."""
    return field(default=None, metadata={"made": lambda name, _: click.argument(name, **settings)})


def policy_option(text: str) -> Any:
    """The option that names a policy file, in every command."""
    variable = "BLOOMSEAL_POLICY"
    return option("--policy", type=PATH, metavar="FILE", envvar=variable, help=f"{text} (default: ${variable}).")


def options(kind: type[Any], name: str) -> Callable[[Function], Function]:
    """Give a command `name`, a `kind` made of its options."""

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def wrapper(**given: Any) -> Any:
            own = _taken(kind, given)
            return function(**{name: own}, **given)

        decorated: Any = wrapper
        for made in reversed(list(_made(kind))):
            decorated = made(decorated)
        found: Function = decorated
        return found

    return decorate


def _made(kind: type[Any]) -> Iterator[Callable[[Any], Any]]:
    section = getattr(kind, "SECTION", "Options")
    for one in fields(kind):
        yield from [one.metadata["made"](one.name, section)] if one.metadata else _made(one.default_factory)  # type: ignore[arg-type]


def _taken(kind: type[Any], given: dict[str, Any]) -> Any:
    own = {
        one.name: given.pop(one.name) if one.metadata else _taken(one.default_factory, given)  # type: ignore[arg-type]
        for one in fields(kind)
    }
    return kind(**own)
