"""The policy file: what it says, what it refuses, and that files obey it."""

from __future__ import annotations

import pickle
import tomllib
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal import Keyring
from bloomseal.core.encryption import Algorithm
from bloomseal.core.errors import BloomsealError, IntegrityError, KeyAccessError, PolicyError
from bloomseal.policy import ColumnPolicy, Policy, Sensitivity, TablePolicy

EXAMPLE = Path(__file__).parents[2] / "keys" / "policy.example.toml"
TABLE = pa.table({"customer_id": [1, 2], "ssn": ["a", "b"], "email": ["c", "d"]})
DOCUMENT = tomllib.loads(EXAMPLE.read_text("utf-8"))


@pytest.fixture
def keyring(tmp_path: Path) -> Keyring:
    ring = Keyring(tmp_path / "keys.json", create=True)
    for name in ("footer", "pii", "health", "contact", "payments", "other"):
        ring.create(name)
    return ring


@pytest.fixture
def customers(keyring: Keyring) -> TablePolicy:
    return Policy.load(EXAMPLE, kms=keyring).for_table("customers")


def write(policy: TablePolicy, path: Path, **changes: Any) -> None:
    spec = bs.EncryptionSpec(**{**policy.encryption_arguments(path), **changes})
    filters = {name: spec for name, spec in policy.bloom_filters().items() if name in TABLE.column_names}
    bs.write_table(TABLE, path, encryption=spec, bloom_filters=filters)


def read(policy: TablePolicy, path: Path) -> pa.Table:
    return bs.read_table(path, decryption=bs.DecryptionSpec(**policy.decryption_arguments(path)))


def test_the_example_says_what_its_comments_say() -> None:
    policy = Policy.load(EXAMPLE)
    assert set(policy.tables) == {"customers", "payments"}
    customers, payments = policy.for_table("customers"), policy.for_table("payments")
    assert customers.algorithm is Algorithm.AES_GCM_V1
    assert customers.max_key_age == timedelta(days=365)
    assert payments.max_key_age == timedelta(days=90)
    assert (customers.key_bits, payments.key_bits) == (128, 256)
    assert customers.master_key("ssn") == "pii"
    assert customers.master_key("health.blood.type") == "health"
    assert customers.sensitivity("health.blood.type") is Sensitivity.RESTRICTED
    assert customers.master_key("customer_id") is None
    assert customers.master_key("healthy") is None  # a name that starts alike is not a group
    assert payments.uniform
    assert payments.master_key("whatever") == "payments"
    assert set(customers.bloom_filters()) == {"ssn", "email", "customer_id"}
    inside = customers.at("/bucket/a")
    assert inside.prefix("/bucket/a/day=1/b.parquet") == "customers/day=1/b.parquet/"
    assert inside.prefixes("/bucket/a/day=1/b.parquet")[1:] == ("customers/b.parquet",)
    assert payments.prefix("b.parquet") is None
    assert payments.requirements("card_number") == ("PCI DSS 3.5", "PCI DSS 3.6", "PCI DSS 3.7")
    assert customers.requirements("ssn") == ()
    assert customers.access_log == "logging:bloomseal.access"
    pii = customers.key_policies["pii"]
    assert (pii.owner, pii.custodian, pii.users) == ("Customer data", "Security operations", ("billing", "fraud desk"))
    assert (pii.activation, pii.expiry) == (date(2026, 1, 1), date(2036, 1, 1))
    assert (pii.originator_usage, pii.recipient_usage) == (timedelta(days=365), timedelta(days=1825))
    assert pii.dual_control
    with pytest.raises(PolicyError, match="no table 'orders'"):
        policy.for_table("orders")


@pytest.mark.parametrize(
    ("entry", "match"),
    [
        ({"pi": {}}, "no table has a master key of this name.*pii"),
        ({"pii": {"ownr": "x"}}, "'ownr' is not understood"),
        ({"pii": {"activation": "2026-01-01"}}, "activation is not date"),
        ({"pii": {"activation": datetime(2026, 1, 1, tzinfo=UTC)}}, "without a time"),
        ({"pii": {"originator_usage_days": 0}}, "lies between 1"),
        ({"pii": {"originator_usage_days": 20, "recipient_usage_days": 10}}, "shorter"),
        ({"pii": {"activation": date(2026, 1, 2), "expiry": date(2026, 1, 1)}}, "before"),
        ({"pii": {"dual_control": "yes"}}, "is not bool"),
    ],
)
def test_what_is_said_of_keys_must_be_understood(entry: dict[str, Any], match: str) -> None:
    with pytest.raises(PolicyError, match=match):
        Policy.from_dict({**DOCUMENT, "keys": entry})


def test_the_example_writes_and_reads(customers: TablePolicy, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    columns = {name: column for name, column in customers.columns.items() if name != "health"}
    policy = Policy({"customers": TablePolicy(**{**_fields(customers), "columns": columns})}).for_table(
        "customers", root=tmp_path
    )
    write(policy, path)
    assert read(policy, path) == TABLE
    assert bs.probe(
        path, "ssn", ["zzz"], decryption=bs.DecryptionSpec(**policy.decryption_arguments(path))
    ) == [[bs.Verdict.ABSENT]]  # fmt: skip


def _fields(policy: TablePolicy) -> dict[str, Any]:
    return {name: getattr(policy, name) for name, one in policy.__dataclass_fields__.items() if one.init}


@pytest.fixture
def people(keyring: Keyring) -> TablePolicy:
    return _table(keyring, {})


def _table(keyring: Keyring, changes: dict[str, Any], name: str = "people") -> TablePolicy:
    document = {
        "version": 1,
        "tables": {
            name: {
                "footer_key": "footer",
                "aad_prefix": "{table}/{file}",
                "store_aad_prefix": False,
                "columns": {"ssn": {"key": "pii", "sensitivity": "restricted", "filter": True}},
                **changes,
            }
        },
    }
    return Policy.from_dict(document, kms=keyring).for_table(name)


def test_a_file_moved_into_another_table_or_put_under_another_name_does_not_open(
    keyring: Keyring, people: TablePolicy, tmp_path: Path
) -> None:
    write(people, tmp_path / "a.parquet")
    assert read(people, tmp_path / "a.parquet") == TABLE
    (tmp_path / "b.parquet").write_bytes((tmp_path / "a.parquet").read_bytes())
    with pytest.raises(IntegrityError):
        read(people, tmp_path / "b.parquet")
    elsewhere = _table(keyring, {}, "customers")
    with pytest.raises(IntegrityError):
        read(elsewhere, tmp_path / "a.parquet")


@pytest.mark.parametrize("changes", [{"footer_key": "other"}, {"column_keys": {"ssn": "other"}}])
def test_a_file_under_another_master_key_is_refused(
    keyring: Keyring, people: TablePolicy, tmp_path: Path, changes: dict[str, Any]
) -> None:
    """An attacker who may use *some* master key seals a file of his own under it; everything would authenticate."""
    path = tmp_path / "a.parquet"
    write(people, path, **changes, keys=keyring)
    assert bs.read_table(path, decryption=bs.DecryptionSpec(keyring, aad_prefix=people.prefix(path))) == TABLE
    with pytest.raises(PolicyError, match="'other'"):
        read(people, path)


def test_previous_keys_still_read(keyring: Keyring, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write(_table(keyring, {"footer_key": "other", "columns": {"ssn": {"key": "contact"}}}), path)
    now = _table(
        keyring,
        {"previous_footer_keys": ["other"], "columns": {"ssn": {"key": "pii", "previous_keys": ["contact"]}}},
    )
    assert read(now, path) == TABLE


def test_plaintext_where_the_policy_wants_a_key_is_refused(
    keyring: Keyring, people: TablePolicy, tmp_path: Path
) -> None:
    path = tmp_path / "a.parquet"
    bs.write_table(TABLE, path)
    with pytest.raises(PolicyError):
        read(people, path)
    write(people, path, column_keys={"email": "footer"}, keys=keyring)
    with pytest.raises(PolicyError, match="ssn"):
        read(people, path)


def test_a_column_that_the_policy_gets_later_is_asked_of_every_file_from_then_on(
    keyring: Keyring, tmp_path: Path
) -> None:
    table = {"footer_key": "footer", "columns": {"ssn": {"key": "pii"}}}
    policy = Policy.from_dict({"version": 1, "tables": {"t": table}}, kms=keyring).for_table("t")
    write(policy, tmp_path / "a.parquet")
    assert bs.read_table(tmp_path / "a.parquet", decryption=policy).num_rows == 2
    columns: Any = policy.columns
    columns["email"] = ColumnPolicy(key="contact")
    with pytest.raises(PolicyError, match="plaintext"):
        bs.read_table(tmp_path / "a.parquet", decryption=policy)


def test_writing_under_a_key_that_the_policy_lacks_is_refused(people: TablePolicy, tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="'other'"):
        write(people, tmp_path / "a.parquet", footer_key="other")
    assert not (tmp_path / "a.parquet").exists()


def test_the_seal_limit_holds(keyring: Keyring, tmp_path: Path) -> None:
    with pytest.raises(KeyAccessError, match="its limit is 3"):
        write(_table(keyring, {"seal_limit": 3}), tmp_path / "a.parquet")


def test_external_material_and_sizes_reach_the_file(keyring: Keyring, tmp_path: Path) -> None:
    policy = _table(keyring, {"material": "external", "key_bits": 256, "kek_bits": 256, "double_wrapping": False})
    write(policy, tmp_path / "a.parquet")
    assert (tmp_path / "_KEY_MATERIAL_FOR_a.parquet.json").exists()
    assert read(policy, tmp_path / "a.parquet") == TABLE


def test_a_pickled_policy_leaves_its_keys_behind(people: TablePolicy, tmp_path: Path) -> None:
    write(people, tmp_path / "a.parquet")
    again = pickle.loads(pickle.dumps(people))  # noqa: S301
    assert read(again, tmp_path / "a.parquet") == TABLE


def changed(path: str, value: Any) -> dict[str, Any]:
    """The example with one entry changed; None removes it."""
    document: dict[str, Any] = tomllib.loads(EXAMPLE.read_text("utf-8"))
    *outer, last = path.split(".")
    place = document
    for name in outer:
        place = place.setdefault(name, {})
    if value is None:
        del place[last]
    else:
        place[last] = value
    return document


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("version", None),
        ("version", 2),
        ("version", True),
        ("kms", 5),
        ("surprise", 1),
        ("allowed_kms_urls", "https://a.example"),
        ("allowed_kms_urls", [1]),
        ("defaults.algoritm", "AES_GCM_V1"),
        ("defaults.algorithm", "AES_ECB"),
        ("defaults.key_bits", 127),
        ("defaults.key_bits", "128"),
        ("defaults.key_bits", True),
        ("defaults.material", "somewhere"),
        ("defaults.double_wrapping", "yes"),
        ("defaults.seal_limit", 0),
        ("defaults.seal_limit", 2**32 + 1),
        ("defaults.max_key_age_days", 10**12),
        ("defaults.max_key_age_days", -1),
        ("tables", 5),
        ("tables.customers.footer_key", None),
        ("tables.customers.footer_key", ""),
        ("tables.customers.colums", {}),
        ("tables.customers.aad_prefix", ""),
        ("tables.customers.aad_prefix", None),
        ("tables.customers.aad_prefix", "{table.__class__}"),
        ("tables.customers.aad_prefix", "{table!r}"),
        ("tables.customers.aad_prefix", "{file:>99999999}"),
        ("tables.customers.aad_prefix", "{0}"),
        ("tables.customers.aad_prefix", "{"),
        ("tables.customers.columns.ssn.key", None),
        ("tables.customers.columns.ssn.key", ""),
        ("tables.customers.columns.ssn.kee", "pii"),
        ("tables.customers.columns.ssn.sensitivity", "secret"),
        ("tables.customers.columns.ssn.filter", "yes"),
        ("tables.customers.columns.ssn.filter", {"fpp": 2.0}),
        ("tables.customers.columns.ssn.filter", {"fp": 0.1}),
        ("tables.customers.columns.ssn.previous_keys", "pii"),
    ],
)
def test_what_is_not_understood_is_refused(path: str, value: Any) -> None:
    assert Policy.from_dict(DOCUMENT)
    with pytest.raises(PolicyError):
        Policy.from_dict(changed(path, value))


@pytest.mark.parametrize(
    "text", [b"", b"version = ", b"\xff\xfe", b"version = 1\nversion = 1", b"[[tables]]\nversion=1"]
)
def test_what_is_no_policy_file_is_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "p.toml").write_bytes(text)
    with pytest.raises(PolicyError) as caught:
        Policy.load(tmp_path / "p.toml")
    assert caught.value.file == str(tmp_path / "p.toml")
    with pytest.raises(PolicyError, match="can't be read"):
        Policy.load(tmp_path / "none.toml")
    with pytest.raises(BloomsealError):
        Policy.load(tmp_path)


def test_a_file_nested_without_end_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("x = " + "[" * 5000 + "]" * 5000)
    with pytest.raises(PolicyError, match="not TOML"):
        Policy.load(path)


def test_names_that_are_no_text_are_not_understood() -> None:
    with pytest.raises(PolicyError, match="'x', 3 is not understood"):
        Policy.from_dict({"version": 1, 3: 4, "x": 1})  # type: ignore[dict-item]
