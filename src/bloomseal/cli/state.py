"""The state that one run of the command line shares: its format, its verbosity, and its key tools."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from ..keytools.tools import KeyTools

__all__ = ["PATH", "CommandState", "common_options"]

Function = TypeVar("Function", bound=Callable[..., Any])

PATH: Final = click.Path(readable=False)
"""A path that shells complete. Whether it is there and may be read is for the library to say."""


@dataclass
class CommandState:
    """One run.

    Attributes:
        format: ``table``, ``json`` or, for rows, ``csv``.
        verbose: print what the KMS was asked.
        debug: show tracebacks.
        tools: the key tools in use, once there are any.
    """

    format: str = "table"
    verbose: bool = False
    debug: bool = False
    tools: KeyTools | None = None

    @property
    def json(self) -> bool:
        return self.format == "json"

    @classmethod
    def current(cls) -> CommandState:
        """The running command's state."""
        return click.get_current_context().ensure_object(cls)


def _remember(context: click.Context, option: click.Parameter, value: Any) -> None:
    if value and option.name:
        setattr(context.ensure_object(CommandState), option.name, value)


def common_options(*formats: str) -> Callable[[Function], Function]:
    """``--format``, ``--verbose`` and ``--debug``, which every command has."""

    def decorate(function: Function) -> Function:
        shared: dict[str, Any] = {"expose_value": False, "callback": _remember, "is_eager": True}
        choice = click.Choice(formats or ("table", "json"))
        for option in (
            click.option("--debug", is_flag=True, help="Show tracebacks.", **shared),
            click.option("--verbose", "-v", is_flag=True, help="Tell what the KMS was asked.", **shared),
            click.option("--format", type=choice, help="How to answer (default: table).", **shared),
        ):
            function = option(function)
        return function

    return decorate
