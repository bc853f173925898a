"""docs/rotation.md: its snippets, run in the order in which they stand there, and its links."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "rotation.md").read_text("utf-8")
SNIPPET = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_snippets_run(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("BLOOMSEAL_")}
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    env["XDG_STATE_HOME"] = str(tmp_path / "state")
    found = SNIPPET.findall(PAGE)
    assert len(found) >= 10
    for language, snippet in found:
        command = ["bash", "-euo", "pipefail", "-c", snippet] if language == "sh" else [sys.executable, "-c", snippet]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, f"{snippet}\n{done.stdout}{done.stderr}"
        if "contact --dry-run" in snippet:
            assert done.stdout.count("none") == 2, "nothing names the old key any more"
    assert '"rewrapped": 2' in (tmp_path / "report.json").read_text()


def test_the_links_lead_somewhere() -> None:
    titles = re.findall(r"^#+ (.*)$", PAGE, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles}
    for anchor in re.findall(r"\]\(#([^)]*)\)", PAGE):
        assert anchor in anchors, anchor
    for target in re.findall(r"\]\(([^)#:]+)\)", PAGE):
        assert (ROOT / "docs" / target).exists(), target


@pytest.mark.parametrize("command", ["rewrap", "rekey", "seal", "unseal"])
def test_every_option_on_the_page_exists(command: str) -> None:
    from bloomseal.cli.commands.rotate import rekey, rewrap, seal, unseal

    made = {"rewrap": rewrap, "rekey": rekey, "seal": seal, "unseal": unseal}[command]
    known = {spelling for one in made.params for spelling in (*one.opts, *one.secondary_opts)}
    for line in re.findall(rf"bloomseal {command} ([^\n`]*)", PAGE):
        assert set(re.findall(r"--[a-z-]+", line)) <= known, line
