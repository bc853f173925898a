"""A table's policy as the options of Spark's Parquet writer."""

from __future__ import annotations

import base64
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from ..core.columns import covers, in_tables, nearest_entry
from ..core.errors import UnsupportedError, UsageError
from ..core.parquet.expectation import Expectation
from ..policy import ColumnPolicy, Policy, TablePolicy, table_policy
from ..table.hive import check_partitioning
from .given import CRYPTO_FACTORY, refuse_secrets
from .jar import KMS_CLIENT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType, StructType

    from ..sbbf import FilterSpec

_ADAPTIVE_BYTES: Final = 4 * 1024 * 1024
_ADAPTIVE_SIZES: Final = 8
"""Sizes that parquet-java tries where the number of distinct values is not known: 4 MiB (some 3 million values at 1 %)
down to 32 KiB. Each costs an insert per value.
"""


def options(
    policy: Policy | TablePolicy | str | os.PathLike[str], table: str | None = None, *, schema: StructType | None = None
) -> dict[str, str]:
    """What ``df.write.options(**…)`` needs for one table: keys, filters and their sizes. It names keys and holds none.

    Args:
        policy: a policy or its file.
        table: the table's name; may be left out where the policy has one table.
        schema: the frame's schema, against which names are checked, and by which a policy for a group reaches the
            columns below it. Without it each name is taken for a leaf's.

    Raises:
        UsageError: a column of the policy is not in the schema, or has a filter that Spark can't write.
        UnsupportedError: something that Spark's own writer can't do, such as a filter on a column whose name has a dot.
        PolicyError: no such table, or an unusable policy.
    """
    chosen = table_policy(policy, table)
    found = {
        "parquet.crypto.factory.class": CRYPTO_FACTORY,
        "parquet.encryption.kms.client.class": KMS_CLIENT,
        "parquet.encryption.algorithm": str(chosen.algorithm),
        "parquet.encryption.plaintext.footer": _flag(chosen.plaintext_footer),
        "parquet.encryption.data.key.length.bits": str(chosen.key_bits),
        "parquet.encryption.kek.length.bits": str(chosen.kek_bits),
        "parquet.encryption.double.wrapping": _flag(chosen.double_wrapping),
        "parquet.encryption.key.material.store.internally": _flag(chosen.internal),
        # Data pages of version 2 leave nulls and list structure in clear.
        "parquet.writer.version": "PARQUET_1_0",
        # A summary file would repeat all footers, in clear.
        "parquet.summary.metadata.level": "NONE",
    }
    # The bridge seals nothing in the place of another table, and makes the prefix of what `enable` was given.
    found["bloomseal.table"] = chosen.name
    found["bloomseal.bound"] = _flag(chosen.aad_prefix is not None or bool(chosen.signers))
    columns = _columns(chosen, schema)
    footer_key = _spelt(chosen.footer_key, chosen)
    if chosen.uniform:
        found["parquet.encryption.uniform.key"] = footer_key
    else:
        found["parquet.encryption.footer.key"] = footer_key
        found["parquet.encryption.column.keys"] = _column_keys(columns, chosen)
        found["parquet.encryption.complete.columns"] = _flag(chosen.complete)
    largest = 0
    for name, column in columns.items():
        if column.filter is not None:
            if schema is not None:
                _check_filter_name(name, schema)
            found.update(_filter(name, column.filter))
            largest = max(largest, _largest(name, column.filter))
    if largest:
        found["parquet.bloom.filter.max.bytes"] = str(largest)
        found["parquet.bloom.filter.adaptive.enabled"] = "true"  # only where no number of distinct values is given
    return found


def promised(table: TablePolicy, schema: StructType | None) -> dict[str, FilterSpec]:
    """Leaf column → the filter that the policy promises for it."""
    return {name: one.filter for name, one in _columns(table, schema).items() if one.filter is not None}


def leaves(schema: StructType) -> dict[str, DataType]:
    """Dotted leaf path, as Spark names it in Parquet files → type."""
    from pyspark.sql.types import ArrayType, MapType, StructType, UserDefinedType

    def below(path: str, kind: DataType) -> Iterator[tuple[str, DataType]]:
        if isinstance(kind, UserDefinedType):
            kind = kind.sqlType()
        if isinstance(kind, StructType):
            for field in kind.fields:
                yield from below(f"{path}.{field.name}" if path else field.name, field.dataType)
        elif isinstance(kind, ArrayType):
            yield from below(f"{path}.list.element", kind.elementType)
        elif isinstance(kind, MapType):
            yield from below(f"{path}.key_value.key", kind.keyType)
            yield from below(f"{path}.key_value.value", kind.valueType)
        else:
            yield path, kind

    return dict(below("", schema))


def _columns(table: TablePolicy, schema: StructType | None) -> dict[str, ColumnPolicy]:
    """Leaf column → what the policy says of it; a group's policy reaches the leaves below it that have none."""
    if schema is None:
        return {in_tables(name): column for name, column in table.columns.items()}
    known = leaves(schema)
    for name in table.columns:
        if not any(covers(name, leaf) for leaf in known):
            # Silently, the column that it was meant for would be written in plaintext.
            raise UsageError(
                "the policy's column is not in the data", column=name, hint=f"the columns are {', '.join(known)}"
            )
    entries = {leaf: nearest_entry(table.columns, leaf) for leaf in known}
    found = {leaf: entry for leaf, entry in entries.items() if entry is not None}
    for name, column in found.items():
        if column.filter is not None:
            _check_filter_type(name, known[name])
    return found


def _check_filter_type(name: str, kind: Any) -> None:
    if kind.typeName() in ("boolean", "void", "variant", "interval"):
        raise UsageError(f"Spark writes no usable filter for {kind.simpleString()}", column=name)


def _check_filter_name(name: str, schema: StructType) -> None:
    """Refuse names for which parquet-java would leave the filter out and say nothing."""
    known = leaves(schema)
    column = next(field.name for field in schema.fields if name == field.name or name.startswith(field.name + "."))
    if "." in column or sum(one.lower() == name.lower() for one in known) > 1:
        raise UnsupportedError(
            "Spark writes no filter for a column whose name has a dot, or differs from another one in case only",
            column=name,
            hint="another name; or bloomseal.write_dataset",
        )


def _column_keys(columns: dict[str, ColumnPolicy], table: TablePolicy) -> str:
    by_key: dict[str, list[str]] = {}
    for name, column in columns.items():
        if column.key is not None:
            by_key.setdefault(_spelt(column.key, table), []).append(_spelt(name, table))
    return ";".join(f"{key}:{','.join(names)}" for key, names in by_key.items())


def _spelt(name: str, table: TablePolicy) -> str:
    """A key's or a column's name, for an option whose marks it may hold; the bridge has the name itself written."""
    if not any(mark in name for mark in ":;,") and name == name.strip():
        return name
    if not table.internal:
        raise UnsupportedError(
            f"Spark's own writer can't put {name!r} into key material beside the file: it holds one of : ; , or a space",
            hint='another name, such as an alias; or material = "internal"',
        )
    return "bloomseal.name." + base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")


def _filter(name: str, spec: FilterSpec) -> Iterator[tuple[str, str]]:
    from ..sbbf.sizing import bits_per_value

    bits = bits_per_value(spec.fpp)
    yield f"parquet.bloom.filter.enabled#{name}", "true"
    # parquet-java leaves the filter out where all pages are dictionary-encoded, and a promised filter is a promise.
    yield f"parquet.enable.dictionary#{name}", "false"
    # Its closed form takes this probability for what takes as many bits by the exact sum, so that the files keep to
    # `fpp`.
    yield f"parquet.bloom.filter.fpp#{name}", repr((1 - math.exp(-8 / bits)) ** 8)
    if (size := _fixed_size(name, spec)) is not None:
        # It rounds up to a power of two; three quarters of one lie safely between two of them.
        yield f"parquet.bloom.filter.expected.ndv#{name}", str(max(1, int(0.75 * 8 * size / bits)))
    else:
        yield f"parquet.bloom.filter.candidates.number#{name}", str(_ADAPTIVE_SIZES)


def _fixed_size(name: str, spec: FilterSpec) -> int | None:
    """Bytes that every filter of the column gets; None where they follow from the data."""
    size = spec._size(0) if spec.ndv is not None or spec.num_bytes is not None else None
    if size is not None and size & (size - 1):
        raise UnsupportedError(f"Spark writes no filters of {size} bytes", column=name, hint="a power of two")
    return size


def _largest(name: str, spec: FilterSpec) -> int:
    size = _fixed_size(name, spec)
    return min(_ADAPTIVE_BYTES, spec.max_bytes) if size is None else size


def _flag(value: bool) -> str:
    return "true" if value else "false"


def writer_options(
    spark: SparkSession,
    table: TablePolicy,
    schema: StructType,
    partition_by: Sequence[str],
    extra: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """What Spark's own writer is told of a table with this schema, so that it keeps to the policy.

    Args:
        extra: the user's own options, which are not among them.

    Raises:
        UsageError: a policy, the session or `extra` that would have Spark write something else; a secret in `extra`.
        PolicyError: a column whose name differs from a keyed one's in case or Unicode form alone.
        UnsupportedError: as `options`.
    """
    check_partitioning(schema.names, table, partition_by)
    refuse_secrets(extra)
    stored = stored_columns(schema, partition_by)
    _check_native(spark, stored)
    settings = options(table, schema=stored)
    lowered = {name.lower() for name in settings}
    if clash := sorted(name for name in extra if name.lower() in lowered or "encryption" in name.lower()):
        raise UsageError(f"{', '.join(clash)} would contradict the policy", hint="change the policy")
    _check_lookalikes(table, stored)
    return settings


def stored_columns(schema: StructType, partition_by: Sequence[str]) -> StructType:
    """The columns that files have, without those that are folders."""
    return type(schema)([field for field in schema.fields if field.name not in partition_by])


def _check_native(spark: SparkSession, schema: StructType) -> None:
    """What the session's configuration would do to a frame that Spark itself writes."""
    from pyspark.sql.types import DateType, TimestampType

    known = leaves(schema)
    moments = [name for name, kind in known.items() if isinstance(kind, TimestampType)]
    dated = [name for name, kind in known.items() if isinstance(kind, DateType | TimestampType)]
    if moments and str(spark.conf.get("spark.sql.parquet.outputTimestampType")).upper() == "INT96":
        raise UsageError(
            "timestamps would be written as INT96, which no reader can prune by",
            column=moments[0],
            hint='spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")',
        )
    for setting in ("spark.sql.parquet.datetimeRebaseModeInWrite", "spark.sql.parquet.int96RebaseModeInWrite"):
        if str(spark.conf.get(setting)).upper() == "LEGACY" and dated:
            raise UsageError(
                "dates would be written by an older calendar, and read as others by most readers",
                column=dated[0],
                hint=f'spark.conf.set("{setting}", "CORRECTED")',
            )
    nested = any(".list.element" in name or ".key_value." in name for name in known)
    if nested and str(spark.conf.get("spark.sql.parquet.writeLegacyFormat")).lower() == "true":
        raise UsageError(
            "spark.sql.parquet.writeLegacyFormat gives the columns inside lists and maps other names",
            hint='spark.conf.set("spark.sql.parquet.writeLegacyFormat", "false")',
        )


def _check_lookalikes(table: TablePolicy, stored: StructType) -> None:
    """A policy knows columns by their exact names: a frame's `SSN` beside `ssn` may hold the same, and would be in
    clear.
    """
    keyed = frozenset(name for name, column in table.columns.items() if column.key is not None)
    expected = Expectation(encrypted_columns=keyed)
    for name in leaves(stored):
        expected.name(name)
