"""``--filter ssn:fpp=0.01,ndv=100000,hide`` → a column and its `FilterSpec`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click

from ..errors import BloomsealError, UsageError
from ..sbbf import FilterSpec

__all__ = ["filter_option", "parse_filters"]

Function = TypeVar("Function", bound=Callable[..., Any])
_FORM: Final = "COLUMN[:fpp=0.01,ndv=N,bytes=N,max=N,hide]"
_SETTINGS: Final = re.compile(r"(?:(?:fpp|ndv|bytes|max)=[^,:]*|hide)(?:,(?:(?:fpp|ndv|bytes|max)=[^,:]*|hide))*")
_NAMES: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "fpp": ("fpp", float),
    "ndv": ("ndv", int),
    "bytes": ("num_bytes", int),
    "max": ("max_bytes", int),
}


def filter_option(function: Function) -> Function:
    """Give a command ``filters``, the texts of its ``--filter`` options."""
    option = click.option(
        "--filter",
        "filters",
        multiple=True,
        metavar=_FORM,
        help="A filter for COLUMN: false positive probability; sized by distinct values per row group or in bytes, else built "
        "large and folded; hide makes all row groups' filters one size. Repeatable.",
    )
    return option(function)


def parse_filters(texts: Sequence[str]) -> dict[str, FilterSpec]:
    """Column → specification.

    Raises:
        UsageError: not of the form, or a combination that `FilterSpec` refuses.
    """
    specs = {}
    for text in texts:
        column, colon, settings = text.rpartition(":")
        if not colon or not _SETTINGS.fullmatch(settings):
            column, settings = text, ""
        arguments: dict[str, Any] = {}
        try:
            for setting in filter(None, settings.split(",")):
                name, _, value = setting.partition("=")
                if name == "hide":
                    arguments["hide_size"] = True
                else:
                    argument, parse = _NAMES[name]
                    arguments[argument] = parse(value)
            specs[column] = FilterSpec(**arguments)
        except BloomsealError as error:
            raise error.at(column=column) from None
        except ValueError:
            raise UsageError("a filter's setting is no number", column=column, hint=_FORM) from None
    return specs
