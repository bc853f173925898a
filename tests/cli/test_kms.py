"""`bloomseal kms check`."""

from __future__ import annotations

from pathlib import Path

import pytest

from bloomseal import Keyring

from .conftest import Run


@pytest.fixture
def uri(folder: Path) -> str:
    keyring = Keyring(folder / "keys.json", create=True)
    keyring.create("pii")
    keyring.create("other")
    return f"keyring:{folder / 'keys.json'}"


def test_a_good_client_passes(run: Run, uri: str) -> None:
    done = run("kms", "check", uri, "--master-key", "pii", "--other-master-key", "other", "--format", "json")
    assert done.code == 0
    assert {one["outcome"] for one in done.json} == {"passed"}
    assert "round_trip" in {one["check"] for one in done.json}


def test_a_master_key_that_does_not_work_fails_with_the_reason(run: Run, uri: str) -> None:
    done = run("kms", "check", uri, "--master-key", "nobody", "--format", "json")
    assert done.code == 1
    failed = [one for one in done.json if one["outcome"] == "failed"]
    assert failed
    assert all("no master key 'nobody'" in one["detail"] for one in failed)


def test_an_unknown_scheme_is_an_error(run: Run, folder: Path) -> None:
    done = run("kms", "check", "nowhere://x", "--master-key", "pii")
    assert (done.code, done.out) == (2, "")
    assert "known schemes" in done.err
