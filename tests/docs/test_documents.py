"""The documents run: fenced python and sh blocks in their order, in a folder of their own; a text block behind one is
its output.

In an expected output ``...`` stands for anything within a line, and for any lines where it is one. Runs of spaces,
empty lines and the rules of tables do not count. ``no-run`` behind the language leaves a block out.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bloomseal.cli.main import cli

ROOT = Path(__file__).parents[2]
RUNNING = [
    "README.md",
    "docs/start.md",
    "docs/cli.md",
    "docs/format-walkthrough.md",
    "docs/sealed-index.md",
    "docs/compact.md",
    "docs/erase.md",
    "docs/recipes.md",
    "docs/polars.md",
    "docs/duckdb.md",
    "docs/evidence.md",
    "docs/threat-model.md",
    "docs/limitations.md",
    "docs/orc.md",
    "docs/architecture.md",
    "docs/policy.md",
    "docs/partner.md",
    "docs/recipients.md",
    "docs/iceberg-walkthrough.md",
]
ALL = [
    *RUNNING,
    "SECURITY.md",
    "docs/contributing.md",
    "CHANGELOG.md",
    "docs/core.md",
    "docs/faq.md",
    "docs/glossary.md",
    "docs/upgrades.md",
    "docs/benchmarks.md",
    "docs/index.md",
    "docs/errors.md",
    "docs/policy-keys.md",
    "docs/schedulers.md",
    "docs/ci.md",
    "docs/docker.md",
    *(f"docs/adr/{path.name}" for path in sorted((ROOT / "docs/adr").glob("*.md"))),
]
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)(?:#[^)]*)?\)")


@dataclass
class Block:
    line: int
    language: str
    body: str
    expected: str | None = None


def blocks(text: str) -> Iterator[Block]:
    """What runs, each with the output that stands behind it."""
    found: list[Block] = []
    for match in FENCE.finditer(text):
        language, _, rest = match["info"].strip().partition(" ")
        block = Block(text.count("\n", 0, match.start()) + 1, language, match["body"])
        if language == "text" and found and rest != "no-run":
            found[-1].expected = block.body
        elif language in ("python", "sh") and rest != "no-run":
            found.append(block)
    yield from found


def lines(text: str) -> list[str]:
    listed = (" ".join(line.split()) for line in text.splitlines())
    return [line for line in listed if line.strip("─ ")]


def matches(expected: str, printed: str) -> bool:
    parts = [
        "(?:.*\n)*" if line == "..." else ".*".join(map(re.escape, line.split("..."))) + "\n"
        for line in lines(expected)
    ]
    return re.fullmatch("".join(parts), "".join(f"{line}\n" for line in lines(printed))) is not None


def run_python(block: Block, document: str, names: dict[str, Any]) -> str:
    out = io.StringIO()
    # Blank lines put the code where it stands, so that a traceback names the document's line.
    code = compile("\n" * block.line + block.body, document, "exec")
    with contextlib.redirect_stdout(out):
        exec(code, names)  # noqa: S102 - the documents are ours
    return out.getvalue()


def run_shell(block: Block, document: str, patch: pytest.MonkeyPatch) -> str:
    """Run it; what it exports of ours holds in the blocks behind it."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    left, right = os.pipe()
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"trap 'env -0 | grep -z ^BLOOMSEAL_ >&{right} || true' EXIT\n{block.body}"], pass_fds=[right],
        capture_output=True, text=True, timeout=300, env={**os.environ, "PATH": path},
    )  # fmt: skip
    os.close(right)
    with open(left, encoding="utf-8") as exported:
        for name, _, value in (one.partition("=") for one in exported.read().split("\0") if one):
            patch.setenv(name, value)
    assert done.returncode == 0, f"{document}:{block.line}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("document", RUNNING)
def test_the_document_runs(
    document: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
    for name in [name for name in os.environ if name.startswith("BLOOMSEAL_")]:
        monkeypatch.delenv(name)
    (tmp_path / "iceberg.tar.xz").symlink_to(ROOT / "tests/vectors/iceberg.tar.xz")
    names: dict[str, Any] = {"__name__": document}
    for block in blocks((ROOT / document).read_text(encoding="utf-8")):
        out = (
            run_python(block, document, names)
            if block.language == "python"
            else run_shell(block, document, monkeypatch)
        )
        if block.expected is not None and not matches(block.expected, out):
            pytest.fail(f"{document}:{block.line} printed\n{out}")


def test_matching_can_fail() -> None:
    assert matches("a ... c\n...\nend\n", "a b  c\n───\n\nx\ny\nend\n")
    assert matches("...\nend", "end")
    assert not matches("a\nb\n", "a\n")
    assert not matches("a\n", "a\nb\n")
    assert not matches("a ... c\n", "a b d\n")


@pytest.mark.parametrize("document", ["README.md", "docs/cli.md", "docs/format-walkthrough.md", "docs/recipes.md"])
def test_the_document_has_something_to_run(document: str) -> None:
    found = list(blocks((ROOT / document).read_text(encoding="utf-8")))
    assert len(found) >= 4
    assert sum(block.expected is not None for block in found) >= 2


@pytest.mark.parametrize("document", ALL)
def test_links_lead_somewhere(document: str) -> None:
    path = ROOT / document
    broken = [link for link in LINK.findall(path.read_text(encoding="utf-8")) if not (path.parent / link).exists()]
    assert not broken


@pytest.mark.parametrize("name", cli.list_commands(None))  # type: ignore[arg-type]
def test_the_command_and_its_options_are_documented(name: str) -> None:
    text = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    command = cli.get_command(None, name)  # type: ignore[arg-type]
    assert command is not None
    assert re.search(rf"^## (.*, )?{name}\b", text, re.MULTILINE)
    commands = [command, *getattr(command, "commands", {}).values()]
    spellings = {
        spelling for one in commands for option in one.params for spelling in option.opts if spelling.startswith("--")
    }
    assert spellings
    assert [
        spelling for spelling in sorted(spellings) if f"`{spelling}" not in text and f" {spelling}`" not in text
    ] == []


def test_every_error_is_documented() -> None:
    import bloomseal

    text = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
    for name in bloomseal.__all__:
        if name.endswith("Error"):
            assert f"`{name}`" in text


@pytest.mark.parametrize(
    "document", [*ALL, *(f"docs/{name}.md" for name in ("kms", "rotation", "spark", "spark-reference"))]
)
def test_prose_keeps_to_its_measure(document: str) -> None:
    """Tables and code may be wider: they can't be wrapped."""
    prose = FENCE.sub(lambda found: "\n" * found[0].count("\n"), (ROOT / document).read_text(encoding="utf-8"))
    lines = enumerate(prose.splitlines(), 1)
    assert [number for number, line in lines if len(line) > 120 and not line.startswith("|")] == []


PATH_OR_TEST = re.compile(r"`((?:[\w-]+/)*\w+\.(?:py|java))(?::\w+)?`|`(test_\w+?)_?(?:…|`)")
"""`storage/folder.py`, or a test, whose long name may be cut off."""


@pytest.fixture(scope="module")
def files() -> list[str]:
    return [f"/{path.relative_to(ROOT)}" for room in ("src", "tests", "bench") for path in (ROOT / room).rglob("*.*")]


@pytest.fixture(scope="module")
def tests_of_ours() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))


@pytest.mark.parametrize(
    "document",
    ["README.md", "SECURITY.md", *(f"docs/{one.name}" for one in (ROOT / "docs").glob("*.md"))],
)
def test_the_files_and_tests_that_it_names_exist(document: str, files: list[str], tests_of_ours: str) -> None:
    """A check that a reader can't find proves nothing. Decisions of old name what has gone since."""
    gone = []
    for path, test in PATH_OR_TEST.findall((ROOT / document).read_text(encoding="utf-8")):
        known = any(one.endswith(f"/{path}") for one in files) if path else f"def {test}" in tests_of_ours
        if not known and not (test and any(f"/{test}.py" in one for one in files)):
            gone.append(path or test)
    assert gone == []
