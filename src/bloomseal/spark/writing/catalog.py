"""Tables of a catalog: the writer's options kept with the table, so that whoever inserts into it writes sealed
files.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import TYPE_CHECKING, Any, Final

from ...core.errors import PolicyError, UsageError
from ...policy import Policy, TablePolicy
from ...storage.discovery.kinds import NothingThereError
from ..session import chosen_table
from ..settings import writer_options
from .frames import check_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OURS: Final = re.compile(r"parquet\.(encryption|bloom|crypto)\.", re.IGNORECASE)
_CATALOG: Final = "spark_catalog"
_PARTS: Final = 3
_MARKS: Final = re.compile(r"(['\\])")


def protect_table(
    spark: SparkSession,
    name: str,
    *,
    policy: Policy | TablePolicy | str | os.PathLike[str] | None = None,
    table: str | None = None,
    dry_run: bool = False,
) -> dict[str, str]:
    """Store what `bloomseal.spark.options` gives with a Parquet table of the session's catalog: every ``INSERT``, from
    any enabled session, then writes sealed files, and from one that is not enabled it fails.

    Without these options Spark writes plaintext into the table and says nothing.

    Args:
        name: as SQL spells it: ``people``, ``db.people``; made with ``USING parquet``.
        policy, table: see `options`; default: the policy that `enable` was given.
        dry_run: change nothing.

    Returns:
        The options that the table lacked; none where it was protected.

    Raises:
        UsageError: no such table, one of another format, columns of the policy that it lacks.
        UnsupportedError: as `options`.
        PolicyError: files in it are not what the policy says (`check_table`), it is partitioned by a protected column,
            or it has options that the policy knows nothing of.
    """
    chosen = chosen_table(spark, policy, table)
    known = _metadata(spark, name)
    provider = known.provider()
    if not provider.isDefined() or str(provider.get()).lower() != "parquet":
        raise UsageError(f"{name} is no Parquet table of Spark's", hint="CREATE TABLE … USING parquet")
    by = [str(known.partitionColumnNames().apply(i)) for i in range(known.partitionColumnNames().size())]
    wanted = writer_options(spark, chosen, spark.table(name).schema, by)
    has = _stored(known)
    if strange := sorted(key for key in has if _OURS.match(key) and key not in wanted):
        raise PolicyError(
            f"{name} has the option {strange[0]}, which is not the policy's",
            hint="make the table anew: its files stay where they are if it has a LOCATION",
        )
    location = str(known.location().toString())
    with contextlib.suppress(NothingThereError):  # no row yet
        check_table(spark, location, policy=chosen)
    lacking = {key: value for key, value in wanted.items() if has.get(key) != value}
    if lacking and not dry_run:
        pairs = ", ".join(f"{_text(key)} = {_text(value)}" for key, value in sorted(lacking.items()))
        spark.sql(f"ALTER TABLE {name} SET SERDEPROPERTIES ({pairs})")
    return lacking


def _metadata(spark: SparkSession, name: str) -> Any:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    state = spark._jsparkSession.sessionState()
    try:
        parts = state.sqlParser().parseMultipartIdentifier(name)
        names = [str(parts.apply(i)) for i in range(parts.size())]
        # As other catalogs have names of three parts: this one's own is the only one that it knows.
        if len(names) == _PARTS and names[0].lower() == _CATALOG:
            name = ".".join(f"`{part}`" for part in names[1:])
        return state.catalog().getTableMetadata(state.sqlParser().parseTableIdentifier(name))
    except (PySparkException, Py4JError):
        raise UsageError(f"the session's catalog has no table {name}", hint="SHOW TABLES") from None


def _stored(known: Any) -> dict[str, str]:
    pairs = known.storage().properties().iterator()
    found = {}
    while pairs.hasNext():
        pair = pairs.next()
        found[str(pair._1())] = str(pair._2())
    return found


def _text(value: str) -> str:
    escaped = _MARKS.sub(r"\\\1", value)
    return f"'{escaped}'"
