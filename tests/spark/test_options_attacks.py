"""Whoever may write to the catalog sets a table's options, which Spark merges into what its Parquet reader is
configured by.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import bloomseal as bs
import bloomseal.spark as bss
from bloomseal.policy import Policy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]


@pytest.fixture(scope="module")
def bridge(spark: SparkSession, policy: Policy) -> SparkSession:
    bss.enable(spark, policy=policy)
    return spark


@pytest.fixture
def marker(tmp_path: Path) -> tuple[Path, Path]:
    """A program that does what a key helper does, and what it has left if it was ever started."""
    program, left = tmp_path / "program", tmp_path / "was here"
    program.write_text(f'#!/bin/sh\ntouch "{left}"\nexec "{sys.executable}" "$@"\n')
    program.chmod(0o755)
    return program, left


@pytest.fixture
def table(bridge: SparkSession, people: DataFrame, tmp_path: Path) -> Path:
    bss.write(people.limit(100), tmp_path / "people")
    return tmp_path / "people"


def planted(program: Path, kms: Path, token: str) -> dict[str, str]:
    return {
        "bloomseal.python": str(program),
        "bloomseal.kms": f"keyring://{kms}",
        "bloomseal.kms.timeout": "5",
        # parquet-java keeps its clients by this name.
        "parquet.encryption.key.access.token": token,
    }


@pytest.mark.parametrize("token", ["", "another", "bloomseal:" + 64 * "0"])
@pytest.mark.parametrize("way", ["catalog", "read"])
def test_options_start_no_program_and_choose_no_kms(
    bridge: SparkSession, table: Path, marker: tuple[Path, Path], tmp_path: Path, way: str, token: str
) -> None:
    program, left = marker
    theirs = bs.Keyring(tmp_path / "theirs.json", create=True)
    for name in ("footer", "pii"):
        theirs.create(name)
    options = planted(program, tmp_path / "theirs.json", token)
    if not token:
        del options["parquet.encryption.key.access.token"]

    def read() -> int:
        if way == "read":
            return bridge.read.options(**options).parquet(str(table)).count()
        listed = ", ".join(f"'{name}' '{value}'" for name, value in options.items())
        bridge.sql(f"CREATE TABLE planted USING parquet OPTIONS ({listed}) LOCATION '{table}'")
        return len(bridge.table("planted").collect())

    try:
        if token:
            with pytest.raises(Exception, match="no KMS is configured"):
                read()
        else:
            assert read() == 100
        assert not left.exists()
    finally:
        bridge.sql("DROP TABLE IF EXISTS planted")


def test_options_choose_no_kms_and_no_policy_of_the_data_source(
    bridge: SparkSession, table: Path, tmp_path: Path
) -> None:
    """A KMS by URI is sent the caller's token. Spark 4.3 hands the options of views to sources in Python, not yet those
    of tables.
    """
    (tmp_path / "policy.toml").write_text(
        f'version = 1\nkms = "keyring://{tmp_path}/theirs.json"\n[tables.t]\nfooter_key = "footer"'
    )
    for name, value in {"kms": f"keyring://{tmp_path}/theirs.json", "policy": str(tmp_path / "policy.toml")}.items():
        refused = f"PolicyError: the option {name} stands against"
        with pytest.raises(Exception, match=refused):
            bridge.read.format("bloomseal").option(name, value).load(str(table))
        with pytest.raises(Exception, match=refused):
            bridge.sql(f"CREATE TEMPORARY VIEW planted USING bloomseal OPTIONS ({name} '{value}', path '{table}')")


def test_options_choose_no_older_settings(
    spark: SparkSession, policy: Policy, people: DataFrame, tmp_path: Path
) -> None:
    """Those that knew nothing of a table's folder would leave plaintext there."""
    bss.enable(spark, policy=policy)
    older = str(spark.conf.get("parquet.encryption.key.access.token"))
    folder = tmp_path / "people"
    bss.enable(spark, policy=policy, tables={"people": folder})
    try:
        rows = people.limit(10)
        with pytest.raises(Exception, match="names this folder in other settings"):
            rows.write.option("parquet.encryption.key.access.token", older).parquet(str(folder))
        assert not list(folder.rglob("*.parquet"))
        rows.write.parquet(str(folder))
        assert all(file.read_bytes()[:4] == b"PARE" for file in folder.rglob("*.parquet"))
    finally:
        bss.enable(spark, policy=policy)
