"""The table of games in docs/threat-model.md names tests that exist, and every game of this room."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROLES = {
    "storage writer", "reader of another column", "footer-only holder", "catalog writer", "co-tenant of the host",
    "KMS operator", "seized writer", "policy's writer", "somebody with an old copy",
    "writer who is no signer", "former signer", "reader of a signed table", "storage writer of a signed table",
    "seized executor",
}  # fmt: skip
# Of the game's own machinery.
_NOT_GAMES = {
    "test_nobody_attacks_and_every_door_answers", "test_an_honest_entry_is_read",
    "test_nobody_attacks_an_encrypted_iceberg_table",
}  # fmt: skip


def rows() -> list[list[str]]:
    text = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
    section = text.split("\n## Games\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def defined(folder: Path) -> set[str]:
    files = [file for file in sorted(folder.rglob("test_*.py")) if file != Path(__file__)]
    return {name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text("utf-8"), re.MULTILINE)}


def test_every_role_wants_something_and_every_row_has_its_test() -> None:
    table = rows()
    assert all(len(row) == 4 for row in table)
    assert {row[0] for row in table} - {""} == ROLES
    everywhere, own = defined(ROOT / "tests"), defined(Path(__file__).parent)
    for role, goal, stops, tests in table:
        names = re.findall(r"`(test_\w+)`", tests)
        assert names, (role, goal)
        assert stops, goal
        for name in names:
            assert name in (everywhere if "in `tests/" in tests else own), name


def test_every_game_is_in_the_table() -> None:
    listed = {name for row in rows() for name in re.findall(r"`(test_\w+)`", row[3])}
    mine = defined(Path(__file__).parent) - _NOT_GAMES
    assert mine <= listed, mine - listed


def test_every_test_that_the_threat_model_names_exists() -> None:
    text = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
    everywhere = defined(ROOT / "tests")
    for name in re.findall(r"`(test_\w+_\w+)(…?)`", text):
        assert any(one == name[0] or (name[1] and one.startswith(name[0])) for one in everywhere), name
