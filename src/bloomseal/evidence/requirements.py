"""What is fulfilled of a standard, what is missing, and what no program can decide: item by item.

PCI DSS 4.0.1, requirements 3.5 to 3.7 (stored account data), and 45 CFR 164.312 (a)(2)(iv) and (b) (HIPAA, technical
safeguards), over the columns that a policy's `requirement` puts under them. The titles are ours; the standards' own
words count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from .keys import COMPROMISED, DEACTIVATED, DESTROYED, SUSPENDED, UNKNOWN, KeyVersion
from .leaks import FILTER, VALUES, ColumnLeak

__all__ = ["Item", "Scope", "ScopedColumn", "judge"]

FULFILLED: Final = "fulfilled"
MISSING: Final = "missing"
UNDECIDED: Final = "not decidable"
NOT_APPLICABLE: Final = "not applicable"
PCI: Final = "PCI DSS"
HIPAA: Final = "HIPAA"
_STRONG_BITS: Final = 128

Answer = tuple[str, str]


@dataclass(frozen=True)
class Item:
    """One item of a standard: status is ``fulfilled``, ``missing``, ``not decidable`` or ``not applicable``."""

    standard: str
    item: str
    title: str
    status: str
    why: str
    evidence: str
    columns: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


@dataclass(frozen=True)
class ScopedColumn:
    """A column that comes under a standard.

    Attributes:
        table, column, requirements: by the policy.
        files: protection → number of files in which it was seen so.
        leak: what stands in clear of it; None where no file has it.
        accepted: the master keys that the policy has for it, those of older files too.
    """

    table: str
    column: str
    requirements: tuple[str, ...]
    files: Mapping[str, int]
    leak: ColumnLeak | None
    accepted: frozenset[str]

    @property
    def name(self) -> str:
        return f"{self.table}.{self.column}"


@dataclass(frozen=True)
class Scope:
    """What there is to judge a standard by.

    Attributes:
        columns: those under the standard.
        versions: the master key versions that cover them or the footers of their tables.
        unseen: why not everything was seen, in words.
        access_logs: table → is the access log on by the policy?
        kms: the name of the KMS, None where none was asked.
        materials: ``internal``, ``external``, ``opaque`` or ``none``: how the data keys are kept.
        bits: lengths of their data keys; None among them where a length can't be told.
    """

    columns: Sequence[ScopedColumn]
    versions: Sequence[KeyVersion]
    unseen: Sequence[str]
    access_logs: Mapping[str, bool]
    kms: str | None
    materials: frozenset[str]
    bits: frozenset[int | None]
    places: frozenset[str | None] = field(default_factory=frozenset)

    @property
    def in_use(self) -> list[KeyVersion]:
        return [one for one in self.versions if one.files]


def judge(standard: str, scope: Scope) -> list[Item]:
    """All items of a standard; none where no column comes under it."""
    if not scope.columns:
        return []
    items = []
    for name, title, evidence, rule in _RULES[standard]:
        status, why = rule(scope)
        if status == FULFILLED and scope.unseen:
            status, why = UNDECIDED, f"not everything was seen: {'; '.join(list(scope.unseen)[:5])}"
        named = tuple(
            column.name for column in scope.columns if any(_covers(one, standard, name) for one in column.requirements)
        )
        items.append(Item(standard, name, title, status, why, evidence, named))
    return items


def _covers(requirement: str, standard: str, item: str) -> bool:
    """``PCI DSS 3.6`` covers 3.6.1 and all below it; the bare name of a standard covers all of it."""
    rest = requirement.removeprefix(standard).strip()
    return requirement.startswith(standard) and (not rest or item == rest or item.startswith((rest + ".", rest + " ")))


def _encrypted(scope: Scope) -> Answer:
    clear, lacking = [], []
    for column in scope.columns:
        if not column.files:
            lacking.append(column.name)
        elif column.leak is not None and (what := [one for one in column.leak.in_clear if one != FILTER]):
            shown = ", ".join(f"{one} in {column.leak.in_clear[one]} files" for one in what)
            clear.append(f"{column.name}: in clear: {shown}")
    if clear:
        return MISSING, "; ".join(clear)
    if lacking:
        return UNDECIDED, f"no file seen has {', '.join(lacking)}"
    return FULFILLED, "every file seen has these columns encrypted, statistics and indexes too"


def _no_plain_hashes(scope: Scope) -> Answer:
    clear = [column.name for column in scope.columns if column.leak is not None and FILTER in column.leak.in_clear]
    if clear:
        return MISSING, f"a Bloom filter in clear is a set of hashes without a key: {', '.join(clear)}"
    return FULFILLED, "filters are sealed under the column's key: their hashes are of no use without it"


def _not_by_disk(scope: Scope) -> Answer:
    plain = [column.name for column in scope.columns if column.leak is not None and VALUES in column.leak.in_clear]
    if plain:
        return MISSING, f"not encrypted within the file: {', '.join(plain)}"
    return FULFILLED, "encrypted within the file, module by module; no disk encryption is relied upon"


def _no_disk_encryption(_: Scope) -> Answer:
    return NOT_APPLICABLE, "no disk encryption is relied upon"


def _custodians(scope: Scope) -> Answer:
    lacking = sorted({one.master_key for one in scope.in_use if not (one.custodian and one.users)})
    if lacking:
        return MISSING, f"the policy names no custodian, or no users, for {', '.join(lacking)}"
    return (
        UNDECIDED,
        "custodians and users are named in the policy; whether the KMS grants its rights to them alone is not asked",
    )


def _strength(scope: Scope) -> Answer:
    weak = sorted({one.name for one in scope.in_use if one.bits is not None and any(_above(scope.bits, one.bits))})
    if weak:
        return MISSING, f"shorter than the keys that they wrap: {', '.join(weak)}"
    unknown = sorted({one.name for one in scope.in_use if one.bits is None})
    if unknown:
        return UNDECIDED, f"the KMS does not tell the length of {', '.join(unknown)}"
    return FULFILLED, "no master key is shorter than the data keys that it wraps"


def _separate(scope: Scope) -> Answer:
    if scope.kms is None or scope.kms == "the keyring":
        return (
            UNDECIDED,
            "a keyring file is as separate from the data as its owner keeps it" if scope.kms else "no KMS was asked",
        )
    return FULFILLED, f"master keys stay in {scope.kms}; files hold wrapped data keys only"


def _locations(scope: Scope) -> Answer:
    told = sorted(place or "(the caller's)" for place in scope.places)
    return UNDECIDED, f"files name {len(told)} KMS: {', '.join(told) or 'none'}; copies of keys elsewhere are not seen"


def _described(scope: Scope) -> Answer:
    lacking = sorted({one.name for one in scope.in_use if one.originator_usage_ends is None and one.expiry is None})
    if lacking:
        return MISSING, f"no period and no expiry is told for {', '.join(lacking)}"
    return FULFILLED, "algorithms, key lengths, periods, uses and KMS of every key are listed"


def _wrapped(scope: Scope) -> Answer:
    if scope.materials & {"opaque", "none"}:
        return UNDECIDED, "some files name keys by an id of their writer's own; how those are kept is not seen"
    return FULFILLED, "every data key is wrapped under a master key; none stands in a file in clear"


def _components(_: Scope) -> Answer:
    return UNDECIDED, "who can get at components of keys in clear is not seen in files"


def _generated(scope: Scope) -> Answer:
    short = sorted(str(one) for one in scope.bits if one is not None and one < _STRONG_BITS)
    if short:
        return MISSING, f"data keys of {', '.join(short)} bits"
    if None in scope.bits or not scope.bits:
        return UNDECIDED, "the length of some data keys can't be told without the keys"
    return (
        FULFILLED,
        "data keys have 128 bits or more, and come from the operating system's generator where Bloomseal made them",
    )


def _periods(scope: Scope) -> Answer:
    late = [f"{one.name}: {text}" for one in scope.in_use for text in one.overdue]
    if late:
        return MISSING, "; ".join(late)
    current = {one.master_key for one in scope.versions if one.current}
    without = sorted({one.master_key for one in scope.versions if one.current and one.rotation_due is None})
    if without:
        return MISSING, f"no originator usage period for {', '.join(without)}, or no day on which it began"
    if {one.master_key for one in scope.in_use} - current:
        return UNDECIDED, "the KMS does not tell which version is current"
    return FULFILLED, "every key has a period, and none is past it"


def _retired(scope: Scope) -> Answer:
    bad = [f"{one.name} is {one.state}" for one in scope.in_use if one.state in (COMPROMISED, DESTROYED)]
    bad += [f"{one.name}: {text}" for one in scope.in_use if one.state == DEACTIVATED for text in one.overdue]
    if bad:
        return MISSING, f"files are under keys that are to be replaced: {'; '.join(bad)}"
    if any(one.state == UNKNOWN for one in scope.in_use):
        return UNDECIDED, "the state of some keys is not known"
    return FULFILLED, "no file is under a key that is compromised, destroyed or past its period"


def _dual(scope: Scope) -> Answer:
    single = sorted({one.master_key for one in scope.versions if not one.dual_control})
    if single:
        return (
            UNDECIDED,
            f"whether anybody handles keys in clear by hand is not seen; no dual control in the policy for {', '.join(single)}",
        )
    return (
        UNDECIDED,
        "destruction takes two signatures by the policy; whether anybody handles keys in clear by hand is not seen",
    )


def _substitution(scope: Scope) -> Answer:
    wrong = []
    for column in scope.columns:
        for one in scope.in_use:
            under = any(use["table"] == column.table and use["column"] == column.column for use in one.uses)
            if under and one.master_key not in column.accepted:
                wrong.append(f"{column.name} is under {one.name}")
    if wrong:
        return MISSING, f"not a master key of the policy: {'; '.join(wrong)}"
    return (
        FULFILLED,
        "every column is under a master key that the policy names; readers under the policy refuse any other",
    )


def _acknowledged(scope: Scope) -> Answer:
    lacking = sorted({one.master_key for one in scope.in_use if not one.custodian})
    if lacking:
        return MISSING, f"the policy names no custodian for {', '.join(lacking)}"
    return UNDECIDED, "custodians are named; their acknowledgement is kept elsewhere"


def _guidance(_: Scope) -> Answer:
    return UNDECIDED, "for service providers that share keys with customers; guidance is kept elsewhere"


def _decryptable(scope: Scope) -> Answer:
    lost = [f"{one.name} is {one.state}" for one in scope.in_use if one.state in (DESTROYED, SUSPENDED)]
    if lost:
        return MISSING, f"files can't be decrypted now: {'; '.join(lost)}"
    if any(one.state == UNKNOWN for one in scope.in_use) or not scope.in_use:
        return UNDECIDED, "the state of some keys is not known"
    return FULFILLED, "every key that files are under can be used"


def _logged(scope: Scope) -> Answer:
    off = sorted(table for table, on in scope.access_logs.items() if not on)
    if off:
        return MISSING, f"no access_log in the policy of {', '.join(off)}"
    return UNDECIDED, "the policy has an access log; that every program goes through the policy is not seen"


def _above(bits: frozenset[int | None], limit: int) -> list[int]:
    return [one for one in bits if one is not None and one > limit]


_Rule = tuple[str, str, str, Callable[[Scope], Answer]]
_RULES: Final[dict[str, list[_Rule]]] = {
    PCI: [
        ("3.5.1", "account numbers are unreadable wherever they are stored", "leaks.html; inventory.parquet", _encrypted),
        ("3.5.1.1", "hashes of account numbers are keyed", "leaks.html", _no_plain_hashes),
        ("3.5.1.2", "disk encryption alone does not count", "inventory.parquet", _not_by_disk),
        ("3.5.1.3", "disk encryption is managed apart from the system's accounts", "", _no_disk_encryption),
        ("3.6.1 a", "as few custodians as can be have access to keys", "evidence.json: keys", _custodians),
        ("3.6.1 b", "keys that wrap keys are as strong as those", "evidence.json: keys; cbom-1.6.json", _strength),
        ("3.6.1 c", "keys that wrap keys are stored apart from those", "evidence.json: keys", _separate),
        ("3.6.1 d", "keys are stored in as few places as can be", "evidence.json: keys", _locations),
        ("3.6.1.1", "algorithms, keys, lengths, periods, uses and devices are listed", "cbom-1.6.json; evidence.json", _described),
        ("3.6.1.2", "secret keys are stored wrapped, in a device, or in components", "inventory.parquet", _wrapped),
        ("3.6.1.3", "components in clear are for as few custodians as can be", "", _components),
        ("3.6.1.4", "keys are stored in as few places as can be", "evidence.json: keys", _locations),
        ("3.7.1", "strong keys are generated", "inventory.parquet", _generated),
        ("3.7.2", "keys are distributed safely", "inventory.parquet", _wrapped),
        ("3.7.3", "keys are stored safely", "inventory.parquet", _wrapped),
        ("3.7.4", "keys are changed at the end of their period", "evidence.json: keys, rotations", _periods),
        ("3.7.5", "keys are retired, replaced or destroyed when they have to be", "evidence.json: keys, destructions", _retired),
        ("3.7.6", "handling keys in clear by hand takes two persons", "evidence.json: keys", _dual),
        ("3.7.7", "nobody puts another key in a key's place", "evidence.json: keys", _substitution),
        ("3.7.8", "custodians acknowledge their duties", "evidence.json: keys", _acknowledged),
        ("3.7.9", "service providers guide their customers", "", _guidance),
    ],
    HIPAA: [
        ("164.312(a)(2)(iv) encrypt", "health information is encrypted", "leaks.html; inventory.parquet", _encrypted),
        ("164.312(a)(2)(iv) filters", "nothing beside it gives it away", "leaks.html", _no_plain_hashes),
        ("164.312(a)(2)(iv) decrypt", "it can be decrypted", "evidence.json: keys", _decryptable),
        ("164.312(b)", "access is recorded", "evidence.json: access", _logged),
    ],
}  # fmt: skip
