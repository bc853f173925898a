"""In large row groups an index tells pages: which are opened, and that no row is missed whatever the pages are like.

What counts as large is 2^15 rows; here it is one.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bloomseal as bs
from bloomseal.core.parquet.walk import Walk
from bloomseal.index.facts import hashed
from bloomseal.index.facts.sameness import BY_CONTENT, Sighting
from bloomseal.index.manifest import FileState
from bloomseal.index.update import UpdateReport

KEYS: dict[str, Any] = {"footer_key": b"f" * 16, "column_keys": {"k": b"c" * 16, "s": b"d" * 16}}
ENCRYPTION = bs.EncryptionSpec(**KEYS)
DECRYPTION = bs.DecryptionSpec(bs.ExplicitKeys(**KEYS))
PAGES: dict[str, Any] = {
    "row_group_size": 120, "use_dictionary": False, "max_rows_per_page": 20, "write_batch_size": 1, "bloom_filters": {},
}  # fmt: skip


@pytest.fixture(autouse=True)
def all_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashed, "_LARGE", 1)


def rows(seed: int = 0, count: int = 300) -> pa.Table:
    """Nulls in one column, so that its pages hold fewer values than rows; values in no order."""
    draw = np.random.default_rng(seed)
    ks = [None if one % 7 == 0 else int(one) for one in draw.permutation(1_000)[:count]]
    return pa.table({"k": pa.array(ks, pa.int64()), "s": [f"{one:05d}" for one in draw.permutation(9_000)[:count]],
                     "n": range(count)})  # fmt: skip


def table(root: Path, use_index: Any = "require") -> bs.SealedTable:
    return bs.open_table(root, decryption=DECRYPTION, use_index=use_index)


def built(root: Path, *columns: str) -> list[UpdateReport]:
    return [table(root, "auto").index(column, encryption=ENCRYPTION).build() for column in columns]


def written(root: Path, *tables: pa.Table, **options: Any) -> Path:
    root.mkdir()
    for number, one in enumerate(tables):
        bs.write_table(one, root / f"{number}.parquet", encryption=ENCRYPTION, **{**PAGES, **options})
    return root


def pages_opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Column and ordinal of every data page of the table that is opened from now on."""
    seen: list[tuple[str, int]] = []
    alone, stream = Walk.page_at, Walk.pages

    def page_at(self: Walk, chunk: Any, *args: Any) -> Any:
        page = alone(self, chunk, *args)
        if "_bloomseal_index" not in self.source.name:
            seen.append((chunk.leaf.name, page.ordinal))
        return page

    def pages(self: Walk, chunk: Any, *args: Any, **options: Any) -> Any:
        for page in stream(self, chunk, *args, **options):
            if "_bloomseal_index" not in self.source.name:
                seen.append((chunk.leaf.name, page.ordinal))
            yield page

    monkeypatch.setattr(Walk, "page_at", page_at)
    monkeypatch.setattr(Walk, "pages", pages)
    return seen


def test_only_the_page_that_holds_the_value_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = written(tmp_path / "t", rows())
    built(root, "s")
    value = rows().column("s")[173].as_py()  # of the second row group, row 53: its page 2
    seen = pages_opened(monkeypatch)
    found = table(root).read(where=[("s", "==", value)])
    assert found.column("n").to_pylist() == [173]
    assert set(seen) == {("k", 2), ("s", 2), ("n", 2)}
    del seen[:]
    assert table(root, "never").read(where=[("s", "==", value)]).equals(found)
    assert len({number for column, number in seen if column == "s"}) == 6


@pytest.mark.parametrize("options", [
    {}, {"use_dictionary": True}, {"use_dictionary": ["k"]}, {"write_page_index": False},
    {"use_dictionary": True, "dictionary_pagesize_limit": 200, "write_batch_size": 20},
    {"column_encoding": {"k": "DELTA_BINARY_PACKED", "s": "DELTA_BYTE_ARRAY"}},
], ids=["plain", "dictionary", "both", "no page index", "fallback", "delta"])  # fmt: skip
def test_whatever_the_pages_are_like(tmp_path: Path, options: dict[str, Any]) -> None:
    """Equal to a scan for values that are there, nowhere, and in conditions of every form."""
    root = written(tmp_path / "t", rows(1), rows(2), rows(3, 25), **options)
    built(root, "k", "s")
    assert table(root, "auto").index("k").check().ok
    some = [one.as_py() for one in rows(1).column("k")[::23]] + [rows(2).column("k")[5].as_py(), 10**9]
    texts = [one.as_py() for one in rows(1).column("s")[::29]] + [rows(3).column("s")[24].as_py(), "x"]
    conditions: list[Any] = [[("k", "==", k)] for k in some if k is not None]
    conditions += [[("k", "==", k), ("s", "==", s)] for k, s in product(some[1:3], texts[:4]) if k is not None]
    conditions += [[[("k", "==", k)], [("s", "==", s)]] for k, s in zip(some[1:], texts, strict=False) if k is not None]
    conditions += [[("s", "in", texts)], [("s", "in", texts), ("k", ">", 300)], [[("s", "==", s)] for s in texts]]
    conditions += [[[("s", "==", texts[0]), ("n", "<", 9)], [("s", "in", texts[3:]), ("k", "in", some)]]]
    conditions += [[[("s", "==", texts[0])], [("n", ">", 280)]], [("s", "in", rows(2).column("s").to_pylist())]]
    asked, never = table(root), table(root, "never")
    counted = 0
    for condition in conditions:
        how = asked if condition[0] != [("s", "==", texts[0])] else table(root, "auto")
        wanted = never.read(where=condition)
        assert how.read(where=condition).equals(wanted), condition
        assert how.scan(where=condition).read_all().equals(wanted), condition
        counted += wanted.num_rows
    assert counted > 300


def test_values_that_are_on_many_pages_are_told_by_row_group(tmp_path: Path) -> None:
    ids = np.arange(240)
    root = written(tmp_path / "t", pa.table({"k": ids % 10, "s": [f"{one:03d}" for one in ids], "n": ids}))
    few, each = built(root, "k", "s")
    assert (few.entries, each.entries) == (20, 240)
    assert table(root).read(where=[("k", "==", 3)]).num_rows == 24


def test_pages_are_told_after_compaction_and_rewrites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run tells places as it was written, whatever the file tells of its pages now."""
    root = written(tmp_path / "t", rows(1), rows(2))
    built(root, "s")
    bs.write_table(rows(3), root / "2.parquet", encryption=ENCRYPTION, **PAGES)
    bs.attach_filters(root / "0.parquet", ["s"], decryption=DECRYPTION)
    # Nothing would be split now: facts that are refreshed keep what their runs were written with.
    monkeypatch.setattr(hashed, "_LARGE", 1 << 30)
    index = table(root, "auto").index("s", encryption=ENCRYPTION)
    report = index.update()
    assert (report.hashed, report.refreshed) == (1, 1)
    (root / "1.parquet").unlink()
    index = table(root, "auto").index("s", encryption=ENCRYPTION)
    index.compact(everything=True)
    assert index.check().ok
    facts = index.manifest().facts
    assert dict(zip(facts.column("path").to_pylist(), facts.column("stride").to_pylist(), strict=True)) == {
        "0.parquet": 7, "2.parquet": 1,
    }  # fmt: skip
    seen = pages_opened(monkeypatch)
    for seed, row in ((1, 299), (1, 0), (3, 130)):
        value = rows(seed).column("s")[row].as_py()
        assert row in table(root).read(where=[("s", "==", value)]).column("n").to_pylist()
    assert ("s", 2) in seen


def test_pages_without_number_are_told_by_row_group(tmp_path: Path) -> None:
    """A place has room for 255 pages; values of the others can be anywhere in the row group."""
    count = 300
    root = written(tmp_path / "t", rows(5, count), row_group_size=count, max_rows_per_page=1)
    built(root, "s")
    index = table(root, "auto").index("s")
    assert index.manifest().facts.column("stride").to_pylist() == [256]
    assert index.check().ok
    for row in (0, 254, 255, 299):
        value = rows(5, count).column("s")[row].as_py()
        assert table(root).read(where=[("s", "==", value)]).column("n").to_pylist() == [row]


def test_a_manifest_whose_places_contradict_each_other_is_refused(tmp_path: Path) -> None:
    root = written(tmp_path / "t", rows())
    built(root, "s")
    manifest = table(root, "auto").index("s").manifest()
    for stride in (0, 257, 200):
        facts = manifest.facts.set_column(
            manifest.facts.schema.get_field_index("stride"), "stride", pa.array([stride], pa.int32())
        )
        with pytest.raises(bs.FormatError, match="contradicts itself"):
            replace(manifest, facts=facts).check()


def test_a_file_of_more_pages_than_places_is_told_by_row_group(tmp_path: Path) -> None:
    """Long fingerprints leave 18 bits for the place: 1,100 row groups of 256 places do not fit."""
    path = tmp_path / "0.parquet"
    schema = pa.schema([("k", pa.int64())])
    with pq.ParquetWriter(path, schema, use_dictionary=False, max_rows_per_page=1, write_batch_size=1,
                          write_page_index=True) as writer:  # fmt: skip
        writer.write_table(pa.table({"k": range(300)}, schema))
        for number in range(1_100):
            writer.write_table(pa.table({"k": [1_000 + number]}, schema))
    bs.seal_file(path, encryption=bs.EncryptionSpec(footer_key=b"f" * 16, column_keys={"k": b"c" * 16}))
    index = table(tmp_path, "auto").index("k", encryption=ENCRYPTION)
    assert index.build(false_places=1e-12).covered == 1
    assert index.show().fingerprint_bits == 44
    assert index.check().ok
    for value, found in ((7, 1), (1_777, 1), (5_000, 0)):
        assert table(tmp_path).read(where=[("k", "==", value)]).num_rows == found


def test_a_sighting_of_no_content_proves_nothing(tmp_path: Path) -> None:
    root = written(tmp_path / "t", rows())
    with bs.open_file(root / "0.parquet", decryption=DECRYPTION) as file:
        now = (root / "0.parquet").stat()
        state = FileState(now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns)
        assert Sighting(state, ()).is_same(file)
        assert not Sighting(BY_CONTENT, ()).is_same(file)
