"""`bloomseal spark jar --recipe`: what it prints starts Spark for those who write no Python."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import bloomseal as bs
from bloomseal.cli.commands import spark as command
from bloomseal.keytools.signatures.keys import KmsSigner, PublicKey
from bloomseal.policy import Policy
from bloomseal.spark.recipes import RECIPES, recipe

from .cluster import DEADLINE
from .conftest import PASSPHRASE, need_spark
from .ways_to_write import SEALED, found

POLICY = """\
version = 1
kms = "keyring:keys.json"

[tables.people]
footer_key = "footer"
complete = true
aad_prefix = "{table}/{path}/"
store_aad_prefix = false

[tables.people.columns.ssn]
key = "pii"
sensitivity = "restricted"
filter = { fpp = 0.001, ndv = 5000 }
"""
STATEMENTS = """\
CREATE TABLE people (id BIGINT, ssn STRING) USING parquet LOCATION '{0}';
INSERT INTO people SELECT id, md5(cast(id AS STRING)) FROM range(1000);
INSERT OVERWRITE people SELECT id, md5(cast(id AS STRING)) FROM range(2000);
SELECT id FROM people WHERE ssn = '81dc9bdb52d04dc20036dbd8313ed055';
SELECT count(*) FROM parquet.`{0}`;
ANALYZE TABLE people COMPUTE STATISTICS FOR COLUMNS ssn;
"""
SCRIPT = """\
import sys
from pyspark.sql import SparkSession
import bloomseal.spark as bss

spark = SparkSession.builder.getOrCreate()
path = sys.argv[1]
spark.range(100).selectExpr("id", "md5(cast(id AS STRING)) AS ssn").write.parquet(path)
print("rows", spark.read.parquet(path).where("ssn = md5('7')").count())
try:
    spark.range(3).write.mode("overwrite").orc(path)
except Exception as error:
    print("refused", "only Parquet files are sealed" in str(error) or "no key is named" in str(error))
before = spark._jsparkSession.sparkContext().listJars().size()
bss.enable(spark, policy="policy.toml", tables={"people": path})
print("rows", spark.read.parquet(path).count(), "jars", before, spark._jsparkSession.sparkContext().listJars().size())
"""
QUIET = "--conf spark.ui.enabled=false --conf spark.io.encryption.enabled=true --master 'local[2]' --driver-memory 1g"

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BLOOMSEAL_KEYRING_PASSPHRASE", PASSPHRASE)
    ring = bs.Keyring(tmp_path / "keys.json", create=True)
    for name in ("footer", "pii"):
        ring.create(name)
    (tmp_path / "policy.toml").write_text(POLICY)
    return tmp_path


def environment() -> dict[str, str]:
    home = need_spark()
    import pyspark

    made = {name: value for name, value in os.environ.items() if not name.startswith(("BLOOMSEAL_", "SPARK_"))}
    made |= {"JAVA_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    made["BLOOMSEAL_KEYRING_PASSPHRASE"] = PASSPHRASE
    places = (Path(pyspark.__file__).parent / "bin", Path(sys.executable).parent, made["PATH"])
    return made | {"PATH": os.pathsep.join(map(str, places))}


def run(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", line], cwd=folder, env=environment(), capture_output=True, text=True, timeout=300
    )


def printed(folder: Path, where: str) -> str:
    made = f"bloomseal spark jar key-bridge.jar --recipe {where} --policy policy.toml --table people=people"
    done = run(folder, f"{made} --format json")
    assert done.returncode == 0, done.stderr
    text: str = json.loads(done.stdout)["recipe"]
    return text


def test_sql_alone_writes_and_looks_up_a_sealed_and_signed_table(folder: Path) -> None:
    own = folder / "collector.json"
    bs.Keyring(own, create=True).create("collector", kind="ed25519")
    line = PublicKey(KmsSigner(f"keyring://{own}#collector").public_key()).line
    signers = f'[tables.people.signers]\ncollector = "{line}"\n'
    (folder / "policy.toml").write_text(f"{POLICY}{signers}")
    (folder / "app.sql").write_text(STATEMENTS.format(folder / "people"))
    signing = f"export BLOOMSEAL_SIGNER=keyring://{own}#collector; "
    done = run(folder, f"{signing}{printed(folder, 'spark-sql')}  {QUIET} -f app.sql")
    assert done.stdout.split() == ["1234", "2000"], done.stderr[-3000:]
    assert done.returncode != 0
    assert "ANALYZE for columns stores minima and maxima of the sealed table" in done.stderr
    assert found(folder / "people") == SEALED
    policy = Policy.load(folder / "policy.toml", kms=f"keyring://{folder / 'keys.json'}").for_table("people")
    table = bs.open_table(folder / "people", decryption=policy)
    assert table.read(["id"], where=[("id", "==", 77)]).num_rows == 1


def test_an_application_that_begins_so_needs_no_enable_and_no_second_jar(folder: Path) -> None:
    (folder / "app.py").write_text(SCRIPT)
    text = printed(folder, "spark-submit").partition("  --class")[0]
    done = run(folder, f"{text}  {QUIET} app.py {folder / 'people'}")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-3:] == ["rows 1", "refused True", "rows 100 jars 1 1"]
    assert found(folder / "people") == SEALED


def test_jdbc_looks_up_too(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    line = printed(folder, "thrift").replace("  --class", f"  {QUIET} --class")
    line += f" --hiveconf hive.server2.thrift.port={port} --hiveconf hive.server2.thrift.bind.host=127.0.0.1"
    with open(folder / "server.txt", "w") as log:
        server = subprocess.Popen(
            ["bash", "-c", line], cwd=folder, env=environment(), stdout=log, stderr=log, start_new_session=True
        )
    try:
        end = time.monotonic() + DEADLINE
        while "ThriftBinaryCLIService on port" not in (folder / "server.txt").read_text():
            assert server.poll() is None, (folder / "server.txt").read_text()[-3000:]
            assert time.monotonic() < end
            time.sleep(0.2)
        (folder / "app.sql").write_text(STATEMENTS.format(folder / "people"))
        done = run(
            folder, f"beeline -u jdbc:hive2://127.0.0.1:{port} --outputformat=csv2 --showHeader=false -f app.sql"
        )
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
    assert re.findall(r"(\d+)$", done.stdout, re.MULTILINE) == ["1234", "2000"], done.stderr[-3000:]
    assert "ANALYZE for columns stores minima and maxima" in done.stderr
    assert found(folder / "people") == SEALED


def test_every_recipe_has_all_of_it_and_says_what_was_not_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    policy = Policy.load("policy.toml")
    assert tuple(RECIPES) == command._RECIPES
    for where in RECIPES:
        text = recipe(where, "b.jar", policy, {"people": "s3a://lake/people"}, "/opt/python")
        (settings,) = folder.glob("bloomseal-*.json")
        for part in ("b.jar", settings.name, "TableCrypto", "LateDeletes", f"bloomseal:{settings.stem[10:]}"):
            assert part in text, where
        assert ("do not run this one" in text) == (where not in ("spark-sql", "spark-submit", "thrift"))
        given = json.loads(settings.read_text())
        assert (given["python"], given["tables"][0]["root"]) == ("/opt/python", "s3a://lake/people")
        assert given["kms"] == f"keyring://{folder / 'keys.json'}"
    with pytest.raises(bs.UsageError, match="no table has a folder"):
        recipe("spark-sql", "b.jar", policy, {}, "python")
    with pytest.raises(bs.PolicyError):
        recipe("spark-sql", "b.jar", policy, {"nobody": "/x"}, "python")
    rooted = Policy({"people": policy.for_table("people").at(str(folder / "people"))}, policy.origin)
    for settings in folder.glob("bloomseal-*.json"):
        settings.unlink()
    recipe("spark-sql", "b.jar", rooted, {}, "python")
    (settings,) = folder.glob("bloomseal-*.json")
    assert json.loads(settings.read_text())["tables"][0]["root"] == str(folder / "people")
