# ruff: noqa: ARG002  # the stand-ins ignore what a good client would not
"""The conformance checks pass good clients, and each of them fails a client that breaks its rule."""

from __future__ import annotations

import base64
import os
from datetime import datetime
from pathlib import Path

import pytest

from bloomseal import Keyring
from bloomseal.keytools import KmsAccessError, Problem
from bloomseal.keytools.kms.common import pack
from bloomseal.keytools.kms_protocols import KeyState, MasterKeyFacts, MasterVersion
from support.kms_conformance import CHECKS, KmsClientConformance, Outcome, check_client
from support.stand_ins import MASTER_KEYS, InMemoryKms, PyArrowKms


class TestKeyring(KmsClientConformance):
    master_key, other_master_key = "pii", "health"

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.path = tmp_path / "keys.json"

    def make_client(self) -> Keyring:
        ring = Keyring(self.path, create=True)
        ring.create("pii")
        ring.create("health", bits=128)
        ring.rotate("pii")
        return ring


class TestInMemory(KmsClientConformance):
    master_key, other_master_key = "kc1", "kc2"

    def make_client(self) -> InMemoryKms:
        return InMemoryKms()


class TestPyArrowSubclass(KmsClientConformance):
    master_key, other_master_key = "kc1", "kc2"

    def make_client(self) -> PyArrowKms:
        return PyArrowKms()


class _Unauthenticated(InMemoryKms):
    """Encodes, and that is all."""

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        return base64.b64encode(bytes(byte ^ 1 for byte in key_bytes)).decode()

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        return bytes(byte ^ 1 for byte in base64.b64decode(wrapped_key))


class _Plain(_Unauthenticated):
    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        return base64.b64encode(key_bytes).decode()

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        return base64.b64decode(wrapped_key)


class _OneKeyForAll(InMemoryKms):
    """Names of master keys mean nothing to it."""

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        return super().wrap_key(key_bytes, "kf")

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        return super().unwrap_key(wrapped_key, "kf")


class _Shortens(InMemoryKms):
    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        return super().unwrap_key(wrapped_key, master_key_identifier)[:16]


class _Multiline(InMemoryKms):
    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        return super().wrap_key(key_bytes, master_key_identifier) + "\n"


class _Chatty(InMemoryKms):
    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        if master_key_identifier not in self.keys:
            raise LookupError(f"can't wrap {key_bytes.hex()}")
        return super().wrap_key(key_bytes, master_key_identifier)


class _Shared(InMemoryKms):
    """Keeps what it works on in itself."""

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        self.current = key_bytes
        os.sched_yield()
        self._Call(self, "pause").__enter__()
        return super().wrap_key(self.current, master_key_identifier)

    latency = 0.01


class _BadCapabilities(InMemoryKms):
    def describe(self, master_key_identifier: str, wrapped_key: str | None = None) -> MasterKeyFacts:
        return MasterKeyFacts(master_key_identifier, "2", KeyState.DISABLED, created=datetime(2026, 1, 1))

    def opened_by(self, wrapped_key: str, master_key_identifier: str) -> MasterVersion:
        return MasterVersion(master_key_identifier, "1")

    def rewrap_key(self, wrapped_key: str, master_key_identifier: str, new: str | None = None) -> str:
        return self.wrap_key(b"x" * 16, new or master_key_identifier)


class _Misversioned(InMemoryKms):
    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        return pack("1", super().wrap_key(key_bytes, master_key_identifier).encode())

    describe, opened_by = _BadCapabilities.describe, _BadCapabilities.opened_by


class _AlwaysBusy(InMemoryKms):
    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        try:
            return super().unwrap_key(wrapped_key, master_key_identifier)
        except Exception:
            raise KmsAccessError.because(Problem.UNREACHABLE, master_key_identifier) from None


_BREAKS = {
    "round_trip": _Shortens(),
    "hides_the_key": _Plain(),
    "text_fits_into_files": _Multiline(),
    "refuses_altered_keys": _Unauthenticated(),
    "refuses_truncated_keys": _AlwaysBusy(),
    "refuses_garbage": _Unauthenticated(),
    "knows_no_unknown_master_key": _OneKeyForAll(),
    "keeps_master_keys_apart": _OneKeyForAll(),
    "bears_threads": _Shared(latency=0.01),
    "is_discreet": _Chatty(),
    "tells_versions": _BadCapabilities(),
    "tells_the_state": _BadCapabilities(),
    "tells_dates": _BadCapabilities(),
    "rewraps": _BadCapabilities(),
}


def test_there_is_a_bad_client_for_every_check() -> None:
    assert set(_BREAKS) == {check.name for check in CHECKS}


@pytest.mark.parametrize("name", _BREAKS)
def test_the_bad_client_fails_its_check(name: str) -> None:
    check = next(check for check in CHECKS if check.name == name)
    results = check_client(_BREAKS[name], "kc1", other_master_key="kc2")
    mine = next(result for result in results if result.name == check.name)
    assert mine.outcome is Outcome.FAILED, results
    assert mine.detail


def test_the_version_that_a_wrapping_claims_is_the_current_one() -> None:
    results = check_client(_Misversioned(), "kc1")
    mine = next(result for result in results if result.name == "tells_versions")
    assert mine.detail == "the current version is 2, and a fresh wrapping says 1"


def test_what_a_client_does_not_offer_is_skipped() -> None:
    skipped = {result.name for result in check_client(InMemoryKms(), "kc1") if result.outcome is Outcome.SKIPPED}
    assert skipped == {"keeps_master_keys_apart", "tells_versions", "tells_the_state", "tells_dates", "rewraps"}


def test_an_unknown_master_key_fails_nearly_everything() -> None:
    results = check_client(InMemoryKms({"kf": MASTER_KEYS["kf"]}), "typo")
    assert {result.outcome for result in results if result.name == "round_trip"} == {Outcome.FAILED}
    assert any("knows no master key 'typo'" in result.detail for result in results)


def test_the_pytest_class_wants_a_client() -> None:
    with pytest.raises(NotImplementedError):
        KmsClientConformance().make_client()
