"""One file, or one sidecar without its file: does it need the version in question, or may it?"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field

from ...core.errors import BloomsealError
from ...core.keys.material import KeyMaterial
from ...core.storage.ref import FileRef
from ...storage.discovery.kinds import MATERIAL_PREFIX
from ..facts.files.file import FileFacts
from ..facts.files.scan import Scanner
from ..facts.keys import KeyFacts, SidecarView
from .answer import Reason
from .question import Question

__all__ = ["Examined", "Examiner", "file_of"]


@dataclass(slots=True)
class Examined:
    """What is left of a file once it was looked at: little, because there are many.

    Attributes:
        reasons: what stands against a *yes*.
        under: versions that its keys are under.
        keys: how many of them the KMS has tied to a version.
    """

    reasons: tuple[Reason, ...] = ()
    under: frozenset[str] = field(default_factory=frozenset)
    keys: int = 0


def file_of(sidecar: str) -> str:
    """The path of the data file that a sidecar stands beside."""
    folder, name = posixpath.split(sidecar)
    return posixpath.join(folder, name.removeprefix(MATERIAL_PREFIX).removesuffix(".json"))


class Examiner:
    """Looks at files for one question.

    Args:
        scanner: with the keys at hand, and with a witness where there is a KMS.
    """

    def __init__(self, question: Question, scanner: Scanner) -> None:
        self._question = question
        self._scanner = scanner
        self._sets: dict[frozenset[str], frozenset[str]] = {}

    def file(self, ref: FileRef, *, beside: bool) -> Examined:
        """A data file. Never raises for what is in it.

        Args:
            beside: also look at the key material beside it to which it does not refer.
        """
        facts = self._scanner.scan(ref)
        seen = _Seen(self._question, facts.path)
        if facts.error is not None:
            seen.doubt(facts.error)
        for error in dict.fromkeys(chunk.error for chunk in facts.chunks if chunk.error is not None):
            seen.doubt(error)
        if len(facts.keys) > 1 and not facts.footer_verified and facts.error is None:
            seen.doubt("its footer could not be verified, so that nobody knows all of its keys")
        for gap in facts.gaps or ():
            seen.doubt(f"{gap}, which no module of the file covers: a file may be hidden there")
        url = facts.keys[1].kms_url if len(facts.keys) > 1 else None
        first = 2 if facts.is_orc else 1
        for index, key in enumerate(facts.keys[first:], first):
            seen.key(self._scanner, key, url, _column(facts, index))
        sidecar = facts.sidecar or SidecarView(ref)
        if beside or sidecar.used:
            self._entries(seen, sidecar, url)
        return self._done(seen)

    def orphan(self, ref: FileRef) -> Examined:
        """Key material whose data file is not there: whatever it is for may come back."""
        seen = _Seen(self._question, ref.path)
        view = SidecarView(FileRef(file_of(ref.path), ref.filesystem))
        self._entries(seen, view, None)
        return self._done(seen)

    def _entries(self, seen: _Seen, sidecar: SidecarView, url: str | None) -> None:
        try:
            left = {name: text for name, text in sidecar.entries().items() if name not in sidecar.used}
        except BloomsealError as error:
            seen.doubt(error.what)
            return
        materials = []
        for name, text in left.items():
            try:
                materials.append(KeyMaterial.from_json(text))
            except BloomsealError as error:
                seen.doubt(f"{error.what}, in the entry {name[:100]!r} beside it")
        url = url or next((one.kms_instance_url for one in materials if one.kms_instance_url), None)
        for material in materials:
            facts = KeyFacts.of_material("external", None, material, self._scanner.kms, url)
            seen.key(self._scanner, facts, url, None)

    def _done(self, seen: _Seen) -> Examined:
        under = frozenset(seen.under)
        return Examined(tuple(dict.fromkeys(seen.reasons)), self._sets.setdefault(under, under), seen.tied)


class _Seen:
    """What was seen of one file so far."""

    def __init__(self, question: Question, place: str) -> None:
        self._question = question
        self._place = place
        self.reasons: list[Reason] = []
        self.under: set[str] = set()
        self.tied = 0

    def doubt(self, what: str, column: str | None = None) -> None:
        self.reasons.append(Reason("unknown", self._place, what, column))

    def key(self, scanner: Scanner, key: KeyFacts, url: str | None, column: str | None) -> None:
        """One data key: the version that opens it counts, and the one that it claims as well."""
        if key.master_key is None:
            self.doubt(_WITHOUT.get(key.material, key.problem or "its key material is missing"), column)
            return
        question, witness = self._question, scanner.kms.witness
        claimed = question.real._replace(key=key.master_key, version=key.version)
        named = None if witness is None else witness.identify(key.master_key, key.version, key.kms_url or url)
        told = key.opened_by
        version = told or named or claimed
        self.under.add(f"{version.key}:{'?' if version.version is None else version.version}")
        self.tied += told is not None
        as_asked = question.real._replace(key=question.master_key, version=question.version)
        if claimed == as_asked or any(question.is_about(one) for one in (told, named, claimed) if one is not None):
            self.reasons.append(
                Reason("no", self._place, f"a key is under {_shown(version.key, version.version)}", column)
            )
            return
        if told is None:
            if witness is not None:  # that there is none stands against a yes as it is, once for all keys
                self.doubt(f"a key that says it is under {_shown(key.master_key, key.version)}: {key.untold}", column)
        elif told.key == question.real.key and told.version is None:
            self.doubt(f"a key is under {told.key}, and the KMS does not tell under which version", column)
        elif key.problem is not None:
            self.doubt(f"a key can't be had: {key.problem}", column)


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
