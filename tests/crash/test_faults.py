"""Storage that fails at any call, under every verb: nothing is lost or half there, and the next run comes to the end.

A run is a verb, a kind of fault, and the number of the call that it begins with. The verb runs in a process of its own,
forked from this one, in a copy of a small table.
"""

from __future__ import annotations

import collections
import multiprocessing
import random
import shutil
import signal
import traceback
from pathlib import Path

import pytest

import bloomseal as bs
from crash.faults import Fault, Kind, Storage
from crash.verbs import FILES, VERBS, leftovers, visible

_fork = multiprocessing.get_context("fork")
_OURS, _FOREIGN = 3, 4


class Bench:
    """The tables, made once, and how many calls each verb makes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls: dict[str, int] = {}
        self._runs = 0
        for verb in VERBS:
            (folder / f"of {verb}").mkdir()
            VERBS[verb].prepare(folder / f"of {verb}")
            code, said = self.child(verb, self.copy(verb), Fault(None))
            assert code == 0, said
            self.calls[verb] = int(said)

    def copy(self, verb: str) -> Path:
        self._runs += 1
        root = self.folder / f"run {self._runs}"
        shutil.copytree(self.folder / f"of {verb}", root)
        return root

    def child(self, verb: str, root: Path, fault: Fault) -> tuple[int, str]:
        """Exit code, and what was said: the error, or how many calls there were."""
        said = self.folder / "said"
        said.write_text("")
        with said.open("w") as out:
            process = _fork.Process(target=_run, args=(verb, root, fault, out))
            process.start()
            process.join(120)
        assert process.exitcode is not None, f"{verb} hangs with {fault}"
        return process.exitcode, said.read_text()

    def one(self, verb: str, fault: Fault) -> str:
        """One run and the one after it, and what holds between and afterwards.

        Returns:
            How the faulty run came out.
        """
        root, wanted = self.copy(verb), VERBS[verb]
        code, said = self.child(verb, root, fault)
        assert code in (0, _OURS, -signal.SIGKILL), said
        state = wanted.judge(root)
        if code == 0:
            assert state == wanted.done, f"it said that all was done, and it is {state}"
        placed = len(visible(root)) - FILES
        if code != 0 and verb == "append":
            # Files that have their names stay, as the error says; the same rows again would be there twice.
            for path in visible(root)[FILES:] if placed else ():
                path.with_name(f"_KEY_MATERIAL_FOR_{path.name}.json").unlink()
                path.unlink()
        again, why = self.child(verb, root, Fault(None))
        if code != 0 or verb != "append":
            assert again == 0, why
            assert wanted.judge(root) == wanted.done
        assert leftovers(root) == []
        shutil.rmtree(root)
        return {0: "done", _OURS: "error", -signal.SIGKILL: "killed"}[code]


def _run(verb: str, root: Path, fault: Fault, out: object) -> None:
    storage = Storage(fault)
    storage.install(str(root))
    try:
        VERBS[verb].run(root)
    except bs.BloomsealError:
        code, said = _OURS, traceback.format_exc()
    except BaseException:
        code, said = _FOREIGN, traceback.format_exc()
    else:
        code, said = 0, str(storage.calls)
    out.write(said)  # type: ignore[attr-defined]
    out.flush()  # type: ignore[attr-defined]
    raise SystemExit(code)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("bench"))


def _torment(bench: Bench, verb: str, runs: int, seed: int) -> None:
    chance = random.Random(f"{seed} {verb}")
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    failures = []
    for number in range(runs):
        kind = list(Kind)[number % len(Kind)]
        fault = Fault(kind, chance.randrange(bench.calls[verb]))
        try:
            counts[kind, bench.one(verb, fault)] += 1
        except Exception:
            failures.append(f"{verb} {fault}\n{traceback.format_exc(-2)[-1500:]}")
    for (kind, how), times in sorted(counts.items()):
        print(f"{verb}\t{kind}\t{how}\t{times}")
    assert not failures, f"seed {seed}: {len(failures)} of {runs} runs\n" + "\n".join(failures[:5])


@pytest.mark.parametrize("verb", VERBS)
def test_a_fault_at_a_random_call(bench: Bench, verb: str) -> None:
    _torment(bench, verb, len(Kind), 1)


@pytest.mark.torture
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("verb", VERBS)
def test_a_hundred_faults(bench: Bench, verb: str) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    _torment(bench, verb, 100, seed)
