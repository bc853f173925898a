"""``bloomseal spark``: what a Spark cluster can have installed ahead of time."""

from __future__ import annotations

import sys
from typing import Final

import click

from ...core.errors import UsageError
from ..command import PATH, CommandGroup, CommandState
from ..render import print_json, remark

_RECIPES: Final = ("spark-sql", "spark-submit", "thrift", "kubernetes", "yarn", "emr", "databricks")


@click.group(cls=CommandGroup)
def spark() -> None:
    """Help for clusters; sessions do the rest by themselves (bloomseal.spark.enable).

    \b
    Examples:
      bloomseal spark jar key-bridge.jar
      bloomseal spark jar key-bridge.jar --recipe spark-sql --policy policy.toml --table people=/lake/people
    """


@spark.command()
@click.argument("path", metavar="PATH")
@click.option(
    "--recipe", type=click.Choice(_RECIPES), help="Print how to start an application there, without a line of Python."
)
@click.option(
    "--policy", type=PATH, metavar="FILE", envvar="BLOOMSEAL_POLICY",
    help="The policy, for --recipe (default: $BLOOMSEAL_POLICY).",
)  # fmt: skip
@click.option("--kms", metavar="URI", help="The KMS (default: the policy's).")
@click.option(
    "--table",
    "tables",
    multiple=True,
    metavar="NAME=FOLDER",
    help="The folder of a table of the policy (default: its root there); repeatable.",
)
@click.option(
    "--python",
    default=sys.executable,
    metavar="PATH",
    help="Python with Bloomseal on each machine (default: this one).",
)
def jar(
    path: str, recipe: str | None, policy: str | None, kms: str | None, tables: tuple[str, ...], python: str
) -> None:
    """Compile the key bridge and write it to PATH, for spark.jars or Spark's folder of jars. Needs PySpark and Java.

    With --recipe also the file of the settings, beside it. It holds no secret.

    \b
    Examples:
      bloomseal spark jar key-bridge.jar
      bloomseal spark jar key-bridge.jar --recipe spark-sql --policy policy.toml --table people=/lake/people
    """
    from ...policy import Policy
    from ...spark.jar import build_jar
    from ...spark.recipes import recipe as made

    text = None
    if recipe is not None:
        if policy is None:
            raise UsageError("no policy", hint="--policy FILE, or BLOOMSEAL_POLICY")
        folders = dict(one.partition("=")[::2] for one in tables)
        text = made(recipe, path, Policy.load(policy, kms=kms), folders, python)
    build_jar(path)
    if CommandState.current().json:
        print_json({"jar": path} if text is None else {"jar": path, "recipe": text})
        return
    remark(f"wrote {path}")
    if text is not None:
        click.echo(text.rstrip(" \\\n"))
