"""What is installed and what is shipped: hashed locks, a wheel with nothing else in it, the same bytes each time, no
network at import.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import bloomseal

ROOT = Path(__file__).parents[1]
LOCKS = sorted((ROOT / "requirements").glob("*.lock"))
_PACKAGES = ("bloomseal", "pyspark_bloomseal")


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_requirement_is_pinned_with_hashes_and_comes_from_nowhere_in_particular(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8")
    entries = [line for line in re.sub(r"\\\n\s*", " ", text).splitlines() if line and not line.startswith("#")]
    assert entries
    for entry in entries:
        assert re.match(r"[A-Za-z0-9._-]+(\[[\w,-]+\])?==\S+ ", entry), entry
        hashes = re.findall(r"--hash=(\S+)", entry)
        assert hashes, entry
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", one) for one in hashes), entry
    for word in ("://", "--index", "--extra-index", "--find-links", "--trusted-host", " @ ", "file:"):
        assert word not in text, f"{word} in {lock.name}"


def test_no_thrift_is_installed_that_decodes_nothing() -> None:
    """Older ones lay out their structs in another way: every file seems to be broken."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "thrift>=0.25" in project["dependencies"]


def test_smaller_locks_are_part_of_larger_ones() -> None:
    def pins(name: str) -> dict[str, str]:
        text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
        return dict(re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", text, re.MULTILINE))

    runtime, spark, dev = pins("runtime.lock"), pins("spark.lock"), pins("dev.lock")
    assert runtime.items() <= spark.items() <= dev.items()


def _built(project: Path, out: Path) -> Path:
    # The clock and the place are two things that must not get in; the build's own requirements are installed.
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    subprocess.run(command, cwd=project, env=environment, check=True, capture_output=True)
    (wheel,) = out.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Of this tree, and of a copy somewhere else with other times and another umask."""
    folder = tmp_path_factory.mktemp("wheels")
    copy = folder / "copy"
    copy.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copyfile(ROOT / name, copy / name)
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for path in copy.rglob("*"):
        os.utime(path, (1_600_000_000, 1_600_000_000))
        path.chmod(0o700 if path.is_dir() else 0o600)
    return _built(ROOT, folder / "here"), _built(copy, folder / "there")


def test_two_builds_have_one_digest(wheels: tuple[Path, Path]) -> None:
    first, second = (hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in wheels)
    assert first == second


def test_the_wheel_holds_the_packages_and_nothing_else(wheels: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(wheels[0]) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        entry_points = archive.read(next(name for name in names if name.endswith("entry_points.txt"))).decode()
        metadata = archive.read(next(name for name in names if name.endswith(".dist-info/METADATA"))).decode()
        held = {name: archive.read(name) for name in names}
    info = f"bloomseal-{bloomseal.__version__}.dist-info"
    assert {name.split("/")[0] for name in names} == {*_PACKAGES, info}
    tracked = {
        path.relative_to(ROOT / "src").as_posix()
        for package in _PACKAGES
        for path in (ROOT / "src" / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in names if not name.startswith(info)} == tracked
    assert {Path(name).suffix for name in tracked} <= {
        ".py",
        ".typed",
        ".java",
        ".jinja",
        ".html",
        ".css",
        ".toml",
        ".json",
    }
    assert "bloomseal/py.typed" in names
    assert any(name.startswith("bloomseal/spark/java/") and name.endswith(".java") for name in names)
    assert f"{info}/licenses/LICENSE" in names
    assert "bloomseal = bloomseal.cli.main:main" in entry_points
    assert f"Version: {bloomseal.__version__}" in metadata
    for name, content in held.items():
        assert not re.search(rb"-----BEGIN [A-Z ]*PRIVATE KEY|/(?:home|root|Users)/\w|\"keys\": \{\"(?!\$)", content), (
            name
        )


def test_no_import_asks_the_network_or_starts_a_process() -> None:
    """All modules, the optional ones too where their libraries are installed."""
    script = """
import importlib, pkgutil, sys
met = []
def hook(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.bind", "subprocess.Popen", "os.system", "os.fork"):
        met.append((event, sys._getframe(1).f_code.co_filename))
        raise RuntimeError("an import did " + event)
sys.addaudithook(hook)
import bloomseal
count = 0
for found in pkgutil.walk_packages(bloomseal.__path__, "bloomseal.", onerror=lambda name: None):
    if found.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(found.name)
    except bloomseal.MissingDependencyError:
        continue
    count += 1
print(count, met)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    count, _, met = done.stdout.strip().partition(" ")
    assert met == "[]"
    modules = sum(1 for path in (ROOT / "src" / "bloomseal").rglob("*.py"))
    assert int(count) > 0.7 * modules, (count, modules)
