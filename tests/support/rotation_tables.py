"""Small tables of many files, and what their modules are, for the rotation tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

import bloomseal as bs
from bloomseal.core.encryption import ModuleCipher, ModuleType, framed_length, module_aad
from bloomseal.core.parquet.footer import Footer
from bloomseal.core.parquet.walk import Walk
from bloomseal.core.storage.source import Source
from bloomseal.format.opening import open_footer
from bloomseal.storage.places import open_source
from bloomseal.write.key_metadata import key_metadata_in_use

ROWS = 300
MASTER_KEYS = ("footer", "pii", "health", "footer-2", "pii-2", "health-2")
TO_SECOND = {name: f"{name}-2" for name in ("footer", "pii", "health")}
TO_FIRST = {new: old for old, new in TO_SECOND.items()}


def rows(index: int = 0) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "ssn": [f"{index:03d}-{i:06d}" for i in range(ROWS)],
            "illness": [f"j{(i + index) % 17}" for i in range(ROWS)],
        }
    )


def keyring(folder: Path) -> bs.Keyring:
    ring = bs.Keyring(folder / "keys.json", create=True)
    for name in MASTER_KEYS:
        ring.create(name)
    return ring


def write(path: Path, tools: bs.KeyTools, index: int = 0, **options: object) -> None:
    spec = bs.EncryptionSpec("footer", {"ssn": "pii", "illness": "health"}, keys=tools, **options)  # type: ignore[arg-type]
    bs.write_table(rows(index), path, encryption=spec, bloom_filters={"ssn": True, "illness": True}, row_group_size=200)


def reading(ring: object, **options: object) -> bs.DecryptionSpec:
    """Fresh key tools each time: nothing is answered from a cache."""
    return bs.DecryptionSpec(bs.KeyTools(ring), **options)  # type: ignore[arg-type]


def opens(path: Path, decryption: bs.DecryptionSpec, index: int = 0) -> None:
    """Every module opens, and the rows are what was written."""
    with bs.open_file(path, decryption=decryption) as file:
        report = file.verify()
        assert report.ok, [str(failure) for failure in report.failures]
        assert not report.inaccessible
        assert report.footer_verified
        assert file.read().equals(rows(index))
        wanted = f"{index:03d}-{17:06d}"
        assert bs.Verdict.MAYBE_PRESENT in [answers[0] for answers in file.probe("ssn", [wanted])]


@dataclass(frozen=True)
class Sealed:
    """One sealed module of a file."""

    kind: ModuleType
    framed: bytes
    aad: bytes

    def opens_under(self, cipher: ModuleCipher) -> bool:
        try:
            cipher.open(self.framed, self.kind, self.aad)
        except bs.IntegrityError:
            return False
        return True


def opened(path: Path, decryption: bs.DecryptionSpec) -> Walk:
    source = open_source(path)
    return Walk(source, *open_footer(source, decryption))


def ciphers(path: Path, decryption: bs.DecryptionSpec) -> list[ModuleCipher]:
    """The ciphers of all data keys of a file."""
    walk = opened(path, decryption)
    return [
        walk.keys.footer() if column is None else walk.keys.column(key_metadata, column)
        for column, key_metadata in key_metadata_in_use(walk)
    ]


def identity(path: Path, decryption: bs.DecryptionSpec) -> bytes:
    """aad_file_unique."""
    crypto = opened(path, decryption).footer.crypto
    assert crypto is not None
    return crypto.aad_unique


def masters(path: Path, decryption: bs.DecryptionSpec) -> set[str]:
    """The master keys that a file names."""
    walk = opened(path, decryption)
    tools = decryption.keys
    return {tools.describe(key_metadata, walk.source.ref).master_key for _, key_metadata in key_metadata_in_use(walk)}


def modules(path: Path, decryption: bs.DecryptionSpec) -> Iterator[Sealed]:
    """Every sealed GCM module of a file with an encrypted footer."""
    walk = opened(path, decryption)
    source, footer = walk.source, walk.footer
    yield _footer(footer, source)
    for group in range(len(footer.row_groups)):
        for chunk in walk.chunks(group):
            if not chunk.encrypted:
                continue
            if chunk.view.encrypted_column_metadata is not None:
                kind = ModuleType.COLUMN_META_DATA
                yield Sealed(kind, chunk.view.encrypted_column_metadata, walk.aad(chunk, kind))
            for page in walk.pages(chunk):
                kind = ModuleType.DICTIONARY_PAGE_HEADER if page.ordinal < 0 else ModuleType.DATA_PAGE_HEADER
                data = bytes(source.read(page.offset, page.length))
                size = framed_length(data, kind)
                yield Sealed(kind, data[:size], walk.aad(chunk, kind, page.ordinal))
                if page.authenticated:
                    yield Sealed(page.kind, data[size:], walk.aad(chunk, page.kind, page.ordinal))
            view = chunk.view
            for kind, offset, length in (
                (ModuleType.COLUMN_INDEX, view.column_index_offset, view.column_index_length),
                (ModuleType.OFFSET_INDEX, view.offset_index_offset, view.offset_index_length),
            ):
                if offset is not None and length is not None:
                    yield Sealed(kind, bytes(source.read(offset, length)), walk.aad(chunk, kind))
            found = walk.filter(chunk)
            if found is not None:
                data = bytes(source.read(found.offset, found.length))
                size = framed_length(data, ModuleType.BLOOM_FILTER_HEADER)
                for kind, framed in (
                    (ModuleType.BLOOM_FILTER_HEADER, data[:size]),
                    (ModuleType.BLOOM_FILTER_BITSET, data[size:]),
                ):
                    yield Sealed(kind, framed, walk.aad(chunk, kind))


def _footer(footer: Footer, source: Source) -> Sealed:
    from bloomseal.core.parquet.footer import peek

    assert footer.crypto is not None
    framed = peek(source).sealed
    return Sealed(ModuleType.FOOTER, framed, module_aad(footer.crypto.file_aad, ModuleType.FOOTER))
