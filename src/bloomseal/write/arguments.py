"""The writer's arguments: refused, by name and with what fits, before anything is written."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final, Literal

import pyarrow.parquet as pq

from ..core.errors import UsageError
from ..core.parquet.schema import Leaf, Schema
from ..core.spelling import nearest
from ..format.hashes.chunk_hashes import carries_filter
from ..sbbf import FilterSpec
from ..specs import EncryptionSpec, PolicyArguments

FilterLayout = Literal["row_group", "end"]
FilterRequest = Mapping[str, FilterSpec | Mapping[str, Any] | bool] | Collection[str]


class WriterOptions(PolicyArguments, total=False):
    """A policy in the place of ``encryption=``; and what `pyarrow.parquet.ParquetWriter` takes for encoding."""

    flavor: str | None
    version: str
    use_dictionary: bool | Sequence[str]
    compression: str | Mapping[str, str]
    compression_level: int | Mapping[str, int] | None
    write_statistics: bool | Sequence[str]
    use_byte_stream_split: bool | Sequence[str]
    column_encoding: str | Mapping[str, str] | None
    data_page_size: int
    data_page_version: str
    max_rows_per_page: int | None
    write_batch_size: int | None
    dictionary_pagesize_limit: int | None
    write_page_index: bool
    write_page_checksum: bool
    sorting_columns: Sequence[Any] | None
    store_schema: bool
    store_decimal_as_integer: bool
    coerce_timestamps: str | None
    allow_truncated_timestamps: bool
    use_deprecated_int96_timestamps: bool | None
    write_time_adjusted_to_utc: bool
    use_compliant_nested_type: bool
    use_content_defined_chunking: bool | Mapping[str, int]
    writer_engine_version: str | None


def policy_apart(options: WriterOptions) -> tuple[PolicyArguments, dict[str, Any]]:
    """What `WriterOptions` say of a policy, and the rest, for pyarrow."""
    named = PolicyArguments(policy=options.get("policy"), table=options.get("table"))
    return named, {name: value for name, value in options.items() if name not in named}


_ARGUMENTS: Final = (
    "encryption",
    "policy",
    "table",
    "bloom_filters",
    "row_group_size",
    "filter_layout",
    "filesystem",
    "threads",
)
_PASSED_THROUGH: Final = ("data_page_size", "coerce_timestamps", "allow_truncated_timestamps")
_OURS: Final = {
    "encryption_properties",
    "bloom_filter_options",
    "row_group_size",
    "where",
    "sink",
    "filesystem",
    "memory_pool",
}


def is_a(kind: type[Any], value: Any, name: str) -> Any:
    """The argument, if it is what it should be."""
    if isinstance(value, kind):
        return value
    wanted = (
        f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
        if kind.__module__ != "collections.abc"
        else "an iterable"
    )
    hint = "write(data) takes frames and streams, such as .scan() of an open table" if name != "schema" else None
    raise UsageError(f"{name}= takes {wanted}, not {type(value).__name__}", hint=hint)


def a_count(value: Any, name: str, what: str) -> int:
    """The argument as a number. Raises UsageError: no whole number of at least 1, with `what` as the message."""
    try:
        number = operator.index(value)
    except TypeError:
        raise UsageError(f"{name}= takes a whole number, not {type(value).__name__}", hint="1 or more") from None
    if number < 1 or isinstance(value, bool):
        raise UsageError(what.format(value), hint=f"{name}= of at least 1")
    return number


_NAMED: Final = inspect.signature(pq.ParquetWriter.__init__).parameters.values()
_TAKEN: Final = tuple(
    one.name for one in _NAMED if one.kind is not one.VAR_KEYWORD and one.name not in ("self", "schema")
)
_ENCODING_OPTIONS: Final = (*_TAKEN, *_PASSED_THROUGH)
"""The options of this pyarrow's writer, with those that only its C++ part knows."""


def check_options(options: dict[str, Any], encryption: EncryptionSpec | None) -> None:
    """Refuse options of pyarrow's writer that are ours to choose, or unknown. Raises UsageError."""
    if taken := _OURS & options.keys():
        raise UsageError(f"{', '.join(sorted(taken))} can't be passed on to pyarrow here")
    known = [*_ARGUMENTS, *(name for name in _ENCODING_OPTIONS if name not in _OURS)]
    if unknown := [name for name in options if name not in known]:
        raise UsageError(
            f"the writer has no option {unknown[0]!r}", hint=f"one of {', '.join(nearest(unknown[0], known))}"
        )
    if encryption is not None and options.get("data_page_version", "1.0") != "1.0":
        # parquet-java and Arrow C++ disagree about what of an encrypted V2 page is sealed: no V2 page suits both.
        raise UsageError("encrypted files are written with V1 data pages", hint='data_page_version="1.0"')


def resolve_filters(schema: Schema, wanted: FilterRequest) -> list[tuple[Leaf, FilterSpec]]:
    """The leaves and specifications of a ``bloom_filters=`` argument, in schema order.

    Args:
        wanted: dotted column path → `FilterSpec`, a dict of its options, or True for the default one; or a list of such
            paths, for that one.

    Raises:
        UsageError: no such column, one asked for under two names, a column that can't carry a filter, an option that
            `FilterSpec` has not, or none of these forms.
    """
    specs: dict[int, tuple[Leaf, FilterSpec]] = {}
    for name, spec in _requests(wanted):
        if not isinstance(name, str):
            raise UsageError(f"a column's dotted path is a str, not {type(name).__name__}")
        if spec is False or spec is None:
            continue
        found = _spec(name, spec)
        leaf = schema.leaf(name)
        carries_filter(leaf)
        if leaf.index in specs:
            # One of the two would win unseen, though the other may be the one that hides its size.
            raise UsageError(
                "two filters for the same column", column=leaf.name, hint=f"leave out {name} or the other name"
            )
        specs[leaf.index] = (leaf, found)
    return [specs[index] for index in sorted(specs)]


def _spec(column: str, wanted: Any) -> FilterSpec:
    if isinstance(wanted, FilterSpec):
        return wanted
    if wanted is not True and not isinstance(wanted, Mapping):
        raise UsageError(
            f"a FilterSpec, a dict of its options, or True, not {type(wanted).__name__}",
            column=column,
            hint=f"FilterSpec with any of {', '.join(one.name for one in fields(FilterSpec))}",
        )
    try:
        return FilterSpec(**({} if wanted is True else {str(name): value for name, value in wanted.items()}))
    except UsageError as error:
        raise error.at(column=column) from None


def _requests(wanted: FilterRequest) -> list[tuple[Any, Any]]:
    if isinstance(wanted, Mapping):
        return list(wanted.items())
    if isinstance(wanted, Collection) and not isinstance(wanted, str | bytes):
        return [(name, True) for name in wanted]
    hint = f"[{wanted!r}]" if isinstance(wanted, str) else "['column'], or {'column': FilterSpec(...)}"
    raise UsageError(f"bloom_filters= takes a dict or a list of columns, not {type(wanted).__name__}", hint=hint)
