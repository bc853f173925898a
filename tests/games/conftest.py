"""A folder that everybody may write to, and somebody else who does."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from games.world import NOBODY, CoTenant, World, world
from support.signed_table import kept_table as kept_table
from support.signed_table import table as table


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that everybody may write to, as /tmp is: sticky."""
    folder = Path(tempfile.mkdtemp(prefix="bloomseal-shared-"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def me() -> CoTenant:
    found = CoTenant()
    assert found.run("id", "-u").stdout.strip() == str(NOBODY)
    return found


@pytest.fixture
def here(shared: Path) -> World:
    made = world(shared / "w")
    made.home.chmod(0o755)
    return made
