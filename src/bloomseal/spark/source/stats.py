"""What reads did, counted on the executors and added up on the driver."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final, cast

from pyspark.accumulators import AccumulatorParam

from ...read.plan import ReadStats

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.accumulators import Accumulator
    from pyspark.sql import SparkSession

    from ...keytools.kms.counters import Counters

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
        microseconds: what tasks took to open, ask and decode files; tasks at the same time count each.
        kms_calls: keys that the KMS was asked for.
        kms_denials, kms_failures: calls that it refused for good, and that failed otherwise, of tasks that ended well
            all the same: Spark drops what a failed task has counted.
        kms_microseconds: what its answers took.
    """

    files: int = 0
    files_pruned_by_partition: int = 0
    files_pruned_by_schema: int = 0
    bytes_decoded: int = 0
    bytes_pruned: int = 0
    microseconds: int = 0
    kms_calls: int = 0
    kms_denials: int = 0
    kms_failures: int = 0
    kms_microseconds: int = 0

    def timed(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """These batches, and what making them takes; not what is done with them."""
        while True:
            start = time.perf_counter_ns()
            try:
                batch = next(batches, None)
            finally:
                self.microseconds += (time.perf_counter_ns() - start) // 1000
            if batch is None:
                return
            yield batch

    def add_kms(self, before: Counters, after: Counters) -> None:
        """What the KMS was asked between the two."""
        self.kms_calls += after.unwraps - before.unwraps
        self.kms_denials += after.denials - before.denials
        self.kms_failures += after.failures - before.failures
        self.kms_microseconds += round((after.seconds - before.seconds) * 1e6)

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
    """Adds up."""

    def zero(self, value: Metrics) -> Metrics:  # noqa: ARG002
        return {}

    def addInPlace(self, value1: Metrics, value2: Metrics) -> Metrics:  # noqa: N802
        for name, stats in value2.items():
            value1[name] = value1.get(name, SourceStats()) + stats
        return value1


def new_metrics(spark: SparkSession) -> Accumulator[Metrics]:
    """An accumulator for a session's reads."""
    return cast("Accumulator[Metrics]", spark.sparkContext.accumulator({}, _Merged()))
