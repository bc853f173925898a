"""Sealed indexes in the evidence: under an old key, in clear, missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bloomseal as bs
from bloomseal.audit import audit
from bloomseal.policy import TablePolicy
from bloomseal.policy.table import IndexPolicy
from evidence.test_evidence import Shop, of_card


class IndexedShop(Shop):
    """Its policy wants an index of ``ssn``."""

    def policy(self, columns: Any = None, **settings: Any) -> TablePolicy:
        made = super().policy(columns, **settings)
        return replace(made, columns={**made.columns, "ssn": replace(made.columns["ssn"], index=IndexPolicy())})

    @property
    def index(self) -> Any:
        return bs.open_table(self.table, decryption=self.policy()).index("ssn")


@pytest.fixture
def shop(tmp_path: Path) -> IndexedShop:
    return IndexedShop(tmp_path)


def under(told: dict[str, Any], master_key: str, version: str) -> int:
    """Files with the version in use."""
    found = [one["files"] for one in told["keys"] if (one["master_key"], one["version"]) == (master_key, version)]
    return sum(found)


def test_an_index_under_an_old_key_keeps_it(shop: IndexedShop) -> None:
    shop.index.build()
    assert under(shop.make(), "pii", "1") == 3 + 2
    shop.rotated(rekey=True)
    # The manifest is new; the run lies under the key of before, and is not lost with it unseen.
    (run,) = shop.table.rglob("run-*.parquet")
    assert under(shop.make(), "pii", "1") == 1
    asked = shop.ask("pii", "1", shop.table)
    assert (asked.answer, [reason.place for reason in asked.reasons]) == ("no", [str(run)])
    shop.index.drop()
    shop.index.build()
    assert under(shop.make(), "pii", "1") == 0
    assert shop.ask("pii", "1", shop.table).answer == "yes"


@pytest.mark.parametrize("name", ["manifest.parquet", "run-0123456789abcdef-0.parquet"])
def test_an_index_in_clear_is_no_protection(shop: IndexedShop, name: str) -> None:
    shop.index.build()
    assert not of_card(shop.make())["findings"]
    path = Path(shop.index.folder.path) / name
    pq.write_table(pa.table({"ssn": pa.array([7], pa.int64())}), path)
    told = shop.make()
    assert of_card(told)["findings"]["BS117"] >= 1
    assert told["looked_at"]["findings"]["critical"] + told["looked_at"]["findings"]["error"] > 0
    found = audit(shop.table, policy=shop.policy(), keys=shop.policy().keys)
    assert str(path) in {one.file for one in found.findings if one.rule.id == "BS117"}


def test_an_index_that_is_missing_is_told(shop: IndexedShop) -> None:
    missing = shop.make()["looked_at"]["findings"]
    rules = {one.rule.id for one in audit(shop.table, policy=shop.policy(), keys=shop.policy().keys).findings}
    assert "BS405" in rules
    shop.index.build()
    assert sum(shop.make()["looked_at"]["findings"].values()) < sum(missing.values())


def test_what_cannot_be_opened_leaves_it_open(shop: IndexedShop) -> None:
    """A run whose key is not to be had says neither yes nor no."""
    shop.index.build()
    (run,) = shop.table.rglob("run-*.parquet")
    run.write_bytes(run.read_bytes()[:-100])
    assert shop.ask("other", "1", shop.table).answer == "unknown"
