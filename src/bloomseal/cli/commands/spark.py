"""``bloomseal spark``: what a Spark cluster can have installed ahead of time."""

from __future__ import annotations

import click

from ..render import print_json, remark
from ..state import CommandState, common_options

__all__ = ["spark"]


@click.group()
def spark() -> None:
    """Help for clusters; sessions do the rest by themselves (bloomseal.spark.enable).

    \b
    Example:
      bloomseal spark jar key-bridge.jar
    """


@spark.command()
@click.argument("path", metavar="PATH")
@common_options()
def jar(path: str) -> None:
    """Compile the key bridge and write it to PATH, for spark.jars or Spark's folder of jars. Needs PySpark and Java.

    \b
    Example:
      bloomseal spark jar key-bridge.jar
    """
    from ...spark.jar import build_jar

    build_jar(path)
    if CommandState.current().json:
        print_json({"jar": path})
    else:
        remark(f"wrote {path}")
