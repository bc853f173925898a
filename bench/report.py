"""What a run came to: JSON, a Markdown page, and plots."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from .timing import Comparison, Curve, Outcome, Verdict, processor

__all__ = ["Report", "environment", "text_of"]

_PEERS = ("bloomseal", "pyarrow", "pyspark", "duckdb", "datafusion", "cryptography", "numba", "numpy", "thrift")


@dataclass
class Report:
    """Everything that one run measured."""

    size: str
    command: str
    environment: dict[str, str]
    comparisons: list[tuple[str, Comparison, list[Outcome], list[Verdict]]] = field(default_factory=list)
    curves: list[tuple[str, Curve]] = field(default_factory=list)

    def to_json(self) -> str:
        """All values, not only the medians."""
        data: dict[str, Any] = {
            "size": self.size,
            "command": self.command,
            "environment": self.environment,
            "comparisons": [
                {
                    "row": name,
                    "title": comparison.title,
                    "unit": comparison.unit,
                    "note": comparison.note,
                    "contenders": [asdict(outcome) for outcome in outcomes],
                    "goals": [asdict(verdict) for verdict in verdicts],
                }
                for name, comparison, outcomes, verdicts in self.comparisons
            ],
            "curves": [{"row": name, **asdict(curve), "exponents": curve.exponents} for name, curve in self.curves],
        }
        return json.dumps(data, indent=1)

    def to_markdown(self, plots: dict[str, str]) -> str:
        """The page: goals first, then every measurement. `plots`: a curve's title → its picture."""
        lines = [
            "# Results",
            "",
            "The same numbers on your machine, and this page again:",
            "",
            "```sh",
            self.command,
            "```",
            "",
            "Contenders take turns, in another order each time, in one run, pinned to one core where a row says nothing else. A turn is one run, or the median of",
            "up to five where they take less than 0.1 s together; garbage is collected before it. A ratio is the median over neighbouring repetitions, with the least and the greatest in brackets; *CPU* is the ratio of median CPU times, which other",
            "work on the machine disturbs less. *can't*: the peer can't do the job. Where a goal is missed, a profile says which functions take the time themselves,",
            "and *floor* is the ratio of a program that knows every place beforehand, checks nothing, and does only what nobody can spare: see `bench/floors.py`.",
            "",
            *_table(("", ""), sorted(self.environment.items()), aligned="l"),
            "",
        ]
        judged = [(c, v) for _, c, _, verdicts in self.comparisons for v in verdicts]
        if judged:
            rows = [
                (c.title, v.text, _ratio(v), _plain(v.cpu_ratio), _mark(v, "yes", "**no**"), _plain(v.floor))
                for c, v in judged
            ]
            lines += ["## Goals", "", *_table(("job", "goal", "seen", "CPU", "met", "floor"), rows, aligned="l"), ""]
        lines += ["## Measurements", ""]
        for _, comparison, outcomes, _ in self.comparisons:
            lines += [f"### {_sentence(comparison.title)}", "", *_measurements(comparison, outcomes), ""]
            lines += [comparison.note, ""] if comparison.note else []
            for text in _profiles(outcomes):
                lines += [text, ""]
        if self.curves:
            lines += ["## How costs grow", ""]
        for _, curve in self.curves:
            lines += [f"### {_sentence(curve.title)}", ""]
            lines += [f"![{curve.title}]({plots[curve.title]})", ""] if curve.title in plots else []
            lines += [*_points(curve), "", f"{_exponents(curve)} (1 is linear, over the upper half).", ""]
        return "\n".join(lines).rstrip() + "\n"

    def save(self, folder: Path) -> None:
        """results.json, results.md and plots into `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "results.json").write_text(self.to_json() + "\n")
        (folder / "results.md").write_text(self.to_markdown(self._plot(folder)))

    def _plot(self, folder: Path) -> dict[str, str]:
        if not self.curves:
            return {}
        try:
            import matplotlib as mpl
        except ImportError:
            return {}
        mpl.use("Agg")
        mpl.rcParams["svg.hashsalt"] = "bloomseal"  # the same run gives the same bytes
        from matplotlib import pyplot as plt

        names = {}
        for i, (_, curve) in enumerate(self.curves):
            figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
            for name, points in curve.series.items():
                xs, ys = zip(*sorted(points), strict=True)
                axes.plot(xs, [y * 1000 for y in ys], marker="o", label=name)
            logarithmic = min(x for points in curve.series.values() for x, _ in points) > 0
            axes.set(
                xlabel=curve.x_name, ylabel="milliseconds", title=curve.title, yscale="log" if logarithmic else "linear"
            )
            if logarithmic:
                axes.set_xscale("log")
            else:
                axes.set_ylim(bottom=0)
            axes.title.set_fontsize(10)
            axes.grid(alpha=0.3)
            axes.legend()
            names[curve.title] = f"curve-{i + 1}.svg"
            figure.savefig(folder / names[curve.title], metadata={"Date": None})
            plt.close(figure)
        return names


def environment() -> dict[str, str]:
    """Versions and the machine."""
    found = {name: _version(name) for name in _PEERS}
    cores = os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        **found,
        "Python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "processor": f"{processor()}, {cores} cores, {memory:.0f} GiB",
        "load at the start": f"{os.getloadavg()[0]:.1f}",
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }


def text_of(comparison: Comparison, outcomes: list[Outcome], verdicts: list[Verdict]) -> str:
    """One comparison for the terminal."""
    width = max(len(outcome.name) for outcome in outcomes)
    lines = [comparison.title]
    for outcome in outcomes:
        name, median, spread, rate = _cells(comparison, outcome)
        lines.append(f"  {name:<{width}}  {median:>10}  {spread:<24} {rate}".rstrip())
    lines += [
        f"  goal {v.text}: {_ratio(v)}, CPU {_plain(v.cpu_ratio)}, floor {_plain(v.floor)}  {_mark(v, 'met', 'MISSED')}"
        for v in verdicts
    ]
    lines += [f"  {text}" for text in _profiles(outcomes)]
    return "\n".join(lines)


def _profiles(outcomes: list[Outcome]) -> list[str]:
    return [
        f"Where the time of *{outcome.name}* goes: "
        + ", ".join(f"{share:.0%} `{name}`" for name, share in outcome.profile)
        + "."
        for outcome in outcomes
        if outcome.profile
    ]


def _measurements(comparison: Comparison, outcomes: list[Outcome]) -> list[str]:
    with_rate = any(outcome.rate for outcome in outcomes)
    header = ("contender", "median", "spread", "rate") if with_rate else ("contender", "median", "spread")
    return _table(header, [_cells(comparison, outcome)[: len(header)] for outcome in outcomes])


def _cells(comparison: Comparison, outcome: Outcome) -> tuple[str, str, str, str]:
    if outcome.cant is not None:
        return outcome.name, "*can't*", outcome.cant, ""
    show = _seconds if comparison.unit == "s" else _bytes
    spread = f"{show(min(outcome.values))} … {show(max(outcome.values))}"
    return outcome.name, show(outcome.median), spread, _rate(outcome.rate, comparison.work_unit)


def _points(curve: Curve) -> list[str]:
    xs = sorted({x for points in curve.series.values() for x, _ in points})
    rows = []
    for x in xs:
        cells = [" / ".join(_seconds(y) for at, y in points if at == x) for points in curve.series.values()]
        rows.append((f"{x:,.0f}", *cells))
    return _table((curve.x_name, *curve.series), rows)


def _exponents(curve: Curve) -> str:
    return "Growth: " + ", ".join(f"{name} x^{slope:.2f}" for name, slope in curve.exponents.items())


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]], *, aligned: str = "r") -> list[str]:
    rule = ["---"] + ["---" if aligned == "l" else "---:"] * (len(header) - 1)
    return ["| " + " | ".join(cells) + " |" for cells in ([*header], rule, *(map(_escaped, row) for row in rows))]


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def _ratio(verdict: Verdict) -> str:
    if verdict.ratio is None or verdict.spread is None:
        return "–"
    low, high = verdict.spread
    if verdict.absolute:
        return f"{_seconds(verdict.ratio)} ({_seconds(low)} … {_seconds(high)})"
    return f"{verdict.ratio:.3g} ({low:.3g} … {high:.3g})"


def _plain(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.3g}"


def _mark(verdict: Verdict, yes: str, no: str) -> str:
    if verdict.ratio is None:
        return "can't"
    return {True: yes, False: no, None: "not judged at this size"}[verdict.met]


def _seconds(value: float) -> str:
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "µs")):
        if value * factor >= 1:
            return f"{value * factor:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def _bytes(value: float) -> str:
    return f"{value / 1e6:.3g} MB"


def _rate(rate: float | None, unit: str) -> str:
    if rate is None:
        return ""
    if unit == "B":
        return f"{rate / 1e9:.2f} GB/s"
    return f"{rate / 1e6:.3g} M {unit}/s"


def _sentence(title: str) -> str:
    return title[:1].upper() + title[1:]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
