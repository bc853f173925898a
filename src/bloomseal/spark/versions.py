"""Which Spark versions this works with, and where they differ: the one place that asks which one runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ..core.errors import UnsupportedError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

OLDEST: Final = (4, 0)


def check_version() -> None:
    """Refuse a Spark that is too old, before anything is written with it.

    Raises:
        UnsupportedError: PySpark before 4.0.
    """
    import pyspark

    if _version(pyspark.__version__) < OLDEST:
        least = ".".join(map(str, OLDEST))
        raise UnsupportedError(
            f"PySpark {pyspark.__version__} is too old: it lacks what Bloomseal needs",
            hint=f"pip install 'pyspark>={least},<5', and a cluster of that version",
        )


def arrow_type_of(kind: DataType) -> pa.DataType:
    """The Arrow type in which Spark takes a column of this type, moments in UTC."""
    from pyspark.sql.pandas.types import to_arrow_type

    return to_arrow_type(kind, **_in_utc())


def pushes_filters() -> bool:
    """Whether this Spark tells a data source in Python what a query filters by. Since 4.1."""
    from pyspark.sql import datasource

    return hasattr(datasource, "Filter")


def file_sink_keeps_options() -> bool:
    """Whether the options of a stream reach Spark's file sink. Since 4.2; before, nothing names a key to its writer."""
    import pyspark

    return _version(pyspark.__version__) >= (4, 2)


def forget_static_source(spark: SparkSession, name: str) -> None:
    """Let a data source be registered under a name by which Spark has found one in an installed package.

    Spark 4.0 refuses that; later versions let the session's own win. Sessions of the application that are made
    afterwards then find the name only once they have registered it themselves.
    """
    import pyspark

    if _version(pyspark.__version__) >= (4, 1):
        return
    manager: Any = spark._jsparkSession.sessionState().dataSourceManager()
    manager.dataSourceExists(name)  # looks for installed ones, once
    kept = _field(manager, "staticDataSourceBuilders")
    without = kept.get(manager).removed(name)
    kept.set(manager, without)
    # The same for sessions to come: a clone of this one, as streams make them, would find the installed one again.
    companion = manager.getClass().getClassLoader().loadClass(manager.getClass().getName() + "$")
    shared = _field(companion, "MODULE$", of_class=True).get(None)
    some = spark.sparkContext._jvm.scala.Some(without)  # type: ignore[union-attr]
    _field(companion, "dataSourceBuilders", of_class=True).set(shared, some)


def _field(owner: Any, name: str, *, of_class: bool = False) -> Any:
    found = (owner if of_class else owner.getClass()).getDeclaredField(name)
    found.setAccessible(True)
    return found


def _in_utc() -> dict[str, Any]:
    import pyspark

    return {"timezone": "UTC"} if _version(pyspark.__version__) >= (4, 2) else {"timestamp_utc": True}


def _version(text: str) -> tuple[int, int]:
    major, minor = text.split(".")[:2]
    return int(major), int(minor)
