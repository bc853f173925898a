"""The deep look's proof: every module that the keys at hand open is opened, as `bloomseal.verify` does it."""

from __future__ import annotations

from ...format.verify import verify_walk
from ...format.walk import Walk
from .file import Broken, FileFacts

__all__ = ["prove"]


def prove(facts: FileFacts, walk: Walk) -> None:
    """Note the modules that don't authenticate, or break the specification; those of plaintext columns can only do the
    latter.
    """
    facts.broken = [
        Broken(error.row_group or 0, error.column, error.module, error.what) for error in verify_walk(walk).failures
    ]
