"""What reads did, counted on the executors and added up on the driver."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final, cast

from pyspark.accumulators import AccumulatorParam

from ...read.plan import ReadStats

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator
    from pyspark.sql import SparkSession

__all__ = ["READ_ID", "Metrics", "SourceStats", "new_metrics"]

READ_ID: Final = "read_id"
"""The option that names a read, under which it is counted."""


@dataclass(slots=True)
class SourceStats(ReadStats):
    """What reads through the data source did, as far as their tasks have ended: `bloomseal.ReadStats`, and more.

    Attributes:
        files: files opened.
        files_pruned_by_partition: files that their folders' names ruled out, and that were never opened.
        files_pruned_by_schema: files closed after their footer, since they lack a column that must have a value.
        bytes_decoded: bytes before compression of the row groups decoded, all columns; a lookup reads single pages of
            them.
        bytes_pruned: the same of the row groups ruled out, and the size of the files that were never opened.
        kms_calls: keys that the KMS was asked for.
    """

    files: int = 0
    files_pruned_by_partition: int = 0
    files_pruned_by_schema: int = 0
    bytes_decoded: int = 0
    bytes_pruned: int = 0
    kms_calls: int = 0

    def __add__(self, other: SourceStats) -> SourceStats:
        both = replace(self)
        both.add(other)
        return both

    def to_dict(self) -> dict[str, int]:
        """As plain data."""
        return asdict(self)

    def to_prometheus(self, **labels: str) -> str:
        """The counts in Prometheus's text format, for its node exporter's text files or a push gateway.

        Args:
            labels: of each sample, such as ``table="people"``.
        """
        told = ",".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in sorted(labels.items()))
        lines = []
        for name, count in self.to_dict().items():
            metric = f"bloomseal_read_{name}_total"
            lines += [f"# TYPE {metric} counter", f"{metric}{{{told}}} {count}" if told else f"{metric} {count}"]
        return "\n".join([*lines, ""])


Metrics = dict[str, SourceStats]
"""What each read did, by the name that it was given."""


class _Merged(AccumulatorParam[Metrics]):
    def zero(self, value: Metrics) -> Metrics:  # noqa: ARG002
        return {}

    def addInPlace(self, value1: Metrics, value2: Metrics) -> Metrics:  # noqa: N802
        for name, stats in value2.items():
            value1[name] = value1.get(name, SourceStats()) + stats
        return value1


def new_metrics(spark: SparkSession) -> Accumulator[Metrics]:
    """An accumulator for a session's reads."""
    return cast("Accumulator[Metrics]", spark.sparkContext.accumulator({}, _Merged()))
