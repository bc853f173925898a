"""Which of Spark's types have one text only, so that folders are spelt as Spark spells them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

__all__ = ["has_plain_text"]

_PLAIN_TEXT: Final = ("string", "boolean", "byte", "short", "integer", "long", "date")


def has_plain_text(kind: DataType) -> bool:
    """True where Spark's text of a value is the obvious one, so that we spell it alike: texts, whole numbers, booleans,
    dates.
    """
    return kind.typeName() in _PLAIN_TEXT
