"""A table whose files are signed: every reader of Spark's checks that before a key is asked for, and its own writer has
the driver sign what tasks have written.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import bloomseal as bs
import bloomseal.spark as bss
from bloomseal.policy import Policy, TablePolicy
from bloomseal.spark.session import _bridge_class
from keytools.test_signers import Signing
from spark.test_source_read import read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore::bloomseal.BloomsealWarning"),
]
SCHEMA = "id bigint, ssn string"
once = pytest.mark.parametrize("signed", [False], ids=["encrypted footer"], indirect=True)


@dataclass
class Signed:
    """A session whose policy has signers, and its table.

    Attributes:
        other: a table of the same policy, whose one signer is nobody here.
        log: the access log of the JVM's helper.
    """

    spark: SparkSession
    policy: Policy
    folder: Path
    other: Path
    log: Path

    @property
    def people(self) -> TablePolicy:
        return self.policy.for_table("people", root=self.folder)

    def rows(self, start: int, end: int) -> DataFrame:
        return self.spark.range(start, end, 1, 1).selectExpr("id", "concat('ssn-', id) AS ssn", "id % 2 AS k")

    def files(self) -> list[Path]:
        return sorted(self.folder.rglob("part-*.parquet"))

    def check(self, rows: int) -> None:
        """Every reader finds these rows; of each file there is a signature, and none else."""
        assert self.spark.read.parquet(str(self.folder)).select("id").count() == rows
        assert bs.read_table(self.folder, policy=self.people).num_rows == rows
        assert len(list(self.folder.rglob("_SIGNATURE_*"))) == len(self.files())
        assert not list(self.folder.rglob("._SIGNATURE_*"))  # Hadoop's checksums


@pytest.fixture(scope="module", params=[False, True], ids=["encrypted footer", "plaintext footer"])
def signed(
    request: pytest.FixtureRequest, spark: SparkSession, ring: bs.Keyring, policy: Policy, work: Path, author: str
) -> Iterator[Signed]:
    home = work / f"signed {request.param}"
    columns = {"ssn": {"key": "pii", "filter": {"ndv": 100}}}
    table = {
        "footer_key": "footer",
        "columns": columns,
        "partition_by": ["k"],
        "plaintext_footer": request.param,
        "signers": {"author": author},
    }
    document = {
        "version": 1,
        "kms": f"keyring://{ring.path}",
        "tables": {"people": table, "others": {**table, "signers": {"somebody": Signing().key.line}}},
    }
    session, made = spark.newSession(), Policy.from_dict(document)
    with pytest.raises(bs.PolicyError, match="folder is not known"):
        bss.enable(session, policy=made)
    found = Signed(session, made, home / "people", home / "others", work / "native-access.jsonl")
    tables = {"people": found.folder, "others": found.other}
    bss.enable(session, policy=made, tables=tables, allow_plaintext=[found.folder / "exports"])
    found.rows(0, 20).write.partitionBy("k").parquet(str(found.folder))
    yield found
    bss.enable(spark, policy=policy)


@pytest.fixture
def kept(signed: Signed, tmp_path: Path) -> Iterator[Signed]:
    """The table, put back as it was."""
    shutil.copytree(signed.folder, tmp_path / "kept")
    yield signed
    shutil.rmtree(signed.folder, ignore_errors=True)
    shutil.copytree(tmp_path / "kept", signed.folder)


def test_the_driver_signs_what_spark_writes(kept: Signed) -> None:
    kept.check(20)
    with bs.open_file(kept.files()[0], policy=kept.people) as file:
        assert file.verify().signed_by == "author"
    kept.rows(20, 21).write.mode("append").partitionBy("k").parquet(str(kept.folder))
    kept.check(21)
    dynamic = kept.rows(100, 102).where("k = 0").write.option("partitionOverwriteMode", "dynamic").mode("overwrite")
    dynamic.partitionBy("k").parquet(str(kept.folder))
    kept.check(11)
    report = bss.write(kept.rows(0, 7), kept.folder, table="people", mode="overwrite", partition_by=["k"])
    assert report.rows == 7
    kept.check(7)
    assert bss.semi_join(kept.spark, kept.folder, "ssn", ["ssn-3", "ssn-9"], table="people").count() == 1
    # What names the key to sign with is the driver's alone.
    context, conf = kept.spark.sparkContext, kept.spark._jsparkSession.sessionState().newHadoopConf()
    given = kept.spark._jvm.java.io.StringWriter()
    conf.writeXml(given)
    settings = [path.read_text() for path in kept.log.parent.joinpath("cache").rglob("bloomseal-*.json")]
    assert settings
    assert "author.json" not in given.toString() + str(settings) + str(context.getConf().getAll())


@once
def test_a_stream_is_signed_before_its_log_names_a_file(kept: Signed, tmp_path: Path) -> None:
    shutil.copytree(kept.folder, tmp_path / "source")
    shutil.rmtree(kept.folder)
    with pytest.raises(Exception, match="no table of the policy is known"):  # a session with signers has keys for them
        kept.spark.read.schema(SCHEMA).parquet(str(tmp_path / "source")).collect()
    source = tmp_path / "in"
    kept.rows(0, 4).select("id").write.parquet(str(source))
    rows = kept.spark.readStream.schema("id bigint").parquet(str(source))
    stream = bss.write_stream(rows.selectExpr("id", "concat('ssn-', id) AS ssn"), kept.folder, table="people")
    stream.option("checkpointLocation", str(tmp_path / "at")).trigger(availableNow=True).start().awaitTermination()
    kept.check(4)


@once
def test_whoever_can_t_sign_writes_nothing(signed: Signed) -> None:
    with pytest.raises(bs.PolicyError, match="none of the signers"):
        bss.write(signed.rows(0, 2), signed.other, table="others")
    assert not list(signed.other.rglob("*.parquet"))
    signed.spark.conf.set(
        "spark.sql.sources.commitProtocolClass",
        "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol",
    )
    try:
        with pytest.raises(Exception, match=r"another commit: .*bloomseal sign"):
            bss.write(signed.rows(0, 2), signed.folder, table="people", mode="append", partition_by=["k"])
    finally:
        signed.spark.conf.set("spark.sql.sources.commitProtocolClass", "bloomseal.spark.LateDeletes")
    signed.check(20)


@once
def test_jobs_that_would_have_executors_sign_are_refused(signed: Signed) -> None:
    for job in (bss.rekey, bss.rewrap, bss.attach):
        with pytest.raises(bs.UnsupportedError, match="executors hold no key to sign with"):
            job(signed.spark, signed.folder, table="people")
    assert bss.verify(signed.spark, signed.folder, table="people").where("ok").count() == len(signed.files())


@once
def test_delta(signed: Signed, tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    moved = signed.policy.for_table("people", root=tmp_path / "delta")
    for mode in ("error", "append"):
        bss.write_delta(signed.rows(0, 3).drop("k"), tmp_path / "delta", policy=moved, mode=mode)
    assert bss.read(signed.spark, tmp_path / "delta", policy=moved).count() == 6


def forged(signed: Signed, home: Path, **changes: Any) -> Path:
    """A file by somebody who may wrap keys for the table, signed by whom the changes say."""
    policy = replace(signed.people, **{"signers": {}, **changes}).at(home)
    home.mkdir()
    bs.write_table(pa.table({"id": [666], "ssn": ["forged"]}), home / "a.parquet", policy=policy)
    return home


def in_its_place(signed: Signed, home: Path) -> Path:
    """The forger's file under an honest one's name, and his signature under the name that it must have."""
    file = signed.files()[0]
    shutil.copy(home / "a.parquet", file)
    file.with_name(f".{file.name}.crc").unlink()  # Hadoop's
    for signature in home.glob("_SIGNATURE_*"):
        shutil.copy(signature, file.with_name(signature.name.replace("a.parquet", file.name)))
    return file


def _moved(signed: Signed, _: Path) -> Path:
    file = signed.files()[0]
    there = signed.folder / "k=7" / file.name
    shutil.move(file.parent, there.parent)
    return there


def _plain(signed: Signed, _: Path) -> Path:
    import pyarrow.parquet as pq

    (signed.folder / "exports").mkdir()
    pq.write_table(pa.table({"id": [666], "ssn": ["forged"]}), signed.folder / "exports/a.parquet")
    return signed.folder / "exports/a.parquet"


def _stripped(signed: Signed, _: Path) -> Path:
    file = signed.files()[0]
    next(file.parent.glob("_SIGNATURE_*")).unlink()
    return file


OTHER = Signing()
GAMES: dict[str, tuple[Callable[[Signed, Path], Path], str]] = {
    "unsigned": (lambda it, home: in_its_place(it, forged(it, home)), "nobody signed"),
    "unknown": (
        lambda it, home: in_its_place(it, forged(it, home, signers={"x": (OTHER.key.line,)}, signer=OTHER)),
        "none of the table's signers",
    ),
    "moved": (_moved, "a file of another place"),
    "stripped": (_stripped, "nobody signed"),
    "plaintext": (_plain, "in plaintext"),
}


@pytest.mark.parametrize("game", GAMES)
def test_what_none_of_the_signers_signed_is_refused_and_no_key_asked_for(
    kept: Signed, tmp_path: Path, game: str
) -> None:
    play, why = GAMES[game]
    file = play(kept, tmp_path / "forger")
    before = kept.log.read_bytes()
    # With a schema Spark opens nothing before the tasks do.
    with pytest.raises(Exception, match=why):
        kept.spark.read.schema(SCHEMA).parquet(str(file)).collect()
    assert kept.log.read_bytes() == before
    if game == "stripped":
        with pytest.raises(bs.PolicyError, match=why):
            read(kept.folder, policy=kept.people)
        with pytest.raises(bs.PolicyError, match=why):
            read(kept.folder, policy=kept.people, schema=SCHEMA)


def test_another_file_that_comes_after_the_check_does_not_open(kept: Signed, tmp_path: Path) -> None:
    jvm, file = kept.spark._jvm, kept.files()[0]
    conf = kept.spark._jsparkSession.sessionState().newHadoopConf()
    path = jvm.org.apache.hadoop.fs.Path(str(file))
    factory = _bridge_class(kept.spark, "TableCrypto").getDeclaredConstructor(None).newInstance(None)

    def rows(keys: Any) -> int:
        options = jvm.org.apache.parquet.ParquetReadOptions.builder().withDecryption(keys).build()
        source = jvm.org.apache.parquet.hadoop.util.HadoopInputFile.fromPath(path, conf)
        reader = jvm.org.apache.parquet.hadoop.ParquetFileReader.open(source, options)
        try:
            return int(reader.getRecordCount())
        finally:
            reader.close()

    checked = factory.getFileDecryptionProperties(conf, path)
    assert rows(checked) == 10
    honest = file.read_bytes()
    file.with_name(f".{file.name}.crc").unlink()
    at = honest.rindex(b"PARE") if honest.endswith(b"PARE") else honest.rindex(b"PAR1")
    assert at == len(honest) - 4
    others = {
        "another file of the table's": kept.files()[1].read_bytes(),
        "a forger's": (forged(kept, tmp_path / "forger") / "a.parquet").read_bytes(),
        # The key metadata that was verified, and another footer behind it.
        "another footer": honest[: at - 10] + bytes([honest[at - 10] ^ 1]) + honest[at - 9 :],
    }
    for other in others.values():
        file.write_bytes(other)
        with pytest.raises(Exception, match=r"(?i)tag|crypto|integrity|signature|decrypt"):
            rows(checked)
    file.write_bytes(honest)
    assert rows(checked) == 10


@once
def test_key_material_beside_a_file_leads_to_no_key_but_its_own(kept: Signed, tmp_path: Path) -> None:
    """Nobody signs it, and whoever may wrap keys would have the next file that he puts there open."""
    session, home = kept.spark.newSession(), tmp_path / "table"
    policy = replace(kept.people, internal=False, partition_by=()).at(home)
    bss.enable(session, policy=Policy({"people": policy}))
    try:
        bss.write(session.range(3).selectExpr("id", "concat('ssn-', id) AS ssn"), home, table="people")
        assert session.read.parquet(str(home)).count() == 3
        material = next(home.glob("_KEY_MATERIAL_FOR_*"))
        material.with_name(f".{material.name}.crc").unlink()
        forger = forged(kept, tmp_path / "forger", internal=False, partition_by=())
        shutil.copy(forger / "_KEY_MATERIAL_FOR_a.parquet.json", material)
        with pytest.raises(Exception, match=r"does not open under the file's own key: .* was exchanged"):
            session.read.schema(SCHEMA).parquet(str(home)).collect()
    finally:
        bss.enable(kept.spark, policy=kept.policy, tables={"people": kept.folder, "others": kept.other})


STORAGE = {
    "a file more": (".spark-staging-*/_temporary/0", "task_1_m_9/part-9.parquet", "among those that the tasks"),
    "another file": (".spark-staging-*/_temporary/0/_temporary/attempt_*/part-*.parquet", "", "was exchanged"),
    "another file of a stream": ("part-*.parquet", "", "was exchanged"),
}


@once
@pytest.mark.parametrize("game", STORAGE)
def test_the_driver_signs_what_its_own_tasks_wrote_and_nothing_else(kept: Signed, tmp_path: Path, game: str) -> None:
    where, below, why = STORAGE[game]
    table, evil = kept.folder, forged(kept, tmp_path / "forger") / "a.parquet"
    kept.spark.range(0, 4, 1, 2).write.parquet(str(tmp_path / "in"))

    def storage(number: int) -> str:
        """What whoever writes to the storage does while a task is at work on its second partition."""
        for found in table.glob(where):
            if below or found.read_bytes().endswith(b"PARE"):
                (found / below).parent.mkdir(exist_ok=True)
                found.with_name(f".{found.name}.crc").unlink(missing_ok=True)
                shutil.copy(evil, found / below)
        return f"ssn-{number}"

    from pyspark.sql import functions as f

    def rows(frame: DataFrame) -> DataFrame:
        return frame.select("id", f.udf(storage, "string", useArrow=False)("id").alias("ssn")).coalesce(1)

    if "stream" in game:
        shutil.rmtree(table)
        stream = rows(kept.spark.readStream.schema("id bigint").parquet(str(tmp_path / "in")))
        sink = bss.write_stream(stream, table, table="people").option("maxRecordsPerFile", "1")
        query = sink.option("checkpointLocation", str(tmp_path / "at")).trigger(availableNow=True).start()
        with pytest.raises(Exception, match="Task failed while writing"):
            query.awaitTermination()
        cause = query._jsq.exception().get()
        while cause.getCause() is not None:
            cause = cause.getCause()
        assert why in cause.getMessage()
        assert not list(table.glob("_SIGNATURE_*"))
    else:
        # Whoever writes to a catalog sets options: no file of his is taken for a task's by a key that they name.
        writer = rows(kept.spark.range(0, 4, 1, 2)).write.option(f"bloomseal.footer.key.{evil}", "AAAA")
        with pytest.raises(Exception, match=why):
            writer.option("maxRecordsPerFile", "1").mode("append").parquet(str(table))
        kept.check(20)


@once
def test_the_forger_s_file_would_open_otherwise(kept: Signed, tmp_path: Path) -> None:
    """So that the games above are lost by the signature, and by nothing else."""
    session, home = kept.spark.newSession(), forged(kept, tmp_path / "forger")
    bss.enable(session, policy=Policy({"t": replace(kept.people, name="t", signers={}).at(home)}))
    assert [row.ssn for row in session.read.parquet(str(home)).collect()] == ["forged"]
    bss.enable(kept.spark, policy=kept.policy, tables={"people": kept.folder, "others": kept.other})
