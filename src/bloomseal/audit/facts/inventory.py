"""The inventory: one row per file × row group × column chunk, as an Arrow table.

A file whose column chunks can't be seen has one row, without row group and column. Unseen facts are null.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Final, Unpack

import pyarrow as pa

from .auditor import AnyPath, Auditor, AuditorOptions
from .files.file import PROTECTIONS, SEEN, FileFacts
from .files.views import EXPOSED
from .keys import KeyFacts
from .policies import Policies

__all__ = ["SCHEMA", "inventory", "to_table"]

_WORDS: Final = pa.dictionary(pa.int32(), pa.string())
_MOMENT: Final = pa.timestamp("s", "UTC")

SCHEMA: Final = pa.schema(
    {
        # the file
        "file": _WORDS,
        "table": _WORDS,
        "file_size": pa.int64(),
        "file_modified": _MOMENT,
        "created_by": _WORDS,
        "footer": _WORDS,
        "footer_verified": pa.bool_(),
        "algorithm": _WORDS,
        "aad_prefix": _WORDS,
        "aad_prefix_text": _WORDS,
        "file_id": _WORDS,
        "error": _WORDS,
        # the footer's key
        "footer_material": _WORDS,
        "footer_key_id": _WORDS,
        "footer_data_key": _WORDS,
        "footer_key_bits": pa.int16(),
        "footer_master_key": _WORDS,
        "footer_key_version": _WORDS,
        "footer_key_state": _WORDS,
        "footer_version_since": _MOMENT,
        "footer_current_version": _WORDS,
        "footer_kek_id": _WORDS,
        "footer_kek_since": _MOMENT,
        "footer_kms_url": _WORDS,
        "footer_key_problem": _WORDS,
        # the column chunk
        "row_group": pa.int32(),
        "column": _WORDS,
        "type": _WORDS,
        "protection": _WORDS,
        "values": pa.int64(),
        "bytes": pa.int64(),
        "in_clear": pa.list_(pa.string()),
        "column_index": _WORDS,
        "offset_index": _WORDS,
        "chunk_error": pa.string(),
        # its key
        "material": _WORDS,
        "key_id": _WORDS,
        "data_key": _WORDS,
        "key_bits": pa.int16(),
        "master_key": _WORDS,
        "key_version": _WORDS,
        "key_state": _WORDS,
        "version_since": _MOMENT,
        "current_version": _WORDS,
        "kek_id": _WORDS,
        "kek_since": _MOMENT,
        "key_problem": _WORDS,
        "modules": pa.int64(),
        "modules_counted": pa.bool_(),
        "key_modules": pa.int64(),
        # its filter
        "filter": _WORDS,
        "filter_offset": pa.int64(),
        "filter_length": pa.int64(),
        "filter_bytes": pa.int64(),
        "filter_authentic": pa.bool_(),
        "filter_fill": pa.float64(),
        "filter_fpp": pa.float64(),
        "filter_ndv": pa.int64(),
        "filter_empty": pa.bool_(),
        "filter_kind": _WORDS,
        "filter_error": pa.string(),
        "filter_asked": pa.int64(),
        "filter_denied": pa.int64(),
        "filter_unasked": _WORDS,
    },
    metadata={"bloomseal.inventory": "1"},
)
"""The inventory's columns. Moments are in UTC. ``kek_since`` is the oldest file seen under a KEK, ``key_modules`` what
all files seen have sealed under a data key (at the least, where ``modules_counted`` is false). ``filter_asked`` is how
many values of its own column chunk a filter was asked for (`deep` only), ``filter_denied`` how many of them it called
absent.
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
    files, _ = auditor.look(auditor.find(paths), filters=filters, deep=deep, progress=progress)
    return to_table(files, auditor.policies)


def to_table(files: Sequence[FileFacts], policies: Policies | None = None) -> pa.Table:
    """Facts as a table of `SCHEMA`."""
    files = sorted(files, key=lambda facts: facts.path)
    since = _kek_since(files)
    per_file = {name: [getattr(facts, fact) for facts in files] for name, fact in _FILE_COLUMNS.items()}
    per_file["table"] = [policy.name if policies and (policy := policies.of(facts.path)) else None for facts in files]
    footers = _of_keys([facts.keys[1] if len(facts.keys) > 1 else None for facts in files], since)
    per_file |= {f"footer_{name}": values for name, values in footers.items()}
    file_of, keys, key_of, leaves, leaf_of = _indexes(files)
    per_key = _of_keys(keys, since)
    del per_key["kms_url"]
    chunks = [chunk for facts in files for chunk in (facts.chunks or (None,))]
    sealed = [chunk if chunk is not None and chunk.protection else None for chunk in chunks]
    blooms = [None if chunk is None else chunk.bloom for chunk in chunks]
    columns: dict[str, pa.Array] = {}
    for values, index in ((per_file, file_of), (per_key, key_of), (leaves, leaf_of)):
        taken = pa.array(index, pa.int32())
        for name, entries in values.items():
            columns[name] = _spread(entries, taken, SCHEMA.field(name).type)
    of_chunks: tuple[tuple[Sequence[Any], dict[str, str]], ...] = (
        (chunks, _CHUNK_COLUMNS), (sealed, _SEALED_COLUMNS), (blooms, _BLOOM_COLUMNS)
    )  # fmt: skip
    for ones, facts_of in of_chunks:
        for name, fact in facts_of.items():
            told, kind = [None if one is None else getattr(one, fact) for one in ones], SCHEMA.field(name).type
            columns[name] = _encoded(told) if kind == _WORDS else pa.array(told, kind)
    for name, words in (("protection", PROTECTIONS), ("filter", SEEN), ("column_index", SEEN), ("offset_index", SEEN)):
        index = pa.array([None if chunk is None else getattr(chunk, name) for chunk in chunks], pa.int32())
        columns[name] = pa.DictionaryArray.from_arrays(index, pa.array(words))
    columns["in_clear"] = _in_clear([0 if chunk is None else chunk.exposed for chunk in chunks])
    columns["key_modules"] = _key_modules(columns["data_key"], columns["modules"])
    return pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)


_FILE_COLUMNS: Final = {
    "file": "path", "file_size": "size", "file_modified": "modified",
    **{name: name for name in ("created_by", "footer", "footer_verified", "algorithm", "aad_prefix", "aad_prefix_text", "file_id", "error")},
}  # fmt: skip
_KEY_COLUMNS: Final = {
    "key_bits": "bits", "key_version": "version", "key_state": "state", "current_version": "current", "key_problem": "problem",
    **{name: name for name in ("material", "key_id", "data_key", "master_key", "version_since", "kek_id", "kms_url")},
}  # fmt: skip
_CHUNK_COLUMNS: Final = {
    "row_group": "row_group", "values": "values", "bytes": "size", "chunk_error": "error",
    "filter_offset": "filter_offset", "filter_length": "filter_length",
}  # fmt: skip
_SEALED_COLUMNS: Final = {"modules": "modules", "modules_counted": "pages_counted"}
"""The inventory's columns, and which fact each is."""
_BLOOM_COLUMNS: Final = {
    "filter_bytes": "num_bytes",
    "filter_authentic": "authentic",
    "filter_fill": "fill",
    "filter_fpp": "fpp",
    "filter_ndv": "ndv",
    "filter_empty": "empty",
    "filter_kind": "kind",
    "filter_error": "error",
    "filter_asked": "values",
    "filter_denied": "denied",
    "filter_unasked": "unasked",
}


def _of_keys(keys: Sequence[KeyFacts | None], since: dict[str, datetime]) -> dict[str, list[Any]]:
    found = {name: [None if key is None else getattr(key, fact) for key in keys] for name, fact in _KEY_COLUMNS.items()}
    found["kek_since"] = [since.get(key.kek_id) if key is not None and key.kek_id else None for key in keys]
    return found


def _indexes(
    files: Sequence[FileFacts],
) -> tuple[list[int], list[KeyFacts], list[int | None], dict[str, list[str]], list[int | None]]:
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
        if not facts.chunks:
            file_of.append(number)
            key_of.append(None)
            leaf_of.append(None)
            continue
        file_of.extend([number] * len(facts.chunks))
        key_of.extend([base + chunk.key if chunk.key else None for chunk in facts.chunks])
        leaf_of.extend([local[chunk.leaf] for chunk in facts.chunks])
    named = {"column": [name for name, _ in leaves], "type": [kind for _, kind in leaves]}
    return file_of, keys, key_of, named, leaf_of


def _spread(entries: list[Any], index: pa.Array, kind: pa.DataType) -> pa.Array:
    if kind != _WORDS:
        return pa.array(entries, kind).take(index)
    encoded = _encoded(entries)
    return pa.DictionaryArray.from_arrays(encoded.indices.take(index), encoded.dictionary)


def _encoded(entries: Iterable[str | None]) -> pa.DictionaryArray:
    return pa.array(list(entries), pa.string()).dictionary_encode()


def _in_clear(bits: list[int]) -> pa.Array:
    values = sorted(set(bits))
    lists = [[name for bit, name in enumerate(EXPOSED) if value >> bit & 1] for value in values]
    place = {value: index for index, value in enumerate(values)}
    return pa.array(lists, pa.list_(pa.string())).take(pa.array([place[value] for value in bits], pa.int32()))


def _kek_since(files: Sequence[FileFacts]) -> dict[str, datetime]:
    since: dict[str, datetime] = {}
    for facts in files:
        for key in facts.keys:
            if key.kek_id is not None and facts.modified is not None:
                since[key.kek_id] = min(since.get(key.kek_id, facts.modified), facts.modified)
    return since


def _key_modules(data_keys: pa.DictionaryArray, modules: pa.Array) -> pa.Array:
    total: dict[int, int] = defaultdict(int)
    indexes = data_keys.indices.to_pylist()
    for key, count in zip(indexes, modules.to_pylist(), strict=True):
        if key is not None and count is not None:
            total[key] += count
    return pa.array([None if key is None else total[key] for key in indexes], pa.int64())
