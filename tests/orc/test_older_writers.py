"""Files as older writers have left them: their rows are read, and what they lack costs pruning at most."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.orc
import pytest

import bloomseal as bs
from bloomseal import Verdict
from bloomseal.core import limits
from bloomseal.orc.protobuf import Message, without

from .generated import write
from .test_hostile import crafted, field

WITHOUT_ZONE = Path(__file__).parents[1] / "vectors" / "orc" / "without_time_zone.orc"


def test_stripes_that_name_no_time_zone() -> None:
    theirs = pyarrow.orc.read_table(WITHOUT_ZONE)
    assert bs.read_table(WITHOUT_ZONE).equals(theirs)
    moment = theirs["t"][0].as_py()
    assert bs.read_table(WITHOUT_ZONE, where=[("t", "==", moment)])["n"].to_pylist() == [1]
    assert bs.read_table(WITHOUT_ZONE, columns=["n"])["n"].to_pylist() == [1, 2]
    assert bs.verify(WITHOUT_ZONE, filters=True).ok
    with bs.open_file(WITHOUT_ZONE) as file:
        assert file.rows(0, ["t"])["t"].equals(theirs["t"])
        # They were stored in a zone that nobody knows.
        assert file.maybe_present("t", [moment, moment.replace(year=2024)]).all()


def test_a_filter_of_many_hash_functions_is_asked_for_some() -> None:
    for count in (limits.MAX_ORC_HASHES, limits.MAX_ORC_HASHES + 1, 5_000, (1 << 64) - 1):
        full, half = (field(1, count) + field(3, bits * 8) for bits in (b"\xff", b"\x55"))
        with bs.open_file(crafted(filters=[full])) as file:
            assert file.verdicts("a", [1])[0].verdicts == [Verdict.MAYBE_PRESENT]
        with bs.open_file(crafted(filters=[half])) as file:
            assert file.verdicts("a", [1])[0].verdicts == [Verdict.ABSENT]


@pytest.mark.parametrize("fpp", [1e-300, 5e-324])
def test_rows_behind_such_filters_are_found(fpp: float, tmp_path: Path) -> None:
    path = tmp_path / "many.orc"
    write(pa.table({"a": range(50), "t": [str(number) for number in range(50)]}), path, fpp=fpp)
    for name, value in (("a", 7), ("t", "7")):
        assert bs.read_table(path, where=[(name, "==", value)]).num_rows == 1
        with bs.open_file(path) as file:
            assert file.verdicts(name, [value])[0].verdicts == [Verdict.MAYBE_PRESENT]


def _without_magic(path: Path, head: bytes = b"ORC") -> None:
    data = path.read_bytes()
    length = data[-1]
    end = without(memoryview(data)[-1 - length : -1], (8000,))
    assert 8000 not in Message(memoryview(end))
    path.write_bytes(head + data[3 : -1 - length] + end + bytes([len(end)]))


def test_the_magic_may_stand_in_the_head_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.orc"
    table = pa.table({"a": range(50), "t": [str(number) for number in range(50)]})
    write(table, path, compression="zlib")
    _without_magic(path)
    assert pyarrow.orc.read_table(path).equals(table)
    assert bs.read_table(path).equals(table)
    assert bs.read_table(path, where=[("a", "==", 7)])["t"].to_pylist() == ["7"]
    assert bs.verify(path, filters=True).ok
    assert bs.open_table(tmp_path).read().equals(table)
    _without_magic(path, b"GRO")
    with pytest.raises(bs.FormatError, match="no ORC magic"):
        bs.read_table(path)
    other = io.BytesIO(b"ORC" + bytes(100))
    with pytest.raises(bs.FormatError):
        bs.open_file(other)
