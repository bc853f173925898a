"""A policy with recipients and signers in Spark: executors seal what nothing there opens, the driver signs it, and a
reader's policy reads it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import bloomseal as bs
import bloomseal.spark as bss
from bloomseal.core.errors import UnsupportedError
from games.seized import keys_of, shapes_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_what_executors_seal_opens_for_readers_alone(
    spark: SparkSession, work: Path, author: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BLOOMSEAL_KEYRING", raising=False)
    ring = bs.Keyring(tmp_path / "reader.json", create=True)
    ring.create("pii", kind="hpke")
    document = {
        "version": 1,
        "keys": {"pii": {"recipients": [ring.recipient("pii")]}},
        "tables": {
            "people": {
                "footer_key": "pii",
                "complete": True,
                "columns": {"SSN": {"key": "pii", "filter": {"ndv": 1000}, "index": True}},
                "signers": {"author": author},
            }
        },
    }
    writes = bs.Policy.from_dict(document)
    reads = bs.Policy.from_dict({**document, "kms": f"keyring://{ring.path}"})
    target = str(tmp_path / "people")
    session = spark.newSession()
    bss.enable(session, policy=writes, tables={"people": target})
    mine = session.range(500).selectExpr("id", "sha1(string(id)) AS SSN")
    for mode in ("error", "overwrite"):
        report = bss.write(mine, target, mode=mode)
    assert (report.opened, report.rows, report.indexes) == (False, 0, {})
    assert report.files
    with pytest.raises(Exception, match="this policy only writes"):
        session.read.parquet(target).collect()
    with pytest.raises(bs.KeyAccessError, match="this policy only writes"):
        bss.read(session, target, policy=writes).collect()
    with pytest.raises(UnsupportedError, match="Delta"):
        bss.write_delta(mine, str(tmp_path / "delta"), policy=writes)
    assert bs.open_table(target, policy=reads).read().num_rows == 500
    # A seized cluster: what is on its disks, of the application and of its machines.
    keys = {shape for file in report.files for key in keys_of(Path(target, file), ring) for shape in shapes_of(key)}
    assert len(keys) >= 9
    for path in (one for folder in (work, tmp_path) for one in folder.rglob("*") if one.is_file()):
        data = path.read_bytes()
        assert not any(shape in data for shape in keys), path
    other = spark.newSession()
    bss.enable(other, policy=reads, tables={"people": target})
    assert other.read.parquet(target).count() == 500
    # The recipient's line lets anybody make a file that opens, and no signer's.
    anybody = replace(writes.for_table("people"), signers={})
    bs.write_table(pa.table({"id": [666], "SSN": ["forged"]}), Path(target, "forged.parquet"), policy=anybody)
    for way in (lambda: other.read.parquet(target).collect(), lambda: bss.check_table(session, target)):
        with pytest.raises(Exception, match="nobody signed"):
            way()
    Path(target, "forged.parquet").unlink()
    assert bss.write(other.read.parquet(target).limit(9), target, mode="overwrite").rows == 9
    # Anybody who can write to the table can put a file there that is for somebody else.
    stranger = bs.Keyring(tmp_path / "stranger.json", create=True)
    stranger.create("pii", kind="hpke")
    changed = {**document, "keys": {"pii": {"recipients": [stranger.recipient("pii")]}}}
    with pytest.raises(bs.PolicyError, match="recipients"):
        bss.check_table(session, target, policy=bs.Policy.from_dict(changed))
    assert json.dumps(document).count("bsr1") == 1
