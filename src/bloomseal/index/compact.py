"""Fewer runs: several sorted ones merged into one, without the values and without what no fact is about any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..notebook import ShownInNotebooks
from .commit import commit
from .folder import IndexFolder
from .manifest import FACTS, Manifest, Run
from .runs.shard import RunReader
from .runs.sorter import merged
from .runs.writer import RunWriter, most_places, place_bits_for
from .update import Progress

if TYPE_CHECKING:
    from .folder import Decryption, Encryption

__all__ = ["MOST_RUNS", "CompactReport", "compact"]

I64 = npt.NDArray[np.int64]

MOST_RUNS: Final = 8
"""Each is asked in every look-up."""
_TIER: Final = 4


@dataclass
class CompactReport(ShownInNotebooks):
    """What a compaction did.

    Attributes:
        column: of the index.
        merged: runs that became one; 0 where there was nothing to do.
        runs: there are now.
        entries_before, entries: in the merged runs, and in the one that they became.
    """

    column: str
    merged: int = 0
    runs: int = 0
    entries_before: int = 0
    entries: int = 0

    def to_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)


def compact(
    folder: IndexFolder,
    manifest: Manifest,
    encryption: Encryption,
    decryption: Decryption,
    *,
    everything: bool = False,
    progress: Progress | None = None,
) -> CompactReport:
    """Merge runs of about one size until there are few; with `everything` all of them, under fresh keys.

    Raises:
        UsageError: a link lies in the place of the index's folder.
        BloomsealError: a run can't be read, or the storage failed; the index is as it was.
    """
    folder.place.need_no_link()
    chosen = _that_fit(list(manifest.runs) if everything else _chosen(manifest.runs), most_places(manifest.bits))
    report = CompactReport(manifest.column, len(chosen), len(manifest.runs))
    if not chosen or (len(chosen) == 1 and not everything):
        report.merged = 0
        return report
    report.entries_before = sum(run.entries for run in chosen)
    merge = _Merge(folder, manifest, chosen, encryption, decryption)
    run = merge.run(progress)
    try:
        made = commit(folder, manifest, encryption, decryption, lambda current: merge.replaced(current, run))
    except BaseException:
        merge.abort(run)
        raise
    if run.id not in {one.id for one in made.runs}:
        merge.abort(run)  # somebody else was first
        report.merged = 0
    report.runs, report.entries = len(made.runs), run.entries
    return report


def _chosen(runs: Sequence[Run]) -> list[Run]:
    """The smallest ones: as long as the next is not much larger than they are together, or there are too many."""
    ordered = sorted(runs, key=lambda run: run.entries)
    taken, total = 0, 0
    for run in ordered:
        if len(runs) - taken < MOST_RUNS and taken and run.entries > _TIER * max(total, 1):
            break
        taken, total = taken + 1, total + run.entries
    return ordered[:taken] if taken > 1 else []


def _that_fit(runs: list[Run], most: int) -> list[Run]:
    """As many of the smallest as are about `most` row groups together."""
    ordered = sorted(runs, key=lambda run: run.places)
    total = list(accumulate(run.places for run in ordered))
    return [run for run, places in zip(ordered, total, strict=True) if places <= most]


class _Merge:
    def __init__(
        self,
        folder: IndexFolder,
        manifest: Manifest,
        chosen: Sequence[Run],
        encryption: Encryption,
        decryption: Decryption,
    ) -> None:
        self._folder, self._manifest = folder, manifest
        self._encryption, self._decryption = encryption, decryption
        self._chosen = chosen
        self._places: dict[str, I64] = {run.id: np.full(run.places + 1, -1, dtype=np.int64) for run in chosen}
        # Run, base and number of places → new base. A file without row groups bears the base of the one behind it.
        self._bases: dict[tuple[str, int, int], int] = {}
        self._count = 0
        self._there = folder.place.there()
        for fact in manifest.facts.to_pylist():
            self._keep(fact)

    def _keep(self, fact: dict[str, Any]) -> None:
        """Give the places of a fact new numbers, unless its file is gone for good."""
        if (places := self._places.get(fact["run"])) is None:
            return
        if not self._there(fact["path"]):
            return
        base, count = fact["base"], fact["groups"] * fact["stride"]
        if (fact["run"], base, count) not in self._bases:
            self._bases[fact["run"], base, count] = self._count
            places[base : base + count] = np.arange(self._count, self._count + count)
            self._count += count

    def run(self, progress: Progress | None) -> Run:
        bits = place_bits_for(self._count)
        writer = RunWriter(self._folder, self._manifest, self._count, bits, self._encryption, self._decryption)
        readers = [RunReader(self._folder, run, self._decryption) for run in self._chosen]
        return merged(writer, readers, [self._mover(run) for run in self._chosen], self._manifest, progress)

    def _mover(self, run: Run) -> Callable[[I64, int, int], I64]:
        table = self._places[run.id]
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

    def replaced(self, current: Manifest, run: Run) -> Manifest:
        """The manifest that is there now, with the new run in the place of the old ones; as it is, where these are not
        all there any more.
        """
        old = {one.id for one in self._chosen}
        if not old <= {one.id for one in current.runs}:
            return current
        facts = current.facts.to_pylist()
        kept = []
        for fact in facts:
            if fact["run"] in old:
                place = fact["run"], fact["base"], fact["groups"] * fact["stride"]
                if (base := self._bases.get(place)) is None:
                    continue
                fact = {**fact, "run": run.id, "base": base}
            kept.append(fact)
        runs = (*(one for one in current.runs if one.id not in old), run)
        made = replace(current, runs=runs, facts=pa.Table.from_pylist(kept, schema=FACTS))
        return _without_dead_docs(made)

    def abort(self, run: Run) -> None:
        for shard in run.shards:
            self._folder.remove(shard.file)


def _without_dead_docs(manifest: Manifest) -> Manifest:
    used = sorted(set(manifest.facts.column("doc").to_pylist()))
    numbers = {old: new for new, old in enumerate(used)}
    column = pa.array([numbers[doc] for doc in manifest.facts.column("doc").to_pylist()], pa.int32())
    place = FACTS.get_field_index("doc")
    facts = manifest.facts.set_column(place, FACTS.field("doc"), column)
    return replace(manifest, facts=facts, docs=tuple(manifest.docs[doc] for doc in used))
