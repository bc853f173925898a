"""``--bloom-filter ssn:fpp=0.01,ndv=100000,hide_size`` → a column and its `FilterSpec`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click

from ...core.errors import BloomsealError, UsageError
from ...core.spelling import nearest
from ...sbbf import FilterSpec

__all__ = ["filter_option", "parse_filters"]

Function = TypeVar("Function", bound=Callable[..., Any])
_FORM: Final = "COLUMN[:fpp=0.01,ndv=N,num_bytes=N,max_bytes=N,hide_size]"
# A column's name may hold a colon: settings are behind the last one, and each but hide_size has an equals sign.
_SETTINGS: Final = re.compile(r"(?:\w+=[^,:]*|hide_size)(?:,(?:\w+(?:=[^,:]*)?))*")
_NAMES: Final[dict[str, Callable[[str], Any]]] = {"fpp": float, "ndv": int, "num_bytes": int, "max_bytes": int}


def filter_option(function: Function) -> Function:
    """Give a command ``filters``, column → specification."""
    option = click.option(
        "--bloom-filter",
        "filters",
        multiple=True,
        callback=lambda _context, _option, texts: parse_filters(texts),
        metavar=_FORM,
        help="A filter for COLUMN: false positive probability; sized by distinct values per row group or in bytes, else built "
        "large and folded; hide_size makes all row groups' filters one size. Repeatable.",
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
                name, equals, value = setting.partition("=")
                if name == "hide_size" and not equals:
                    arguments[name] = True
                elif name in _NAMES and equals:
                    arguments[name] = _NAMES[name](value)
                else:
                    known = nearest(name, [*_NAMES, "hide_size"])
                    raise UsageError(f"a filter has no setting {name!r}", hint=f"one of {', '.join(known)}: {_FORM}")
            specs[column] = FilterSpec(**arguments)
        except BloomsealError as error:
            raise error.at(column=column) from None
        except ValueError:
            raise UsageError("a filter's setting is no number", column=column, hint=_FORM) from None
    return specs
