"""A table whose files are signed, and everybody who would have a file of his read there: refused, and no key is asked
for first. And whoever reads it, who can do more: a signature binds a file to its author against all others.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.audit import audit
from bloomseal.core.encryption import ModuleType
from bloomseal.index.folder import IndexFolder
from bloomseal.index.manifest import FACTS
from bloomseal.policy import TablePolicy
from support.signed_table import INDEXED, NAME, ROWS, Table, copy, digest


def refused(table: Table, file: Path, policy: TablePolicy | None = None) -> None:
    """Every way to read refuses the file, and no key is asked for."""
    policy, revoked = policy or table.policy(), policy is not None
    indexed = replace(policy, columns=table.policy(**INDEXED).columns, signer=(table.author, table.other)[revoked])
    before = table.kms.asked
    ways: list[Callable[[], Any]] = [
        lambda: bs.read_table(file, policy=policy),
        lambda: bs.probe(file, "ssn", ["000-45-6789"], policy=policy),
        lambda: bs.open_file(file, policy=policy),
        lambda: bs.verify(file, policy=policy),
        lambda: bs.open_table(table.root, policy=policy).read(where="ssn = '000-45-6789'"),
        lambda: bs.open_table(table.root, policy=policy).maybe_present("ssn", ["000-45-6789"]),
        lambda: bs.polars.scan(table.root, policy=policy).collect(),
        lambda: bs.rekey(file, policy=policy),
        lambda: bs.rewrap(file, policy=policy),
        lambda: bs.attach_filters(file, {"n": True}, decryption=policy),
        lambda: bs.unseal_file(file, table.home / "clear.parquet", policy=policy),
        lambda: bs.open_table(table.root, policy=policy).erase("ssn = '000-45-6789'", dry_run=True),
        lambda: bs.open_table(table.root, policy=policy).compact(dry_run=True),
        lambda: bs.open_table(table.root, policy=indexed).index("ssn").build(),
    ]
    for way in ways:
        with pytest.raises((bs.PolicyError, bs.FormatError, bs.UnsupportedError)):
            way()
    assert not bs.verify(table.root, policy=policy).ok
    assert {"BS317", "BS318", "BS319"} & {one.rule.id for one in audit(table.root, policy=policy, deep=True).findings}
    assert table.kms.asked == before


GAMES: dict[str, Callable[[Table], Any]] = {
    "unsigned": lambda it: it.signature.unlink(),
    "of another table": lambda it: copy(it, "others"),
    "by an unknown signer": lambda it: copy(it, "forged"),
    "its envelope as another file's": lambda it: (
        shutil.copy(it.home / "others" / NAME, it.file),
        it.signature.rename(it.signature.with_name(f"_SIGNATURE_a.parquet_{digest(it.file)[:32]}.json")),
    ),
    "an empty envelope": lambda it: it.signature.write_bytes(b""),
    "a large envelope": lambda it: it.signature.write_bytes(b" " * 100_000),
}


def _link(table: Table) -> None:
    name = f"_SIGNATURE_a.parquet_{digest(table.file)[:32]}.json"
    (table.file.parent / name).symlink_to(table.home / "away")


GAMES["a link for an envelope"] = lambda it: (it.signature.rename(it.home / "away"), _link(it))


@pytest.mark.parametrize("game", GAMES)
def test_what_nobody_of_the_signers_signed_is_refused(table: Table, game: str) -> None:
    GAMES[game](table)
    if "link" in game:
        with pytest.raises(bs.UsageError):
            bs.read_table(table.file, policy=table.policy())
        return
    refused(table, table.file)


@pytest.mark.parametrize("place", ["day=2/a.parquet", "day=1/below/a.parquet", "day=1/b.parquet"])
def test_a_file_that_was_moved_is_refused(table: Table, place: str) -> None:
    there = table.root / place
    there.parent.mkdir(exist_ok=True)
    table.signature.rename(there.with_name(table.signature.name.replace("a.parquet", there.name)))
    table.file.rename(there)
    refused(table, there)


def test_a_signer_who_was_revoked_is_refused(table: Table) -> None:
    later = replace(table.policy(), signers={"next": (table.other.key.line,)})
    refused(table, table.file, later)


def test_limit_an_older_file_is_put_back_with_its_signature(table: Table) -> None:
    """Nothing says that a file is the newest: a signature binds it to its author and its place."""
    older = {path: path.read_bytes() for path in (table.file, table.signature)}
    bs.write_table(ROWS.slice(0, 1), table.file, policy=table.policy(table.author))
    table.signature.unlink()
    for path, data in older.items():
        path.write_bytes(data)
    assert bs.read_table(table.root, policy=table.policy()).num_rows == 60


def test_limit_a_reader_alters_pages_under_the_footer_that_was_signed(table: Table) -> None:
    """Whoever reads has the data keys, and so can seal what he likes in the place of a page or a filter. What the
    footer says stays as it was signed.
    """
    bs.write_table(ROWS, table.file, policy=table.policy(table.author), compression="none", use_dictionary=False)
    data = bytearray(table.file.read_bytes())
    with bs.open_file(table.file, policy=table.policy()) as file:
        walk, kind = file.walk, ModuleType.BLOOM_FILTER_BITSET
        chunk = walk.chunk(0, 0)
        cipher, page, found = walk.cipher(chunk), next(iter(walk.pages(chunk))), walk.filter(chunk)
        assert cipher is not None
        assert found is not None
        body = bytes(page.body()).replace(b"007-45-6789", b"999-45-6789")
        start = page.offset + page.length - len(page.stored)
        data[start : page.offset + page.length] = cipher.seal(body, page.kind, walk.aad(chunk, page.kind, page.ordinal))
        bits = cipher.seal(b"\1" + bytes(len(found.bitset) - 1), kind, walk.aad(chunk, kind))
        data[found.offset + found.length - len(bits) : found.offset + found.length] = bits
    table.file.write_bytes(data)
    with bs.open_file(table.file, policy=table.policy()) as file:
        report = file.verify()
        assert (report.ok, report.signed_by) == (True, "author")
        assert file.probe("ssn", ["001-45-6789"]) == [[bs.Verdict.ABSENT]], "a false word, by a filter of his"
    assert "999-45-6789" in bs.read_table(table.root, policy=table.policy())["ssn"].to_pylist()
    assert audit(table.root, policy=table.policy()).findings == []
    tail = table.file.read_bytes()[-40:-20]
    table.file.write_bytes(bytes(data).replace(tail, bytes(20)))
    refused(table, table.file)


def test_an_index_that_none_of_the_signers_made_rules_nothing_out(table: Table) -> None:
    """Whoever may wrap keys for the table could else have an index of his own say that a value is nowhere."""
    forger = replace(table.policy(**INDEXED), signers={}, signer=None)
    bs.open_table(table.root, policy=forger).index("ssn").build()
    folder = IndexFolder(str(table.root), "ssn", forger)
    manifest = folder.load()
    assert manifest is not None
    moved = [base + 1 for base in manifest.facts["base"].to_pylist()]
    column = FACTS.get_field_index("base")
    facts = manifest.facts.set_column(column, FACTS.field("base"), pa.array(moved, pa.int64()))
    runs = tuple(replace(run, places=run.places + 1) for run in manifest.runs)
    folder.write_manifest(replace(manifest, facts=facts, runs=runs))
    assert bs.open_table(table.root, policy=forger).read(where="ssn = '005-45-6789'").num_rows == 0
    before = table.kms.asked
    with pytest.warns(bs.BloomsealWarning, match="nobody signed"):
        found = bs.open_table(table.root, policy=table.policy(**INDEXED)).read(where="ssn = '005-45-6789'")
    assert found.num_rows == 1
    assert table.kms.asked <= before + 2  # the data file's
    with pytest.raises(bs.PolicyError, match="nobody signed"):
        bs.open_table(table.root, policy=table.policy(table.author, **INDEXED)).index("ssn").update()
