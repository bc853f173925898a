"""Lookups below the row group: single pages are opened, and the answer is that of a plain evaluation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import bloomseal as bs
from bloomseal.core.parquet.walk import Walk

KEYS = {"footer": b"f" * 16, "a": b"a" * 32}
ENCRYPTION = bs.EncryptionSpec(
    footer_key=(KEYS["footer"], "footer"),
    column_keys={"sorted": (KEYS["a"], "a"), "text": (KEYS["a"], "a")},
    complete=True,
)
DECRYPTION = bs.DecryptionSpec(bs.ExplicitKeys(keys_by_id=KEYS))
ROWS = 6_000


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = np.random.default_rng(7)
    nulls = rng.random(ROWS) < 0.1
    return pa.table(
        {
            "sorted": pa.array(np.arange(ROWS) // 2),
            "text": pa.array([None if null else f"v{n % 997}" for n, null in enumerate(nulls)]),
            "dictionary": pa.array([f"d{n % 7}" for n in range(ROWS)]),
            "float": pa.array(rng.random(ROWS)),
            "flag": pa.array([None if null else n % 1_000 < 300 for n, null in enumerate(nulls)]),
            "nested": pa.array([{"list": [n, n + 1]} for n in range(ROWS)]),
        }
    )


@pytest.fixture(scope="module", params=["sealed", "plaintext"])
def file(request: pytest.FixtureRequest, table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> bs.SealedFile:
    path: Path = tmp_path_factory.mktemp("pages") / "t.parquet"
    encryption = ENCRYPTION if request.param == "sealed" else None
    bs.write_table(
        table, path, encryption=encryption, bloom_filters={"text": True}, row_group_size=2_500, data_page_size=200,
        write_batch_size=64, use_dictionary=["dictionary"],
    )  # fmt: skip
    return bs.open_file(path, decryption=DECRYPTION if encryption else None)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([("sorted", "==", 1200)], lambda t: pc.equal(t["sorted"], 1200)),
        ([("sorted", "in", [3, 1249, 2999, 5000])], lambda t: pc.is_in(t["sorted"], pa.array([3, 1249, 2999]))),
        ([("sorted", ">=", 2990)], lambda t: pc.greater_equal(t["sorted"], 2990)),
        (
            [("sorted", "<", 400), ("text", "==", "v17")],
            lambda t: pc.and_(pc.less(t["sorted"], 400), pc.fill_null(pc.equal(t["text"], "v17"), False)),
        ),
        ([("text", "==", "v500")], lambda t: pc.fill_null(pc.equal(t["text"], "v500"), False)),
        (
            [[("sorted", "==", 1)], [("sorted", "==", 2900)]],
            lambda t: pc.is_in(t["sorted"], pa.array([1, 2900])),
        ),
        ([("sorted", "==", 1200), ("float", "<", -1.0)], lambda t: pc.less(t["float"], -1.0)),
        ([("flag", "==", True)], lambda t: pc.fill_null(t["flag"], False)),
        ([("flag", "!=", True)], lambda t: pc.fill_null(pc.invert(t["flag"]), False)),
        ([("flag", "in", [False, None])], lambda t: pc.fill_null(pc.invert(t["flag"]), False)),
        (
            [("flag", "==", False), ("sorted", "in", [100, 200, 2999])],
            lambda t: pc.and_(
                pc.fill_null(pc.invert(t["flag"]), False), pc.is_in(t["sorted"], pa.array([100, 200, 2999]))
            ),
        ),
        (
            [[("flag", "==", True), ("text", "==", "v17")], [("sorted", "==", 2999)]],
            lambda t: pc.or_(
                pc.fill_null(pc.and_kleene(t["flag"], pc.equal(t["text"], "v17")), False), pc.equal(t["sorted"], 2999)
            ),
        ),
    ],
)
@pytest.mark.parametrize("columns", [None, ["float", "dictionary"], ["nested", "text"], ["sorted"], ["flag"]])
def test_the_rows_are_those_of_a_plain_evaluation(file, table, filters, expected, columns) -> None:
    wanted = table.filter(expected(table)).select(columns or table.column_names)
    assert file.read(columns, filters).equals(wanted)


def test_a_lookup_opens_only_the_pages_of_its_rows(file, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, single = [], []
    pages, page_at = Walk.pages, Walk.page_at
    monkeypatch.setattr(Walk, "pages", lambda self, chunk: (whole.append(chunk.leaf.name), pages(self, chunk))[1])
    monkeypatch.setattr(
        Walk, "page_at", lambda self, chunk, *rest: (single.append(chunk.leaf.name), page_at(self, chunk, *rest))[1]
    )
    found = file.read(["sorted", "float", "dictionary"], [("sorted", "==", 1200)])
    assert found.num_rows == 2
    assert whole == []
    # Two equal values lie side by side, on one page or across the edge of two; a dictionary page comes with them.
    assert set(single) == {"sorted", "float", "dictionary"}
    assert all(single.count(name) <= 3 for name in set(single))


class LooksItUp:
    """A key retriever that keeps its keys in a Parquet file of its own, and reads it as everybody does."""

    def __init__(self, store: Path) -> None:
        self._store = store

    def retrieve_key(self, key_metadata: bytes, column: str | None = None) -> bytes:  # noqa: ARG002
        name = key_metadata.decode()
        found = bs.read_table(self._store, columns=["key"], where=[("name", "==", name)])
        return found["key"][0].as_py()


def test_a_lookup_may_take_place_within_another_one(tmp_path: Path) -> None:
    names = [*KEYS, *(f"other {n}" for n in range(5_000))]
    keys = pa.table({"name": names, "key": [KEYS.get(name, b"o" * 16) for name in names]})
    bs.write_table(keys, tmp_path / "keys.parquet", compression="none")
    rows = pa.table({"name": [f"n{n % 100}" for n in range(3_000)], "secret": list(range(3_000))})
    encryption = bs.EncryptionSpec(footer_key=(KEYS["footer"], "footer"), column_keys={"secret": (KEYS["a"], "a")})
    # A chunk of one dictionary-encoded page is looked through before the key of the other column is asked for.
    bs.write_table(
        rows,
        tmp_path / "t.parquet",
        encryption=encryption,
        compression="none",
        write_page_index=True,
        use_dictionary=["name"],
    )
    with bs.open_file(
        tmp_path / "t.parquet", decryption=bs.DecryptionSpec(LooksItUp(tmp_path / "keys.parquet"))
    ) as file:
        found = file.read(["secret"], [("name", "in", ["n7"])])
    assert found["secret"].to_pylist() == list(range(7, 3_000, 100))
