"""The table of writers known to be wrong."""

from __future__ import annotations

import pytest

from bloomseal.core.writers import KNOWN_WRONG, Claim, application_and_version, known_wrong


@pytest.mark.parametrize(
    ("version", "wrong"),
    [
        *((f"1.6.{patch}", True) for patch in range(12)),
        ("1.7.0", True),
        ("1.6.11-SNAPSHOT", True),
        ("1.6.12-SNAPSHOT", True),
        ("1.7.1-SNAPSHOT", True),
        ("", True),
        (None, True),
        ("nonsense", True),
        ("1.6.12", False),
        ("1.6.14", False),
        ("1.7.1", False),
        ("1.7.11", False),
        ("1.8.0", False),
        ("2.2.2", False),
        ("10.0", False),
    ],
)
def test_orc_1024(version: str | None, wrong: bool) -> None:
    found = known_wrong(Claim.ORC_FILTERS, "ORC C++", version)
    assert (found is not None) == wrong
    assert found is None or found.source == "ORC-1024"
    assert known_wrong(Claim.ORC_FILTERS, "ORC Java", version) is None


def test_filters_over_floats_count_of_no_version() -> None:
    for version in ("1.6.3", "2.2.2", "99.0.0", "", None):
        assert known_wrong(Claim.ORC_FLOAT_FILTERS, "orc c++", version) is not None
    assert known_wrong(Claim.ORC_FLOAT_FILTERS, "ORC Java", None) is None


@pytest.mark.parametrize(
    ("created_by", "wrong"),
    [
        ("parquet-cpp version 1.5.1-SNAPSHOT", True),
        ("parquet-cpp-arrow version 2.0.0", True),
        ("parquet-cpp-arrow version 4.0.1", True),
        ("parquet-cpp-arrow version 5.0.0-SNAPSHOT", True),
        ("Arrow2 - Native Rust implementation of Arrow", True),
        ("Polars", True),
        ("parquet-cpp-arrow version 5.0.0", False),
        ("parquet-cpp-arrow version 26.0.1", False),
        ("Polars (python) version 2.1.0 (build 7f902bd3ffd27ff82d14278a09a295ff2f7aed92)", False),
        ("parquet-mr version 1.8.1 (build 4aba4dae7bb0d4edbcf7923ae1339f28fd3f7fcf)", False),
        ("", False),
    ],
)
def test_numbers_of_nulls_in_parquet(created_by: str, wrong: bool) -> None:
    found = known_wrong(Claim.PARQUET_NULL_COUNTS, *application_and_version(created_by))
    assert (found is not None) == wrong


def test_each_row_has_a_source() -> None:
    assert all(row.source and row.why and row.application for row in KNOWN_WRONG)
    assert all(row.since is None or row.before is None or row.since < row.before for row in KNOWN_WRONG)


@pytest.mark.parametrize(
    ("created_by", "application", "version"),
    [
        ("parquet-mr version 1.8.1 (build 4aba4dae7bb0d4edbcf7923ae1339f28fd3f7fcf)", "parquet-mr", "1.8.1"),
        ("parquet-cpp version 1.5.1-SNAPSHOT", "parquet-cpp", "1.5.1-SNAPSHOT"),
        ("parquet-cpp-arrow version 14.0.0", "parquet-cpp-arrow", "14.0.0"),
        ("Polars", "Polars", None),
        ("", "", None),
    ],
)
def test_who_created_a_parquet_file(created_by: str, application: str, version: str | None) -> None:
    assert application_and_version(created_by) == (application, version)


def test_versions_that_an_orc_format_counts() -> None:
    for claim, good in ((Claim.ORC_MOMENTS, 6), (Claim.ORC_TEXT_BOUNDS, 1)):
        told = [known_wrong(claim, "ORC writer version", str(version)) is None for version in range(10)]
        assert told == [version >= good for version in range(10)]
        assert known_wrong(claim, "ORC C++", None) is None
