"""Attack: by whoever may write the table's folder, and holds no key. The metadata file is his; what it says must not
lead to an answer of his choice.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.rotation import Rekey, plan

Spec = Callable[..., bs.DecryptionSpec]
CITY = [("city", "==", "Turku")]


@pytest.fixture
def table(vectors: Path, tmp_path: Path) -> Callable[[str], Path]:
    def copied(name: str) -> Path:
        return Path(shutil.copytree(vectors / "tables" / name, tmp_path / name))

    return copied


def changed(place: Path, change: Callable[[Any], None]) -> Path:
    newest = max((place / "metadata").glob("*.metadata.json"))
    document = json.loads(newest.read_text())
    change(document)
    newest.write_text(json.dumps(document))
    return place


def rename(document: Any) -> None:
    fields = document["schemas"][0]["fields"]
    one, other = (next(field for field in fields if field["name"] == name) for name in ("ssn", "city"))
    one["name"], other["name"] = other["name"], one["name"]


def another_number(document: Any) -> None:
    """A column of this name, which no file has by its number."""
    fields = document["schemas"][0]["fields"]
    next(field for field in fields if field["name"] == "ssn")["id"] = 99
    document["last-column-id"] = 99


def mapped_names(document: Any) -> None:
    """Names for files without numbers: none is without."""
    names = [{"field-id": field["id"], "names": ["city"]} for field in document["schemas"][0]["fields"][:1]]
    document["properties"]["schema.name-mapping.default"] = json.dumps(names)


def other_type(document: Any) -> None:
    next(field for field in document["schemas"][0]["fields"] if field["name"] == "ssn")["type"] = "binary"


def other_source(document: Any) -> None:
    """The partition's values are said to be another column's."""
    ids = {field["name"]: field["id"] for field in document["schemas"][0]["fields"]}
    document["partition-specs"][0]["fields"] = [
        {"name": "ssn", "transform": "identity", "source-id": ids["ssn"], "field-id": 1000}
    ]


def older_list(document: Any) -> None:
    """The current snapshot's id, and the list and key of the one before it."""
    by_age = sorted(document["snapshots"], key=lambda one: one["sequence-number"])
    for name in ("manifest-list", "key-id"):
        by_age[-1][name] = by_age[-2][name]


def elsewhere(document: Any) -> None:
    document["location"] = "file:/tmp"


def other_kek(document: Any) -> None:
    for one in document["encryption-keys"]:
        if one["encrypted-by-id"] == "master-main":
            one["encrypted-by-id"] = "master-evil"


def later_timestamp(document: Any) -> None:
    for one in document["encryption-keys"]:
        if "properties" in one:
            one["properties"]["KEY_TIMESTAMP"] = "1"


def below_three(document: Any) -> None:
    document["format-version"] = 2


@pytest.mark.parametrize("name", ["people16", "parts16"])
@pytest.mark.parametrize("attack", [rename, another_number, mapped_names, other_type, other_source])
def test_columns_that_change_their_names_rule_out_no_file(
    table: Callable[[str], Path], spec: Spec, name: str, attack: Callable[[Any], None]
) -> None:
    place = table(name)
    wanted = bs.read_table(place, decryption=spec())["ssn"].drop_null().to_pylist()[:9]
    assert len(wanted) == 9
    changed(place, attack)
    for ssn in wanted:
        try:
            found = bs.read_table(place, columns=["ssn"], where=[("ssn", "==", ssn)], decryption=spec())
        except bs.BloomsealError:
            continue
        assert found["ssn"].to_pylist() == [ssn]


@pytest.mark.parametrize(
    ("attack", "kind"),
    [
        (older_list, bs.IntegrityError),
        (elsewhere, bs.BloomsealError),
        (other_kek, bs.PolicyError),
        (later_timestamp, bs.IntegrityError),
        (below_three, bs.BloomsealError),
    ],
)
def test_what_the_metadata_say_is_compared(
    table: Callable[[str], Path], spec: Spec, attack: Callable[[Any], None], kind: type[bs.BloomsealError]
) -> None:
    with pytest.raises(kind):
        bs.read_table(changed(table("people16"), attack), decryption=spec())


def test_columns_are_those_of_the_current_schema(table: Callable[[str], Path], spec: Spec) -> None:
    """Of a column that was added, or dropped, after the last snapshot: that one names an older schema."""
    place = table("people16")

    def evolve(document: Any) -> None:
        (older,) = document["schemas"]
        fields = [field for field in older["fields"] if field["name"] != "ssn"]
        fields.append({"id": 77, "name": "late", "required": False, "type": "int"})
        document["schemas"].append({**older, "schema-id": 1, "fields": fields})
        document |= {"current-schema-id": 1, "last-column-id": 77}

    opened = bs.open_table(changed(place, evolve), decryption=spec())
    rows = opened.read()
    assert (rows.num_rows, rows["late"].null_count, "ssn" in rows.column_names) == (108, 108, False)
    snapshot = json.loads(max((place / "metadata").glob("*.json")).read_text())["current-snapshot-id"]
    assert "ssn" in bs.open_table(place, decryption=spec(), version=snapshot).read().column_names


@pytest.mark.parametrize("kind", ["binary", "int", "date", "uuid", "fixed[5]"])
def test_a_partition_of_another_type_rules_out_no_file(table: Callable[[str], Path], spec: Spec, kind: str) -> None:
    def attack(document: Any) -> None:
        next(field for field in document["schemas"][0]["fields"] if field["name"] == "city")["type"] = kind

    place = table("parts16")
    there = bs.read_table(place, where=CITY, decryption=spec()).num_rows
    assert there
    try:
        found = bs.read_table(changed(place, attack), where=CITY, decryption=spec()).num_rows
    except bs.BloomsealError:
        return
    assert found == there


@pytest.mark.parametrize(
    "keys", [5, [5], ["a"], [[]], [{}], {"a": 1}, [{"key-id": []}], [{"key-id": "x", "encrypted-by-id": ["y"]}]]
)
def test_keys_that_are_anything(table: Callable[[str], Path], spec: Spec, keys: Any) -> None:
    def attack(document: Any) -> None:
        document["encryption-keys"] = keys

    with pytest.raises(bs.BloomsealError):
        bs.open_table(changed(table("small32"), attack), decryption=spec("master-long"))


@pytest.mark.parametrize("told", [[], 5, "x", {"KEY_TIMESTAMP": 5}])
def test_properties_of_a_kek_that_are_anything(table: Callable[[str], Path], spec: Spec, told: Any) -> None:
    def attack(document: Any) -> None:
        for one in document["encryption-keys"]:
            one["properties"] = told

    with pytest.raises(bs.FormatError, match="no timestamp"):
        bs.open_table(changed(table("small32"), attack), decryption=spec("master-long"))


def test_partitions_rule_files_out(table: Callable[[str], Path], spec: Spec) -> None:
    place = table("parts16")
    opened = bs.open_table(place, decryption=spec())
    everything = opened.read()["city"].to_pylist()
    assert None not in everything or opened.read(where="city is null").num_rows == everything.count(None)
    for city in ("Turku", "Lund", "nowhere"):
        assert opened.read(where=[("city", "==", city)]).num_rows == everything.count(city)
    for path in (path for path in place.rglob("*.parquet") if "city=Turku" not in path.parts):
        path.write_bytes(b"no Parquet")
    opened = bs.open_table(place, decryption=spec())
    assert opened.read(where=[("city", "==", "Turku")]).num_rows == everything.count("Turku") > 0
    assert opened.read(where=[[("city", "==", "nowhere")], [("city", "==", "Turku")]]).num_rows == everything.count(
        "Turku"
    )
    with pytest.raises(bs.BloomsealError):
        opened.read(where=[("city", "==", "Lund")])


def test_a_table_that_is_no_encrypted_iceberg_table(tmp_path: Path, spec: Spec) -> None:
    (tmp_path / "plain").mkdir()
    bs.write_table(pa.table({"n": [1]}), tmp_path / "plain" / "a.parquet")
    with pytest.raises(bs.PolicyError, match="no Iceberg table"):
        bs.open_table(tmp_path / "plain", decryption=spec())
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(str(tmp_path / "delta"), pa.table({"n": [1]}))
    with pytest.raises(bs.PolicyError, match="Delta table where an encrypted"):
        bs.open_table(tmp_path / "delta", decryption=spec())


def test_without_a_word_about_it(vectors: Path, keyring: bs.Keyring) -> None:
    place = vectors / "tables" / "people16"
    for decryption in (None, bs.DecryptionSpec(keyring)):
        with pytest.raises(bs.UsageError, match="an encrypted Iceberg table") as refused:
            bs.open_table(place, decryption=decryption)
        assert "IcebergSpec" in str(refused.value)
    with pytest.raises(bs.UsageError, match="an encrypted Iceberg table") as refused:
        plan(place, Rekey(bs.DecryptionSpec(keyring)))
    assert "engine" in str(refused.value)
    with pytest.raises(bs.UsageError, match="hang from a master key in a KMS"):
        bs.open_table(place, decryption=bs.DecryptionSpec(bs.ExplicitKeys(b"k" * 16), iceberg=bs.IcebergSpec("m")))


def test_a_policy_opens_it(vectors: Path, keyring: bs.Keyring, tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(
        'version = 1\n[tables.people]\nfooter_key = "master-main"\n'
        '[tables.people.iceberg]\nencryption_key = "master-main"\nmin_sequence_number = 3\n'
    )
    policy = bs.Policy.load(tmp_path / "policy.toml", kms=keyring).for_table("people")
    found = bs.read_table(vectors / "tables" / "people16", where=[("ssn", "==", "901-11-0001")], decryption=policy)
    assert found["id"].to_pylist() == [1]
