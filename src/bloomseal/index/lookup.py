"""Asking an index: which facts are about the files that are there now, and in which of their row groups a value
can be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ..core.cached import cached_property
from ..core.forked import new_lock
from ..core.storage.source import Source
from ..read.parquet import ParquetFile
from .facts.members import Members
from .facts.sameness import Trust
from .folder import IndexFolder
from .manifest import FileState, Manifest
from .numbers import as_numpy
from .runs.shard import RunReader

I64 = npt.NDArray[np.int64]
Indices = npt.NDArray[np.intp]

GROUP_BITS: Final = 16
"""A row group's ordinal has 15 bits."""
SLOT_BITS: Final = 8


class IndexHits(NamedTuple):
    """Where values are: three arrays of one length.

    Attributes:
        owners: which of the hashes asked for.
        codes: ``file number << 16 | row group``.
        slots: 0: anywhere in the row group; else 1 + the ordinal of a data page.
    """

    owners: Indices
    codes: I64
    slots: I64


class Coverage:
    """An index held against the files that a table has now.

    Attributes:
        covered: per file, whether a fact is about it.
        groups: per file, its row groups where it is covered.
        docs: per file, the number of its schema where it is covered, else −1.
        strides: per file, places of a row group where it is covered; 1: pages are not told.
    """

    def __init__(self, index: LoadedIndex, facts: I64) -> None:
        self._index, self._facts = index, facts
        self.covered = facts >= 0
        # The fact of a file that is not covered is −1: the last one.
        self.groups, self.docs, self.strides = (
            np.append(column, otherwise)[facts]
            for column, otherwise in ((index.groups, 0), (index.docs, -1), (index.strides, 1))
        )
        self._number_of = np.full(len(index.groups), -1, dtype=np.int64)
        self._number_of[facts[self.covered]] = np.flatnonzero(self.covered)

    @classmethod
    def of(cls, index: LoadedIndex, files: Members, states: Sequence[FileState | None]) -> Coverage:
        """Held against these files, of which each is in its state."""
        listed = np.array([index.by_path.get(path, -1) for path in files.relative], dtype=np.int64)
        known = np.flatnonzero(listed >= 0)
        facts = listed[known].tolist()
        if files.trust is Trust.IDENTITY:
            found = files.contents(known.tolist(), index.manifest.column)
            same = [now is not None and now == index.contents[fact] for now, fact in zip(found, facts, strict=True)]
        else:
            same = [states[number] == index.states[fact] for number, fact in zip(known.tolist(), facts, strict=True)]
        listed[known[~np.array(same, dtype=np.bool_)]] = -1
        return cls(index, listed)

    def only(self, good: Callable[[bytes], bool]) -> Coverage:
        """The same, of files whose schemas are good alone."""
        bad = [doc for doc in np.unique(self.docs[self.covered]).tolist() if not good(self.doc(doc))]
        return Coverage(self._index, np.where(np.isin(self.docs, bad), -1, self._facts)) if bad else self

    def among(self, numbers: Sequence[int], count: int) -> Coverage:
        """The same, of a table of `count` files in which these have `numbers`."""
        if len(numbers) == count:
            return self
        facts = np.full(count, -1, dtype=np.int64)
        facts[numbers] = self._facts
        return Coverage(self._index, facts)

    @property
    def column(self) -> str:
        """The leaf that the index is of."""
        return self._index.manifest.column

    @property
    def max_keys(self) -> int | None:
        """The most values for which one query asks the index."""
        return self._index.manifest.max_keys

    def content(self, number: int) -> bytes:
        """Of a covered file, see `SeenFile.content`."""
        return self._index.contents[int(self._facts[number])]

    def doc(self, number: int) -> bytes:
        """A schema by its number in `docs`, see `SeenFile.doc`."""
        return self._index.manifest.docs[number]

    def find(self, hashes: npt.NDArray[np.uint64]) -> IndexHits:
        """The row groups of covered files in which values of these XXH64 can be.

        Raises:
            MissingFileError: a run is gone. BloomsealError: one can't be read.
        """
        return self._index.find(hashes, self._number_of)


class LoadedIndex:
    """A manifest, ready to be asked."""

    def __init__(self, folder: IndexFolder, manifest: Manifest) -> None:
        self.manifest = manifest
        facts = manifest.facts
        # Not by to_pylist, which takes five times as long for numbers.
        inode, *others = (as_numpy(facts.column(name)) for name in FileState._fields[:-1])
        columns = [inode.astype(np.uint64), *others]
        told = zip(*(one.tolist() for one in columns), facts.column("tag").to_pylist(), strict=True)
        self.states = list(map(FileState._make, told))
        self.by_path = {path: number for number, path in enumerate(facts.column("path").to_pylist())}
        names = ("groups", "doc", "base", "stride")
        self.groups, self.docs, self.bases, self.strides = (as_numpy(facts.column(name)) for name in names)
        runs = manifest.run_numbers
        self.runs: list[tuple[RunReader, I64, I64]] = []
        for number, run in enumerate(manifest.runs):
            # A file without row groups has no place: it bears the base of the file behind it.
            mine = np.flatnonzero((runs == number) & (self.groups > 0))
            mine = mine[np.argsort(self.bases[mine], kind="stable")]
            self.runs.append((RunReader(folder, run), mine, self.bases[mine]))

    @cached_property
    def contents(self) -> list[bytes]:
        """Per fact, see `SeenFile.content`."""
        found: list[bytes] = self.manifest.facts.column("content").to_pylist()
        return found

    def find(self, hashes: npt.NDArray[np.uint64], number_of: I64) -> IndexHits:
        fingerprints = self.manifest.fingerprints.of(hashes)
        none = np.empty(0, dtype=np.int64)
        owners, codes, slots = [none], [none], [none]
        for reader, facts, bases in self.runs:
            # A run none of whose files is there any more is not asked.
            if not len(facts) or not (number_of[facts] >= 0).any():
                continue
            which, places = reader.find(fingerprints)
            at = np.searchsorted(bases, places, "right") - 1
            fact = facts[np.maximum(at, 0)]
            group, slot = np.divmod(places - self.bases[fact], self.strides[fact])
            number = np.where((at >= 0) & (group < self.groups[fact]), number_of[fact], -1)
            real = number >= 0
            owners.append(which[real])
            codes.append((number[real] << GROUP_BITS) | group[real])
            slots.append(slot[real])
        return IndexHits(np.concatenate(owners), np.concatenate(codes), np.concatenate(slots))


class IndexReader:
    """The index of one column, as whoever asks it sees it: loaded once, and again when its manifest is another one.
    Threads may share it.
    """

    def __init__(self, folder: IndexFolder) -> None:
        self._folder = folder
        self._loaded: LoadedIndex | None = None
        self._state: FileState | None = None
        self._last: tuple[LoadedIndex, Members, list[FileState | None], Coverage] | None = None
        self._lock = new_lock()

    def coverage(self, files: Members, states: Sequence[FileState | None] | None = None) -> Coverage | None:
        """The index held against these files; None where there is no index.

        Args:
            states: of the files, where they were asked for already.

        Raises:
            BloomsealError: there is one that can't be read.
        """
        if (loaded := self._current()) is None:
            return None
        listed = list(files.states() if states is None else states)
        if files.trust is Trust.IDENTITY:
            return Coverage.of(loaded, files, listed)
        last = self._last
        # The same states of the same files are covered by the same facts.
        if last is None or last[0] is not loaded or last[1] is not files or last[2] != listed:
            self._last = last = loaded, files, listed, Coverage.of(loaded, files, listed)
        return last[3]

    def forget(self) -> None:
        """Load it again when it is asked next: a run that it names is gone."""
        with self._lock:
            self._loaded = None

    def _current(self) -> LoadedIndex | None:
        with self._lock:
            # Looked at before it is loaded: another one, put in its place meanwhile, is loaded the next time. Not in a
            # store: facts don't age, and each look would cost a request.
            state = self._folder.state() if self._folder.filesystem is None else None
            if self._loaded is None or self._state != state:
                found = self._folder.load()
                self._loaded = None if found is None else LoadedIndex(self._folder, found)
                self._state = state
            return self._loaded


def ghost(doc: bytes, path: str) -> ParquetFile:
    """A file of the schema that a covered file has, without row groups: what it says of columns, types and wrong
    arguments is what that file would say.
    """
    return ParquetFile(Source.memory(doc, path), None)
