"""What every KMS client must do, as checks that run against the client itself::

    class TestMyKms(KmsClientConformance):
        master_key, other_master_key = "pii", "health"

        def make_client(self):
            return MyKms(...)

The checks wrap a few random keys under the named master keys, and change nothing in the KMS.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from bloomseal.core.encryption import SecretKey
from bloomseal.core.errors import KeyAccessError
from bloomseal.core.keys.access import KmsAccessError, Problem
from bloomseal.core.keys.protocols import KmsClient
from bloomseal.keytools.kms.calls import KmsCalls
from bloomseal.keytools.kms.common import claimed_version
from bloomseal.keytools.kms_protocols import DescribingKms, KeyState, MasterKeyFacts, RewrappingKms

__all__ = ["CHECKS", "Check", "CheckResult", "KmsClientConformance", "Outcome", "check_client"]

_TIMEOUT_SECONDS: Final = 30.0
_THREADS: Final = 8
_ALTERATIONS: Final = 24


class Outcome(StrEnum):
    """How a check went. SKIPPED: the client does not offer what it is about, which it need not."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check's outcome; `detail` says why, unless it passed."""

    name: str
    outcome: Outcome
    detail: str = ""


class _FailedError(Exception):
    """The client does not do what it must."""


class _SkippedError(Exception):
    """The client does not offer it."""


@dataclass(frozen=True)
class _Subject:
    """The client under test, called as the key tools call it."""

    client: KmsClient
    calls: KmsCalls
    master_key: str
    other: str | None
    unknown: str

    def offers(self, capability: type) -> Any:
        if not isinstance(self.client, capability):
            raise _SkippedError(f"the client does not offer {capability.__name__}")
        return self.client

    def facts(self) -> MasterKeyFacts:
        self.offers(DescribingKms)
        return self.calls.describe(self.master_key)


@dataclass(frozen=True)
class Check:
    """One rule. `rule` is a sentence about the client."""

    name: str
    rule: str
    run: Callable[[_Subject], None]


def check_client(
    client: KmsClient,
    master_key: str,
    *,
    other_master_key: str | None = None,
    unknown_master_key: str = "bloomseal-no-such-key",
) -> list[CheckResult]:
    """Run all checks.

    Args:
        client: the client.
        master_key: a master key that may be used to wrap and unwrap.
        other_master_key: a second one, for the checks that need two.
        unknown_master_key: a name that no master key has.
    """
    subject = _subject(client, master_key, other_master_key, unknown_master_key)
    return [_result(check, subject) for check in CHECKS]


class KmsClientConformance:
    """The checks as tests: subclass it in a test module, name the master keys, and make the client."""

    master_key: str = ""
    other_master_key: str | None = None
    unknown_master_key: str = "bloomseal-no-such-key"

    def make_client(self) -> KmsClient:
        """A client that is ready for use."""
        raise NotImplementedError

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        for check in CHECKS:
            setattr(cls, f"test_{check.name}", _as_test(check))


def _as_test(check: Check) -> Callable[[KmsClientConformance], None]:
    def test(self: KmsClientConformance) -> None:
        import pytest

        subject = _subject(self.make_client(), self.master_key, self.other_master_key, self.unknown_master_key)
        result = _result(check, subject)
        if result.outcome is Outcome.SKIPPED:
            pytest.skip(result.detail)
        if result.outcome is Outcome.FAILED:
            pytest.fail(f"{check.rule}: {result.detail}", pytrace=False)

    test.__doc__ = check.rule
    return test


def _subject(client: KmsClient, master_key: str, other: str | None, unknown: str) -> _Subject:
    calls = KmsCalls(client, timeout=_TIMEOUT_SECONDS, attempts=2, max_parallel=_THREADS)
    return _Subject(client, calls, master_key, other, unknown)


def _result(check: Check, subject: _Subject) -> CheckResult:
    try:
        check.run(subject)
    except _SkippedError as reason:
        return CheckResult(check.name, Outcome.SKIPPED, str(reason))
    except _FailedError as reason:
        return CheckResult(check.name, Outcome.FAILED, str(reason))
    except KeyAccessError as error:
        return CheckResult(check.name, Outcome.FAILED, str(error))
    except Exception as error:
        # Of the optional methods, which are called directly. The message is the client's, and may hold anything.
        return CheckResult(check.name, Outcome.FAILED, f"it failed with {type(error).__name__}")
    return CheckResult(check.name, Outcome.PASSED)


def _round_trip(subject: _Subject) -> None:
    for bits in (128, 192, 256):
        key = SecretKey.generate(bits)
        if subject.calls.unwrap(subject.calls.wrap(key, subject.master_key), subject.master_key) != key:
            raise _FailedError(f"a key of {bits} bits came back as another one")


def _hidden(subject: _Subject) -> None:
    key = SecretKey.generate(256)
    wrapped = subject.calls.wrap(key, subject.master_key)
    raw = key.reveal()
    shapes = (raw.hex(), raw.hex().upper(), base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode())
    if any(shape.rstrip("=") in wrapped for shape in shapes):
        raise _FailedError("the wrapped text shows the key")


def _text(subject: _Subject) -> None:
    wrapped = subject.calls.wrap(SecretKey.generate(256), subject.master_key)
    if json.loads(json.dumps(wrapped)) != wrapped or not wrapped.isprintable():
        raise _FailedError("the wrapped text does not pass through JSON as it is")
    if len(wrapped) > 8192:
        raise _FailedError(f"the wrapped text has {len(wrapped)} characters; it stands in every file")


def _altered(subject: _Subject) -> None:
    key = SecretKey.generate(256)
    wrapped = subject.calls.wrap(key, subject.master_key)
    step = max(1, len(wrapped) // _ALTERATIONS)
    for at in range(0, len(wrapped), step):
        other = "A" if wrapped[at] != "A" else "B"
        _refused_or_same(subject, wrapped[:at] + other + wrapped[at + 1 :], key, f"with character {at} altered")


def _truncated(subject: _Subject) -> None:
    key = SecretKey.generate(256)
    wrapped = subject.calls.wrap(key, subject.master_key)
    for length in (len(wrapped) - 1, len(wrapped) - 4, len(wrapped) // 2, 1):
        _refused_or_same(subject, wrapped[:length], key, f"cut to {length} characters")


def _garbage(subject: _Subject) -> None:
    for text in (
        "",
        "{}",
        "null",
        "%",
        "A" * 32,
        "A" * 64,
        "\x00",
        '{"masterKeyVersion":"1","encryptedKey":"AAAA"}',
        "ü" * 40,
    ):
        error = _refusal(lambda text=text: subject.calls.unwrap(text, subject.master_key))  # type: ignore[misc]
        if error is None:
            raise _FailedError("a key came out of garbage")


def _refused_or_same(subject: _Subject, wrapped: str, key: SecretKey, how: str) -> None:
    """Some alterations mean nothing (the unused bits of base64, say); what may never come out is another key."""
    try:
        came_out = subject.calls.unwrap(wrapped, subject.master_key)
    except KeyAccessError as error:
        if error.retryable:
            raise _FailedError(f"a wrapped key {how} is answered as if trying again could help") from None
        return
    if came_out != key:
        raise _FailedError(f"a wrapped key {how} gave another key")


def _unknown(subject: _Subject) -> None:
    wrapped = subject.calls.wrap(SecretKey.generate(128), subject.master_key)
    for attempt in (
        lambda: subject.calls.wrap(SecretKey.generate(128), subject.unknown),
        lambda: subject.calls.unwrap(wrapped, subject.unknown),
    ):
        error = _refusal(attempt)
        if error is None:
            raise _FailedError("a master key that doesn't exist was used")
        if not isinstance(error, KmsAccessError) or error.problem not in (Problem.UNKNOWN, Problem.DENIED):
            raise _FailedError(f"it should be answered as unknown or denied, and was: {error.what}")


def _other_key(subject: _Subject) -> None:
    if subject.other is None:
        raise _SkippedError("no second master key was named")
    wrapped = subject.calls.wrap(SecretKey.generate(128), subject.master_key)
    error = _refusal(lambda: subject.calls.unwrap(wrapped, subject.other or ""))
    if error is None:
        raise _FailedError("a key wrapped under one master key was unwrapped under another")
    if error.retryable:
        raise _FailedError("another master key's wrapping is answered as if trying again could help")


def _threads(subject: _Subject) -> None:
    keys = [SecretKey.generate(128) for _ in range(4 * _THREADS)]

    def there_and_back(key: SecretKey) -> bool:
        return subject.calls.unwrap(subject.calls.wrap(key, subject.master_key), subject.master_key) == key

    with ThreadPoolExecutor(_THREADS) as pool:
        if not all(pool.map(there_and_back, keys)):
            raise _FailedError("keys of different threads were mixed up")


def _discreet(subject: _Subject) -> None:
    key = SecretKey.generate(256)
    wrapped = subject.calls.wrap(key, subject.master_key)
    raw = key.reveal()
    for attempt in (
        lambda: subject.client.wrap_key(raw, subject.unknown),
        lambda: subject.client.unwrap_key(wrapped[:-6] + "AAAAAA", subject.master_key),
    ):
        try:
            attempt()
        except Exception as error:
            told = " ".join(_chain(error))
            if any(shape in told for shape in (raw.hex(), base64.b64encode(raw).decode(), repr(raw)[2:-1])):
                raise _FailedError("an error's message, or one in its chain, shows the key") from None


def _chain(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        yield str(error)
        yield repr(error)
        error = error.__cause__ or error.__context__


def _versions(subject: _Subject) -> None:
    facts = subject.facts()
    current, wrapped = facts.current, subject.calls.wrap(SecretKey.generate(128), subject.master_key)
    used = claimed_version(wrapped)
    for version in (current, used):
        if version is not None and (not isinstance(version, str) or not version):
            raise _FailedError("versions are texts, or None")
    if None not in (current, used) and current != used:
        raise _FailedError(f"the current version is {current}, and a fresh wrapping says {used}")
    opens = subject.offers(DescribingKms).opened_by(wrapped, subject.master_key)
    if opens is not None and opens != facts.identify(current):
        raise _FailedError(f"the current version is {current}, and {opens} opens a fresh wrapping")


def _state(subject: _Subject) -> None:
    state = subject.facts().state
    if state not in (None, KeyState.ENABLED):
        raise _FailedError(f"a master key that wraps is told to be {state!r}")


def _dates(subject: _Subject) -> None:
    dates = subject.facts()
    for date in (dates.created, dates.rotated):
        if date is not None and date.tzinfo is None:
            raise _FailedError("a date without a time zone")
    if dates.created and dates.rotated and dates.rotated < dates.created:
        raise _FailedError("rotated before it was made")


def _rewrap(subject: _Subject) -> None:
    client = subject.offers(RewrappingKms)
    key = SecretKey.generate(256)
    wrapped = subject.calls.wrap(key, subject.master_key)
    for target in filter(None, (subject.master_key, subject.other)):
        moved = client.rewrap_key(wrapped, subject.master_key, target)
        if subject.calls.unwrap(moved, target) != key:
            raise _FailedError("a re-wrapped key came back as another one")


def _refusal(attempt: Callable[[], object]) -> KeyAccessError | None:
    try:
        attempt()
    except KeyAccessError as error:
        return error
    return None


CHECKS: Final = (
    Check("round_trip", "keys of 128, 192 and 256 bits come back as they were", _round_trip),
    Check("hides_the_key", "a wrapped key does not show the key", _hidden),
    Check("text_fits_into_files", "a wrapped key is text that fits into a file", _text),
    Check("refuses_altered_keys", "an altered wrapped key is refused", _altered),
    Check("refuses_truncated_keys", "a truncated wrapped key is refused", _truncated),
    Check("refuses_garbage", "what is no wrapped key is refused", _garbage),
    Check("knows_no_unknown_master_key", "an unknown master key is refused as unknown or denied", _unknown),
    Check("keeps_master_keys_apart", "a key wrapped under one master key is refused under another", _other_key),
    Check("bears_threads", "several threads may use one client", _threads),
    Check("is_discreet", "errors don't show keys", _discreet),
    Check("tells_versions", "the version of a fresh wrapping is the current one", _versions),
    Check("tells_the_state", "a master key that wraps is enabled", _state),
    Check("tells_dates", "dates are in order and have a time zone", _dates),
    Check("rewraps", "a re-wrapped key is the same key", _rewrap),
)
