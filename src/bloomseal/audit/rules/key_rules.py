"""Rules about keys: their age, their master key, how often they sealed, the material beside the files."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from ...core.columns import nearest_entry
from ...core.limits import MAX_GCM_SEALS
from ...core.storage.ref import FileRef
from ...keytools.recipients.recipient import kind_of
from ...policy import SENSITIVE, TablePolicy
from ...storage.discovery.kinds import is_of_index
from ...storage.places import exists
from ..facts.files.file import FileFacts
from ..facts.keys import MANIFEST, KeyFacts, file_of
from .findings import Finding, Severity
from .judged import Facts, found

if TYPE_CHECKING:
    from ..facts.files.deep import Nonces

_STATES = {
    "disabled": Severity.ERROR,
    "unknown": Severity.ERROR,
    "destroyed": Severity.CRITICAL,
    "pending deletion": Severity.WARNING,
}


def check_keys(facts: Facts) -> Iterator[Finding]:
    """Every key of every file, and what becomes visible only over all files: shared keys, seals that add up."""
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
            shared_by = {"files": sorted(other.path for other in files.values())}
            severity = None if own else Severity.INFO
            made = found("BS305", message, severity, file.path, column, (), shared_by)
            yield made if own or key.material == "orc" else made.unmendable()
        limit = _limit(facts, file)
        message = f"the data key has sealed at least {sealed[data_key]} modules"
        # Fresh keys help where files share one. What one file alone needs, it needs again.
        yield from _near(sealed[data_key], limit, message, file, column, sorted(f.path for f in files.values()))
    for kek, wrapped in sorted(keks.items()):
        file = next(f for f in facts.files if any(key.kek_id == kek for key in f.keys))
        yield from _near(
            len(wrapped), _limit(facts, file), f"a KEK has wrapped at least {len(wrapped)} keys", file, None, []
        )


def check_versions(facts: Facts) -> Iterator[Finding]:
    """Files that a rotation has missed: under an older version of a master key than others are."""
    under: dict[tuple[str, bool, bool], dict[str, dict[str, FileFacts]]] = {}
    current: dict[str, str] = {}
    pairs = {key.master_key for file in facts.files for key in file.keys if kind_of(key.version) is not None}
    for file in facts.files:
        for key in file.keys:
            if key.master_key is not None and key.version is not None:
                # ORC files count from 0, and a keyring from 1: two counts are not compared. Nor what a pair's holder
                # has wrapped for an index with what is sealed to its public half.
                own = key.master_key in pairs and is_of_index(file.path)
                counted = under.setdefault((key.master_key, key.own_count, own), {})
                counted.setdefault(key.version, {})[file.path] = file
                if key.current is not None:
                    current[key.master_key] = key.current
    for (name, *_), versions in sorted(under.items()):
        if len(versions) < 2:
            continue
        numbers = all(one.isascii() and one.isdigit() for one in versions)
        # Names that are no numbers have no order but the KMS's word; without it, most files are taken to be where all
        # should be.
        newest = max(versions, key=int) if numbers else current.get(name)
        if newest not in versions:
            newest = max(sorted(versions), key=lambda one: len(versions[one]))
        there, total = len(versions[newest]), len({path for files in versions.values() for path in files})
        for version, files in versions.items():
            for file in files.values() if version != newest else ():
                message = f"under {name} version {version}, where {there} of {total} files are under version {newest}"
                yield found("BS316", message, None, file.path)


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


def _near(
    count: int, limit: int, what: str, file: FileFacts, column: str | None, files: list[str]
) -> Iterator[Finding]:
    if 2 * count >= limit:
        severity = Severity.CRITICAL if count > limit else Severity.WARNING
        message = f"{what}; the limit is {limit}"
        made = found("BS307", message, severity, file.path, column, (), {"files": files})
        yield made if len(files) > 1 else made.unmendable()


def _check_key(
    facts: Facts, file: FileFacts, policy: TablePolicy | None, key: KeyFacts, footer: bool, columns: list[str]
) -> Iterator[Finding]:
    column = None if footer else next(iter(columns), None)
    what = "the footer's key" if footer else "its key"

    def here(
        rule: str, message: str, severity: Severity | None = None, at: str | None = column, *, mendable: bool = True
    ) -> Finding:
        details = {"old": key.master_key, "version": key.version, "current": key.current}
        made = found(rule, message, severity, file.path, at, (), details)
        return made if mendable else made.unmendable()

    if key.material == "external" and key.master_key is None:
        yield here("BS315", f"{what} {key.key_id}: {key.problem}")
    if key.state in _STATES:
        message = f"{what} is under master key {key.master_key}, which is {key.state}"
        yield here("BS302", message, _STATES[key.state], mendable=key.state == "disabled")
    if key.kms_url is not None and (policy is None or key.kms_url not in policy.allowed_kms_urls):
        severity = Severity.INFO if policy is None else None
        yield here("BS312", f"the file names the KMS {key.kms_url[:200]!r}", severity)
    if policy is None:
        return
    if key.bits is not None and key.bits < policy.key_bits:
        yield here("BS311", f"{what} has {key.bits} bits, the policy asks for {policy.key_bits}")
    if key.master_key is not None and key.material != MANIFEST:  # which hangs from the policy's own, or does not open
        if footer:
            yield from _expected(key, policy.footer_key, policy.previous_footer_keys, here, None)
        for name in columns:
            own = policy.master_key(name)
            if own is not None:
                yield from _expected(key, own, _previous(policy, name), here, name)
            elif not footer:
                message = f"under master key {key.master_key}, where the policy has none"
                yield here("BS303", message, Severity.WARNING, name, mendable=False)
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
    entry = nearest_entry(policy.columns, column)
    return entry.previous_keys if entry is not None and entry.key is not None else policy.previous_footer_keys


def check_material(facts: Facts) -> Iterator[Finding]:
    """Key material beside the files that no file needs."""
    for ref in facts.places.sidecars:
        data = file_of(ref.path)
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


def check_nonces(facts: Facts, nonces: Nonces) -> Iterator[Finding]:
    """Nonces that stand twice under one key, and levels in clear that the same pass over the pages has seen."""
    for (file, column), (again, other) in nonces.repeated():
        where = f"and in {other} of {posixpath.basename(again)}" if again != file else f"and in {other}"
        at = None if column == "footer" else column
        yield found("BS306", f"a nonce stands in {column} {where}, under one key", None, file, at)
    by_path = {file.path: file for file in facts.files}
    for path, column in sorted(nonces.clear_levels):
        policy = facts.policies.of(by_path[path].path)
        sensitive = policy is not None and policy.sensitivity(column) in SENSITIVE
        yield found("BS110", "levels of V2 pages are in clear", Severity.WARNING if sensitive else None, path, column)
