"""One HTML page that needs no network: findings, charts as tables, and what could not be seen."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Final

from ..._version import __version__
from ...core.text import safe_text
from ...storage.logs.snapshot import library
from ..facts.files.views import EXPOSED
from ..report import Report
from ..rules.findings import Severity
from ..streamed import rows

__all__ = ["html_pieces", "templates", "to_html"]

_COLOURS: Final = {"critical": "#8e1b3a", "error": "#b83b22", "warning": "#8a5f00", "info": "#3f6d95"}
_CLEAN: Final = "#3d7a3c"
_MOST_OF_RULE: Final = 200
_MOST_COMMANDS: Final = 20
_MOST_COLUMNS: Final = 60
_MOST_VERSIONS: Final = 24
_KINDS: Final = ("plaintext", "filter", "page index", *EXPOSED)

_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Bloomseal audit</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root{--text:#222;--back:#fff;--line:#d5d5d5;--soft:#f4f4f2;--dim:#555}
body{font:15px/1.5 system-ui,sans-serif;margin:0 auto;max-width:72rem;padding:1.2rem 1rem 3rem;color:var(--text);background:var(--back)}
h1{font-size:1.6rem;margin:.2rem 0 .8rem}h2{font-size:1.25rem;margin:2.2rem 0 .6rem}h3{font-size:1.02rem;margin:1.6rem 0 .3rem}
p{margin:.3rem 0 .6rem}code{font-size:.85rem;overflow-wrap:anywhere}a{color:inherit}
.verdict{border-left:.4rem solid;padding:.5rem .8rem;background:var(--soft);font-size:1.05rem}
.badge{color:#fff;border-radius:3px;padding:0 .45rem;white-space:nowrap;font-size:.85rem}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem;font-size:.9rem}dt{color:var(--dim)}dd{margin:0;overflow-wrap:anywhere}
table{border-collapse:collapse;width:100%;font-size:.88rem}th,td{text-align:left;padding:.3rem .6rem .3rem 0;
border-bottom:1px solid var(--line);vertical-align:top;overflow-wrap:anywhere}th{color:var(--dim);font-weight:600;overflow-wrap:normal}
.findings td:nth-child(1){width:45%}
figure{margin:.6rem 0;overflow-x:auto}figcaption{font-size:.85rem;color:var(--dim)}.why{color:var(--dim);font-size:.9rem}
figure table{width:auto}figure td{text-align:right;min-width:2.2rem}.bar{width:26rem}.bar div{height:.9rem}
@media(max-width:44rem){body{font-size:14px}dl{grid-template-columns:1fr}dd{margin-bottom:.3rem}
.findings thead{display:none}.findings tr{display:block;border-bottom:1px solid var(--line);padding:.4rem 0}
.findings td,.findings td:nth-child(n){display:block;width:auto;border:0;padding:.1rem 0}}
@media screen and (prefers-color-scheme:dark){:root{--text:#ddd;--back:#16181c;--line:#3a3d42;--soft:#22252a;--dim:#aaa}}
@media print{@page{margin:15mm}body{max-width:none;padding:0;font-size:10pt}*{print-color-adjust:exact;-webkit-print-color-adjust:exact}
tr,figure,.verdict,h3+p{break-inside:avoid}h2,h3,h3+p{break-after:avoid}thead{display:table-header-group}figure{overflow:visible}}
</style></head><body>
<h1>Bloomseal audit</h1>
<p class="verdict" style="border-color:{{ colour }}"><strong>{{ report.verdict }}</strong></p>
<dl><dt>Looked at</dt><dd>{{ "{:,}".format(report.files) }} files, {{ "{:,}".format(chunks) }} column chunks{{ ", read as a whole" if report.deep else "" }}</dd>
<dt>Keys</dt><dd>{{ "at hand" if report.with_keys else "none: this is what everybody sees" }}</dd>
<dt>In clear</dt><dd>{% for what, count in report.in_clear.items() %}{{ "{:,}".format(count) }} {{ what | replace("_", " ") }}{{ "" if loop.last else ", " }}{% endfor %}</dd>
<dt>Time</dt><dd>{{ moment }}</dd>
<dt>Policy</dt><dd>{{ ("its file's SHA-256 is " ~ report.policy) if report.policy else "one without a file" if report.with_policy else "none: nothing says what is to be sealed" }}</dd>
<dt>Made by</dt><dd>bloomseal {{ version }}</dd></dl>
{% if report.unseen %}<h2>Could not look</h2><ul>{% for text in report.unseen %}<li>{{ text }}</li>{% endfor %}</ul>{% endif %}
{% if report.personal %}<h2>May be personal, and stands in clear</h2><ul>{% for name, why in report.personal.items() %}<li>{{ name }} (by {{ why }})</li>{% endfor %}</ul>{% endif %}
<h2>Findings</h2>
{% if not groups %}<p>{{ report.verdict }}.</p>{% else %}
<table><thead><tr><th>Severity</th><th>Rule</th><th>Count</th></tr></thead><tbody>
{% for g in groups %}<tr><td><span class="badge" style="background:{{ colours[g[0].severity.label] }}">{{ g[0].severity.label }}</span></td>
<td><a href="#{{ g[0].rule.id }}">{{ g[0].rule.id }}</a> {{ g[0].rule.title }}</td><td>{{ "{:,}".format(g | length) }}</td></tr>
{% endfor %}</tbody></table>
{% for g in groups %}{% set rule = g[0].rule %}<section id="{{ rule.id }}"><h3>{{ rule.id }} {{ rule.name }}</h3><p class="why">{{ rule.title }}. {{ rule.why }}</p>
{% set commands = g | map(attribute="fix") | select | unique | list %}{% set advice = g | rejectattr("fix") | map(attribute="advice") | unique | list %}
{% if commands %}<p>Mend it:</p><ul>{% for one in commands[:commands_most] %}<li><code>{{ one }}</code></li>{% endfor %}</ul>{% if commands | length > commands_most %}<p>And {{ commands | length - commands_most }} more commands; the JSON report has all.</p>{% endif %}{% endif %}
{% if advice %}<p>Needs a person:</p><ul>{% for one in advice[:commands_most] %}<li>{{ one }}</li>{% endfor %}</ul>{% endif %}
<table class="findings"><thead><tr><th>Place</th><th>What was seen</th></tr></thead><tbody>
{% for f in g[:most] %}<tr>
<td>{{ f.file or "" }}{% if f.column %}<br>{{ f.column }}{% endif %}{% if f.row_groups %}<br>row group{{ "s" if f.row_groups | length > 1 else "" }} {{ f.row_groups[:8] | join(", ") }}{% if f.row_groups | length > 8 %}, ...{% endif %}{% endif %}</td>
<td><span class="badge" style="background:{{ colours[f.severity.label] }}">{{ f.severity.label }}</span> {{ f.message }}</td></tr>
{% endfor %}</tbody></table>
{% if g | length > most %}<p>And {{ "{:,}".format(g | length - most) }} more; the JSON report has all.</p>{% endif %}</section>
{% endfor %}{% endif %}
<h2>Not seen</h2>
{% if not report.hidden %}<p>No key was missing for these {{ "{:,}".format(report.files) }} files{{ "" if report.deep else "; their pages were not read" }}.</p>{% else %}<ul>{% for text in report.hidden %}<li>{{ text }}</li>{% endfor %}</ul>{% endif %}
{% for title, caption, heads, lines in charts if lines %}<h2>{{ title }}</h2><figure><table>
{% if heads %}<thead><tr><th></th>{% for head in heads %}<th>{{ head }}</th>{% endfor %}</tr></thead>{% endif %}<tbody>
{% for name, cells in lines %}<tr><th>{{ name }}</th>{% for text, share, colour in cells %}{% if heads %}<td style="background:color-mix(in srgb,{{ colour }} {{ share }}%,transparent)">{{ text }}</td>{% else %}<td class="bar"><div style="width:{{ share }}%;background:{{ colour }}"></div></td><td>{{ text }}</td>{% endif %}{% endfor %}</tr>
{% endfor %}</tbody></table><figcaption>{{ caption }}</figcaption></figure>
{% endfor %}</body></html>
"""


def to_html(report: Report) -> str:
    """The page; the same audit gives the same text.

    Raises:
        MissingDependencyError: `jinja2` is not installed.
    """
    return "".join(html_pieces(report))


def html_pieces(report: Report) -> Iterator[str]:
    """The text of `to_html`, piece by piece; raises as that."""
    environment, _ = templates()
    chunks = report.inventory.num_rows - report.inventory["row_group"].null_count
    pieces: Iterator[str] = environment.from_string(_PAGE).generate(
        report=report, chunks=chunks, colours=_COLOURS, charts=_charts(report), most=_MOST_OF_RULE, commands_most=_MOST_COMMANDS, version=__version__,
        groups=report.by_rule(), colour=_colour(report),
        moment="not told" if report.moment is None else report.moment.strftime("%Y-%m-%d %H:%M:%S %Z"),
    )  # fmt: skip
    return chain(pieces, ("\n",))


def _colour(report: Report) -> str:
    """Of the verdict: green only where that is *ok*."""
    if report.ok:
        return _CLEAN
    worst = report.worst
    if report.ok is None or worst is None or worst < Severity.ERROR:
        return _COLOURS["warning" if report.ok is None else "error"]
    return _COLOURS[worst.label]


def _shown(value: Any) -> Any:
    """What the template puts in, markup of ours apart, is one line that shows what is there."""
    return safe_text(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


_Line = tuple[str, list[tuple[str, int, str]]]
"""A line of a chart: its name, and cells: text, percentage, colour."""
_Chart = tuple[str, str, Sequence[str], list[_Line]]
"""Title, caption, names of the columns (none: each line is a bar), lines."""


def _charts(report: Report) -> list[_Chart]:
    table = report.inventory
    versions, months = _by_version(table)
    return [
        ("Findings by rule", "How many findings each rule has.", (), _by_rule(report)),
        (
            "Files per key version over time",
            "Files by the month in which they were last written, and the master key versions that their keys are under.",
            versions,
            months,
        ),
        (
            "Exposure",
            "What stands in clear of each column, over all its chunks: darker is more. Filters in clear of plaintext columns count too.",
            _KINDS,
            _exposure(table),
        ),
        (
            "Filter fill",
            "Share of bits set, over all filters that were opened. Beyond one half a filter grows useless.",
            (),
            _fill(table),
        ),
    ]


def _bars(bars: Sequence[tuple[str, int, str]]) -> list[_Line]:
    most = max((count for _, count, _ in bars), default=1)
    return [(name, [(f"{count:,}", 100 * count // most, colour)]) for name, count, colour in bars]


def _by_rule(report: Report) -> list[_Line]:
    counted: Counter[tuple[int, str]] = Counter()
    for finding in report.findings:
        counted[-finding.severity, f"{finding.rule.id} {finding.rule.name}"] += 1
    return _bars([(name, count, _COLOURS[Severity(-worst).label]) for (worst, name), count in sorted(counted.items())])


def _by_version(table: Any) -> tuple[list[str], list[_Line]]:
    names = ["file", "file_modified", "footer_master_key", "footer_key_version", "master_key", "key_version"]
    months: dict[str, Counter[str]] = defaultdict(Counter)
    last: dict[tuple[str, str], str] = {}  # a file's rows follow each other
    for row in rows(table.select(names)):
        if row["file_modified"] is None:
            continue
        month = row["file_modified"].strftime("%Y-%m")
        for key, version in (
            (row["footer_master_key"], row["footer_key_version"]),
            (row["master_key"], row["key_version"]),
        ):
            name = month, f"{key}:{version or '?'}"
            if key is not None and last.get(name) != row["file"]:
                last[name] = row["file"]
                months[month][name[1]] += 1
    versions = sorted({name for month in months.values() for name in month})[:_MOST_VERSIONS]
    most = max((count for month in months.values() for count in month.values()), default=1)
    lines = [
        (month, [(f"{by[one]:,}", 100 * by[one] // most, _COLOURS["info"]) for one in versions])
        for month, by in sorted(months.items())
    ]
    return versions, lines


def _exposure(table: Any) -> list[_Line]:
    total: Counter[str] = Counter()
    open_: Counter[tuple[str, str]] = Counter()
    names = ["column", "protection", "filter", "column_index", "in_clear"]
    for row in rows(table.select(names)):
        column = row["column"]
        if column is None:
            continue
        total[column] += 1
        open_[column, "plaintext"] += row["protection"] == "plaintext"
        open_[column, "filter"] += row["filter"] == "in clear"
        open_[column, "page index"] += row["column_index"] == "in clear"
        for name in row["in_clear"] or ():
            open_[column, name] += 1
    return [
        (column, [_share(open_[column, kind], total[column]) for kind in _KINDS])
        for column in sorted(total)[:_MOST_COLUMNS]
    ]


def _share(count: int, total: int) -> tuple[str, int, str]:
    share = 100 * count // total
    return (f"{share} %" if count else "", max(share, 15), _COLOURS["error"] if count else _CLEAN)


def _fill(table: Any) -> list[_Line]:
    fills = (row["filter_fill"] for row in rows(table.select(["filter_fill"])))
    bins = Counter(min(int(value * 20), 19) for value in fills if value is not None)
    colours = (_COLOURS["info"], _COLOURS["warning"])
    return _bars([(f"{5 * one} to {5 * one + 5} %", bins[one], colours[one >= 10]) for one in sorted(bins)])


def templates() -> tuple[Any, Any]:
    """An environment whose templates escape whatever they put in, and what marks a text as markup of ours.

    Raises:
        MissingDependencyError: `jinja2` is not installed.
    """
    return library("jinja2", "report", _templates)


def _templates() -> tuple[Any, Any]:
    import jinja2
    import markupsafe

    return jinja2.Environment(autoescape=True, finalize=_shown), markupsafe.Markup
