"""The inventory: one row per file × row group × column chunk, as an Arrow table.

A file whose column chunks can't be seen has one row, without row group and column. Unseen facts are null.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ...core.errors import BloomsealError
from ...core.keys.protocols import KeySource
from ...keytools import KeyTools, as_key_source
from ...keytools.pinned import PinnedKeys
from ...policy import Policy, TablePolicy
from .files.file import PROTECTIONS, SEEN, FileFacts
from .files.scan import Scanner
from .files.views import EXPOSED
from .keys import KeyFacts, Kms
from .places import Places, find_files
from .policies import Policies
from .processes import scan_all

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

    from ...core.parquet.walk import Walk
    from ...core.storage.source import Source
    from .files.deep import Nonces

__all__ = ["SCHEMA", "inventory", "keys_at_hand", "look", "scanner_for", "to_table", "tools_behind"]

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
    paths: Sequence[str | os.PathLike[str]] | str | os.PathLike[str],
    *,
    keys: Any = None,
    policy: Policy | TablePolicy | None = None,
    table: str | None = None,
    aad_prefix: bytes | str | None = None,
    filesystem: FileSystem | None = None,
    filters: bool | None = None,
    deep: bool = False,
    with_keys: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> pa.Table:
    """The protection of every column chunk, over any number of files.

    Without keys it never fails: what can't be seen is null, a file that can't be read is a row with an error.

    Args:
        paths: files, folders, Delta tables (folders) and Iceberg tables (their ``.metadata.json``).
        keys: whatever `DecryptionSpec` takes; None: from the KMS that the policy names, and without a policy none, to
            look at what everybody sees. At most one unwrapping per KEK, and under a policy that limits the age of keys
            up to two questions per master key.
        policy: gives the AAD prefixes that files don't store, and asks for the ages of keys.
        table: the policy's table, where the paths don't tell.
        aad_prefix: the prefix of files that don't store theirs, where there is no policy.
        filters: open filters and judge their bits; None: where keys are given.
        deep: count every page, and ask each filter for every value of its own column chunk.
        with_keys: False: look at what everybody sees, whatever the policy names.
        progress: called with files done and in all.

    Returns:
        A table of `SCHEMA`, ordered by file, row group and column.

    Raises:
        UsageError, MissingDependencyError: no paths, or a table without its library.
    """
    places = find_files(paths, filesystem=filesystem)
    policies = Policies(policy, table)
    keys = keys_at_hand(keys, policies, places, with_keys=with_keys)
    files, _ = look(places, keys, policies, aad_prefix=aad_prefix, filters=filters, deep=deep, progress=progress)
    return to_table(files, policies)


def keys_at_hand(keys: Any, policies: Policies, places: Places, *, with_keys: bool = True) -> Any:
    """`keys`, or else key tools over the policy's KMS; None: there are none. Why the KMS can't be had is told among
    what is unknown.
    """
    if not with_keys or keys is not None:
        return keys if with_keys else None
    try:
        return policies.keys()
    except BloomsealError as error:
        places.unknown.append(f"the keys of the policy's KMS: {error.what}")
        return None


def look(
    places: Places,
    keys: Any,
    policies: Policies,
    *,
    aad_prefix: bytes | str | None = None,
    filters: bool | None = None,
    deep: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[list[FileFacts], Nonces | None]:
    """The facts of all files, and with `deep` their nonces."""
    nonces: Nonces | None = None
    if deep:
        from .files.deep import Nonces

        nonces = Nonces()
    visit = None if nonces is None else partial(_in_depth, nonces)
    scanner = scanner_for(keys, policies, aad_prefix=aad_prefix, filters=filters, truth=deep, visit=visit)
    # Keys stay in one process, and so does what is compared over all files.
    alone = keys is not None or deep
    scanned = map(scanner.scan, places.files) if alone else scan_all(scanner, places.files, filters=bool(filters))
    files = []
    for done, facts in enumerate(scanned, 1):
        files.append(facts)
        if progress is not None:
            progress(done, len(places.files))
    return files, nonces


def _in_depth(nonces: Nonces, facts: FileFacts, walk: Walk | None, source: Source) -> None:
    """All that is learnt from reading a whole file."""
    from .files.deep import prove

    nonces.add(facts, walk, source)
    if walk is not None:
        prove(facts, walk)


def tools_behind(keys: Any) -> KeySource | None:
    """The key source of an audit. Pins refuse what they don't expect; an audit has to see it."""
    source = None if keys is None else as_key_source(keys)
    return source.tools if isinstance(source, PinnedKeys) else source


def scanner_for(
    keys: Any,
    policies: Policies,
    *,
    aad_prefix: bytes | str | None = None,
    filters: bool | None = None,
    truth: bool = False,
    visit: Any = None,
    witness: bool = False,
) -> Scanner:
    """The scanner of single files; arguments as of `inventory`, `truth` and `visit` as of `Scanner`; `witness`: ask the
    KMS which version opens each wrapped key.
    """
    source = tools_behind(keys)
    tools = source if isinstance(source, KeyTools) else None
    kms = Kms(tools, dated=policies.dated, witness=witness)
    one = aad_prefix.encode() if isinstance(aad_prefix, str) else aad_prefix
    given = (one,) if one else ()
    return Scanner(
        source,
        kms,
        prefixes=lambda ref: policies.prefixes(ref) or given,
        access_log=lambda ref: policy.access_log if (policy := policies.of(ref.path)) else None,
        filters=True if truth else filters,
        truth=truth,
        visit=visit,
    )


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
