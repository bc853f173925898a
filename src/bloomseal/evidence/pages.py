"""The bundle's pages, for people: an index that opens with findings and what was not seen, and a page about leaks.

Every name comes from a file: it is escaped, and shown on one line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ..audit.facts.exposure import FILTER
from ..audit.rendering.html import rendered
from ..policy import SENSITIVE
from .claims import CONTRADICTED, NOT_CONTRADICTED, NOT_SEEN

_HEAD: Final = """<!doctype html>
<html lang="en"><head><title>{{ title }}</title>
{{ style }}</head><body>
<h1>{{ title }}</h1>
<p><a href="index.html">index.html</a> <a href="leaks.html">leaks.html</a> <a href="audit.html">audit.html</a></p>
<p>Made {{ told.made }} by {{ told.by.user }}@{{ told.by.host }} with {{ told.tool.name }} {{ told.tool.version }}, over
{{ told.looked_at.files }} files at {{ told.looked_at.paths | join(", ") }};
keys: {{ "at hand" if told.looked_at.with_keys else "none, so this is what everybody sees" }};
KMS: {{ told.looked_at.kms or "not asked" }}; policy: {{ ("SHA-256 " ~ told.looked_at.policy_sha256) if told.looked_at.policy_sha256 else "no file" }}.</p>
"""

_INDEX: Final = (
    """{% macro claim(c) %}<span class="{{ marks[c.standing] }}">{{ c.text }}</span>{% endmacro %}"""
    + _HEAD
    + """<p class="note">This page proves nothing by itself. <code>bloomseal evidence verify BUNDLE --public-key PEM</code> tells whether
the bundle is as its signers left it.</p>
<h2>Findings</h2>
<p>{% for severity, count in told.looked_at.findings.items() %}{{ count }} {{ severity }}{{ ", " if not loop.last }}{% endfor %}: <a href="audit.html">audit.html</a> has all of them.</p>
{% if told.rules %}<div class="wide"><table><thead><tr><th>Severity</th><th>Rule</th><th>Findings</th><th>Such as</th></tr></thead><tbody>
{% for f in told.rules %}<tr><td data-name="Severity"><span class="{{ "open" if f.severity in ("info", "warning") else "bad" }}">{{ f.severity }}</span></td><td data-name="Rule">{{ f.rule }} {{ f.name }}</td><td data-name="Findings">{{ f.findings }}</td>
<td data-name="Such as">{{ f.such_as.file or "" }}{% if f.such_as.column %}, column {{ f.such_as.column }}{% endif %}: {{ f.such_as.message }}</td></tr>
{% endfor %}</tbody></table></div>{% endif %}
<h2 id="unseen">Not seen</h2>
{% if told.looked_at.unseen %}<ul>{% for text in told.looked_at.unseen %}<li class="bad">{{ text }}</li>{% endfor %}</ul>
{% else %}<p>The audit names nothing at these paths that it could not see.</p>{% endif %}
<h2>The bundle</h2>
<ul><li><a href="leaks.html">leaks.html</a>: what anybody can read today</li><li><a href="audit.html">audit.html</a>, <a href="audit.json">audit.json</a>, <a href="audit.sarif">audit.sarif</a>: findings</li>
<li><a href="inventory.parquet">inventory.parquet</a>: one row for each file, row group and column</li><li><a href="evidence.json">evidence.json</a>, <a href="evidence.schema.json">evidence.schema.json</a>: all of this page, for machines</li>
<li><a href="cbom-1.6.json">cbom-1.6.json</a>, <a href="cbom-1.7.json">cbom-1.7.json</a>: CycloneDX</li>{% for r in told.rotations if r.journal.startswith("rotation/") %}<li><a href="{{ r.journal }}">{{ r.journal }}</a>: a journal as it is</li>{% endfor %}
{% for d in told.destructions %}{% set name = "destruction/%03d.json" % loop.index0 %}<li><a href="{{ name }}">{{ name }}</a>: what was looked at for {{ d.master_key }}:{{ d.version }}</li>{% endfor %}
<li><a href="manifest.json">manifest.json</a>, <code>signatures/</code>: digests of all of it, and who signed them</li></ul>
<h2>Requirements</h2>
{% if told.requirements %}<p class="note">What was seen of the columns that the policy puts under each; what a requirement asks for is for people to judge.</p>
<div class="wide"><table><thead><tr><th>Requirement</th><th>Columns</th><th>Files looked into</th><th>Keys</th><th>Findings</th><th>Not seen</th></tr></thead><tbody>
{% for r in told.requirements %}<tr><td data-name="Requirement">{{ r.requirement }}</td><td data-name="Columns">{{ r.columns | join(", ") }}</td>
<td data-name="Files looked into"><span class="{{ "open" if r.looked_into < r.files }}">{{ r.looked_into }} of {{ r.files }}</span></td><td data-name="Keys">{{ r["keys"] | join(", ") }}</td>
<td data-name="Findings">{% for rule, count in r.findings.items() %}<span class="bad">{{ rule }}: {{ count }}</span><br>{% endfor %}{% for text in r.key_findings %}<span class="bad">{{ text }}</span><br>{% endfor %}</td>
<td data-name="Not seen">{{ r.unseen | join("; ") }}</td></tr>
{% endfor %}</tbody></table></div>
{% else %}<p>The policy puts no column under a requirement.</p>{% endif %}
<h2>Columns</h2>
<p class="note">Columns in plaintext of which the policy says nothing are in <a href="leaks.html">leaks.html</a>.</p>
<div class="wide"><table><thead><tr><th>Column</th><th>Comes under</th><th>Sensitivity</th><th>Seen in</th><th>Keys</th><th>Findings</th></tr></thead><tbody>
{% for c in told.columns if c.requirements or c["keys"] or c.findings or "plaintext" not in c.files %}<tr><td data-name="Column">{{ c.table or "(no table)" }}: {{ c.column }}</td><td data-name="Comes under">{{ c.requirements | join(", ") }}</td><td data-name="Sensitivity">{{ c.sensitivity or "" }}</td>
<td data-name="Seen in">{% for how, count in c.files.items() %}{{ how }}: {{ count }} files<br>{% else %}no file{% endfor %}</td><td data-name="Keys">{{ c["keys"] | join(", ") }}</td>
<td data-name="Findings">{% for rule, count in c.findings.items() %}{{ rule }}: {{ count }}<br>{% endfor %}</td></tr>
{% endfor %}</tbody></table></div>
<h2>Keys</h2>
<div class="wide"><table><thead><tr><th>Key</th><th>State</th><th>Active since</th><th>Rotation due</th><th>Usage ends</th><th>Files</th><th>Modules</th><th>Columns</th><th>By the policy</th></tr></thead><tbody>
{% for k in told["keys"] %}<tr><td data-name="Key">{{ k.master_key }}:{{ k.version or "?" }}{{ " (current)" if k.current }}</td>
<td data-name="State">{{ k.state }}{% if k.kms_problem %} ({{ k.kms_problem }}){% endif %}{% for f in k.findings %}<br><span class="bad">{{ f.what }}</span>{% endfor %}</td>
<td data-name="Active since">{{ (k.activation or "not told")[:10] }}</td><td data-name="Rotation due">{{ (k.rotation_due or "")[:10] }}</td>
<td data-name="Usage ends">{{ (k.expiry or k.recipient_usage_ends or "")[:10] }}</td>
<td data-name="Files">{{ k.files }}</td><td data-name="Modules, at least">{{ k.modules }}</td>
<td data-name="Columns">{% for u in k.uses %}{{ u.table or "(no table)" }}: {{ u.column }}{{ ", " if not loop.last }}{% endfor %}</td>
<td data-name="By the policy">owner {{ k.owner or "not named" }}, custodian {{ k.custodian or "not named" }}, users {{ k.users | join(", ") or "not named" }}</td></tr>
{% endfor %}</tbody></table></div>
{% if told.signatures %}<h2>Signatures</h2>
<div class="wide"><table><thead><tr><th>Table</th><th>Signer</th><th>Files</th><th>Algorithms</th><th>Keys (SHA-256)</th></tr></thead><tbody>
{% for s in told.signatures %}<tr><td data-name="Table">{{ s.table or "(no table)" }}</td><td data-name="Signer"><span class="{{ "bad" if not s.signer }}">{{ s.signer or s.signature }}</span></td>
<td data-name="Files">{{ s.files }}</td><td data-name="Algorithms">{{ s.algorithms | join(", ") }}{{ ", not post-quantum" if s.post_quantum is sameas false }}</td><td data-name="Keys">{{ s["keys"] | join(", ") }}{{ ", by the signatures' own word" if s["keys"] and not s.signer }}</td></tr>
{% endfor %}</tbody></table></div>{% endif %}
<h2>Rotations</h2>
{% if told.rotations %}<div class="wide"><table><thead><tr><th>Journal</th><th>No file was missed</th><th>What</th><th>By</th><th>From, to</th><th>Files</th><th>Chain</th></tr></thead><tbody>
{% for r in told.rotations %}<tr><td data-name="Journal">{{ r.journal }}</td>
<td data-name="No file was missed">{{ claim(r.complete) }}</td>
<td data-name="What">{{ r.operation or "" }}{% for p in r["keys"] %}<br>{{ p.before or "none" }} to {{ p.after or "none" }}: {{ p.files }} files{% endfor %}</td>
<td data-name="By">{{ r.by | join(", ") }}{% for name, count in r.signed_by.items() %}<br>{{ count }} files signed by {{ name }}{% endfor %}</td><td data-name="From, to">{{ r.started or "" }}<br>{{ r.ended or "no end" }}</td>
<td data-name="Files">{% for status, count in r.files.items() %}{{ count }} {{ status }}<br>{% endfor %}</td><td data-name="Chain">{{ r.chain }}</td></tr>
{% endfor %}</tbody></table></div>{% else %}<p>No journal is in the bundle.</p>{% endif %}
<h2>Destruction</h2>
{% for d in told.destructions %}<section><h3>{{ d.master_key }}:{{ d.version }}</h3>
<dl><dt>The KMS has destroyed it</dt><dd>{{ claim(d.destroyed) }}</dd>
<dt>No file needs it</dt><dd>{{ claim(d.unneeded) }}</dd>
<dt>Looked at</dt><dd>{{ d.files }} files, at {{ d.looked_at | join(", ") }}</dd>
<dt>Not looked at</dt><dd>{{ d.not_looked_at | join("; ") }}</dd>
<dt>Tried</dt><dd>{% for t in d.tried %}{{ t.outcome }}: {{ t.file }}{% if t.column %}, column {{ t.column }}{% endif %}: {{ t.why }}<br>{% else %}no sample was given{% endfor %}</dd>
<dt>Signatures asked for</dt><dd>{{ d.signatures_required }}</dd></dl></section>
{% else %}<p>No certificate was asked for.</p>{% endfor %}
<h2>Access</h2>
<p>{% for table, on in told.access.logged_by_policy.items() %}{{ table }}: access log {{ "on" if on else "off" }} by the policy. {% else %}No policy was given.{% endfor %}</p>
{% if told.access.log %}{% set log = told.access.log %}<p>{{ log.log }} (SHA-256 {{ log.sha256 }}): {{ log.lines }} lines from {{ log.first }} to {{ log.last }}; {{ log.refusals }} refusals; {{ log.not_understood }} lines not understood.</p>
<div class="wide"><table><thead><tr><th>By</th><th>Key</th><th>Column</th><th>Action</th><th>Outcome</th><th>Times</th></tr></thead><tbody>
{% for u in log.uses[:200] %}<tr><td data-name="By">{{ u.by }}</td><td data-name="Key">{{ u.key }}</td><td data-name="Column">{{ u.column }}</td><td data-name="Action">{{ u.action }}</td><td data-name="Outcome">{{ u.outcome }}</td><td data-name="Times">{{ u.times }}</td></tr>
{% endfor %}</tbody></table></div>{% endif %}
</body></html>
"""
)

_LEAKS: Final = (
    _HEAD
    + """<p><strong>{{ headline }}</strong></p>
{% for group, mark, rows in groups %}{% if rows %}<h2>{{ group }}</h2>
<div class="wide"><table><thead><tr><th>Table, column</th><th>Values in clear</th><th>What else is in clear</th></tr></thead><tbody>
{% for r in rows %}{% set open, files = r.in_clear.get("values", 0), r.seen_in %}<tr><td data-name="Column">{{ r.table or "(no table)" }}: {{ r.column }}</td>
<td data-name="Values"><span{% if open %} class="{{ mark }}"{% endif %}>in {{ open }} of {{ files }} files</span></td>
<td data-name="Also">{% for what, count in r.in_clear.items() if what != "values" %}{{ what }} in clear in {{ count }} of {{ files }} files<br>{% endfor %}
{% if r.candidates_per_second %}{% set seconds = 1000000000 / r.candidates_per_second %}one file's filters, over some {{ "{:,}".format(r.values_in_filter) }} values, answer for {{ "{:,}".format(r.candidates_per_second) }} candidates a second on one core: all numbers of nine digits in about {{ "%.1f hours" | format(seconds / 3600) if seconds > 7200 else "%.0f minutes" | format(seconds / 60) if seconds > 120 else "%.0f seconds" | format(seconds) }}<br>{% endif %}
{% if r.unseen %}{{ r.unseen }} files could not be looked into{% endif %}</td></tr>
{% endfor %}</tbody></table></div>{% endif %}{% endfor %}
{% if filters %}<h2>What a filter in clear gives away</h2>
<p>A Bloom filter answers one question for everybody who can read the file: could this value be in here? Whoever has a list of possible
values (all nine-digit numbers, all telephone numbers, a stolen customer list) asks for each of them, and keeps those that it confirms.
No key is needed, nothing is broken, and nobody notices.</p>{% endif %}
{% if told.looked_at.unseen %}<h2>Not seen</h2>{% for text in told.looked_at.unseen %}<p>{{ text }}</p>{% endfor %}{% endif %}
</body></html>
"""
)
_MARKS: Final = {CONTRADICTED: "bad", NOT_SEEN: "open", NOT_CONTRADICTED: ""}


def index_page(told: dict[str, Any]) -> str:
    """The index.

    Args:
        told: as ``evidence.json`` has it.

    Raises:
        MissingDependencyError: `jinja2` is not installed.
    """
    return rendered(_INDEX, told=told, title="Evidence about encrypted tables", marks=_MARKS)


def leak_page(told: dict[str, Any]) -> str:
    """What anybody can read today; arguments and exceptions as of `index_page`."""
    seen = [one for one in told["columns"] if one["seen_in"]]
    sensitive = [one for one in seen if one["sensitivity"] in SENSITIVE or one["requirements"]]
    others = [one for one in seen if one not in sensitive]
    return rendered(
        _LEAKS,
        told=told,
        title="What anybody can read today",
        headline=_headline(sensitive),
        groups=[("Sensitive columns", "bad", sensitive), ("Other columns", "open", others)],
        filters=any(FILTER in one["in_clear"] for one in seen),
    )


def _headline(sensitive: Sequence[dict[str, Any]]) -> str:
    if not sensitive:
        return "No column that was seen is sensitive by a policy."
    open_ones = [str(one["column"]) for one in sensitive if one["in_clear"]]
    unseen = sum(1 for one in sensitive if one["unseen"])
    told = f"Of {len(sensitive)} sensitive columns that were seen, {len(open_ones)} give something away"
    told += f": {', '.join(open_ones)}" if open_ones else ""
    return told + (f"; {unseen} could not be looked into everywhere." if unseen else ".")
