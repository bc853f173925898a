"""Spark's native door against files whose key material is made by hand: a key encryption key that a file calls by
somebody's id is still opened under the master key that the file names. The attacker may use some master keys, and
writes to the storage.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import bloomseal as bs
import bloomseal.spark as bss
from bloomseal.core.encryption import SecretKey
from bloomseal.core.keys.wrapping import wrap_locally
from bloomseal.policy import Policy, TablePolicy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]

FORGED = pa.table({"id": [666], "SSN": ["forged"]})
HONEST = pa.table({"id": [1, 2], "SSN": ["one", "two"]})
_LIFETIMES = iter(range(40_000, 86_400))


@pytest.fixture
def table(spark: SparkSession, ring: bs.Keyring) -> TablePolicy:
    """A policy, and a session that has seen no key yet."""
    columns = {"SSN": {"key": "pii"}}
    tables = {"people": {"footer_key": "footer", "complete": True, "columns": columns}}
    policy = Policy.from_dict({"version": 1, "kms": f"keyring://{ring.path}", "tables": tables})
    bss.enable(spark, policy=policy, cache_lifetime=next(_LIFETIMES))
    return policy.for_table("people")


class Forger:
    """May use one master key, for keys of his making; names others in key material."""

    def __init__(self, ring: bs.Keyring, own: str, kek_id: str | None = None) -> None:
        self.kek = SecretKey(os.urandom(16))
        self.kek_id = kek_id or base64.b64encode(os.urandom(16)).decode()
        self.ring, self.own = ring, own
        self.wrapped = ring.wrap_key(self.kek.reveal(), own)

    def material(self, master_key: str, key: bytes, *, footer: bool, double: bool = True) -> dict[str, Any]:
        fields: dict[str, Any] = {"keyMaterialType": "PKMT1", "internalStorage": True, "isFooterKey": footer}
        if footer:
            fields |= {"kmsInstanceID": "DEFAULT", "kmsInstanceURL": "DEFAULT"}
        fields |= {"masterKeyID": master_key, "doubleWrapping": double}
        if not double:
            return {**fields, "wrappedDEK": self.ring.wrap_key(key, self.own)}
        wrapped = wrap_locally(SecretKey(key), self.kek, base64.b64decode(self.kek_id))
        return {**fields, "wrappedDEK": wrapped, "keyEncryptionKeyID": self.kek_id, "wrappedKEK": self.wrapped}

    def write(
        self,
        path: Path,
        footer: str,
        column: str,
        *,
        double: bool = True,
        internal: bool = True,
        rows: pa.Table = FORGED,
    ) -> None:
        """A file whose footer and SSN claim to be under these master keys."""
        keys = {"footerKey": (footer, os.urandom(16)), "columnKey0": (column, os.urandom(16))}
        made = {
            reference: self.material(name, key, footer=reference == "footerKey", double=double)
            for reference, (name, key) in keys.items()
        }
        if internal:
            metadata = {reference: json.dumps(one).encode() for reference, one in made.items()}
        else:
            metadata = {
                reference: json.dumps(
                    {"keyMaterialType": "PKMT1", "internalStorage": False, "keyReference": reference}
                ).encode()
                for reference in made
            }
            for one in made.values():
                del one["internalStorage"]
            beside = {reference: json.dumps(one) for reference, one in made.items()}
            (path.parent / f"_KEY_MATERIAL_FOR_{path.name}.json").write_text(json.dumps(beside))
        pairs = {reference: (key, metadata[reference]) for reference, (_, key) in keys.items()}
        spec = bs.EncryptionSpec(pairs["footerKey"], {"SSN": pairs["columnKey0"]}, complete=True)
        bs.write_table(rows, path, encryption=spec)


def refused(read: Callable[[], object], match: str = "pii|footer") -> str:
    with pytest.raises(Exception, match=match) as caught:
        read()
    return str(caught.value)


@pytest.mark.parametrize("internal", [True, False], ids=["internal", "external"])
@pytest.mark.parametrize("double", [True, False], ids=["double", "single"])
def test_no_column_is_forged_under_a_kek_of_his_own(
    spark: SparkSession, table: TablePolicy, ring: bs.Keyring, tmp_path: Path, double: bool, internal: bool
) -> None:
    """He may use the footer's key alone. The file's footer introduces his KEK, and SSN claims it by its id."""
    folder = tmp_path / "t"
    folder.mkdir()
    bs.write_table(HONEST, folder / "honest.parquet", encryption=table)
    Forger(ring, "footer").write(folder / "forged.parquet", "footer", "pii", double=double, internal=internal)
    read = spark.read.parquet(str(folder))
    assert sorted(row.id for row in read.select("id").collect()) == [
        1,
        2,
        666,
    ]  # the footer, and what is under it, is his
    assert "invalid" in refused(lambda: read.select("SSN").collect())
    refused(lambda: read.where("SSN = 'forged'").collect())
    told = refused(lambda: bss.check_table(spark, folder, policy=table))
    assert "1 of 2 files" in told
    assert "forged.parquet" in told
    refused(lambda: bss.semi_join(spark, folder, "SSN", ["forged", "one"], policy=table).collect())
    refused(lambda: bss.semi_join(spark, folder, "id", [666, 1], policy=table).select("SSN").collect())
    refused(lambda: bss.read(spark, folder, policy=table).collect())


@pytest.mark.parametrize("internal", [True, False], ids=["internal", "external"])
@pytest.mark.parametrize("double", [True, False], ids=["double", "single"])
def test_no_footer_is_forged_under_a_kek_of_his_own(
    spark: SparkSession, table: TablePolicy, ring: bs.Keyring, tmp_path: Path, double: bool, internal: bool
) -> None:
    """He may use another master key, and has somebody read a file of his own before."""
    me = Forger(ring, "health")
    for name in ("own", "t"):
        (tmp_path / name).mkdir()
    me.write(tmp_path / "own" / "a.parquet", "health", "health", double=double, internal=internal)
    assert spark.read.parquet(str(tmp_path / "own")).collect()[0].SSN == "forged"
    me.write(tmp_path / "t" / "a.parquet", "footer", "health", double=double, internal=internal)
    refused(lambda: spark.read.parquet(str(tmp_path / "t")).collect())
    refused(lambda: bss.check_table(spark, tmp_path / "t", policy=table))


def test_no_file_makes_another_one_fail_by_claiming_its_kek(
    spark: SparkSession, table: TablePolicy, ring: bs.Keyring, tmp_path: Path
) -> None:
    for name in ("honest", "planted"):
        (tmp_path / name).mkdir()
    bs.write_table(HONEST, honest := tmp_path / "honest" / "a.parquet", encryption=table)
    with bs.open_file(honest, decryption=table) as file:
        said = json.loads(file.walk.chunk(0, 1).key_metadata)
    assert said["masterKeyID"] == "pii"
    me = Forger(ring, "footer", said["keyEncryptionKeyID"])
    me.write(tmp_path / "planted" / "a.parquet", "footer", "footer")
    assert spark.read.parquet(str(tmp_path / "planted")).collect()[0].SSN == "forged"
    assert sorted(row.SSN for row in spark.read.parquet(str(tmp_path / "honest")).collect()) == ["one", "two"]


@pytest.mark.parametrize("internal", [True, False], ids=["internal", "external"])
@pytest.mark.parametrize("double", [True, False], ids=["double", "single"])
def test_honest_key_material_of_every_kind_is_read(
    spark: SparkSession, table: TablePolicy, ring: bs.Keyring, tmp_path: Path, double: bool, internal: bool
) -> None:
    keys = bs.KeyTools(ring, double_wrapping=double, internal=internal, kek_bits=256)
    for name in ("a", "b c"):
        spec = bs.EncryptionSpec("footer", {"SSN": "pii"}, keys=keys, complete=True, key_bits=256)
        bs.write_table(HONEST, tmp_path / f"{name}.parquet", encryption=spec)
    assert spark.read.parquet(str(tmp_path)).where("SSN = 'two'").count() == 2
    report = bss.check_table(spark, tmp_path, policy=table)
    assert report.rows == 4


HOSTILE = "pii\n26/01/01 00:00:00 ERROR forged: all is lost\x1b[2J\u202e"


def test_what_a_file_says_is_shown_safely_and_at_bounded_length(
    spark: SparkSession, table: TablePolicy, ring: bs.Keyring, tmp_path: Path
) -> None:
    """Names of master keys and references reach exceptions, and so logs."""
    for number, column in enumerate((HOSTILE, "p" * 20_000)):
        (folder := tmp_path / str(number)).mkdir()
        Forger(ring, "footer").write(folder / "a.parquet", "footer", column)
        told = refused(lambda folder=folder: spark.read.parquet(str(folder)).collect(), "knows no master key")
        said = "".join(line for line in told.splitlines() if "[invalid]" in line or "[unknown]" in line)
        assert said
        assert len(said) < 5_000
        assert "\x1b" not in told
        assert "\u202e" not in told
        assert not any(line.startswith("26/01/01") for line in told.splitlines())
    path = tmp_path / "2"
    path.mkdir()
    Forger(ring, "footer").write(path / "a.parquet", "footer", "pii", internal=False)
    (path / "_KEY_MATERIAL_FOR_a.parquet.json").write_text("{}")
    refused(lambda: spark.read.parquet(str(path)).collect(), "no key material 'footerKey' beside")


def test_no_file_ends_the_helper_that_all_queries_share(
    spark: SparkSession, table: TablePolicy, ring: bs.Keyring, tmp_path: Path, helpers: Callable[[int], list[int]]
) -> None:
    jvm: Any = spark._jvm
    (tmp_path / "honest").mkdir()
    bs.write_table(HONEST, tmp_path / "honest" / "a.parquet", encryption=table)
    assert spark.read.parquet(str(tmp_path / "honest")).count() == 2
    before = helpers(parent := int(jvm.java.lang.ProcessHandle.current().pid()))
    for number, length in enumerate((60_000, 600_000, 3_000_000)):
        for internal in (True, False):
            (folder := tmp_path / f"{number}{internal}").mkdir()
            Forger(ring, "footer").write(folder / "a.parquet", "footer", "\x01" * length, internal=internal)
            with pytest.raises(Exception, match=r"\[(unknown|invalid|unusable)\]"):
                spark.read.parquet(str(folder)).collect()
    assert helpers(parent) == before
    assert spark.read.parquet(str(tmp_path / "honest")).count() == 2
