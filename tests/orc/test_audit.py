"""The audit of ORC files: what lies in clear, which keys they name, and filters that deny their values."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.orc as po
import pyarrow.parquet as pq
import pytest

import bloomseal as bs
from bloomseal import DecryptionSpec, Keyring
from bloomseal.audit import Severity, audit, inventory, may_destroy
from bloomseal.core.errors import KeyAccessError, PolicyError
from bloomseal.keytools import MasterKeys
from support.jvm import JavaUnavailableError, start_jvm
from support.orc_java import java_orc_write, memory_keys

from .generated import columns, write

ROWS = [[number, f"{number:09d}"] for number in range(3_000)]
SCHEMA = "struct<id:bigint,ssn:string>"


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``ssn`` is encrypted, and its filters are as the Java library leaves them."""
    try:
        start_jvm()
    except JavaUnavailableError as error:
        pytest.skip(str(error))
    path = tmp_path_factory.mktemp("sealed") / "people.orc"
    keys = memory_keys(("pii", 0, bytes(16)), ("pii", 1, bytes(range(16))))
    java_orc_write(path, SCHEMA, ROWS, keys, encrypt="pii:ssn", filters="id,ssn", stride=1_000, stripe_rows=2_000)
    return path


@pytest.mark.jvm
def test_filters_of_an_encrypted_column_in_clear(sealed: Path) -> None:
    report = audit(sealed)
    (found,) = [one for one in report.findings if one.rule.id == "BS102"]
    assert (found.severity, found.column) == (Severity.CRITICAL, "ssn")
    assert "4 entries for 2 row groups" in found.message
    assert found.advice
    assert not found.fix
    assert {one.rule.id for one in report.findings} == {"BS102"}


@pytest.mark.jvm
def test_tables_open_encrypted_columns_and_repair_their_filters(sealed: Path, tmp_path: Path) -> None:
    path = tmp_path / "copy.orc"
    path.write_bytes(sealed.read_bytes())
    keys = MasterKeys({"pii": [bytes(16), bytes(range(16))]})
    spec = DecryptionSpec(keys, allow_ctr=True)
    value = ROWS[1_234][1]
    for refused, error in ((None, KeyAccessError), (DecryptionSpec(keys), PolicyError)):
        with pytest.raises(error):
            bs.read_table(path, decryption=refused)
        assert bs.read_table(path, columns=["id"], decryption=refused).num_rows == len(ROWS)
    assert list(bs.verify(path).inaccessible) == ["ssn"]
    for repaired in (False, True):
        if repaired:
            report = bs.attach_filters(path, ["ssn"], decryption=spec)
            assert report.old_copies
        table = bs.open_table(path.parent, decryption=spec)
        assert table.read(where=[("ssn", "==", value)]).to_pylist() == [{"id": 1_234, "ssn": value}]
        assert table.read(where=[("ssn", "==", f"{value}x")]).num_rows == 0
        assert (table.stats.pruned_by_filter > 0) is repaired
        found = {one.rule.id for one in audit(path).findings}
        assert ("BS102" in found) is not repaired  # filters over masked values stay, for readers without a key
    verified = bs.verify(path, decryption=spec, filters=True)
    assert verified.ok
    assert not verified.inaccessible
    assert verified.filters_true == 2 * 3


@pytest.mark.jvm
def test_the_inventory_names_keys_and_versions(sealed: Path) -> None:
    rows = inventory(sealed).to_pylist()
    assert len(rows) == 2 * 2
    ssn = next(row for row in rows if row["column"] == "ssn")
    assert (ssn["protection"], ssn["master_key"], ssn["key_version"], ssn["key_bits"]) == (
        "column key",
        "pii",
        "1",
        128,
    )
    assert (ssn["algorithm"], ssn["material"], ssn["filter"]) == ("AES_CTR_128", "orc", "in clear")
    assert next(row for row in rows if row["column"] == "id")["protection"] == "plaintext"


@pytest.mark.jvm
def test_a_version_that_an_orc_file_names_may_not_be_destroyed(sealed: Path, tmp_path: Path) -> None:
    keyring = Keyring(tmp_path / "keys.json", create=True)
    keyring.create("pii")
    keyring.rotate("pii")
    # The file names version 1, which is the second one; a keyring counts from 1.
    assert may_destroy("pii", "2", sealed, keys=keyring).answer == "no"
    other = may_destroy("pii", "1", sealed, keys=keyring, after=0)
    assert other.answer == "unknown"


@pytest.mark.jvm
def test_a_plaintext_file_beside_it(sealed: Path) -> None:
    beside = sealed.parent / "copy.orc"
    java_orc_write(beside, SCHEMA, ROWS[:10])
    try:
        found = [one for one in audit(sealed.parent).findings if one.file == str(beside)]
        assert [one.rule.id for one in found] == ["BS111"]
    finally:
        beside.unlink()


def test_filters_are_held_against_their_values(tmp_path: Path) -> None:
    path = tmp_path / "all.orc"
    write(columns(1_500, seed=4), path, compression="uncompressed")
    deep = inventory(path, deep=True).to_pylist()
    asked = {row["column"]: row for row in deep}
    assert sum(row["filter_asked"] or 0 for row in deep) > 15_000
    assert not any(row["filter_denied"] for row in deep)
    assert sum(row["filter_asked"] for row in deep if row["column"] == "list._elem") > 3_000
    assert "boolean" in asked["bool"]["filter_unasked"]
    assert 0.02 < max(row["filter_fill"] for row in deep if row["column"] == "i64") < 0.6
    assert {(one.rule.id, one.column) for one in audit(path, deep=True).findings} == {("BS211", "i8"), ("BS211", "f32")}

    data = bytearray(path.read_bytes())

    with bs.open_file(path) as file:
        one = next(info for info in file.filters if info.column == "text")
    zeros = bytearray(data)
    end = one.offset + one.length
    zeros[end - 400 : end - 1] = bytes(399)  # in the bitset of the last row group
    path.write_bytes(zeros)
    (found,) = [found for found in audit(path, deep=True).findings if found.rule.id == "BS210"]
    assert found.column == "text"


def test_an_audit_never_sees_fewer_files(tmp_path: Path) -> None:
    rows = pa.table({"a": [1, 2]})
    for name in ("a.orc", "b", "_c.orc", ".d.orc"):
        po.write_table(rows, tmp_path / name)
    pq.write_table(rows, tmp_path / "e.parquet")
    assert {Path(row["file"]).name for row in inventory(tmp_path).to_pylist()} == {"a.orc", "b", "e.parquet"}
    (tmp_path / "broken.orc").write_bytes(b"ORC and then nothing")
    assert [one.rule.id for one in audit(tmp_path / "broken.orc").findings] == ["BS201"]
