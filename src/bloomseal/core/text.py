"""Text from a file, a path or a KMS, made safe to show; a noun that only the moment knows, with its
article or its number.
"""

from __future__ import annotations

from typing import Final

_AN: Final = ("a", "e", "i", "o", "html", "lz")


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


def articled(noun: object) -> str:
    """The name of a type, a format or a layout with its article: an INT64, a UUID, an LZ4."""
    return f"{'an' if str(noun).lower().startswith(_AN) else 'a'} {noun}"


def counted(number: int, noun: str) -> str:
    """A number and its noun: 1 file, 2,000 files."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
