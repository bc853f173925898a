"""``--since``: rotated, current already and missed are three things, key by key; and one file of many that was missed
shows.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from bloomseal import DecryptionSpec, KeyTools
from bloomseal.audit import Severity, compare, inventory
from bloomseal.cli.main import main
from bloomseal.rotation import Rewrap, rotate
from support.lab import Lab


def _rewrap(lab: Lab, *paths: Path) -> None:
    rotate(list(paths), Rewrap(DecryptionSpec(KeyTools(lab.keyring))), journal=lab.folder / "journal", restart=True)


def _names(paths: list[str]) -> list[str]:
    return [Path(path).stem for path in paths]


@pytest.mark.parametrize("keys", [True, False])
def test_key_by_key(lab: Lab, keys: bool) -> None:
    ring = lab.keyring if keys else None
    rotated, missed = lab.signed("t/rotated.parquet"), lab.signed("t/missed.parquet")
    lab.keyring.rotate("pii")
    current = lab.signed("t/current.parquet")
    before = inventory(lab.folder / "t", keys=ring)
    _rewrap(lab, rotated)
    changes = compare(before, inventory(lab.folder / "t", keys=ring))
    assert (_names(changes.rotated), _names(changes.partly)) == ([], ["rotated"])  # the footer's key is as it was
    assert _names(changes.missed) == ["missed"] if keys else {*_names(changes.missed)} >= {"missed"}
    (footer, pii) = changes.keys
    assert (pii.master_key, pii.newest, pii.known) == ("pii", "2", keys)
    assert (_names(pii.rotated), _names(pii.current), _names(pii.missed)) == (["rotated"], ["current"], ["missed"])
    assert (footer.newest, footer.known, len(footer.current)) == ("1", keys, 3)
    assert not footer.missed
    assert not footer.rotated
    assert current.exists()
    assert missed.exists()


def test_the_kms_knows_of_a_version_that_no_file_is_under(lab: Lab) -> None:
    lab.signed("t/a.parquet")
    before = inventory(lab.folder / "t", keys=lab.keyring)
    lab.keyring.rotate("pii")
    (footer, pii) = compare(before, inventory(lab.folder / "t", keys=lab.keyring)).keys
    assert (pii.newest, len(pii.missed)) == ("2", 1)
    assert (footer.newest, len(footer.current)) == ("1", 1)


def test_an_inventory_from_before_this_column(lab: Lab) -> None:
    lab.signed("t/a.parquet")
    old = inventory(lab.folder / "t", keys=lab.keyring)
    old = old.drop_columns([name for name in old.column_names if name.endswith("current_version")])
    changes = compare(old, inventory(lab.folder / "t", keys=lab.keyring))
    assert _names(changes.current) == ["a"]
    assert not changes.missed


def test_versions_that_are_no_numbers() -> None:
    def one(files: dict[str, str | None]) -> pa.Table:
        from bloomseal.audit.facts.inventory import SCHEMA

        rows = [{"file": name, "footer": "signed", "algorithm": "AES_GCM_V1", "footer_material": "internal",
                 "footer_master_key": "k", "footer_key_version": version} for name, version in files.items()]  # fmt: skip
        return pa.Table.from_pylist(rows, schema=SCHEMA)

    (key,) = compare(one({"a": "9f", "b": "x1"}), one({"a": "x1", "b": "x1"})).keys
    assert (key.newest, key.unknown) == (None, ["a", "b"])


def test_the_command_tells_them_apart(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    one, _ = lab.signed("t/one.parquet"), lab.signed("t/two.parquet")
    ring = ("--keyring", str(lab.keyring.path))
    old = str(lab.folder / "old.parquet")
    assert main(["audit", str(lab.folder / "t"), *ring, f"--report=parquet={old}"]) == 4
    lab.keyring.rotate("pii")
    _rewrap(lab, one)
    capsys.readouterr()
    assert main(["audit", str(lab.folder / "t"), *ring, "--since", old, "--format", "json"]) == 4
    keys = {one["master_key"]: one for one in json.loads(capsys.readouterr().out)["since"]["keys"]}
    assert {name: len(keys["pii"][name]) for name in ("rotated", "current", "missed")} == {
        "rotated": 1, "current": 0, "missed": 1,
    }  # fmt: skip
    assert main(["audit", str(lab.folder / "t"), *ring, "--since", old]) == 4
    assert "Since the older inventory" in capsys.readouterr().out


def test_one_file_of_many_shows_at_once(lab: Lab) -> None:
    paths = [lab.signed(f"t/{number}.parquet") for number in range(5)]
    lab.keyring.rotate("pii")
    lab.keyring.rotate("footer")
    _rewrap(lab, *paths[1:])
    for case in (lab.case(lab.folder / "t"), lab.keyed(lab.folder / "t")):
        found = [one for one in case.report().findings if one.rule.id == "BS316"]
        assert {one.file for one in found} == {str(paths[0])}
        assert {one.severity for one in found} == {Severity.WARNING}
        assert "4 of 5" in found[0].message
    _rewrap(lab, paths[0])
    assert "BS316" not in lab.keyed(lab.folder / "t").ids()
