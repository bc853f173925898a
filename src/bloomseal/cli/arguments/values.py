"""Values from a file, which need not stand in the list of processes."""

from __future__ import annotations

import sys
from pathlib import Path

from ...core.errors import UsageError


def read_lines(path: str) -> list[str]:
    """A file's lines (``-`` is standard input), empty ones left out: values that need not stand in the list of
    processes.

    Raises:
        UsageError: the file can't be read as UTF-8.
    """
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        text = data.decode("utf-8-sig")
        # Not splitlines(): a value may hold the rarer separators that it also splits at. Old Macs end lines by \r.
        lines = text.split("\n" if "\n" in text else "\r")
        return [value for line in lines if (value := line.removesuffix("\r"))]
    except OSError as error:
        raise UsageError(f"the values can't be read: {error.strerror}", file=path) from None
    except UnicodeDecodeError:
        raise UsageError("the values are not text in UTF-8", file=path) from None
