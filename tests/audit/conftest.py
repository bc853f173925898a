from __future__ import annotations

from pathlib import Path

import pytest

from audit.lab import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)
