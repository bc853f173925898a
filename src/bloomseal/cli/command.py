"""What every command is made of: its class, with the options that all have, and the state that one run shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from ..keytools.tools import KeyTools

__all__ = ["PATH", "Command", "CommandGroup", "CommandState", "SectionOption"]

PATH: Final = click.Path(readable=False)
"""A path that shells complete. Whether it is there and may be read is for the library to say."""
_OWN: Final = "Options"
_COMMON: Final = "Options of all commands"


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


class SectionOption(click.Option):
    """An option that stands under a heading of the help."""

    def __init__(self, *arguments: Any, section: str, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.section = section


class Command(click.Command):
    """A command with ``--format``, ``--verbose`` and ``--debug``, whose help begins with the options that are its own.

    Args:
        formats: of its answers.
    """

    def __init__(self, *arguments: Any, formats: Sequence[str] = ("table", "json"), **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.params += _common(formats)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {_OWN: []}
        for option in self.get_params(ctx):
            if isinstance(option, click.Option) and (record := option.get_help_record(ctx)) is not None:
                section = _COMMON if "--help" in option.opts else getattr(option, "section", _OWN)
                sections.setdefault(section, []).append(record)
        for section, records in sections.items():
            if records:
                with formatter.section(section):
                    formatter.write_dl(records)
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)


class CommandGroup(Command, click.Group):
    """A group of such commands."""

    command_class = Command


def _remember(context: click.Context, option: click.Parameter, value: Any) -> None:
    if value and option.name:
        setattr(context.ensure_object(CommandState), option.name, value)


def _common(formats: Sequence[str]) -> list[click.Parameter]:
    shared: dict[str, Any] = {"section": _COMMON, "expose_value": False, "callback": _remember, "is_eager": True}
    return [
        SectionOption(["--format"], type=click.Choice(formats), help="How to answer (default: table).", **shared),
        SectionOption(["--verbose", "-v"], is_flag=True, help="Tell what the KMS was asked.", **shared),
        SectionOption(["--debug"], is_flag=True, help="Show tracebacks.", **shared),
    ]
