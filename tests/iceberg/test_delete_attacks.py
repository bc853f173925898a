"""Attack: by whoever may write to the storage of an encrypted table, and holds no key: rows that were deleted come
back, or rows that were not go.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bloomseal as bs
from support.iceberg_vectors import expected

Spec = Callable[..., bs.DecryptionSpec]
EXPECTED = expected()
TABLES = ("dv16", "eqdel16")


@pytest.fixture
def place(vectors: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return Path(shutil.copytree(vectors / "tables" / request.param, tmp_path / request.param))


def delete_file(place: Path) -> Path:
    (found,) = {place / one["path"] for one in EXPECTED[place.name]["chain"]["files"] if one["content"]}
    return found


def read(place: Path, spec: Spec) -> list[int]:
    return sorted(bs.read_table(place, decryption=spec())["id"].to_pylist())


def wanted(name: str) -> list[int]:
    return sorted(row[0] for row in EXPECTED[name]["rows"])


def in_clear(path: Path) -> None:
    if path.suffix == ".puffin":
        path.write_bytes(b"PFA1" + bytes(path.stat().st_size - 4))
    else:
        field = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})
        pq.write_table(pa.table([[5, 6]], pa.schema([field])), path)


def of_another_file(path: Path) -> None:
    other = next(one for one in sorted(path.parent.iterdir()) if one.suffix == ".parquet" and one != path)
    shutil.copy(other, path)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


def without_blocks(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:8])


@pytest.mark.parametrize("place", TABLES, indirect=True)
@pytest.mark.parametrize("attack", [in_clear, of_another_file, cut, without_blocks, Path.unlink])
def test_a_delete_file_in_another_state(place: Path, spec: Spec, attack: Callable[[Path], None]) -> None:
    attack(delete_file(place))
    with pytest.raises(bs.BloomsealError):
        read(place, spec)
    with pytest.raises(bs.BloomsealError):
        assert bs.open_table(place, decryption=spec()).num_rows


@pytest.mark.parametrize("place", TABLES, indirect=True)
def test_verify_tells_of_it(place: Path, spec: Spec) -> None:
    path = delete_file(place)
    data = path.read_bytes()
    path.write_bytes(data[:-20] + bytes([data[-20] ^ 1]) + data[-19:])
    report = bs.open_table(place, decryption=spec()).verify()
    assert not report.ok
    assert any(path.name in str(error) for error in report.failures.values())


@pytest.mark.parametrize("place", TABLES, indirect=True)
def test_a_file_that_no_manifest_names_deletes_nothing(place: Path, spec: Spec) -> None:
    shutil.copy(delete_file(place), place / "data" / f"added{delete_file(place).suffix}")
    field = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})
    pq.write_table(pa.table([[*range(99)]], pa.schema([field])), place / "data" / "added.parquet")
    assert read(place, spec) == wanted(place.name)


@pytest.mark.parametrize("place", ["dv16"], indirect=True)
def test_vectors_of_another_table(place: Path, vectors: Path, spec: Spec) -> None:
    """Under the same master key, and as long: a stream of another key."""
    data = next((vectors / "tables" / "hole_vector_without_key" / "data").glob("*.puffin")).read_bytes()
    length = delete_file(place).stat().st_size
    delete_file(place).write_bytes((data + bytes(length))[:length])
    with pytest.raises(bs.IntegrityError, match="does not authenticate"):
        read(place, spec)


@pytest.mark.parametrize("place", ["dv16"], indirect=True)
def test_two_vectors_change_places(place: Path, spec: Spec) -> None:
    """Of one file, of which one deletes a row, and the other three: at 4 and at 46, behind header and nonce."""
    data = delete_file(place).read_bytes()
    start = 8 + 12
    one, other = data[start + 4 : start + 46], data[start + 46 : start + 92]
    delete_file(place).write_bytes(data[: start + 4] + other + one + data[start + 92 :])
    with pytest.raises(bs.IntegrityError, match="does not authenticate"):
        read(place, spec)


@pytest.mark.parametrize("place", ["dv16"], indirect=True)
def test_bytes_behind_a_file_of_vectors_are_no_part_of_it(place: Path, spec: Spec) -> None:
    with delete_file(place).open("ab") as file:
        file.write(bytes(100))
    assert read(place, spec) == wanted(place.name)


@pytest.mark.parametrize("place", ["dv16"], indirect=True)
def test_the_state_before_is_put_back(place: Path, spec: Spec) -> None:
    """Nothing shows it but a pin."""
    newest = max((place / "metadata").glob("*.metadata.json"))
    newest.unlink()
    assert len(read(place, spec)) == 36
    with pytest.raises(bs.PolicyError, match="an older state"):
        bs.open_table(place, decryption=spec(min_sequence_number=2))


def right_or_refused(place: Path, spec: Spec) -> None:
    try:
        rows = bs.open_table(place, decryption=spec()).num_rows
    except bs.BloomsealError:
        return
    assert rows == len(wanted(place.name))


@pytest.mark.parametrize("place", ["eqdel16"], indirect=True)
@pytest.mark.parametrize(
    "kind", ["int", "string", "binary", "boolean", "date", "timestamp", "decimal(3,1)", "float", "uuid"]
)
def test_values_are_compared_as_the_files_have_them(place: Path, spec: Spec, kind: str) -> None:
    newest = max((place / "metadata").glob("*.metadata.json"))
    whole = newest.read_text()
    for number in range(6):
        document: Any = json.loads(whole)
        document["schemas"][0]["fields"][number]["type"] = kind
        newest.write_text(json.dumps(document))
        right_or_refused(place, spec)


@pytest.mark.parametrize("place", ["eqdel16"], indirect=True)
def test_columns_that_change_their_names_or_numbers(place: Path, spec: Spec) -> None:
    newest = max((place / "metadata").glob("*.metadata.json"))
    whole = newest.read_text()
    for one in range(6):
        for other in range(one):
            for name in ("name", "id"):
                document: Any = json.loads(whole)
                fields = document["schemas"][0]["fields"]
                fields[one][name], fields[other][name] = fields[other][name], fields[one][name]
                newest.write_text(json.dumps(document))
                right_or_refused(place, spec)


@pytest.mark.parametrize("place", TABLES, indirect=True)
def test_mutants(place: Path, spec: Spec) -> None:
    """The right rows, or an error of ours."""
    chance, path = random.Random(2), delete_file(place)
    table, data, right = bs.open_table(place, decryption=spec()), path.read_bytes(), wanted(place.name)
    for _ in range(150):
        size = chance.randint(1, 40)
        place_of = chance.randrange(len(data))
        changed = data[:place_of] + chance.randbytes(size) + data[place_of + size :]
        path.write_bytes(changed if chance.random() < 0.8 else data[:place_of])
        table = bs.open_table(place, decryption=spec())
        try:
            found = sorted(table.read(["id"])["id"].to_pylist())
        except bs.BloomsealError:
            continue
        assert found == right
