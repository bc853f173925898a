"""The key bridge as a jar: Java source in this package, compiled by the Janino that Spark brings, so that nobody needs
a javac.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from .._ownership import home
from ..core.errors import MissingDependencyError, PolicyError
from ..storage.atomic import storage_errors
from ..storage.folder import Folder
from ..storage.replacement import replace
from .runtime import use_java

BATCH_COMMITS: Final = "bloomseal.spark.LateDeletes"
STREAM_COMMITS: Final = "bloomseal.spark.GuardedStream"
CATALOG_WATCH: Final = "bloomseal.spark.CatalogWatch"
KMS_CLIENT: Final = "bloomseal.spark.KeyBridge"
_SOURCES: Final = (
    "KeyHelper.java", "KeyBridge.java", "TablePlaces.java", "Guard.java", "FileKeys.java", "SignedTail.java",
    "Pins.java", "TableCrypto.java", "LateDeletes.java", "GuardedStream.java", "CatalogWatch.java",
)  # fmt: skip
"""In this order: each may use those before it."""
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


def build_jar(path: str | os.PathLike[str]) -> None:
    """Compile the key bridge in a JVM of its own and write it to `path`, for ``spark.jars`` or Spark's ``jars`` folder.

    Raises:
        MissingDependencyError: no PySpark, or no Java.
        BloomsealError: it can't be compiled or written.
    """
    with _jvm() as jvm, storage_errors("write the jar", os.fspath(path)):
        folder, name = Folder.of(path)
        with folder:
            replace(folder, name, _compiled(jvm))


def bridge_jar(jvm: Any) -> Path:
    """The jar in this user's cache, compiled in the running JVM (a py4j view) if it isn't there yet: 2 to 3 seconds.

    Raises:
        PolicyError: others could replace the jar.
    """
    return _kept(f"bloomseal-key-bridge-{jar_mark().rpartition('/')[2]}.jar", lambda: _compiled(jvm))


def jar_mark() -> str:
    """An entry that only a jar of these very sources has."""
    return f"bloomseal/spark/{hashlib.sha256(''.join(_sources().values()).encode()).hexdigest()[:16]}"


def kept_file(name: str, content: bytes) -> Path:
    """A file in this user's cache beside the jar, for Spark to serve to the executors. Its name changes with its
    content.

    Raises:
        PolicyError: others could replace it.
    """
    return _kept(name, lambda: content)


def _kept(name: str, make: Callable[[], bytes]) -> Path:
    """A file in the cache, made if it isn't there yet."""
    with cache_folder() as folder, storage_errors("write to the cache", folder.path):
        try:
            os.close(folder.open_own(name))
        except FileNotFoundError:
            replace(folder, name, make())
        return Path(folder.path, name)


def _sources() -> dict[str, str]:
    return {name: (files(__package__) / "java" / name).read_text(encoding="utf-8") for name in _SOURCES}


def _compiled(jvm: Any) -> bytes:
    classes: dict[str, Any] = {}
    known = None
    for name, source in _sources().items():
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        if known is not None:
            compiler.setParentClassLoader(known)
        # Its class files are of an old version by default, so that they run on whatever Java an executor has.
        compiler.cook(name, source)
        classes |= compiler.getBytecodes()
        known = compiler.getClassLoader()
    jar = io.BytesIO()
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(classes):
            # A fixed time, so that the same classes make the same jar.
            archive.writestr(zipfile.ZipInfo(f"{name.replace('.', '/')}.class", _EPOCH), bytes(classes[name]))
        archive.writestr(zipfile.ZipInfo(jar_mark(), _EPOCH), b"")
    return jar.getvalue()


def cache_folder() -> Folder:
    """This user's folder, open: what is in it gets to run beside the keys.

    Raises:
        PolicyError: others can write to it, or to a folder on the way.
    """
    given = os.environ.get("XDG_CACHE_HOME")
    try:
        return Folder.own(Path(given or home() / ".cache") / "bloomseal" / "spark")
    except (OSError, PolicyError) as error:
        # No home, as in many containers, or one that a group may write to, as in images for notebooks.
        if given and isinstance(error, PolicyError):
            raise
        return Folder.own(Path(tempfile.gettempdir()) / f"bloomseal-spark-{os.getuid()}")


@contextlib.contextmanager
def _jvm() -> Iterator[Any]:
    """A JVM with Spark's jars on its class path, but without Spark."""
    try:
        import pyspark
        from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway  # type: ignore[import-untyped]
    except ImportError:
        raise MissingDependencyError("PySpark is not installed", hint="pip install 'bloomseal[spark]'") from None
    jars = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent) / "jars"
    home = use_java()
    process = None
    # A ValueError is what py4j makes of a JVM that ended before it said its port.
    with contextlib.suppress(OSError, ValueError, StopIteration):
        port, token, process = launch_gateway(
            jarpath=str(next(jars.glob("py4j-*.jar"))),
            classpath=str(jars / "*"),
            java_path=str(home / "bin" / "java"),
            redirect_stderr=subprocess.DEVNULL,
            die_on_exit=True,
            enable_auth=True,
            return_proc=True,
        )
    if process is None:
        raise MissingDependencyError("Java could not be started", hint=f"{home}/bin/java -version")
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
        process.stdin.close()
        process.wait(30)
