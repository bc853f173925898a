"""What a query would read, without reading it: filters are asked on the executors, no row is decoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..core.errors import BloomsealError, KeyAccessError, UsageError
from ..core.keys.access import KmsAccessError
from ..core.parquet.schema import Leaf
from ..core.parquet.walk import Protection
from ..read.file import SealedFile
from .guarding import LEFT_OUT
from .reading import df_stats
from .request import Paths, PolicyChoice, Request, with_indexes

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from .source.stats import SourceStats


def explain(
    spark: SparkSession | DataFrame,
    path: Paths | None = None,
    where: str | Column | None = None,
    *,
    columns: Sequence[str] | None = None,
    policy: PolicyChoice = None,
    table: str | None = None,
    options: Mapping[str, str] | None = None,
    use_index: str = "auto",
    trust: str = "auto",
) -> str:
    """What `bloomseal.spark.read` with these arguments would open, and which keys it would need. It runs a job.

    Sealed indexes are asked first. Of the files that they leave every footer is opened, and every filter that the
    condition asks; no page is. Of a frame instead of a session and a
    path it is told how Spark's own Parquet reader gets at its rows: that runs the query.

    Args:
        spark: the session; or a frame over ``spark.read.parquet`` or a catalog's table, alone.
        path, where, columns, policy, table, options, use_index, trust: as `bloomseal.spark.read`. No value of `where`
            is repeated.

    Raises:
        UsageError: a frame without such a scan, or a session without a path. And as `read`.
    """
    if hasattr(spark, "sparkSession"):
        return "\n".join(_native(spark))
    if path is None:
        raise UsageError("no table is named", hint="explain(spark, path, where), or explain(frame)")
    dry = {**with_indexes(options, use_index, trust), "dry_run": "true"}
    request = Request(spark, path, policy, table, dry)
    frame = request.rows(request.needed(columns, where), where)
    frame.count()
    return "\n".join([*_counts(df_stats(frame)), *_keys(request)])


def _native(frame: Any) -> list[str]:
    spark, adaptive = frame.sparkSession, "spark.sql.adaptive.enabled"
    before = spark.conf.get(adaptive)
    # An adaptive plan shows its scans only while it runs.
    spark.conf.set(adaptive, "false")
    try:
        plan = frame.select("*")._jdf.queryExecution().executedPlan()
        leaves = plan.collectLeaves()
        scans = [
            one for one in map(leaves.apply, range(leaves.size())) if str(one.nodeName()).startswith("Scan parquet")
        ]
        if not scans:
            raise UsageError(
                "the frame reads no Parquet files by Spark's own reader", hint="explain(spark, path, where)"
            )
        plan.execute().count()
    finally:
        spark.conf.set(adaptive, before)
    told = [
        f"left out:    {what} ({name})" for name, what in LEFT_OUT.items() if spark.conf.get(name, "false") == "true"
    ]
    for scan in scans:
        location, asked = scan.relation().location(), scan.dataFilters()
        names = {str(name) for i in range(asked.size()) for name in _references(asked.apply(i))}
        files = len(location.inputFiles())
        figures = {name: int(scan.metrics().apply(name).value()) for name in ("numFiles", "filesSize", "numOutputRows")}
        told += [
            f"files:       {files:,}, {files - figures['numFiles']:,} ruled out by their folders",
            f"bytes:       {figures['filesSize']:,} in the files to read, of which only the columns asked for are read",
            f"rows:        {figures['numOutputRows']:,} in the row groups that statistics and filters left",
            f"asked of:    {', '.join(sorted(names)) or 'no column: nothing is ruled out within a file'}",
        ]
    return told


def _references(expression: Any) -> list[str]:
    found = expression.references().iterator()
    names = []
    while found.hasNext():
        names.append(str(found.next().name()))
    return names


def _counts(stats: SourceStats) -> list[str]:
    total = stats.bytes_decoded + stats.bytes_pruned
    share = f" of {total:,} ({stats.bytes_decoded / total:.0%})" if total else ""
    files = stats.files + stats.files_pruned_by_partition + stats.files_unopened
    asked = f"{stats.files_unopened:,} by an index, " if stats.files_unopened else ""
    told = f"{stats.pruned_by_index:,} by an index, " if stats.pruned_by_index else ""
    left = f", {stats.files_not_covered:,} that no index covers" if stats.files_not_covered else ""
    return [
        f"files:       {files:,}, {stats.files_pruned_by_partition:,} ruled out by their folders, {asked}"
        f"{stats.files_pruned_by_schema:,} by what they lack{left}",
        f"row groups:  {stats.row_groups:,}, {told}{stats.pruned_by_statistics:,} ruled out by statistics, "
        f"{stats.pruned_by_filter:,} by filters, {stats.decoded:,} to read",
        f"bytes:       {stats.bytes_decoded:,}{share} in the row groups to read, before compression, all columns",
        f"KMS calls:   {stats.kms_calls:,}",
    ]


def _keys(request: Request) -> list[str]:
    """The columns of the first file, and whether their keys can be had here, on the driver."""
    first = request.tree.files[0]
    with request.settings.open(first) as file:
        if not file.num_row_groups:
            return []
        told = [(leaf.name, _state(file, leaf)) for leaf in file.leaves.leaves]
    width = max((len(name) for name, _ in told), default=0)
    return [f"columns of {first.name}:", *(f"  {name:<{width}}  {state}" for name, state in told)]


def _state(file: SealedFile, leaf: Leaf) -> str:
    if (protection := file.protection(leaf)) is Protection.PLAINTEXT:
        return "plaintext"
    under = "footer key" if protection is Protection.FOOTER_KEY else "own key"
    try:
        file.need_key(leaf)
        return f"{under}, at hand{', filter' if file.has_filter(leaf, 0) else ''}"
    except KeyAccessError as error:
        problem = f"{error.problem}: " if isinstance(error, KmsAccessError) else ""
        return f"{under}, not to be had ({problem}{error.what})"
    except BloomsealError as error:
        return f"{under}, {error.what}"
