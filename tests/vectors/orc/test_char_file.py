"""A file (`make_char.py`) whose filter of a char column lacks values of the column, as some writers leave it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

import bloomseal as bs
from bloomseal import Verdict
from bloomseal.core.errors import PolicyError, UnsupportedError, UsageError
from bloomseal.orc.asking.values import OrcProbeSet

PLACE = Path(__file__).with_name("char.orc")
ROWS = [(number, f"c{number * 7919 % 10007}") for number in range(200)]


def test_no_value_that_is_there_is_absent() -> None:
    data = PLACE.read_bytes()
    assert hashlib.sha256(data).hexdigest() == "c146d0753cbcc66b22b213e17424757dcd5656d7f1e181a409763ad95431fcbe"
    with bs.open_file(data) as file:
        texts = [text for _, text in ROWS]
        (answer,) = file.verdicts("c", texts)
        assert answer.verdicts == [Verdict.NO_FILTER] * len(ROWS)
        assert str(answer.untrusted).endswith("filters over char miss values (seen in its files)")
        (truth,) = file.filter(0, "c") or []
        asked = OrcProbeSet.of_column(texts, file.schema.leaf("c"), zone="", hybrid=False)
        assert asked.check(truth).sum() < 20, "the file no longer shows it"
        assert Verdict.ABSENT not in file.verdicts("id", [number for number, _ in ROWS])[0].verdicts
    for number, text in ROWS[::20]:
        (row,) = bs.read_table(data, where=[("c", "==", text.ljust(12))]).to_pylist()
        assert (row["id"], row["c"].rstrip()) == (number, text)


def test_no_filter_is_added_that_nobody_would_believe(tmp_path: Path) -> None:
    path = tmp_path / "char.orc"
    path.write_bytes(PLACE.read_bytes())
    with pytest.raises((UnsupportedError, UsageError, PolicyError), match="filters over char"):
        bs.attach_filters(path, {"c": bs.FilterSpec(fpp=0.01)})
    assert path.read_bytes() == PLACE.read_bytes()
