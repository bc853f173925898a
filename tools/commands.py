"""The command line as a page of the site, and as manual pages: `commands.py page FILE`, `commands.py man FOLDER`.

Both are click's own help, which two formatters lay out: nothing of a command is said here.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from bloomseal import __version__
from bloomseal.cli.main import cli


class Markdown(click.HelpFormatter):
    """A page: a heading for each command, a definition list for each section of its options."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:  # noqa: ARG002
        title = prog if " " in prog else "Commands and options"
        self.write(f"{'#' * (prog.count(' ') + 1)} {title}\n\n```text\n{prog} {args}\n```\n\n")

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        self.write(f"**{name}**\n\n")
        yield

    def write_text(self, text: str) -> None:
        for paragraph in text.split("\n\n"):
            if paragraph.startswith("\b"):  # click's mark of lines that stay as they are: a title, and examples
                _, title, *lines = paragraph.split("\n")
                self.write("\n".join([f"{title}\n", "```sh", *(line[2:] for line in lines), "```\n\n"]))
            else:
                self.write(f"{self.escaped(paragraph)}\n\n")

    def write_dl(self, rows: Sequence[tuple[str, str]], *_: int, **__: int) -> None:
        self.write("".join(f"`{term}`\n:   {self.escaped(text)}\n\n" for term, text in rows))

    def escaped(self, text: str) -> str:
        return re.sub(r"([\\`*_{}\[\]<>#])", r"\\\1", text)


class Manual(Markdown):
    """The same for `man`."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:  # noqa: ARG002
        self.write(f".SH SYNOPSIS\n.B {self.escaped(prog)}\n{self.escaped(args)}\n.SH DESCRIPTION\n")

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        self.write(f".SH {name.upper()}\n")
        yield

    def write_text(self, text: str) -> None:
        for paragraph in text.split("\n\n"):
            lines = self.escaped(paragraph.removeprefix("\b\n"))
            self.write(f".PP\n.nf\n{lines}\n.fi\n" if paragraph.startswith("\b") else f".PP\n{lines}\n")

    def write_dl(self, rows: Sequence[tuple[str, str]], *_: int, **__: int) -> None:
        self.write("".join(f".TP\n.B {self.escaped(term)}\n{self.escaped(text)}\n" for term, text in rows))

    def escaped(self, text: str) -> str:
        return re.sub(r"(?m)^(?=[.'])", r"\\&", text.replace("\\", "\\e").replace("-", "\\-"))


def commands(context: click.Context) -> Iterator[click.Context]:
    """A command and all that is below it."""
    yield context
    if isinstance(group := context.command, click.Group):
        for name in group.list_commands(context):
            if (command := group.get_command(context, name)) is not None and not command.hidden:
                yield from commands(click.Context(command, context, name, **command.context_settings))


def main(kind: str, place: str) -> None:
    """Write the page, or a folder of manual pages: bloomseal.1, bloomseal-read.1."""
    every = list(commands(click.Context(cli, info_name="bloomseal")))
    layouts = {one: Markdown() if kind == "page" else Manual() for one in every}
    for context, layout in layouts.items():
        context.command.format_help(context, layout)
    if kind == "page":
        Path(place).write_text("".join(layout.getvalue() for layout in layouts.values()), encoding="utf-8")
        return
    Path(place).mkdir(parents=True, exist_ok=True)
    for context, layout in layouts.items():
        name = context.command_path.replace(" ", "-")
        short = layout.escaped(context.command.get_short_help_str(200))
        head = f'.TH "{name.upper()}" 1 "" "Bloomseal {__version__}"\n.SH NAME\n{layout.escaped(name)} \\- {short}\n'
        Path(place, f"{name}.1").write_text(head + layout.getvalue(), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
