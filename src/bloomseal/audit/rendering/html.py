"""One HTML page that needs no network: findings, plots as inline SVG, and what could not be seen."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from html import escape as escape_markup
from typing import Any, Final

from ..._text import safe_text
from ..._version import __version__
from ...storage.snapshot import library
from ..facts.views import EXPOSED
from ..report import Report
from ..rules.findings import Severity

__all__ = ["to_html"]

_COLOURS: Final = {"critical": "#8e1b3a", "error": "#c8452b", "warning": "#c98a00", "info": "#4a7ba6"}
_SERIES: Final = ("#2a6f97", "#c8452b", "#5b8c5a", "#7d5ba6", "#c98a00", "#3d8c8c", "#a65b7d", "#666666")
_MOST_LISTED: Final = 2_000

_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Bloomseal audit</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem;color:#222;background:#fff}
h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:2.2rem}
table{border-collapse:collapse;width:100%;font-size:.88rem}th,td{text-align:left;padding:.25rem .6rem;border-bottom:1px solid #ddd;
vertical-align:top;overflow-wrap:anywhere}code{font-size:.85rem}.badge{color:#fff;border-radius:3px;padding:0 .45rem}
figure{margin:1rem 0}figcaption{font-size:.85rem;color:#555}svg text{font:12px system-ui,sans-serif;fill:#333}
@media(prefers-color-scheme:dark){body{background:#16181c;color:#ddd}svg text{fill:#ccc}th,td{border-color:#333}}
</style></head><body>
<h1>Bloomseal audit</h1>
<p>{% if report.unseen %}<strong>Not everything could be looked at: {{ report.unseen | length }} reasons stand under <em>Could not look</em>.</strong>
{% else %}All that was named could be looked at. {% endif %}</p>
<p>{{ report.files }} files, {{ chunks }} column chunks; keys: {{ "at hand" if report.with_keys else "none, so this is what everybody sees" }}.
{% for name, count in report.counts().items() %}<span class="badge" style="background:{{ colours[name] }}">{{ count }} {{ name }}</span> {% endfor %}</p>
{% for title, caption, svg in plots %}<h2>{{ title }}</h2><figure>{{ svg }}<figcaption>{{ caption }}</figcaption></figure>
{% endfor %}
<h2>Findings</h2>
{% if not report.findings %}<p>None.</p>{% else %}
<table><thead><tr><th>Severity</th><th>Rule</th><th>Place</th><th>What was seen</th><th>Mend it</th></tr></thead><tbody>
{% for f in report.findings[:most] %}<tr><td><span class="badge" style="background:{{ colours[f.severity.label] }}">{{ f.severity.label }}</span></td>
<td title="{{ f.rule.why }}">{{ f.rule.id }} {{ f.rule.name }}</td>
<td>{{ f.file or "" }}{% if f.column %}<br>{{ f.column }}{% endif %}{% if f.row_groups %}<br>row groups {{ f.row_groups[:8] | join(", ") }}{% if f.row_groups | length > 8 %}, ...{% endif %}{% endif %}</td>
<td>{{ f.message }}</td><td>{% if f.fix %}<code>{{ f.fix }}</code>{% else %}{{ f.advice }}{% endif %}</td></tr>
{% endfor %}</tbody></table>
{% if report.findings | length > most %}<p>And {{ report.findings | length - most }} more; the JSON report has all.</p>{% endif %}
{% endif %}
{% if report.unseen %}<h2>Could not look</h2><ul>{% for text in report.unseen %}<li>{{ text }}</li>{% endfor %}</ul>{% endif %}
<h2>Not seen</h2>
{% if not report.hidden %}<p>Nothing was hidden.</p>{% else %}<ul>{% for text in report.hidden %}<li>{{ text }}</li>{% endfor %}</ul>{% endif %}
<p><small>bloomseal {{ version }}</small></p>
</body></html>
"""


def to_html(report: Report) -> str:
    """The page; the same audit gives the same text.

    Raises:
        MissingDependencyError: `jinja2` is not installed.
    """
    environment = library("jinja2", "report", _jinja2).Environment(autoescape=True, finalize=_shown)
    markup = library("markupsafe", "report", _markupsafe)
    plots = [(title, caption, markup(svg)) for title, caption, svg in _plots(report) if svg]
    chunks = report.inventory.num_rows - report.inventory["row_group"].null_count
    text: str = environment.from_string(_PAGE).render(
        report=report, chunks=chunks, colours=_COLOURS, plots=plots, most=_MOST_LISTED, version=__version__
    )
    return text + "\n"


def _shown(value: Any) -> Any:
    """What the template puts in, markup of ours apart, is one line that shows what is there."""
    return safe_text(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def escape(text: str) -> str:
    return escape_markup(safe_text(text))


def _plots(report: Report) -> list[tuple[str, str, str]]:
    table = report.inventory
    return [
        ("Findings by rule", "How many findings each rule has.", _by_rule(report)),
        (
            "Files per key version over time",
            "Files by the month in which they were last written, and the master key versions that their keys are under.",
            _by_version(table),
        ),
        (
            "Exposure",
            "What stands in clear of each column, over all its chunks: darker is more. Filters in clear of plaintext columns count too.",
            _exposure(table),
        ),
        (
            "Filter fill",
            "Share of bits set, over all filters that were opened. Beyond one half a filter grows useless.",
            _fill(table),
        ),
    ]


def _by_rule(report: Report) -> str:
    counted: Counter[tuple[str, str]] = Counter()
    for finding in report.findings:
        counted[f"{finding.rule.id} {finding.rule.name}", finding.severity.label] += 1
    worst = {severity.label: -severity for severity in Severity}
    rows = [
        (name, count, _COLOURS[level])
        for (name, level), count in sorted(counted.items(), key=lambda i: (worst[i[0][1]], i[0]))
    ]
    return _bars(rows, left=260)


def _by_version(table: Any) -> str:
    names = ["file", "file_modified", "footer_master_key", "footer_key_version", "master_key", "key_version"]
    months: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for row in table.select(names).to_pylist() if table.num_rows else []:
        if row["file_modified"] is None:
            continue
        month = row["file_modified"].strftime("%Y-%m")
        for key, version in (
            (row["footer_master_key"], row["footer_key_version"]),
            (row["master_key"], row["key_version"]),
        ):
            if key is not None:
                months[month][f"{key}:{version or '?'}"].add(row["file"])
    series = sorted({name for month in months.values() for name in month})
    return _stacks(
        {month: {name: len(files) for name, files in by.items()} for month, by in sorted(months.items())}, series
    )


def _exposure(table: Any) -> str:
    kinds = ("plaintext", "filter", "page index", *EXPOSED)
    total: Counter[str] = Counter()
    open_: Counter[tuple[str, str]] = Counter()
    names = ["column", "protection", "filter", "column_index", "in_clear"]
    for row in table.select(names).to_pylist():
        column = row["column"]
        if column is None:
            continue
        total[column] += 1
        open_[column, "plaintext"] += row["protection"] == "plaintext"
        open_[column, "filter"] += row["filter"] == "in clear"
        open_[column, "page index"] += row["column_index"] == "in clear"
        for name in row["in_clear"] or ():
            open_[column, name] += 1
    columns = sorted(total)[:60]
    if not columns:
        return ""
    cell, left, top = 26, 220, 130
    width, height = left + cell * len(kinds) + 20, top + cell * len(columns) + 10
    parts = []
    for x, kind in enumerate(kinds):
        place = f"translate({left + x * cell + 17},{top - 8}) rotate(-50)"
        parts.append(f'<text transform="{place}">{escape(kind)}</text>')
    for y, column in enumerate(columns):
        parts.append(_text(left - 8, top + y * cell + 17, column, "end"))
        for x, kind in enumerate(kinds):
            share = open_[column, kind] / total[column]
            colour = "#c8452b" if share else "#5b8c5a"
            parts.append(
                f'<rect x="{left + x * cell}" y="{top + y * cell}" width="{cell - 3}" height="{cell - 3}" fill="{colour}" '
                f'opacity="{0.15 + 0.85 * share:.2f}"><title>{escape(column)}, {escape(kind)}: {share:.0%} of {total[column]} chunks</title></rect>'
            )
    return _svg(width, height, parts)


def _fill(table: Any) -> str:
    fills = [value for value in table["filter_fill"].to_pylist() if value is not None]
    if not fills:
        return ""
    bins = Counter(min(int(value * 20), 19) for value in fills)
    rows = [
        (f"{b * 5} to {b * 5 + 5} %", bins[b], _SERIES[0] if b < 10 else _COLOURS["warning"])
        for b in range(20)
        if bins[b]
    ]
    return _bars(rows, left=120)


def _bars(rows: Sequence[tuple[str, int, str]], *, left: int) -> str:
    if not rows:
        return ""
    most, step, width = max(count for _, count, _ in rows), 24, 760
    parts = []
    for index, (name, count, colour) in enumerate(rows):
        length = max((width - left - 70) * count / most, 1)
        parts.append(_text(left - 8, index * step + 16, name, "end"))
        parts.append(
            f'<rect x="{left}" y="{index * step + 3}" width="{length:.1f}" height="{step - 7}" fill="{colour}"/>'
        )
        parts.append(_text(left + length + 6, index * step + 16, f"{count:,}"))
    return _svg(width, len(rows) * step + 4, parts)


def _stacks(months: Mapping[str, Mapping[str, int]], series: Sequence[str]) -> str:
    if not months:
        return ""
    most = max(sum(by.values()) for by in months.values())
    bottom, height, left = 200, 240, 50
    step = max(min(60, 640 // len(months)), 8)
    width = max(left + step * len(months) + 20, 320)
    parts = [
        f'<line x1="{left}" y1="{bottom}" x2="{width - 10}" y2="{bottom}" stroke="#888"/>',
        _text(left - 6, 24, f"{most:,}", "end"),
    ]
    every = math.ceil(len(months) * 56 / 640) or 1
    for index, (month, by) in enumerate(months.items()):
        y = float(bottom)
        for number, name in enumerate(series):
            size = 180 * by.get(name, 0) / most
            y -= size
            if size:
                parts.append(
                    f'<rect x="{left + index * step + 2}" y="{y:.1f}" width="{step - 4}" height="{size:.1f}" '
                    f'fill="{_SERIES[number % len(_SERIES)]}"><title>{escape(month)}, {escape(name)}: {by[name]}</title></rect>'
                )
        if index % every == 0:
            parts.append(_text(left + index * step + 2, bottom + 16, month))
    for number, name in enumerate(series[:24]):
        y = height + 20 * (number // 3)
        x = 20 + 240 * (number % 3)
        parts.append(f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{_SERIES[number % len(_SERIES)]}"/>')
        parts.append(_text(x + 18, y, name))
    return _svg(max(width, 760), height + 20 * math.ceil(min(len(series), 24) / 3), parts)


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    shown = text if len(text) <= 40 else text[:39] + "…"
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(shown)}</text>'


def _svg(width: float, height: float, parts: Sequence[str]) -> str:
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size}>{"".join(parts)}</svg>'


def _jinja2() -> Any:
    import jinja2

    return jinja2


def _markupsafe() -> Any:
    from markupsafe import Markup

    return Markup
