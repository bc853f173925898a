"""The documentation site, as far as it shows without being built: `make docs` builds it, and checks every link."""

from __future__ import annotations

import importlib
import re
import runpy
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GENERATED = {"commands.md"}
PACKAGES = ("", ".audit", ".evidence", ".keytools", ".orc", ".rotation", ".spark", ".polars", ".duckdb")


def pages(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    else:
        for one in entry.values() if isinstance(entry, dict) else entry:
            yield from pages(one)


@pytest.fixture(scope="module")
def navigation() -> list[str]:
    return list(pages(tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]))


def test_the_navigation_leads_to_pages(navigation: list[str]) -> None:
    assert [page for page in navigation if not (DOCS / page).is_file() and page not in GENERATED] == []
    assert len(navigation) == len(set(navigation))


def test_every_page_is_reached_from_the_navigation(navigation: list[str]) -> None:
    waiting, reached = list(navigation), set(GENERATED)
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            links = re.findall(r"\]\(([^):#\s]+\.md)", (DOCS / page).read_text(encoding="utf-8"))
            linked = (((DOCS / page).parent / link).resolve() for link in links)
            waiting += [str(one.relative_to(DOCS)) for one in linked if one.is_relative_to(DOCS)]
    # Decisions are found by the search, too.
    assert {path for path in DOCS.rglob("*.md") if path.parent.name != "adr"} - {DOCS / one for one in reached} == set()


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=lambda path: path.name)
def test_no_link_leads_out_of_the_site(path: Path) -> None:
    """Beside the README a link to the repository works, on the site it does not."""
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)", path.read_text(encoding="utf-8"))
    assert [link for link in links if not (path.parent / link).resolve().is_relative_to(DOCS)] == []


def shown() -> list[str]:
    return [name for path in DOCS.rglob("*.md") for name in re.findall(r"(?m)^::: (\S+)", path.read_text("utf-8"))]


def test_the_reference_shows_what_there_is() -> None:
    """A page with another name, or with options in its line, is left out of the site."""
    lines = [line for path in DOCS.rglob("*.md") for line in path.read_text("utf-8").splitlines() if line[:4] == "::: "]
    assert [line for line in lines if line.count(" ") > 1] == []
    places = [name.rpartition(".") for name in shown()]
    assert [name for module, _, name in places if not hasattr(importlib.import_module(module), name)] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_stands_once_in_the_reference(package: str) -> None:
    names = importlib.import_module(f"bloomseal{package}").__all__
    assert [name for name in names if shown().count(f"bloomseal{package}.{name}") != 1] == []


@pytest.mark.parametrize("kind", ["page", "man"])
def test_every_command_and_option_is_on_the_page_and_in_the_manual(kind: str, tmp_path: Path) -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "commands.py"))
    tool["main"](kind, str(tmp_path / "out"))
    out = tmp_path / "out"
    found = 0
    for context in tool["commands"](click.Context(tool["cli"], info_name="bloomseal")):
        page = out / f"{context.command_path.replace(' ', '-')}.1" if kind == "man" else out
        text = page.read_text(encoding="utf-8").replace("\\-", "-")
        assert context.command_path in text
        for option in context.command.params:
            flags = [flag for flag in option.opts if flag.startswith("--")]
            assert all(re.search(rf"(?m)^(\.B |`).*{flag}\b", text) for flag in flags), (context.command_path, flags)
            found += len(flags)
    assert found > 100
