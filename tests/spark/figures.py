"""What Spark's UI shows of a read, looked up where the UI and its REST API look. The cluster's driver script uses it,
too.
"""

from __future__ import annotations

import time
from typing import Any

__all__ = ["shown"]


def shown(spark: Any, title: str, figures: dict[str, int]) -> bool:
    """Does the newest stage of this title end, within a minute, with accumulators that hold just these figures?"""
    context = spark.sparkContext
    store, gateway = context._jsc.sc().statusStore(), context._gateway
    no_doubles, none = gateway.new_array(gateway.jvm.double, 0), gateway.jvm.java.util.ArrayList()
    wanted = {name.replace("_", " "): str(figure) for name, figure in figures.items()}
    end = time.monotonic() + 180
    while time.monotonic() < end:
        stages = store.stageList(none, False, False, no_doubles, none)
        titled = [stage for stage in (stages.apply(i) for i in range(stages.size())) if stage.name() == title]
        newest = max(titled, key=lambda stage: stage.stageId(), default=None)
        if newest is not None and newest.completionTime().isDefined():
            found = [newest.accumulatorUpdates().apply(i) for i in range(newest.accumulatorUpdates().size())]
            if {str(one.name()): str(one.value()) for one in found} == wanted:
                return True
        time.sleep(0.05)
    return False
