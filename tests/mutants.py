"""Mutation testing of the modules in ``mutants.toml``: ``make mutants MUTANTS="core/sbbf/encoding.py"``.

mutmut changes one expression at a time and runs the module's own tests on it. A mutant that they don't notice is either
explained in ``mutants.toml``, because nobody could notice it, or the run fails. The tables that are printed are those
of tests/mutants.md.

Each module has a folder of its own in ``--work``, outside of the repository. A run goes on from what it finds there;
``--survivors`` asks only those again that survived, after new tests were written.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parents[1]
_CONFIG = Path(__file__).with_suffix(".toml")
_KILLED = {"killed", "timeout", "segfault", "suspicious"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", help="below src/bloomseal; default: all of mutants.toml")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "bloomseal-mutation-testing")
    parser.add_argument("--survivors", action="store_true", help="only those that survived the run before")
    parser.add_argument("--report", action="store_true", help="run nothing; tell what is known")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    given = parser.parse_args()
    config = tomllib.loads(_CONFIG.read_text())
    known = {module["path"]: module for module in config["module"]}
    if unknown := set(given.modules) - known.keys():
        parser.error(f"not in {_CONFIG.name}: {', '.join(sorted(unknown))}")
    tables = [_Module(known[path], config, given.work) for path in given.modules or known]
    for module in tables:
        if not given.report:
            module.run(given.processes, given.survivors)
    print("| module | mutants | killed | survived, explained | survived |\n|---|---|---|---|---|")
    left: list[str] = []
    for module in tables:
        counts, unexplained = module.told()
        left += unexplained
        explained = counts["survived"] - len(unexplained)
        print(f"| `{module.path}` | {counts.total()} | {counts['killed']} | {explained} | {len(unexplained)} |")
    print("\n| place | was | is | why nobody can notice it |\n|---|---|---|---|")
    for one in config["equivalent"]:
        if one["path"] in {module.path for module in tables}:
            print(f"| `{one['path']}` | `{one['was']}` | `… {one['now'].strip() or '(gone)'} …` | {one['why']} |")
    print("\n" + "\n".join(left))
    return 1 if left else 0


class _Module:
    """A module, and the folder in which it is mutated."""

    def __init__(self, settings: dict[str, Any], config: dict[str, Any], work: Path) -> None:
        self.path: str = settings["path"]
        self._tests: list[str] = settings["tests"]
        self._equivalent = [one for one in config["equivalent"] if one["path"] == self.path]
        self._skip: list[str] = config["skip"]["lines"]
        self._folder = work.resolve() / self.path.replace("/", ".").removesuffix(".py")

    def run(self, processes: int, only_survivors: bool) -> None:
        folder = self._folder
        folder.mkdir(parents=True, exist_ok=True)
        names = [name for name, status in self._statuses().items() if status not in _KILLED] if only_survivors else []
        if only_survivors and not names:
            return
        for part in ("src", "tests"):
            shutil.rmtree(folder / part, ignore_errors=True)
            shutil.copytree(_HERE / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
            shutil.rmtree(folder / "mutants" / "tests", ignore_errors=True)
        settings = {
            "source_paths": ["src"],
            "only_mutate": [f"src/bloomseal/{self.path}"],
            "do_not_mutate_patterns": self._skip,
            "pytest_add_cli_args_test_selection": self._tests,
            "pytest_add_cli_args": ["-x", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"],
            "track_dependencies": False,
            "use_git_change_detection": False,
        }
        # The lists and texts of JSON are those of TOML.
        lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
        project = (_HERE / "pyproject.toml").read_text()
        (folder / "pyproject.toml").write_text(project + "\n[tool.mutmut]\n" + "\n".join(lines) + "\n")
        print(f"{self.path} …", flush=True)
        done = self._mutmut("run", "--max-children", str(processes), *names)
        if done.returncode:
            raise SystemExit(done.stdout[-3000:] + done.stderr[-3000:])

    def told(self) -> tuple[Counter[str], list[str]]:
        """How many were killed and survived; and the changes of those that nobody explains."""
        counts, unexplained = Counter[str](), []
        for name, status in self._statuses().items():
            if status in _KILLED:
                counts["killed"] += 1
                continue
            counts["survived"] += 1
            shown = self._mutmut("show", name).stdout
            changed = [line for line in shown.splitlines() if re.match(r"[-+](?![-+]{2} )", line)]
            was, now = (" ".join(line[1:].strip() for line in changed if line[0] == sign) for sign in "-+")
            if not any(one["was"] in was and one["now"] in now for one in self._equivalent):
                unexplained.append(f"{self.path} ({status}, {name})\n  - {was}\n  + {now}")
        return counts, unexplained

    def _statuses(self) -> dict[str, str]:
        if not (self._folder / "mutants").is_dir():
            return {}
        lines = self._mutmut("results", "--all", "true").stdout.splitlines()
        return dict(line.strip().split(": ", 1) for line in lines if ": " in line)

    def _mutmut(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "mutmut", *arguments]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(command, cwd=self._folder, env=environment, capture_output=True, text=True)


if __name__ == "__main__":
    sys.exit(main())
