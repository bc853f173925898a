"""Hashes and bits that ORC's Java library gave (`make_hashes.py`); ours are the same.

The other parent is the specification in plain Python, and the C++ writer: `tests/orc/test_hashing.py`.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bloomseal.orc.hashing import hash_bytes, hash_longs, positions

PLACE = Path(__file__).with_name("hashes.json")
DATA: dict[str, Any] = json.loads(PLACE.read_bytes())


def test_the_file_is_the_one_that_was_kept() -> None:
    assert (
        hashlib.sha256(PLACE.read_bytes()).hexdigest()
        == "abb61a23dc02d8cf06e55ed8cb285dda7c98e9aa99476ccd321a654a1992aee1"
    )


def test_texts_have_javas_hashes() -> None:
    texts = [bytes.fromhex(text) for text, _ in DATA["texts"]]
    assert max(map(len, texts)) > 40
    assert hash_bytes(texts).tolist() == [hashed for _, hashed in DATA["texts"]]


@pytest.mark.parametrize("found", DATA["filters"], ids=lambda one: f"{one['kind']}-{one['num_bits']}")
def test_filters_have_javas_bits(found: dict[str, Any]) -> None:
    values = found["values"]
    if found["kind"] == "texts":
        hashes = hash_bytes([bytes.fromhex(one) for one in values])
    elif found["kind"] == "longs":
        hashes = hash_longs(np.array(values, np.int64))
    else:
        hashes = hash_longs(np.array([float.fromhex(one) for one in values]).view(np.int64))
    chosen = positions(hashes, found["num_hashes"], found["num_bits"])
    assert sorted(set(chosen.ravel().tolist())) == found["bits"]
    assert len(found["bits"]) < found["num_bits"]
