"""Rotations that were run: what their journals tell, whether nobody has altered those, and what the files say now."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from ..core.errors import BloomsealError, UsageError
from ..core.storage.source import refusal
from ..core.text import counted
from ..rotation.journal import Chain, default_journal
from ..rotation.outcome import Status
from ..storage.folder import Folder
from .bundle.archive import Spool
from .claims import Observations
from .keys import KeyVersionFacts

_LONGEST: Final = 1 << 28
_Pair = tuple[str | None, str | None]
"""A key's version before and after."""


@dataclass
class Rotation:
    """One journal.

    Attributes:
        journal: the file's name.
        operation: ``rewrap``, ``rekey``, ``seal``, ``unseal`` or ``erase``.
        started, ended: moments; `ended` only where everything was done and nothing came after.
        by: user@host of everybody who had a part in it.
        files: status → number of files, ``unfinished`` among them.
        keys: before, after (``name:version``; None: none) and files, for each such pair.
        signed_by: signer → number of files that he answers for since.
        chain: ``whole``; ``whole from line N on``; ``none``: an older version's journal; or ``broken``.
        problem: why nothing can be said of it.
        head: digest of its last line: a journal that is shorter later on was cut off.
        remaining: version → files that are under a version that was to be replaced, now.
        complete: what there is to say to the claim that no file was missed.
    """

    journal: str
    operation: str | None = None
    started: str | None = None
    ended: str | None = None
    by: list[str] = field(default_factory=list)
    files: dict[str, int] = field(default_factory=dict)
    keys: list[dict[str, Any]] = field(default_factory=list)
    signed_by: dict[str, int] = field(default_factory=dict)
    chain: str = "none"
    problem: str | None = None
    head: str | None = None
    remaining: dict[str, int] = field(default_factory=dict)
    complete: Observations = field(default_factory=Observations)

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self) | {"complete": self.complete.to_dict()}


def unread(name: str, error: BloomsealError) -> Rotation:
    """What is told of a journal that can't be read."""
    return Rotation(name, problem=error.what, complete=Observations(unseen=(error.what,)))


def default_journals() -> list[Path]:
    """Journals where rotations keep them unless told otherwise, earlier ones that were put aside included.

    Raises:
        PolicyError: others could have put some there.
    """
    try:
        path = default_journal("rewrap", "0" * 12).parent
        with Folder.own(path, make=False) as folder:
            names = os.listdir(folder.fd)  # noqa: PTH208  # of an open folder
    except (OSError, UsageError):
        return []
    return [path / name for name in sorted(names) if ".jsonl" in name and not name.startswith(".")]


def read_journal(path: str | os.PathLike[str], *, own: bool = False) -> tuple[Rotation, Spool, set[str]]:
    """A journal, its lines, and the files that it names. One that was altered, or is none, says so: no line of it is
    given from there on, since it may be any file.

    Args:
        own: it was not named by the caller, so nobody else may have written it.

    Raises:
        MissingFileError, UsageError: it can't be read.
        PolicyError: somebody else could have written it.
    """
    found = Rotation(Path(path).name)
    telling = _Telling(found)
    try:
        folder, name = Folder.of(path)
        with folder:
            fd = folder.open_own(name) if own else folder.open(name)
        with open(fd, "rb") as file:
            if os.fstat(file.fileno()).st_size >= _LONGEST:
                found.problem = f"the journal is longer than {_LONGEST} bytes"
                return found, Spool(), set()
            data = Spool(telling.listened(file))
    except OSError as error:
        raise refusal("can't read the journal", os.fspath(path), error) from error
    telling.end()
    return found, data, telling.files


def judged(
    rotation: Rotation,
    named: set[str],
    versions: Sequence[KeyVersionFacts],
    looked: set[str],
    under: Mapping[str, set[str]],
    unseen: Sequence[str],
) -> Rotation:
    """With what the files say now.

    Args:
        named: the files that the journal names.
        versions: of the inventory.
        looked: the files that were looked into, named as a journal does.
        under: master key → those of them that are under some version of it.
        unseen: what nobody could look at.
    """
    if rotation.problem is not None:
        rotation.complete = Observations(unseen=(rotation.problem,))
        return rotation
    current = {one.name: one for one in versions if one.files}
    # What was unsealed has no key any more, and whatever else is under that key stays so.
    moved = [pair for pair in rotation.keys if pair["before"] and pair["after"]]
    replaced = {pair["before"] for pair in moved if pair["before"] != pair["after"]}
    # Versions that the same run has put in place are not to go.
    replaced -= {pair["after"] for pair in rotation.keys}
    rotation.remaining = {name: current[name].files for name in sorted(replaced) if name in current}
    # Files may number versions otherwise than the KMS does, whose names the journal has.
    told = {name: f"{counted(count, 'file')} under {name}" for name, count in rotation.remaining.items()}
    found = [text for name, text in told.items() if current[name].key.problem is None]
    found += [
        f"{counted(rotation.files[one], 'file')} {one}" for one in ("unfinished", "failed") if one in rotation.files
    ]
    found += ["the journal has no end"] if rotation.ended is None else []
    # A run over a few files says nothing of the others, whatever key those are under.
    keys = {end.rpartition(":")[0] for pair in moved for end in (pair["before"], pair["after"])}
    mine = set[str]().union(*(under.get(key, ()) for key in keys))
    doubts = [f"the KMS's name for the version of {text}" for text in told.values() if text not in found]
    doubts += [
        f"{counted(len(files), 'file')} {why}"
        for files, why in (
            (mine - named, f"under {', '.join(sorted(keys))} that the journal does not name"),
            (named - looked, "that the journal names, as they are now"),
        )
        if files
    ]
    doubts += (
        ["who wrote the journal: an older version's, which anybody could alter"] if rotation.chain == "none" else []
    )
    rotation.complete = Observations(tuple(found), len(named & looked), len(named | mine), (*doubts, *unseen))
    return rotation


class _Telling:
    """What a journal tells, line by line: of a hundred thousand files its events would fill the memory."""

    def __init__(self, found: Rotation) -> None:
        self.files: set[str] = set()
        self._found = found
        self._chain = Chain()
        self._state: dict[str, str] = {}
        self._signed: dict[str, str] = {}
        self._pairs: dict[str, frozenset[_Pair]] = {}
        self._kept: dict[frozenset[_Pair], frozenset[_Pair]] = {}
        self._by: dict[str, None] = {}
        self._ended: str | None = None

    def listened(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """The lines, as they are; no line is what a crash has cut off, or a run at work has not yet written."""
        for line in lines:
            if not line.endswith(b"\n"):
                return
            try:
                self._take(line)
            except BloomsealError as error:
                self._found.chain, self._found.problem = "broken", error.what
                return
            yield line

    def _take(self, line: bytes) -> None:
        event = self._chain.take(line)
        if self._chain.count == 1:
            self._found.operation, self._found.started = str(event.get("operation")), str(event.get("at"))
        if event.get("user") is not None:
            self._by[f"{event['user']}@{event.get('host')}"] = None
        self._ended = str(event.get("at")) if event.get("event") == "end" else None
        if "file" not in event:
            return
        file = str(event["file"])
        self.files.add(file)
        match event.get("event"):
            case "begin":
                self._state[file] = "unfinished"
            case "done":
                self._state[file] = sys.intern(str(event.get("status")))
                if self._state[file] == Status.REMOVED:
                    self.files.discard(file)  # nobody can look at it any more
                # The last one counts; a file that needed nothing any more keeps what was done to it before.
                pairs = frozenset(_pair(key) for key in event.get("keys") or () if isinstance(key, dict))
                if pairs or file not in self._pairs:
                    self._pairs[file] = self._kept.setdefault(pairs, pairs)
                if event.get("signed_by") is not None:
                    self._signed[file] = sys.intern(str(event["signed_by"]))
            case "failed":
                self._state[file] = "failed"

    def end(self) -> None:
        """All lines were read."""
        found, first = self._found, self._chain.first
        if found.problem is None and self._chain.count == 0:
            found.chain, found.problem = "broken", "not a rotation's journal"
        if found.problem is not None:
            found.operation = found.started = None
            self.files = set()
            return
        if first is not None:
            found.chain = "whole" if first == 0 else f"whole from line {first + 1} on"
        pairs = Counter(pair for told in self._pairs.values() for pair in told)
        found.ended = self._ended
        found.by = list(self._by)
        found.files = dict(sorted(Counter(self._state.values()).items()))
        found.signed_by = dict(sorted(Counter(self._signed.values()).items()))
        found.keys = [
            {"before": before, "after": after, "files": count}
            for (before, after), count in sorted(pairs.items(), key=lambda item: [str(one) for one in item[0]])
        ]
        found.head = self._chain.head


def _pair(key: dict[str, Any]) -> _Pair:
    def name(master_key: Any, version: Any) -> str | None:
        return None if master_key is None else f"{master_key}:{version or '?'}"

    return name(key.get("master_key"), key.get("version")), name(key.get("new_master_key"), key.get("new_version"))
