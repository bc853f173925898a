"""The Spark blocks of README and docs/start.md work with the policy that `policy init` proposes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bloomseal as bs
from bloomseal.audit.proposal import policy_text, propose
from bloomseal.rotation import Seal, rotate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]
ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```python no-run\n(?P<body>import bloomseal\.spark as bss\n.*?)^```$", re.MULTILINE | re.DOTALL)
PATIENTS = {"ssn": ["219-09-9999", "078-05-1120"], "diagnosis": ["F32.9", "E11.9"]}
CUSTOMERS = {"email": [f"person{i}@mail.example" for i in range(31_410, 31_420)], "plan": ["free", "pro"] * 5}


@pytest.mark.parametrize(
    ("document", "name", "rows", "shown", "files"),
    [
        ("README.md", "patients", PATIENTS, "078-05-1120", 2),
        ("docs/start.md", "customers", CUSTOMERS, "person31415@", 1),
    ],
)
def test_the_block_works(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    document: str, name: str, rows: dict[str, Any], shown: str, files: int,
) -> None:  # fmt: skip
    folder, ring = tmp_path / name, bs.Keyring(tmp_path / "keys.json", create=True)
    folder.mkdir()
    pq.write_table(pa.table(rows), folder / "clear.parquet")
    proposal = propose(folder)
    for key in proposal.master_keys:
        ring.create(key)
    (tmp_path / "policy.toml").write_text(policy_text([proposal], f"keyring://{ring.path}", tmp_path), encoding="utf-8")
    policy = bs.Policy.load(tmp_path / "policy.toml").for_table()
    assert rotate([folder], Seal(policy), journal=tmp_path / "journal").ok
    (block,) = FENCE.findall((ROOT / document).read_text(encoding="utf-8"))
    placed = re.sub(rf'(?<!")"({name}|policy\.toml)"(?!:)', lambda found: repr(str(tmp_path / found[1])), block)
    capsys.readouterr()
    exec(placed, {"spark": spark})  # noqa: S102 - the documents are ours
    assert shown in capsys.readouterr().out
    assert len(list(folder.glob("*.parquet"))) == files
    assert bs.verify(folder, decryption=policy).ok
