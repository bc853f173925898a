"""What every command is made of: its class, with the options that all have, and the state that one run shares."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from ..keytools.tools import KeyTools

PATH: Final = click.Path(readable=False)
"""A path that shells complete. Whether it is there and may be read is for the library to say."""
_OWN: Final = "Options"
_OTHERS: Final = "Of this command"
_COMMON: Final = "Options of all commands"
_SCREEN: Final = 50
_WHOLE: Final = "bloomseal.help_all"


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
    """A command with ``--format``, ``--verbose`` and ``--debug``, whose help fits a screen. A longer one
    explains the options that are used most and names the others; ``--help-all`` explains all of them.

    Args:
        formats: of its answers.
        first: the options that are used most, by their flags; the help begins with them.
    """

    def __init__(
        self,
        *arguments: Any,
        formats: Sequence[str] = ("table", "json"),
        first: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        super().__init__(*arguments, **settings)
        self.first = tuple(first)
        self.params += _common(formats)

    def get_help(self, ctx: click.Context) -> str:
        shown = super().get_help(ctx)
        paragraphs = inspect.cleandoc(self.help or "").split("\n\n")
        brief = [paragraphs[0], *(one for one in paragraphs[1:] if one.startswith("\b"))]
        for text in (paragraphs, brief):
            if not ctx.meta.get(_WHOLE) and len(shown.splitlines()) > _SCREEN:
                shown = self._short_help(ctx, text)
        return shown

    def _short_help(self, ctx: click.Context, paragraphs: Sequence[str]) -> str:
        formatter = ctx.make_formatter()
        self.format_usage(ctx, formatter)
        with formatter.indentation():
            for text in paragraphs:
                formatter.write_paragraph()
                formatter.write_text(text)
        sections = self._sections(ctx)
        _write_options(formatter, _OWN, [sections[_OWN].pop(flag) for flag in self.first])
        groups = [(_OTHERS if section == _OWN else section, ", ".join(flags)) for section, flags in sections.items()]
        room = formatter.width - max(len(section) for section, _ in groups) - 6
        # Wrapped here, where no name is broken at its hyphens; the mark has click leave the lines as they are.
        lines = [
            (section, "\n".join(["\b", *wrap(flags, room, break_on_hyphens=False)]))
            for section, flags in groups
            if flags
        ]
        _write_options(formatter, "More options (--help-all explains them)", lines)
        self._format_commands(ctx, formatter)
        return formatter.getvalue().rstrip("\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, records in self._sections(ctx).items():
            _write_options(formatter, section, list(records.values()))
        self._format_commands(ctx, formatter)

    def _format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)

    def _sections(self, ctx: click.Context) -> dict[str, dict[str, tuple[str, str]]]:
        """Heading → flag → how the help shows the option; first those that are used most."""
        sections: dict[str, dict[str, tuple[str, str]]] = {_OWN: dict.fromkeys(self.first, ("", ""))}
        for option in self.get_params(ctx):
            if isinstance(option, click.Option) and (record := option.get_help_record(ctx)) is not None:
                flag = next((one for one in option.opts if one.startswith("--")), option.opts[0])
                section = _COMMON if flag == "--help" else getattr(option, "section", _OWN)
                sections.setdefault(_OWN if flag in self.first else section, {})[flag] = record
        return sections


class CommandGroup(Command, click.Group):
    """A group of such commands."""

    command_class = Command


def _write_options(formatter: click.HelpFormatter, heading: str, records: Sequence[tuple[str, str]]) -> None:
    if records:
        with formatter.section(heading):
            formatter.write_dl(records)


def _help_all(context: click.Context, option: click.Parameter, value: Any) -> None:  # noqa: ARG001
    if value and not context.resilient_parsing:
        context.meta[_WHOLE] = True
        click.echo(context.get_help(), color=context.color)
        context.exit()


def _remember(context: click.Context, option: click.Parameter, value: Any) -> None:
    if value and option.name:
        setattr(context.ensure_object(CommandState), option.name, value)


def _common(formats: Sequence[str]) -> list[click.Parameter]:
    shared: dict[str, Any] = {"section": _COMMON, "expose_value": False, "callback": _remember, "is_eager": True}
    return [
        SectionOption(["--format"], type=click.Choice(formats), help="How to answer (default: table).", **shared),
        SectionOption(
            ["--verbose", "-v"], is_flag=True, help="Tell each finding, and what the KMS was asked.", **shared
        ),
        SectionOption(["--debug"], is_flag=True, help="Show tracebacks.", **shared),
        SectionOption(
            ["--help-all"], is_flag=True, help="Show this message with all options.", **shared | {"callback": _help_all}
        ),
    ]
