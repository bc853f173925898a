"""The inventory: one row per file × row group × column chunk, as an Arrow table.

A file whose column chunks can't be seen has one row, without row group and column. Of an encrypted Iceberg table so
has each file of its metadata; a metadata file has one for each KEK. Unseen facts are null.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, Unpack

import pyarrow as pa

from .auditor import AnyPath, Auditor, AuditorOptions
from .files.file import PROTECTIONS, SEEN, FileFacts
from .files.views import EXPOSED
from .keys import KeyFacts
from .policies import Policies

_WORDS: Final = pa.dictionary(pa.int32(), pa.string())
_MOMENT: Final = pa.timestamp("s", "UTC")
_Columns = dict[str, tuple[pa.DataType, str]]
"""The inventory's columns, and which fact each is; none for those that are made apart."""

_FILE: Final[_Columns] = {
    "file": (_WORDS, "path"),
    "table": (_WORDS, ""),
    "file_size": (pa.int64(), "size"),
    "file_modified": (_MOMENT, "modified"),
    "created_by": (_WORDS, "created_by"),
    "footer": (_WORDS, "footer"),
    "footer_verified": (pa.bool_(), "footer_verified"),
    "algorithm": (_WORDS, "algorithm"),
    "aad_prefix": (_WORDS, "aad_prefix"),
    "aad_prefix_text": (_WORDS, "aad_prefix_text"),
    "file_id": (_WORDS, "file_id"),
    "error": (_WORDS, "error"),
}
_AUTHOR: Final[_Columns] = {
    "signature": (_WORDS, "signature"),
    "signer": (_WORDS, "signer"),
    "signer_algorithms": (_WORDS, "algorithms"),
    "signer_keys": (_WORDS, "key_ids"),
}
_KEY: Final[_Columns] = {
    "material": (_WORDS, "material"),
    "key_id": (_WORDS, "key_id"),
    "data_key": (_WORDS, "data_key"),
    "key_bits": (pa.int16(), "bits"),
    "master_key": (_WORDS, "master_key"),
    "key_version": (_WORDS, "version"),
    "key_state": (_WORDS, "state"),
    "version_since": (_MOMENT, "version_since"),
    "current_version": (_WORDS, "current"),
    "kek_id": (_WORDS, "kek_id"),
    "kek_since": (_MOMENT, ""),
    "kms_url": (_WORDS, "kms_url"),
    "key_problem": (_WORDS, "problem"),
}
_FOOTER_KEY: Final = {f"footer_{name}": column for name, column in _KEY.items()}
_COLUMN_KEY: Final = {name: column for name, column in _KEY.items() if name != "kms_url"}
_CHUNK: Final[_Columns] = {
    "row_group": (pa.int32(), "row_group"),
    "column": (_WORDS, ""),
    "type": (_WORDS, ""),
    "protection": (_WORDS, ""),
    "values": (pa.int64(), "values"),
    "bytes": (pa.int64(), "size"),
    "in_clear": (pa.list_(pa.string()), ""),
    "column_index": (_WORDS, ""),
    "offset_index": (_WORDS, ""),
    "chunk_error": (pa.string(), "error"),
}
_SEALED: Final[_Columns] = {
    "modules": (pa.int64(), "modules"),
    "modules_counted": (pa.bool_(), "pages_counted"),
    "key_modules": (pa.int64(), ""),
}
_PLACE: Final[_Columns] = {
    "filter": (_WORDS, ""),
    "filter_offset": (pa.int64(), "filter_offset"),
    "filter_length": (pa.int64(), "filter_length"),
}
_BLOOM: Final[_Columns] = {
    "filter_bytes": (pa.int64(), "num_bytes"),
    "filter_authentic": (pa.bool_(), "authentic"),
    "filter_fill": (pa.float64(), "fill"),
    "filter_fpp": (pa.float64(), "fpp"),
    "filter_ndv": (pa.int64(), "ndv"),
    "filter_empty": (pa.bool_(), "empty"),
    "filter_kind": (_WORDS, "kind"),
    "filter_error": (pa.string(), "error"),
    "filter_asked": (pa.int64(), "values"),
    "filter_denied": (pa.int64(), "denied"),
    "filter_unasked": (_WORDS, "unasked"),
}
_ALL: Final = _FILE | _AUTHOR | _FOOTER_KEY | _CHUNK | _COLUMN_KEY | _SEALED | _PLACE | _BLOOM

SCHEMA: Final = pa.schema({name: kind for name, (kind, _) in _ALL.items()}, metadata={"bloomseal.inventory": "1"})
"""The inventory's columns. Moments are in UTC. ``kek_since`` is when a KEK was made, or else the oldest file seen
under it, ``key_modules`` what all files seen have sealed under a data key (at the least, where ``modules_counted`` is
false). ``signature`` and the three columns after it are null where no policy names signers; an unknown signer's keys
are those that his signature names. ``filter_asked`` is how many values of its own column chunk a filter was asked for
(`deep` only), ``filter_denied`` how many of them it called absent.
"""


def inventory(
    paths: Sequence[AnyPath] | AnyPath,
    *,
    filters: bool | None = None,
    deep: bool = False,
    progress: Callable[[int, int], None] | None = None,
    **access: Unpack[AuditorOptions],
) -> pa.Table:
    """The protection of every column chunk, over any number of files.

    Without keys it never fails: what can't be seen is null, a file that can't be read is a row with an error.

    Args:
        paths: files, folders, Delta tables (folders) and Iceberg tables (their ``.metadata.json``).
        filters: open filters and judge their bits; None: where keys are given.
        deep: count every page, and ask each filter for every value of its own column chunk.
        progress: called with files done and in all.
        access: keys, policy, table, aad_prefix, filesystem, with_keys: see `Auditor`.

    Returns:
        A table of `SCHEMA`, ordered by file, row group and column.

    Raises:
        UsageError, MissingDependencyError: no paths, or a table without its library.
    """
    auditor = Auditor(**access)
    places = auditor.find(paths)
    files, _ = auditor.look(places, filters=filters, deep=deep, progress=progress)
    return to_table([*files, *places.sealed], auditor.policies)


def to_table(files: Sequence[FileFacts], policies: Policies | None = None) -> pa.Table:
    """Facts as a table of `SCHEMA`."""
    files = sorted(files, key=lambda facts: facts.path)
    footers = [facts.keys[1] if len(facts.keys) > 1 else None for facts in files]
    file_of, keys, key_of, leaves, leaf_of = _indexes(files)
    chunks = [chunk for facts in files for chunk in (facts.chunks or (None,))]
    sealed = [chunk if chunk is not None and chunk.protection else None for chunk in chunks]
    blooms = [None if chunk is None else chunk.bloom for chunk in chunks]
    columns: dict[str, pa.Array] = {}
    of_rows: tuple[tuple[_Columns, Sequence[object], pa.Array | None], ...] = (
        (_FILE, files, file_of), (_AUTHOR, [facts.authorship for facts in files], file_of),
        (_FOOTER_KEY, footers, file_of), (_COLUMN_KEY, keys, key_of),
        (_CHUNK, chunks, None), (_SEALED, sealed, None), (_PLACE, chunks, None), (_BLOOM, blooms, None),
    )  # fmt: skip
    for named, ones, index in of_rows:
        for name, (kind, fact) in named.items():
            if fact:
                columns[name] = _array([None if one is None else getattr(one, fact) for one in ones], kind, index)
    tables = [policy.name if policies and (policy := policies.of(facts.path)) else None for facts in files]
    columns["table"] = _array(tables, _WORDS, file_of)
    since = _kek_since(files)
    for name, some, index in (("footer_kek_since", footers, file_of), ("kek_since", keys, key_of)):
        columns[name] = _array([since.get(key.kek_id or "") if key else None for key in some], _MOMENT, index)
    for place, name in enumerate(("column", "type")):
        columns[name] = _array([leaf[place] for leaf in leaves], _WORDS, leaf_of)
    for name, words in (("protection", PROTECTIONS), ("filter", SEEN), ("column_index", SEEN), ("offset_index", SEEN)):
        index = pa.array([None if chunk is None else getattr(chunk, name) for chunk in chunks], pa.int32())
        columns[name] = pa.DictionaryArray.from_arrays(index, pa.array(words))
    columns["in_clear"] = _in_clear([0 if chunk is None else chunk.exposed for chunk in chunks])
    columns["key_modules"] = _key_modules(columns["data_key"], columns["modules"])
    return pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def _indexes(
    files: Sequence[FileFacts],
) -> tuple[pa.Array, list[KeyFacts], pa.Array, list[tuple[str, str]], pa.Array]:
    """Per row: its file, its key among all keys, its column among all columns."""
    file_of: list[int] = []
    keys: list[KeyFacts] = []
    key_of: list[int | None] = []
    leaves: dict[tuple[str, str], int] = {}
    leaf_of: list[int | None] = []
    for number, facts in enumerate(files):
        base = len(keys)
        keys.extend(facts.keys)
        local = [leaves.setdefault(leaf, len(leaves)) for leaf in facts.leaves]
        rows = facts.chunks or (None,)
        file_of.extend([number] * len(rows))
        key_of.extend([base + chunk.key if chunk is not None and chunk.key else None for chunk in rows])
        leaf_of.extend([local[chunk.leaf] if chunk is not None else None for chunk in rows])
    of_file, of_key, of_leaf = (pa.array(index, pa.int32()) for index in (file_of, key_of, leaf_of))
    return of_file, keys, of_key, list(leaves), of_leaf


def _array(entries: list[Any], kind: pa.DataType, index: pa.Array | None) -> pa.Array:
    """The entries, spread over rows where there is an index."""
    if kind != _WORDS:
        made = pa.array(entries, kind)
        return made if index is None else made.take(index)
    encoded = pa.array(entries, pa.string()).dictionary_encode()
    return encoded if index is None else pa.DictionaryArray.from_arrays(encoded.indices.take(index), encoded.dictionary)


def _in_clear(bits: list[int]) -> pa.Array:
    values = sorted(set(bits))
    lists = [[name for bit, name in enumerate(EXPOSED) if value >> bit & 1] for value in values]
    place = {value: index for index, value in enumerate(values)}
    return pa.array(lists, pa.list_(pa.string())).take(pa.array([place[value] for value in bits], pa.int32()))


def _kek_since(files: Sequence[FileFacts]) -> dict[str, datetime]:
    since: dict[str, datetime] = {}
    for facts in files:
        for key in facts.keys:
            moment = key.kek_since or facts.modified
            if key.kek_id is not None and moment is not None:
                since[key.kek_id] = min(since.get(key.kek_id, moment), moment)
    return since


def _key_modules(data_keys: pa.DictionaryArray, modules: pa.Array) -> pa.Array:
    total: dict[int, int] = defaultdict(int)
    indexes = data_keys.indices.to_pylist()
    for key, count in zip(indexes, modules.to_pylist(), strict=True):
        if key is not None and count is not None:
            total[key] += count
    return pa.array([None if key is None else total[key] for key in indexes], pa.int64())
