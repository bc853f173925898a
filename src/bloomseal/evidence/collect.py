"""One look at tables, made into one bundle."""

from __future__ import annotations

import io
import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow.parquet as pq

from .._version import __version__
from ..audit.destruction.look import asking, examine
from ..audit.destruction.question import named_version
from ..audit.destruction.samples import attempts
from ..audit.facts.auditor import AnyPath, Auditor
from ..audit.facts.places import Places, find_files
from ..audit.facts.policies import Policies
from ..audit.facts.uses import looked_into, unreadable, uses_of
from ..audit.rendering.html import templates
from ..audit.report import Report, judged
from ..core.errors import BloomsealError, MissingFileError, PolicyError
from ..core.storage.ref import FileRef
from ..core.text import counted
from ..keytools.access_log import host_name, user_name
from ..keytools.signatures.keys import PublicKey, Signer
from ..notebook import ShownInNotebooks
from ..policy import KeyPolicy, TablePolicy
from ..storage.atomic import storage_errors
from ..storage.folder import Folder
from . import rotations as journal_room
from .access import summary
from .bundle.archive import Member, Spool, check_free, write
from .bundle.manifest import sealed
from .columns import Look, leaks_of
from .destruction import Certificate
from .keys import KeyVersionFacts, at_kms, key_versions

if TYPE_CHECKING:
    from ..keytools.kms.calls import KmsCalls

_SCHEMA: Final = "evidence.schema.json"


@dataclass
class Evidence(ShownInNotebooks):
    """What a bundle says.

    Attributes:
        told: the content of ``evidence.json``, as ``evidence.schema.json`` has it.
        report: the audit that it was made from.
        members: name → bytes (`Spool` where they are many) of everything in the bundle but manifest and signatures.
        signatures_required: how many persons have to sign.
        bundle: the file; None before it was written.
    """

    told: dict[str, Any]
    report: Report
    members: dict[str, Member] = field(repr=False)
    signatures_required: int = 1
    bundle: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return self.told


@dataclass(frozen=True)
class Beside:
    """What a bundle is to hold beside an audit.

    Attributes:
        journals: of rotations; None: those in the usual folder that name one of the files.
        destroyed: master key versions, ``KEY:VERSION``, for each of which a certificate is made.
        samples: copies from before a rotation, to try whether they still open under those.
        also: copies and backups that are searched for files under those too.
        access_log: a JSON-lines access log, to be told in short.
    """

    journals: Sequence[AnyPath] | None = None
    destroyed: Sequence[str] = ()
    samples: Sequence[AnyPath] = ()
    also: Sequence[AnyPath] = ()
    access_log: AnyPath | None = None

    @classmethod
    def of(cls, arguments: dict[str, Any]) -> Self:
        """Taken out of a function's other arguments."""
        return cls(**{one.name: arguments.pop(one.name) for one in fields(cls) if one.name in arguments})


def make(
    paths: Sequence[AnyPath] | AnyPath,
    out: AnyPath,
    *,
    signers: Sequence[Signer] = (),
    overwrite: bool = False,
    deep: bool = False,
    now: datetime | None = None,
    progress: Callable[[int, int], None] | None = None,
    **more: Any,
) -> Evidence:
    """Look at tables, and write the bundle.

    Args:
        paths: files, folders, Delta and Iceberg tables.
        out: the bundle, a zip archive of mode 0600.
        signers: whoever signs now; others may sign later (`add_signature`).
        overwrite: replace a file that is there.
        deep, progress: as for `bloomseal.audit.audit`.
        now: the moment that the bundle speaks of; default: this one.
        more: keys, policy, table, aad_prefix, filesystem, with_keys, as for `bloomseal.audit.audit`; journals,
            destroyed, samples, also, access_log, as `Beside` has them.

    Raises:
        MissingFileError: nothing is at one of the paths, or no data file at any.
        UsageError: no paths, a file at `out`, or journals or a log that can't be read.
        MissingDependencyError: the extra ``report``, or a table without its library.
        IntegrityError: a signer whose signature does not hold.
        BloomsealError: the bundle can't be written. Whatever is in the data files is no error.
    """
    ready(out, signers, overwrite=overwrite)
    moment = (now or datetime.now(UTC)).astimezone(UTC).replace(microsecond=0)
    given = [os.fspath(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    beside = Beside.of(more)
    auditor = Auditor(**more)
    places = auditor.find(given)
    _refuse_nothing(places)
    files, nonces = auditor.look(places, deep=deep, progress=progress)
    report = judged(auditor, places, files, nonces=nonces, now=moment)
    evidence = gather(auditor, report, places, beside, paths=given, now=moment)
    return finished(evidence, out, signers, moment, overwrite=overwrite)


def finished(
    evidence: Evidence, out: AnyPath, signers: Sequence[Signer], made: datetime, *, overwrite: bool
) -> Evidence:
    """Signed and written; arguments as of `make`."""
    whole = sealed(evidence.members, signers, made=made, required=evidence.signatures_required)
    write(out, whole, overwrite=overwrite)
    evidence.bundle = os.fspath(out)
    return evidence


def gather(
    auditor: Auditor, report: Report, places: Places, beside: Beside, *, paths: Sequence[str], now: datetime
) -> Evidence:
    """What an audit's report, journals and the KMS say, as the members of a bundle.

    Args:
        auditor, report, places: of the audit, wherever it was done.
        paths: as they were given.

    Raises:
        MissingFileError: there was no data file to look at.
    """
    _refuse_nothing(places)
    tools = auditor.tools
    kms = None if tools is None else tools.calls
    seen = _seen(report, auditor.policies, kms, now)
    refs = {ref.path: ref for ref in places.files}
    leaks = leaks_of(report.inventory, lambda path: refs.get(path) or FileRef(path), auditor.keys)
    members: dict[str, Member] = {}
    rotations = _rotations(beside.journals, seen, {path: _as_booked(ref) for path, ref in refs.items()}, members)
    certificates = _certificates(auditor, beside, paths, _key_policies(seen.tables)[0])
    members |= {f"destruction/{number:03d}.json": _json(one.look.to_dict()) for number, one in enumerate(certificates)}
    required = max((one.signatures_required for one in certificates), default=1)
    told = {
        "$schema": _SCHEMA,
        "format": "bloomseal evidence",
        "format_version": 3,
        "made": now.isoformat(),
        "tool": {"name": "bloomseal", "version": __version__},
        "by": {"user": user_name(), "host": host_name()},
        "looked_at": {"paths": list(paths), "kms": kms and kms.name, **seen.summary()},
        "rules": [one.to_dict() for one in report.by_rule()],
        "keys": [one.to_dict() for one in seen.versions],
        "columns": seen.columns(leaks),
        "signatures": seen.signatures(),
        "rotations": [one.to_dict() for one in rotations],
        "destructions": [one.to_dict() for one in certificates],
        "requirements": seen.requirements(),
        "access": {
            "logged_by_policy": {policy.name: policy.access_log is not None for policy in seen.tables},
            "log": None if beside.access_log is None else summary(beside.access_log),
        },
    }
    told = json.loads(_json(told))  # as a reader sees it, moments as text
    members |= _renderings(report, seen.versions, told)
    members["evidence.json"] = _json(told)
    members[_SCHEMA] = (Path(__file__).with_name(_SCHEMA)).read_bytes()
    return Evidence(told, report, members, required)


def _seen(report: Report, policies: Policies, kms: KmsCalls | None, now: datetime) -> Look:
    # Of a policy file with many tables those count that files were seen of.
    named = set(report.inventory["table"].unique().to_pylist())
    tables = [one for one in policies.tables if one.name in named] or policies.tables
    uses = uses_of(report.inventory)
    versions = key_versions(uses, *_key_policies(tables), lambda key, seen: at_kms(kms, key, seen), now)
    broken = unreadable(report.inventory)
    unread = [f"{counted(broken, 'file')} that can't be read, or not as a whole"] if broken else []
    return Look(report, policies, tables, uses, versions, [*report.unseen, *unread, *report.hidden])


def _renderings(report: Report, versions: Sequence[KeyVersionFacts], told: dict[str, Any]) -> dict[str, Member]:
    from ..audit.rendering.cbom import to_cbom
    from ..audit.rendering.html import to_html
    from ..audit.rendering.sarif import sarif_pieces
    from ..audit.streamed import encoded
    from .pages import index_page, leak_page

    inventory = io.BytesIO()
    pq.write_table(report.inventory, inventory, compression="zstd")
    lives = {(one.master_key, one.version): one.to_dict() for one in versions}
    # A line for each finding, of which each file may have some; the others grow with keys and columns.
    long: dict[str, Iterable[str]] = {
        "audit.json": report.json_pieces(inventory=False),
        "audit.sarif": sarif_pieces(report),
    }
    short = {
        "audit.html": to_html(report, beside=["index.html", "leaks.html"]),
        "cbom-1.6.json": to_cbom(report, version="1.6", lives=lives),
        "cbom-1.7.json": to_cbom(report, version="1.7", lives=lives),
        "index.html": index_page(told),
        "leaks.html": leak_page(told),
    }
    return {
        "inventory.parquet": inventory.getvalue(),
        **{name: Spool(encoded(pieces)) for name, pieces in long.items()},
        **{name: text.encode(errors="backslashreplace") for name, text in short.items()},
    }


def ready(out: AnyPath, signers: Sequence[Signer], *, overwrite: bool) -> None:
    """What would end it is told before the long look.

    Raises:
        MissingDependencyError: the extra ``report`` is not installed. UsageError: a file at `out`. BloomsealError: none
            can be written there.
        KeyAccessError: the KMS of a signer does not give its public key.
    """
    for signer in signers:
        PublicKey(signer.public_key())
    if not overwrite:
        check_free(out)
    with storage_errors("write the bundle", os.fspath(out)):
        folder, _ = Folder.of(out)
        with folder:
            folder.need_writable()
    templates()


def _refuse_nothing(places: Places) -> None:
    """A misspelt path is no table without findings."""
    if places.nothing or not places.files:
        raise MissingFileError(
            "there is no data file to make evidence about",
            file=", ".join(places.nothing) or None,
            hint="; ".join(places.unknown[:3]) or None,
        )


def _key_policies(tables: Sequence[TablePolicy]) -> tuple[dict[str, KeyPolicy], dict[str, timedelta]]:
    keys: dict[str, KeyPolicy] = {}
    ages: dict[str, timedelta] = {}
    for policy in tables:
        keys |= policy.key_policies
        for name in policy.master_keys:
            if policy.max_key_age is not None:
                ages[name] = min(policy.max_key_age, ages.get(name, policy.max_key_age))
    used = {name for policy in tables for name in policy.master_keys}
    return {name: key for name, key in keys.items() if name in used}, ages


def _as_booked(ref: FileRef) -> str:
    """How a rotation's journal calls the file: journals outlive the working directory."""
    return os.path.abspath(ref.path) if ref.filesystem is None else f"{ref.filesystem.type_name}:{ref.path}"  # noqa: PTH100


def _rotations(
    journals: Sequence[AnyPath] | None, seen: Look, booked: Mapping[str, str], members: dict[str, Member]
) -> list[journal_room.Rotation]:
    """Args:
    booked: a file's path → its name in a journal.
    members: where the journals' bytes go.
    """
    found: list[journal_room.Rotation] = []
    own = journals is None
    try:
        listed = journal_room.default_journals() if journals is None else [Path(path) for path in journals]
    except PolicyError as error:
        return [journal_room.unread("the usual folder", error)]
    if not listed:
        return found
    read = seen.report.inventory.filter(looked_into(seen.report.inventory))["file"].unique().to_pylist()
    looked = {booked.get(path, path) for path in read}
    names = seen.report.inventory["file"].unify_dictionaries().combine_chunks().dictionary
    under: dict[str, set[str]] = defaultdict(set)
    for use in seen.uses:
        if use.master_key is not None:
            under[use.master_key] |= {booked.get(path, path) for path in names.take(use.file_ids).to_pylist()}
    mine = set(booked.values())
    for path in listed:
        try:
            rotation, data, named = journal_room.read_journal(path, own=own)
        except BloomsealError as error:
            if not own:
                raise
            found.append(journal_room.unread(path.name, error))
            continue
        if own and rotation.problem is None and not named & mine:
            continue  # about other tables
        if len(data):
            rotation.journal = f"rotation/{len(found):03d}-{rotation.operation or 'unknown'}.jsonl"
            members[rotation.journal] = data
        found.append(journal_room.judged(rotation, named, seen.versions, looked, under, seen.unseen))
    return found


def _certificates(
    auditor: Auditor, beside: Beside, paths: Sequence[str], policies: Mapping[str, KeyPolicy]
) -> list[Certificate]:
    named = [named_version(text) for text in beside.destroyed]
    samples = find_files(list(beside.samples)).files if beside.samples and named else ()
    found = []
    for key, version in named:
        answer = examine(auditor, asking(key, version), [*paths, *beside.also])
        tried = [one for ref in samples for one in attempts(ref, key, version, auditor)]
        dual = key in policies and policies[key].dual_control
        found.append(Certificate(answer, tried, 2 if dual else 1))
    return found


def _json(told: Any) -> bytes:
    text = json.dumps(told, indent=2, ensure_ascii=False, default=_plain, allow_nan=False)
    return text.encode(errors="backslashreplace") + b"\n"


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return str(value)
