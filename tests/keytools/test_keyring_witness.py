"""The keyring as a witness: which version opens a wrapped key, whatever its text says."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bloomseal import Keyring
from bloomseal.keytools import KmsAccessError, Problem
from bloomseal.keytools.kms_protocols import DescribingKms

KEY = bytes(range(16))


@pytest.fixture
def ring(tmp_path: Path) -> Keyring:
    ring = Keyring(tmp_path / "keys.json", create=True)
    ring.create("pii")
    ring.create("other")
    return ring


def claiming(wrapped: str, version: str) -> str:
    return json.dumps(json.loads(wrapped) | {"masterKeyVersion": version})


def test_the_version_that_opens_it_counts(ring: Keyring) -> None:
    assert isinstance(ring, DescribingKms)
    first = ring.wrap_key(KEY, "pii")
    ring.rotate("pii")
    second = ring.wrap_key(KEY, "pii")
    for claim in ("1", "2", "77"):
        assert ring.opened_by(claiming(first, claim), "pii") == ("pii", "1")
        assert ring.opened_by(claiming(second, claim), "pii") == ("pii", "2")
    ring.disable("pii", 1)
    assert ring.opened_by(claiming(first, "2"), "pii") == ("pii", "1")
    ring.destroy("pii", 1)
    for wrapped, name in ((first, "pii"), (second, "other"), ("{}", "pii"), (second, "unknown")):
        with pytest.raises(KmsAccessError):
            ring.opened_by(wrapped, name)


def test_versions_and_since_when_they_wrap_nothing(ring: Keyring) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    assert [(one.version, one.wraps, one.retired) for one in ring.describe("pii").versions] == [("1", True, None)]
    ring.rotate("pii")
    first, second = ring.describe("pii").versions
    assert (first.wraps, second.wraps, second.retired) == (False, True, None)
    assert first.retired is not None
    assert before <= first.retired
    assert first.fingerprint != second.fingerprint
    ring.disable("pii")
    second = ring.describe("pii").versions[1]
    assert not second.wraps
    assert second.retired is not None
    assert before <= second.retired
    ring.destroy("pii", 1)
    assert ring.describe("pii").versions[0].fingerprint is None
    with pytest.raises(KmsAccessError) as refused:
        ring.describe("pi")
    assert refused.value.problem is Problem.UNKNOWN
