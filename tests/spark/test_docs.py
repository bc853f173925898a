"""docs/spark.md and docs/spark-reference.md run: their blocks in their order, in a folder and a process of their own; a
text block is the output before it.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import need_spark

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]
DOCS = Path(__file__).parents[2] / "docs"
TEXT = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("spark.md", "spark-reference.md"))
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
MARK = "===== block ====="


def test_the_pages_run(work: Path, tmp_path: Path) -> None:
    home = need_spark()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("BLOOMSEAL_", "SPARK_"))}
    environment |= {
        "JAVA_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(work / "cache"),  # the bridge that other tests have compiled
    }
    python, expected = [], []
    for match in FENCE.finditer(TEXT):
        info, body = match["info"].strip(), match["body"]
        if info == "sh":
            subprocess.run(["bash", "-euo", "pipefail", "-c", body], cwd=tmp_path, env=environment, check=True)
        elif info == "python":
            python.append(body)
            expected.append("")
        elif info == "text":
            expected[-1] = body
    assert len(python) >= 4
    script = f"\nprint({MARK!r})\n".join(python)
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for want, got in zip(expected, done.stdout.split(f"{MARK}\n"), strict=True):
        if not doctest.OutputChecker().check_output(want, got, doctest.NORMALIZE_WHITESPACE):
            pytest.fail(f"the pages say\n{want}\nand it printed\n{got}")
