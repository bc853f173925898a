"""The published vectors of encrypted Iceberg tables."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

PACKED = Path(__file__).parents[1] / "vectors" / "iceberg.tar.xz"


def expected() -> dict[str, dict[str, Any]]:
    """Name of a table → what it must give."""
    with tarfile.open(PACKED) as packed:
        files = [packed.extractfile(one) for one in packed.getmembers() if one.name.endswith(".expected.json")]
        return {one["name"]: one for file in files if file is not None for one in [json.load(file)]}
