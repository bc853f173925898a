"""Keys that the caller holds."""

from __future__ import annotations

import pickle

import pytest

from bloomseal import ExplicitKeys
from bloomseal.core.encryption import SecretKey
from bloomseal.core.errors import KeyAccessError, UsageError
from bloomseal.core.keys.protocols import KeySource
from bloomseal.core.storage.ref import FileRef
from bloomseal.keytools.sources import as_key_source

FOOTER, SSN, OTHER = b"0123456789012345", b"1234567890123450", b"1234567890123451"


def test_an_id_never_leads_away_from_the_key_given_for_a_place() -> None:
    keys = ExplicitKeys(FOOTER, {"ssn": SSN}, {"kc": OTHER})
    assert keys.retrieve_key(b"kc", "ssn").reveal() == SSN
    assert keys.retrieve_key(b"kc", None).reveal() == FOOTER
    assert keys.retrieve_key(b"kc", "name").reveal() == OTHER
    assert keys.retrieve_key(b"another", "ssn").reveal() == SSN


def test_a_key_may_bring_its_key_metadata() -> None:
    keys = ExplicitKeys((FOOTER, b"kf"), {"a.b": (SecretKey(SSN), "kc1")})
    assert keys.columns == {"a.b"}
    assert keys.retrieve_key(b"kf", None).reveal() == FOOTER
    assert keys.retrieve_key(b"kc1", "a.b").reveal() == SSN
    # Each serves the place that it was given for, and only where the file names it.
    for key_id, column in ((b"kf", "c"), (b"kc1", None), (b"kf", "a.b"), (b"kc2", "a.b"), (b"", None)):
        with pytest.raises(KeyAccessError):
            keys.retrieve_key(key_id, column)


def test_a_column_without_a_key_is_named() -> None:
    keys = ExplicitKeys(FOOTER, {"ssn": SSN})
    with pytest.raises(KeyAccessError, match="column name") as caught:
        keys.retrieve_key(b"id", "name")
    assert caught.value.column == "name"
    assert not caught.value.retryable
    with pytest.raises(KeyAccessError, match="footer"):
        ExplicitKeys(column_keys={"ssn": SSN}).retrieve_key(b"", None)


def test_nothing_shows_or_carries_the_keys() -> None:
    keys = ExplicitKeys(FOOTER, {"ssn": SSN}, {"kc": OTHER})
    assert "ssn" in repr(keys)
    assert not any(key.decode() in repr(keys) for key in (FOOTER, SSN, OTHER))
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(keys)


def test_what_is_no_key_is_refused_without_showing_it() -> None:
    with pytest.raises(KeyAccessError, match="5 bytes") as short:
        ExplicitKeys(b"short")
    assert "short" not in str(short.value).split("bytes")[0]
    with pytest.raises(UsageError, match="footer_key"):
        ExplicitKeys("footer")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="column a"):
        ExplicitKeys(column_keys={"a": (SSN, b"x", b"y")})  # type: ignore[dict-item]


def test_a_retriever_reads_but_makes_no_keys() -> None:
    class Mine:
        def retrieve_key(self, key_metadata: bytes, column: str | None) -> bytes:  # noqa: ARG002
            return {b"kf": FOOTER}[key_metadata]

    for retriever in (Mine(), ExplicitKeys(keys_by_id={b"kf": FOOTER})):
        source = as_key_source(retriever)
        assert isinstance(source, KeySource)
        keys = source.for_file(FileRef("x"))
        found = keys.retrieve_key(b"kf", None)
        assert isinstance(found, SecretKey)
        assert found.reveal() == FOOTER
        with pytest.raises(KeyAccessError):
            keys.retrieve_key(b"other", "ssn")
        with pytest.raises(UsageError, match="no master keys"):
            keys.new_key("pii", "ssn", 128)
    with pytest.raises(UsageError, match="can't come from"):
        as_key_source(42)


def test_a_method_that_is_none_is_not_there() -> None:
    class Mine:
        for_file = None

        def retrieve_key(self, key_metadata: bytes, column: str | None) -> bytes:  # noqa: ARG002
            return FOOTER

    assert as_key_source(Mine()).for_file(FileRef("x")).retrieve_key(b"", None) == SecretKey(FOOTER)


@pytest.mark.parametrize("answer", [None, 5, "0123456789012345", b"short"])
def test_a_retriever_that_returns_no_key_is_an_access_error(answer: object) -> None:
    class Odd:
        def retrieve_key(self, key_metadata: bytes, column: str | None) -> object:  # noqa: ARG002
            return answer

    with pytest.raises(KeyAccessError):
        as_key_source(Odd()).for_file(FileRef("x")).retrieve_key(b"", "a")


def test_the_key_of_a_group_covers_the_leaves_below_it() -> None:
    keys = ExplicitKeys(column_keys={"person": b"p" * 16, "person.tags": b"t" * 16})
    assert bytes(keys.retrieve_key(b"", "person.name").reveal()) == b"p" * 16
    assert bytes(keys.retrieve_key(b"", "person.tags.list.element").reveal()) == b"t" * 16
    with pytest.raises(KeyAccessError):
        keys.retrieve_key(b"", "personal")
