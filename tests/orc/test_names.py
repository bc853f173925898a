"""ORC and tables name what is inside lists and maps differently: whatever is said of a column holds by either name."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.orc as po
import pytest

import bloomseal as bs
from bloomseal.audit import audit
from bloomseal.cli.main import main
from bloomseal.core.columns import covers, nearest_entry
from bloomseal.core.errors import PolicyError
from bloomseal.policy import Policy
from support.orc_files import orc_file, orc_ring

_NAMES = {
    "tags.list.element": "tags._elem",
    "pairs.key_value.key": "pairs._key",
    "pairs.key_value.value": "pairs._value",
}
_EITHER = [name for both in _NAMES.items() for name in both]
_STRIDE = 300


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "t" / "a.orc"
    path.parent.mkdir()
    tags = [None if i % 7 == 0 else [f"t{i}", f"u{i % 10}"][: i % 3] for i in range(1_000)]
    pairs = [None if i % 5 == 0 else [(f"k{i}-{j}", f"v{i}") for j in range(i % 3)] for i in range(1_000)]
    rows = pa.table({"id": range(1_000), "tags": tags, "pairs": pa.array(pairs, pa.map_(pa.string(), pa.string()))})
    po.write_table(rows, path, row_index_stride=_STRIDE, batch_size=100)
    return path


@pytest.mark.parametrize("name", _EITHER)
def test_a_column_that_must_be_encrypted_is_meant_by_either_name(name: str, path: Path) -> None:
    spec = bs.DecryptionSpec(None, encrypted_columns=[name], allow_plaintext=True)
    top = name.split(".")[0]
    assert bs.read_table(path, columns=["id"], decryption=spec).num_rows == 1_000
    with pytest.raises(PolicyError, match="in plaintext"):
        bs.read_table(path, columns=[top], decryption=spec)
    for asked in itertools.chain(*(both for both in _NAMES.items() if name in both)):
        with bs.open_file(path, decryption=spec) as file, pytest.raises(PolicyError, match="in plaintext"):
            file.probe(asked, ["t1"])
        with bs.open_file(path, decryption=spec) as file, pytest.raises(PolicyError, match="in plaintext"):
            file.probe(asked, ["t1"])
        with pytest.raises(PolicyError, match="in plaintext"):
            bs.attach_filters(path, [asked], decryption=spec)
    with bs.open_file(path, decryption=spec) as file, pytest.raises(PolicyError, match="in plaintext"):
        file.rows(0, [_NAMES.get(name, name)])


@pytest.mark.parametrize("name", _EITHER)
def test_an_audit_finds_a_policys_column_by_either_name(name: str, path: Path, tmp_path: Path) -> None:
    orc_ring(tmp_path / "keys.json")
    wanted = {"footer_key": "pii", "columns": {name: {"key": "pii", "filter": {"fpp": 0.01}}}}
    made = {"version": 1, "kms": f"keyring:{tmp_path / 'keys.json'}", "tables": {"t": wanted}}
    found = {(one.rule.id, one.column) for one in audit(path, policy=Policy.from_dict(made).for_table("t")).findings}
    assert {rule for rule, column in found if column == _NAMES.get(name, name)} == {"BS101", "BS403"}


def test_filters_of_lists_and_maps_are_built_by_either_name_and_true(path: Path) -> None:
    for names in (list(_NAMES.values()), list(_NAMES)):
        bs.attach_filters(path, names)
        report = bs.verify(path, filters=True)
        assert report.ok, report
        assert report.filters_true == 4 * len(_NAMES)
    values = [pair for pairs in po.read_table(path)["pairs"].to_pylist()[:_STRIDE] for pair in pairs or ()]
    with bs.open_file(path) as file:
        for name, at in (("pairs.key_value.key", 0), ("pairs._value", 1)):
            assert bs.Verdict.ABSENT not in file.probe(name, [pair[at] for pair in values])[0]
            assert file.probe(name, ["nobody"])[0] == [bs.Verdict.ABSENT]


def test_conditions_in_words_need_no_keys_of_other_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command line asks for the types of all columns of a table; it was refused those of encrypted ones."""
    ring = orc_ring(tmp_path / "keys.json")
    orc_file(tmp_path / "t" / "part=1" / "a.orc", ring)
    for keys in ([], ["--keyring", str(tmp_path / "keys.json"), "--partition-by", "part"]):
        asked = ["read", str(tmp_path / "t"), "--where", "id = 7 and part = 1", "--format", "json"]
        assert main([*asked, "--columns", "id", *keys]) == 0
        assert json.loads(capsys.readouterr().out) == {"id": 7}
        assert main([*asked, *keys]) == 2
        assert json.loads(capsys.readouterr().err)["column"] == "name"


def test_names_and_groups() -> None:
    assert covers("a.list.element", "a._elem")
    assert covers("a._elem", "a.list.element.b")
    assert covers("m.key_value", "m._key")
    assert not covers("m._key", "m.key_value.value")
    assert not covers("a._elem", "a._elements")
    assert not covers("_elem", "list.element")
    entries = {"a._elem": 1, "a.list.element.b": 2, "a": 3}
    assert [nearest_entry(entries, name) for name in ("a._elem", "a.list.element", "a._elem.b", "a.c")] == [1, 1, 2, 3]
    # Fields of a struct can be called so, too: then each has its own.
    fields = {"a._key": 1, "a.key_value.key": 2}
    assert [nearest_entry(fields, name) for name in fields] == [1, 2]
