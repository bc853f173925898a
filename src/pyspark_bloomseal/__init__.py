"""Where Spark finds ``format("bloomseal")`` by itself: it looks for modules of this name (`pyspark.sql.datasource`).

It imports all such modules of all packages, and one that fails takes the others with it.
"""

import contextlib

with contextlib.suppress(Exception):
    from bloomseal.spark.source.source import BloomsealSource as DefaultSource

__all__ = ["DefaultSource"]
