"""Mutants by the million: ``make mutate MUTATE="--state ~/mutants.json --seconds 3600"``.

Goes round the families in batches, from where the state file says that an earlier run has stopped; stop it whenever you
like. A failure is a wrong answer, an exception that is not ours, more than ten seconds of CPU (or two minutes of
waiting), or more memory than the mutant's bytes (all are small) and 64 MiB. It is kept in the state file under its
number, from which ``--only FAMILY NUMBER`` makes it again.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

from tamper.families import FAMILIES

_BATCH = 50
_SECONDS, _WAITING = 10.0, 120.0
_MEMORY = 64 << 20
_STATUS = Path("/proc/self/status")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    place = Path(tempfile.gettempdir()) / "bloomseal-mutants.json"
    parser.add_argument("--state", type=Path, default=place, help="where a run goes on; outside of the repository")
    parser.add_argument("--seconds", type=float, default=60, help="how long, all families together")
    parser.add_argument("--family", action="append", help=f"default: all of {', '.join(FAMILIES)}")
    parser.add_argument("--only", nargs=2, metavar=("FAMILY", "NUMBER"), help="one mutant, with its traceback")
    given = parser.parse_args()
    if given.only:
        FAMILIES[given.only[0]](int(given.only[1]))
        return 0
    state = json.loads(given.state.read_text()) if given.state.exists() else {}
    signal.signal(signal.SIGTERM, _interrupted)
    signal.signal(signal.SIGALRM, _too_long)
    end = time.monotonic() + given.seconds
    try:
        while time.monotonic() < end:
            for name in given.family or FAMILIES:
                if time.monotonic() < end:
                    _batch(name, state.setdefault(name, {"next": 0, "seconds": 0.0, "failures": {}}))
                    _save(given.state, state)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here")
    return _report(state)


def _batch(name: str, one: dict[str, Any]) -> None:
    check = FAMILIES[name]
    check(0)  # what is made and imported once is nobody's memory
    began = time.process_time()
    for number in range(one["next"], one["next"] + _BATCH):
        trouble = _trouble(name, number)
        if trouble is not None:
            one["failures"][str(number)] = trouble
            print(f"{name} {number}: {trouble}", flush=True)
    one["next"] += _BATCH
    one["seconds"] += time.process_time() - began


def _trouble(name: str, number: int) -> str | None:
    held, began, since = _peak(fresh=True), time.process_time(), time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, _WAITING)
    try:
        FAMILIES[name](number)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return f"{type(error).__name__}: {error}"[:500]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if (seconds := time.process_time() - began) > _SECONDS or time.monotonic() - since > _WAITING:
        return f"took {seconds:.0f} s of CPU, {time.monotonic() - since:.0f} s in all"
    if (more := _peak() - held) > _MEMORY:
        return f"took {more >> 20} MiB"
    return None


def _peak(*, fresh: bool = False) -> int:
    """The most memory that this process has had, in bytes; since now, if `fresh`. 0 where the kernel does not tell."""
    if not _STATUS.exists():
        return 0
    if fresh:
        Path("/proc/self/clear_refs").write_text("5")
    return next(int(line.split()[1]) << 10 for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM"))


def _save(path: Path, state: dict[str, Any]) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_text(json.dumps(state, indent=1))
    aside.replace(path)


def _report(state: dict[str, Any]) -> int:
    failed = 0
    for name, one in sorted(state.items()):
        failed += len(one["failures"])
        rate = one["next"] / one["seconds"] if one["seconds"] else 0
        print(f"{name:34} {one['next']:>10,} mutants {rate:>8,.0f} per CPU second {len(one['failures']):>5} failures")
    total, seconds = (sum(one[what] for one in state.values()) for what in ("next", "seconds"))
    print(f"{'all':34} {total:>10,} mutants {total / max(seconds, 1e-9):>8,.0f} per CPU second {failed:>5} failures")
    return 1 if failed else 0


def _interrupted(signal: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _too_long(signal: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"took {_WAITING:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
