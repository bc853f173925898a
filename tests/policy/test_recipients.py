"""A policy whose master keys have recipients: who writes can't read."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bloomseal as bs
from bloomseal.core.errors import PolicyError
from bloomseal.keytools import KmsAccessError
from bloomseal.keytools.kms.registry import client_for
from bloomseal.keytools.recipients_kms import RecipientsKms
from bloomseal.rotation import Rewrap, rotate
from bloomseal.rotation.outcome import Status
from bloomseal.rotation.rewrap import rewrap

ROWS = pa.table({"ssn": ["a", "b", "c"], "n": [1, 2, 3]})
POLICY = """
version = 1
{kms}
[keys.pii]
recipients = {lines}
[tables.people]
footer_key = "pii"
{more}
columns.ssn = {{ key = "pii", filter = true }}
"""


@pytest.fixture(autouse=True)
def no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BLOOMSEAL_KEYRING", raising=False)


@pytest.fixture
def ring(tmp_path: Path) -> bs.Keyring:
    ring = bs.Keyring(tmp_path / "reader.json", create=True)
    ring.create("pii", kind="hpke")
    return ring


def policy(place: Path, *lines: str, kms: str = "", more: str = "") -> Path:
    place.write_text(POLICY.format(kms=kms and f'kms = "{kms}"', lines=json.dumps(lines), more=more))
    return place


@pytest.fixture
def writer(tmp_path: Path, ring: bs.Keyring) -> Path:
    return policy(tmp_path / "writer.toml", ring.recipient("pii"))


@pytest.fixture
def reader(tmp_path: Path, ring: bs.Keyring) -> Path:
    return policy(tmp_path / "reader.toml", ring.recipient("pii"), kms="keyring:reader.json")


def test_who_writes_cannot_read_and_who_reads_can(
    tmp_path: Path, writer: Path, reader: Path, ring: bs.Keyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, tables = tmp_path / "a.parquet", bs.Policy.load(writer)
    bs.write_table(ROWS, file, policy=tables)
    bs.write_table(ROWS, file, policy=tables)  # in the place of a file, which nobody could check otherwise
    for again in (tables, writer):
        with pytest.raises(KmsAccessError, match="this policy only writes"):
            bs.read_table(file, policy=again)
    assert bs.read_table(file, policy=reader) == ROWS
    assert bs.probe(file, "ssn", ["a"], policy=reader)
    monkeypatch.setenv("BLOOMSEAL_KEYRING", str(ring.path))
    assert bs.read_table(file, policy=writer) == ROWS


def test_a_keyring_without_the_private_key_keeps_nobody_from_writing(
    tmp_path: Path, ring: bs.Keyring, writer: Path, reader: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = bs.Keyring(tmp_path / "other.json", create=True)
    other.create("footer")
    ring.add_copy(exported(other, tmp_path, "footer", ring.recipient("pii")))
    monkeypatch.setenv("BLOOMSEAL_KEYRING", str(other.path))
    text = policy(tmp_path / "mixed.toml", ring.recipient("pii"), kms="keyring:other.json").read_text()
    mixed = tmp_path / "mixed.toml"
    mixed.write_text(text.replace('footer_key = "pii"', 'footer_key = "footer"'))
    for tables in (writer, mixed):
        for _ in range(2):  # a file that is replaced is checked first
            bs.write_table(ROWS, tmp_path / "a.parquet", policy=tables)
    with pytest.raises(KmsAccessError, match="no master key"):
        bs.read_table(tmp_path / "a.parquet", policy=mixed)
    assert bs.read_table(tmp_path / "a.parquet", policy=mixed, columns=["n"]).num_rows == 3
    reading = tmp_path / "both.toml"
    reading.write_text(mixed.read_text().replace("other.json", "reader.json"))
    assert bs.read_table(tmp_path / "a.parquet", policy=reading) == ROWS


def exported(ring: bs.Keyring, folder: Path, name: str, recipient: str) -> Path:
    ring.export([name], folder / "copy.json", passphrase=None, recipient=recipient)
    return folder / "copy.json"


def test_keys_that_nobody_here_opens_are_not_said_to_be_checked(
    tmp_path: Path, ring: bs.Keyring, writer: Path, reader: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = bs.Keyring(tmp_path / "other.json", create=True)
    place, folder = tmp_path / "a.parquet", tmp_path / "lake"
    for environment in ({}, {"BLOOMSEAL_KEYRING": str(other.path)}):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        for write in (
            lambda: bs.write_table(ROWS, place, policy=writer, check_keys=True),
            lambda: bs.write_dataset(ROWS, folder, policy=writer, mode="overwrite", check_keys=True),
        ):
            with pytest.raises(bs.KeyAccessError, match="recipients of pii"):
                write()
        assert not place.exists()
        assert not list(folder.glob("*.parquet"))
    for asked in (None, False):
        for _ in range(2):
            bs.write_dataset(ROWS, folder, policy=writer, mode="overwrite", check_keys=asked)
    bs.write_dataset(ROWS, folder, policy=reader, mode="overwrite", check_keys=True)
    assert bs.read_table(folder, policy=reader) == ROWS


def test_no_thread_waits_for_what_is_at_hand(ring: bs.Keyring, tmp_path: Path) -> None:
    """A thread costs more than HPKE. But whoever may be slow is not waited for longer than allowed."""

    class Slow(bs.Keyring):
        pass

    lines = {"pii": [ring.recipient("pii")]}
    writer, unknown = RecipientsKms(lines), RecipientsKms(lines, f"keyring:{ring.path}")
    assert (writer.answers_at_once, unknown.answers_at_once) == (True, False)
    for reader, at_once in ((ring, True), (f"keyring:{ring.path}", True), (Slow(ring.path), False)):
        kms = RecipientsKms(lines, reader)
        assert kms.unwrap_key(writer.wrap_key(bytes(16), "pii"), "pii") == bytes(16)
        assert kms.answers_at_once is at_once


def test_each_file_has_a_key_encryption_key_of_its_own(tmp_path: Path, writer: Path) -> None:
    tables, wrapped = bs.Policy.load(writer), []
    for name in ("a", "b"):
        bs.write_table(ROWS, tmp_path / name, policy=tables)
        keys = tables.for_table().keys
        metadata = bs.inspect(tmp_path / name).to_dict()
        wrapped.append(json.dumps(metadata))
    assert len(keys._unwrapped) == 0
    assert len(keys._fresh.keks) == 0
    assert keys.counters.wraps == 2, "one for each master key and file"


def test_without_double_wrapping_and_with_material_beside(tmp_path: Path, ring: bs.Keyring) -> None:
    for name, more in (("a", "double_wrapping = false"), ("b", 'material = "external"')):
        line = ring.recipient("pii")
        bs.write_table(ROWS, tmp_path / f"{name}.parquet", policy=policy(tmp_path / "w.toml", line, more=more))
        assert (
            bs.read_table(
                tmp_path / f"{name}.parquet",
                policy=policy(tmp_path / "r.toml", line, kms="keyring:reader.json", more=more),
            )
            == ROWS
        )


def test_readers_come_and_go_without_a_page_touched(tmp_path: Path, writer: Path, ring: bs.Keyring) -> None:
    file, old = tmp_path / "a.parquet", ring.recipient("pii")
    bs.write_table(ROWS, file, policy=writer)
    other = bs.Keyring(tmp_path / "other.json", create=True)
    other.create("pii", kind="hpke")
    both = policy(tmp_path / "both.toml", old, other.recipient("pii"), kms="keyring:reader.json")
    theirs = policy(tmp_path / "theirs.toml", old, kms="keyring:other.json")
    with pytest.raises(KmsAccessError, match="sealed to other recipients"):
        bs.read_table(file, policy=theirs)
    assert len(rewrap(str(file), policy=both).keys) == 2
    assert bs.read_table(file, policy=theirs) == ROWS
    assert rewrap(str(file), policy=both).keys == []
    assert len(rewrap(str(file), policy=policy(tmp_path / "one.toml", old, kms="keyring:reader.json")).keys) == 2
    with pytest.raises(KmsAccessError, match="sealed to other recipients"):
        bs.read_table(file, policy=theirs)
    assert bs.read_table(file, policy=both) == ROWS


def test_nobody_rewraps_to_recipients_that_he_is_not_one_of(tmp_path: Path, writer: Path) -> None:
    file = tmp_path / "a.parquet"
    bs.write_table(ROWS, file, policy=writer)
    before = file.read_bytes()
    other = bs.Keyring(tmp_path / "other.json", create=True)
    other.create("pii", kind="hpke")
    report = rewrap(str(file), policy=policy(tmp_path / "x.toml", other.recipient("pii"), kms="keyring:reader.json"))
    assert (report.keys, len(report.left)) == ([], 2)
    assert "sealed to other recipients" in report.left[0]["why"]
    assert file.read_bytes() == before


def test_authentic_writers_refuse_recipients(tmp_path: Path, ring: bs.Keyring) -> None:
    strict = policy(tmp_path / "s.toml", ring.recipient("pii"), more="authentic_writers = true")
    with pytest.raises(PolicyError, match="public key"):
        bs.write_table(ROWS, tmp_path / "a.parquet", policy=strict)


def test_other_master_keys_stay_with_the_kms(tmp_path: Path, ring: bs.Keyring) -> None:
    ring.create("footer")
    text = POLICY.format(kms='kms = "keyring:reader.json"', lines=json.dumps([ring.recipient("pii")]), more="")
    mixed = tmp_path / "mixed.toml"
    mixed.write_text(text.replace('footer_key = "pii"', 'footer_key = "footer"'))
    bs.write_table(ROWS, tmp_path / "a.parquet", policy=mixed)
    assert bs.read_table(tmp_path / "a.parquet", policy=mixed) == ROWS
    mixed.write_text(mixed.read_text().replace('kms = "keyring:reader.json"', ""))
    with pytest.raises(bs.UsageError, match="BLOOMSEAL_KEYRING"):
        bs.write_table(ROWS, tmp_path / "b.parquet", policy=mixed)


def test_policies_that_make_no_sense(tmp_path: Path, ring: bs.Keyring) -> None:
    ring.create("small", kind="x25519")
    line = ring.recipient("pii")
    for lines, match in (
        ([line, line], "twice"),
        ([line, ring.recipient("small")], "several kinds"),
        ([line[:-1]], "not a recipient"),
        ([f"{line[:9]}A{line[10:]}" if line[9] != "A" else f"{line[:9]}B{line[10:]}"], "not a recipient"),
    ):
        with pytest.raises(PolicyError, match=match) as caught:
            bs.Policy.load(policy(tmp_path / "x.toml", *lines))
        assert "keys.pii" in str(caught.value)


def test_the_uri_makes_the_same_client(ring: bs.Keyring) -> None:
    made = RecipientsKms({"pii": [ring.recipient("pii")]}, f"keyring:{ring.path}")
    same = client_for(made.uri)
    assert ring.unwrap_key(same.wrap_key(bytes(16), "pii"), "pii") == bytes(16)
    assert same.unwrap_key(made.wrap_key(bytes(16), "pii"), "pii") == bytes(16)
    with pytest.raises(bs.UsageError):
        client_for("recipients:nonsense")


def test_pyarrows_own_key_tools_write_and_read(tmp_path: Path, ring: bs.Keyring, reader: Path) -> None:
    import pyarrow.parquet.encryption as pe

    class Client(pe.KmsClient):
        def __init__(self, kms: RecipientsKms | bs.Keyring) -> None:
            pe.KmsClient.__init__(self)
            self.kms = kms

        def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
            return self.kms.wrap_key(key_bytes, master_key_identifier)

        def unwrap_key(self, wrapped_key: str | bytes, master_key_identifier: str) -> bytes:
            text = wrapped_key.decode() if isinstance(wrapped_key, bytes) else wrapped_key
            return self.kms.unwrap_key(text, master_key_identifier)

    file, connection = tmp_path / "a.parquet", pe.KmsConnectionConfig()
    writing = pe.CryptoFactory(lambda _: Client(RecipientsKms({"pii": [ring.recipient("pii")]})))
    reading = pe.CryptoFactory(lambda _: Client(ring))
    config = pe.EncryptionConfiguration(footer_key="pii", column_keys={"pii": ["ssn"]})
    with pq.ParquetWriter(
        file, ROWS.schema, encryption_properties=writing.file_encryption_properties(connection, config)
    ) as out:
        out.write_table(ROWS)
    assert bs.read_table(file, policy=reader) == ROWS
    bs.write_table(ROWS, file, policy=reader)
    opened = reading.file_decryption_properties(connection, pe.DecryptionConfiguration())
    assert pq.read_table(file, decryption_properties=opened) == ROWS


def test_a_table_is_rewrapped_with_a_journal(tmp_path: Path, writer: Path, ring: bs.Keyring) -> None:
    folder = tmp_path / "people"
    for number in range(3):
        bs.write_dataset(ROWS, folder, policy=writer, mode="append" if number else "error")
    ring.rotate("pii")
    now = policy(tmp_path / "now.toml", ring.recipient("pii"), kms="keyring:reader.json")
    report = rotate(folder, Rewrap(bs.Policy.load(now).for_table()), journal=tmp_path / "journal.jsonl")
    assert [one.status for one in report.files] == [Status.REWRAPPED] * 3
    again = rotate(folder, Rewrap(bs.Policy.load(now).for_table()), journal=tmp_path / "second.jsonl")
    assert {one.status for one in again.files} <= {Status.NOTHING}
    ring.destroy("pii", 1)
    assert bs.read_table(folder, policy=now).num_rows == 9


def test_rekey_makes_new_keys_for_the_recipients(tmp_path: Path, writer: Path, reader: Path) -> None:
    file = tmp_path / "a.parquet"
    bs.write_table(ROWS, file, policy=writer)
    before = file.read_bytes()
    bs.rekey(file, decryption=bs.Policy.load(reader), encryption=bs.Policy.load(reader))
    assert file.read_bytes() != before
    assert bs.read_table(file, policy=reader) == ROWS
    with pytest.raises(KmsAccessError, match="this policy only writes"):
        bs.rekey(file, decryption=bs.Policy.load(writer), encryption=bs.Policy.load(writer))


def test_files_that_no_index_covers_are_found(tmp_path: Path, ring: bs.Keyring) -> None:
    folder = tmp_path / "people"
    text = POLICY.replace("filter = true", "filter = true, index = true")
    writer, reader = tmp_path / "w.toml", tmp_path / "r.toml"
    lines = json.dumps([ring.recipient("pii")])
    writer.write_text(text.format(kms="", lines=lines, more="complete = true"))
    reader.write_text(text.format(kms='kms = "keyring:reader.json"', lines=lines, more="complete = true"))
    bs.write_dataset(ROWS, folder, policy=writer)
    assert not (folder / "_bloomseal_index").exists()
    table = bs.open_table(folder, policy=reader)
    assert table.index("ssn").build().ok
    late = pa.table({"ssn": ["late"], "n": [9]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bs.write_table(late, folder / "late.parquet", policy=writer)
        bs.write_dataset(pa.table({"ssn": ["later"], "n": [9]}), folder, policy=writer, mode="append")
    table = bs.open_table(folder, policy=reader)
    for value in ("a", "late", "later"):
        assert table.read(where=[("ssn", "==", value)]).num_rows == 1, value
    assert table.index("ssn").show().covered == 1
    assert table.index("ssn").update().ok
    assert table.index("ssn").show().covered == 3


def test_a_policy_that_an_option_names_states_no_recipients(tmp_path: Path, reader: Path) -> None:
    options = pytest.importorskip("bloomseal.spark.source.options")
    named = options._optional_policy(str(reader), None)
    assert named.tables["people"].recipients == {}


def test_nobody_with_the_line_says_what_an_index_holds(tmp_path: Path, ring: bs.Keyring) -> None:
    """Whoever has the line can seal a manifest that opens, and would have rows left out of files that are genuine."""
    folder, lines = tmp_path / "people", json.dumps([ring.recipient("pii")])
    text = POLICY.replace("filter = true", "index = true")
    (tmp_path / "r.toml").write_text(
        text.format(kms='kms = "keyring:reader.json"', lines=lines, more="complete = true")
    )
    reader = bs.Policy.load(tmp_path / "r.toml").for_table()
    bs.write_dataset(ROWS, folder, policy=reader)
    table = bs.open_table(folder, policy=reader)
    assert table.index("ssn").show().covered == 1
    assert table.read(where=[("ssn", "==", "a")]).num_rows == 1
    place = folder / "_bloomseal_index" / "ssn" / "manifest.parquet"
    genuine = bs.open_file(place, decryption=bs.DecryptionSpec(keys=ring))
    rows = genuine.read()  # what a forger would make by himself
    genuine.close()
    line_only = bs.EncryptionSpec("pii", {"ssn": "pii"}, RecipientsKms({"pii": [ring.recipient("pii")]}))
    bs.write_table(rows, place, encryption=line_only, bloom_filters={})
    assert bs.read_table(place, decryption=bs.DecryptionSpec(keys=ring)).num_rows == rows.num_rows, "it opens"
    table = bs.open_table(folder, policy=reader)
    with pytest.raises(PolicyError, match="anybody can have written"):
        table.index("ssn").show()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert table.read(where=[("ssn", "==", "a")]).num_rows == 1
    assert table.index("ssn").rebuild().ok


def test_an_index_outlives_a_rewrap(tmp_path: Path, ring: bs.Keyring) -> None:
    folder, lines = tmp_path / "people", json.dumps([ring.recipient("pii")])
    text = POLICY.replace("filter = true", "index = true")
    (tmp_path / "r.toml").write_text(
        text.format(kms='kms = "keyring:reader.json"', lines=lines, more="complete = true")
    )
    bs.write_dataset(ROWS, folder, policy=tmp_path / "r.toml")
    ring.rotate("pii")
    lines = json.dumps([ring.recipient("pii")])
    (tmp_path / "r.toml").write_text(
        text.format(kms='kms = "keyring:reader.json"', lines=lines, more="complete = true")
    )
    reader = bs.Policy.load(tmp_path / "r.toml").for_table()
    rotate(folder, Rewrap(reader), journal=tmp_path / "journal.jsonl")
    assert bs.open_table(folder, policy=reader).index("ssn").show().covered == 1
    table = bs.open_table(folder, policy=reader, use_index="require")
    assert table.read(where=[("ssn", "==", "b")]).num_rows == 1


@pytest.mark.parametrize(
    "more",
    [
        {"keys": {"pii": {"recipients": []}}},
        {"tables": {"people": {"footer_key": "pii", "signers": {}}}},
        {"tables": {"people": {"footer_key": "pii", "signers": {"a": []}}}},
    ],
)
def test_whoever_takes_out_the_last_one_does_not_let_everybody_in(more: dict[str, object]) -> None:
    document = {"version": 1, "kms": "keyring:keys.json", "tables": {"people": {"footer_key": "pii"}}, **more}
    with pytest.raises(PolicyError, match=r"without any|one public key"):
        bs.Policy.from_dict(document)
