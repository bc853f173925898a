"""What was said of keys and columns holds in Spark's source and checks, too. No JVM is needed for that."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bloomseal as bs

pytest.importorskip("pyspark")

from pyspark.sql.types import LongType, StringType, StructField, StructType

from bloomseal.read.predicate.condition import Compare
from bloomseal.read.predicate.values import Values
from bloomseal.spark.listing import SparkTableFiles
from bloomseal.spark.source.files.piece import Piece
from bloomseal.spark.source.options import SourceOptions
from bloomseal.spark.source.scan import Scan
from bloomseal.spark.source.stats import SourceStats
from bloomseal.spark.writing.frames import _check, _look

TABLE = pa.table({"ssn": [f"{i:03d}-45-6789" for i in range(12)], "n": pa.array(range(12), pa.int64())})
FRAME = StructType([StructField("ssn", StringType()), StructField("n", LongType())])


@pytest.fixture
def table(tmp_path: Path) -> Any:
    """A policy with a signed footer, whose footer key was taken from the reader by and by."""
    ring = bs.Keyring(tmp_path / "ring.json", create=True)
    for name in ("footer", "pii"):
        ring.create(name)
    policy = {"footer_key": "footer", "plaintext_footer": True, "columns": {"ssn": {"key": "pii"}}}
    uri = f"keyring:{tmp_path / 'ring.json'}"
    return bs.Policy.from_dict({"version": 1, "kms": uri, "tables": {"people": policy}}).for_table("people")


def without_footer_key(table: Any, tmp_path: Path) -> None:
    table.keys.forget()
    ring = bs.Keyring(tmp_path / "ring.json")
    ring.disable("footer")


def rows(scan: Scan, path: Path) -> int:
    piece = Piece(None, str(path), path.stat().st_size)
    return sum(batch.num_rows for batch in scan.read([piece], SourceStats()))


def test_an_unverified_footer_does_not_leave_a_file_out(tmp_path: Path, table: Any) -> None:
    """The storage attacker renames a column in the signed footer: a file that lacks it has no row where it is
    not null.
    """
    path = tmp_path / "t.parquet"
    bs.write_table(TABLE, path, encryption=table)
    scan = Scan(SourceOptions((str(path),), kms=table.kms, table=table), FRAME, (Compare("n", "valid", Values(())),))
    assert rows(scan, path) == 12
    path.write_bytes(path.read_bytes().replace(b"\x18\x01n", b"\x18\x01m"))
    without_footer_key(table, tmp_path)
    scan = Scan(SourceOptions((str(path),), kms=table.kms, table=table), FRAME, (Compare("n", "valid", Values(())),))
    with pytest.raises(bs.PolicyError, match="footer"):
        rows(scan, path)


def test_a_check_does_not_pass_a_footer_that_it_could_not_verify(tmp_path: Path, table: Any) -> None:
    path = tmp_path / "t.parquet"
    bs.write_table(TABLE, path, encryption=table)
    with bs.open_file(path, decryption=table) as file:
        assert _look(file, str(path), table, None).rows == 12
    without_footer_key(table, tmp_path)
    with bs.open_file(path, decryption=table) as file, pytest.raises(bs.PolicyError, match="footer"):
        _look(file, str(path), table, None)


def test_a_check_opens_each_column_that_has_a_key_of_its_own(tmp_path: Path, table: Any) -> None:
    """What key metadata say of a master key is anybody's word until it is asked."""
    path = tmp_path / "t.parquet"
    bs.write_table(TABLE, path, encryption=table)
    table.keys.forget()
    bs.Keyring(tmp_path / "ring.json").disable("pii")
    with pytest.raises(bs.KeyAccessError, match="'pii' is disabled") as told:
        _check(str(tmp_path), SparkTableFiles(None, (str(path),)), table, None)
    assert (told.value.file, told.value.column) == (str(path), "ssn")


def test_a_check_says_nothing_of_what_it_could_not_read(tmp_path: Path, table: Any) -> None:
    """It once advised to remove such a file, for it was not what the policy says."""
    os.mkfifo(pipe := tmp_path / "t.parquet")
    for place, error in ((pipe, bs.UsageError), (tmp_path / "gone.parquet", FileNotFoundError)):
        files = SparkTableFiles(None, (str(place),))
        with pytest.raises(error) as told:
            _check(str(tmp_path), files, table, None)
        assert "remove" not in str(told.value)
        assert str(place) in str(told.value)


def test_encrypted_columns_are_expected_without_a_kms_too(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    bs.write_table(TABLE, path)
    assert rows(Scan(SourceOptions((str(path),)), FRAME), path) == 12
    with pytest.raises(bs.PolicyError):
        rows(Scan(SourceOptions((str(path),), encrypted_columns=("ssn",)), FRAME), path)
    with pytest.raises(bs.PolicyError):
        rows(Scan(SourceOptions((str(path),), aad_prefix="people/"), FRAME), path)
