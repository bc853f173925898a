"""Filters in clear that none can take the place of are left out, and the others are repaired all the same."""

from __future__ import annotations

import shutil
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import bloomseal as bs
from bloomseal import orc
from bloomseal.audit import audit
from bloomseal.keytools import MasterKeys
from bloomseal.rotation import Repair, rotate
from bloomseal.rotation.outcome import Status
from support.jvm import JavaUnavailableError
from support.orc_java import java_orc_rows, java_orc_write, memory_keys

KEY = bytes(range(16))
OURS = bs.DecryptionSpec(MasterKeys({"pii": KEY}), allow_ctr=True)
JAVA = memory_keys(("pii", 0, KEY))
SCHEMA = "struct<id:bigint,flag:boolean,old:timestamp,name:string>"
_DAY = 86_400_000
ROWS: list[list[Any]] = [[i, i % 3 == 0, (i - 40_000) * _DAY, f"n{i}"] for i in range(2_500)]  # from 1860 on

pytestmark = pytest.mark.jvm


@pytest.mark.parametrize("drop_masked", [False, True])
def test_filters_that_nobody_would_believe_are_left_out(drop_masked: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.orc"
    try:
        java_orc_write(
            path, SCHEMA, ROWS, JAVA, encrypt="pii:flag,old,name", filters="flag,old,name", stripe_rows=1_000
        )
    except JavaUnavailableError as error:
        pytest.skip(str(error))
    assert {one.column for one in audit(path).findings if one.rule.id == "BS102"} == {"flag", "old", "name"}
    before, copy = java_orc_rows(path, JAVA), tmp_path / "table" / "a.orc"
    copy.parent.mkdir()
    shutil.copy(path, copy)
    dry = orc.repair_filters(path, decryption=OURS, drop_masked=drop_masked, dry_run=True)
    report = orc.repair_filters(path, decryption=OURS, drop_masked=drop_masked)
    assert report.left_out == dry.left_out
    assert {one["column"] for one in report.left_out} == {"flag", "old"}
    assert {one["column"] for one in report.filters} == {"name"}
    assert (report.clear_filters, report.masked_kept) == (9, 0 if drop_masked else 3)
    assert report.old_copies is not None
    with bs.open_file(path, decryption=OURS) as file:
        kept = {(one.column, one.encrypted) for one in file.filters}
    assert kept == {("name", True)} | (set() if drop_masked else {("name", False)})
    assert not [one for one in audit(path).findings if one.rule.id == "BS102"]
    assert java_orc_rows(path, JAVA) == before
    assert java_orc_rows(path, JAVA, column="name", value="n1700")
    assert bs.verify(path, decryption=OURS, filters=True).ok
    assert orc.repair_filters(path, decryption=OURS).rekeyed == []
    (done,) = rotate([copy.parent], Repair(OURS, drop_masked), journal=tmp_path / "journal.jsonl").files
    assert {(one["column"], one["row_group"]) for one in done.dropped} == set(product(("flag", "old"), range(3)))
    assert (done.status, done.filters_dropped, done.filters_replaced) == (Status.REPAIRED, 6, 3)
