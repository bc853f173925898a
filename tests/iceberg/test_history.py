"""Tables that were in clear and are encrypted now, that change their master key, or that only say so."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.audit import audit
from bloomseal.audit.report import Report
from bloomseal.policy import TablePolicy

memory = pytest.importorskip("pyiceberg.catalog.memory")

from support.iceberg_sealed import add_sealed, newest  # noqa: E402

Spec = Callable[..., bs.DecryptionSpec]
ROWS = pa.table({"ssn": [f"{i:03}-00-0000" for i in range(50)], "n": list(range(50)), "city": ["Lund", "Turku"] * 25})


def masters(vectors: Path) -> dict[str, bytes]:
    return {name: bytes.fromhex(key) for name, key in json.loads((vectors / "keys.json").read_text()).items()}


def by_engine(folder: Path, operations: int = 1) -> Any:
    """A table in clear, through the operations that engines have."""
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import LongType

    catalog = memory.InMemoryCatalog(folder.name, warehouse=f"file://{folder}")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", schema=ROWS.schema)
    table.append(ROWS)
    if operations > 1:
        table.append(ROWS)
        table.delete("n > 40")
        table.overwrite(ROWS)
        with table.update_schema() as schema:
            schema.add_column("later", LongType())
        with table.update_spec() as spec:
            spec.add_field("city", IdentityTransform(), "city")
        table.append(pa.table({**{name: ROWS[name] for name in ROWS.column_names}, "later": range(50)}))
        with table.transaction() as changing:
            changing.set_properties({"comment": "x"})
    return table


@pytest.fixture
def table(tmp_path: Path) -> Path:
    by_engine(tmp_path)
    return tmp_path / "n" / "t"


def audited(place: Path, keyring: bs.Keyring, master: str | None = None) -> Report:
    if master is None:
        return audit(place)
    return audit(place, policy=TablePolicy("t", keyring, "master-main", iceberg=bs.IcebergSpec(master)))


def rules(report: Report) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in report.findings:
        if one.rule.id.startswith("BS5"):
            found.setdefault(one.rule.id, []).append(Path(str(one.file)).name)
    return found


def test_a_clean_table_in_clear(tmp_path: Path) -> None:
    by_engine(tmp_path, operations=7)
    report = audit(tmp_path / "n" / "t")
    assert rules(report) == {}
    assert not report.unseen


def test_encrypted_later_and_rewritten(table: Path, vectors: Path, spec: Spec, keyring: bs.Keyring) -> None:
    """The current snapshot is sealed; what older ones name lies in clear still."""
    first = json.loads(newest(table).read_text())["current-snapshot-id"]
    clear = {path.name for path in table.rglob("*") if path.suffix in (".avro", ".parquet")}
    add_sealed(table, "master-main", masters(vectors)["master-main"])
    assert bs.read_table(table, decryption=spec())["ssn"].to_pylist() == ROWS["ssn"].to_pylist()
    with pytest.raises(bs.PolicyError, match="no key-id"):
        bs.read_table(table, version=first, decryption=spec())
    for master in (None, "master-main"):
        found = rules(audited(table, keyring, master))
        assert found.keys() == {"BS502"}
        assert set(found["BS502"]) == clear


def test_encrypted_later_and_not_rewritten(table: Path, vectors: Path, spec: Spec, keyring: bs.Keyring) -> None:
    """New files are sealed, and the current list names a manifest in clear beside them."""
    add_sealed(table, "master-main", masters(vectors)["master-main"], with_clear=True)
    with pytest.raises(bs.PolicyError, match="a manifest in clear"):
        bs.read_table(table, decryption=spec())
    assert rules(audited(table, keyring)).keys() == {"BS502"}
    assert rules(audited(table, keyring, "master-main")).keys() == {"BS502"}


def test_what_was_in_clear_is_gone(table: Path, vectors: Path, spec: Spec, keyring: bs.Keyring) -> None:
    clear = [path for path in table.rglob("*") if path.is_file()]
    add_sealed(table, "master-main", masters(vectors)["master-main"])
    for path in clear:
        path.unlink()
    document = json.loads(newest(table).read_text())
    document["snapshots"] = document["snapshots"][-1:]
    document["metadata-log"] = document["snapshot-log"] = []
    newest(table).write_text(json.dumps(document))
    assert bs.read_table(table, decryption=spec()).num_rows == 50
    for master in (None, "master-main"):
        assert rules(audited(table, keyring, master)) == {}


def test_another_master_key_later(table: Path, vectors: Path, spec: Spec, keyring: bs.Keyring) -> None:
    keys = masters(vectors)
    add_sealed(table, "master-main", keys["master-main"])
    older = json.loads(newest(table).read_text())["current-snapshot-id"]
    add_sealed(table, "master-evil", keys["master-evil"])
    assert bs.read_table(table, decryption=spec("master-evil")).num_rows == 50
    with pytest.raises(bs.PolicyError, match="the encryption key"):
        bs.read_table(table, decryption=spec("master-main"))
    with pytest.raises(bs.PolicyError, match="not wrapped by the expected master key"):
        bs.read_table(table, version=older, decryption=spec("master-evil"))
    assert rules(audited(table, keyring, "master-evil")).keys() == {"BS502"}  # what was in clear
    report = audited(table, keyring, "master-main")
    assert newest(table).name in rules(report)["BS504"]
    keks = [one for one in report.inventory.to_pylist() if one["footer_material"] == "kek"]
    assert {one["footer_master_key"] for one in keks} == {"master-main", "master-evil"}


def test_it_only_says_so(tmp_path: Path, keyring: bs.Keyring) -> None:
    """A catalog that takes the property and knows of no encryption."""
    made = by_engine(tmp_path)
    with made.transaction() as changing:
        changing.set_properties({"encryption.key-id": "master-main"})
    made.append(ROWS)
    for master in (None, "master-main"):
        assert rules(audited(tmp_path / "n" / "t", keyring, master)).keys() >= {"BS501"}


def test_the_property_is_taken_back(table: Path, vectors: Path, keyring: bs.Keyring) -> None:
    """By whoever writes the metadata: from then on everything is written in clear."""
    add_sealed(table, "master-main", masters(vectors)["master-main"])
    document = json.loads(newest(table).read_text())
    del document["properties"]["encryption.key-id"]
    document.pop("encryption-keys")
    (table / "metadata" / "00009-x.metadata.json").write_text(json.dumps(document))
    for master in (None, "master-main"):
        assert "BS501" in rules(audited(table, keyring, master))


def evolved(place: Path, change: Callable[[list[dict[str, Any]]], object]) -> None:
    """A change of the current schema's columns, in the metadata file."""
    told = json.loads(newest(place).read_text())
    change(told["schemas"][-1]["fields"])
    newest(place).write_text(json.dumps(told))


def test_a_renamed_column_gets_no_other_number(table: Path, vectors: Path, spec: Spec) -> None:
    """Attack: files have the column by an older name. By a number that they lack it would be null in all of them."""
    evolved(table, lambda fields: fields[0].update(name="late"))
    add_sealed(table, "master-main", masters(vectors)["master-main"])
    for number in (1, 9):
        evolved(table, lambda fields, number=number: fields[0].update(id=number))
        opened = bs.open_table(table, decryption=spec())
        for ask in (lambda table: table.read(), lambda table: table.read(["n"], [("late", "==", "001-00-0000")])):
            with pytest.raises(bs.UnsupportedError, match="renamed"):
                ask(opened)
        with pytest.raises(bs.UnsupportedError, match="renamed"):
            opened.maybe_present("late", ["001-00-0000"])
        assert opened.verify().ok


def test_a_default_is_not_taken_away(table: Path, vectors: Path, spec: Spec) -> None:
    """Attack: rows from before a column was added have its default, and would have null."""
    late = {"id": 9, "name": "late", "required": False, "type": "int", "initial-default": 5, "write-default": 5}
    evolved(table, lambda fields: fields.append(late))
    add_sealed(table, "master-main", masters(vectors)["master-main"])
    for _ in range(2):
        with pytest.raises(bs.UnsupportedError, match="defaults"):
            bs.open_table(table, decryption=spec())
        evolved(table, lambda fields: fields[-1].pop("initial-default", None))
