"""Measuring: contenders in turns (in another order each time), on one core, after a warm-up; medians, spread, and
ratios of neighbouring repetitions.
"""

from __future__ import annotations

import gc
import os
import platform
import random
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from .profiles import shares

__all__ = [
    "CantError",
    "Ceiling",
    "Comparison",
    "Contender",
    "Curve",
    "Goal",
    "Outcome",
    "Timed",
    "Verdict",
    "best_of",
    "measure",
    "on_cores",
    "processor",
    "ratios",
]

Unit = Literal["s", "B"]

_TURN, _MOST_RUNS = 0.1, 5
"""A contender's turn: so many seconds or so many runs, whichever is less, and at least one run."""
_SETTLING = 0.5
"""Seconds for a JVM to collect garbage and compile behind its answer, on the core that is the next contender's."""


class CantError(Exception):
    """A peer can't do the job; the message says why."""


@dataclass(frozen=True)
class Timed:
    """What a contender that measures itself hands back: seconds (or bytes), and the answer it came to."""

    value: float
    answer: object = None


@dataclass
class Contender:
    """One way of doing the job.

    Attributes:
        name: as the table shows it.
        run: does the job once and returns the answer, or a `Timed` that says what it measured itself.
        ours: a failure of ours fails the run; a peer's is shown as *can't*.
        work: bytes or values that one run gets through, for a rate.
        warm_up: runs before the measured ones; a JVM needs many until its code is compiled.
        elsewhere: another, lasting process does the work, so that its CPU time is not known here.
    """

    name: str
    run: Callable[[], object]
    ours: bool = False
    work: float | None = None
    warm_up: int = 1
    elsewhere: bool = False


@dataclass(frozen=True)
class Goal:
    """A bound on ratios: `ours` against `peer`.

    Attributes:
        bound: with `at_most`, our time (or memory) is at most so many times the peer's; otherwise the peer's is at
            least so many times ours.
        text: as the goal was put.
        floor: the contender that does the least any program must do here, where there is one; it is seen beside
            `floor_peer`, or beside the peer.
    """

    ours: str
    peer: str
    bound: float
    at_most: bool
    text: str
    floor: str = ""
    floor_peer: str = ""


@dataclass(frozen=True)
class Ceiling:
    """A bound on one contender's own value, in its unit."""

    ours: str
    bound: float
    text: str


@dataclass
class Comparison:
    """One job, done by several contenders in turns.

    Attributes:
        answer: what every contender must come to; None where there is nothing to compare.
        unit: seconds, or bytes of memory.
        work_unit: what `Contender.work` counts.
        cores: how many the job may use.
    """

    title: str
    contenders: list[Contender]
    goals: Sequence[Goal | Ceiling] = ()
    answer: object = None
    unit: Unit = "s"
    work_unit: str = ""
    note: str = ""
    repetitions: int = 5
    cores: int = 1


@dataclass
class Curve:
    """How a cost grows: one series per contender over the same xs.

    Attributes:
        exponents: slope of log(value) over log(x) for each series across its upper half: 1 is linear.
    """

    title: str
    x_name: str
    series: dict[str, list[tuple[float, float]]]
    unit: Unit = "s"
    note: str = ""

    @property
    def exponents(self) -> dict[str, float]:
        positive = {name: sorted(point for point in points if point[0] > 0) for name, points in self.series.items()}
        return {name: _slope(points[len(points) // 2 - 1 :]) for name, points in positive.items() if len(points) > 1}


@dataclass
class Outcome:
    """A contender's values, one per repetition; or why there are none.

    Attributes:
        cpu: seconds of CPU time, of this process and of those that it started and waited for; empty where not known.
        profile: where the time goes (function, its own share), of ours that missed a goal in this process.
    """

    name: str
    values: list[float]
    cpu: list[float] = field(default_factory=list)
    cant: str | None = None
    work: float | None = None
    ours: bool = False
    profile: list[tuple[str, float]] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def rate(self) -> float | None:
        """Work per second."""
        return self.work / self.median if self.work and self.values else None


@dataclass(frozen=True)
class Verdict:
    """What came of a goal.

    Attributes:
        ratio: as seen; None where a peer could not. Seconds, no ratio, where it is `absolute`.
        met: None where there is no ratio, or where the data are too small to judge by.
        cpu_ratio: that of CPU times, where both are known.
        floor: the ratio that the least any program must do would come to.
    """

    text: str
    ratio: float | None
    spread: tuple[float, float] | None
    met: bool | None
    cpu_ratio: float | None = None
    absolute: bool = False
    floor: float | None = None


def measure(comparison: Comparison, *, judged: bool = True) -> tuple[list[Outcome], list[Verdict]]:
    """Run the contenders in turns: to warm up, then `repetitions` times, a short job a few times in each turn.

    Raises:
        AssertionError: a contender came to another answer.
        Exception: whatever one of ours raised.
    """
    outcomes = [Outcome(c.name, [], work=c.work, ours=c.ours) for c in comparison.contenders]
    with on_cores(comparison.cores):
        for repetition in range(-1, comparison.repetitions):
            turns = list(zip(comparison.contenders, outcomes, strict=True))
            # In one fixed order the same contender would always find the caches, and the core, as the same other left
            # them.
            random.Random(repetition).shuffle(turns)
            for contender, outcome in turns:
                if outcome.cant is not None or (repetition < 0 and not contender.warm_up):
                    continue
                try:
                    runs = (
                        [_once(contender.run) for _ in range(contender.warm_up)] if repetition < 0 else _turn(contender)
                    )
                except Exception as error:
                    if contender.ours:
                        raise
                    outcome.cant, outcome.values, outcome.cpu = _reason(error), [], []
                    continue
                values, cpus, answers = zip(*runs, strict=True)
                if comparison.answer is not None and (wrong := [one for one in answers if one != comparison.answer]):
                    raise AssertionError(f"{contender.name}: {wrong[0]!r} instead of {comparison.answer!r}")
                if repetition >= 0:
                    outcome.values.append(statistics.median(values))
                    if contender.elsewhere:
                        time.sleep(_SETTLING)
                    elif None not in cpus:
                        outcome.cpu.append(statistics.median(cpus))
        by_name = {outcome.name: outcome for outcome in outcomes}
        verdicts = [_judge(goal, by_name, judged) for goal in comparison.goals]
        missed = {goal.ours for goal, verdict in zip(comparison.goals, verdicts, strict=True) if verdict.met is False}
        for contender in comparison.contenders:
            # What measures itself runs elsewhere.
            if contender.name in missed and by_name[contender.name].cpu:
                by_name[contender.name].profile = shares(contender.run)
    return outcomes, verdicts


def best_of(run: Callable[[], object], repetitions: int = 3) -> float:
    """The fastest of a few runs, in seconds: for curves, where noise only ever adds."""
    gc.collect()
    return min(_once(run)[0] for _ in range(repetitions))


def ratios(numerator: Outcome, denominator: Outcome) -> list[float]:
    """Repetition by repetition, since neighbours in time share the machine's mood."""
    return [a / b for a, b in zip(numerator.values, denominator.values, strict=True)]


@contextmanager
def on_cores(count: int) -> Iterator[None]:
    """Pin this process, with all its threads and every child started meanwhile, to `count` cores."""
    before = os.sched_getaffinity(0)
    _pin(set(sorted(before)[-count:]) if count < len(before) else before)
    try:
        yield
    finally:
        _pin(before)


def processor() -> str:
    """The processor's model, as the system names it."""
    try:
        with open("/proc/cpuinfo") as lines:
            model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    except OSError:
        model = ""
    return model or platform.processor() or platform.machine()


def _pin(cores: set[int]) -> None:
    # Each thread has an affinity of its own; pools that were started earlier must follow.
    for task in Path("/proc/self/task").iterdir():
        try:
            os.sched_setaffinity(int(task.name), cores)
        except ProcessLookupError:
            continue  # a thread that ended meanwhile


def _once(run: Callable[[], object]) -> tuple[float, float | None, Any]:
    cpu, start = _cpu(), time.perf_counter()
    answer = run()
    seconds, cpu = time.perf_counter() - start, _cpu() - cpu
    return (answer.value, None, answer.answer) if isinstance(answer, Timed) else (seconds, cpu, answer)


def _turn(contender: Contender) -> list[tuple[float, float | None, Any]]:
    """A short job is done a few times in its turn, and the median counts: what others left in the caches is not its
    cost.
    """
    # Not before each run: it goes through every object of every peer, and leaves none of ours in the caches.
    gc.collect()
    runs = [_once(contender.run)]
    # What measures itself, or works elsewhere, is done once: it repeats what needs it.
    alone = runs[0][1] is not None and not contender.elsewhere
    while alone and len(runs) < _MOST_RUNS and sum(seconds for seconds, _, _ in runs) < _TURN:
        runs.append(_once(contender.run))
    return runs


def _cpu() -> float:
    """CPU seconds so far. Other work on the machine lengthens a job's wall time far more than this."""
    mine, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return mine.ru_utime + mine.ru_stime + others.ru_utime + others.ru_stime


def _judge(goal: Goal | Ceiling, outcomes: dict[str, Outcome], judged: bool) -> Verdict:
    ours = outcomes[goal.ours]
    if isinstance(goal, Ceiling):
        met = ours.median <= goal.bound
        return Verdict(
            goal.text, ours.median, (min(ours.values), max(ours.values)), met if judged else None, absolute=True
        )
    peer = outcomes[goal.peer]
    if peer.cant is not None:
        return Verdict(goal.text, None, None, None)
    seen = _seen(ours, peer, goal)
    ratio = statistics.median(seen)
    met = ratio <= goal.bound if goal.at_most else ratio >= goal.bound
    upper, lower = (ours, peer) if goal.at_most else (peer, ours)
    cpu_ratio = statistics.median(upper.cpu) / statistics.median(lower.cpu) if upper.cpu and lower.cpu else None
    floor = (
        statistics.median(_seen(outcomes[goal.floor], outcomes[goal.floor_peer or goal.peer], goal))
        if goal.floor
        else None
    )
    return Verdict(goal.text, ratio, (seen[0], seen[-1]), met if judged else None, cpu_ratio, floor=floor)


def _seen(one: Outcome, peer: Outcome, goal: Goal) -> list[float]:
    return sorted(ratios(one, peer) if goal.at_most else ratios(peer, one))


def _slope(points: Sequence[tuple[float, float]]) -> float:
    import numpy as np

    xs, ys = zip(*points, strict=True)
    return float(np.polyfit(np.log(xs), np.log(ys), 1)[0])


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:300] if not isinstance(error, CantError) else text[:300]
