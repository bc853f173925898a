"""The rules at work: facts in, findings out."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from ...core.errors import PolicyError
from ...core.parquet.expectation import Expectation
from ...policy import TablePolicy
from ...storage.discovery.kinds import FileKind, is_of_index
from ..facts.files.file import Broken, FileFacts, Seen
from ..facts.files.views import EXPOSED
from ..facts.leftovers import Content, target_of
from .filter_rules import check_filters, check_sizes
from .findings import Finding, Severity
from .index_rules import check_indexes
from .judged import Facts, Line, found, lines
from .key_rules import check_keys, check_material, check_nonces, check_versions
from .name_rules import check_names
from .remedies import with_remedies
from .signature_rules import check_signatures
from .table_rules import check_encrypted_tables

_KNOWN_WRITERS = ("parquet-cpp-arrow", "parquet-mr", "bloomseal")
_EXPOSURE = {
    "min/max statistics": "BS104",
    "null counts": "BS104",
    "size statistics": "BS105",
    "geospatial statistics": "BS106",
    "Bloom filter offset": "BS108",
    "Bloom filter length": "BS108",
    "key-value metadata": "BS109",
    "page encoding counts": "BS109",
}
_LISTED = 3
_COPIES = re.compile(
    r"\.(?:parquet|parq|pq|orc)(?=[ ._(~-]|$)|^copy of |[ ._-]*\(\d+\)|~+$"
    r"|[ ._-]+(?:bak|backup|old|orig|original|copy|plain|plaintext|clear|decrypted|unsealed|tmp|temp|saved?)(?=[ ._(~-]|$)"
)
_VACUUM = (
    "The file is dead: no live version of the table names it, but an older one may, until the engine that keeps the log "
    "removes both. Delta: VACUUM delta.`{place}`, and sooner than after its deletedFileRetentionDuration (7 days) with "
    "RETAIN 0 HOURS. Iceberg: CALL system.expire_snapshots, then CALL system.remove_orphan_files."
)
_BESIDE = {
    FileKind.LEFTOVER: "what a killed writer has left of",
    FileKind.HIDDEN: "a hidden file in the table's folder",
    FileKind.OTHER: "a file that no reader takes",
    FileKind.DEAD: "a dead file, which no live version of the table names",
}


def check(facts: Facts) -> list[Finding]:
    """All findings, worst first."""
    findings: list[Finding] = []
    for file in facts.files:
        policy = facts.policies.of(file.path)
        findings += _check_file(facts, file, policy)
        findings += _check_strays(file, policy)
        findings += _check_gaps(file)
        findings += _check_copies(file)
        for line in lines(file, policy):
            findings += _check_name(line)
            findings += _check_exposure(line)
            findings += check_filters(line)
    findings += check_sizes(facts.files, facts.policies)
    findings += check_keys(facts)
    findings += check_versions(facts)
    findings += _check_plaintext_files(facts)
    findings += _check_beside(facts)
    findings += check_names(facts)
    findings += check_material(facts)
    findings += check_signatures(facts)
    findings += check_indexes(facts)
    findings += check_encrypted_tables(facts)
    if facts.nonces is not None:
        findings += check_nonces(facts, facts.nonces)
    return sorted(with_remedies(findings, facts), key=lambda finding: finding.order)


# What lies open


def unclaimed_filters(file: FileFacts, policy: TablePolicy | None) -> bool:
    """Whether there are filters in clear that may be an encrypted column's. Without the metadata
    they could be a plaintext column's, unless there is none, or none that the policy gives a filter.
    """
    if not file.strays or file.all_sealed:
        return False
    if not (file.hidden or any(chunk.filter == Seen.HIDDEN for chunk in file.chunks)):
        return False
    return policy is None or any(
        entry.filter is not None and policy.master_key(name) is None for name, entry in policy.columns.items()
    )


def _check_strays(file: FileFacts, policy: TablePolicy | None) -> Iterator[Finding]:
    if file.strays:
        listed = ", ".join(f"{size} bytes at {offset}" for offset, size in file.strays[:_LISTED])
        more = f" and {len(file.strays) - _LISTED} more" if len(file.strays) > _LISTED else ""
        severity = Severity.INFO if unclaimed_filters(file, policy) else None
        yield found("BS114", f"bitsets in clear: {listed}{more}", severity, file.path)


def _check_gaps(file: FileFacts) -> Iterator[Finding]:
    if file.gaps and file.algorithm is not None:
        listed = ", ".join(map(str, file.gaps[:_LISTED]))
        more = f" and {len(file.gaps) - _LISTED} more" if len(file.gaps) > _LISTED else ""
        severity = Severity.CRITICAL if any(gap.clear for gap in file.gaps) else None
        yield found("BS118", f"beside all modules: {listed}{more}", severity, file.path)


def _check_copies(file: FileFacts) -> Iterator[Finding]:
    for (sealed, clear), groups in file.copies.items():
        message = f"column {clear}, in clear, has an equal filter or dictionary"
        yield found("BS120", message, None, file.path, sealed, tuple(groups))


def _check_name(line: Line) -> Iterator[Finding]:
    """Readers refuse a file in which another column could be taken for one of the policy's."""
    keyed = [name for name, column in line.policy.columns.items() if column.key is not None] if line.policy else ()
    try:
        Expectation(encrypted_columns=frozenset(keyed)).name(line.column)
    except PolicyError as error:
        yield line.finding("BS206", error.what)


def _check_exposure(line: Line) -> Iterator[Finding]:
    chunk, policy = line.chunks[0], line.policy
    if not line.encrypted:
        wanted = policy.master_key(line.column) if policy else None
        if is_of_index(line.file.path):
            yield line.finding("BS117", "a sealed index in clear")
        elif wanted is not None:
            severity = Severity.CRITICAL if line.restricted else None
            yield line.finding("BS101", f"in plaintext, where the policy has master key {wanted}", severity)
            if chunk.filter == Seen.CLEAR:
                yield line.finding("BS103", "a filter in clear over a column that should be encrypted", severity)
        return
    if chunk.filter == Seen.CLEAR:
        bloom = chunk.bloom.kind if chunk.bloom and chunk.bloom.num_bytes is None else None
        yield line.finding("BS102", "its filter answers without any key" + (f": {bloom}" if bloom else ""))
    if chunk.column_index == Seen.CLEAR or chunk.offset_index == Seen.CLEAR:
        which = "column index" if chunk.column_index == Seen.CLEAR else "offset index"
        yield line.finding("BS107", f"its {which} can be read without a key")
    named: dict[str, list[str]] = {}
    for bit, name in enumerate(EXPOSED):
        if chunk.exposed >> bit & 1:
            named.setdefault(_EXPOSURE[name], []).append(name)
    for rule, names in named.items():
        severity = Severity.ERROR if line.sensitive else Severity.INFO if _usual(line, rule) else None
        yield line.finding(rule, f"{' and '.join(names)} in the readable footer", severity)
    broken = [c for c in line.chunks if c.error is not None]
    if broken:
        yield line.finding("BS206", broken[0].error or "", chunks=broken)


def _usual(line: Line, rule: str) -> bool:
    """Whether the file's writer always leaves this open."""
    writer = (line.file.created_by or "").lower()
    if not writer.startswith(_KNOWN_WRITERS):
        return False
    if rule in ("BS104", "BS109"):
        # pyarrow keeps the whole metadata of footer-key columns in the plaintext footer.
        return line.chunks[0].protection == 1 and writer.startswith("parquet-cpp-arrow")
    return True


# Files


def _check_file(facts: Facts, file: FileFacts, policy: TablePolicy | None) -> Iterator[Finding]:
    def here(rule: str, message: str, severity: Severity | None = None) -> Finding:
        return found(rule, message, severity, file.path)

    if not file.authenticates:
        yield from _check_unauthenticated(file)
        return
    unsigned = file.footer == "plaintext" and any(chunk.protection for chunk in file.chunks)
    if file.algorithm is not None and file.file_id is None:
        yield here("BS207", "no aad_file_unique: modules could come from any file")
    # One of these: each takes the file for broken.
    if file.footer_verified is False:
        yield here("BS203", file.error or "the footer does not authenticate")
    elif unsigned:
        yield here("BS204", "columns are encrypted, and the footer has no signature", Severity.ERROR)
    elif file.error is not None:
        yield here("BS201", file.error)
    yield from _check_broken(file)
    if facts.with_keys and file.footer == "signed" and file.footer_verified is None and file.file_id is not None:
        why = file.keys[1].problem if len(file.keys) > 1 else None
        yield here("BS204", f"the footer's signature can't be verified: {why or 'no footer key'}")
    if file.algorithm is None or policy is None:
        return
    if file.footer == "signed" and not policy.plaintext_footer:
        yield here("BS112", "the footer is in plaintext")
    if file.algorithm == "AES_GCM_CTR_V1" and policy.algorithm.value == "AES_GCM_V1":
        yield here("BS310", "pages are encrypted with AES-CTR, which authenticates nothing")
    wanted = policy.prefix(file.ref)
    if wanted is None:
        return
    if file.aad_prefix == "none":
        yield here("BS308", f"written without an AAD prefix; the policy has {policy.aad_prefix}")
    elif file.aad_prefix == "stored":
        if file.aad_prefix_text != wanted:
            yield here("BS309", f"the stored prefix is {file.aad_prefix_text!r}, the policy's {wanted!r}")
        elif not policy.store_aad_prefix:
            yield here("BS309", "the prefix is right, but stands in the file", Severity.WARNING)


def _check_unauthenticated(file: FileFacts) -> Iterator[Finding]:
    """A format with neither signatures nor prefixes: nothing of that is any one file's fault."""
    if file.error is not None:
        yield found("BS201", file.error, None, file.path)
    for column in file.hash_masks:
        yield found("BS116", "readers without a key see SHA-256 of each value, without a salt", None, file.path, column)
    for column, why in file.untrusted_filters.items():
        yield found("BS211", why, None, file.path, column)


def _check_broken(file: FileFacts) -> Iterator[Finding]:
    """Modules that fail to open, without those that another rule has told."""
    told = {
        (chunk.row_group, file.leaves[chunk.leaf][0], part)
        for chunk in file.chunks
        for part, error in (("Column", chunk.error), ("Bloom", chunk.bloom.error if chunk.bloom else None))
        if error is not None
    }
    columns: dict[str | None, list[Broken]] = {}
    for one in file.broken:
        if (one.row_group, one.column, (one.module or "").split(" ")[0]) not in told:
            columns.setdefault(one.column, []).append(one)
    for column, failed in columns.items():
        first = failed[0]
        message = f"{first.module}: {first.what}" if first.module else first.what
        groups = tuple(dict.fromkeys(one.row_group for one in failed))
        yield found("BS209", message, None, file.path, column, groups)


def _check_plaintext_files(facts: Facts) -> Iterator[Finding]:
    encrypted: dict[tuple[str, tuple[str, ...]], str] = {}
    copied: dict[str, str] = {}
    files = [file for file in facts.files if not is_of_index(file.path)]
    for file in files:
        if file.algorithm is not None:
            copied.setdefault(_stem(file.path), file.path)
            if file.leaves:
                encrypted.setdefault(_shape(file, facts), file.path)
    for file in files:
        if file.footer != "plaintext" or any(chunk.protection for chunk in file.chunks):
            continue
        policy = facts.policies.of(file.path)
        if (original := copied.get(_stem(file.path))) is not None:
            message = f"a copy in plaintext, by its name, of {posixpath.basename(original)}, which is encrypted"
            yield found("BS115", message, None, file.path)
        elif policy is not None:
            yield found("BS111", f"not encrypted, in table {policy.name}", None, file.path)
        elif (beside := encrypted.get(_shape(file, facts))) is not None:
            message = f"not encrypted, beside {posixpath.basename(beside)} with the same columns"
            yield found("BS111", message, Severity.WARNING, file.path)


def _stem(path: str) -> str:
    """A file's path without what marks copies: ``a.parquet.bak``, ``a_old.parquet`` and ``a.parquet`` have one stem."""
    folder, name = posixpath.split(path)
    return posixpath.join(folder, _COPIES.sub("", name.lower()) or name)


def _check_beside(facts: Facts) -> Iterator[Finding]:
    roots: dict[str, set[tuple[str, ...] | None]] = {}
    sealed = {file.path for file in facts.files if file.algorithm is not None}
    for file in facts.files:
        if file.algorithm is not None:
            shape = tuple(sorted(name for name, _ in file.leaves)) if file.leaves else None
            roots.setdefault(_root(file.path, facts), set()).add(shape)
    for one in facts.beside:
        if one.content is not Content.PLAINTEXT:
            continue
        policy, target = facts.policies.of(one.path), target_of(one.path)
        shapes = roots.get(one.root or posixpath.dirname(one.path), set())
        alike = not one.columns or one.columns in shapes or None in shapes
        serious = policy is not None or target in sealed or (bool(shapes) and alike)
        message = f"plaintext in {_BESIDE[one.kind]}"
        if target is not None:
            message += f" {posixpath.basename(target)}"
        place = one.root or posixpath.dirname(one.path)
        details = {"advice": _VACUUM.format(place=place)} if one.kind is FileKind.DEAD else None
        severity = None if serious else Severity.WARNING
        made = found("BS115", message, severity, one.path, details=details)
        yield made if target is not None else made.unmendable()


def _root(path: str, facts: Facts) -> str:
    return facts.places.roots.get(path) or posixpath.dirname(path)


def _shape(file: FileFacts, facts: Facts) -> tuple[str, tuple[str, ...]]:
    return _root(file.path, facts), tuple(sorted(name for name, _ in file.leaves))
