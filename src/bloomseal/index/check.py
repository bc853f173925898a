"""Holding an index against the values that its files have."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from ..notebook import ShownInNotebooks
from .facts.hashed import hashed_places, seen_file, still_same
from .facts.sameness import BY_CONTENT, Sighting, Trust
from .folder import IndexFolder
from .manifest import FileState
from .numbers import within
from .runs.shard import RunReader

if TYPE_CHECKING:
    from .facts.members import Members
    from .manifest import Manifest

_ENTRIES_AT_ONCE: Final = 4_000_000


@dataclass
class CheckReport(ShownInNotebooks):
    """What a check found.

    Attributes:
        column: of the index.
        files: checked, of those that the index covers.
        row_groups: of them.
        values: distinct ones, added up over row groups.
        missing: path → how many values of the file the index lacks. Such an index says *absent* of what is there: drop
            it.
        left: path → why the file could not be checked.
        uncovered: files that the index does not cover; look-ups ask their own filters.
    """

    column: str
    files: int = 0
    row_groups: int = 0
    values: int = 0
    missing: dict[str, int] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    uncovered: int = 0

    @property
    def ok(self) -> bool:
        """Everything that was looked at is in the index."""
        return not self.missing and not self.left


class Checking:
    """A check under way: what should be in the index is gathered, and compared portion by portion."""

    def __init__(self, folder: IndexFolder, manifest: Manifest, report: CheckReport) -> None:
        self._manifest, self._report = manifest, report
        self._facts = {fact["path"]: fact for fact in manifest.facts.to_pylist()}
        self._readers = {run.id: RunReader(folder, run) for run in manifest.runs}
        self._wanted: dict[str, list[npt.NDArray[np.int64]]] = {}
        self._paths: dict[str, list[tuple[int, str]]] = {}
        self._count = 0

    def take(self, files: Members, number: int) -> None:
        """Hash a file."""
        path = files.relative[number]
        fact, state = self._facts[path], files.state(number)
        sighting = self._sighting(files, fact)
        with files.open(number) as file:
            if state is None or not sighting.is_same(file, state):
                return  # another file by now, which no fact is about
            seen = seen_file(file, self._manifest.column, state)
            hashed = list(hashed_places(file, self._manifest.column, self._manifest.fingerprints, fact["stride"]))
            still_same(file, seen, files.state(number))
        run, base = fact["run"], fact["base"]
        bits = self._readers[run].run.place_bits
        for place, fingerprints in hashed:
            self._wanted.setdefault(run, []).append((fingerprints.astype(np.int64) << bits) | (base + place))
            self._count += len(fingerprints)
            self._report.values += len(fingerprints)
        if seen.groups:  # a file without row groups bears the base of the one behind it
            self._paths.setdefault(run, []).append((base, path))
        self._report.files += 1
        self._report.row_groups += seen.groups
        if self._count >= _ENTRIES_AT_ONCE:
            self.compare()

    def _sighting(self, files: Members, fact: dict[str, Any]) -> Sighting:
        state = BY_CONTENT if files.trust is Trust.IDENTITY else FileState(*(fact[name] for name in FileState._fields))
        return Sighting(state, ((self._manifest.column, fact["content"]),))

    def compare(self) -> None:
        """Look for what was gathered.

        Raises:
            BloomsealError: the index can't be read.
        """
        for run, parts in self._wanted.items():
            wanted, reader = np.sort(np.concatenate(parts)), self._readers[run]
            there = np.zeros(len(wanted), dtype=np.bool_)
            for shard in reader.run.shards:
                begin, end = np.searchsorted(wanted, (shard.first, shard.last + 1))
                if begin < end:
                    there[begin:end] |= within(wanted[begin:end], reader.between(shard.first, shard.last + 1))
            paths = sorted(self._paths.get(run, ()))
            places = wanted[~there] & ((1 << reader.run.place_bits) - 1)
            for one in (np.searchsorted([base for base, _ in paths], places, "right") - 1).tolist():
                path = paths[one][1]
                self._report.missing[path] = self._report.missing.get(path, 0) + 1
        self._wanted, self._paths, self._count = {}, {}, 0

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
