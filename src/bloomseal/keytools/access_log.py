"""The access log: who opened which key, of which column and file, when, and why not (45 CFR 164.312(b), PCI DSS 10.2).

::

    {"at": "2026-01-31T10:00:00.000123+00:00", "user": "ana", "host": "etl-3", "pid": 4711, "action": "open",
     "file": "/lake/t/0.parquet", "column": "ssn", "master_key": "pii", "version": "2", "outcome": "given"}

No entry holds a key, a wrapped key or a value. A key is handed out after its entry is written, and not at all where
that fails.
"""

from __future__ import annotations

import errno
import functools
import json
import logging
import os
import pwd
import socket
import stat
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final

from ..core.errors import BloomsealError, Hint, KeyAccessError, UsageError
from ..core.keys.access import raised_by
from ..core.keys.protocols import wrapped_by
from ..storage.folder import Folder

_LOGGER: Final = "logging:"
_LONGEST_ID: Final = 200


@dataclass(frozen=True, slots=True)
class Access:
    """One use of a key.

    Attributes:
        at: the moment, UTC, ISO 8601.
        user, host, pid: the process, by the operating system's account of it.
        action: ``open`` what is there, ``seal`` something new, or ``wrap`` a data key anew.
        file: the path; None where only a KMS was asked, for whatever file (`bloomseal.keytools.helper`): the column is
            then not known either.
        column: dotted path; None for the footer key.
        master_key, version: what wraps the data key; None where its metadata does not tell.
        key_id: the key's id, where no master key wraps it.
        outcome: ``given`` or ``refused``.
        why: of a refusal: the kind of error, and the error's own words.
    """

    at: str
    user: str
    host: str
    pid: int
    action: str
    file: str | None
    column: str | None
    master_key: str | None
    version: str | None
    key_id: str | None
    outcome: str
    why: str | None

    def to_dict(self) -> dict[str, Any]:
        """As plain data; what there is nothing to say about is left out, but for the column."""
        return {name: value for name, value in asdict(self).items() if value is not None or name == "column"}


class AccessLog:
    """Where the uses of one file's keys are written.

    Args:
        given: a callable that takes an `Access`; a `logging.Logger`, or ``logging:NAME``; or a path, to which JSON
            lines are appended (mode 0600 where it is new).
        file: the file's path.

    Raises:
        UsageError: none of these.
    """

    def __init__(self, given: Any, file: str | None) -> None:
        self._write = _writer(given)
        self._file = file

    @classmethod
    def of(cls, given: Any, file: str | None) -> AccessLog | None:
        """The log; None where nothing was given."""
        return None if given is None else cls(given, file)

    def used(
        self, action: str, keys: Any, key_metadata: bytes, column: str | None, error: BloomsealError | None = None
    ) -> None:
        """A key is about to be handed out, or was refused for `error`.

        Args:
            keys: the file's keys, which may tell the master key (`FileKeys.describe`).

        Raises:
            KeyAccessError: the log can't be written, so that the key is not handed out.
        """
        master_key, version, key_id = _named(keys, key_metadata)
        self.say(action, column, master_key, version, key_id, error)

    def say(
        self,
        action: str,
        column: str | None,
        master_key: str | None,
        version: str | None = None,
        key_id: str | None = None,
        error: BloomsealError | None = None,
    ) -> None:
        """As `used`, where the master key is known."""
        access = Access(
            datetime.now(UTC).isoformat(timespec="microseconds"),
            user_name(),
            host_name(),
            os.getpid(),
            action,
            self._file,
            column,
            master_key,
            version,
            key_id,
            "given" if error is None else "refused",
            None if error is None else f"{type(error).__name__}: {error.what}",
        )
        try:
            self._write(access)
            return
        except OSError as failure:
            reason = failure.strerror or type(failure).__name__
        except Exception as failure:
            reason = raised_by(failure)
        raise KeyAccessError(
            f"the access log can't be written ({reason}), and no key is handed out without it",
            column=column,
            retryable=True,
            hint=Hint.ACCESS_LOG,
        )


def user_name() -> str:
    """The user that the process runs as: the operating system's word, not that of an environment variable."""
    number = os.geteuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def host_name() -> str:
    """This machine's name."""
    return socket.gethostname()


def _writer(given: Any) -> Callable[[Access], object]:
    if isinstance(given, str) and given.startswith(_LOGGER):
        given = logging.getLogger(given.removeprefix(_LOGGER))
    if isinstance(given, logging.Logger):
        return functools.partial(_to_logger, given)
    if isinstance(given, str | os.PathLike):
        return functools.partial(_append, os.fspath(given))
    if callable(given):
        writer: Callable[[Access], object] = given
        return writer
    raise UsageError(
        f"access_log= takes no {type(given).__name__}", hint="a path, a callable, a logging.Logger, or 'logging:NAME'"
    )


def _to_logger(logger: logging.Logger, access: Access) -> None:
    level = logging.INFO if access.outcome == "given" else logging.WARNING
    logger.log(level, "%s", json.dumps(access.to_dict()), extra={"access": access.to_dict()})


def _append(path: str, access: Access) -> None:
    line = json.dumps(access.to_dict()).encode() + b"\n"
    # Opened each time, so that the file may be put aside by whoever keeps it short. One write, so that lines stay
    # whole.
    try:
        folder, name = Folder.of(path)
    except UsageError as error:
        raise OSError(errno.EPERM, error.what) from None
    with folder:
        shared = os.fstat(folder.fd).st_mode & stat.S_IWOTH
        number = folder.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, mode=0o600)
    try:
        status = os.fstat(number)
        if shared and status.st_uid not in (0, os.geteuid()):
            raise OSError(errno.EPERM, "somebody else's file, in a folder that everybody may write to")
        if status.st_nlink > 1:
            # Whoever may write to the folder can give any file of ours a second name there.
            raise OSError(errno.EMLINK, "the file has another name")
        if (done := os.write(number, line)) < len(line):
            # It takes the part that fits, and the next line would run into that: an entry that nobody could read.
            end = os.lseek(number, 0, os.SEEK_CUR)
            if os.fstat(number).st_size == end:
                os.ftruncate(number, end - done)
            raise OSError(errno.ENOSPC, "the disk is full")
    finally:
        os.close(number)


def _named(keys: Any, key_metadata: bytes) -> tuple[str | None, str | None, str | None]:
    """Master key, version, id of its own."""
    if (told := wrapped_by(keys, key_metadata)) is not None:
        return told.master_key, told.wrapping_version, None
    text = key_metadata.decode(errors="backslashreplace")
    shown = text if text.isprintable() and len(text) <= _LONGEST_ID else f"{len(key_metadata)} opaque bytes"
    return None, None, shown or None
