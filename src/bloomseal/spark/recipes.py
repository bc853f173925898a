"""What an application is started with where nobody writes Python: Spark SQL, Scala, JDBC."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from ..core.errors import UsageError
from ..policy import Policy
from ..storage.atomic import storage_errors
from ..storage.folder import Folder
from ..storage.replacement import replace
from .given import absolute_kms, kms_of
from .guarding import COMMITS, TIMESTAMPS, guard_of, parquet_settings, settings_file
from .jar import CATALOG_WATCH

_SECONDS: Final = {"timeout": 30, "lifetime": 600}
_SUBMIT: Final = "spark-submit \\\n{flags}  --class YOUR.CLASS your-application.jar"
_NOT_RUN: Final = "# Bloomseal's tests do not run this one: try it on a copy first.\n"
_COPY: Final = "# Copy {names} to {place}/ first.\n"
RECIPES: Final[Mapping[str, tuple[str, str]]] = {
    "spark-sql": ("", "spark-sql \\\n{flags}"),
    "spark-submit": ("", _SUBMIT),
    "thrift": (
        "",
        "# What sbin/start-thriftserver.sh does; it takes these settings too.\n"
        "spark-submit \\\n{flags}"
        # The threads of its sessions don't know the jars of spark.jars.
        "  --driver-class-path {jar} \\\n"
        "  --class org.apache.spark.sql.hive.thriftserver.HiveThriftServer2 spark-internal",
    ),
    "kubernetes": (
        "",
        _NOT_RUN
        + "# The image needs Bloomseal for {python}; secrets: docs/spark.md.\n"
        + _SUBMIT.replace(
            "{flags}",
            "  --master k8s://https://YOUR-CLUSTER --deploy-mode cluster \\\n"
            "  --conf spark.kubernetes.file.upload.path=s3a://YOUR-BUCKET/uploads \\\n{flags}",
        ),
    ),
    "yarn": (
        "hdfs:///apps/bloomseal",
        # YARN's --files reach the working directories of containers only, where the bridge takes nothing from.
        _NOT_RUN + _COPY + _SUBMIT.replace("{flags}", "  --master yarn --deploy-mode cluster \\\n{flags}"),
    ),
    "emr": (
        "s3://YOUR-BUCKET/bloomseal",
        _NOT_RUN + _COPY + "# The cluster's configuration; a bootstrap action installs Bloomseal for {python}.\n{json}",
    ),
    "databricks": (
        "dbfs:/FileStore/bloomseal",
        _NOT_RUN
        + _COPY
        + "# A classic cluster, without Photon, whose readers are others: Spark config. Install Bloomseal as a library,\n"
        "# and the jar as another if spark.jars is ignored.\n{lines}",
    ),
}
"""Where → the folder that all its machines see ("": the one of the jar), and the text, with the settings as flags of
``spark-submit``, as JSON or as lines.
"""


def recipe(where: str, jar: str | os.PathLike[str], policy: Policy, tables: Mapping[str, str], python: str) -> str:
    """How to start an application whose sessions begin with what `bloomseal.spark.enable` gives to one. Writes the file
    of its settings, which holds no secret, beside the jar.

    Args:
        where: one of `RECIPES`.
        tables: table of the policy → its folder, a path or a URI. Default: the ``root`` that the policy gives it.
        python: the interpreter that runs the key helper on each machine.

    Raises:
        UsageError: no table has a folder: what is written elsewhere takes its options from Python.
        PolicyError: the policy has no such table.
    """
    roots = {name: table.root for name, table in policy.tables.items() if table.root is not None}
    if not (tables := {**roots, **tables}):
        raise UsageError("no table has a folder", hint="--table NAME=FOLDER, or root in the policy")
    folders = {policy.for_table(name).name: _absolute(folder) for name, folder in tables.items()}
    given = {
        "kms": absolute_kms(kms_of(policy)),
        "python": python,
        **_SECONDS,
        **guard_of(policy, folders, False, (), ()),
    }
    name, content, digest = settings_file(given)
    path = Path(jar).absolute()
    with storage_errors("write the settings", str(path.parent)), Folder.of(path)[0] as folder:
        replace(folder, name, content)
    place, text = RECIPES[where]
    settings = {
        **{key: f"{place or path.parent}/{one}" for key, one in (("spark.jars", path.name), ("spark.files", name))},
        **{f"spark.hadoop.{key}": value for key, value in parquet_settings(digest, _SECONDS["lifetime"]).items()},
        **COMMITS,
        **TIMESTAMPS,
        "spark.sql.extensions": CATALOG_WATCH,  # with others: separated by commas
    }
    return text.format(
        flags="".join(f"  --conf {shlex.quote(f'{key}={value}')} \\\n" for key, value in settings.items()),
        lines="\n".join(f"{key} {value}" for key, value in settings.items()),
        json=json.dumps([{"Classification": "spark-defaults", "Properties": settings}], indent=2),
        jar=shlex.quote(str(path)),
        names=f"{path.name} and {name}",
        place=place,
        python=python,
    )


def _absolute(folder: str) -> str:
    return folder if len(urlsplit(folder).scheme) > 1 else str(Path(folder).absolute())
