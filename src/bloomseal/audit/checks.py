"""The rules at work: facts in, findings out."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from ..limits import MAX_GCM_SEALS
from ..policy import Sensitivity, TablePolicy
from ..storage.files import MATERIAL_PREFIX
from ..storage.ref import FileRef
from .facts import Policies
from .filterchecks import check_filters, check_sizes
from .findings import Finding, Severity
from .keyfacts import KeyFacts
from .places import Places
from .rules import RULES
from .scan import ChunkFacts, FileFacts, Seen
from .views import EXPOSED

if TYPE_CHECKING:
    from .deep import Nonces

__all__ = ["Facts", "Line", "check"]

_KNOWN_WRITERS = ("parquet-cpp-arrow", "parquet-mr", "bloomseal")
_SENSITIVE = (Sensitivity.CONFIDENTIAL, Sensitivity.RESTRICTED)
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
_STATES = {
    "disabled": Severity.ERROR,
    "unknown": Severity.ERROR,
    "destroyed": Severity.CRITICAL,
    "pending deletion": Severity.WARNING,
}


@dataclass(slots=True)
class Line:
    """The chunks of one column in one file that are alike.

    Attributes:
        file, policy: its file and that one's policy.
        column, type: dotted path and type.
        key: the key that seals them.
        chunks: the chunks; the first one stands for all.
    """

    file: FileFacts
    policy: TablePolicy | None
    column: str
    type: str
    key: KeyFacts
    chunks: list[ChunkFacts] = field(default_factory=list)

    @property
    def encrypted(self) -> bool:
        return self.chunks[0].protection != 0

    @property
    def sensitive(self) -> bool:
        """Does the policy call the column confidential or restricted?"""
        return self.policy is not None and self.policy.sensitivity(self.column) in _SENSITIVE

    @property
    def restricted(self) -> bool:
        return self.policy is not None and self.policy.sensitivity(self.column) is Sensitivity.RESTRICTED

    def finding(
        self,
        rule: str,
        message: str,
        severity: Severity | None = None,
        *,
        chunks: list[ChunkFacts] | None = None,
    ) -> Finding:
        """A finding here."""
        groups = tuple(chunk.row_group for chunk in (self.chunks if chunks is None else chunks))
        extra = {"seal": "seal" if self.file.algorithm is None else "rekey"}
        return found(rule, message, severity, self.file.path, self.column, groups, self.policy, extra)


@dataclass
class Facts:
    """The facts to judge.

    Attributes:
        files, places: what was looked at.
        policies: by file.
        with_keys: keys were at hand.
        nonces: what the nonce check saw; None without it.
        now: the moment that ages are counted to.
    """

    files: Sequence[FileFacts]
    places: Places
    policies: Policies
    with_keys: bool
    nonces: Nonces | None
    now: datetime


def found(
    rule: str,
    message: str,
    severity: Severity | None = None,
    file: str | None = None,
    column: str | None = None,
    row_groups: tuple[int, ...] = (),
    policy: TablePolicy | None = None,
    extra: Mapping[str, str] | None = None,
) -> Finding:
    """A finding, its command filled in; `extra` is for placeholders beside file, column, key and table."""
    kept = RULES[rule]
    key = (policy.master_key(column) if column else policy.footer_key) if policy else None
    values = {
        "file": shlex.quote(file) if file else "FILE",
        "column": shlex.quote(column) if column else "COLUMN",
        "key": shlex.quote(key) if key else "KEY",
        "table": shlex.quote(policy.name) if policy else "TABLE",
        "seal": "seal",
        "old": "OLD",
        **(extra or {}),
    }
    return Finding(
        kept, severity or kept.severity, message, file, column, tuple(sorted(row_groups)), kept.fix.format_map(values)
    )


def check(facts: Facts) -> list[Finding]:
    """All findings, worst first."""
    findings: list[Finding] = []
    for file in facts.files:
        policy = facts.policies.of(file.path)
        findings += _check_file(facts, file, policy)
        findings += _check_strays(file, policy)
        for line in _lines(file, policy):
            findings += _check_exposure(line)
            findings += check_filters(line)
    findings += check_sizes(facts.files, facts.policies)
    findings += _check_keys(facts)
    findings += _check_plaintext_files(facts)
    findings += _check_bounds(facts)
    findings += _check_material(facts)
    if facts.nonces is not None:
        findings += _check_nonces(facts, facts.nonces)
    return sorted(findings, key=lambda finding: finding.order)


def _lines(file: FileFacts, policy: TablePolicy | None) -> Iterator[Line]:
    lines: dict[tuple[int, ...], Line] = {}
    for c in file.chunks:
        alike = (c.leaf, c.protection, c.key, c.exposed, c.filter, c.column_index, c.offset_index)
        line = lines.get(alike)
        if line is None:
            name, kind = file.leaves[c.leaf]
            line = lines[alike] = Line(file, policy, name, kind, file.keys[c.key])
        line.chunks.append(c)
    return iter(lines.values())


# What lies open


def _check_strays(file: FileFacts, policy: TablePolicy | None) -> Iterator[Finding]:
    if file.strays:
        listed = ", ".join(f"{size} bytes at {offset}" for offset, size in file.strays[:_LISTED])
        more = f" and {len(file.strays) - _LISTED} more" if len(file.strays) > _LISTED else ""
        # What hides from us could be the metadata of a plaintext column, whose filter may stand in clear.
        unsure = bool(file.hidden) or any(chunk.filter == Seen.HIDDEN for chunk in file.chunks)
        complete = policy is not None and (policy.complete or policy.uniform)
        severity = Severity.INFO if unsure and not complete else None
        yield found("BS114", f"bitsets in clear: {listed}{more}", severity, file.path, policy=policy)


def _check_exposure(line: Line) -> Iterator[Finding]:
    chunk, policy = line.chunks[0], line.policy
    if not line.encrypted:
        wanted = policy.master_key(line.column) if policy else None
        if wanted is not None:
            severity = Severity.CRITICAL if line.restricted else None
            yield line.finding("BS101", f"in plaintext, where the policy has master key {wanted}", severity)
            if chunk.filter == Seen.CLEAR:
                yield line.finding("BS103", "a filter in clear over a column that should be encrypted", severity)
        return
    if chunk.filter == Seen.CLEAR:
        yield line.finding("BS102", "its filter answers without any key")
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
    """Does the file's writer always leave this open?"""
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
        return found(rule, message, severity, file.path, policy=policy)

    if file.footer_verified is False:
        yield here("BS203", file.error or "the footer does not authenticate")
    elif file.algorithm is not None and file.file_id is None:
        yield here("BS207", "no aad_file_unique: modules could come from any file")
    elif file.footer == "plaintext" and any(chunk.protection for chunk in file.chunks):
        yield here("BS204", "columns are encrypted, and the footer has no signature", Severity.ERROR)
    elif file.error is not None:
        yield here("BS201", file.error)
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


def _check_plaintext_files(facts: Facts) -> Iterator[Finding]:
    encrypted: dict[tuple[str, tuple[str, ...]], str] = {}
    for file in facts.files:
        if file.algorithm is not None and file.leaves:
            encrypted.setdefault(_shape(file, facts), file.path)
    for file in facts.files:
        if file.footer != "plaintext" or any(chunk.protection for chunk in file.chunks):
            continue
        if (policy := facts.policies.of(file.path)) is not None:
            yield found("BS111", f"not encrypted, in table {policy.name}", None, file.path, policy=policy)
        elif (beside := encrypted.get(_shape(file, facts))) is not None:
            message = f"not encrypted, beside {posixpath.basename(beside)} with the same columns"
            yield found("BS111", message, Severity.WARNING, file.path)


def _shape(file: FileFacts, facts: Facts) -> tuple[str, tuple[str, ...]]:
    root = facts.places.roots.get(file.path) or posixpath.dirname(file.path)
    return root, tuple(sorted(name for name, _ in file.leaves))


def _check_bounds(facts: Facts) -> Iterator[Finding]:
    for file in facts.files:
        held = facts.places.bounds.get(file.path)
        if not held or file.algorithm is None:
            continue
        policy = facts.policies.of(file.path)
        encrypted = {file.leaves[chunk.leaf][0] for chunk in file.chunks if chunk.protection}
        for column in sorted(held):
            # Inside an encrypted footer without its key, only the policy knows which columns are encrypted.
            keyed = policy is not None and policy.master_key(column) is not None
            if column in encrypted or (not file.leaves and keyed):
                sensitive = policy is not None and policy.sensitivity(column) in _SENSITIVE
                severity = Severity.ERROR if sensitive else None
                message = "the table's metadata holds its smallest and greatest value"
                yield found("BS113", message, severity, file.path, column, policy=policy)


# Keys


def _check_keys(facts: Facts) -> Iterator[Finding]:
    shared: dict[str, dict[str, FileFacts]] = {}
    sealed: dict[str, int] = {}
    first: dict[str, tuple[FileFacts, KeyFacts, str | None]] = {}
    keks: dict[str, set[str]] = {}
    for file in facts.files:
        policy = facts.policies.of(file.path)
        for index, key, columns in _keys_of(file):
            yield from _check_key(facts, file, policy, key, index == 1, columns)
            if key.data_key is None:
                continue
            same = shared.setdefault(key.data_key, {})
            # A copy of a file, recognised by its aad_file_unique, shares nothing that counts.
            if same.setdefault(file.file_id or file.path, file) is not file:
                continue
            first.setdefault(key.data_key, (file, key, columns[0] if columns else None))
            seals = sum(chunk.modules for chunk in file.chunks if chunk.key == index) + (index == 1)
            sealed[key.data_key] = sealed.get(key.data_key, 0) + seals
            if key.kek_id is not None:
                keks.setdefault(key.kek_id, set()).add(key.data_key)
    for data_key, files in sorted(shared.items()):
        file, key, column = first[data_key]
        if len(files) > 1:
            own = key.material in ("internal", "external")
            others = sorted(other.path for other in files.values())
            message = f"one data key in {len(files)} files, {posixpath.basename(others[1])} among them"
            yield found("BS305", message, None if own else Severity.INFO, file.path, column)
        limit = _limit(facts, file)
        yield from _near(
            sealed[data_key], limit, f"the data key has sealed at least {sealed[data_key]} modules", file, column
        )
    for kek, wrapped in sorted(keks.items()):
        file = next(f for f in facts.files if any(key.kek_id == kek for key in f.keys))
        yield from _near(
            len(wrapped), _limit(facts, file), f"a KEK has wrapped at least {len(wrapped)} keys", file, None
        )


def _keys_of(file: FileFacts) -> Iterator[tuple[int, KeyFacts, list[str]]]:
    """Every key of a file, with the columns under it."""
    columns: dict[int, dict[str, None]] = {index: {} for index in range(1, len(file.keys))}
    for chunk in file.chunks:
        if chunk.key:
            columns[chunk.key][file.leaves[chunk.leaf][0]] = None
    for index, key in enumerate(file.keys[1:], 1):
        yield index, key, list(columns[index])


def _limit(facts: Facts, file: FileFacts) -> int:
    policy = facts.policies.of(file.path)
    return policy.seal_limit if policy is not None else MAX_GCM_SEALS


def _near(count: int, limit: int, what: str, file: FileFacts, column: str | None) -> Iterator[Finding]:
    if 2 * count >= limit:
        severity = Severity.CRITICAL if count > limit else Severity.WARNING
        yield found("BS307", f"{what}; the limit is {limit}", severity, file.path, column)


def _check_key(
    facts: Facts, file: FileFacts, policy: TablePolicy | None, key: KeyFacts, footer: bool, columns: list[str]
) -> Iterator[Finding]:
    column = None if footer else next(iter(columns), None)
    what = "the footer's key" if footer else "its key"

    def here(rule: str, message: str, severity: Severity | None = None, at: str | None = column) -> Finding:
        extra = {"bits": str(policy.key_bits) if policy else "BITS", "old": shlex.quote(key.master_key or "OLD")}
        return found(rule, message, severity, file.path, at, policy=policy, extra=extra)

    if key.material == "external" and key.master_key is None:
        yield here("BS315", f"{what} {key.key_id}: {key.problem}")
    if key.state in _STATES:
        yield here("BS302", f"{what} is under master key {key.master_key}, which is {key.state}", _STATES[key.state])
    if key.kms_url is not None and (policy is None or key.kms_url not in policy.allowed_kms_urls):
        severity = Severity.INFO if policy is None else None
        yield here("BS312", f"the file names the KMS {key.kms_url[:200]!r}", severity)
    if policy is None:
        return
    if key.bits is not None and key.bits < policy.key_bits:
        yield here("BS311", f"{what} has {key.bits} bits, the policy asks for {policy.key_bits}")
    if key.master_key is not None:
        if footer:
            yield from _expected(key, policy.footer_key, policy.previous_footer_keys, here, None)
        for name in columns:
            own = policy.master_key(name)
            if own is not None:
                yield from _expected(key, own, _previous(policy, name), here, name)
            elif not footer:
                yield here(
                    "BS303", f"under master key {key.master_key}, where the policy has none", Severity.WARNING, name
                )
    age = policy.max_key_age
    if age is not None and key.version_since is not None and facts.now - key.version_since > age:
        since = key.version_since.date().isoformat()
        yield here(
            "BS301", f"{what} is under {key.master_key} version {key.version} of {since}; {age.days} days are allowed"
        )


def _expected(
    key: KeyFacts, wanted: str, previous: Sequence[str], here: Callable[..., Finding], column: str | None
) -> Iterator[Finding]:
    if key.master_key == wanted:
        return
    if key.master_key in previous:
        yield here("BS304", f"under {key.master_key}; the policy now has {wanted}", None, column)
    else:
        yield here("BS303", f"under master key {key.master_key}; the policy has {wanted}", None, column)


def _previous(policy: TablePolicy, column: str) -> tuple[str, ...]:
    parts = column.split(".")
    entries = (policy.columns.get(".".join(parts[:end])) for end in range(len(parts), 0, -1))
    entry = next((entry for entry in entries if entry is not None), None)
    return entry.previous_keys if entry is not None and entry.key is not None else policy.previous_footer_keys


# Key material beside the files


def _check_material(facts: Facts) -> Iterator[Finding]:
    for ref in facts.places.sidecars:
        folder, name = posixpath.split(ref.path)
        data = posixpath.join(folder, name.removeprefix(MATERIAL_PREFIX).removesuffix(".json"))
        if not exists(FileRef(data, ref.filesystem)):
            yield found("BS313", f"there is no {posixpath.basename(data)} beside it", None, ref.path)
    for file in facts.files:
        sidecar = file.sidecar
        if sidecar is None or not sidecar.used or file.hidden or file.error is not None:
            continue
        try:
            entries = sidecar.entries()
        except Exception:  # noqa: S112  # BS315 says so already
            continue
        used = {entries.get(name) for name in sidecar.used}
        stale = sorted(name for name, text in entries.items() if name not in sidecar.used and text not in used)
        if stale:
            yield found(
                "BS314", f"{len(stale)} entries of {posixpath.basename(sidecar.path)} are not used", None, file.path
            )


def exists(ref: FileRef) -> bool:
    """Is there such a file?"""
    if ref.filesystem is None:
        from pathlib import Path

        return Path(ref.path).exists()
    from pyarrow.fs import FileType

    return bool(ref.filesystem.get_file_info(ref.path).type is not FileType.NotFound)


# Nonces


def _check_nonces(facts: Facts, nonces: Nonces) -> Iterator[Finding]:
    for repetition in nonces.repeated():
        (file, column), (again, other) = repetition.first, repetition.again
        where = f"and in {other} of {posixpath.basename(again)}" if again != file else f"and in {other}"
        at = None if column == "footer" else column
        yield found("BS306", f"a nonce stands in {column} {where}, under one key", None, file, at)
    by_path = {file.path: file for file in facts.files}
    for path, column in sorted(nonces.clear_levels):
        policy = facts.policies.of(by_path[path].path)
        sensitive = policy is not None and policy.sensitivity(column) in _SENSITIVE
        yield found("BS110", "levels of V2 pages are in clear", Severity.WARNING if sensitive else None, path, column)
