"""The rules, as a table. ``docs/audit-rules.md`` is made from it (`rules_as_markdown`)."""

from __future__ import annotations

from textwrap import fill
from typing import Final

from .findings import Rule, Severity

__all__ = ["RULES", "rules_as_markdown"]

_INFO, _WARNING, _ERROR, _CRITICAL = Severity.INFO, Severity.WARNING, Severity.ERROR, Severity.CRITICAL
_REKEY: Final = "bloomseal rekey {file}"
_KNOWN: Final = "info where the file's writer is known to leave it open always; error on a column that the policy calls confidential or restricted"

_TABLE: Final = (
    # What lies open
    Rule("BS101", "plaintext-column", "A column that the policy gives a key is in plaintext", _ERROR,
         "Whoever can read the file reads the values.",
         "bloomseal {seal} {file} --policy POLICY --table {table}", "policy", "critical on a restricted column"),
    Rule("BS102", "clear-filter-on-encrypted-column", "The filter of an encrypted column is in clear", _CRITICAL,
         "Anybody can ask the filter whether a value is in the file, without any key. Of a small domain, such as social security "
         "numbers, all values can be listed. Some writers leave the filters of encrypted columns so.",
         "bloomseal attach {file} --bloom-filter {column}"),
    Rule("BS103", "clear-filter-on-sensitive-column", "A sensitive column in plaintext has a filter as well", _ERROR,
         "The filter answers membership even to those who see the footer and the filter only, such as caches and scanners.",
         "bloomseal {seal} {file} --policy POLICY --table {table}", "policy", "critical on a restricted column"),
    Rule("BS104", "clear-statistics", "Statistics of an encrypted column are in clear", _ERROR,
         "Smallest and greatest value, or the number of nulls, stand in the readable part of the footer.", _REKEY, "nothing", _KNOWN),
    Rule("BS105", "clear-size-statistics", "Size statistics of an encrypted column are in clear", _WARNING,
         "They tell the total length of the values and how many are null or repeated.", _REKEY, "nothing", _KNOWN),
    Rule("BS106", "clear-geospatial-statistics", "Geospatial statistics of an encrypted column are in clear", _WARNING,
         "A bounding box tells where the geometries lie.", _REKEY, "nothing", _KNOWN),
    Rule("BS107", "clear-page-index", "The page index of an encrypted column is in clear", _ERROR,
         "A column index holds the smallest and greatest value of every page.", _REKEY),
    Rule("BS108", "clear-filter-place", "Offset or length of an encrypted column's filter are in clear", _WARNING,
         "The length tells the number of distinct values within a factor of two.", _REKEY, "nothing", _KNOWN),
    Rule("BS109", "clear-column-metadata", "Key-value pairs or page counts of an encrypted column are in clear", _WARNING,
         "They were written about the values, by the writer or by an application.", _REKEY, "nothing", _KNOWN),
    Rule("BS110", "clear-levels", "Pages of an encrypted column leave their levels in clear", _INFO,
         "In V2 pages parquet-java encrypts the values only: which rows are null, and how lists are nested, can be read.",
         _REKEY, "keys, --deep", "warning on a column that the policy calls confidential or restricted"),
    Rule("BS111", "plaintext-file", "A plaintext file in an encrypted table", _ERROR,
         "Readers that accept plaintext (the key tools of other implementations always do) take it for part of the table: whoever "
         "may add files chooses what is read, and what a misconfigured writer wrote lies open.",
         "bloomseal seal {file} --policy POLICY --table {table}", "nothing",
         "without a policy: warning beside encrypted files with the same columns in the same folder, else nothing"),
    Rule("BS112", "plaintext-footer", "A plaintext footer where the policy wants it encrypted", _WARNING,
         "Schema, row counts and key-value metadata are open to everybody.", _REKEY, "policy"),
    Rule("BS113", "clear-table-statistics", "A table's own metadata holds values of an encrypted column", _INFO,
         "Delta keeps smallest and greatest values in its log, Iceberg in its manifests, whatever the data files hide.",
         "leave {column} out of delta.dataSkippingStatsColumns, or set write.metadata.metrics.column.{column} = none; then rewrite {file}",
         "nothing", "error on a column that the policy calls confidential or restricted"),
    Rule("BS114", "stray-clear-filter", "An encrypted file holds a filter in clear that no readable metadata names", _CRITICAL,
         "An encrypted footer hides where a filter stands, not its bytes: they can be searched for, and the filter answers anybody. "
         "Some writers leave the filters of encrypted columns so; or it is the remainder of a rewrite.",
         "bloomseal audit {file} --deep with the keys, which names the column; then bloomseal attach {file} --bloom-filter COLUMN", "--deep",
         "info where metadata that can't be seen may name it as a plaintext column's"),
    # What can't be trusted
    Rule("BS201", "unreadable-file", "A file that can't be read", _ERROR,
         "It breaks the specification, is truncated, or is no Parquet file. What protects it is unknown.",
         "bloomseal verify {file}"),
    Rule("BS202", "filter-not-authentic", "A filter does not authenticate", _ERROR,
         "It was altered, or comes from another place. A wrong filter makes readers skip rows that are there.",
         "bloomseal attach {file} --bloom-filter {column}", "keys"),
    Rule("BS203", "footer-not-authentic", "The footer does not authenticate", _CRITICAL,
         "The footer was altered, the file was moved from the place that its AAD prefix names, or its key was exchanged.",
         "bloomseal verify {file}", "keys"),
    Rule("BS204", "unsigned-footer", "A plaintext footer that is unsigned, or can't be verified", _WARNING,
         "Row groups and columns could be missing or exchanged, and nobody would notice.",
         "bloomseal verify {file}", "nothing", "error where there is no signature at all"),
    Rule("BS205", "empty-filter", "A filter without a single bit over a chunk with values", _WARNING,
         "Readers that believe it find nothing, silently.", "bloomseal attach {file} --bloom-filter {column}", "keys"),
    Rule("BS206", "module-not-authentic", "Column metadata that can't be opened or believed", _ERROR,
         "It does not authenticate under the column's key, contradicts the schema, or has a name that could be taken for that of an "
         "encrypted column.", "bloomseal verify {file}", "keys, or policy"),
    Rule("BS207", "unbound-modules", "An encrypted file without aad_file_unique", _WARNING,
         "Its modules are not bound to the file: pages can be exchanged between files unnoticed. DuckDB writes such files.",
         "bloomseal write {file} NEW"),
    Rule("BS208", "broken-filter", "A filter that can't be used", _WARNING,
         "Its header or length breaks the specification; readers ignore it, or worse, fill it up with zeros.",
         "bloomseal attach {file} --bloom-filter {column}", "keys"),
    # Keys
    Rule("BS301", "old-key-version", "A key version older than the policy allows", _WARNING,
         "The longer a version is in use, the more one leak of it opens.", "bloomseal rewrap {file}", "keys and policy"),
    Rule("BS302", "unusable-master-key", "A master key that is disabled, destroyed, about to be, or unknown", _ERROR,
         "The file, or the column, can't be opened; if the key was destroyed, it never will be again.",
         "bloomseal keyring list", "keys", "critical where the key was destroyed, warning where its deletion is pending"),
    Rule("BS303", "unexpected-master-key", "Sealed under a master key that the policy does not name", _ERROR,
         "Everything authenticates, under the wrong key: whoever may replace files can name a key of his own.",
         "bloomseal rewrap {file} --from {old} --to {key}", "policy"),
    Rule("BS304", "previous-master-key", "Still sealed under a previous master key", _INFO,
         "The old key can't be retired as long as some file needs it.", "bloomseal rewrap {file} --from {old} --to {key}", "policy"),
    Rule("BS305", "shared-data-key", "Several files share a data key", _WARNING,
         "Every file counts against one key's invocation limit, and one leak opens them all. Key tools make fresh keys per file.",
         "bloomseal rekey {file}", "nothing", "info for keys that go by an id of the writer's own: there it may be meant"),
    Rule("BS306", "nonce-repeated", "A nonce was used twice under one key", _CRITICAL,
         "AES-GCM breaks then: the XOR of both plaintexts is open, and modules can be forged.",
         "bloomseal rekey {file}", "--deep"),
    Rule("BS307", "invocation-limit", "A key near its invocation limit", _WARNING,
         "NIST SP 800-38D, section 8.3: at most 2^32 seals per key with random nonces; a policy may set less.",
         "bloomseal rekey {file}", "nothing", "warning from half of the limit on, critical beyond it"),
    Rule("BS308", "aad-prefix-missing", "No AAD prefix where the policy wants one", _ERROR,
         "Nothing binds the file to its table and name: it can be put in another file's place.", _REKEY, "policy"),
    Rule("BS309", "aad-prefix-mismatch", "An AAD prefix other than the policy's", _ERROR,
         "The file was moved or renamed, or an old version was put back.", _REKEY, "policy",
         "warning where the right prefix is stored although the policy wants it kept outside"),
    Rule("BS310", "unauthenticated-pages", "AES_GCM_CTR_V1 where the policy wants pages authenticated", _WARNING,
         "Bits of a page can be flipped unnoticed.", "bloomseal rekey {file} --allow-ctr --algorithm AES_GCM_V1", "policy"),
    Rule("BS311", "short-key", "A key shorter than the policy's", _WARNING,
         "The policy asks for more bits.", "bloomseal rekey {file} --key-bits {bits}", "policy"),
    Rule("BS312", "kms-address", "A KMS address in the file that is not an allowed one", _ERROR,
         "Readers that follow it hand their credentials to whoever wrote it.", "bloomseal rewrap {file}", "nothing",
         "info without a policy"),
    Rule("BS313", "orphaned-key-material", "External key material without its file", _WARNING,
         "The file is gone or was renamed; renamed, it can't be opened.", "rm {file}"),
    Rule("BS314", "stale-key-material", "External key material that the file does not use", _INFO,
         "It was left behind by a rewrite, and keeps an old key version in use for nothing.", "bloomseal rewrap {file}"),
    Rule("BS315", "missing-key-material", "External key material is missing or broken", _ERROR,
         "Without it the file can't be opened by anybody.", "restore _KEY_MATERIAL_FOR_… beside {file}"),
    # Filters
    Rule("BS401", "overfull-filter", "A filter holds more values than it is for", _WARNING,
         "Its false positives make readers open row groups for nothing.",
         "bloomseal attach {file} --bloom-filter {column}", "keys",
         "the policy's probability doubled, or one half without a policy, and more values than the size is for"),
    Rule("BS402", "telling-filter-size", "Filter sizes that tell the number of distinct values", _WARNING,
         "The policy wants one constant size: lengths stay visible under encryption.",
         "bloomseal attach {file} --bloom-filter {column}:{filter}", "policy"),
    Rule("BS403", "missing-filter", "No filter where the policy wants one", _INFO,
         "Look-ups read the column chunk.", "bloomseal attach {file} --bloom-filter {column}", "policy"),
)  # fmt: skip

RULES: Final[dict[str, Rule]] = {rule.id: rule for rule in _TABLE}
"""All rules by their ids."""

_CHAPTERS: Final = {
    "BS1": "What lies open",
    "BS2": "What can't be trusted",
    "BS3": "Keys",
    "BS4": "Filters",
}


def rules_as_markdown() -> str:
    """The text of ``docs/audit-rules.md``."""
    lines = [
        "# Audit rules",
        "",
        "`bloomseal audit` reports these. The page is generated from `bloomseal.audit.rules.catalogue`; ids and names never change their",
        "meaning. *Seen with* says what must be at hand: `nothing` means that everybody who can read the files sees it.",
        "",
    ]
    for start, chapter in _CHAPTERS.items():
        lines += [f"## {chapter}", ""]
        for rule in RULES.values():
            if rule.id.startswith(start):
                severity = f"*{rule.severity.label}*" + (f" ({rule.levels})" if rule.levels else "")
                lines += [
                    f"### {rule.id} {rule.name}",
                    "",
                    fill(f"{rule.title}. {rule.why}", 120, break_long_words=False, break_on_hyphens=False),
                    "",
                    fill(f"- Severity: {severity}", 120, subsequent_indent="  ", break_on_hyphens=False),
                    f"- Seen with: {rule.needs}",
                    f"- Mend it: `{_shown(rule.fix)}`",
                    "",
                ]
    return "\n".join(lines).rstrip() + "\n"


def _shown(fix: str) -> str:
    named = ("file", "column", "key", "old", "bits", "table", "filter")
    return fix.format_map({"seal": "seal", **{name: name.upper() for name in named}})
