"""A table whose files are signed: our data source checks that, and Spark's own reader and writer are kept away."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.policy import Policy, TablePolicy
from keytools.test_signers import Signing

pytest.importorskip("pyspark")

from bloomseal.spark.guarding import table_place
from bloomseal.spark.settings import options
from spark.test_source_read import read


@pytest.fixture
def people(tmp_path: Path) -> tuple[Path, TablePolicy]:
    keys = bs.Keyring(tmp_path / "keys.json", create=True)
    for name in ("footer", "pii"):
        keys.create(name)
    author = Signing()
    table = {
        "footer_key": "footer",
        "root": str(tmp_path / "people"),
        "columns": {"name": {"key": "pii", "filter": True}},
        "signers": {"author": author.key.line},
    }
    document = {"version": 1, "kms": f"keyring://{keys.path}", "tables": {"people": table}}
    policy = Policy.from_dict(document).for_table("people")
    rows = pa.table({"id": [1, 2], "name": ["a", "b"]})
    bs.write_dataset(rows, tmp_path / "people", encryption=replace(policy, signer=author))
    return tmp_path / "people", policy


def test_the_source_reads_what_is_signed_alone(people: tuple[Path, TablePolicy]) -> None:
    folder, policy = people
    assert read(folder, policy=policy).num_rows == 2
    (signature,) = folder.glob("_SIGNATURE_*")
    signature.unlink()
    with pytest.raises(bs.PolicyError, match="nobody signed"):
        read(folder, policy=policy)
    # With a schema nothing is opened before the tasks.
    with pytest.raises(bs.PolicyError, match="nobody signed"):
        read(folder, policy=policy, schema="id bigint, name string")


def test_spark_s_own_reader_and_writer_are_kept_away(people: tuple[Path, TablePolicy]) -> None:
    folder, policy = people
    with pytest.raises(bs.UnsupportedError, match="signed"):
        options(policy)
    with pytest.raises(bs.UnsupportedError, match="signed"):
        table_place(policy, folder.as_uri())
