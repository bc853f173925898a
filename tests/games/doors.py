"""Every public door of the honest side, asked everything about a table that somebody had his hands on."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import bloomseal as bs
from bloomseal.audit import audit
from bloomseal.rotation import Rekey, Rewrap, Seal, Unseal, rotate
from games.world import COLUMNS, FILTERS, TENANTS, TRUTH, World, rows

__all__ = ["READING", "WRITING", "play"]

Answer = str
RIGHT, REFUSED = "right", "refused"


def _same(found: pa.Table, wanted: pa.Table = TRUTH) -> Answer:
    found, wanted = (one.select(COLUMNS).sort_by("ssn") for one in (found, wanted))
    assert found.to_pydict() == wanted.to_pydict(), "a wrong answer"
    return RIGHT


def _read(world: World) -> Answer:
    return _same(bs.read_table(world.root, columns=list(COLUMNS), decryption=world.policy()))


def _scan(world: World) -> Answer:
    table = bs.open_table(world.root, decryption=world.policy())
    return _same(table.scan(list(COLUMNS)).read_all())


def _where(world: World) -> Answer:
    policy = world.policy()
    for column, row in (("ssn", 5), ("illness", 17), ("n", 2)):
        value = TRUTH[column][row].as_py()
        found = bs.read_table(world.root, where=[(column, "==", value)], decryption=policy)
        _same(found, TRUTH.slice(row, 1))
    return RIGHT


def _probe(world: World) -> Answer:
    policy = world.policy()
    for column in COLUMNS:
        found = bs.probe(world.root, column, TRUTH[column], decryption=policy)
        for position, value in enumerate(TRUTH[column].to_pylist()):
            said = [group[position] for groups in found.values() for group in groups]
            assert any(verdict is not bs.Verdict.ABSENT for verdict in said), f"a false absent of {value}"
    return RIGHT


def _maybe_present(world: World) -> Answer:
    policy = world.policy()
    for column in COLUMNS:
        found = bs.open_table(world.root, decryption=policy).maybe_present(column, TRUTH[column])
        assert found.any(axis=0).all(), "a false absent"
    return RIGHT


def _single(world: World) -> Answer:
    """Each file by its own name."""
    policy = world.policy()
    for tenant in TENANTS:
        with bs.open_file(world.root / f"tenant={tenant}/part-0.parquet", decryption=policy) as file:
            _same(file.read(list(COLUMNS)), rows(tenant))
    return RIGHT


def _verify(world: World) -> Answer:
    report = bs.verify(world.root, decryption=world.policy())
    return RIGHT if report.ok and report.complete else REFUSED


def _audit(world: World) -> Answer:
    """Never raises; what it could not verify it does not call verified."""
    report = audit(world.root, keys=world.policy().keys, policy=world.policy())
    table = report.inventory
    bad = [one for one in report.findings if one.rule.id in _TELLING]
    verified = set(table["footer_verified"].to_pylist())
    return RIGHT if not bad and verified == {True} and not report.unseen else REFUSED


_TELLING = {"BS101", "BS102", "BS111", "BS114", "BS201", "BS202", "BS203", "BS204", "BS206", "BS208", "BS303", "BS308",
            "BS309", "BS310", "BS312", "BS315"}  # fmt: skip

READING: dict[str, Callable[[World], Answer]] = {
    "read": _read,
    "scan": _scan,
    "read by filter": _where,
    "probe": _probe,
    "maybe_present": _maybe_present,
    "open_file": _single,
    "verify": _verify,
    "audit": _audit,
}


def _attach(world: World) -> None:
    bs.attach_filters(world.root, FILTERS, decryption=world.policy())


def _job(job: Callable[[World], Any]) -> Callable[[World], None]:
    def run(world: World) -> None:
        rotate(world.root, job(world), journal=world.home / "journal.jsonl")

    return run


def _unsealed(world: World) -> None:
    out = world.home / "clear"
    rotate(world.root, Unseal(world.policy(), output=str(out)), journal=world.home / "journal.jsonl")
    for path in out.rglob("*.parquet") if out.exists() else []:
        _same(bs.read_table(path), rows(path.parent.name.removeprefix("tenant=")))


WRITING: dict[str, Callable[[World], None]] = {
    "attach": _attach,
    "rekey": _job(lambda world: Rekey(world.policy(), world.policy())),
    "rewrap": _job(lambda world: Rewrap(world.policy())),
    "seal": _job(lambda world: Seal(world.policy())),
    "unseal": _unsealed,
}


def _asked(door: Callable[[World], Any], world: World, name: str) -> Answer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bs.BloomsealWarning)
        try:
            return str(door(world))
        except bs.BloomsealError:
            return REFUSED
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


def play(world: World, scratch: Path, *, without: tuple[str, ...] = ()) -> dict[str, Answer]:
    """Ask the altered table through every door.

    Args:
        scratch: a folder for copies.
        without: doors that an honest limit leaves out; the test says which.

    Returns:
        Door → ``right`` or ``refused``. Of a door that writes: what the readers say afterwards, the worst of them.

    Raises:
        AssertionError: a wrong answer, by any door, or by a reader behind a door that writes.
    """
    told = {name: _asked(door, world, name) for name, door in READING.items() if name not in without}
    for name, door in WRITING.items():
        if name in without:
            continue
        copy = world.copy(scratch / name)
        _asked(door, copy, name)
        told[name] = RIGHT
        for reader in ("read", "read by filter", "probe", "verify"):
            if reader not in without and _asked(READING[reader], copy, f"{reader} after {name}") == REFUSED:
                told[name] = REFUSED
        shutil.rmtree(copy.home)
    return told
