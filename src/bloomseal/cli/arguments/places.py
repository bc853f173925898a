"""Where an output may not be: in the place of what it is made of."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...core.errors import UsageError
from ...storage.discovery.kinds import FileKind, kind_of

__all__ = ["need_elsewhere"]


def need_elsewhere(target: str, inputs: Sequence[str], hint: str) -> None:
    """Refuse, before anything is read, an output that takes an input's place, or that an input folder would have among
    its data.

    Args:
        target: a file; ``-`` and URIs are let pass.
        inputs: as they were given: files, folders, patterns; ``-`` and URIs are let pass.
        hint: what serves whoever meant it.

    Raises:
        UsageError: it is such a one.
    """
    if target == "-" or "://" in target:
        return
    real = os.path.realpath(target)
    for place in _local(inputs):
        if _same(target, place):
            raise UsageError("the output is an input, and would take its place", file=target, hint=hint)
        inside = real.startswith(os.path.realpath(place).rstrip("/") + "/")
        if inside and kind_of(Path(real).name) is FileKind.DATA:
            raise UsageError(
                f"the output would be data of {place}, which is read", file=target, hint="a file outside the folder"
            )


def _local(inputs: Sequence[str]) -> Iterator[str]:
    for place in inputs:
        if place != "-" and "://" not in place:
            yield from [place] if os.path.lexists(place) else glob.glob(place, recursive=True)  # noqa: PTH207


def _same(one: str, other: str) -> bool:
    """Links, of both kinds, lead to the same file."""
    try:
        return Path(one).is_file() and Path(one).samefile(other)
    except OSError:
        return False
