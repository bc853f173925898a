"""`enable`: a running Spark session learns to ask Bloomseal for keys."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import uuid
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote, urlsplit

from ..core.errors import BloomsealWarning, UsageError
from ..core.forked import new_lock
from ..policy import Policy, TablePolicy, table_policy
from .given import ACCESS, absolute_kms, kms_of, refuse_secrets
from .guarding import (
    LEFT_OUT,
    TIMESTAMPS,
    Places,
    commit_protocols,
    deletes_late,
    folder_uri,
    guard_of,
    parquet_settings,
    placed,
    settings_file,
    table_place,
)
from .jar import bridge_jar, jar_mark, kept_file
from .listing import classic_jvm, qualified
from .versions import forget_static_source

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator
    from pyspark.sql import SparkSession

    from .source.search import KeySearch
    from .source.stats import Metrics

_NAME: Final = "bloomseal.session"
_DAY: Final = 86_400
"""Seconds; the key helper takes no more."""
_registering: Final = new_lock()
"""Of two threads that register one name at the same time Spark refuses the later: somebody has it."""
_policies: dict[str, Policy] = {}
_given: dict[str, dict[str, Any]] = {}
"""What the bridge was told of each session, by the session's name."""
_metrics: dict[str, Accumulator[Metrics]] = {}
"""By the name that a session's configuration holds: streams run their batches in copies of a session, and Python makes
an object of its own for each.
"""


def enable(
    spark: SparkSession,
    kms: str | None = None,
    *,
    policy: Policy | str | os.PathLike[str] | None = None,
    python: str | None = None,
    jar: str | os.PathLike[str] | None = None,
    timeout: int = 30,
    cache_lifetime: int = 600,
    tables: Mapping[str, str | os.PathLike[str]] = MappingProxyType({}),
    refuse_plaintext: bool | Places = False,
    allow_plaintext: Places = (),
) -> None:
    """Let this session's `spark.read.parquet` and `df.write.parquet` get their keys from a Bloomseal KMS.

    Plaintext tables are read and written as before; where sealed files lie, and below the folder of each table of the
    policy, Spark begins no file in plaintext. Its overwrites keep the old files until the new ones are there. Calling
    it again changes the settings. All but the policy holds for the application's new sessions, too.

    Where the policy has an ``aad_prefix``, each file is sealed for its place in its table and opens there only: the
    session opens files of the policy's tables, and no others.

    Args:
        spark: a session with a JVM of its own (not Spark Connect).
        kms: KMS URI, resolved on every executor with the credentials of *its* environment. Default: the policy's. No
            other KMS is ever asked, whatever address a file names.
        policy: for `write` and `options`, where they are given none; a `Policy` or its file.
        python: the interpreter that runs the key helper on each machine, with Bloomseal installed. Default: the one
            that Spark runs Python workers with.
        jar: the key bridge, from ``bloomseal spark jar``. Default: compiled once and kept in the user's cache.
        timeout: seconds that one key may take, retries included.
        cache_lifetime: seconds that unwrapped keys are kept by the helper, and that parquet-java seals new files under
            one key encryption key; a right that was withdrawn goes on working for as long, and for a minute more.
        tables: table of the policy → its folder, whose files are that table's and never in plaintext. Default: the
            ``root`` that the policy gives it. Of tables without either the folder is found by the file: the one above
            the folders of partitions (``day=1``), of the only such table, or of the one that the folder is called by.
        refuse_plaintext: more places where Spark's writers begin no file but a sealed one, whatever its format:
            folders, or True: everywhere. A plain write, a misspelt option and an ``INSERT`` into a table of the catalog
            without the options of `protect_table` fail there before a row is written or removed.
        allow_plaintext: folders below which plaintext may be written all the same.

    Raises:
        UsageError: no KMS, an unusable URI, a Spark Connect session, a secret in the Spark configuration.
        PolicyError: the policy can't be used, has no table of a name in `tables`, or signers of a table whose folder is
            not known.

    Warns:
        BloomsealWarning: what `advice` says; that timestamps will be written as microseconds and not as INT96.
    """
    jvm = classic_jvm(spark)
    if policy is not None and not isinstance(policy, Policy):
        policy = Policy.load(policy, kms=kms)
    policy, folders = placed(spark, policy, tables)
    kms = absolute_kms(kms_of(policy, kms))
    refuse_secrets(_settings(spark))
    # Options of a table reach what parquet-java is configured by, and whoever writes to a catalog sets them: they must
    # choose neither the program nor the KMS. So the bridge takes both from a file of the application's, and the
    # configuration only names it.
    everywhere, named = (refuse_plaintext, ()) if isinstance(refuse_plaintext, bool) else (False, refuse_plaintext)
    given = {
        "kms": kms,
        "timeout": _whole(timeout, "timeout", 1),
        "lifetime": _whole(cache_lifetime, "cache_lifetime", 0),
        "python": python or _python(spark),
        **guard_of(policy, folders, everywhere, _uris(spark, named), _uris(spark, allow_plaintext)),
    }
    _given[_name(spark)] = given
    # Settings that are not the newest, or another session's, stay known, and an option can name them.
    sealed = sorted({folder for known in _given.values() for folder in known["sealed"]})
    jvm.java.lang.System.setProperty("bloomseal.sealed", json.dumps({"sealed": sealed}))
    digest = _add_settings(spark, given)
    _add_jar(spark, str(Path(jar).absolute()) if jar else None)
    spark.conf.set("bloomseal.kms", kms)
    parquet = parquet_settings(digest, cache_lifetime)
    for name, value in {**parquet, **commit_protocols(spark)}.items():
        spark.conf.set(name, value)
        # What `newSession` begins with.
        spark.sparkContext._jsc.sc().conf().set(name, value)
    for name, value in parquet.items():
        # What sessions have that were there before.
        spark.sparkContext._jsc.hadoopConfiguration().set(name, value)
    _bridge_class(spark, "CatalogWatch").getDeclaredConstructor(None).newInstance(None).watch(spark._jsparkSession)
    if policy is not None:
        _policies[_name(spark)] = policy
    register_source(spark, kms, _policies.get(_name(spark)))
    for text in [*_microseconds(spark), *advice(spark)]:
        warnings.warn(text, BloomsealWarning, stacklevel=2)


def _microseconds(spark: SparkSession) -> Iterator[str]:
    """Have timestamps written in a form that can be pruned by, unless the user has chosen one; says so."""
    for name, value in TIMESTAMPS.items():
        if not spark._jsparkSession.sessionState().conf().contains(name):
            for settings in (spark.conf, spark.sparkContext._jsc.sc().conf()):
                settings.set(name, value)
            yield f"timestamps are written as microseconds from now on, and no longer as INT96: {name}"


def _uris(spark: SparkSession, places: Places) -> list[str]:
    if isinstance(places, str):
        raise UsageError("places are given as a list of paths", hint='refuse_plaintext=["/lake/people"]')
    return [qualified(spark, place) for place in places]


def settings_for(spark: SparkSession, table: TablePolicy, target: str, *, pinned: bool = False) -> dict[str, str]:
    """What a write to `target`, a folder or URI, needs beside `settings.options`: the name of settings by which the
    bridge knows that this table lies there. Nothing where no file, of this session either, is bound to its place.

    Args:
        pinned: for a read instead; see `table_place`.

    Raises:
        PolicyError: the table's folder is another one.
    """
    known = _given[_name(spark)]
    bound = table.aad_prefix or table.signers or any(one["prefix"] or one["signers"] for one in known["tables"])
    if not pinned and not bound:
        return {}
    given = {**known, "tables": [table_place(table, folder_uri(table, target), pinned=pinned)]}
    return {ACCESS: f"bloomseal:{_add_settings(spark, given)}"}


def register_source(
    spark: SparkSession,
    kms: str | None,
    policy: Policy | None,
    name: str = "bloomseal",
    search: KeySearch | None = None,
) -> Accumulator[Metrics]:
    """Register the data source with what this session knows: the processes that plan and run its queries see no
    session.

    Args:
        search: the keys of the one frame that it is for.

    Returns:
        The counts of what the session's reads through it did.
    """
    classic_jvm(spark)
    from .source.options import Defaults
    from .source.source import BloomsealSource
    from .source.stats import new_metrics

    if (metrics := _metrics.get(_name(spark))) is None:
        metrics = _metrics[_name(spark)] = new_metrics(spark)
    zone, parallelism = str(spark.conf.get("spark.sql.session.timeZone")), spark.sparkContext.defaultParallelism
    given = {"defaults": Defaults(kms, policy, metrics, zone, parallelism, search), "name": classmethod(lambda _: name)}
    # A class of its own travels by value, and its attributes with it.
    with _registering, as_active(spark):
        forget_static_source(spark, name)
        spark.dataSource.register(type("BloomsealSource", (BloomsealSource,), given))
    return metrics


@contextlib.contextmanager
def as_active(spark: SparkSession) -> Iterator[None]:
    """Spark looks data sources up in the active session of the thread, which may be another than the frame's,
    or none.
    """
    sessions = spark._get_j_spark_session_class(classic_jvm(spark))
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def known_policy(spark: SparkSession) -> tuple[str | None, Policy | None]:
    """The KMS and the policy that `enable` was given; None where it was not called."""
    classic_jvm(spark)
    return spark.conf.get("bloomseal.kms", None), _policies.get(_name(spark))


def metrics_of(spark: SparkSession) -> Metrics | None:
    """What the session's reads through the data source did; None where nothing counts it."""
    return found.value if (found := _metrics.get(_name(spark))) is not None else None


def _bridge_class(spark: SparkSession, name: str) -> Any:
    # By the session's own class loader: the thread that serves this one need not know jars that were added on another.
    loader: Any = spark._jsparkSession.sharedState().jarClassLoader()
    return loader.loadClass(f"bloomseal.spark.{name}")


def advice(spark: SparkSession) -> list[str]:
    """What in this session's configuration leaves decrypted or probed values lying about, or rows out without a word;
    nothing where all is well.
    """
    conf = spark.sparkContext.getConf()

    def on(name: str) -> bool:
        return str(conf.get(name, "false")).lower() == "true"

    found = []
    if not on("spark.io.encryption.enabled"):
        found.append(
            "decrypted rows reach the local disks in clear (shuffles, spills, broadcasts): spark.io.encryption.enabled=true"
        )
    if not _is_local(spark) and not on("spark.network.crypto.enabled") and not on("spark.ssl.rpc.enabled"):
        found.append(
            "decrypted rows cross the network in clear: spark.authenticate=true, spark.network.crypto.enabled=true"
        )
    for name, what in LEFT_OUT.items():
        if str(spark.conf.get(name, "false")).lower() == "true":
            found.append(f"{name}: {what}")
    if spark.conf.get("bloomseal.kms", None) is not None and not deletes_late(spark):
        found.append(
            "the session's own spark.sql.sources.commitProtocolClass removes old files before new ones are written: an "
            "overwrite that fails leaves no table"
        )
    if on("spark.eventLog.enabled"):
        # spark.sql.redaction.string.regex reaches the plan's text, but not the nodes of its graph.
        found.append(
            "the values that your filters look for stand in query plans, and so in the event log: keep its folder to the "
            "few who may see them, or spark.eventLog.enabled=false"
        )
    return found


def chosen_table(
    spark: SparkSession, policy: Policy | TablePolicy | str | os.PathLike[str] | None, table: str | None
) -> TablePolicy:
    """One table's policy: what the caller gave, else what `enable` was given.

    Raises:
        UsageError: no policy, `enable` was not called, or as `table_policy`.
    """
    classic_jvm(spark)
    kms = spark.conf.get("bloomseal.kms", None)
    if kms is None:
        raise UsageError("the session has no key bridge", hint="bloomseal.spark.enable(spark, kms=...) first")
    if policy is None and (policy := _policies.get(_name(spark))) is None:
        raise UsageError("no policy", hint="policy=, here or in bloomseal.spark.enable")
    if not isinstance(policy, Policy | TablePolicy):
        policy = Policy.load(policy, kms=kms)
    return table_policy(policy, table)


def _name(spark: SparkSession) -> str:
    """The session's, and that of its copies."""
    if (found := spark.conf.get(_NAME, None)) is None:
        spark.conf.set(_NAME, found := uuid.uuid4().hex)
    return str(found)


def _add_jar(spark: SparkSession, jar: str | None) -> None:
    """To the executors, and to the class loader of the session's driver."""
    session, jvm = spark._jsparkSession, classic_jvm(spark)
    loader = session.sharedState().jarClassLoader()
    path = jar or _jar_on_class_path(loader) or str(bridge_jar(jvm))
    added = session.sparkContext().listJars()
    if not any(str(added.apply(i)).endswith("/" + Path(path).name) for i in range(added.size())):
        session.sessionState().resourceLoader().addJar(path)
        if quote(path) != path:
            # Spark 4.3 quotes a path twice on its way to the driver's class loader, which then finds nothing in the
            # jar.
            loader.addURL(jvm.java.io.File(path).toURI().toURL())
    # Spark looks for a commit protocol by the class loader of the thread that writes, which is the parent of all.
    if hasattr(above := loader.getParent(), "addURL"):
        above.addURL(jvm.java.io.File(path).toURI().toURL())
    # In local mode tasks get a query's own configuration, which looks for classes where the thread that planned the
    # query did: without the jar, which threads need not know that were there before it. Queries' configurations are
    # copies of this one.
    session.sparkContext().hadoopConfiguration().setClassLoader(loader)


def _jar_on_class_path(loader: Any) -> str | None:
    """The jar that has this package's bridge already: of ``--jars``, of Spark's folder, or of an earlier call.

    Raises:
        UsageError: another version's bridge is there, and would be found first.
    """
    if (found := loader.getResource(mark := jar_mark())) is not None:
        return unquote(urlsplit(str(found.getPath())).path).removesuffix(f"!/{mark}")
    if (other := loader.getResource(f"{mark.rpartition('/')[0]}/KeyBridge.class")) is not None:
        raise UsageError(
            "the session has the key bridge of another version of Bloomseal",
            file=str(other.getPath()).partition("!")[0],
            hint="bloomseal spark jar PATH makes this version's; or leave it to enable",
        )
    return None


def _add_settings(spark: SparkSession, given: dict[str, Any]) -> str:
    """Give all machines of the application the bridge's settings; their SHA-256, by which the file is named."""
    name, text, digest = settings_file(given)
    if not any(one.endswith(f"/{name}") for one in spark.sparkContext.listFiles):
        spark.sparkContext.addFile(str(kept_file(name, text)))
    return digest


def _settings(spark: SparkSession) -> dict[str, str]:
    """What of the Spark configuration concerns keys: environment of executors and drivers, and Parquet's encryption."""

    def found() -> Iterator[tuple[str, str]]:
        for name, value in spark.sparkContext.getConf().getAll():
            if "Env." in name or "parquet.encryption." in name:
                yield name, value
        for name in (ACCESS, "parquet.encryption.key.list"):
            yield name, str(spark.conf.get(name, None) or "")

    return dict(found())


def _whole(value: int, name: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _DAY:
        raise UsageError(f"{name} is a number of seconds, {least} to {_DAY}")
    return value


def _is_local(spark: SparkSession) -> bool:
    return str(spark.sparkContext.master).startswith("local")


def _python(spark: SparkSession) -> str:
    named = spark.sparkContext.getConf().get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    return named or (sys.executable if _is_local(spark) else str(spark.sparkContext.pythonExec))
