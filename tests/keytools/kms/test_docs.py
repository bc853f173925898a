"""The snippets of docs/kms.md, run in the order in which they stand there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import bloomseal as bs
from bloomseal.keytools.kms import registry
from support.kms_conformance import CHECKS, KmsClientConformance

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "kms.md").read_text("utf-8")


def snippets(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that the snippets have defined."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_registered", {})
    names: dict[str, Any] = {"__name__": "docs"}
    for number, snippet in enumerate(snippets("python"), 1):
        exec(compile(snippet, f"docs/kms.md, snippet {number}", "exec"), names)  # noqa: S102
    return names


def test_the_snippets_run(run: dict[str, Any], tmp_path: Path) -> None:
    assert len(snippets("python")) == 4
    assert bs.open_file(tmp_path / "people.parquet", decryption=bs.DecryptionSpec("folder:masters")).verify().ok


@pytest.mark.parametrize("check", [check.name for check in CHECKS])
def test_the_example_client_conforms(run: dict[str, Any], check: str) -> None:
    class FolderConformance(KmsClientConformance):
        master_key, other_master_key = "pii", "health"

        def make_client(self) -> Any:
            return run["FolderKms"]("masters")

    getattr(FolderConformance(), f"test_{check}")()


@pytest.mark.parametrize("name", ["../keys", "a/b", "", ".", "x\0y", "pii "])
def test_the_example_client_stays_in_its_folder(run: dict[str, Any], name: str) -> None:
    with pytest.raises(bs.KeyAccessError, match="knows no master key"):
        run["FolderKms"]("masters").wrap_key(b"k" * 16, name)


def test_the_entry_point_group_is_the_one_that_is_read() -> None:
    (snippet,) = snippets("toml")
    assert list(tomllib.loads(snippet)["project"]["entry-points"]) == [registry.ENTRY_POINTS]


def test_the_page_names_every_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    # Other tests of the same process may have registered clients, or installed some.
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(registry, "entry_points", lambda **_: ())
    schemes = set(registry.schemes()) - {"recipients"}  # made of a policy, and named by nobody
    assert len(schemes) == 7
    for scheme in schemes:
        assert f"`{scheme}:" in PAGE, scheme


def test_the_links_lead_somewhere() -> None:
    titles = re.findall(r"^#+ (.*)$", PAGE, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles}
    for anchor in re.findall(r"\]\(#([^)]*)\)", PAGE):
        assert anchor in anchors
