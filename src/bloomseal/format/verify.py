"""Verify: open every module that the keys at hand can open, and say which they can't."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..core.encryption import ModuleType
from ..core.errors import BloomsealError, FormatError, Hint, IntegrityError, KeyAccessError
from ..core.parquet.filter_bytes import FilterBytes
from ..core.parquet.page import check_doubtful
from ..core.parquet.statistics import all_null
from ..core.parquet.walk import Chunk, Protection, Walk
from ..core.sbbf import SplitBlockBloomFilter
from ..core.storage.source import Scratch
from ..notebook import ShownInNotebooks
from .hashes.truth import held_against_values

_HEADER_BYTES = 14
"""Of a Bloom filter header, all but the varint of its size (Thrift's compact protocol)."""


@dataclass
class VerifyReport(ShownInNotebooks):
    """The results of `verify`.

    Attributes:
        path: the file.
        footer_verified: the footer was opened or its signature checked.
        encrypted: the file has encrypted columns, or a footer that is encrypted or signed.
        authenticated: module kind → number of modules that opened and authenticated.
        unauthenticated: module kind → number of modules read that nothing authenticates (plaintext, CTR pages, clear
            levels of V2 pages).
        inaccessible: column → why its modules could not be opened (no key).
        failures: modules that broke the specification, and modules and keys that did not authenticate; filters that
            deny values of their own.
        filters_true: filters that hold every value of their column chunk; 0 where that was not asked.
        filters_unasked: filters that could not be held against their values, and why.
        signed_by: which of the table's signers has signed the file; None where nobody has to.
        notes: what is lawful but worth knowing, such as a filter in clear on an encrypted column.
    """

    path: str
    footer_verified: bool
    encrypted: bool
    authenticated: Counter[str] = field(default_factory=Counter)
    unauthenticated: Counter[str] = field(default_factory=Counter)
    inaccessible: dict[str, str] = field(default_factory=dict)
    failures: list[BloomsealError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    filters_true: int = 0
    filters_unasked: list[str] = field(default_factory=list)
    signed_by: str | None = None

    def failed(self, error: BloomsealError) -> None:
        """Note a failure, without its traceback: that would keep the bytes of every chunk that failed."""
        error.__context__ = None
        self.failures.append(error.with_traceback(None))

    def no_key(self, name: str, error: BloomsealError, **place: Any) -> None:
        """Note a column whose key can't be had. One that does not authenticate is no missing key but a failure: whoever
        may write the file may have sealed the column under a key of his own, and named another.
        """
        if isinstance(error, KeyAccessError) and error.unauthentic:
            self.failed(error.at(**place))
        else:
            self.inaccessible.setdefault(name, error.what)

    @property
    def ok(self) -> bool:
        """No module and no key failed. Modules without a key, and unauthenticated ones, are no failures; look at those
        too.
        """
        return not self.failures

    @property
    def complete(self) -> bool:
        """Every module was opened and every one authenticated; and every filter asked, where that was wanted."""
        return (
            self.ok
            and self.footer_verified
            and not self.inaccessible
            and not self.unauthenticated
            and not self.filters_unasked
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for ``--format json``."""
        return {
            "path": self.path,
            "ok": self.ok,
            "complete": self.complete,
            "footer_verified": self.footer_verified,
            "authenticated": dict(self.authenticated),
            "unauthenticated": dict(self.unauthenticated),
            "inaccessible": self.inaccessible,
            "failures": [error.to_dict() for error in self.failures],
            "notes": self.notes,
            "signed_by": self.signed_by,
            "filters_true": self.filters_true,
            "filters_unasked": self.filters_unasked,
        }


def verify_walk(walk: Walk, *, filters: bool = False) -> VerifyReport:
    """Verify every row group and column of an open file; one bad chunk does not hide the next.

    Args:
        filters: ask each filter for every value of its own column chunk, too.
    """
    encrypted = walk.footer.crypto is not None
    report = VerifyReport(walk.source.name, encrypted and walk.footer.verified, encrypted)
    (report.authenticated if report.footer_verified else report.unauthenticated)[ModuleType.FOOTER.label] += 1
    if encrypted and not walk.footer.verified:
        try:
            walk.keys.footer()
        except KeyAccessError as error:
            if error.unauthentic:
                report.failed(error.at(file=walk.source.name))
    rows = 0
    sealed, opened = Scratch(), Scratch()
    for group in range(len(walk.footer.row_groups)):
        try:
            rows += walk.footer.row_group(group).num_rows or 0
            chunks = list(walk.chunks(group))
        except BloomsealError as error:
            report.failed(error.at(file=walk.source.name, row_group=group))
            continue
        for chunk in chunks:
            _verify_chunk(walk, chunk, report, sealed, opened, filters)
    if rows != walk.footer.num_rows and not report.failures:
        report.notes.append(f"the footer says {walk.footer.num_rows} rows, its row groups have {rows}")
    return report


def _verify_chunk(
    walk: Walk, chunk: Chunk, report: VerifyReport, sealed: Scratch, opened: Scratch, filters: bool
) -> None:
    place: dict[str, Any] = {"file": walk.source.name, **chunk.place}
    try:
        walk.cipher(chunk)
        walk.meta(chunk)
    except KeyAccessError as error:
        report.no_key(chunk.leaf.name, error, **place)
        return
    except BloomsealError as error:
        report.failed(error.at(**place))
        return
    if chunk.view.encrypted_column_metadata is not None and chunk.encrypted:
        report.authenticated[ModuleType.COLUMN_META_DATA.label] += 1
    elif chunk.protection is Protection.FOOTER_KEY and walk.footer.crypto and walk.footer.crypto.plaintext_footer:
        report.notes.append(f"column metadata of {chunk.leaf.name} stands in clear in the signed footer")
    steps: tuple[Callable[[], None], ...] = (
        lambda: _verify_pages(walk, chunk, report, sealed, opened),
        lambda: _verify_indexes(walk, chunk, report),
        lambda: _verify_filter(walk, chunk, report, sealed, opened, filters),
    )
    for step in steps:
        try:
            step()
        except BloomsealError as error:
            report.failed(error.at(**place))


def _verify_pages(walk: Walk, chunk: Chunk, report: VerifyReport, sealed: Scratch, opened: Scratch) -> None:
    # Kind of page → (headers, bodies that opened, bodies that nothing authenticates, those with levels in clear):
    # counted here first, since naming things takes longer than opening a small page.
    codec = walk.meta(chunk).codec
    seen = {kind: [0, 0, 0, 0] for kind in (ModuleType.DICTIONARY_PAGE, ModuleType.DATA_PAGE)}
    try:
        for page in walk.pages(chunk, sealed):
            counts = seen[page.kind]
            counts[0] += 1
            if not page.authenticated:
                counts[2] += 1
                check_doubtful(page, codec)
                continue
            try:
                page.open_into(opened.take(page.size))
            except BloomsealError as error:
                raise error.at(module=f"{page.kind.label} {page.ordinal}") from error.__cause__
            counts[1] += 1
            counts[3] += page.clear_levels > 0
    finally:
        for kind, (headers, bodies, open_bodies, levels) in seen.items():
            _count(report.authenticated, f"{kind.label} header", headers if chunk.encrypted else 0)
            _count(report.authenticated, kind.label, bodies)
            _count(report.unauthenticated, kind.label, open_bodies)
            _count(report.unauthenticated, "Data page levels", levels)


def _count(where: Counter[str], what: str, number: int) -> None:
    if number:
        where[what] += number


def _verify_indexes(walk: Walk, chunk: Chunk, report: VerifyReport) -> None:
    for kind in (ModuleType.COLUMN_INDEX, ModuleType.OFFSET_INDEX):
        if walk.index(chunk, kind) is not None:
            (report.authenticated if chunk.encrypted else report.unauthenticated)[kind.label] += 1


def _verify_filter(
    walk: Walk, chunk: Chunk, report: VerifyReport, sealed: Scratch, opened: Scratch, filters: bool
) -> None:
    found = walk.stored_filter(chunk, (sealed, opened))
    if found is None:
        return
    where = report.authenticated if found.sealed else report.unauthenticated
    where[ModuleType.BLOOM_FILTER_HEADER.label] += 1
    where[ModuleType.BLOOM_FILTER_BITSET.label] += 1
    if chunk.encrypted and not found.sealed:
        report.notes.append(
            f"row group {chunk.row_group}: the filter of encrypted column {chunk.leaf.name} is in clear"
        )
        if walk.meta(chunk).bloom_filter_length is not None and not _as_writers_leave_it(found):
            raise IntegrityError(
                "a filter in clear fills the place of a sealed one: no writer leaves one of this size there",
                module=ModuleType.BLOOM_FILTER_HEADER.label,
                hint=Hint.ATTACH,
            )
    if filters:
        _hold_against_values(walk, chunk, found, report)
    if found.unknown is not None:
        report.notes.append(
            f"row group {chunk.row_group}: the filter of {chunk.leaf.name} can't be asked: {found.unknown.what}"
        )
        return
    empty = SplitBlockBloomFilter.from_bitset(found.bitset).is_empty
    if empty and not all_null(walk.meta(chunk), chunk.leaf):
        report.notes.append(f"row group {chunk.row_group}: the filter of {chunk.leaf.name} is empty and proves nothing")


def _hold_against_values(walk: Walk, chunk: Chunk, found: FilterBytes, report: VerifyReport) -> None:
    truth = held_against_values(walk, chunk, found)
    if truth.unasked is not None:
        report.filters_unasked.append(f"row group {chunk.row_group}, column {chunk.leaf.name}: {truth.unasked}")
    elif truth.wrong is None:
        report.filters_true += 1
    else:
        raise FormatError(
            truth.wrong,
            module=ModuleType.BLOOM_FILTER_BITSET.label,
            hint=Hint.ATTACH,
        )


def _as_writers_leave_it(clear: FilterBytes) -> bool:
    """Writers that don't seal filters leave a header of its four fields and a bitset of a power of two. Sealing adds 64
    bytes, and whoever has no key can't change the length that the column metadata says.
    """
    size = len(clear.bitset)
    return size & (size - 1) == 0 and len(clear.header) == _HEADER_BYTES + -(-(2 * size).bit_length() // 7)
