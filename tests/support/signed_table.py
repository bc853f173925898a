"""A table whose files are signed, and files that others would have in the place of these."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.core.parquet.layout import read_tail
from bloomseal.core.storage.source import Source
from bloomseal.policy import TablePolicy
from keytools.test_signers import Signing

__all__ = [
    "INDEXED",
    "NAME",
    "ROWS",
    "Counted",
    "Table",
    "copy",
    "digest",
    "kept_table",
    "made",
    "signed_table",
    "table",
]

ROWS = pa.table({"ssn": [f"{i:03}-45-6789" for i in range(60)], "n": list(range(60))})
NAME = "day=1/a.parquet"
INDEXED = {"columns": {"ssn": {"key": "pii", "filter": True, "index": True}}}


class Counted:
    """A KMS that counts what it is asked."""

    def __init__(self, ring: bs.Keyring) -> None:
        self._ring, self.asked = ring, 0

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        return self._ring.wrap_key(key_bytes, master_key_identifier)

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        self.asked += 1
        return self._ring.unwrap_key(wrapped_key, master_key_identifier)


@dataclass
class Table:
    """A signed file, others to take its place, and who is at work."""

    home: Path
    kms: Counted
    author: Signing
    other: Signing

    def policy(self, signer: Any = None, **settings: Any) -> TablePolicy:
        table = {
            "footer_key": "footer",
            "plaintext_footer": settings.pop("signed", False),
            "columns": {"ssn": {"key": "pii", "filter": True}},
            "partition_by": ["day"],
            "signers": {"author": self.author.key.line},
            **settings,
        }
        document = {"version": 1, "tables": {"people": table, "others": {**table}}}
        found = bs.Policy.from_dict(document, kms=self.kms).for_table("people", root=self.root)
        return replace(found, signer=signer)

    @property
    def root(self) -> Path:
        return self.home / "people"

    @property
    def file(self) -> Path:
        return self.root / NAME

    @property
    def signature(self) -> Path:
        (found,) = self.file.parent.glob("_SIGNATURE_*")
        return found


def made(home: Path) -> Table:
    ring = bs.Keyring(home / "keys.json", create=True)
    for name in ("footer", "pii"):
        ring.create(name)
    return Table(home, Counted(ring), Signing(), Signing())


def signed_table(home: Path, *, plaintext_footer: bool = False) -> Table:
    """With the author's file; and beside it those of others."""
    table = made(home)
    table.file.parent.mkdir(parents=True)
    policy = table.policy(table.author, signed=plaintext_footer)
    bs.write_table(ROWS, table.file, policy=policy)
    # The author's file of the same name in another table; and somebody's who has the author's keys, but not his name.
    elsewhere = replace(policy, name="others").at(table.home / "others")
    (table.home / "others/day=1").mkdir(parents=True)
    bs.write_table(ROWS, table.home / "others" / NAME, policy=elsewhere)
    forged = replace(policy.at(table.home / "forged"), signers={"other": (table.other.key.line,)}, signer=table.other)
    (table.home / "forged/day=1").mkdir(parents=True)
    bs.write_table(ROWS, table.home / "forged" / NAME, policy=forged)
    return table


def copy(table: Table, place: str) -> None:
    shutil.rmtree(table.file.parent)
    shutil.copytree(table.home / place / "day=1", table.file.parent)


def digest(file: Path) -> str:
    return read_tail(Source.memory(file.read_bytes())).digest


@pytest.fixture(scope="module", params=[False, True], ids=["encrypted footer", "plaintext footer"])
def kept_table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Table:
    return signed_table(tmp_path_factory.mktemp("signed"), plaintext_footer=request.param)


@pytest.fixture
def table(kept_table: Table, tmp_path: Path) -> Table:
    home = tmp_path / "copy"
    shutil.copytree(kept_table.home, home)
    return replace(kept_table, home=home)
