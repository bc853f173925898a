"""Fewer runs: several sorted ones merged into one, without the values and without what no fact is about any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.errors import BloomsealError, MissingFileError
from ..notebook import ShownInNotebooks
from .commit import commit
from .folder import IndexFolder
from .manifest import FACTS, IndexRun, Manifest
from .runs.shard import RunReader
from .runs.sorter import merged
from .runs.writer import RunWriter, most_places, place_bits_for
from .update import Progress

I64 = npt.NDArray[np.int64]

MOST_RUNS: Final = 8
"""Each is asked in every look-up."""
_TIER: Final = 4


@dataclass
class CompactReport(ShownInNotebooks):
    """What a compaction did.

    Attributes:
        column: of the index.
        merged: runs that were written anew; 0 where there was nothing to do.
        runs: there are now.
        entries_before, entries: in those runs, and in what they became.
    """

    column: str
    merged: int = 0
    runs: int = 0
    entries_before: int = 0
    entries: int = 0


def compact(
    folder: IndexFolder,
    manifest: Manifest,
    *,
    everything: bool = False,
    purge: bool = True,
    progress: Progress | None = None,
    merger: Callable[[Merge], IndexRun] | None = None,
) -> CompactReport:
    """Merge runs of about one size until there are few; with `everything` all of them, under fresh keys.

    Args:
        purge: write every run anew that has entries of files that are gone; False: those entries go when their run is
            merged for its size, as an update has it.
        merger: does the merging, elsewhere; None: this process does.

    Raises:
        UsageError: a link lies in the place of the index's folder.
        BloomsealError: a run can't be read, or the storage failed; what is merged by then stays.
    """
    folder.need_no_link()
    used = Merge.of(folder, manifest, manifest.runs).used() if purge else {}
    stale = {run.id for run in manifest.runs if used.get(run.id, run.places) < run.places}
    alike = {run.id for run in (manifest.runs if everything else _chosen(manifest.runs))}
    chosen = [run for run in manifest.runs if run.id in stale | alike]
    report = CompactReport(manifest.column, runs=len(manifest.runs))
    for together in _that_fit(chosen, most_places(manifest.bits)):
        if len(together) > 1 or everything or together[0].id in stale:
            manifest = _merged(folder, manifest, together, report, progress, merger)
    return report


def _merged(
    folder: IndexFolder,
    manifest: Manifest,
    chosen: Sequence[IndexRun],
    report: CompactReport,
    progress: Progress | None,
    merger: Callable[[Merge], IndexRun] | None,
) -> Manifest:
    """The manifest in which these runs are one."""
    merge = Merge.of(folder, manifest, chosen)
    try:
        run = merge.written(folder, manifest, progress) if merger is None else merger(merge)
    except MissingFileError:
        if (now := folder.load()) is None or {one.id for one in chosen} <= {one.id for one in now.runs}:
            raise
        return now  # somebody else was first
    made = commit(folder, manifest, lambda current: merge.replaced(current, run), [run])
    report.runs = len(made.runs)
    if run.id in {one.id for one in made.runs}:
        report.merged += len(chosen)
        report.entries_before += merge.entries
        report.entries += run.entries
    return made


def _chosen(runs: Sequence[IndexRun]) -> list[IndexRun]:
    """The smallest ones: as long as the next is not much larger than they are together, or there are too many."""
    ordered = sorted(runs, key=lambda run: run.entries)
    taken, total = 0, 0
    for run in ordered:
        if len(runs) - taken < MOST_RUNS and taken and run.entries > _TIER * max(total, 1):
            break
        taken, total = taken + 1, total + run.entries
    return ordered[:taken] if taken > 1 else []


def _that_fit(runs: list[IndexRun], most: int) -> list[list[IndexRun]]:
    """The runs, the smallest first, as many together as are about `most` row groups."""
    batches: list[list[IndexRun]] = []
    places = most + 1
    for run in sorted(runs, key=lambda run: run.places):
        if (places := places + run.places) > most:
            batches.append([])
            places = run.places
        batches[-1].append(run)
    return batches


@dataclass
class Merge:
    """Some runs that are to become one, and the numbers that their places get in it. It may go to other processes: it
    holds no secret, and no fingerprint.

    Attributes:
        runs: their ids.
        places: per run, the new number of each place, −1 for those that no fact is about; and one −1 more.
        bases: run, base and number of places of a fact → its new base. A file without row groups bears the base of the
            one behind it.
        count: places in the new run.
        entries: in the old runs.
    """

    runs: tuple[str, ...]
    places: dict[str, I64]
    bases: dict[tuple[str, int, int], int] = field(default_factory=dict)
    count: int = 0
    entries: int = 0

    @classmethod
    def of(cls, folder: IndexFolder, manifest: Manifest, chosen: Sequence[IndexRun]) -> Merge:
        """Of the facts about these runs, but for files that are gone for good."""
        places: dict[str, I64] = {run.id: np.full(run.places + 1, -1, dtype=np.int64) for run in chosen}
        made = cls(tuple(places), places, entries=sum(run.entries for run in chosen))
        there = folder.there()
        for fact in manifest.facts.to_pylist():
            if fact["run"] in places and there(fact["path"]):
                made._keep(fact["run"], fact["base"], fact["groups"] * fact["stride"])
        return made

    def _keep(self, run: str, base: int, count: int) -> None:
        if (run, base, count) not in self.bases:
            self.bases[run, base, count] = self.count
            self.places[run][base : base + count] = np.arange(self.count, self.count + count)
            self.count += count

    def used(self) -> dict[str, int]:
        """Run → how many of its places a fact is about."""
        return {run: int((table >= 0).sum()) for run, table in self.places.items()}

    def written(
        self,
        folder: IndexFolder,
        manifest: Manifest,
        progress: Progress | None = None,
        *,
        part: tuple[int, int] = (0, 1),
    ) -> IndexRun:
        """The new run, or a part of it.

        Args:
            part: which one of how many. They are equal parts of all fingerprints.

        Raises:
            BloomsealError: the manifest lacks one of the runs; one can't be read; the storage failed.
        """
        known = {run.id: run for run in manifest.runs}
        if not known.keys() >= set(self.runs):
            raise BloomsealError("somebody changed the index meanwhile", file=folder.path, hint="again")
        chosen = [known[one] for one in self.runs]
        writer = RunWriter(folder, manifest, self.count, place_bits_for(self.count))
        readers = [RunReader(folder, run) for run in chosen]
        return merged(writer, readers, [self._mover(run) for run in chosen], manifest, progress, part=part)

    def _mover(self, run: IndexRun) -> Callable[[I64, int, int], I64]:
        table = self.places[run.id]
        kept_all = bool((table[:-1] >= 0).all())

        def moved(entries: I64, old: int, new: int) -> I64:
            places = entries & ((1 << old) - 1)
            np.minimum(places, run.places, out=places)
            fresh = table[places]
            if not kept_all or (len(fresh) and int(fresh.min()) < 0):
                kept = fresh >= 0
                entries, fresh = entries[kept], fresh[kept]
            np.left_shift(np.right_shift(entries, old, out=places[: len(entries)]), new, out=places[: len(entries)])
            found: I64 = fresh | places[: len(entries)]
            return found

        return moved

    def replaced(self, current: Manifest, run: IndexRun) -> Manifest:
        """The manifest that is there now, with the new run in the place of the old ones; as it is, where these are not
        all there any more.
        """
        old = set(self.runs)
        if not old <= {one.id for one in current.runs}:
            return current
        facts = current.facts.to_pylist()
        kept = []
        for fact in facts:
            if fact["run"] in old:
                place = fact["run"], fact["base"], fact["groups"] * fact["stride"]
                if (base := self.bases.get(place)) is None:
                    continue
                fact = {**fact, "run": run.id, "base": base}
            kept.append(fact)
        runs = (*(one for one in current.runs if one.id not in old), run)
        bare = replace(current, runs=runs, facts=FACTS.empty_table(), docs=())
        return bare.with_facts(pa.Table.from_pylist(kept, schema=FACTS), current.docs)
