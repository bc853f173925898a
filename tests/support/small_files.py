"""Small files of every mode, a map of where their modules are, and the judge of what a mutated one may answer."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

import bloomseal as bs
from bloomseal import (
    BloomsealError,
    BloomsealWarning,
    DecryptionSpec,
    EncryptionSpec,
    ExplicitKeys,
    FilterSpec,
    Verdict,
)
from bloomseal.core.encryption import ModuleType, framed_length
from bloomseal.core.storage.source import Source
from bloomseal.read.parquet import ParquetFile

__all__ = ["KINDS", "Module", "SmallFile", "judge", "small_file"]

FOOTER_KEY, SSN_KEY, NAME_KEY = b"f" * 16, b"s" * 16, b"n" * 32
ROWS, ROW_GROUP = 24, 8
SEALED_COLUMNS = ("ssn", "name")
FILTERED = ("ssn", "name", "city", "id")

_COLUMNS = {"ssn": (SSN_KEY, "ks"), "name": (NAME_KEY, "kn"), "city": (SSN_KEY, "ks")}
_MODES: dict[str, dict[str, Any]] = {
    "gcm-encrypted-footer": {"column_keys": _COLUMNS},
    "gcm-signed-footer": {"column_keys": _COLUMNS, "plaintext_footer": True},
    "ctr-encrypted-footer": {"column_keys": _COLUMNS, "algorithm": "AES_GCM_CTR_V1"},
    "gcm-complete-prefix": {"column_keys": _COLUMNS, "complete": True, "aad_prefix": "table/part-0"},
    "gcm-uniform": {"column_keys": None},
    "ctr-uniform-signed-footer": {"column_keys": None, "algorithm": "AES_GCM_CTR_V1", "plaintext_footer": True},
}
KINDS = tuple(_MODES)


@dataclass(frozen=True)
class Module:
    """A framed module: what it is, where it belongs, and its bytes in the file."""

    kind: ModuleType
    row_group: int
    column: str
    page: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.kind.label} of row group {self.row_group}, column {self.column!r}, page {self.page}"


@dataclass(frozen=True)
class SmallFile:
    """A file in memory, what is in it, and how to open it."""

    kind: str
    data: bytes
    table: pa.Table
    decryption: DecryptionSpec

    @property
    def plaintext_columns(self) -> frozenset[str]:
        mode = _MODES[self.kind]
        if mode["column_keys"] is None or mode.get("complete"):
            return frozenset()
        return frozenset(self.table.column_names) - set(mode["column_keys"])

    @property
    def counter_pages(self) -> bool:
        return "CTR" in _MODES[self.kind].get("algorithm", "")

    @functools.cached_property
    def modules(self) -> tuple[Module, ...]:
        return tuple(_modules(self))

    def authenticated(self) -> tuple[Module, ...]:
        """The modules that AES-GCM seals: pages are not among them under CTR."""
        return tuple(m for m in self.modules if not (self.counter_pages and m.kind.is_page))


def table(version: int = 0) -> pa.Table:
    """Equal lengths in every row and version, so that modules of one kind can change places."""
    rows = range(ROWS)
    return pa.table(
        {
            "id": pa.array([version * 1000 + i for i in rows], pa.int64()),
            "ssn": [f"{version}{i:02d}-45-6789" for i in rows],
            "name": pa.array([f"{version}-name-{i % 3 + i // ROW_GROUP * 3}" for i in rows]),
            "city": [f"{version}{i:02d}-67-city" for i in rows],
        }
    )


@functools.cache
def small_file(kind: str, version: int = 0) -> SmallFile:
    """Three row groups; `name` has dictionary pages, the others plain ones; filters of one block; page indexes."""
    spec = EncryptionSpec(footer_key=(FOOTER_KEY, "kf"), **_MODES[kind])
    filters = {name: FilterSpec(num_bytes=32) for name in FILTERED}
    data = table(version)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "small.parquet"
        bs.write_table(
            data, path, encryption=spec, bloom_filters=filters, row_group_size=ROW_GROUP, use_dictionary=["name"],
            compression="none", write_page_index=True, store_schema=False,
        )  # fmt: skip
        content = path.read_bytes()
    keys = ExplicitKeys(keys_by_id={"kf": FOOTER_KEY, "ks": SSN_KEY, "kn": NAME_KEY})
    return SmallFile(kind, content, data, DecryptionSpec(keys, allow_ctr="CTR" in _MODES[kind].get("algorithm", "")))


def _modules(small: SmallFile) -> Iterator[Module]:
    file = ParquetFile(Source.memory(small.data), small.decryption)
    walk, data = file.walk, small.data

    def one(kind: ModuleType, group: int, column: str, page: int, start: int) -> Module:
        return Module(kind, group, column, page, start, start + framed_length(data[start : start + 4], kind))

    for group in range(file.num_row_groups):
        for chunk in walk.chunks(group):
            if not chunk.encrypted:
                continue
            name, view = chunk.leaf.name, chunk.view
            if (sealed := view.encrypted_column_metadata) is not None and (start := data.find(sealed)) >= 0:
                yield one(ModuleType.COLUMN_META_DATA, group, name, -1, start)
            for page in walk.pages(chunk):
                dictionary = page.kind is ModuleType.DICTIONARY_PAGE
                kind = ModuleType.DICTIONARY_PAGE_HEADER if dictionary else ModuleType.DATA_PAGE_HEADER
                header = one(kind, group, name, page.ordinal, page.offset)
                yield header
                yield one(page.kind, group, name, page.ordinal, header.end)
            for kind, offset in (
                (ModuleType.COLUMN_INDEX, view.column_index_offset),
                (ModuleType.OFFSET_INDEX, view.offset_index_offset),
            ):
                if offset is not None:
                    yield one(kind, group, name, -1, offset)
            offset = walk.meta(chunk).bloom_filter_offset
            if offset is not None:
                header = one(ModuleType.BLOOM_FILTER_HEADER, group, name, -1, offset)
                yield header
                yield one(ModuleType.BLOOM_FILTER_BITSET, group, name, -1, header.end)


def judge(small: SmallFile, data: bytes, what: str, *, pages_too: bool = True) -> str:
    """Ask a mutated file everything. Returns what it said: ``refused``, ``noticed`` (by verify: a failure, a note, a
    key that can't be had, an unverified footer) or ``unnoticed``.

    Args:
        what: the mutation, for the message of a failure.
        pages_too: encrypted columns must be read right or refused; False where their pages are not authenticated.

    Raises:
        AssertionError: a wrong answer, a false absent, or an exception that is not ours.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BloomsealWarning)
        try:
            file = ParquetFile(Source.memory(data), small.decryption)
        except BloomsealError:
            return "refused"
        except Exception as error:
            raise AssertionError(f"{what}: open raised {error!r}") from error
        refusals = _ask(small, file, what, pages_too)
        try:
            report = file.verify()
        except BloomsealError:
            return "refused"
        except Exception as error:
            raise AssertionError(f"{what}: verify raised {error!r}") from error
    assert not [e for e in report.failures if not isinstance(e, BloomsealError)], what
    if not report.ok or report.notes or report.inaccessible or not report.footer_verified:
        return "noticed"
    # Plaintext and CTR pages are beyond verify; what the decoder refuses there is no contradiction.
    refusals = [refusal for refusal in refusals if pages_too and not refusal.startswith("read all")]
    assert not refusals, f"{what}: verify found nothing, yet {refusals}"
    return "unnoticed"


def _ask(small: SmallFile, file: ParquetFile, what: str, pages_too: bool) -> list[str]:
    refusals: list[str] = []

    def attempt(name: str, call: Any) -> Any:
        try:
            return call()
        except BloomsealError as error:
            refusals.append(f"{name}: {error}")
        except Exception as error:
            raise AssertionError(f"{what}: {name} raised {error!r}") from error
        return None

    attempt("row_groups", lambda: (file.row_groups, file.num_rows, file.columns, repr(file)))
    exempt = small.plaintext_columns
    for column in FILTERED:
        values = small.table[column].to_pylist()
        verdicts = attempt(f"probe {column}", lambda column=column, values=values: file.probe(column, values))
        if verdicts is not None and column not in exempt:
            assert len(verdicts) == ROWS // ROW_GROUP, f"{what}: probe of {column} sees {len(verdicts)} row groups"
            for group, answers in enumerate(verdicts):
                inside = answers[group * ROW_GROUP : (group + 1) * ROW_GROUP]
                assert Verdict.ABSENT not in inside, f"{what}: {column} has a false absent in row group {group}"
        for group in range(ROWS // ROW_GROUP):
            attempt(f"filter {column}", lambda column=column, group=group: file.filter(group, column))
    columns = [name for name in small.table.column_names if name not in exempt]
    questions: list[tuple[list[str], Any, pa.Table]] = [(columns, None, small.table.select(columns))]
    for row, column in ((3, "ssn"), (21, "name")):
        wanted = small.table[column][row].as_py()
        matches = [value == wanted for value in small.table[column].to_pylist()]
        questions.append((columns, [(column, "==", wanted)], small.table.select(columns).filter(pa.array(matches))))
    questions.append((columns, [("ssn", "in", ["absent", "none"])], small.table.select(columns).slice(0, 0)))
    for names, filters, expected in questions:
        answer = attempt(f"read {filters}", lambda names=names, filters=filters: file.read(names, filters))
        if answer is not None and pages_too:
            assert answer.to_pydict() == expected.to_pydict(), f"{what}: read {filters} answered wrongly"
    if exempt:
        attempt("read all", file.read)
    return refusals
