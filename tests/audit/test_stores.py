"""Audits of tables in an object store, named by their addresses."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.audit import audit
from crash.s3_endpoint import serving


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A table of three files. Buckets of one process are shared, so this one has a name of its own."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with serving() as endpoint:
        endpoint.filesystem().create_dir("audited")
        settings = f"endpoint_override=127.0.0.1:{endpoint.port}&scheme=http&region=us-east-1"
        for number in range(3):
            rows = pa.table({"ssn": [str(number)]})
            bs.write_table(rows, f"s3://audited/t/{number}.parquet?{settings}", bloom_filters=["ssn"])
        yield f"s3://audited/t?{settings}"


def test_an_address_is_looked_at_like_a_folder(address: str) -> None:
    assert bs.read_table(address).num_rows == 3
    report = audit(address)
    assert (report.files, report.unseen) == (3, [])
    assert audit(address.replace("/t?", "/t/1.parquet?")).files == 1
