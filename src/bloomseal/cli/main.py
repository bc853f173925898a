"""``bloomseal``: the group of commands, and the one place where errors become messages and exit codes."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import pairwise
from typing import Final, NoReturn, TextIO

import click
from click.shell_completion import CompletionItem

from .. import __version__
from ..core.errors import BloomsealError, BloomsealWarning, UsageError
from .command import CommandGroup, CommandState
from .hints import hint_for
from .render import json_line, printable, remark

_ERROR, _INTERRUPTED, _BROKEN_PIPE = 2, 130, 141
_COMMANDS: Final = {
    "show": "Show what a file or table is: rows, columns, keys, filters, indexes.",
    "head": "Show the first rows.",
    "count": "Count rows, all or those that a condition chooses.",
    "read": "Read rows, opening only what the filters leave over.",
    "probe": "Ask a column's filters whether values may be present.",
    "verify": "Open and authenticate every module that the keys at hand can open.",
    "audit": "Find what lies open, and which key protects what, over many files.",
    "policy": "Propose a policy for the files that you have, and check one.",
    "seal": "Encrypt plaintext files, their filters with them.",
    "unseal": "Decrypt files.",
    "write": "Write CSV, Parquet, Arrow or JSON lines into a sealed Parquet file.",
    "attach": "Add filters to an existing file, or replace them, without touching a page.",
    "advise": "Tell for each column whether a filter, an index or neither is worth it.",
    "index": "Build and look after sealed indexes: which row groups of a table can hold a value.",
    "compact": "Make large files of a table's small ones.",
    "erase": "Take the rows of a person out of a table, and of its copies.",
    "keyring": "Make and look after the master keys in a local keyring file.",
    "rewrap": "Wrap data keys anew: another master key, or its current version.",
    "rekey": "Seal files again under fresh data keys.",
    "repair": "Seal the filters that lie in clear on encrypted columns of ORC files.",
    "sign": "Sign the files of a table that none of its signers has signed.",
    "evidence": "Make the bundle that an auditor takes away, sign it, and verify one.",
    "spark": "Write the jar that lets Spark's own reader and writer use Bloomseal's keys.",
    "doctor": "Check versions, extras, keys, the policy, and a table against it.",
    "demo": "Write, look up, compare and attack a million made-up people.",
}
_HOMES: Final = {
    **dict.fromkeys(("rewrap", "rekey", "repair", "seal", "sign", "unseal"), "rotate"),
    **dict.fromkeys(("attach", "advise"), "filters"),
    **dict.fromkeys(("head", "count"), "read"),
    "verify": "show",
}
"""Where a command stands that is in no module of its name."""


class _Commands(CommandGroup):
    """Commands are loaded when they are called: help and a probe pay for nobody else's libraries."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(
            import_module(f".commands.{_HOMES.get(cmd_name, cmd_name)}", __package__), cmd_name
        )
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        # Names and helps are at hand: the completion of a name loads no command.
        found = [CompletionItem(name, help=text) for name, text in _COMMANDS.items() if name.startswith(incomplete)]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="bloomseal")
def cli() -> None:
    """Encrypt Parquet files and their Bloom filters, look up rows in them, audit and rotate them.

    Keys come from a keyring file, a KMS, files or environment variables, never from an argument.

    \b
    Examples:
      bloomseal policy init customers
      bloomseal seal customers --policy policy.toml
      bloomseal read customers --policy policy.toml --where "email = 'x@example.com'"
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line.

    Returns:
        The command's own exit code: 0, or 1 for a negative answer; 2 for any error, 130 when interrupted, 141 when
        the reader of the output went away.
    """
    if arguments is None:
        # This process is ours, and multiplies no matrices: the threads that numpy's OpenBLAS starts for that, one for
        # each core, cost more time than numpy takes to load. Whoever has said how many there are to be, is obeyed.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        _leave(_run_command(None))
    return _run_command(arguments)


def _leave(code: int) -> NoReturn:
    """End this process, all that Python has registered for its end done first.

    The interpreter is not taken apart: a thread of Arrow's that lets go of its last buffer meanwhile would find none to
    ask, and abort the process after its answer.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


def _run_command(arguments: Sequence[str] | None) -> int:
    state = CommandState()
    streams = sys.stdout, sys.stderr
    if sys.stdout is None:
        remark("bloomseal: standard output is closed, so there is nowhere to answer to")
        return _ERROR
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            code = cli.main(
                list(arguments) if arguments is not None else None, "bloomseal", obj=state, standalone_mode=False
            )
            sys.stdout.flush()
        except BrokenPipeError:
            return _reader_left()
        except SystemExit:
            if sys.stdout is streams[0]:
                raise
            # click ends a broken pipe by 1, which is an answer here. It has wrapped the streams, to hide the next one.
            sys.stdout, sys.stderr = streams
            return _reader_left()
        except (click.Abort, KeyboardInterrupt):
            remark("interrupted")
            return _INTERRUPTED
        except Exception as error:
            code = _ERROR
            _print_error(error, state, sys.argv[1:] if arguments is None else arguments)
        if state.verbose and state.tools is not None:
            _print_counters(state.tools.counters.to_dict(), state)
        return int(code or 0)


def _reader_left() -> int:
    # Python would complain again when it flushes at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return _BROKEN_PIPE


def _print_error(error: Exception, state: CommandState, arguments: Sequence[str]) -> None:
    if state.debug:
        traceback.print_exc()
        return
    # A command line that can't be parsed sets no state.
    as_json = state.json or "--format=json" in arguments or ("--format", "json") in pairwise(arguments)
    match error:
        case BloomsealError():
            error.hint = hint_for(error, arguments)
        case click.ClickException() if not as_json:
            error.show()
            return
        case click.ClickException():
            error = UsageError(error.format_message(), hint=_help_of(error))
        case _:
            # A foreign message may quote what it was working on: only its type is told, or the system's own word.
            system = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else None
            what = f"the system says: {system}" if system else f"unexpected {type(error).__name__}"
            error = BloomsealError(what, hint="--debug shows where")
    if as_json:
        click.echo(json_line(error.to_dict()), err=True)
    else:
        remark(f"bloomseal: {error}")


def _help_of(error: click.ClickException) -> str | None:
    context = getattr(error, "ctx", None)
    return f"{context.command_path} --help" if context else None


def _print_counters(counters: Mapping[str, float], state: CommandState) -> None:
    if state.json:
        click.echo(json_line({"kms": counters}), err=True)
        return
    told = (
        f"{name} {value:.3f} s" if isinstance(value, float) else f"{name} {value}" for name, value in counters.items()
    )
    remark(f"KMS: {', '.join(told)}")


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,  # noqa: ARG001
    lineno: int,  # noqa: ARG001
    file: TextIO | None = None,  # noqa: ARG001
    line: str | None = None,  # noqa: ARG001
) -> None:
    if issubclass(category, BloomsealWarning):
        click.echo(printable(f"bloomseal: warning: {message}"), err=True)


if __name__ == "__main__":
    raise SystemExit(main())
