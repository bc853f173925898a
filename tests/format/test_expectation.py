"""The expectation by itself: what it takes for an encrypted column's name, and what it lets pass."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bloomseal as bs
from bloomseal.core.columns import meant_by
from bloomseal.core.errors import PolicyError
from bloomseal.core.parquet.expectation import NO_EXPECTATION, Expectation
from bloomseal.core.parquet.footer import Footer
from bloomseal.core.parquet.layout import read_tail
from bloomseal.core.parquet.schema import Schema
from bloomseal.core.storage.source import Source

SSN = Expectation(encrypted_columns=frozenset({"person.ssn"}))


@pytest.fixture(autouse=True)
def _nothing_is_known() -> None:
    """An answer from the cache, which a test before this one has filled, tests nothing."""
    meant_by.cache_clear()


@pytest.mark.parametrize("name", ["person.ssn", "person.ssn.digits"])
def test_a_column_and_what_is_below_it_must_be_encrypted(name: str) -> None:
    assert SSN.must_be_encrypted(name)
    SSN.name(name)
    with pytest.raises(PolicyError, match="in plaintext") as caught:
        SSN.plaintext_column(name)
    assert caught.value.column == name


@pytest.mark.parametrize("name", ["person", "person.ssn2", "ssn", "person.s", "other.person.ssn"])
def test_other_columns_need_not(name: str) -> None:
    assert not SSN.must_be_encrypted(name)
    SSN.name(name)
    SSN.plaintext_column(name)
    assert Expectation(complete=True).must_be_encrypted(name)
    NO_EXPECTATION.plaintext_column(name)


@pytest.mark.parametrize(
    "name",
    [
        "Person.ssn",
        "person.SSN",
        "person.\u017fsn",  # a long s, whose capital is S
        "person.\uff33\uff33\uff2e",  # fullwidth capitals
        "person.ss\u207f",  # a superscript n
        "PERSON.SSN.digits",
    ],
)
def test_a_name_that_could_be_taken_for_it_is_refused(name: str) -> None:
    """Some readers take one for the other, and so would take what stands there in clear, or under another key."""
    assert SSN.must_be_encrypted(name)
    with pytest.raises(PolicyError, match=r"person\.ssn, which must be encrypted") as caught:
        SSN.name(name)
    assert caught.value.column == name


def test_forms_of_one_name_are_alike_whichever_was_said() -> None:
    """Folding the case of a decomposed letter, and composing what folding has made, are both needed."""
    for said, found in (("\u00e9", "E\u0301"), ("E\u0301", "\u00e9"), ("\u1e9b\u0323", "\u1e69"), ("\u0345", "\u03b9")):
        expected = Expectation(encrypted_columns=frozenset({said}))
        assert expected.must_be_encrypted(found), (said, found)
        with pytest.raises(PolicyError):
            expected.name(found)


def schema_of(*names: str) -> Schema:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({name: [1] for name in names}), sink)
    return Footer(read_tail(Source.memory(sink.getvalue().to_pybytes())).data, 4, None, True).schema


def test_names_are_looked_at_where_an_encrypted_column_is_lacking() -> None:
    expected = Expectation(encrypted_columns=frozenset({"ssn"}))
    expected.names(schema_of("id", "other"))
    expected.names(schema_of("id", "ssn"))
    with pytest.raises(PolicyError, match="ssn, which must be encrypted"):
        expected.names(schema_of("id", "SSN"))
    # Where the column itself is there, nobody reads the other one in its place.
    expected.names(schema_of("ssn", "SSN"))


def test_it_is_what_the_specification_says() -> None:
    keys = bs.ExplicitKeys(b"f" * 16, {"ssn": b"s" * 16})
    spec = bs.DecryptionSpec(keys, aad_prefix="a", previous_aad_prefixes=("b",), encrypted_columns=["n"])
    made = Expectation.of(spec)
    assert made == Expectation(True, (b"a", b"b"), frozenset({"ssn", "n"}), False, False, False)
    assert Expectation.of(None) is NO_EXPECTATION
    assert Expectation(False, (), frozenset(), False, False, True) == NO_EXPECTATION


@pytest.mark.parametrize("name", ["person.ssn", "person.ssn.digits", "person.SSN", "person", "Person"])
def test_folders_and_logs_give_no_values_of_what_must_be_encrypted(name: str) -> None:
    with pytest.raises(PolicyError, match=r"^person\.ssn must be encrypted") as caught:
        SSN.outside(name)
    assert caught.value.column == name


@pytest.mark.parametrize("name", ["person.ssn2", "ssn", "country"])
def test_folders_and_logs_give_other_values(name: str) -> None:
    SSN.outside(name)
    NO_EXPECTATION.outside(name)


def test_a_table_expects_what_its_specification_and_its_keys_name() -> None:
    keys = bs.ExplicitKeys(footer_key=b"f" * 16, column_keys={"ssn": b"c" * 16})
    named = bs.DecryptionSpec(keys, encrypted_columns={"zip"})
    found = Expectation.of_table(named)
    assert found.encrypted_columns == {"ssn", "zip"}
    # Keys do not tell which other columns are sealed: only who says that files may be in clear says that columns are.
    assert found.complete
    assert not Expectation.of_table(bs.DecryptionSpec(keys, allow_plaintext=True)).complete
    assert Expectation.of_table(bs.DecryptionSpec(keys)).encrypted_columns == {"ssn"}
    assert Expectation.of_table(None) == NO_EXPECTATION
