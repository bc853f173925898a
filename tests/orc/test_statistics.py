"""Statistics that contradict the rows of the stripe or the row group rule nothing out."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc
import pytest

import bloomseal as bs
from bloomseal import Verdict
from bloomseal.orc.protobuf import Message, encoded, without
from bloomseal.orc.schema import OrcColumn, OrcKind
from bloomseal.orc.statistics import fitting

from .generated import write

KEPT = Path(__file__).parents[1] / "vectors" / "orc" / "without_row_index.orc"
VALUES, HAS_NULL = 1, 10
_STRUCT, _LIST, _LONG = (OrcColumn(1, 1, "c", kind) for kind in (OrcKind.STRUCT, OrcKind.LIST, OrcKind.LONG))


def _said(values: int | None, has_null: int | None) -> Message:
    counted = b"" if values is None else encoded(VALUES, values)
    return Message(memoryview(counted + (b"" if has_null is None else encoded(HAS_NULL, has_null))))


@pytest.mark.parametrize(
    ("values", "has_null", "fits"),
    [
        (100, 0, True),
        (100, 1, True),
        (100, None, True),
        (40, 1, True),
        (40, None, True),
        (0, 1, True),
        (0, 0, False),
        (0, None, False),
        (40, 0, False),
        (99, 0, False),
        (101, 0, False),
        (101, 1, False),
        (101, None, False),
        ((1 << 64) - 1, 1, False),
        (None, 1, False),
        (None, None, False),
    ],
)
def test_counts_fill_the_rows(values: int | None, has_null: int | None, fits: bool) -> None:
    assert (fitting([(_LONG, _said(values, has_null))], 100) is not None) == fits


def test_counts_inside_of_others() -> None:
    def fits(*chain: tuple[OrcColumn, tuple[int, int] | None]) -> bool:
        return fitting([(column, None if one is None else _said(*one)) for column, one in chain], 100) is not None

    assert fits((_STRUCT, (100, 0)), (_LONG, (100, 0)))
    assert fits((_STRUCT, (60, 1)), (_LONG, (60, 0)))
    assert fits((_STRUCT, (60, 1)), (_LONG, (60, 1)))  # one writer counts the struct's nulls, too
    assert fits((_STRUCT, (60, 1)), (_LONG, (0, 1)))
    assert fits((_STRUCT, (0, 1)), (_LONG, (0, 0)))
    assert fits((_LIST, (100, 0)), (_LONG, (1_000, 0)))
    assert fits((_LIST, (100, 0)), (_LONG, (7, 0)))
    assert fits((_LIST, (0, 1)), (_LONG, (0, 0)))
    assert fits((_LIST, (100, 0)), (_STRUCT, (30, 0)), (_LONG, (30, 0)))
    assert not fits((_STRUCT, (60, 1)), (_LONG, (59, 0)))
    assert not fits((_STRUCT, (60, 1)), (_LONG, (100, 0)))
    assert not fits((_STRUCT, (0, 0)), (_LONG, (0, 0)))
    assert not fits((_STRUCT, None), (_LONG, (100, 0)))
    assert not fits((_LIST, (0, 0)), (_LONG, (0, 0)))
    assert not fits((_LIST, (100, 0)), (_LONG, (0, 0)))
    assert not fits((_LIST, (100, 0)), (_STRUCT, (30, 0)), (_LONG, (29, 0)))


def test_a_file_without_row_index_that_counts_nothing() -> None:
    assert bs.read_table(KEPT, where=[("id", "==", 7)])["name"].to_pylist() == ["n7"]
    assert bs.read_table(KEPT, where=[("id", ">", 89)]).num_rows == 10
    assert bs.read_table(KEPT, where=[("name", "in", ["n3", "n5"])]).num_rows == 2
    with bs.open_file(KEPT) as file:
        assert file.verdicts("id", [7])[0].verdicts == [Verdict.NO_FILTER]
        assert file.maybe_present("name", ["n7"]).all()
    assert bs.verify(KEPT, filters=True).ok


def _altered(path: Path, column: str, values: int | None, has_null: int | None, *, groups: bool) -> None:
    """Change what the statistics of the stripe, or of its row groups, have counted of a column."""
    data = path.read_bytes()
    with bs.open_file(path) as file:
        number = next(one for one in file.schema.columns if one.name == column).id
        if groups:
            entries = file.index(0).row_index(number)
            assert entries is not None
            found = [bytes(Message(one).bytes(2)) for one in entries]
        else:
            found = [bytes(file.tail.stripe_statistics[0].every(1)[number])]
    for old in dict.fromkeys(found):
        message = memoryview(old)
        made = (Message(message).number(VALUES), Message(message).number(HAS_NULL))
        new = b""
        for field, own, value in zip((VALUES, HAS_NULL), made, (values, has_null), strict=True):
            new += encoded(field, own if value is None else value)
        rest = without(message, (VALUES, HAS_NULL))
        assert len(new + rest) == len(old)
        data = data.replace(old, new + rest)
    path.write_bytes(data)


ROWS = pa.table(
    {
        "id": range(100),
        "some": [None if number in (3, 55, 56) else number for number in range(100)],
        "group": [None if number % 10 == 1 else {"x": number} for number in range(100)],
        "list": [None if number % 10 == 1 else [number] * 2 for number in range(100)],
    }
)
ASKED: list[tuple[str, Any, int]] = [
    ("id", pc.field("id") == 7, 1),
    ("some", pc.field("some") == 60, 1),
    ("some", pc.field("some").is_null(), 3),
    ("group", pc.field("group", "x") == 7, 1),
    ("group.x", pc.field("group", "x") == 7, 1),
    ("id", pc.field("id") > 90, 9),
]


def _written(path: Path) -> Path:
    pyarrow.orc.write_table(ROWS, path, compression="uncompressed", row_index_stride=50)
    return path


@pytest.mark.parametrize("groups", [False, True])
@pytest.mark.parametrize("counted", [(0, 0), (None, 0), (49, 0), (101, 0)])
@pytest.mark.parametrize(("column", "asked", "rows"), ASKED)
def test_what_was_counted_otherwise_rules_nothing_out(
    column: str, asked: Any, rows: int, counted: tuple[int | None, int], groups: bool, tmp_path: Path
) -> None:
    path = _written(tmp_path / "a.orc")
    assert bs.read_table(path, where=asked).num_rows == rows
    # As an attacker or a careless writer leaves it: the bounds tell of other values.
    _altered(path, column, *counted, groups=groups)
    assert bs.read_table(path, where=asked).num_rows == rows
    leaf = "group.x" if column == "group" else column
    with bs.open_file(path) as file:
        assert file.maybe_present(leaf, [7]).any()


def test_an_honest_file_is_pruned_inside_of_structs_and_lists(tmp_path: Path) -> None:
    table = bs.open_table(_written(tmp_path / "a.orc"))
    for asked in (pc.field("group", "x") == 777, pc.field("id") == -1, pc.field("id").is_null()):
        assert table.read(where=asked).num_rows == 0
        assert table.stats.pruned_by_statistics == table.stats.row_groups == 2
    with bs.open_file(tmp_path / "a.orc") as file:
        assert file.verdicts("list._elem", [777])[0].verdicts == [Verdict.ABSENT]


def test_an_empty_filter_over_rows_that_nobody_counted_is_maybe(tmp_path: Path) -> None:
    """Statistics that count nothing do not make an empty filter one over nulls."""
    path = tmp_path / "f.orc"
    write(pa.table({"id": pa.nulls(100, pa.int64())}), path, compression="uncompressed")
    with bs.open_file(path) as file:
        assert file.verdicts("id", [7])[0].verdicts == [Verdict.ABSENT]
    for groups in (False, True):
        _altered(path, "id", 0, 0, groups=groups)
    with bs.open_file(path) as file:
        (answer,) = file.verdicts("id", [7])
        assert answer.verdicts == [Verdict.NO_FILTER]
        assert "empty filter" in str(answer.untrusted)


def test_bounds_the_wrong_way_round_bound_nothing(tmp_path: Path) -> None:
    path = tmp_path / "b.orc"
    values = {"i": [1, 60], "d": [1.0, 60.0], "t": ["a", "y"]}
    pyarrow.orc.write_table(pa.table(values), path, compression="uncompressed")
    data = path.read_bytes()
    for low, high in (
        (encoded(1, 2), encoded(2, 120)),
        (encoded(1, b"a"), encoded(2, b"y")),
        (bytes([1 << 3 | 1]) + struct.pack("<d", 1), bytes([2 << 3 | 1]) + struct.pack("<d", 60)),
    ):
        swapped = low[:1] + high[1:] + high[:1] + low[1:]
        assert low + high in data
        data = data.replace(low + high, swapped)
    path.write_bytes(data)
    for name, own in values.items():
        for value in own:
            assert bs.read_table(path, where=[(name, "==", value)]).num_rows == 1
            with bs.open_file(path) as file:
                assert file.maybe_present(name, [value]).all()


def test_texts_that_a_writer_compares_up_to_a_nul(tmp_path: Path) -> None:
    """Such bounds may leave values out: the least of these is the last one."""
    path, texts = tmp_path / "n.orc", ["\0b", "\0c", "\0a"]
    pyarrow.orc.write_table(pa.table({"t": texts}), path)
    for text in texts:
        assert bs.read_table(path, where=[("t", "==", text)]).num_rows == 1
    assert bs.read_table(path, where=pc.field("t") < "\0b").num_rows == 1
    pyarrow.orc.write_table(pa.table({"t": [*texts, "", "z"]}), path)
    table = bs.open_table(path)
    assert table.read(where=[("t", "==", "\0a")]).num_rows == 1
    assert table.read(where=[("t", ">", "zz")]).num_rows == 0
    assert table.stats.pruned_by_statistics == 1
