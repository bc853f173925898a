"""Errors of ours, found in what Spark makes of them."""

from __future__ import annotations

import re
from typing import Final

from ...core import errors
from ...core.errors import BloomsealError, KeyAccessError

_KEY_PROBLEM: Final = re.compile(
    r"(?:KeyAccessDenied|ParquetCryptoRuntime)Exception: ([^\n]*) \[(denied|disabled|destroyed|unknown|unreachable|invalid|unusable)\]"
)
_OURS: Final = re.compile(r"^(?:.*\s)?bloomseal\.(?:\w+\.)*(\w+Error): ([^\n]*)", re.MULTILINE)


def told_by(error: Exception) -> BloomsealError | None:
    """An error of ours, from what Spark makes of an executor's failure: a text with the stack of it all."""
    if found := _KEY_PROBLEM.search(str(error)):
        return KeyAccessError(found[1], retryable=found[2] == "unreachable")
    if found := _OURS.search(str(error)):
        kind = getattr(errors, found[1], KeyAccessError)  # the one kind that has descendants elsewhere
        return kind(found[2]) if issubclass(kind, BloomsealError) else None
    return None
