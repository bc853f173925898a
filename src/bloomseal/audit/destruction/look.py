"""Looks at all files for one question, and again at those that came or changed meanwhile, until nothing changes."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Unpack

from ...core.errors import UsageError
from ...core.storage.local import identity
from ...core.text import counted
from ...keytools.tools import KeyTools
from ..facts.auditor import AnyPath, Auditor, AuditorOptions
from ..facts.files.file import FilterCheck
from ..facts.keys import file_of
from ..facts.places import Places, Systems
from .answer import NOT_LOOKED_AT, Destruction
from .examine import Examined, Examiner, Work
from .question import CACHE_LIFETIME, DestructionQuestion, DestructionReason, ask

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_ROUNDS: Final = 5
Stamp = tuple[Any, ...] | None
Asking = Callable[[KeyTools | None, datetime], DestructionQuestion]


def may_destroy(
    master_key: str,
    version: str | None,
    paths: Sequence[AnyPath] | AnyPath,
    *,
    also: Sequence[AnyPath] | AnyPath = (),
    after: float | None = None,
    progress: Callable[[int, int], None] | None = None,
    **access: Unpack[AuditorOptions],
) -> Destruction:
    """Does any of these files, or any retained version of these tables, need a master key version?

    *Yes*, it may be destroyed, only where nothing is left to doubt: every key of every file was opened, and the KMS
    said that another version opens it; the version wraps no new keys, and no writer can still hold one. *No* where some
    file needs it. Else *unknown*. In folders every Parquet file is looked at, whatever it is called, hidden ones too,
    and all that a table's log still names. Files that come or change meanwhile are looked at as well. docs/rotation.md
    has the whole rule.

    Args:
        master_key: by any name that the KMS knows.
        version: one that the KMS knows; None or ``*`` for all of them.
        paths, progress: as `bloomseal.audit.inventory`.
        also: copies elsewhere, to be looked at too: backups, clones, mounted snapshots.
        after: seconds that a writer may go on using a key that it holds, counted from when the version stopped wrapping
            new keys. Default: 600, as long as key tools keep theirs. 0 where no writer is left.
        access: keys, policy, table, aad_prefix, filesystem: see `Auditor`. Without the keys of all files, from a KMS,
            there is no *yes*.

    Raises:
        UsageError, MissingDependencyError: no paths, a table without its library or with stale metadata; a key or a
            version that the KMS does not know.
    """
    given = [*_listed(paths), *_listed(also)]
    if not _listed(paths):
        raise UsageError("no path is given", hint="a file, a folder or a table")
    return examine(Auditor(**access), asking(master_key, version, after), given, progress)


def examine(
    auditor: Auditor,
    ask: Asking,
    given: Sequence[AnyPath],
    progress: Callable[[int, int], None] | None = None,
) -> Destruction:
    """The answer about the files at these places. Without a way to the KMS it is unknown, and says that none was
    asked.
    """
    scanner = auditor.scanner(FilterCheck.NONE, witness=True)
    return Examination(
        functools.partial(ask, auditor.tools),
        functools.partial(auditor.find, given, history=True),
        lambda question, works: map(Examiner(question, scanner).examine, works),
        progress,
    ).answer(given)


def asking(master_key: str, version: str | None, after: float | None = None) -> Asking:
    """What asks a KMS; arguments as of `may_destroy`."""
    return functools.partial(ask, master_key, version, after=CACHE_LIFETIME if after is None else after)


class Examination:
    """A question put to all files of some places, wherever they are looked at, until nothing changes.

    Args:
        ask: the question as the KMS answers it now. It is asked again after the last file: who enabled the version
            meanwhile may have written since.
        find: lists the places; called until two lists in a row are the same.
        examine: looks at files, and answers in their order.
        progress: called with files done and in all.

    Raises:
        UsageError: a key or a version that the KMS does not know.
    """

    def __init__(
        self,
        ask: Callable[[datetime], DestructionQuestion],
        find: Callable[[], Places],
        examine: Callable[[DestructionQuestion, list[Work]], Iterable[Examined]],
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self._began = datetime.now(UTC)
        self._ask, self._find, self._progress = ask, find, progress
        self._question = ask(self._began)
        self._examine = functools.partial(examine, self._question)
        self._systems = Systems()
        # Each file with its stamp, and its sidecar's, from before it was opened.
        self._done: dict[tuple[int, str], tuple[Stamp, Examined]] = {}
        self._gone: list[DestructionReason] = []

    def answer(self, given: Sequence[AnyPath]) -> Destruction:
        """Look at everything.

        Args:
            given: the places, for the answer.
        """
        places, still = self._until_still()
        last = self._ask(self._began)
        seen = [examined for _, examined in self._done.values()]
        reasons = sorted(
            [
                *self._question.reasons,
                *last.reasons,
                *(DestructionReason("unknown", os.fspath(given[0]), what) for what in self._changes(last, still)),
                *(_placed(text) for text in (*places.unknown, *places.unsure)),
                *(DestructionReason("unknown", place, "no file was found there") for place in places.empty),
                *self._gone,
                *(reason for one in seen for reason in one.reasons),
            ],
            key=lambda reason: reason.answer,
        )
        return Destruction(
            last,
            reasons[0].answer if reasons else "yes",
            tuple(dict.fromkeys(reasons)),
            files=len({(id(ref.filesystem), ref.path) for ref in places.files}),
            snapshots=places.versions,
            sidecars=len(places.sidecars),
            keys=sum(one.keys for one in seen),
            under=sorted({version for one in seen for version in one.under}),
            missing=places.missing,
            looked_at=[os.fspath(path) for path in given],
            not_looked_at=(NOT_LOOKED_AT, *_unread(places)),
            began=self._began,
            ended=datetime.now(UTC),
        )

    def _changes(self, last: DestructionQuestion, still: bool) -> Iterator[str]:
        first = self._question
        if (last.real, last.fingerprints) != (first.real, first.fingerprints):
            yield "the KMS has another key of this name than when the first file was looked at"
        if not still:
            yield "files came or changed each time that they were looked at"

    def _until_still(self) -> tuple[Places, bool]:
        """The places as they were last, and whether they were the same twice."""
        places = self._listed()
        for _ in range(_ROUNDS):
            works = _works(places, self._systems)
            stamps = _stamps(works.values())
            self._forget(works.keys())
            fresh = [
                (key, stamp)
                for key, stamp in zip(works, stamps, strict=True)
                if stamp is None or key not in self._done or self._done[key][0] != stamp
            ]
            found = self._examine([works[key] for key, _ in fresh])
            for count, ((key, stamp), examined) in enumerate(zip(fresh, found, strict=True), 1):
                self._done[key] = stamp, examined
                if self._progress is not None:
                    self._progress(len(works) - len(fresh) + count, len(works))
            before, places = places, self._listed()
            if _same(before, places) and _stamps(works.values()) == stamps:
                return places, True
        return places, False

    def _listed(self) -> Places:
        """What a listing names; what was gone before it could be looked at is remembered."""
        places = self._find()
        self._gone += [
            DestructionReason("unknown", path, "it was listed, and gone before it was opened") for path in places.gone
        ]
        return places

    def _forget(self, there: Collection[tuple[int, str]]) -> None:
        """Files that are gone meanwhile: one that needed the version, or was gone before it was opened, may only have
        gone elsewhere.
        """
        for key in self._done.keys() - there:
            self._gone += self._done.pop(key)[1].reasons


def _unread(places: Places) -> list[str]:
    told = [
        f"metadata of {table.folder.path} that only a catalog knows; of those in its folder "
        f"{counted(len(table.metadata), 'file')} with {counted(len(table.keks), 'KEK')} were looked at"
        for table in places.encrypted
    ]
    if places.unread:
        what = f"{len(places.unread)} files that are no Parquet, ORC or table metadata, {places.unread[0]} among them"
        told.append(what)
    return told


def _works(places: Places, systems: Systems) -> dict[tuple[int, str], Work]:
    beside = {systems.key(replace(ref, path=file_of(ref.path))): ref for ref in places.sidecars}
    works = {systems.key(ref): ref for ref in places.files}
    found = {key: Work(ref, beside=ref.root is None or key in beside) for key, ref in works.items()}
    for key, ref in beside.items():
        if key not in works and (own := systems.key(ref)) not in works:
            found[own] = Work(ref, orphan=True)
    for table in places.encrypted:
        for kek in table.keks:
            ref = replace(table.folder, path=kek.metadata)
            number, path = systems.key(ref)
            found[number, f"{path}\n{kek}"] = Work(ref, kek=kek)
    return found


def _same(before: Places, after: Places) -> bool:
    return (
        [ref.path for ref in before.files] == [ref.path for ref in after.files]
        and [ref.path for ref in before.sidecars] == [ref.path for ref in after.sidecars]
        and (before.unknown, before.unsure, before.empty) == (after.unknown, after.unsure, after.empty)
        and before.encrypted == after.encrypted
    )


def _stamps(works: Iterable[Work]) -> list[Stamp]:
    """What tells each file, with its sidecar, from another one in its place."""
    from ...keytools.material.store import MaterialStore

    stamps: list[Stamp] = []
    for work in works:
        told = _stamp(work.ref.filesystem, work.ref.path)
        if work.beside and told is not None:
            told = (*told, _stamp(work.ref.filesystem, MaterialStore(work.ref).path))
        stamps.append(told)
    return stamps


def _stamp(filesystem: FileSystem | None, path: str) -> Stamp:
    try:
        if filesystem is None:
            status = os.stat(path)  # noqa: PTH116
            return *identity(status), status.st_ctime_ns  # a file's own time is easily put back
        info = filesystem.get_file_info(path)
    except (OSError, ValueError):  # the latter of a name that a store's client does not take
        return None
    return str(info.type), info.size, info.mtime_ns


def _placed(text: str) -> DestructionReason:
    """Places tell in words, ``PLACE: WHY``."""
    place, colon, why = text.partition(": ")
    return (
        DestructionReason("unknown", place, why)
        if colon
        else DestructionReason("unknown", text, "it could not be looked at")
    )


def _listed(paths: Sequence[AnyPath] | AnyPath) -> list[AnyPath]:
    return [paths] if isinstance(paths, str | os.PathLike) else list(paths)
