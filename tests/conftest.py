"""Fixtures that every test may ask for."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest

from support.jvm import JavaUnavailableError, Jvm, start_jvm


@pytest.fixture(scope="session")
def java() -> Jvm:
    """The JVM with parquet-java; its use is through the `java_…` functions of `support.jvm`."""
    try:
        return start_jvm()
    except JavaUnavailableError as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def parquet_test_data() -> Path:
    """The folder of published encrypted files: `PARQUET_TEST_DATA`, or a checkout beside the project's."""
    beside = Path(__file__).parents[2] / "shared" / "parquet-testing"
    folder = Path(os.environ.get("PARQUET_TEST_DATA") or beside)
    if not folder.is_dir():
        pytest.skip("PARQUET_TEST_DATA does not name a folder with the files of apache/parquet-testing")
    return folder


# A test asserts nothing about a clock, and an example takes longer where other tests run beside it.
hypothesis.settings.register_profile("without a clock", deadline=None)
hypothesis.settings.load_profile("without a clock")

# JVMs of tests live for a minute or two: to optimise their code for longer costs more than it brings.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "java" in getattr(item, "fixturenames", ()):
            item.add_marker("jvm")
            item.add_marker(pytest.mark.xdist_group("jvm"))  # one worker runs them all, so one JVM is started


def pytest_collection_finish() -> None:
    """Thousands of collected tests are looked through by each collection of garbage, unless it leaves them alone."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    gc.unfreeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A test's keyring is its own: neither the user's settings reach it and its fixtures, nor those that a Spark
    session has to keep in the environment for its workers.
    """
    if "spark" in item.path.relative_to(Path(__file__).parent).parts:
        return (yield)
    held = {name: os.environ.pop(name) for name in [*os.environ] if name.startswith("BLOOMSEAL_KEYRING")}
    try:
        return (yield)
    finally:
        os.environ.update(held)
