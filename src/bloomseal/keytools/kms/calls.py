"""Calls to one KMS client: bounded in time and number, retried where that can help, counted, and failing with our
errors only.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import random
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from ...core.encryption import SecretKey
from ...core.errors import BloomsealError, KeyAccessError, UnsupportedError, UsageError
from ...core.forked import renewed_in_child
from ...core.keys.access import KmsAccessError, Problem, raised_by
from ...core.keys.protocols import KmsClient
from ...core.limits import MAX_KEY_METADATA_BYTES
from ...core.text import articled
from ..kms_protocols import BytesKms, DescribingKms, MasterKeyFacts, MasterVersion, RewrappingKms
from .counters import Counters

T = TypeVar("T")
_FIRST_WAIT: Final = 0.1
_LONGEST_WAIT: Final = 5.0
_LONGEST_PATIENT_WAIT: Final = 30.0


class KmsCalls:
    """A KMS client as the key tools call it.

    Args:
        client: the caller's client; it must bear calls from several threads. One whose class says ``answers_at_once``
            has all it needs at hand: its calls run in the caller's thread.
        timeout: seconds that one key may take, with waiting for a free slot and all retries.
        attempts: calls for one key, at most. Only retryable failures are repeated, after a random, growing wait.
        max_parallel: calls under way at the same time, at most.

    Attributes:
        patience: seconds for which calls go on being repeated, whatever `timeout` and `attempts` say, where the KMS
            throttles: counted from the first such answer after one that was none. Work on many files sets it
            (`patient`).
    """

    def __init__(self, client: KmsClient, *, timeout: float, attempts: int, max_parallel: int) -> None:
        self.client = client
        self._timeout = timeout
        self._attempts = attempts
        self._max_parallel = max_parallel
        self.patience = 0.0
        self._throttled_since: float | None = None
        self._counters = Counters()
        self._renew()
        renewed_in_child(self)

    def _renew(self) -> None:
        self._slots = threading.BoundedSemaphore(self._max_parallel)
        self._lock = threading.Lock()
        self._given_up = threading.Event()

    def give_up(self) -> None:
        """Wait no more between two calls, in any thread, until `patient` ends. Ctrl-C reaches the main thread alone:
        the others would go on until the throttling ends.
        """
        self._given_up.set()

    @property
    def counters(self) -> Counters:
        """A snapshot; `hits` is the cache's affair."""
        with self._lock:
            return self._counters

    def epoch(self) -> Hashable:
        """The client's change marker: some value that differs once its keys have changed; None where it does not tell.

        Raises:
            KeyAccessError: the client could not say.
        """
        # Asked for with every key, where isinstance with a protocol would take longer than all the rest.
        change_marker = getattr(self.client, "change_marker", None)
        if not callable(change_marker):
            return None
        try:
            marker: Hashable = change_marker()
            return marker
        except BloomsealError:
            raise
        except Exception as error:
            # Raised below, so that the chain ends there: a foreign message may hold a secret.
            failed = raised_by(error)
        raise KeyAccessError(f"the KMS client's change_marker failed with {failed}")

    def place(self, master_key: str, wrapped: str) -> Hashable:
        """The name that a cache keeps an unwrapped key under."""
        # By what was wrapped, never by the KEK's id: a hostile file could claim another file's id, and put its refusal
        # in the way.
        return id(self), self.epoch(), master_key, hashlib.sha256(wrapped.encode()).digest()

    def writes_for_others(self, master_key: str) -> bool:
        """Whether keys are wrapped to recipients: the process that makes one is not to read back what is under it."""
        return master_key in getattr(self.client, "recipients", ())

    @property
    def writes_only(self) -> bool:
        """Nothing can be unwrapped."""
        return getattr(self.client, "writes_only", False)

    def wrap(self, key: SecretKey, master_key: str) -> str:
        """`key` wrapped by the KMS.

        Raises:
            KeyAccessError: refused, unreachable, or an answer that is no text.
        """
        return self._text(self.ask("wraps", master_key, self.client.wrap_key, key.reveal(), master_key), master_key)

    def wrap_own(self, key: SecretKey, master_key: str) -> str:
        """As `wrap`, by a client that has ``wrap_own``: so that no holder of a public key can have done it."""
        own: Any = self.client
        return self._text(self.ask("wraps", master_key, own.wrap_own, key.reveal(), master_key), master_key)

    def rewrap(self, wrapped: str, master_key: str, new: str) -> str:
        """What `wrapped` holds, wrapped under master key `new` by a client that is a `RewrappingKms`.

        Raises:
            KeyAccessError: as `wrap`.
        """
        assert isinstance(self.client, RewrappingKms)  # noqa: S101
        return self._text(self.ask("wraps", master_key, self.client.rewrap_key, wrapped, master_key, new), new)

    def _text(self, wrapped: object, master_key: str) -> str:
        if isinstance(wrapped, bytes | bytearray):
            # pyarrow takes bytes from its subclasses too, and many return what base64.b64encode gave them.
            try:
                wrapped = wrapped.decode()
            except UnicodeDecodeError:
                wrapped = ""  # kept as text it could never be unwrapped again
        if isinstance(wrapped, str) and not _is_text(wrapped):
            wrapped = ""  # no file can hold it
        if not isinstance(wrapped, str) or not 0 < len(wrapped) <= MAX_KEY_METADATA_BYTES // 2:
            raise self._invalid(master_key, "it returned no text of reasonable length for a wrapped key")
        return wrapped

    def unwrap(self, wrapped: str, master_key: str) -> SecretKey:
        """The key that `wrapped` holds.

        Raises:
            KeyAccessError: refused, unreachable, or an answer that is no AES key.
        """
        return self._key(self.ask("unwraps", master_key, self.client.unwrap_key, wrapped, master_key), master_key)

    def unwrap_bytes(self, wrapped: bytes, master_key: str) -> SecretKey:
        """The key that the service's own ciphertext holds, see `BytesKms`.

        Raises:
            KeyAccessError: as `unwrap`.
            UnsupportedError: the client opens none.
        """
        if not isinstance(self.client, BytesKms):
            raise UnsupportedError(f"{self.name} opens no keys of Iceberg tables")
        return self._key(self.ask("unwraps", master_key, self.client.unwrap_bytes, wrapped, master_key), master_key)

    def _key(self, key: object, master_key: str) -> SecretKey:
        if isinstance(key, str):
            key = key.encode()  # as pyarrow does
        if not isinstance(key, bytes | bytearray):
            raise self._invalid(master_key, "it returned something other than bytes for a key")
        if len(key) not in (16, 24, 32):
            raise self._invalid(master_key, f"it returned a key of {len(key)} bytes; AES keys have 16, 24 or 32")
        return SecretKey(bytes(key))

    def describe(self, master_key: str, wrapped: str | None = None) -> MasterKeyFacts:
        """As `DescribingKms.describe`; of a client that is none, nothing is told.

        Raises:
            KeyAccessError: refused, unreachable, or an answer that is none.
        """
        if not isinstance(self.client, DescribingKms):
            return MasterKeyFacts(master_key)
        told: object = self.ask("checks", master_key, self.client.describe, master_key, wrapped)
        if not isinstance(told, MasterKeyFacts):
            raise self._invalid(master_key, "it returned no MasterKeyFacts")
        return told

    def opened_by(self, wrapped: str | bytes, master_key: str) -> MasterVersion:
        """As `DescribingKms.opened_by`.

        Raises:
            KeyAccessError: refused, unreachable; or a client that can't tell.
        """
        client, told = self.client, None
        if isinstance(client, DescribingKms) and (isinstance(wrapped, str) or isinstance(client, BytesKms)):
            told = self.ask("unwraps", master_key, client.opened_by, wrapped, master_key)
        if told is None:
            raise self._invalid(master_key, "its client does not tell which version opens a wrapped key")
        return MasterVersion(*told)

    @property
    def name(self) -> str:
        """How messages call the KMS."""
        return str(getattr(self.client, "kms_name", type(self.client).__name__))

    def _invalid(self, master_key: str, detail: str) -> KmsAccessError:
        return KmsAccessError.because(Problem.INVALID, master_key, self.name, detail=detail)

    def ask(self, counter: str, master_key: str, function: Callable[..., T], *arguments: Any) -> T:
        """What the client answers: in time, and asked again where that helps.

        Args:
            counter: the call's name in `Counters`.
            function: the client's method, for `arguments`.

        Raises:
            KeyAccessError: refused or unreachable.
        """
        # Not by tenacity: patience moves the deadline and `give_up` ends a wait, so that its `stop`, `wait` and `sleep`
        # would be these very lines, behind a library that loads asyncio.
        need_name(master_key, self.name)
        call, attempt = functools.partial(function, *arguments), 0
        deadline = time.monotonic() + self._timeout
        while True:
            attempt += 1
            try:
                return self._once(counter, call, master_key, deadline)
            except KeyAccessError as error:
                failed, patience = error, self._patience_left(error)
            longest = _LONGEST_PATIENT_WAIT if patience else _LONGEST_WAIT
            # Random and growing ("full jitter"), so that many processes don't come back at the same time.
            pause = random.uniform(0, min(_FIRST_WAIT * 2.0 ** min(attempt - 1, 30), longest))  # noqa: S311  # no secret
            spent = attempt >= self._attempts or time.monotonic() + pause >= deadline
            if not failed.retryable or self._given_up.is_set() or (spent and not patience):
                raise failed
            self._wait(min(pause, patience) if patience else pause)
            if self._given_up.is_set():
                raise failed
            if patience:
                deadline = time.monotonic() + self._timeout
            self._count(retries=1)

    def _patience_left(self, failed: KeyAccessError) -> float:
        """Seconds for which the throttling that this is, is still to be waited out."""
        if not _throttled(failed) or (since := self._throttled_since) is None:
            return 0.0
        return max(0.0, since + self.patience - time.monotonic())

    def _wait(self, seconds: float) -> None:
        self._given_up.wait(seconds)

    def _once(self, counter: str, function: Callable[[], T], master_key: str, deadline: float) -> T:
        if not self._slots.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise KmsAccessError.because(
                Problem.UNREACHABLE, master_key, self.name, detail="too many calls are waiting"
            )
        began = time.monotonic()
        try:
            outcome = _done(function) if answers_at_once(self.client) else started(function)
            try:
                # Not Future.result: its exception would be the context of ours, message and all.
                failure = outcome.exception(max(0.0, deadline - began))
            except TimeoutError:
                failure = TimeoutError()
        finally:
            # Also when the call is still under way: it was given up, and must not keep others from trying.
            self._slots.release()
            elapsed = time.monotonic() - began
            self._count(**{counter: 1}, seconds=elapsed, slowest=elapsed)
        if failure is None:
            self._throttled_since = None
            return outcome.result()
        error = self._translated(failure, master_key)
        if not _throttled(error):
            self._throttled_since = None
        elif self._throttled_since is None:
            self._throttled_since = time.monotonic()
        refused = isinstance(error, KmsAccessError) and error.problem not in (
            Problem.UNREACHABLE,
            Problem.THROTTLED,
            Problem.INVALID,
        )
        self._count(**{"denials" if refused else "failures": 1})
        raise error

    def _translated(self, failure: BaseException, master_key: str) -> BloomsealError:
        """The error for what a client raised. A foreign message may hold a token or a key, so only its type and place
        are told.
        """
        if isinstance(failure, BloomsealError):
            return failure
        detail = raised_by(failure)
        if isinstance(failure, PermissionError):
            problem = Problem.DENIED
        elif isinstance(failure, LookupError):
            problem = Problem.UNKNOWN
        elif isinstance(failure, TimeoutError):
            problem, detail = Problem.UNREACHABLE, f"no answer in time ({type(failure).__name__})"
        elif isinstance(failure, ConnectionError):
            problem = Problem.UNREACHABLE
        else:
            problem, detail = Problem.INVALID, f"the client failed with {detail}"
        return KmsAccessError.because(problem, master_key, self.name, detail=detail)

    def _count(self, **more: Any) -> None:
        with self._lock:
            self._counters += Counters(**more)


@contextlib.contextmanager
def patient(every: Iterable[KmsCalls], seconds: float) -> Iterator[None]:
    """Wait so long for a KMS that throttles, as work on thousands of files should: where one file would rather fail."""
    before = {calls: calls.patience for calls in every}
    for calls in before:
        calls.patience = seconds
    try:
        yield
    finally:
        for calls, patience in before.items():
            calls.patience = patience
            calls._given_up.clear()


def need_name(master_key: str, kms: str) -> None:
    """Refuse a master key's name that no file can hold. Raises KmsAccessError."""
    if not _is_text(master_key):
        raise KmsAccessError.because(Problem.UNKNOWN, master_key, kms, detail="its name is no text")


def _is_text(given: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in given)


def answers_at_once(client: KmsClient) -> bool:
    """Whether it has all it needs at hand. Said by a class of itself alone: a subclass may do anything, and wait."""
    return "answers_at_once" in vars(type(client)) and bool(getattr(client, "answers_at_once", False))


def _throttled(failed: BaseException | None) -> bool:
    return isinstance(failed, KmsAccessError) and failed.problem is Problem.THROTTLED


def started(function: Callable[[], T]) -> Future[T]:
    """Run in a daemon thread: a call that never returns must hang neither its caller nor the end of the interpreter."""
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(function())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, name="bloomseal KMS call", daemon=True).start()
    return outcome


def _done(function: Callable[[], T]) -> Future[T]:
    """As `started`, done in this thread before it returns."""
    outcome: Future[T] = Future()
    try:
        outcome.set_result(function())
    except Exception as error:
        outcome.set_exception(error)
    return outcome


def client_of(kms: KmsClient | str) -> KmsClient:
    """A client, or the one that a KMS URI names.

    Raises:
        UsageError: neither.
    """
    if isinstance(kms, str):
        from .registry import client_for

        return client_for(kms)
    if not isinstance(kms, KmsClient):
        raise UsageError(f"{articled(type(kms).__name__)} is no KMS client", hint="it needs wrap_key and unwrap_key")
    return kms
