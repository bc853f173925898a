"""Readers, writers, one who attaches, two rotations and an audit on one table: every answer is right at every
moment.
"""

from __future__ import annotations

import itertools
import multiprocessing
import random
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.audit import Severity, audit
from bloomseal.rotation import Rekey, Rewrap, rotate
from bloomseal.rotation.outcome import Status
from crash.verbs import leftovers

_fork = multiprocessing.get_context("fork")
FILES, ROWS = 6, 200
KNOWN = FILES * ROWS


class Table:
    """Odd files keep their key material beside them."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, root / "table"
        ring = bs.Keyring(root / "keys.json", create=True)
        ring.create("k")
        for number in range(FILES):
            self.folder.mkdir(exist_ok=True)
            bs.write_table(
                self.rows(number * ROWS), self.folder / f"{number}.parquet", encryption=self.encryption(number % 2 == 0),
                bloom_filters={"id": True},
            )  # fmt: skip

    @staticmethod
    def rows(start: int) -> pa.Table:
        return pa.table({"id": range(start, start + ROWS), "text": [f"t{i}" for i in range(start, start + ROWS)]})

    def tools(self, internal: bool = True) -> bs.KeyTools:
        return bs.KeyTools(bs.Keyring(self.root / "keys.json"), internal=internal)

    def encryption(self, internal: bool = True) -> bs.EncryptionSpec:
        return bs.EncryptionSpec("k", keys=self.tools(internal))

    def decryption(self) -> bs.DecryptionSpec:
        return bs.DecryptionSpec(self.tools())

    def found(self, wanted: int) -> list[int]:
        """A reader takes a file and the key material beside it one after the other: where a rotation has passed between
        the two, it begins again.
        """
        for attempt in itertools.count():
            try:
                rows = bs.read_table(self.folder, where=[("id", "==", wanted)], decryption=self.decryption())
                return rows["id"].to_pylist()
            except bs.BloomsealError:
                if attempt == 4:
                    raise
        raise AssertionError

    # One turn of each

    def read(self, chance: random.Random) -> str:
        wanted = chance.randrange(KNOWN)
        assert self.found(wanted) == [wanted]
        assert self.found(-wanted - 1) == []
        return "answered"

    def append(self, chance: random.Random) -> str:
        start = chance.randrange(10, 1 << 30) * ROWS + KNOWN
        bs.write_dataset(
            self.rows(start), self.folder, encryption=self.encryption(), mode="append", bloom_filters={"id": True}
        )
        wanted = start + chance.randrange(ROWS)
        assert self.found(wanted) == [wanted]
        return "appended"

    def attach(self, chance: random.Random) -> str:
        path = self.folder / f"{chance.randrange(FILES)}.parquet"
        try:
            bs.attach_filters(path, {"text": True}, decryption=self.decryption())
        except bs.BloomsealError:
            return "told"
        return "attached"

    def rotate(self, chance: random.Random) -> str:
        job = Rekey(self.decryption()) if chance.random() < 0.5 else Rewrap(self.decryption())
        try:
            # By the same journal they meet before the first file, by different ones at each file.
            report = rotate(self.folder, job, journal=self.root / f"{chance.randrange(2)}.jsonl", restart=True)
        except bs.UsageError as error:
            if "another run has the journal open" not in str(error):
                raise
            time.sleep(0.05)
            return "told"
        missed = [file for file in report.files if file.status not in (job.done, Status.NOTHING)]
        assert all(file.status is Status.CHANGED for file in missed), [str(file.why) for file in missed]
        return "told of files" if missed else "rotated"

    def audited(self, _: random.Random) -> str:
        report = audit(self.folder, keys=self.tools())
        false = [str(one) for one in report.findings if one.rule.severity >= Severity.CRITICAL]
        assert not false, false
        return "audited"


def _turns(act: Callable[[random.Random], str], wanted: str, seed: str, until: float, answers: Any) -> None:
    """Until the time is over, and then on until the turn has succeeded once: on a busy machine no rotation may get
    through all files before the others have changed one, and the others end.
    """
    counts: Counter[str] = Counter()
    chance = random.Random(seed)
    try:
        while time.monotonic() < until or not counts[wanted]:
            counts[act(chance)] += 1
            assert counts[wanted] or sum(counts.values()) < 1000, counts
    except BaseException:
        answers.put((dict(counts), traceback.format_exc()))
    else:
        answers.put((dict(counts), None))


def _all_at_once(table: Table, seconds: float, seed: int) -> Counter[str]:
    acts = [
        (table.read, "answered"), (table.read, "answered"), (table.append, "appended"), (table.append, "appended"),
        (table.attach, "attached"), (table.rotate, "rotated"), (table.rotate, "rotated"), (table.audited, "audited"),
    ]  # fmt: skip
    until, answers = time.monotonic() + seconds, _fork.SimpleQueue()
    children = [
        _fork.Process(target=_turns, args=(act, wanted, f"{seed} {number}", until, answers))
        for number, (act, wanted) in enumerate(acts)
    ]
    for child in children:
        child.start()
    total: Counter[str] = Counter()
    failures = []
    for _ in children:
        counts, failure = answers.get()
        total.update(counts)
        failures += [failure] if failure else []
    for child in children:
        child.join(60)
    print(f"seed {seed}", dict(total))
    assert not failures, "\n".join(failures)
    everything = bs.read_table(table.folder, decryption=table.decryption())["id"].to_pylist()
    assert len(everything) == len(set(everything)) == KNOWN + ROWS * total["appended"]
    rotate(table.folder, Rekey(table.decryption()), journal=table.root / "last.jsonl")
    assert leftovers(table.root) == []
    return total


def test_ten_seconds(tmp_path: Path) -> None:
    total = _all_at_once(Table(tmp_path), 10, 1)
    assert min(total[one] for one in ("answered", "appended", "attached", "rotated", "audited")) > 0


@pytest.mark.torture
def test_three_minutes(tmp_path: Path) -> None:
    total = _all_at_once(Table(tmp_path), 180, random.SystemRandom().randrange(1 << 32))
    assert total["told"] > 0, "no two rotations ever met"
