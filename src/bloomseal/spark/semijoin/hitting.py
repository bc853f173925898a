"""Of many keys those that a table's sealed index knows: few enough for one process are looked up on the driver, others
by tasks that open the index themselves.

Keys come and go as Spark's own rows do. Their XXH64 and fingerprints stay in the process that makes them, and the
index's secret is in no plan: each task opens the manifest with keys of its own.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
from pyspark.sql import types as st

from ...core.errors import BloomsealError
from ...core.sbbf import ColumnType, ProbeSet
from ...index.folder import IndexFolder
from ...index.lookup import ghost
from ...index.runs.shard import RunReader
from ...table.query.indexes import Held, Indexes, UnreadableError
from ..listing import open_filesystem
from ..opening import table_of
from ..source.narrowing import spelled
from .sealed_keyset import estimated_bytes, is_small, key_column, place_of, values_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from ...index.manifest import FileState
    from ...policy import TablePolicy
    from ..listing import TableFiles
    from .indexed import AskedIndexes

__all__ = ["Hits", "hits_of"]

Hashes = npt.NDArray[np.uint64]
Indices = npt.NDArray[np.intp]

_AT_ONCE: Final = 2_000_000
"""Keys that are hashed and looked up in one go. More than there are pages read all of the index."""
_HELD: Final = 1 << 25
"""Entries of an index, 256 MiB, that the driver reads while the keys are on their way: both take as long."""
_KEYS_OF_A_PAGE: Final = 32
"""That is worth it where so many bytes of keys come for each thousand entries: then they are on most of its pages."""
_FEW: Final = 200_000
"""So many keys that the driver has at hand are looked up there, each time that a run is planned."""


@dataclass(frozen=True)
class Hits:
    """The keys that an index knows, of an index that covers every file.

    Attributes:
        keys: an Arrow array; some may be nowhere.
        states: of each file when the index was held against it. No other key is in a file that still has its state.
        indexes: those of the table, as far as they were loaded.
    """

    keys: Any
    states: Mapping[str, FileState]
    indexes: Indexes


@dataclass(frozen=True)
class _LookUp:
    """A task.

    Attributes:
        root, name, base: the index's folder.
        runs: those that must be asked. A manifest that lacks one of them is not the one that the driver has seen.
        at_once: keys that are hashed and looked up in one go.
    """

    policy: bytes
    base: str | None
    root: str
    name: str
    kind: ColumnType
    runs: frozenset[str]
    at_once: int

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Keys that the index knows, and whether there is a doubt, by which any key could be somewhere."""
        import pyarrow as pa

        waiting: list[pa.Array] = []
        count = 0
        kind = pa.null()
        try:
            for batch in batches:
                kind = batch.column(0).type
                waiting.append(batch.column(0).drop_null())
                count += len(waiting[-1])
                if count >= self.at_once:
                    yield _told(self.hits(pa.chunked_array(waiting, kind)))
                    waiting, count = [], 0
            if count:
                yield _told(self.hits(pa.chunked_array(waiting, kind)))
        except BloomsealError:
            # Raised, it would be tried again, and end the job. Who has the keys told why.
            yield pa.record_batch({"_key": pa.nulls(1, kind), "_doubt": pa.array([True])})

    def hits(self, keys: pa.ChunkedArray) -> pa.Array:
        """Those that can be somewhere.

        Raises:
            BloomsealError: the index can't say.
        """
        hashes, owners = _hashed(keys, self.kind)
        folder = IndexFolder(self.root, self.name, named=True, filesystem=open_filesystem(self.base))
        table = table_of(self.policy)
        found = folder.load(table)
        if found is None or not self.runs <= {run.id for run in found[0].runs}:
            raise BloomsealError("the index is another one by now", file=folder.path)
        fingerprints = found[0].fingerprints.of(hashes)
        hit: list[Indices] = []
        for run in found[0].runs:
            reader = RunReader(folder, run, table)
            try:
                hit.append(reader.find(fingerprints)[0])
            finally:
                reader.close()
        return _those(keys, owners[np.concatenate(hit)] if hit else owners[:0])


def hits_of(asked: AskedIndexes, files: TableFiles, table: TablePolicy, column: str, keys: Any) -> Hits | None:
    """The keys that the table's index of this column knows. None where that would not do: there is no index, it does
    not cover every file, or is not to be asked for so many; keys that it can't be asked for; or they are few.

    Args:
        keys: as the caller gave them: a frame of Spark's is looked up by a job, what is at hand here.
    """
    if asked.use == "never" or asked.trust == "identity":
        return None
    if (given := _given(keys, column)) is None:
        return None
    placed = asked.files(files.names, files.base, table)
    indexes = Indexes(placed, "auto", asked.trust)
    if placed.without_index or not (columns := spelled(indexes, [column])):
        return None
    states = indexes.states()
    held = indexes.held(columns, states)
    if len(held) != 1 or not (coverage := held[0].coverage).covered.all():
        return None
    if held[0].too_many(sys.maxsize) and asked.use != "require":
        return None
    docs = np.unique(coverage.docs).tolist()
    kinds = {_kind(coverage.doc(doc), column, coverage.column, asked.case_sensitive) for doc in docs}
    if len(kinds) != 1 or (kind := kinds.pop()) is None:
        return None
    root, name = indexes.folders[held[0].place[0]][0].root.path, held[0].place[1]
    if not hasattr(given, "toArrow"):
        found = _here(held[0], kind, given)
    elif is_small(given):
        found = _here(held[0], kind, _collected(given, held[0]))
    else:
        found = _by_job(_LookUp(pickle.dumps(table), files.base, root, name, kind, coverage.runs, _AT_ONCE), given)
    if found is None:
        return None
    pinned = {name: state for name, state in zip(files.names, states, strict=True) if state is not None}
    return Hits(found, pinned, indexes)


def _given(keys: Any, column: str) -> DataFrame | pa.ChunkedArray | None:
    """The keys, alone: a frame of Spark's, or those at hand that are many; None for others."""
    import pyarrow as pa

    if hasattr(keys, "toArrow"):
        frame = key_column(keys, column)
        kind = frame.schema.fields[0].dataType
        # Not texts with a collation, which are equal where their bytes are not.
        collated = isinstance(kind, st.StringType) and kind != st.StringType()
        return frame if isinstance(kind, st.AtomicType) and not collated else None
    if isinstance(keys, str | bytes) or not hasattr(keys, "__len__") or len(keys) <= _FEW:
        return None
    values = values_of(keys, column)
    if isinstance(values, pa.Array):
        values = pa.chunked_array([values])
    plain = isinstance(values, pa.ChunkedArray) and not isinstance(values.type, pa.BaseExtensionType)
    return values if plain else None


def _kind(doc: bytes, column: str, indexed: str, case_sensitive: bool) -> ColumnType | None:
    """The type of the column in files of this schema; None where it is not the one that the index is of: Spark may read
    a column of another spelling, and of that the index has nothing.
    """
    file = ghost(doc, "")
    place = place_of(file, column, case_sensitive=case_sensitive)
    leaf = None if place is None else file.walk.footer.schema.leaves[place]
    return None if leaf is None or leaf.name != indexed else leaf.type


def _told(found: pa.Array) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.record_batch({"_key": found, "_doubt": pa.array(np.zeros(len(found), dtype=np.bool_))})


def _by_job(task: _LookUp, frame: DataFrame) -> pa.ChunkedArray | None:
    kind = frame.schema.fields[0].dataType
    schema = st.StructType([st.StructField("_key", kind), st.StructField("_doubt", st.BooleanType())])
    # Each task reads the index: as few as there are cores.
    cores = frame.sparkSession.sparkContext.defaultParallelism
    told = frame.coalesce(cores).mapInArrow(task.rows, schema).toArrow()
    return None if any(told.column("_doubt").to_pylist()) else told.column("_key")


def _collected(frame: DataFrame, held: Held) -> pa.ChunkedArray:
    """The keys, all of them; and while Spark gathers them, the index is read that they are looked up in."""
    many = estimated_bytes(frame) > _KEYS_OF_A_PAGE * held.coverage.entries // 1000
    with ThreadPoolExecutor(1) as pool:
        if many:
            pool.submit(held.hold, _HELD)
        return frame.toArrow().column(0)


def _here(held: Held, kind: ColumnType, keys: pa.ChunkedArray) -> pa.ChunkedArray | None:
    import pyarrow as pa

    keys = keys.drop_null()
    found: list[pa.Array] = []
    try:
        for start in range(0, len(keys), _AT_ONCE):
            part = keys.slice(start, _AT_ONCE)
            hashes, owners = _hashed(part, kind)
            found.append(_those(part, owners[held.find(hashes).owners]))
    except (BloomsealError, UnreadableError):
        return None  # whoever asks for all keys is told why
    return pa.chunked_array(found, keys.type)


def _hashed(keys: pa.ChunkedArray, kind: ColumnType) -> tuple[Hashes, Indices]:
    """The XXH64 of keys without nulls, and which key each is of.

    Raises:
        BloomsealError: of some key no hash decides.
    """
    hashes, owners, begin = [np.empty(0, dtype=np.uint64)], [np.empty(0, dtype=np.intp)], 0
    for chunk in keys.chunks:
        found, of, undecided = ProbeSet.of(chunk, kind).hashes()
        if undecided.any():
            raise BloomsealError("a key that no index decides about")
        hashes.append(found)
        owners.append(of + begin)
        begin += len(chunk)
    return np.concatenate(hashes), np.concatenate(owners)


def _those(keys: pa.ChunkedArray, numbers: Indices) -> pa.Array:
    """The keys of these numbers, each once."""
    import pyarrow as pa

    hit = np.zeros(len(keys), dtype=np.bool_)
    hit[numbers] = True
    return pa.concat_arrays([pa.nulls(0, keys.type), *keys.filter(pa.array(hit)).chunks])
