"""What recipients and signatures cost: beside the same writes and look-ups with a symmetric master key."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import bloomseal as bs
from bloomseal.keytools.signatures.keys import PublicKey
from bloomseal.policy import TablePolicy

from .. import data
from ..timing import Ceiling, Comparison, Contender, Goal, Timed
from ..workspace import Workspace, row

_FILES: Final = 20
"""Files of a few rows, over which what one file takes is averaged."""


class _Authors:
    """A policy for each way to write, and for its reader."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.ring = bs.Keyring(folder / "keys.json", create=True)
        for name, kind in (("aes", "aes"), ("hpke", "hpke"), ("x25519", "x25519"), ("author", "ed25519")):
            self.ring.create(name, kind=kind)
        self.line = PublicKey(self.ring.public_key("author")).line

    def policy(self, key: str, root: Path, *, signed: bool = False, reads: bool = False) -> TablePolicy:
        table = {"footer_key": key, "columns": {"ssn": {"key": key, "filter": True}, "email": {"key": key}}}
        table |= {"signers": {"author": self.line}} if signed else {}
        document: dict[str, Any] = {"version": 1, "tables": {"people": table}}
        if key != "aes":
            document["keys"] = {key: {"recipients": [self.ring.recipient(key)]}}
        found = bs.Policy.from_dict(document, kms=self.ring if reads or key == "aes" else None)
        made = found.for_table("people", root=root)
        return dataclasses.replace(made, signer=bs.evidence.KmsSigner.at(self.ring, "author") if signed else None)


@row("authors")
def authors(work: Workspace) -> Iterator[Comparison]:
    """Recipients and signatures: writing, and looking up, beside a symmetric master key."""
    kinds = {
        "a symmetric master key": ("aes", False), "recipients": ("hpke", False), "a signature": ("aes", True),
        "both": ("hpke", True),
    }  # fmt: skip
    made = _Authors(work.path("authors"))
    root, table = work.path("authors") / "people", work.table.slice(0, 1_000_000)
    root.mkdir()

    def write(key: str, signed: bool, rows: Any = table, name: str = "one") -> None:
        policy = made.policy(key, root, signed=signed)
        bs.write_table(rows, root / f"{name}-{key}-{signed}.parquet", policy=policy, row_group_size=work.size.row_group)

    base = "a symmetric master key"
    yield Comparison(
        f"write {table.num_rows:,} rows for recipients, and signed",
        [
            Contender(name, lambda key=key, signed=signed: write(key, signed), ours=True)
            for name, (key, signed) in kinds.items()
        ],
        [Goal(name, base, 1.05, True, f"{name}: at most 1.05 times {base}") for name in kinds if name != base],
        repetitions=work.size.repetitions,
    )

    few = work.table.slice(0, 100)
    for signed in (False, True):
        for number in range(_FILES):
            for key in ("aes", "hpke"):
                write(key, signed, few, f"few-{number}")

    def more(one: Callable[[int], object], other: Callable[[int], object]) -> Timed:
        """Median seconds that one takes longer than the other, of neighbours."""
        return Timed(statistics.median(_seconds(one, number) - _seconds(other, number) for number in range(_FILES)))

    def small(key: str, signed: bool) -> Callable[[int], object]:
        return lambda number: write(key, signed, few, f"new-{number}")

    plain = small("aes", False)
    yield Comparison(
        "write one more file: seconds on top of a symmetric master key",
        [
            Contender(name, lambda key=key, signed=signed: more(small(key, signed), plain), ours=True)
            for name, (key, signed) in kinds.items()
            if name != base
        ],
        [Ceiling("both", 0.003, "at most 3 ms a file")],
        note="A signature is one more file to sync, and its name: on a disk, that comes on top.",
        repetitions=work.size.short_repetitions,
    )

    def look_up(key: str, signed: bool) -> Callable[[int], object]:
        policy = made.policy(key, root, signed=signed, reads=True)
        where = f"ssn = '{data.ssn(7)}'"
        return lambda number: bs.read_table(root / f"few-{number}-{key}-{signed}.parquet", policy=policy, where=where)

    known = look_up("aes", False)
    yield Comparison(
        "look up a value in one more file: seconds on top of a symmetric master key",
        [
            Contender("a signature", lambda: more(look_up("aes", True), known), ours=True),
            Contender("recipients, one KEK", lambda: more(look_up("hpke", False), known), ours=True),
        ],
        [
            Ceiling("a signature", 0.001, "at most 1 ms a file"),
            Ceiling("recipients, one KEK", 0.001, "at most 1 ms a KEK"),
        ],
        repetitions=work.size.short_repetitions,
    )


def _seconds(work: Callable[[int], object], number: int) -> float:
    start = time.perf_counter()
    work(number)
    return time.perf_counter() - start
