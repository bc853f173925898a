"""Where Spark's own writer must not leave plaintext, and what it must not remove too early: both are for the JVM to
keep (`java/Guard.java`, `java/LateDeletes.java`), whose settings are made here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from ..core.errors import UsageError
from ..policy import Policy
from .jar import BATCH_COMMITS, STREAM_COMMITS
from .listing import qualified
from .versions import file_sink_keeps_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LEFT_OUT", "Places", "commit_protocols", "deletes_late", "guard_of", "watch_catalog"]

Places = Iterable[str | os.PathLike[str]]

_BATCH: Final = "spark.sql.sources.commitProtocolClass"
_STREAM: Final = "spark.sql.streaming.commitProtocolClass"
_OURS: Final = {_BATCH: BATCH_COMMITS, _STREAM: STREAM_COMMITS}
_SPARKS: Final = {
    _BATCH: "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol",
    _STREAM: "org.apache.spark.sql.execution.streaming.ManifestFileCommitProtocol",
}

LEFT_OUT: Final = {
    "spark.sql.files.ignoreCorruptFiles": "Spark would leave out sealed files that don't open; they are refused",
    "spark.sql.files.ignoreMissingFiles": "rows of files that somebody removes during a query are left out silently",
}
"""Settings by which a read of Spark's own has fewer rows, and no error."""


def guard_of(
    spark: SparkSession, policy: Policy | None, refuse_plaintext: bool | Places, allow_plaintext: Places
) -> dict[str, Any]:
    """What the bridge is told of places, for `enable`'s arguments of these names.

    Raises:
        UsageError: a single path in the place of several.
    """
    if isinstance(allow_plaintext, str) or isinstance(refuse_plaintext, str):
        raise UsageError("places are given as a list of paths", hint='refuse_plaintext=["/lake/people"]')
    everywhere = refuse_plaintext if isinstance(refuse_plaintext, bool) else False
    named = () if isinstance(refuse_plaintext, bool) else refuse_plaintext
    roots = () if policy is None else (one.root for one in policy.tables.values() if one.root is not None)
    return {
        "everywhere": everywhere,
        "sealed": sorted({qualified(spark, place) for place in (*named, *roots)}),
        "plain": sorted({qualified(spark, place) for place in allow_plaintext}),
        "streams": file_sink_keeps_options(),
    }


def commit_protocols(spark: SparkSession) -> dict[str, str]:
    """Ours in the place of Spark's own. One that the application has chosen stays: object stores have their own."""
    return {
        name: ours for name, ours in _OURS.items() if str(spark.conf.get(name, _SPARKS[name])) in (_SPARKS[name], ours)
    }


def deletes_late(spark: SparkSession) -> bool:
    """Does an overwrite of this session keep the old files until the new ones are there?"""
    return str(spark.conf.get(_BATCH, "")) == BATCH_COMMITS


def watch_catalog(spark: SparkSession, watch: Any) -> None:
    """Have the application's catalog tell the bridge's class `watch` before it changes a table; once."""
    catalog = spark._jsparkSession.sharedState().externalCatalog()
    if any(str(one.getClass().getName()) == str(watch.getName()) for one in catalog.listeners()):
        return
    context: Any = spark.sparkContext
    arguments = context._gateway.new_array(context._jvm.Object, 2)
    arguments[0], arguments[1] = catalog, spark._jsparkSession.sessionState().newHadoopConf()
    catalog.addListener(watch.getConstructors()[0].newInstance(arguments))
