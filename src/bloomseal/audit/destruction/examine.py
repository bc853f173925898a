"""Whether one file, or one sidecar without its file, needs the version in question, or may need it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ...core.errors import BloomsealError
from ...core.keys.material import KeyMaterial
from ...core.storage.ref import FileRef
from ..facts.files.file import FileFacts
from ..facts.files.scan import Scanner
from ..facts.iceberg import TableKek
from ..facts.keys import KeyFacts, SidecarView, file_of
from .question import ALL_VERSIONS, DestructionQuestion, DestructionReason


@dataclass(slots=True)
class Examined:
    """What is left of a file once it was looked at: little, because there are many.

    Attributes:
        place: the file.
        reasons: what stands against a *yes*.
        under: versions that its keys are under.
        keys: how many of them the KMS has tied to a version.
    """

    place: str
    reasons: list[DestructionReason] = field(default_factory=list)
    under: set[str] = field(default_factory=set)
    keys: int = 0

    def doubt(self, what: str, column: str | None = None) -> None:
        self.reasons.append(DestructionReason("unknown", self.place, what, column))


@dataclass(frozen=True, slots=True)
class Work:
    """A file to look at; `beside`: with the key material beside it. `orphan`: it is key material without its file.
    `kek`: it holds this KEK of an encrypted Iceberg table.
    """

    ref: FileRef
    beside: bool = False
    orphan: bool = False
    kek: TableKek | None = None


class Examiner:
    """Looks at files for one question.

    Args:
        scanner: with the keys at hand, and with a witness where there is a KMS.
    """

    def __init__(self, question: DestructionQuestion, scanner: Scanner) -> None:
        self._question = question
        self._scanner = scanner
        self._sets: dict[frozenset[str], set[str]] = {}

    def examine(self, work: Work) -> Examined:
        """Never raises for what is in a file."""
        found = Examined(work.ref.path)
        if work.kek is not None:
            self._key(found, KeyFacts.of_kek(work.kek, self._scanner.kms), None, None)
        elif work.orphan:  # whatever it is for may come back
            self._entries(found, SidecarView(FileRef(file_of(work.ref.path), work.ref.filesystem)), None)
        else:
            self._file(found, self._scanner.scan(work.ref), work.beside)
        found.reasons = list(dict.fromkeys(found.reasons))
        found.under = self._sets.setdefault(frozenset(found.under), found.under)
        return found

    def _file(self, found: Examined, facts: FileFacts, beside: bool) -> None:
        if facts.error is not None:
            found.doubt(facts.error)
        for error in dict.fromkeys(chunk.error for chunk in facts.chunks if chunk.error is not None):
            found.doubt(error)
        if len(facts.keys) > 1 and not facts.footer_verified and facts.error is None:
            found.doubt("its footer could not be verified, so that nobody knows all of its keys")
        for gap in facts.gaps or ():
            found.doubt(f"{gap}, which no module of the file covers: a file may be hidden there")
        url = facts.keys[1].kms_url if len(facts.keys) > 1 else None
        for index, key in enumerate(facts.keys):
            if key is not facts.keys[0]:  # which stands for no key
                self._key(found, key, url, _column(facts, index))
        sidecar = facts.sidecar or SidecarView(facts.ref)
        if beside or sidecar.used:
            self._entries(found, sidecar, url)

    def _entries(self, found: Examined, sidecar: SidecarView, url: str | None) -> None:
        """The key material beside a file to which it does not refer."""
        try:
            left = {name: text for name, text in sidecar.entries().items() if name not in sidecar.used}
        except BloomsealError as error:
            found.doubt(error.what)
            return
        materials = []
        for name, text in left.items():
            try:
                materials.append(KeyMaterial.from_json(text))
            except BloomsealError as error:
                found.doubt(f"{error.what}, in the entry {name[:100]!r} beside it")
        url = url or next((one.kms_instance_url for one in materials if one.kms_instance_url), None)
        for material in materials:
            facts = KeyFacts.of_material("external", None, material, self._scanner.kms, url)
            self._key(found, facts, url, None)

    def _key(self, found: Examined, key: KeyFacts, url: str | None, column: str | None) -> None:
        """One data key: the version that opens it counts, and the one that it claims as well."""
        if key.master_key is None:
            found.doubt(_WITHOUT.get(key.material, key.problem or "its key material is missing"), column)
            return
        question, kms = self._question, self._scanner.kms
        claimed = question.real._replace(key=key.master_key, version=key.version)
        named = kms.identify(key.master_key, key.version, key.kms_url or url)
        told = key.opened_by
        version = told or named or claimed
        found.under.add(f"{version.key}:{'?' if version.version is None else version.version}")
        found.keys += told is not None
        asked = None if question.version == ALL_VERSIONS else question.version
        as_asked = question.real._replace(key=question.master_key, version=asked)
        if claimed == as_asked or any(question.is_about(one) for one in (told, named, claimed) if one is not None):
            what = f"{'a KEK' if key.material == 'kek' else 'a key'} is under {_shown(version.key, version.version)}"
            found.reasons.append(DestructionReason("no", found.place, what, column))
        elif told is None:
            if kms.is_witness:  # that there is none stands against a yes as it is, once for all keys
                found.doubt(f"a key that says it is under {_shown(key.master_key, key.version)}: {key.untold}", column)
        elif told.key == question.real.key and told.version is None:
            found.doubt(f"a key is under {told.key}, and the KMS does not tell under which version", column)
        elif key.problem is not None:
            found.doubt(f"a key can't be had: {key.problem}", column)


_WITHOUT = {
    "opaque": "its key goes by an id of its writer's own",
    "none": "its key goes by no id",
}


def _shown(key: str, version: str | None) -> str:
    return f"{key}, version {'unknown' if version is None else version}"


def _column(facts: FileFacts, index: int) -> str | None:
    """A column that this key seals; none for the footer's."""
    if index == 1:
        return None
    names: Iterator[str] = (facts.leaves[chunk.leaf][0] for chunk in facts.chunks if chunk.key == index)
    return next(names, None)
