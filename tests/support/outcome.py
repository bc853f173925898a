"""What a command line answered."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest


@dataclass
class Outcome:
    """What a run answered."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))

    @property
    def rows(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]
