"""What the crash tests run in a process of its own, to be killed."""

from __future__ import annotations

import bloomseal as bs
from bloomseal.rotation import Rekey, Rewrap, rotate
from bloomseal.rotation.job import Job
from support.rotation_tables import TO_FIRST, TO_SECOND, reading

STEPS = ("rekey", "rewrap to the second keys", "rekey", "rewrap to the first keys")


def job(step: int, ring: bs.Keyring) -> Job:
    """One rotation after another, over and over."""
    match step % len(STEPS):
        case 1:
            return Rewrap(reading(ring), TO_SECOND)
        case 3:
            return Rewrap(reading(ring), TO_FIRST)
        case _:
            return Rekey(reading(ring))


def run(table: str, keys: str, journal: str, step: int) -> None:
    """Exits with 0 only if every file came out well."""
    report = rotate(table, job(step, bs.Keyring(keys)), journal=journal, jobs=3)
    raise SystemExit(0 if report.ok else 3)
