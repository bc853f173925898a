"""The core is what a reviewer reads in a day: it imports nothing of Bloomseal but itself, and has a ceiling."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import bloomseal.core

CORE = Path(bloomseal.core.__file__).parent
PACKAGE = CORE.parent
CEILING = 8_000
"""Lines of the core, and of what Python runs to import it: the package's own ``__init__`` and its lazy names."""
BESIDES = ["__init__.py", "_lazy.py", "_version.py"]
BY_NAME = {"import_module", "__import__", "exec", "eval", "run_module", "run_path", "spec_from_file_location"}
FILES = sorted(CORE.rglob("*.py"))


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Every module that a file imports, at its head, within functions, and for type checkers alone."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = list(path.relative_to(PACKAGE.parent).parts[: -node.level]) if node.level else []
            yield node.lineno, ".".join([*base, *([node.module] if node.module else [])])


def test_the_core_imports_nothing_of_bloomseal_but_itself() -> None:
    found = [
        f"{path.relative_to(CORE)}:{line} {module}"
        for path in FILES
        for line, module in imported(path)
        if module.split(".")[0] in ("bloomseal", "pyspark_bloomseal") and module.split(".")[:2] != ["bloomseal", "core"]
    ]
    assert found == []


def test_the_core_imports_nothing_by_name() -> None:
    found = [
        f"{path.relative_to(CORE)}:{node.lineno}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.Name) and node.id in BY_NAME)
        or (isinstance(node, ast.Attribute) and node.attr in BY_NAME)
    ]
    assert found == []


def test_the_core_stays_below_its_ceiling() -> None:
    files = [*FILES, *(PACKAGE / name for name in BESIDES)]
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files) <= CEILING


def test_importing_all_of_the_core_loads_nothing_else_of_bloomseal() -> None:
    modules = [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in FILES]
    code = f"""
import importlib, sys
for name in {modules!r}:
    importlib.import_module(name.removesuffix(".__init__"))
print([name for name in sys.modules if name.split(".")[0] == "bloomseal" and name.split(".")[1:2] != ["core"]])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(ast.literal_eval(done.stdout)) == {"bloomseal", "bloomseal._lazy", "bloomseal._version"}
