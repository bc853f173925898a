"""Text from a file, a path or a KMS, made safe to show."""

from __future__ import annotations

__all__ = ["safe_text"]


def safe_text(text: object) -> str:
    r"""One line that shows what is there.

    Control and format characters, separators other than the space, and code points without a meaning become ``\uXXXX``
    (``\UXXXXXXXX`` beyond 16 bits). A name with a newline could forge a line of a log or a report, one with U+202E or
    U+200B pass for another name, one with U+001B steer a terminal.
    """
    whole = str(text)
    if whole.isprintable():
        return whole
    return "".join(char if char.isprintable() else _escaped(ord(char)) for char in whole)


def _escaped(code: int) -> str:
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
