"""A thousand of many people are erased: nobody else's row is lost, nulls included, and neither a scan nor the index
finds one of them afterwards. Killed at random moments, the same command goes on.

``bloomseal erase`` and ``SealedTable.erase``; docs/erase.md.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner

import bloomseal as bs
from bloomseal.cli.main import cli
from bloomseal.policy import TablePolicy
from crash.faults import Fault, Kind, Storage

_fork = multiprocessing.get_context("fork")
FILES = 8
POLICY = """
version = 1
kms = "keyring:keys.json"
[tables.people]
footer_key = "footer"
aad_prefix = "{table}/{path}/"
store_aad_prefix = false
complete = true
[tables.people.columns.email]
key = "pii"
filter = true
index = true
"""


def address(person: int) -> str | None:
    """Every ninth has none."""
    return None if person % 9 == 0 else f"p{person * 7919 % 1_000_003}@example.org"


def people_of(number: int, rows: int) -> pa.Table:
    ids = range(number * rows, (number + 1) * rows)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "email": [address(i) for i in ids],
            "tags": pa.array([None if i % 5 == 0 else [f"t{i % 11}"] * (i % 3) for i in ids], pa.list_(pa.string())),
            "city": pa.array([f"c{i % 50}" for i in ids]).dictionary_encode(),
        }
    )


class Lake:
    """A sealed table with an index, and who is to be erased from it.

    Attributes:
        gone: their addresses, in ``ids.txt``.
        left: ids of everybody else.
    """

    def __init__(self, place: Path, people: int, erased: int) -> None:
        self.place = place
        ring = bs.Keyring(place / "keys.json", create=True)
        for name in ("footer", "pii"):
            ring.create(name)
        (place / "policy.toml").write_text(POLICY)
        (place / "lake").mkdir()
        rows = people // FILES
        for number in range(FILES):
            path = place / "lake" / f"{number}.parquet"
            bs.write_table(people_of(number, rows), path, encryption=policy_of(place), row_group_size=rows // 4 + 1)
        chosen = random.Random(1).sample([i for i in range(people) if i % 9], erased - rows)
        # Nobody is left of the third file but those without an address.
        chosen += [i for i in range(2 * rows, 3 * rows) if i % 9]
        self.gone = {str(address(i)) for i in chosen}
        self.left = [i for i in range(people) if address(i) not in self.gone]
        (place / "ids.txt").write_text("\n".join(sorted(self.gone)))

    def copy(self, place: Path) -> Path:
        shutil.copytree(self.place, place)
        index = bs.open_table(place / "lake", decryption=policy_of(place)).index("email")
        index.update() if index.exists else index.build()
        return place


def policy_of(place: Path) -> TablePolicy:
    policy = bs.Policy.load(place / "policy.toml", kms=bs.Keyring(place / "keys.json"))
    return policy.for_table("people", root=place / "lake")


def command(place: Path, *more: str) -> list[str]:
    opened = ["--policy", str(place / "policy.toml"), "--table", "people"]
    where = ["--where-in", f"email={place / 'ids.txt'}", "--journal", str(place / "journal.jsonl")]
    return ["erase", str(place / "lake"), *opened, *where, "--format", "json", *more]


def run_to(place: Path, fault: Fault) -> tuple[int | None, int]:
    """The command in a process of its own: its exit code, and how many calls of the storage it made."""
    calls = _fork.Value("i", 0)

    def child() -> None:
        storage = Storage(fault)
        storage.install(str(place))
        found = CliRunner().invoke(cli, command(place))
        calls.value = storage.calls
        os._exit(found.exit_code)

    process = _fork.Process(target=child)
    process.start()
    process.join(300)
    return process.exitcode, calls.value


def check(place: Path, lake: Lake, told: dict[str, Any]) -> None:
    table = bs.open_table(place / "lake", decryption=policy_of(place))
    found = table.read().sort_by("id")
    assert found["id"].to_pylist() == lake.left
    rows = pa.concat_tables([people_of(number, len_of(lake)) for number in range(FILES)])
    expected = rows.filter(pc.is_in(rows["id"], pa.array(lake.left)))
    assert found.drop_columns("city").equals(expected.drop_columns("city"))
    assert found["city"].to_pylist() == expected["city"].to_pylist()
    assert found["email"].null_count == rows["email"].null_count
    wanted = [("email", "in", sorted(lake.gone))]
    assert (
        bs.open_table(place / "lake", decryption=policy_of(place), use_index="never").read(where=wanted).num_rows == 0
    )
    asked = bs.open_table(place / "lake", decryption=policy_of(place), use_index="require")
    assert asked.read(where=wanted).num_rows == 0
    assert table.index("email").check().ok
    report = table.verify(filters=True)
    assert report.ok
    assert told["rows"] == len(lake.gone)
    assert [one.name for one in (place / "lake").glob(".*bloomseal-tmp")] == []
    said = json.dumps(told) + (place / "journal.jsonl").read_text()
    assert "example.org" not in said


def len_of(lake: Lake) -> int:
    return (len(lake.left) + len(lake.gone)) // FILES


def goes_on(place: Path, lake: Lake) -> None:
    done = CliRunner().invoke(cli, command(place))
    assert done.exit_code == 0, done.output
    check(place, lake, json.loads(done.stdout))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake(tmp_path_factory.mktemp("people"), 16_000, 2_200)


def test_nobody_else_is_lost(lake: Lake, tmp_path: Path) -> None:
    place = lake.copy(tmp_path / "copy")
    planned = CliRunner().invoke(cli, command(place, "--dry-run"))
    assert json.loads(planned.stdout)["rows"] == len(lake.gone)
    goes_on(place, lake)
    again = json.loads(CliRunner().invoke(cli, command(place)).stdout)
    assert (again["rows"], again["counts"]) == (0, {})


def killed_at(lake: Lake, tmp_path: Path, kills: int) -> None:
    code, calls = run_to(lake.copy(tmp_path / "counted"), Fault(None))
    assert code == 0
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    chance, killed = random.Random(seed), 0
    for number in range(kills):
        place = lake.copy(tmp_path / f"kill {number}")
        kind = chance.choice([Kind.KILL_BEFORE, Kind.KILL_AFTER])
        code, _ = run_to(place, Fault(kind, chance.randrange(calls * 3 // 4)))
        assert code in (0, -signal.SIGKILL)  # two threads call the storage a little more or less often each time
        killed += code != 0
        if code:
            goes_on(place, lake)
        shutil.rmtree(place)
    assert killed > kills // 2


def test_killed_at_random_moments_it_goes_on(lake: Lake, tmp_path: Path) -> None:
    killed_at(lake, tmp_path, 3)


@pytest.mark.torture
@pytest.mark.timeout(7200)
def test_a_thousand_of_a_million_killed_twenty_times(tmp_path: Path) -> None:
    (tmp_path / "people").mkdir()
    whole = Lake(tmp_path / "people", 1_000_000, 126_000)
    killed_at(whole, tmp_path, 20)
