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

__all__ = ["PAGE", "leak", "look_up", "main"]

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
