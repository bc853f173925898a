"""The driver of the pipeline of `examples/` on a cluster: `cluster_pipeline_job.py MASTER FOLDER SECRET`."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

PIPELINE = Path(__file__).parents[2] / "examples" / "pipeline" / "pipeline.py"


def main(master: str, folder: Path, secret: str) -> None:
    # As an installation of Spark has it; the pipeline's own code says nothing of the cluster but its address.
    (folder / "conf").mkdir(mode=0o700)
    settings = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": secret,
        "spark.network.crypto.enabled": "true",
        "spark.driver.memory": "700m",
        "spark.executor.memory": "700m",
        "spark.local.dir": str(folder / "driver local"),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": str(folder / "events"),
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.adaptive.enabled": "false",
    }
    lines = "".join(f"{name} {value}\n" for name, value in settings.items())
    (folder / "conf" / "spark-defaults.conf").write_text(lines)
    os.environ["SPARK_CONF_DIR"] = str(folder / "conf")
    arguments = ["--master", master, "--kms", f"keyring://{folder}/keys.json", "--to", str(folder / "people")]
    sys.argv = [str(PIPELINE), "all", *arguments, "--evidence", str(folder / "audit.json")]
    runpy.run_path(str(PIPELINE), run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
