"""Columns that look personal, by their names or by values that stand in clear: a hint for whoever has no policy yet."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

__all__ = ["by_name", "by_value"]

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_WORDS: Final = re.compile(
    r"account|address|bank|birth|birthdate|birthday|card|cardholder|city|cvv|diagnosis|dob|email|fax"
    r"|firstname|forename|gender|givenname|iban|imei|imsi|income|insurance|ip|ipaddress|lastname|latitude"
    r"|license|longitude|mail|maiden|medical|mobile|msisdn|nationality|nino|pan|passport|password|patient"
    r"|payroll|pesel|phone|postal|postcode|pseudonym|religion|salary|sex|sin|ssn|street|surname|tax|tel"
    r"|telephone|tin|username|vat|zip|zipcode"
)
_NAMES: Final = re.compile(r"(?:^|_)(?:first|last|full|family|given|middle|user|nick|display)_?names?(?:$|_)|^names?$")
_VALUES: Final = {
    "an e-mail address": re.compile(r"[^@\s]{1,64}@[^@\s]{1,255}\.[A-Za-z]{2,24}"),
    "a US social security number": re.compile(r"\d{3}-\d{2}-\d{4}"),
    "a phone number": re.compile(r"\+\d[\d ()/.-]{6,18}\d"),
    "an IBAN": re.compile(r"[A-Z]{2}\d{2}[A-Z0-9]{11,30}"),
    "an IP address": re.compile(r"(?:\d{1,3}\.){3}\d{1,3}"),
    "a payment card's number": re.compile(r"[2-6](?:[ -]?\d){12,18}"),
}
_LONGEST: Final = 320


def by_name(column: str) -> bool:
    """Whether the column's own name, or one above it, sounds personal."""
    for part in column.split("."):
        words = [word.lower() for word in _WORD.findall(part)]
        if any(map(_WORDS.fullmatch, words)) or _NAMES.search("_".join(words)):
            return True
    return False


def by_value(bounds: Iterable[bytes | None]) -> str | None:
    """What all of these values, smallest and greatest of a column, look like; None where they look like nothing."""
    texts = []
    for value in bounds:
        if not value or len(value) > _LONGEST:
            return None
        try:
            texts.append(value.decode())
        except UnicodeDecodeError:
            return None
    for what, pattern in _VALUES.items():
        if texts and all(pattern.fullmatch(text) for text in texts):
            return what
    return None
