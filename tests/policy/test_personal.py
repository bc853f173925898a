"""Which columns look personal: each kind by its name and by its values, and what only looks alike by neither."""

from __future__ import annotations

import pytest

from bloomseal.policy.personal import by_name, by_values

CARDS = ["4111 1111 1111 1111", "5500-0000-0000-0004", "340000000000009"]
IBANS = ["DE89370400440532013000", "GB82WEST12345698765432", "FR1420041010050500013M02606"]


@pytest.mark.parametrize(
    ("values", "what"),
    [
        (["ada@mail.example", "bob.b@mail.example"], "an e-mail address"),
        (["078-05-1120"], "a US social security number"),
        (["+49 30 901820", "+1 (212) 555-0100"], "a phone number"),
        (IBANS, "an IBAN"),
        (CARDS, "a payment card's number"),
        (["10.0.0.1", "2001:db8::1"], "an IP address"),
        (["Hauptstraße 5", "12 High Street", "3 rue de Lille"], "an address"),
        (["1950-01-31", "1984-03-07", "2010-05-06"], "a date of birth"),
        (["the customer asked to be called after lunch"] * 3, "free text, which may name people"),
    ],
)
def test_values_tell_their_kind(values: list[str], what: str) -> None:
    found = by_values(values)
    assert found is not None
    assert (found[0].what, found[1]) == (what, len(values))


@pytest.mark.parametrize(
    "values",
    [
        [],
        ["1", "2", "3"],
        [card[:-1] + str((int(card[-1]) + 1) % 10) for card in CARDS],
        ["DE89370400440532013001", "GB82WEST12345698765433"],
        ["10.0.0.256", "1.2.3"],
        ["2024-01-31", "2025-03-07"],
        ["ada@mail.example", "bob", "eve"],
        ["free", "pro"],
        ["9 August 2024", "1 first try", "3rd"],
    ],
)
def test_other_values_tell_nothing(values: list[str]) -> None:
    assert by_values(values) is None


@pytest.mark.parametrize(
    ("column", "what"),
    [
        ("contactEmail", "an e-mail address"),
        ("E-Mail", "an e-mail address"),
        ("Nachname", "a person's name"),
        ("Anschrift.Straße", "an address"),
        ("Geburtsdatum", "a date of birth"),
        ("customer_name", "a person's name"),
        ("lastName", "a person's name"),
        ("address.zip", "an address"),
        ("person.dob", "a date of birth"),
        ("IBAN", "an IBAN"),
        ("bankAccount", "a bank account"),
    ],
)
def test_names_tell_their_kind(column: str, what: str) -> None:
    found = by_name(column)
    assert found is not None
    assert found.what == what


@pytest.mark.parametrize("column", ["event_name", "file_name", "expand", "ship_date", "score", "using"])
def test_other_names_tell_nothing(column: str) -> None:
    assert by_name(column) is None
