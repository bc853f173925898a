"""Drivers with a JVM of their own, which tests kill."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from .cluster import DEADLINE
from .conftest import PASSPHRASE, need_spark

__all__ = ["answer", "driver", "ended"]


@contextlib.contextmanager
def driver(folder: Path, script: str, *arguments: str, **more: str) -> Iterator[subprocess.Popen[str]]:
    """A script beside this one with its JVM, killed at the end where it hasn't ended by itself.

    Args:
        folder: the script's first argument; what it complains of goes to a file there.
        more: of its environment.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("BLOOMSEAL_", "SPARK_"))}
    environment |= {
        "JAVA_HOME": str(need_spark()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "BLOOMSEAL_KEYRING_PASSPHRASE": PASSPHRASE,
        **more,
    }
    command = [sys.executable, str(Path(__file__).with_name(script)), str(folder), *arguments]
    with open(folder / "driver.txt", "a") as errors:
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # Python and the JVM
        process.wait()


def ended(folder: Path, process: subprocess.Popen[str]) -> AssertionError:
    """Why a driver ended that nobody has killed."""
    process.wait(DEADLINE)
    lines = (folder / "driver.txt").read_text().splitlines()
    told = "\n".join(line for line in lines if not line.startswith("\tat "))
    return AssertionError(told[max(told.find(" ERROR "), 0) :][:3000])


def answer(folder: Path, process: subprocess.Popen[str], *wanted: str) -> str:
    """The first line that begins in one of these ways."""
    assert process.stdout is not None
    timer = threading.Timer(DEADLINE, process.kill)
    timer.start()
    try:
        return next(line for line in process.stdout if line.startswith(wanted))
    except StopIteration:
        raise ended(folder, process) from None
    finally:
        timer.cancel()
