"""Columns that look personal, by their names or by their values: a hint for whoever has no policy yet.

One short rule for each kind of data. No answer holds a value.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from .table import Sensitivity


@dataclass(frozen=True)
class PersonalKind:
    """A kind of personal data.

    Attributes:
        what: one value of it, in words.
        words: of which one stands in a column's name.
        pattern: that a whole value matches; None: no value tells.
        check: what else a value has to satisfy.
        sensitivity: proposed.
        key: name of the master key that is proposed.
        identifier: people are looked up by it.
    """

    what: str
    words: str
    pattern: str | None = None
    check: Callable[[str], bool] | None = None
    sensitivity: Sensitivity = Sensitivity.CONFIDENTIAL
    key: str = "pii"
    identifier: bool = False

    def holds(self, value: str) -> bool:
        """Whether a value looks like one of this kind."""
        matches = self.pattern is not None and re.fullmatch(self.pattern, value) is not None
        return matches and (self.check is None or self.check(value))


def _luhn(value: str) -> bool:
    """The check digit of payment cards (ISO/IEC 7812-1)."""
    digits = [int(one) for one in value if one.isdigit()][::-1]
    return sum(digits[::2]) % 10 == -sum(sum(divmod(2 * one, 10)) for one in digits[1::2]) % 10


def _mod_97(value: str) -> bool:
    """The check digits of an IBAN (ISO 13616)."""
    return int("".join(str(int(one, 36)) for one in value[4:] + value[:4])) % 97 == 1


def _address(value: str) -> bool:
    try:
        return bool(ipaddress.ip_address(value))
    except ValueError:
        return False


_NAMES: Final = (
    r"(?:^|_)(?:first|last|full|family|given|middle|maiden|user|nick|display|customer|person|patient|employee|client)"
    r"_?names?(?:$|_)|^names?$"
)
_STREET: Final = (
    r"(?:\b(?:street|st|road|rd|avenue|ave|lane|drive|rue|via|calle|plaza|ulica)|(?:stra(?:ß|ss)e|str|weg|platz))\b"
)
_NAME: Final = PersonalKind(
    "a person's name",
    "firstname|forename|givenname|lastname|maiden|surname|username|"
    "vorname|nachname|familienname|geburtsname|pr[eé]nom|apellidos?",
)
_BIRTH: Final = PersonalKind(
    "a date of birth", "birth|birthdate|birthday|born|dob|geburtsdatum|geburtstag|naissance|nacimiento"
)
_TEXT: Final = PersonalKind(
    "free text, which may name people", "comment|comments|remark|remarks|notes|bemerkung|kommentar|notiz"
)
_KINDS: Final = (
    PersonalKind("an e-mail address", "email|mail", r"[^@\s]{1,64}@[^@\s]{1,255}\.[A-Za-z]{2,24}", identifier=True),
    PersonalKind(
        "a US social security number", "ssn", r"\d{3}-\d{2}-\d{4}", None, Sensitivity.RESTRICTED, identifier=True
    ),
    PersonalKind(
        "an official number", "insurance|license|nino|passport|pesel|sin|tax|tin|vat",
        sensitivity=Sensitivity.RESTRICTED, identifier=True,
    ),
    PersonalKind("a phone number", "fax|handy|mobile|msisdn|phone|tel|telefon|telefonnummer|telephone|teléfono|téléphone", r"\+\d[\d ()/.-]{6,18}\d", identifier=True),
    PersonalKind("an IBAN", "iban", r"[A-Z]{2}\d{2}[A-Z0-9]{11,30}", _mod_97, Sensitivity.RESTRICTED, "payment", True),
    PersonalKind("a bank account", "account|bank|kontonummer", None, None, Sensitivity.RESTRICTED, "payment", True),
    PersonalKind(
        "a payment card's number", "card|cardholder|cvv|pan", r"[2-6](?:[ -]?\d){12,18}", _luhn, Sensitivity.RESTRICTED,
        "payment", True,
    ),
    PersonalKind("an IP address", "ip|ipaddress", r"[\da-fA-F:.]{3,45}", _address, identifier=True),
    PersonalKind("a device's number", "imei|imsi", identifier=True),
    _BIRTH,
    PersonalKind(
        "an address", "address|adresse|anschrift|city|dirección|hausnummer|latitude|longitude|ort|plz|postal|postcode|postleitzahl|"
        "stra(?:ß|ss)e|street|wohnort|zip|zipcode",
        rf"(?i)(?=.*\d)[^\n]{{0,60}}{_STREET}[^\n]{{0,60}}",
    ),
    _NAME,
    PersonalKind("a password", "password", sensitivity=Sensitivity.RESTRICTED),
    PersonalKind("about health", "diagnosis|medical|patient", sensitivity=Sensitivity.RESTRICTED, key="health"),
    PersonalKind("about income", "income|payroll|salary", sensitivity=Sensitivity.RESTRICTED),
    PersonalKind("about a person", "gender|nationality|pseudonym|religion|sex"),
    _TEXT,
)  # fmt: skip
_SMALL: Final = "a-zß-öø-ÿ"
_GREAT: Final = "A-ZÀ-ÖØ-Þ"
_WORD: Final = re.compile(rf"[{_GREAT}]+(?![{_SMALL}])|[{_GREAT}]?[{_SMALL}]+")
_LONGEST: Final = 320
_SHARE: Final = 0.9
_DATE: Final = re.compile(r"(?:19|20)\d\d-[01]\d-[0-3]\d")
_OLD: Final = "2005"


def by_name(column: str) -> PersonalKind | None:
    """What the column's own name, or one above it, sounds like."""
    for part in column.split("."):
        words = [word.lower() for word in _WORD.findall(part)]
        if re.search(_NAMES, "_".join(words)):
            return _NAME
        for kind in _KINDS:
            if any(re.fullmatch(kind.words, word) for word in words):
                return kind
    return None


def by_bounds(bounds: Iterable[bytes | None]) -> PersonalKind | None:
    """What the smallest and greatest value of a column both look like."""
    texts = []
    for value in bounds:
        if not value or len(value) > _LONGEST:
            return None
        try:
            texts.append(value.decode())
        except UnicodeDecodeError:
            return None
    return next((kind for kind in _KINDS if texts and all(map(kind.holds, texts))), None)


def by_values(values: Sequence[str]) -> tuple[PersonalKind, int] | None:
    """What nine in ten of these values look like, and how many do."""
    for kind in _KINDS:
        if (count := sum(len(value) <= _LONGEST and kind.holds(value) for value in values)) >= _SHARE * len(values) > 0:
            return kind, count
    if (dates := sum(_DATE.fullmatch(value) is not None for value in values)) >= _SHARE * len(values) > 0:
        # Half of what happened before lies long back: people are born, and events are recent.
        return (_BIRTH, dates) if sorted(values)[len(values) // 2] < _OLD else None
    long = sum(len(value) >= 25 and value.count(" ") >= 3 for value in values)
    return (_TEXT, long) if 2 * long >= len(values) > 0 else None
