"""The key helper: ``python -P -m bloomseal.keytools.helper`` lends Bloomseal's KMS clients to a process that is not
Python.

Spark's key bridge starts one for each JVM. Requests arrive on standard input and answers leave on standard output, one
JSON object a line, UTF-8. Answers come in the order in which they are ready; ``id`` tells them apart. The first line
out is the greeting ``{"helper": "bloomseal", "protocol": 1}``.

A request holds

================  ===================================================================================================
``id``            any number
``op``            ``"wrap"``, ``"unwrap"``, ``"log"``, ``"judge"``, ``"sign"`` or ``"signer"``
``kms``           the KMS URI that the caller has configured; it holds no secret (`client_for` opens it)
``master_key``    the master key's name
``key``           for wrap: the key, base64 of 16, 24 or 32 bytes
``wrapped``       for unwrap: what wrap answered
``file``          for log: the file's path
``action``        for log: ``"open"`` or ``"seal"``
``column``        for log: the column's dotted path; may be null
``key_metadata``  for log: the key's, base64
``refused``       for log: why the key was not handed out; null where it is
``table``         for judge, sign and signer: the table's name
``signers``       likewise: its signers, as JSON: name → public keys as lines
``path``          for judge and sign, as ``length`` (a text), ``tail_sha256``, ``aad_file_unique`` and ``aad_prefix``:
                  what stands in the statement about a file (`bloomseal.keytools.signatures.envelope.Statement`)
``envelope``      for judge: the signature beside the file, base64; null where there is none
``timeout``       seconds for this key, retries included (default 30)
``lifetime``      seconds that an unwrapped key is kept (default 600)
================  ===================================================================================================

and its answer ``id`` with either ``key`` (base64), ``wrapped``, ``logged``, ``envelope`` (base64), ``signer`` (who
signed the file, or would sign here), ``refused`` (why nobody did, or would), or ``problem`` and ``message``. Problems
are those of `bloomseal.keytools.Problem` (``denied``, ``disabled``, ``destroyed``, ``unknown``, ``unreachable``,
``throttled``, ``invalid``), ``unusable`` where there is no way to the KMS at all (no such keyring, a library that is
missing), and ``request`` for a request that makes no sense, or is longer than 512 KiB. A message is a line, and safe to
show: names in it are a file's.

The process ends when its input does: pending answers have two seconds then. Credentials come from its environment. Its
standard error holds remarks of its own only, never a foreign message.

Where ``$BLOOMSEAL_ACCESS_LOG`` names a file (an absolute path), each answer with a key, and each refusal, is a line of
that access log before it is sent; where that fails no key is. A request for a key says nothing of files and columns,
and so do these lines; ``log`` writes those that do, for whoever knows the file.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeVar

from ..core.encryption import SecretKey
from ..core.errors import BloomsealError, KeyAccessError, PolicyError, UsageError
from ..core.keys.access import KmsAccessError, Problem
from ..core.limits import MAX_KEY_METADATA_BYTES
from ..core.storage.ref import FileRef
from ..core.text import safe_text
from .access_log import AccessLog
from .kms.calls import started
from .kms.common import claimed_version
from .tools import KeyTools

if TYPE_CHECKING:
    from .signatures.signers import Signers

PROTOCOL: Final = 1
ACCESS_LOG: Final = "BLOOMSEAL_ACCESS_LOG"
T = TypeVar("T")
_MAX_LINE: Final = 8 * MAX_KEY_METADATA_BYTES
_MAX_MESSAGE: Final = 4000
_ID: Final = re.compile(rb'\s*\{\s*"id"\s*:\s*(\d{1,18})\s*,')
_THREADS: Final = 256
"""Requests at the same time, far more than `KeyTools` has calls under way (16): keys that it remembers are not kept
waiting by a KMS that hangs.
"""
_LAST_ANSWERS: Final = 2.0
_MAX_SECONDS: Final = 86_400.0


class KeyHelper:
    """Answers requests; several threads may ask at once. Each KMS gets one `KeyTools`, so one cache and one budget."""

    def __init__(self) -> None:
        self._log = os.environ.get(ACCESS_LOG) or None
        self._lock = threading.Lock()
        self._tools: dict[tuple[str, float, float], Future[KeyTools]] = {}
        self._signers: dict[tuple[str, str, str], Signers] = {}

    def answer(self, line: bytes) -> bytes:
        """One request line → one answer line. Raises nothing: whatever goes wrong is told by kind, without foreign
        messages.
        """
        request: Any = None
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise _MalformedError("a request is a JSON object")
            reply = self._reply(request)
        except BloomsealError as error:
            reply = {"problem": _problem(error), "message": str(error)}
        except (ValueError, RecursionError):
            reply = {"problem": "request", "message": "the request is not JSON"}
        except Exception as error:
            reply = {"problem": "invalid", "message": f"the key helper failed with {type(error).__name__}"}
        return _line(reply, request.get("id") if isinstance(request, dict) else None)

    def _reply(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if request.get("op") == "log":
            return self._entry(request)
        if request.get("op") in ("judge", "sign", "signer"):
            try:
                return self._signed(request)
            except PolicyError as error:
                return {"refused": str(error)}
        master_key = _text(request, "master_key")
        match request.get("op"):
            case "wrap":
                try:
                    key = SecretKey(base64.b64decode(_text(request, "key"), validate=True))
                except (binascii.Error, KeyAccessError):
                    raise _MalformedError("a key to wrap is base64 of 16, 24 or 32 bytes") from None
                return {"wrapped": self._logged("seal", request, lambda tools: tools.wrap(key, master_key))}
            case "unwrap":
                wrapped = _text(request, "wrapped")
                opened = self._logged(
                    "open", request, lambda tools: tools.unwrap(wrapped, master_key, tools.calls_for(None))
                )
                return {"key": base64.b64encode(opened.reveal()).decode("ascii")}
        raise _MalformedError("op is wrap, unwrap, log, judge, sign or signer")

    def _signed(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Who signed a file; or its signature, by the key that this process's environment names; or whose that is."""
        from .signatures.envelope import Statement, judge  # few tables have signers
        from .signatures.signers import Signers, need_author

        kms, table, text = (_text(request, name) for name in ("kms", "table", "signers"))
        signers = self._signers.get((kms, table, text))
        if signers is None or request["op"] == "signer":  # a job begins: its key is looked up anew
            signers = self._signers[kms, table, text] = Signers(json.loads(text), table, kms=kms)
        if request["op"] == "signer":
            return {"signer": signers.own[0]}
        told: dict[str, Any] = {name: _text(request, name) for name in Statement._fields}
        statement = Statement(**{**told, "length": int(told["length"])})
        if request["op"] == "sign":
            return {"envelope": base64.b64encode(signers.sign(statement)).decode("ascii")}
        beside = request.get("envelope")
        found = judge(None if beside is None else base64.b64decode(beside), statement, signers.public_keys)
        need_author(found, table)
        return {"signer": found.signer}

    def _entry(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """An entry of the access log about one file, from a caller that is about to use one of its keys."""
        file, action, column, why = (
            _text(request, "file"),
            _text(request, "action"),
            request.get("column"),
            request.get("refused"),
        )
        if action not in ("open", "seal") or not all(one is None or isinstance(one, str) for one in (column, why)):
            raise _MalformedError("an entry is about opening or sealing, with texts or nulls")
        try:
            key_metadata = base64.b64decode(_text(request, "key_metadata"), validate=True)
        except binascii.Error:
            raise _MalformedError("key metadata is base64") from None
        log = AccessLog.of(self._checked_log(), file)
        if log is None:
            raise UsageError(f"{ACCESS_LOG} names no file to the key helper")
        keys = self._tools_for({**request, "master_key": ""}).for_file(FileRef(file))
        log.used(action, keys, key_metadata, column, None if why is None else KeyAccessError(why))
        return {"logged": True}

    def _checked_log(self) -> str | None:
        if self._log is not None and not os.path.isabs(self._log):  # noqa: PTH117
            raise UsageError(f"{ACCESS_LOG} is no absolute path")
        return self._log

    def _logged(self, action: str, request: Mapping[str, Any], ask: Callable[[KeyTools], T]) -> T:
        """What the KMS says, once it is in the access log."""
        log, master_key, version = AccessLog.of(self._checked_log(), None), _text(request, "master_key"), None
        try:
            tools = self._tools_for(request)
            version = claimed_version(wrapped) if isinstance(wrapped := request.get("wrapped"), str) else None
            answer = ask(tools)
        except BloomsealError as error:
            if log is not None:
                log.say(action, None, master_key, version, error=error)
            raise
        if log is not None:
            log.say(action, None, master_key, version)
        return answer

    def _tools_for(self, request: Mapping[str, Any]) -> KeyTools:
        kms = _text(request, "kms")
        lifetime, timeout = _seconds(request, "lifetime", 600.0), _seconds(request, "timeout", 30.0)
        name = (kms, lifetime, timeout)
        with self._lock:
            if (making := self._tools.get(name)) is None:
                making = self._tools[name] = started(lambda: KeyTools(kms, cache_lifetime=lifetime, timeout=timeout))
        try:
            # A KMS that hangs when it is set up, such as a keyring on a dead mount, must not keep other ones waiting.
            return making.result(timeout)
        except TimeoutError:
            late = KmsAccessError.because(
                Problem.UNREACHABLE, _text(request, "master_key"), detail="it could not be set up in time"
            )
        except BaseException:
            # Not remembered: a keyring may yet be mounted.
            with self._lock:
                if self._tools.get(name) is making:
                    del self._tools[name]
            raise
        raise late


class _MalformedError(UsageError):
    """The request makes no sense."""


def _text(request: Mapping[str, Any], name: str) -> str:
    value = request.get(name)
    if not isinstance(value, str):
        raise _MalformedError(f"{name} is not a text")
    return value


def _seconds(request: Mapping[str, Any], name: str, default: float) -> float:
    value = request.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MAX_SECONDS:
        raise _MalformedError(f"{name} is no number of seconds")
    return float(value)


def _problem(error: BloomsealError) -> str:
    if isinstance(error, KmsAccessError):
        return error.problem.value
    if isinstance(error, KeyAccessError) and error.retryable:
        return Problem.UNREACHABLE.value
    return "request" if isinstance(error, _MalformedError) else "unusable"


def _line(reply: dict[str, Any], number: object) -> bytes:
    if "message" in reply:
        reply["message"] = safe_text(reply["message"])[:_MAX_MESSAGE]
    reply["id"] = number if isinstance(number, int) else None
    return json.dumps(reply).encode("ascii") + b"\n"


def _too_long(start: bytes, requests: BinaryIO) -> bytes:
    """The answer to a line longer than any request, whose rest is passed over: others share this process."""
    rest = start
    while rest and not rest.endswith(b"\n"):
        rest = requests.readline(_MAX_LINE)
    found = _ID.match(start)
    reply = {"problem": "request", "message": f"a request longer than {_MAX_LINE} bytes"}
    return _line(reply, None if found is None else int(found[1]))


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer until `requests` ends.

    Raises:
        OSError: nobody reads the answers any more.
    """
    helper, lock = KeyHelper(), threading.Lock()

    def send(line: bytes) -> None:
        with lock:
            answers.write(line)
            answers.flush()

    def work(line: bytes) -> None:
        try:
            send(helper.answer(line))
        except OSError:
            os._exit(1)  # the reader is gone, and what this process keeps in memory with it

    send(json.dumps({"helper": "bloomseal", "protocol": PROTOCOL}).encode("ascii") + b"\n")
    pool = ThreadPoolExecutor(_THREADS, "bloomseal helper")
    pending: set[Future[None]] = set()
    while line := requests.readline(_MAX_LINE):
        if not line.endswith(b"\n"):
            if len(line) == _MAX_LINE:
                send(_too_long(line, requests))
                continue
            break  # the writer died in the middle of a line
        pending = {future for future in pending if not future.done()}
        pending.add(pool.submit(work, line))
    wait(pending, _LAST_ANSWERS)


def main() -> None:
    """Serve standard input until it ends; never returns."""
    # Ctrl-C in a shell goes to the whole process group; the JVM lives on, and so must its helper.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _keep_quiet()
    # A library that prints must not write between the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    code = 0
    try:
        serve(sys.stdin.buffer, answers)
    except BaseException as error:
        _remark(f"ended by {type(error).__name__}")
        code = 1
    os._exit(code)  # calls that hang keep nothing alive


def _keep_quiet() -> None:
    """Close the ways by which a foreign text, or memory, could leave this process unseen."""
    import logging
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")

    def failed(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:  # noqa: ARG001
        _remark(f"unexpected {kind.__name__}")

    sys.excepthook = failed
    threading.excepthook = lambda thrown: failed(thrown.exc_type, thrown.exc_value, thrown.exc_traceback)


def _remark(text: str) -> None:
    sys.stderr.write(f"bloomseal key helper: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
