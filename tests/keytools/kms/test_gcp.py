"""The Google Cloud client, through Google's own library, against a stub of the documented gRPC API (there is no server
to be had).
"""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import kms as google_kms

from bloomseal import KeyTools
from bloomseal.core.errors import UsageError
from bloomseal.keytools import KmsAccessError, Problem
from bloomseal.keytools.kms.common import claimed_version
from bloomseal.keytools.kms.gcp import GcpKms
from bloomseal.keytools.kms.registry import client_for
from bloomseal.keytools.kms_protocols import KeyState
from bloomseal.rotation.keys import Rewrapper, mapped
from support.kms_conformance import KmsClientConformance
from support.vendor_stubs import GcpStub

RING = "projects/p/locations/europe-west3/keyRings/lake"
KEY = bytes(range(32))


@pytest.fixture
def server() -> Iterator[GcpStub]:
    with GcpStub(RING) as stub:
        stub.new_key("pii")
        stub.new_key("health")
        yield stub


@pytest.fixture
def kms(server: GcpStub) -> GcpKms:
    transport = google_kms.KeyManagementServiceClient.get_transport_class("grpc")(
        channel=grpc.insecure_channel(server.address), credentials=AnonymousCredentials()
    )
    return GcpKms(RING, google_kms.KeyManagementServiceClient(transport=transport))


class TestConformance(KmsClientConformance):
    master_key, other_master_key = "pii", "health"

    @pytest.fixture(autouse=True)
    def _kms(self, kms: GcpKms) -> None:
        self.kms = kms

    def make_client(self) -> GcpKms:
        return self.kms


def test_versions(kms: GcpKms, server: GcpStub) -> None:
    old = kms.wrap_key(KEY, "pii")
    assert kms.describe("pii").rotated is None
    server.new_key("pii")
    new = kms.wrap_key(KEY, "pii")
    assert [claimed_version(text) for text in (old, new)] == ["1", "2"]
    assert kms.describe("pii").current == "2"
    dates = kms.describe("pii")
    assert dates.created is not None
    assert dates.rotated is not None
    assert (dates.created.day, dates.rotated.day) == (1, 2)


@pytest.mark.parametrize(
    ("state", "meant", "problem"),
    [
        ("DISABLED", KeyState.DISABLED, Problem.DISABLED),
        ("DESTROY_SCHEDULED", KeyState.PENDING_DELETION, Problem.DISABLED),
        ("DESTROYED", KeyState.DESTROYED, Problem.DESTROYED),
    ],
)
def test_states(kms: GcpKms, server: GcpStub, state: str, meant: KeyState, problem: Problem) -> None:
    wrapped = kms.wrap_key(KEY, "pii")
    server.states["pii", 1] = state
    assert kms.describe("pii").state is meant
    with pytest.raises(KmsAccessError) as refused:
        kms.unwrap_key(wrapped, "pii")
    assert refused.value.problem is problem
    assert refused.value.__context__ is None


@pytest.mark.parametrize(
    "name", ["../x", "pii/cryptoKeyVersions/1", "projects/q/locations/l/keyRings/r/cryptoKeys/k", "", "ü"]
)
def test_a_files_master_key_can_not_lead_elsewhere(kms: GcpKms, server: GcpStub, name: str) -> None:
    with pytest.raises(KmsAccessError) as refused:
        kms.wrap_key(KEY, name)
    assert refused.value.problem is Problem.UNKNOWN
    assert server.requests == []


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        ("PERMISSION_DENIED", Problem.DENIED),
        ("UNAUTHENTICATED", Problem.DENIED),
        ("NOT_FOUND", Problem.UNKNOWN),
        ("FAILED_PRECONDITION", Problem.DISABLED),
        ("INVALID_ARGUMENT", Problem.INVALID),
        ("RESOURCE_EXHAUSTED", Problem.THROTTLED),
        ("UNAVAILABLE", Problem.UNREACHABLE),
        ("DEADLINE_EXCEEDED", Problem.UNREACHABLE),
        ("INTERNAL", Problem.UNREACHABLE),
    ],
)
def test_every_refusal_has_its_meaning(kms: GcpKms, server: GcpStub, status: str, problem: Problem) -> None:
    server.failing = status
    with pytest.raises(KmsAccessError) as refused:
        kms.wrap_key(KEY, "pii")
    assert refused.value.problem is problem
    assert refused.value.retryable is (problem in (Problem.UNREACHABLE, Problem.THROTTLED))
    assert "AAECAwQFBgc" not in str(refused.value)
    assert refused.value.__context__ is None
    assert len(server.requests) == 1  # the vendor's library did not retry by itself


@pytest.mark.parametrize("uri", ["gcp-kms:", "gcp-kms://projects/p/locations/l", f"gcp-kms://{RING}/cryptoKeys/k"])
def test_uris_that_are_none(uri: str) -> None:
    with pytest.raises(UsageError):
        client_for(uri)


def test_its_symmetric_keys_authenticate_writers(kms: GcpKms) -> None:
    assert kms.describe("pii", kms.wrap_key(KEY, "pii")).authenticates_writers is True


def test_a_new_wrapping_is_compared(kms: GcpKms, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key passes through this process; a wrapping of another key in its place would be the loss of the file."""
    old, other = kms.wrap_key(KEY, "pii"), kms.wrap_key(bytes(32), "health")
    monkeypatch.setattr(GcpKms, "wrap_key", lambda *_: other)
    tools = KeyTools(kms)
    with pytest.raises(KmsAccessError, match="wrapped another key"):
        Rewrapper(tools, mapped({"pii": "health"}))._rewrap(("pii", old, "health"), tools.calls_for(None))
