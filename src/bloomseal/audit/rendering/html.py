"""One HTML page that needs no network: findings, charts as tables, and what could not be seen."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..._version import __version__
from ...core.text import safe_text
from ...storage.logs.snapshot import library
from ..facts.exposure import ALL_FILES, MARKS, exposures
from ..facts.groups import Files, groups
from ..report import Report
from ..rules.findings import Severity

_COLOURS: Final = {"critical": "#8e1b3a", "error": "#b83b22", "warning": "#8a5f00", "info": "#3f6d95"}
_CLEAN: Final = "#3d7a3c"
_EXAMPLES: Final = 3
_MOST_COMMANDS: Final = 20
_MOST_COLUMNS: Final = 60
_MOST_VERSIONS: Final = 24

STYLE: Final = """<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;margin:1.5rem auto;max-width:72rem;padding:0 1rem}
h1{font-size:1.6rem;margin:.2rem 0}h2{font-size:1.25rem;margin-top:2rem}h3{font-size:1.05rem;margin-bottom:.3rem}
p,dd,li,code{overflow-wrap:anywhere}code{font-size:.85rem}a{color:inherit}.note{opacity:.75}
.bad{color:#b3261e;font-weight:600}.open{color:#8a5a00;font-weight:600}
.verdict{border-left:.4rem solid;padding:.5rem .8rem;background:#8882;font-size:1.05rem}.verdict::first-letter{text-transform:uppercase}
.badge{color:#fff;border-radius:3px;padding:0 .45rem;white-space:nowrap;font-size:.85rem}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem}dt{font-weight:600}dd{margin:0}
.wide,figure{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #8886;vertical-align:top;overflow-wrap:break-word}
.wide th{white-space:nowrap}figure{margin:.6rem 0}figcaption{font-size:.85rem;opacity:.75}
figure table{width:auto}figure td{text-align:right;min-width:2.2rem}.bar{width:26rem}.bar div{height:.9rem}
@media(prefers-color-scheme:dark){.bad{color:#ff8a80}.open{color:#ffc866}}
@media(max-width:40rem){body{margin:.5rem auto}dl{grid-template-columns:1fr}.wide thead{display:none}
.wide tr{display:block;border-bottom:2px solid #8886;padding:.4rem 0}.wide td{display:block;border:0;padding:.1rem 0}
.wide td:empty{display:none}td[data-name]::before{content:attr(data-name) ": ";font-weight:600}}
@media print{body{max-width:none;margin:0;font-size:11pt}*{print-color-adjust:exact;-webkit-print-color-adjust:exact}
h2,h3{break-after:avoid}tr,dl,section,figure{break-inside:avoid}.wide,figure{overflow:visible}}
</style>"""
"""Of every page: it needs no network and no script, prints well, and reads well at 400 pixels as at 1280."""

_PAGE: Final = """<!doctype html>
<html lang="en"><head><title>Bloomseal audit</title>
{{ style }}</head><body>
{% macro badge(f) %}<span class="badge" style="background:{{ colours[f.severity.label] }}">{{ f.severity.label }}</span>{% endmacro %}
{% macro place(f) %}{{ f.file or "" }}{% if f.column %}, {{ f.column }}{% endif %}{% if f.row_groups %}, row group{{ "s" if f.row_groups | length > 1 }} {{ f.row_groups[:8] | join(", ") }}{% if f.row_groups | length > 8 %}, ...{% endif %}{% endif %}{% endmacro %}
<h1>Bloomseal audit</h1>
{% for one in beside %}<a href="{{ one }}">{{ one }}</a> {% endfor %}
<p class="verdict" style="border-color:{{ colour }}"><strong>{{ report.verdict }}</strong></p>
<h2>Findings</h2>
{% if not groups %}<p>There are none.</p>{% else %}
<div class="wide"><table><thead><tr><th>Severity</th><th>Rule</th><th>Findings</th><th>Files</th><th>Such as</th></tr></thead><tbody>
{% for g in groups %}<tr><td data-name="Severity">{{ badge(g.worst) }}</td>
<td data-name="Rule"><a href="#{{ g.worst.rule.id }}">{{ g.worst.rule.id }}</a> {{ g.worst.rule.title }}</td><td data-name="Findings">{{ "{:,}".format(g.findings | length) }}</td><td data-name="Files">{{ "{:,}".format(g.files) }}</td>
<td data-name="Such as">{{ place(g.worst) }}</td></tr>
{% endfor %}</tbody></table></div>
{% if commands %}<h2>To mend it</h2><p>Each command runs as it stands. What a person decides before that stands with the rule.</p>
<ul>{% for one, rules in commands[:commands_most] %}<li><code>{{ one }}</code><br>mends {% for rule in rules %}<a href="#{{ rule }}">{{ rule }}</a>{{ "" if loop.last else ", " }}{% endfor %}</li>{% endfor %}</ul>{% if commands | length > commands_most %}<p>And {{ commands | length - commands_most }} more commands; the JSON report has all.</p>{% endif %}{% endif %}{% endif %}
{% if report.unseen %}<h2>Could not look</h2><ul>{% for text in report.unseen %}<li>{{ text }}</li>{% endfor %}</ul>{% endif %}
{% if report.personal %}<h2>May be personal, and stands in clear</h2><ul>{% for name, why in report.personal.items() %}<li>{{ name }} (by {{ why }})</li>{% endfor %}</ul>{% endif %}
<h2>What was looked at</h2>
<dl><dt>Files</dt><dd>{{ "{:,}".format(report.files) }}, {{ "{:,}".format(chunks) }} column chunks{{ ", read as a whole" if report.deep else "" }}</dd>
<dt>Keys</dt><dd>{{ "at hand" if report.with_keys else "none: this is what everybody sees" }}</dd>
{% if report.signatures %}<dt>Signed by</dt><dd>{% for s in report.signatures %}{{ s.signer or s.signature }}: {{ s.files }} files{% if s.algorithms %} ({{ s.algorithms | join(", ") }}, not post-quantum){% endif %}{{ "" if loop.last else "; " }}{% endfor %}</dd>
{% endif %}<dt>In clear</dt><dd>{% for what, count in report.in_clear.items() %}{{ "{:,}".format(count) }} {{ what | replace("_", " ") }}{{ "" if loop.last else ", " }}{% endfor %}</dd>
<dt>Time</dt><dd>{{ moment }}</dd>
<dt>Policy</dt><dd>{{ ("its file's SHA-256 is " ~ report.policy) if report.policy else "one without a file" if report.with_policy else "none: nothing says what is to be sealed" }}</dd>
<dt>Made by</dt><dd>bloomseal {{ version }}</dd></dl>
<h2>Not seen</h2>
{% if not report.hidden %}<p>No key was missing for these {{ "{:,}".format(report.files) }} files{{ "" if report.deep else "; their pages were not read" }}.</p>{% else %}<ul>{% for text in report.hidden %}<li>{{ text }}</li>{% endfor %}</ul>{% endif %}
{% if groups %}<h2>Each rule</h2>{% endif %}
{% for g in groups %}{% set rule = g.worst.rule %}<section id="{{ rule.id }}"><h3>{{ rule.id }} {{ rule.name }}</h3><p class="note">{{ rule.title }}. {{ rule.why }}</p>
<ul>{% for f in g.findings[:examples] %}<li>{{ badge(f) }} {{ place(f) }}: {{ f.message }}</li>{% endfor %}</ul>
{% if g.findings | length > examples %}<p>And {{ "{:,}".format(g.findings | length - examples) }} more; the JSON report has all.</p>{% endif %}
{% if g.advice %}<p>For a person:</p><ul>{% for one in g.advice[:commands_most] %}<li>{{ one }}</li>{% endfor %}</ul>{% endif %}</section>
{% endfor %}
{% for title, caption, heads, lines in charts if lines %}<h2>{{ title }}</h2><figure><table>
{% if heads %}<thead><tr><th></th>{% for head in heads %}<th>{{ head }}</th>{% endfor %}</tr></thead>{% endif %}<tbody>
{% for name, cells in lines %}<tr><th>{{ name }}</th>{% for text, share, colour in cells %}{% if heads %}<td style="background:color-mix(in srgb,{{ colour }} {{ share }}%,transparent)">{{ text }}</td>{% else %}<td class="bar"><div style="width:{{ share }}%;background:{{ colour }}"></div></td><td>{{ text }}</td>{% endif %}{% endfor %}</tr>
{% endfor %}</tbody></table><figcaption>{{ caption }}</figcaption></figure>
{% endfor %}</body></html>
"""


def to_html(report: Report, *, beside: Sequence[str] = ()) -> str:
    """The page; the same audit gives the same text.

    Args:
        beside: pages in the same folder, which it links.

    Raises:
        MissingDependencyError: `jinja2` is not installed.
    """
    chunks = report.inventory.num_rows - report.inventory["row_group"].null_count
    moment = "not told" if report.moment is None else report.moment.strftime("%Y-%m-%d %H:%M:%S %Z")
    return rendered(
        _PAGE, report=report, beside=beside, chunks=chunks, moment=moment, colours=_COLOURS, colour=_colour(report), charts=_charts(report),
        groups=report.by_rule(), commands=list(report.commands().items()), examples=_EXAMPLES, commands_most=_MOST_COMMANDS, version=__version__,
    )  # fmt: skip


def rendered(template: str, **names: Any) -> str:
    """A page, its style and the names put in, which are escaped; raises as `to_html`."""
    environment, markup = templates()
    page: str = environment.from_string(template).render(style=markup(STYLE), **names)
    return page + "\n"


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
        (
            "Files per key version over time",
            "Files by the month in which they were last written, and the master key versions that their keys are under.",
            versions,
            months,
        ),
        (
            "Exposure",
            "The files in which something stands in clear, of all files with the column: darker is more. Of a column whose values do, filters are told beside.",
            MARKS,
            _exposure(table),
        ),
        (
            "Filter fill",
            "Share of bits set, over all filters that were opened. Beyond one half a filter grows useless.",
            (),
            _fill(table),
        ),
    ]


def _by_version(table: pa.Table) -> tuple[list[str], list[_Line]]:
    files: dict[tuple[str, str], Files] = {}
    dated = table.append_column("month", pc.strftime(table["file_modified"], "%Y-%m"))
    for prefix in ("footer_", ""):
        names = ("month", f"{prefix}master_key", f"{prefix}key_version")
        for row in groups(dated, names):
            month, key, version = (row[name] for name in names)
            if month is not None and key is not None:
                name = month, f"{key}:{version or '?'}"
                files[name] = np.union1d(files[name], row["files"]) if name in files else row["files"]
    versions = sorted({version for _, version in files})[:_MOST_VERSIONS]
    most = max(map(len, files.values()), default=1)
    counted = {name: len(found) for name, found in files.items()}
    lines = [
        (month, [_cell(counted.get((month, one), 0), most) for one in versions])
        for month in sorted({month for month, _ in files})
    ]
    return versions, lines


def _cell(count: int, most: int) -> tuple[str, int, str]:
    return f"{count:,}", 100 * count // most, _COLOURS["info"]


def _exposure(table: pa.Table) -> list[_Line]:
    return [
        (column if name is None else f"{name}: {column}", [_share(marks, mark) for mark in MARKS])
        for (name, column), marks in islice(exposures(table).items(), _MOST_COLUMNS)
    ]


def _share(marks: dict[str, Files], mark: str) -> tuple[str, int, str]:
    share = 100 * (count := len(marks.get(mark, ()))) // len(marks[ALL_FILES])
    return (f"{share} %" if count else "", max(share, 15), _COLOURS["error"] if count else _CLEAN)


def _fill(table: pa.Table) -> list[_Line]:
    counts, _ = np.histogram(table["filter_fill"].drop_null(), bins=20, range=(0, 1))
    colours = (_COLOURS["info"], _COLOURS["warning"])
    return [
        (f"{5 * one} to {5 * one + 5} %", [(f"{count:,}", 100 * count // max(counts), colours[one >= 10])])
        for one, count in enumerate(counts.tolist())
        if count
    ]


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
