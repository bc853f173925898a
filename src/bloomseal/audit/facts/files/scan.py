"""One file's facts: what anybody sees of it, and what the keys at hand add. A file that can't be read is a fact too."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from ....core.errors import (
    BloomsealError,
    FormatError,
    IntegrityError,
    KeyAccessError,
    PolicyError,
    UnsupportedError,
    UsageError,
)
from ....core.keys.explicit import ExplicitKeys
from ....core.keys.protocols import KeySource
from ....core.parquet.expectation import Expectation
from ....core.parquet.footer import FileCrypto, Footer, FooterKind, Peek, peek
from ....core.parquet.keys_at_hand import KeysAtHand, authenticated
from ....core.parquet.schema import Schema
from ....core.parquet.walk import Walk
from ....core.storage.ref import FileRef
from ....core.storage.source import Source
from ....index.place import is_signed
from ....keytools import KmsAccessError
from ....keytools.access_log import AccessLog
from ....keytools.signatures.envelope import Authorship, SignatureFault
from ....keytools.sources import as_key_source
from ....storage.discovery.kinds import is_of_index
from ....storage.formats import Format, format_of
from ....storage.places import open_source
from ..keys import Impatient, KeyFacts, Kms, SidecarView
from .chunk_scan import ChunkScan
from .file import FileFacts, FilterCheck

if TYPE_CHECKING:
    from ....keytools.signatures.signers import Signers
    from ....policy import TablePolicy
    from ....storage.logs.iceberg_keys import IcebergFileKey


class Scanner:
    """Looks at files.

    Args:
        keys: where keys come from; None to look at what everybody sees.
        kms: what can be asked about master keys.
        prefixes: the AAD prefixes that a file should have, as far as known.
        policy_of: what the policy says of a file: its access log, and who may have written it.
        filters: how filters are looked at; None: by their bits, where there are keys.
        visit: called with each file's walk while it is open (the nonce check).
        of_manifests: path → the key that an Iceberg table's manifest gives the file, and the facts of it.
    """

    def __init__(
        self,
        keys: KeySource | None = None,
        kms: Kms | None = None,
        *,
        prefixes: Callable[[FileRef], tuple[bytes, ...]] = lambda _: (),
        policy_of: Callable[[FileRef], TablePolicy | None] = lambda _: None,
        filters: FilterCheck | None = None,
        visit: Callable[[FileFacts, Walk | None, Source], None] | None = None,
        of_manifests: Mapping[str, tuple[IcebergFileKey, KeyFacts]] | None = None,
    ) -> None:
        self._keys = keys
        self._of_manifests = {} if of_manifests is None else of_manifests
        self.kms = kms or Kms()
        self.prefixes = prefixes
        self._policy_of = policy_of
        self._filters = FilterCheck(keys is not None) if filters is None else filters
        self._visit = visit
        self._outages: list[KmsAccessError] = []
        self._schemas: WeakKeyDictionary[Schema, list[tuple[str, str]]] = WeakKeyDictionary()

    def scan(self, ref: FileRef) -> FileFacts:
        """A file's facts. Never raises for what is in the file."""
        facts = FileFacts(ref)
        try:
            with open_source(ref) as source:
                facts.size = source.size
                facts.modified = _modified(source)
                self._scan(facts, source)
        except BloomsealError as error:
            facts.failed(error)
        except Exception as error:
            # A thousand files must not go unseen because of one; the type is all that may be told.
            facts.failed(FormatError(f"unexpected {type(error).__name__}"))
        return facts

    def _scan(self, facts: FileFacts, source: Source) -> None:
        facts.sidecar = sidecar = SidecarView(source.ref)
        try:
            self._look(facts, source)
        finally:
            # Of a hundred thousand files none may hold on to more than is asked for later.
            sidecar.forget()
            if not sidecar.used:
                facts.sidecar = None

    def _look(self, facts: FileFacts, source: Source) -> None:
        if format_of(source) is Format.ORC:
            from .orc import look_at_orc

            if self._signers(facts.ref) is not None:
                facts.authorship = Authorship(fault=SignatureFault.UNSIGNED, why="an ORC file, which can't be signed")
            look_at_orc(facts, source, self.kms, self._filters)
            return
        footer, hand = self._open(facts, source)
        if footer is None:
            if self._visit is not None:
                self._visit(facts, None, source)
            return
        facts.created_by = sys.intern(footer.created_by)
        facts.leaves = self._leaves(footer.schema)
        walk = Walk(source, footer, hand)
        look = ChunkScan(facts, walk, self.kms, self._filters, with_keys=self._keys is not None)
        for group in range(len(footer.row_groups)):
            look.group(group)
        look.peek()
        look.gaps()
        if self._visit is not None:
            self._visit(facts, walk, source)

    def _signers(self, ref: FileRef) -> Signers | None:
        """Who may have written a file. Of a sealed index the manifest is signed, which pins the others."""
        policy = self._policy_of(ref)
        return None if policy is None or (is_of_index(ref.path) and not is_signed(ref)) else policy.authors

    def _leaves(self, schema: Schema) -> list[tuple[str, str]]:
        """Dotted paths and types; one list for all files of a schema, which footers share too."""
        known = self._schemas.get(schema)
        if known is None:
            known = self._schemas[schema] = [(leaf.name, str(leaf.type)) for leaf in schema.leaves]
        return known

    def _open(self, facts: FileFacts, source: Source) -> tuple[Footer | None, KeysAtHand]:
        seen = peek(source)
        facts.footer = str(seen.kind)
        if (signers := self._signers(facts.ref)) is not None:
            try:
                facts.authorship = signers.judge(seen, facts.ref)
            except (PolicyError, UsageError) as error:
                facts.authorship = Authorship(fault=SignatureFault.UNSEEN, why=error.what)
        if seen.kind is FooterKind.PLAINTEXT:
            return Footer(seen.clear, seen.offset, None, True), KeysAtHand(None, None)
        clear = None if seen.kind is FooterKind.ENCRYPTED else seen.clear
        if clear is None:
            facts.hidden = ("columns, filters and statistics: all inside the encrypted footer",)
        try:
            candidates = self._crypto(facts, seen)
        except UnsupportedError as error:
            if clear is None:
                raise
            facts.failed(error)
            return Footer(clear, seen.offset, None, False), KeysAtHand(None, None)
        hand = self._hand(facts, source, candidates[0])
        try:
            footer = authenticated(seen, candidates, hand)
        except (KeyAccessError, IntegrityError) as error:
            if not isinstance(error, KeyAccessError) or error.unauthentic:
                facts.footer_verified = False
                facts.failed(error)
        else:
            facts.hidden = ()
            facts.footer_verified = True
            return footer, hand
        return None if clear is None else Footer(clear, seen.offset, candidates[0], False), hand

    def _crypto(self, facts: FileFacts, seen: Peek) -> list[FileCrypto]:
        known = self._of_manifests.get(facts.path)
        key = KeyFacts.of(seen.key_metadata, facts.sidecar or SidecarView(facts.ref), self.kms)
        facts.keys.append(key if known is None else known[1])
        algorithm, inner = seen.inner()
        facts.algorithm = str(algorithm)
        stored, wanted = inner.binary(1), bool(inner.boolean(3))
        facts.aad_prefix = "stored" if stored else "supplied" if wanted else "none"
        if stored:
            facts.aad_prefix_text = stored.decode(errors="backslashreplace")
        if (unique := inner.binary(2)) is not None:
            facts.file_id = unique.hex()
        # Only what the file lacks is supplied: whether a stored prefix is the right one is a rule's affair.
        prefixes = self.prefixes(facts.ref) if known is None else (known[0].prefix,)
        supplied = prefixes if wanted and not stored else ()
        return seen.crypto(Expectation(prefixes=supplied))

    def _hand(self, facts: FileFacts, source: Source, crypto: FileCrypto) -> KeysAtHand:
        known, keys = self._of_manifests.get(facts.path), self._keys
        if known is not None:
            keys = as_key_source(ExplicitKeys(known[0].key))
        if facts.authorship is not None and facts.authorship.fault is not None:
            keys = None  # whoever wrote it has no key asked for
        retriever = None if keys is None else Impatient(keys.for_file(source.ref), self._outages)
        policy = self._policy_of(facts.ref)
        log = None if policy is None else AccessLog.of(policy.access_log, facts.path)
        hand = KeysAtHand(crypto, retriever, log=log)
        if keys is not None and self._keys is not None:
            facts.keys[1] = self.kms.resolved(facts.keys[1], lambda: hand.footer().key)
        return hand


def _modified(source: Source) -> datetime | None:
    if source.fd is not None:
        return datetime.fromtimestamp(int(os.fstat(source.fd).st_mtime), UTC)
    ref = source.ref
    moment: datetime | None = None if ref.filesystem is None else ref.filesystem.get_file_info(ref.path).mtime
    return moment
