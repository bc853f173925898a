"""The pictures of README and docs, from measured numbers: ``python -m bench.pictures [DEMO.json]``.

The look-up and the growth of a sealed index are drawn from docs/benchmarks.md, the leak from what
``bloomseal demo --format json`` has measured.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

__all__ = ["PAGE", "index_growth", "index_scale", "leak", "look_up", "main"]

_DOCS = Path(__file__).parents[1] / "docs"
PAGE = _DOCS / "benchmarks.md"
_OURS, _OTHERS, _ALARM, _QUIET = "#2a6f97", "#9aa5b1", "#c8452b", "#5b8c5a"
_SECONDS = {"µs": 1e-6, "ms": 1e-3, "s": 1.0}
_ROW = re.compile(r"\| (?P<name>[^|]+?) \| (?P<text>(?P<number>[\d.]+) (?P<unit>µs|ms|s)) \|")


def look_up(page: str) -> str:
    """Time of a point look-up beside peers, from the text of docs/benchmarks.md."""
    section = page.partition("### Point look-up, present")[2].partition("\n### ")[0]
    told = {row["name"]: (float(row["number"]) * _SECONDS[row["unit"]], row["text"]) for row in _ROW.finditer(section)}
    names = {
        "Bloomseal": "Bloomseal, encrypted file",
        "pyarrow, encrypted": "pyarrow, encrypted file",
        "Spark, encrypted, warm": "Spark with filters, encrypted file",
        "DuckDB, plaintext file": "DuckDB, plaintext file",
        "DataFusion, plaintext file": "DataFusion, plaintext file",
    }
    bars = [
        (shown, told[name][0], told[name][1], _OURS if name == "Bloomseal" else _OTHERS)
        for name, shown in names.items()
        if name in told
    ]
    return _bars("One person looked up in 2,000,000, ten row groups: the less the better", bars)


def leak(demo: dict[str, Any]) -> str:
    """What a thief with a list of addresses learns, from the results of `bloomseal demo`."""
    clear, sealed = demo["attack_clear_emails"], demo["attack_sealed"]
    noise = sealed["ciphertext_read_as_filter"]
    # Ciphertext that is taken for a filter says yes to members and strangers alike: what it tells is the difference.
    learnt = max(0, noise["rightly"] - noise["wrongly"])
    members = clear["in_the_table"]
    bars = [
        ("filter in clear, pages encrypted", clear["rightly"], f"{clear['rightly']:,} named", _ALARM),
        ("filter sealed", learnt, f"{learnt:,}: no better than guessing", _QUIET),
    ]
    title = f"A thief without keys asks for {clear['candidates']:,} addresses, {members:,} of them in the table"
    return _bars(title, bars)


def index_growth(told: Sequence[tuple[int, float, float]]) -> str:
    """A look-up's time against the number of files: one line with a sealed index, one without.

    Args:
        told: files, seconds with and without, ascending; at least two.
    """
    shown = {"with a sealed index": (_OURS, 1), "filters only": (_OTHERS, 2)}
    lines = {name: (colour, [(one[0], one[which]) for one in told]) for name, (colour, which) in shown.items()}
    return _lines("Time of a look-up that finds nothing, against the number of files", lines)


def index_scale(page: str) -> str:
    """Times against the number of files, ten times as many each: from the text of docs/benchmarks.md."""
    page = page.partition("## How a sealed index grows")[2]
    cells = [[cell.strip() for cell in line.strip("|\n ").split("|")] for line in page.splitlines() if line[:1] == "|"]
    table = {name: told for name, *told in cells}
    files = [int(count.replace(",", "")) for count in table["files"]]
    rows = {
        "a look-up, eight runs": (_OURS, "a look-up of a value that is nowhere, eight runs"),
        "states of all files": (_OTHERS, "states of all files, by `stat`"),
        "eight runs asked": (_QUIET, "one value asked of eight runs"),
        "one run asked": (_ALARM, "one value asked of one run"),
    }

    def seconds(text: str) -> float:
        number, unit = text.split()
        return float(number) * _SECONDS[unit]

    lines = {
        name: (colour, [*zip(files, map(seconds, table[row]), strict=True)]) for name, (colour, row) in rows.items()
    }
    return _lines(
        "Processor time of one look-up, against the number of files with ten row groups each", lines, log=True
    )


_Line = tuple[str, Sequence[tuple[float, float]]]
"""Colour, and points: across, and seconds."""


def _lines(title: str, lines: Mapping[str, _Line], *, log: bool = False) -> str:
    width, height, left, right, top, low = 790, 330, 70, 190, 56, 270
    scale: Callable[[float], float] = math.log10 if log else float
    counts = sorted({count for _, points in lines.values() for count, _ in points})
    times = [seconds for _, points in lines.values() for _, seconds in points]
    least, most = (10 ** math.floor(math.log10(min(times))) if log else 0, max(times))
    ends = [f"{one * 1e3:.2g} ms" if log and one < 1 else f"{one:.2g} s" for one in (most, least)]
    first = counts[0] if log else 0
    across = (width - left - right) / (scale(counts[-1]) - scale(first))
    up = (low - top) / (scale(most) - scale(least))
    parts = [
        f'<rect width="{width}" height="{height}" rx="6" fill="#fff"/>',
        f'<text x="16" y="28" font-weight="600">{escape(title)}</text>',
        f'<path d="M{left} {top}V{low}H{width - right}" fill="none" stroke="#444"/>',
        f'<text x="{left - 8}" y="{top + 5}" text-anchor="end">{ends[0]}</text>',
        f'<text x="{left - 8}" y="{low + 5}" text-anchor="end">{ends[1] if log else 0}</text>',
    ]
    for count in counts if log else counts[-1:]:
        x = left + (scale(count) - scale(first)) * across
        word = " files" if count == counts[-1] else ""
        parts.append(f'<text x="{x:.0f}" y="{low + 22}" text-anchor="middle">{count:,}{word}</text>')
    for name, (colour, told) in lines.items():
        points = [
            (left + (scale(count) - scale(first)) * across, low - (scale(seconds) - scale(least)) * up)
            for count, seconds in told
        ]
        line = " ".join(f"{x:.0f},{y:.0f}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="3"/>')
        x, y = points[-1]
        parts.append(f'<text x="{x + 8:.0f}" y="{y + 5:.0f}" fill="{colour}">{escape(name)}</text>')
    return _svg(width, height, parts)


def _bars(title: str, bars: Sequence[tuple[str, float, str, str]]) -> str:
    width, left, step, top = 790, 280, 34, 48
    most, height = max(value for _, value, _, _ in bars), top + step * len(bars) + 8
    parts = [
        f'<rect width="{width}" height="{height}" rx="6" fill="#fff"/>',
        f'<text x="16" y="28" font-weight="600">{escape(title)}</text>',
    ]
    for index, (name, value, shown, colour) in enumerate(bars):
        y, length = top + index * step, max((width - left - 190) * value / most, 2)
        parts.append(f'<text x="{left - 10}" y="{y + 17}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect x="{left}" y="{y}" width="{length:.0f}" height="24" fill="{colour}"/>')
        parts.append(f'<text x="{left + length + 8:.0f}" y="{y + 17}">{escape(shown)}</text>')
    return _svg(width, height, parts)


def _svg(width: int, height: int, parts: Sequence[str]) -> str:
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    style = 'font-family="system-ui,sans-serif" font-size="14" fill="#222"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size} {style}>\n' + "\n".join(parts) + "\n</svg>\n"


def main(arguments: Sequence[str]) -> None:
    """Draw all; the leak only where the demonstration's numbers are given."""
    folder = _DOCS / "pictures"
    folder.mkdir(exist_ok=True)
    page = PAGE.read_text(encoding="utf-8")
    (folder / "look-up.svg").write_text(look_up(page), encoding="utf-8")
    (folder / "index-scale.svg").write_text(index_scale(page), encoding="utf-8")
    for path in arguments:
        (folder / "leak.svg").write_text(leak(json.loads(Path(path).read_text())), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
