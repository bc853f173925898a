"""The README's two pictures, from measured numbers: ``python -m bench.pictures [DEMO.json]``.

The look-up is drawn from docs/benchmarks.md; the leak from what ``bloomseal demo --format json`` has measured.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

__all__ = ["PAGE", "index_growth", "leak", "look_up", "main"]

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
    width, height, left, right, top, low = 790, 330, 70, 190, 56, 270
    most = max(seconds for _, *both in told for seconds in both)
    across, up = (width - left - right) / told[-1][0], (low - top) / most
    parts = [
        f'<rect width="{width}" height="{height}" rx="6" fill="#fff"/>',
        '<text x="16" y="28" font-weight="600">Time of a look-up that finds nothing, against the number of files</text>',
        f'<path d="M{left} {top}V{low}H{width - right}" fill="none" stroke="#444"/>',
        f'<text x="{left - 8}" y="{top + 5}" text-anchor="end">{most:.2g} s</text>',
        f'<text x="{left - 8}" y="{low + 5}" text-anchor="end">0</text>',
        f'<text x="{width - right}" y="{low + 22}" text-anchor="middle">{told[-1][0]:,} files</text>',
    ]
    for which, name, colour in ((1, "with a sealed index", _OURS), (2, "filters only", _OTHERS)):
        points = [(left + one[0] * across, low - one[which] * up) for one in told]
        line = " ".join(f"{x:.0f},{y:.0f}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="3"/>')
        x, y = points[-1]
        parts.append(f'<text x="{x + 8:.0f}" y="{y + 5:.0f}" fill="{colour}">{name}</text>')
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    style = 'font-family="system-ui,sans-serif" font-size="14" fill="#222"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size} {style}>\n' + "\n".join(parts) + "\n</svg>\n"


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
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    style = 'font-family="system-ui,sans-serif" font-size="14" fill="#222"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size} {style}>\n' + "\n".join(parts) + "\n</svg>\n"


def main(arguments: Sequence[str]) -> None:
    """Draw; the leak only where the demonstration's numbers are given."""
    folder = _DOCS / "pictures"
    folder.mkdir(exist_ok=True)
    (folder / "look-up.svg").write_text(look_up(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    for path in arguments:
        (folder / "leak.svg").write_text(leak(json.loads(Path(path).read_text())), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
