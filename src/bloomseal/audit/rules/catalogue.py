"""The rules, as a table. ``docs/audit-rules.md`` is made from it (`rules_as_markdown`)."""

from __future__ import annotations

from textwrap import fill
from typing import Final

from .findings import Rule, Severity

_INFO, _WARNING, _ERROR, _CRITICAL = Severity.INFO, Severity.WARNING, Severity.ERROR, Severity.CRITICAL
RESEAL: Final = "bloomseal {verb} {files} {anew}"
"""Makes files what the policy says, whatever they are: one such command mends a table."""
_ORC_REKEY: Final = "bloomseal rekey --restart {files} {opening}"
_FILTER: Final = "{filters} {opening}"
_ORC_FILTER: Final = "bloomseal attach {files} " + _FILTER
_ORC_KEY: Final = "bloomseal rekey --restart {files} {moves} {opening}"
_KNOWN: Final = "info where the file's writer is known to leave it open always; error on a column that the policy calls confidential or restricted"

_TABLE: Final = (
    # What lies open
    Rule("BS101", "plaintext-column", "A column that the policy gives a key is in plaintext", _ERROR,
         "Whoever can read the file reads the values.",
         RESEAL, "policy", "critical on a restricted column"),
    Rule("BS102", "clear-filter-on-encrypted-column", "The filter of an encrypted column is in clear", _CRITICAL,
         "Anybody can ask the filter whether a value is in the file, without any key. Of a small domain, such as social security "
         "numbers, all values can be listed. Some writers leave the filters of encrypted columns so.",
         "bloomseal {rebuild} {files} " + _FILTER,
         orc_fix="bloomseal repair {files} {opening}"),
    Rule("BS103", "clear-filter-on-sensitive-column", "A sensitive column in plaintext has a filter as well", _ERROR,
         "The filter answers membership even to those who see the footer and the filter only, such as caches and scanners.",
         RESEAL, "policy", "critical on a restricted column"),
    Rule("BS104", "clear-statistics", "Statistics of an encrypted column are in clear", _ERROR,
         "Smallest and greatest value, or the number of nulls, stand in the readable part of the footer.", RESEAL, "nothing", _KNOWN),
    Rule("BS105", "clear-size-statistics", "Size statistics of an encrypted column are in clear", _WARNING,
         "They tell the total length of the values and how many are null or repeated.", RESEAL, "nothing", _KNOWN),
    Rule("BS106", "clear-geospatial-statistics", "Geospatial statistics of an encrypted column are in clear", _WARNING,
         "A bounding box tells where the geometries lie.", RESEAL, "nothing", _KNOWN),
    Rule("BS107", "clear-page-index", "The page index of an encrypted column is in clear", _ERROR,
         "A column index holds the smallest and greatest value of every page.", "",
         advice="No writer that is known leaves it so, and no reader of ours opens it: find out who wrote to the file, and write the data anew."),
    Rule("BS108", "clear-filter-place", "Offset or length of an encrypted column's filter are in clear", _WARNING,
         "The length tells the number of distinct values within a factor of two.", RESEAL, "nothing", _KNOWN),
    Rule("BS109", "clear-column-metadata", "Key-value pairs or page counts of an encrypted column are in clear", _WARNING,
         "They were written about the values, by the writer or by an application.", RESEAL, "nothing", _KNOWN),
    Rule("BS110", "clear-levels", "Pages of an encrypted column leave their levels in clear", _INFO,
         "In V2 pages some writers encrypt the values only: which rows are null, and how lists are nested, can be read.",
         "", "keys, --deep", "warning on a column that the policy calls confidential or restricted",
         advice="Write the rows of {file} anew with V1 pages: bloomseal write does so, and Spark with parquet.writer.version = v1. "
         "rekey keeps the pages as they are laid out, for the readers of their writer."),
    Rule("BS111", "plaintext-file", "A plaintext file in an encrypted table", _ERROR,
         "Readers that accept plaintext (the key tools of other implementations always do) take it for part of the table: whoever "
         "may add files chooses what is read, and what a misconfigured writer wrote lies open.",
         RESEAL, "nothing",
         "without a policy: warning beside encrypted files with the same columns in the same folder, else nothing",
         advice="Seal it as its table is sealed, or take it out of the folder: which of the two, only its owner knows."),
    Rule("BS112", "plaintext-footer", "A plaintext footer where the policy wants it encrypted", _WARNING,
         "Schema, row counts and key-value metadata are open to everybody.", RESEAL, "policy"),
    Rule("BS113", "clear-table-statistics", "A table's own metadata holds values of an encrypted column", _INFO,
         "Delta keeps smallest and greatest values, partition values and predicates in its log, Iceberg the former in its manifests and "
         "summaries of values in Puffin files, whatever the data files hide; older commits, checkpoints and manifests as well, until the "
         "engine removes them.",
         "",
         "nothing", "error on a column that the policy calls confidential or restricted",
         advice="Leave {column} out of delta.dataSkippingStatsColumns, or set write.metadata.metrics.column.{column} = none; then rewrite the data of {file} with the engine that keeps the log, and have it expire what is older."),
    Rule("BS114", "stray-clear-filter", "An encrypted file holds a filter in clear that no readable metadata names", _CRITICAL,
         "An encrypted footer hides where a filter stands, not its bytes: they can be searched for, and the filter answers anybody. "
         "Some writers leave the filters of encrypted columns so; or it is the remainder of a rewrite.",
         RESEAL, "--deep",
         "info where metadata that can't be seen may name it as a plaintext column's; the audit then says that it could not look",
         advice="Only keys show which column it is of, and whether the file's own metadata should name it: audit again with them."),
    Rule("BS115", "plaintext-leftover", "Plaintext beside an encrypted table, in a file that is no part of it", _CRITICAL,
         "A killed writer, a staging folder, an older version of a table or somebody's copy has left it. No reader takes it, and "
         "everybody can read it.",
         "rm {files}", "nothing", "warning where nothing beside it is encrypted, or has its columns, and no policy claims it",
         advice="Nothing of the table needs it, but a running job or an older version of the table may. If not, remove it; else seal it."),
    Rule("BS116", "unsalted-hash-mask", "Readers without a key see unsalted hashes of an encrypted ORC column", _ERROR,
         "Equal values have equal hashes, in every file; of a small domain, such as social security numbers, all values can be "
         "hashed and compared.", "",
         advice="Mask the column by nullify or redact, and write the data anew with the engine that wrote it."),
    Rule("BS117", "clear-index", "A file of a sealed index is in plaintext, or the column in it", _CRITICAL,
         "It holds a keyed fingerprint of every value with the row groups that have it, and the key for them: whoever reads it "
         "tries any value. No look-up of ours believes it.",
         "{drop}", advice="Build it again afterwards (bloomseal index build), and find out who wrote it."),
    Rule("BS118", "uncovered-bytes", "An encrypted file holds bytes that no module covers", _WARNING,
         "No reader goes there, and whoever has the file does: a page or a filter in clear, or a whole other file, hidden or glued to "
         "this one. A rotation carries no key of it along.", RESEAL, "keys",
         "critical where a page, a filter or a file in clear begins there",
         advice="Find out who wrote to the file. Written anew, it has no such bytes; a file that was hidden in it is gone then.",
         orc_fix=""),
    Rule("BS119", "value-in-name", "Names of folders or files hold values of a sealed column", _ERROR,
         "Whoever may list the folder reads them: a table that is partitioned by a sealed column has each of its values in a name.",
         "", "nothing", "info where only the policy's word seals the column, which has no key of its own: complete, or uniform",
         advice="Write the data of {file} anew, partitioned by another column than {column}, and under names that hold no values."),
    Rule("BS120", "copied-column", "A column in clear holds the values of a sealed one", _CRITICAL,
         "Under another name the same values lie open: equal filters, or equal dictionaries, tell. Full filters, and those of fewer "
         "than 20,000 values, may be equal by chance, and so may small dictionaries: they are not told.",
         "", "keys and --deep",
         advice="Give the other column a key in the policy and seal it (bloomseal rekey), or write {file} without it."),
    # What can't be trusted
    Rule("BS201", "unreadable-file", "A file that can't be read", _ERROR,
         "It breaks the specification, is truncated, or is no Parquet file. What protects it is unknown.",
         "",
         advice="Put a good copy in its place. bloomseal verify says where it breaks."),
    Rule("BS202", "filter-not-authentic", "A filter does not authenticate", _ERROR,
         "It was altered, or comes from another place. A wrong filter makes readers skip rows that are there.",
         "bloomseal {rebuild} {files} " + _FILTER, "keys",
         advice="Find out who wrote to the file before the filter is built anew."),
    Rule("BS203", "footer-not-authentic", "The footer does not authenticate", _CRITICAL,
         "The footer was altered, the file was moved from the place that its AAD prefix names, or its key was exchanged.",
         "", "keys",
         advice="Find out who wrote to the file, and put a good copy in its place. If its AAD prefix is kept outside, name the right one (--aad-prefix, or the policy)."),
    Rule("BS204", "unsigned-footer", "A plaintext footer that is unsigned, or can't be verified", _WARNING,
         "Row groups and columns could be missing or exchanged, and nobody would notice.",
         "", "nothing", "error where there is no signature at all",
         advice="Without a signature: put a signed copy in its place. With one: name the footer's key, and audit again."),
    Rule("BS205", "empty-filter", "A filter without a single bit over a chunk with values", _WARNING,
         "Readers that believe it find nothing, silently.", "bloomseal attach {files} " + _FILTER, "keys",
         orc_fix=_ORC_FILTER),
    Rule("BS206", "module-not-authentic", "Column metadata that can't be opened or believed", _ERROR,
         "It does not authenticate under the column's key, contradicts the schema, or has a name that could be taken for that of an "
         "encrypted column.", "", "keys, or policy",
         advice="Name the column's right key and audit again. If it was the right one, put a good copy of the file in its place."),
    Rule("BS207", "unbound-modules", "An encrypted file without aad_file_unique", _WARNING,
         "Its modules are not bound to the file: pages can be exchanged between files unnoticed. DuckDB writes such files.",
         "",
         advice="Nothing proves that its pages are its own: write the data anew from a source that you trust (bloomseal write)."),
    Rule("BS208", "broken-filter", "A filter that can't be used", _WARNING,
         "Its header or length breaks the specification; readers ignore it, or worse, fill it up with zeros.",
         "bloomseal {rebuild} {files} " + _FILTER, "keys",
         orc_fix=_ORC_FILTER),
    Rule("BS209", "altered-module", "A module that does not open, where bloomseal verify fails", _ERROR,
         "A page, an index or a level was altered, or copied from another place; or it breaks the specification.",
         "", "keys and --deep", "in plaintext columns nothing is needed but --deep, and only broken modules are found",
         advice="Find out who wrote to the file, and put a good copy in its place. bloomseal verify names every module."),
    Rule("BS210", "wrong-filter", "A filter denies values of its own column chunk", _CRITICAL,
         "Readers that believe it skip rows that are there, silently, and nothing else tells: a filter that a writer with a bug has "
         "sealed authenticates like any other.",
         "bloomseal attach {files} " + _FILTER, "--deep",
         orc_fix=_ORC_FILTER),
    Rule("BS211", "untrusted-filter", "A filter of an ORC writer that is known to get it wrong", _WARNING,
         "Bloomseal never takes its word. A reader that does may skip rows that are there, silently.", "",
         advice="Write the data anew with a version of the writer that is not known to be wrong, or without filters on the column."),
    # Keys
    Rule("BS301", "old-key-version", "A key version older than the policy allows", _WARNING,
         "The longer a version is in use, the more one leak of it opens.", "{rotate}bloomseal rewrap {files} {opening}", "keys and policy",
         advice="Where the file is under the master key's current version, rotate it in its KMS first.",
         orc_fix="{rotate}bloomseal rekey --restart {files} {opening}"),
    Rule("BS302", "unusable-master-key", "A master key that is disabled, destroyed, about to be, or unknown", _ERROR,
         "The file, or the column, can't be opened; if the key was destroyed, it never will be again.",
         "{enable}", "keys", "critical where the key was destroyed, warning where its deletion is pending",
         advice="Have the master key enabled again in its KMS, or its deletion cancelled. If it is destroyed or unknown, put back a copy of the file under another key.",
         orc_fix="{enable}"),
    Rule("BS303", "unexpected-master-key", "Sealed under a master key that the policy does not name", _ERROR,
         "Everything authenticates, under the wrong key: whoever may replace files can name a key of his own.",
         RESEAL, "policy",
         advice="Find out who wrote the file before it is made one of the table's. Where the policy has no key for the column, give it one there, or seal the data anew.",
         orc_fix=_ORC_KEY),
    Rule("BS304", "previous-master-key", "Still sealed under a previous master key", _INFO,
         "The old key can't be retired as long as some file needs it.", "bloomseal rewrap {files} {moves} {opening}", "policy",
         orc_fix=_ORC_KEY),
    Rule("BS305", "shared-data-key", "Several files share a data key", _WARNING,
         "Every file counts against one key's invocation limit, and one leak opens them all. Key tools make fresh keys per file.",
         RESEAL, "nothing", "info for keys that go by an id of the writer's own: there it may be meant",
         advice="Keys that go by an id of the writer's own are its writer's affair: let it make a fresh one for each file.",
         orc_fix=_ORC_REKEY),
    Rule("BS306", "nonce-repeated", "A nonce was used twice under one key", _CRITICAL,
         "AES-GCM breaks then: the XOR of both plaintexts is open, and modules can be forged.",
         RESEAL, "--deep"),
    Rule("BS307", "invocation-limit", "A key near its invocation limit", _WARNING,
         "NIST SP 800-38D, section 8.3: at most 2^32 seals per key with random nonces; a policy may set less.",
         RESEAL, "nothing", "warning from half of the limit on, critical beyond it",
         advice="What one file alone seals, it seals again: write the data into more, smaller files, or raise the policy's seal_limit."),
    Rule("BS308", "aad-prefix-missing", "No AAD prefix where the policy wants one", _ERROR,
         "Nothing binds the file to its table and name: it can be put in another file's place.", RESEAL, "policy"),
    Rule("BS309", "aad-prefix-mismatch", "An AAD prefix other than the policy's", _ERROR,
         "The file was moved or renamed, or an old version was put back.", RESEAL, "policy",
         "warning where the right prefix is stored although the policy wants it kept outside",
         advice="If the file was moved, it belongs elsewhere: find out who moved it before it is bound to this place."),
    Rule("BS310", "unauthenticated-pages", "AES_GCM_CTR_V1 where the policy wants pages authenticated", _WARNING,
         "Bits of a page can be flipped unnoticed.", RESEAL, "policy"),
    Rule("BS311", "short-key", "A key shorter than the policy's", _WARNING,
         "The policy asks for more bits.", RESEAL, "policy"),
    Rule("BS312", "kms-address", "A KMS address in the file that is not an allowed one", _ERROR,
         "Readers that follow it hand their credentials to whoever wrote it.", "", "nothing",
         "info without a policy",
         advice="If the address is your KMS's, put it into the policy's allowed_kms_urls. Else find out who wrote the file: no reader of ours follows the address."),
    Rule("BS313", "orphaned-key-material", "External key material without its file", _WARNING,
         "The file is gone or was renamed; renamed, it can't be opened.", "",
         advice="If the file was renamed, rename its key material likewise: without it, the file can't be opened. If it is gone for good, remove the material."),
    Rule("BS314", "stale-key-material", "External key material that the file does not use", _INFO,
         "It was left behind by a rewrite, and keeps an old key version in use for nothing.", RESEAL),
    Rule("BS315", "missing-key-material", "External key material is missing or broken", _ERROR,
         "Without it the file can't be opened by anybody.", "",
         advice="Put back _KEY_MATERIAL_FOR_… beside {file}, from a copy, or under its new name if the file was renamed."),
    Rule("BS316", "missed-by-rotation", "Under an older version of a master key than other files", _WARNING,
         "A rotation has missed it, or is not done: the old version can't be retired as long as one file needs it.",
         "bloomseal rewrap {files} {opening}",
         orc_fix=_ORC_REKEY),
    Rule("BS317", "unsigned-file", "A file that nobody has signed, in a table with signers", _ERROR,
         "Readers refuse it: anybody who may wrap keys for the table could have written it.", "", "policy",
         advice="Find out who wrote {file}. If you answer for what is in it: bloomseal sign, with --signer."),
    Rule("BS318", "unknown-signer", "Signed by nobody whom the policy names", _ERROR,
         "Readers refuse it. Its signer was dropped from the policy, or never was in it.", "", "policy",
         advice="Find out who wrote {file}. If you answer for what is in it: bloomseal sign, with --signer."),
    Rule("BS319", "wrong-signature", "A signature that does not verify, or is of another file or place", _CRITICAL,
         "The file or its signature was altered, or moved from another table or place. Readers refuse it.", "", "policy",
         advice="Put back {file} and its signature from a copy, and find out who could write there."),
    Rule("BS320", "orphaned-signature", "A signature without its file", _INFO,
         "The file is gone or was written anew, and the old signature was left behind.", "",
         advice="Remove it; the next rotation or overwrite of the folder does so, too."),
    # Filters
    Rule("BS401", "overfull-filter", "A filter holds more values than it is for", _WARNING,
         "Its false positives make readers open row groups for nothing.",
         "bloomseal attach {files} " + _FILTER, "keys",
         "the policy's probability doubled, or one half without a policy, and more values than the size is for",
         advice="Where the policy itself fixes a size that is too small, raise its ndv or num_bytes.",
         orc_fix=_ORC_FILTER),
    Rule("BS402", "telling-filter-size", "Filter sizes that tell the number of distinct values", _WARNING,
         "The policy wants one constant size: lengths stay visible under encryption.",
         "bloomseal attach {files} " + _FILTER, "policy"),
    Rule("BS403", "missing-filter", "No filter where the policy wants one", _INFO,
         "Look-ups read the column chunk.", "bloomseal attach {files} " + _FILTER, "policy",
         orc_fix=_ORC_FILTER),
    Rule("BS404", "index-holds-deleted", "A sealed index still proves rows of files that are gone", _WARNING,
         "Whoever has the column's key can ask the index for them. A run of it is older than the policy's purge_days, and is about "
         "files that the table has no more.",
         "{compact}", "keys and policy"),
    Rule("BS405", "missing-index", "No index where the policy wants one", _INFO,
         "Look-ups ask the filters of every file.", "{build}", "policy"),
    # Encrypted Iceberg tables
    Rule("BS501", "encrypted-in-name-only", "A table that says it is encrypted, and lies open", _CRITICAL,
         "Some catalogs take encryption.key-id and do not encrypt: data files, their filters and manifests are in clear. "
         "Or the property was taken back.",
         "", advice="Write the table anew by an engine and a catalog that encrypt, and have the files of the old one removed."),
    Rule("BS502", "clear-in-encrypted-table", "A file in clear in an encrypted Iceberg table", _CRITICAL,
         "A manifest tells smallest and greatest values, and keys of files; a data file tells all. Whoever may write to the storage "
         "can add one. Statistics are in clear by all released writers.",
         "", advice="Find out who wrote {file}. Rewrite the table's data (rewrite_data_files), and have older snapshots and their files expire."),
    Rule("BS503", "data-key-in-clear", "The metadata of an encrypted Iceberg table hold a raw data key", _CRITICAL,
         "The metadata file is never encrypted: what the key seals is as good as in clear.",
         "", advice="Remove the statistics (DROP STATISTICS, or the engine's like), and have older metadata expire."),
    Rule("BS504", "unopenable-table", "An encrypted Iceberg table that does not open", _ERROR,
         "A key is missing, hangs from another master key than the policy's, or a manifest is altered, cut or another table's.",
         "", "nothing, and more with the policy's keys",
         advice="Find out who wrote to the table's folder, and put back {file} from a copy."),
    Rule("BS505", "repeated-metadata", "Two metadata files of an Iceberg table are equal", _WARNING,
         "An older state that is put back under a new number opens like any other: its keys fit, and later rows are gone.",
         "", advice="Compare with the catalog. Readers that pin a sequence number refuse the older state (docs/iceberg.md)."),
    Rule("BS506", "unknown-length", "Manifests without an authenticated length", _WARNING,
         "A stream that was cut behind a block can't be told from a whole one: files would go missing unseen. Some writers leave "
         "the length out.",
         "", "keys and policy", advice="Rewrite the manifests by an engine that writes lengths (rewrite_manifests)."),
    Rule("BS507", "old-table-kek", "A KEK of an Iceberg table is older than two years", _WARNING,
         "Iceberg makes a new one after 730 days; the older one opens all that was written before.",
         "", advice="Write to the table, which makes a new KEK, and rewrite what is under the old one."),
)  # fmt: skip

RULES: Final[dict[str, Rule]] = {rule.id: rule for rule in _TABLE}
"""All rules by their ids."""

_SHOWN: Final = {
    name: name.upper() for name in ("file", "files", "column")
} | {
    "filters": "--bloom-filter COLUMN", "moves": "--from OLD --to NEW", **{verb: f"bloomseal index {verb} TABLE --column COLUMN" for verb in ("drop", "build", "compact")}, "opening": "[KEYS]", "anew": "[POLICY] --from-any", "verb": "rekey --restart", "rebuild": "attach|rekey",
    "rotate": "bloomseal keyring rotate OLD && ", "enable": "bloomseal keyring enable OLD",
}  # fmt: skip
_CHAPTERS: Final = {
    "BS1": "What lies open",
    "BS2": "What can't be trusted",
    "BS3": "Keys",
    "BS4": "Filters and indexes",
    "BS5": "Encrypted Iceberg tables",
}


def rules_as_markdown() -> str:
    """The text of ``docs/audit-rules.md``."""
    lines = [
        "# Audit rules",
        "",
        "`bloomseal audit` reports these. The page is generated from `bloomseal.audit.rules.catalogue`; ids and names never",
        "change their meaning. *Seen with* says what must be at hand: `nothing` means that everybody who can read the files",
        "sees it. Without a policy nobody has said what is to be sealed: no finding then means that the rules which need none",
        "found nothing, and the report's `ok` is null.",
        "",
        "A command is complete: run as it stands, it removes the findings of all rules that give it. There is one only where",
        "the audit had what the command needs: the keys (from a keyring, or by a KMS's URI), and the policy's file where that",
        "decides. One command seals all files of a table that are not as the policy has them, and mends on the way what `rewrap`",
        "and `attach` would; up to 20 files are named, of more their folder. Plaintext files alone are sealed by `seal`, and",
        "without a policy files are sealed again as they are. Below, `[KEYS]` are the options that open the files, `[POLICY]`",
        "those that name the policy.",
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
                    *([f"- Mend it: `{_shown(rule.fix)}`"] if rule.fix else []),
                    *([f"- In ORC files: `{_shown(rule.orc_fix)}`"] if rule.orc_fix not in ("", rule.fix) else []),
                    *(_advice(rule) if rule.advice else []),
                    "",
                ]
    return "\n".join(lines).rstrip() + "\n"


def _advice(rule: Rule) -> list[str]:
    text = rule.advice.format_map(_SHOWN)
    who = "Where no command is sure to mend it" if rule.fix else "No command mends it"
    return [fill(f"- {who}: {text}", 120, subsequent_indent="  ", break_on_hyphens=False)]


def _shown(fix: str) -> str:
    """The command as the page has it, what is filled in as words in capitals."""
    return " ".join(fix.format_map(_SHOWN).split())
