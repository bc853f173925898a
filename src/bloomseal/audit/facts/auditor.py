"""Whoever looks at files: by which keys, and held against which policy."""

from __future__ import annotations

import contextlib
import os
import posixpath
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

from ...core.errors import BloomsealError
from ...core.keys.protocols import KeySource
from ...core.storage.ref import FileRef
from ...keytools.sources import as_key_source
from ...keytools.tools import KeyTools
from ...policy import Policy, TablePolicy
from ...storage.logs.iceberg_keys import IcebergFileKey, WrappedFileKey
from .files.file import FileFacts, FilterCheck
from .files.scan import Scanner
from .iceberg import SEALED_ENDINGS, EncryptedTable, TableFlaw
from .iceberg_opened import OpenedTable, open_by_policy
from .keys import MANIFEST, KeyFacts, Kms
from .places import Places, find_files
from .policies import Policies

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

    from ...core.parquet.walk import Walk
    from ...core.storage.source import Source
    from .files.deep import Nonces

AnyPath = str | os.PathLike[str]
ToldKey = tuple[IcebergFileKey | WrappedFileKey, KeyFacts]
"""The key that an Iceberg table's manifest gives a file, and the facts of it."""


class AuditorOptions(TypedDict, total=False):
    """The arguments of an `Auditor`, for functions that make one."""

    keys: Any
    policy: Policy | TablePolicy | AnyPath | None
    table: str | None
    aad_prefix: bytes | str | None
    filesystem: FileSystem | None
    with_keys: bool


class Auditor:
    """Looks at files.

    Args:
        keys: whatever `DecryptionSpec` takes; None: from the KMS that the policy names, and without a policy none, to
            look at what everybody sees. At most one unwrapping per KEK, and under a policy that limits the age of keys
            up to two questions per master key.
        policy: gives the AAD prefixes that files don't store, and asks for the ages of keys; or its file.
        table: the policy's table, where the paths don't tell.
        aad_prefix: the prefix of files that don't store theirs, where there is no policy.
        filesystem: where the paths are; None for local ones and URIs.
        with_keys: False: look at what everybody sees, whatever the policy names.

    Attributes:
        policies: by file.
        keys: None where there are none.
    """

    def __init__(
        self,
        keys: Any = None,
        policy: Policy | TablePolicy | AnyPath | None = None,
        table: str | None = None,
        aad_prefix: bytes | str | None = None,
        filesystem: FileSystem | None = None,
        with_keys: bool = True,
    ) -> None:
        loaded = Policy.load(policy) if isinstance(policy, str | os.PathLike) else policy
        self.policies = Policies(loaded, table)
        self._filesystem = filesystem
        prefix = aad_prefix.encode() if isinstance(aad_prefix, str) else aad_prefix
        self._prefixes = (prefix,) if prefix else ()
        self._problem: str | None = None
        self._of_manifests: dict[str, tuple[IcebergFileKey, KeyFacts]] = {}
        self.keys = keys if with_keys else None
        if with_keys and keys is None:
            try:
                self.keys = self.policies.keys()
            except BloomsealError as error:
                self._problem = f"the keys of the policy's KMS: {error.what}"

    @property
    def source(self) -> KeySource | None:
        """The key source. Pins refuse what they don't expect; an audit has to see it."""
        source = None if self.keys is None else as_key_source(self.keys)
        return source.with_pins(None) if isinstance(source, KeyTools) else source

    @property
    def tools(self) -> KeyTools | None:
        """The way to the KMS; None where the keys come from none."""
        source = self.source
        return source if isinstance(source, KeyTools) else None

    def find(self, paths: Sequence[AnyPath] | AnyPath, *, history: bool = False) -> Places:
        """`find_files`. Why the policy's KMS can't be had is told among what is unknown."""
        places = find_files(paths, filesystem=self._filesystem, history=history)
        if self._problem is not None:
            places.unknown.append(self._problem)
        places.opened += self._unencrypted(places)
        self._of_manifests.clear()
        for table in places.encrypted:
            self._take(table, places, history)
        return places

    def _take(self, table: EncryptedTable, places: Places, history: bool) -> None:
        """The keys of an encrypted Iceberg table, and what hangs from them as far as its master key tells."""
        policy, tools = self.policies.of(posixpath.join(table.folder.path, "metadata")), self.tools
        opened, kms = OpenedTable(), Kms(tools, witness=True)
        if tools is not None and policy is not None and policy.iceberg is not None and not table.nominal:
            try:
                opened = open_by_policy(table, policy.iceberg, tools.unwrap_bytes, history=history)
                places.opened += [] if opened.flaw is None else [opened.flaw]
                if history:
                    _seen_whole(table, opened, places)
                elif opened.under and opened.flaw is None:
                    places.untold = [one for one in places.untold if one not in table.sealed()] + table.sealed(1)
            except BloomsealError as error:
                places.unknown.append(f"{table.folder.path}: the table's keys: {error.what}")
        by_kek = {kek.wrapped: KeyFacts.of_kek(kek, kms, MANIFEST) for kek in table.keks}
        for path, wrapped in opened.under.items():
            facts = by_kek.get(wrapped, KeyFacts(MANIFEST)).resolved(opened.keys[path].key)
            self._of_manifests[path] = opened.keys[path], facts
            if path.endswith(SEALED_ENDINGS):
                places.sealed.append(_sealed_file(table, path, facts, opens=True))
        for kek in table.keks:
            facts = kms.judged(KeyFacts.of_kek(kek, kms))
            places.sealed.append(_sealed_file(table, kek.metadata, facts, opens=facts.opened_by is not None))

    def told(self, path: str) -> ToldKey | None:
        """What an auditor in another process must be told of a file; None: nothing."""
        return self._of_manifests.get(path)

    def take(self, path: str, told: ToldKey | None) -> None:
        """Look at a file by what `told` gave. Where the KMS refuses its key, that is not at hand."""
        if told is None or self.tools is None:
            return
        key, facts = told
        if isinstance(key, WrappedFileKey):
            with contextlib.suppress(BloomsealError):
                self._of_manifests[path] = key.open(self.tools.unwrap_bytes, facts.master_key or "", path), facts

    def _unencrypted(self, places: Places) -> Iterator[TableFlaw]:
        """Where the policy expects an encrypted Iceberg table, and none is: one flaw for each of its tables."""
        found, told = tuple(f"{table.folder.path.rstrip('/')}/" for table in places.encrypted), set[str]()
        for ref in places.files:
            policy = self.policies.of(ref.path)
            if policy is None or policy.iceberg is None or policy.name in told or ref.path.startswith(found):
                continue
            told.add(policy.name)
            what = "not of an encrypted Iceberg table, and the policy expects one"
            yield TableFlaw("unopenable-table", ref.path, what)

    def scanner(self, filters: FilterCheck | None = None, *, visit: Any = None, witness: bool = False) -> Scanner:
        """Of single files; arguments as of `Scanner`; `witness`: ask the KMS which version opens each wrapped key."""
        policies = self.policies
        return Scanner(
            self.source,
            Kms(self.tools, dated=policies.dated, witness=witness),
            prefixes=lambda ref: policies.prefixes(ref) or self._prefixes,
            policy_of=lambda ref: policies.of(ref.path),
            filters=filters,
            visit=visit,
            of_manifests=self._of_manifests,
        )

    def look(
        self,
        places: Places,
        *,
        filters: bool | None = None,
        deep: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> tuple[list[FileFacts], Nonces | None]:
        """The facts of all files, and with `deep` their nonces; arguments as of `bloomseal.audit.inventory`."""
        nonces: Nonces | None = None
        if deep:
            from .files.deep import Nonces

            nonces = Nonces()
        check = FilterCheck.VALUES if deep else None if filters is None else FilterCheck(filters)
        scanner = self.scanner(check, visit=None if nonces is None else partial(_in_depth, nonces))
        files = []
        for done, facts in enumerate(map(scanner.scan, places.files), 1):
            files.append(facts)
            if progress is not None:
                progress(done, len(places.files))
        return files, nonces


def _seen_whole(table: EncryptedTable, opened: OpenedTable, places: Places) -> None:
    """What was to be known of each snapshot is, but for this."""
    places.unknown = [one for one in places.unknown if one not in table.sealed()]
    places.versions += opened.versions
    places.missing += opened.missing
    places.unknown += opened.problems + ([] if (flaw := opened.flaw) is None else [f"{flaw.file}: {flaw.what}"])
    strangers = [path for path in table.streams if path not in opened.under]
    places.unknown += [
        f"{path}: a sealed file that no snapshot names, so that nobody knows its key" for path in strangers
    ]


def _sealed_file(table: EncryptedTable, path: str, key: KeyFacts, *, opens: bool) -> FileFacts:
    """A file of the table's metadata, or the KEK in one, as the inventory has files."""
    facts = FileFacts(FileRef(path, table.folder.filesystem), footer_verified=opens or None, algorithm="AES_GCM_V1")
    facts.keys.append(key)
    return facts


def _in_depth(nonces: Nonces, facts: FileFacts, walk: Walk | None, source: Source) -> None:
    """All that is learnt from reading a whole file."""
    from .files.deep import prove

    nonces.add(facts, walk, source)
    if walk is not None:
        prove(facts, walk)
