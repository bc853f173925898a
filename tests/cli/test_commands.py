"""Each command does its job, says so as a table and as JSON, and exits as documented."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from tests.support import int96_files

import bloomseal as bs
from bloomseal.cli.main import cli

from .conftest import Run, bloomseal


def test_probe_answers_like_grep(sealed: Run) -> None:
    present = sealed("probe", "people.parquet", "ssn", "078-05-1120")
    absent = sealed("probe", "people.parquet", "ssn", "078-05-1121")
    error = sealed("probe", "people.parquet", "no such column", "x")
    assert (present.code, absent.code, error.code) == (0, 1, 2)
    assert "maybe present" in present.out
    assert "absent" in absent.out
    assert "no such column" in error.err
    assert error.out == ""


def test_probe_says_which_row_groups_to_read(sealed: Run) -> None:
    answer = sealed("probe", "people.parquet", "ssn", "457-55-5462", "000-00-0000", "--format", "json").json
    assert answer["maybe_present"] is True
    assert [one["verdict"] for one in answer["values"]] == ["maybe present", "absent"]
    assert answer["values"][0]["row_groups"] == ["absent", "maybe present"]


@pytest.mark.parametrize(
    ("column", "present", "absent"),
    [
        ("born", "1984-03-07", "1984-03-08"),
        ("balance", "-3", "-3.5"),
        ("score", "0", "0.75"),  # the file holds -0.0
        ("seen", "2025-01-02T03:04:05+00:00", "2025-01-02T03:04:06Z"),
        ("seen", "2025-01-02T05:04:05+02:00", "2025-01-02T03:04:05.000001Z"),
        ("name", "Zoë", "Zoe"),
    ],
)
def test_values_are_read_by_the_footers_type(sealed: Run, column: str, present: str, absent: str) -> None:
    assert sealed("probe", "people.parquet", column, "--quiet", "--", present).code == 0
    assert sealed("probe", "people.parquet", column, "--quiet", "--", absent).code == 1


def test_probed_values_can_come_from_a_file_or_standard_input(sealed: Run, folder: Path) -> None:
    (folder / "wanted.txt").write_text("000-00-0000\r\n\n078-05-1120\n")
    answer = sealed("probe", "people.parquet", "ssn", "--values-from", "wanted.txt", "--format", "json").json
    assert [one["verdict"] for one in answer["values"]] == ["absent", "maybe present"]
    piped = bloomseal("probe", "people.parquet", "ssn", "--values-from", "-", input="000-00-0000\n")
    assert piped.returncode == 1


def test_a_column_without_filter_is_no_proof_of_absence(sealed: Run) -> None:
    answer = sealed("probe", "people.parquet", "token", "nowhere", "--format", "json")
    assert answer.code == 0
    assert answer.json["values"][0]["verdict"] == "no filter"


def test_read_as_table_json_lines_and_csv(sealed: Run) -> None:
    where = ("read", "people.parquet", "--where", "ssn = '219-09-9999'", "--columns", "name,balance,seen")
    table, rows, text = sealed(*where), sealed(*where, "--format", "json"), sealed(*where, "--format", "csv")
    assert "Bob" in table.out
    assert "Ada" not in table.out
    assert rows.rows == [{"name": "Bob", "balance": "7.25", "seen": "2025-02-03T04:05:06+00:00"}]
    assert text.out.splitlines()[0] == '"name","balance","seen"'
    assert text.out.splitlines()[1].startswith('"Bob",7.25,')


def test_read_takes_values_from_a_file_and_tells_what_was_pruned(sealed: Run, folder: Path) -> None:
    (folder / "wanted.txt").write_text("457-55-5462\n000-00-0000\n", encoding="utf-8")
    answer = sealed("read", "people.parquet", "--where-in", "ssn=wanted.txt", "--format", "json", "--stats")
    assert [row["name"] for row in answer.rows] == ["Eve"]
    assert "2 row groups" in answer.err
    assert "1 decoded; 1 row" in answer.err


def test_read_limits_rows_and_says_so(sealed: Run) -> None:
    answer = sealed("read", "people.parquet", "--limit", "1")
    assert answer.err.startswith("the first 1 row; ")
    assert "Bob" not in answer.out


def test_few_wide_rows_are_printed_one_field_per_line(run: Run) -> None:
    wide = {f"column {number}": ["x" * 20, None] for number in range(12)}
    pq.write_table(pa.table(wide), "wide.parquet")
    lines = [line.split() for line in run("read", "wide.parquet").out.splitlines() if line]
    assert lines[:2] == [["row", "1"], ["column", "0", "x" * 20]]
    assert lines[13:15] == [["row", "2"], ["column", "0"]]
    assert "row 1" not in run("read", "wide.parquet", "--columns", "column 0,column 1").out


def test_count_and_head(sealed: Run) -> None:
    assert sealed("count", "people.parquet").out == "4\n"
    assert sealed("count", "people.parquet", "--where", "ssn = '219-09-9999'", "--format", "json").json == {"rows": 1}
    assert sealed("count", "people.parquet", "--where", "name = 'Nobody'").out == "0\n"
    assert [row["name"] for row in sealed("head", "people.parquet", "-n", "2", "--format", "json").rows] == [
        "Ada",
        "Bob",
    ]
    refused = sealed("count", "people.parquet", "--kms", "keyring:elsewhere.json")
    assert refused.code == 2


@pytest.mark.parametrize("name", ["out.parquet", "out.csv", "out.ndjson", "out.arrow"])
def test_plaintext_goes_to_a_file_only_when_asked_and_says_so(sealed: Run, folder: Path, name: str) -> None:
    answer = sealed("read", "people.parquet", "--output", name)
    assert answer.code == 0
    assert "in plaintext" in answer.err
    assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    rows = {
        ".parquet": pq.read_table,
        ".arrow": feather.read_table,
        ".csv": csv.read_csv,
        ".ndjson": lambda path: pa.Table.from_pylist([json.loads(line) for line in path.open(encoding="utf-8")]),
    }[Path(name).suffix]
    assert rows(folder / name).column("name").to_pylist() == ["Ada", "Bob", "Eve", "Zoë"]
    assert [path.name for path in folder.iterdir() if path.name.startswith(".out")] == []


def test_verify_reports_and_fails_on_altered_bytes(sealed: Run, folder: Path) -> None:
    sound = sealed("verify", "people.parquet", "--format", "json")
    assert (sound.code, sound.json["ok"], sound.json["complete"]) == (0, True, True)
    assert sealed("verify", "people.parquet", "--strict").code == 0
    data = bytearray((folder / "people.parquet").read_bytes())
    with bs.open_file("people.parquet", decryption=bs.DecryptionSpec(bs.Keyring("keys.json"))) as opened:
        offset, length = opened.walk.extent(opened.walk.chunk(0, 0))
    data[offset + length - 1] ^= 1  # the tag of the last page of row group 0, column name
    (folder / "altered.parquet").write_bytes(data)
    altered = sealed("verify", "altered.parquet")
    assert altered.code == 1
    assert "failed" in altered.out
    assert "column name" in altered.out
    both = sealed("verify", "altered.parquet", "people.parquet")
    assert both.code == 1
    # What is sound is counted, not listed.
    assert ("altered.parquet" in both.out, "people.parquet" in both.out) == (True, False)
    assert "failed: 1 of 2 files" in both.out
    assert "people.parquet" in sealed("verify", "altered.parquet", "people.parquet", "--verbose").out


def test_verify_strict_fails_on_what_was_not_proven(sealed: Run) -> None:
    assert (
        sealed(
            "write",
            "people.csv",
            "open.parquet",
            "--footer-key",
            "footer",
            "--column-key",
            "ssn=pii",
            "--plaintext-footer",
        ).code
        == 0
    )
    assert sealed("verify", "open.parquet").code == 0
    strict = sealed("verify", "open.parquet", "--strict", "--format", "json")
    assert strict.code == 1
    assert strict.json["unauthenticated"]


def test_show_without_keys_shows_what_anybody_sees(sealed: Run) -> None:
    hidden = sealed("show", "people.parquet", "--without-keys", "--format", "json").json
    assert (hidden["footer"], hidden["columns"], hidden["num_rows"]) == ("encrypted", None, None)
    sealed(
        "write",
        "people.csv",
        "open.parquet",
        "--footer-key",
        "footer",
        "--column-key",
        "ssn=pii",
        "--plaintext-footer",
        "--bloom-filter",
        "ssn",
    )
    open_footer = sealed("show", "open.parquet", "--without-keys", "--format", "json").json
    assert open_footer["num_rows"] == 4
    by_name = {column["column"]: column for column in open_footer["columns"]}
    assert by_name["ssn"]["filter"] == "not visible"
    assert by_name["ssn"]["exposed"] == []
    table = sealed("show", "open.parquet", "--without-keys").out
    assert "master key pii" in table
    assert "hidden" in table


def test_show_tells_a_key_holder_what_the_keys_open(sealed: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = sealed("show", "people.parquet", "--format", "json").json
    assert (seen["num_rows"], seen["num_row_groups"], seen["refused"], seen["hidden"]) == (4, 2, None, [])
    by_name = {column["column"]: column for column in seen["columns"]}
    assert (by_name["ssn"]["protection"], by_name["ssn"]["filter"]) == ("column key", "sealed")
    assert by_name["ssn"]["key"].startswith("master key pii")
    assert (by_name["token"]["protection"], by_name["token"]["filter"]) == ("footer key", "none")
    assert all(column["exposed"] == [] for column in seen["columns"])
    assert sealed("keyring", "create", "--keyring", "other.json", "elsewhere").code == 0
    other = sealed("show", "people.parquet", "--keyring", "other.json", "--format", "json").json
    assert other["num_rows"] is None
    assert "footer" in other["refused"]
    # Keys that happen to be at hand say nothing of a plaintext file.
    pq.write_table(pa.table({"n": [1]}), "plain.parquet")
    assert sealed("show", "plain.parquet", "--format", "json").json["refused"] is None


def test_attach_reports_and_attaches(sealed: Run, folder: Path) -> None:
    before = (folder / "people.parquet").read_bytes()
    dry = sealed("attach", "people.parquet", "--bloom-filter", "token:fpp=0.001", "--dry-run", "--format", "json")
    assert dry.json["dry_run"] is True
    assert (folder / "people.parquet").read_bytes() == before
    done = sealed("attach", "people.parquet", "--bloom-filter", "token:fpp=0.001", "--format", "json")
    assert [one["column"] for one in done.json["filters"]] == ["token", "token"]
    assert all(one["sealed"] for one in done.json["filters"])
    assert sealed("probe", "people.parquet", "token", "b2", "-q").code == 0
    assert sealed("probe", "people.parquet", "token", "b3", "-q").code == 1
    assert "token" in sealed("attach", "people.parquet", "--bloom-filter", "token").out


@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow", "arrow stream", "ndjson"])
def test_write_takes_every_kind_of_input(sealed: Run, folder: Path, kind: str) -> None:
    rows = pa.table({"id": pa.array(range(1000), pa.int64()), "ssn": [f"{i:09d}" for i in range(1000)]})
    source, types = folder / f"in.{kind.split()[0]}", ("--type", "ssn=string")
    match kind:
        case "csv":
            source.write_text("id,ssn\n" + "".join(f"{i},{i:09d}\n" for i in range(1000)))
        case "parquet":
            pq.write_table(rows, source, row_group_size=100)
        case "arrow":
            feather.write_feather(rows, source, compression="uncompressed")
        case "arrow stream":
            with pa.ipc.new_stream(source, rows.schema) as writer:
                writer.write_table(rows, max_chunksize=100)
        case _:
            source.write_text("".join(json.dumps(row) + "\n" for row in rows.to_pylist()))
    done = sealed(
        "write", str(source), "out.parquet", *types, "--footer-key", "footer", "--bloom-filter", "ssn", "--row-group-size", "300", "--format", "json"
    )  # fmt: skip
    assert (done.code, done.err) == (0, "")
    assert (done.json["rows"], done.json["row_groups"]) == (1000, 4)
    assert {column["column"]: column["protection"] for column in done.json["columns"]} == {
        "id": "footer key",
        "ssn": "footer key",
    }
    back = bs.read_table("out.parquet", decryption=bs.DecryptionSpec(bs.Keyring("keys.json")))
    assert back.to_pydict() == rows.to_pydict()


def test_write_reads_standard_input(sealed: Run, folder: Path) -> None:
    done = bloomseal(
        "write", "-", "out.parquet", "--input-format", "csv", "--footer-key", "footer", "--format", "json",
        input=(folder / "people.csv").read_text(encoding="utf-8"),
    )  # fmt: skip
    assert (done.returncode, json.loads(done.stdout)["rows"]) == (0, 4)


def test_write_dry_run_writes_nothing_and_checks_columns_and_keys(sealed: Run, folder: Path) -> None:
    base = ("write", "people.csv", "out.parquet", "--footer-key", "footer", "--dry-run")
    good = sealed(*base, "--column-key", "ssn=pii", "--bloom-filter", "ssn", "--format", "json")
    assert (good.code, good.json["rows"]) == (0, None)
    assert {c["column"]: c["filter"] for c in good.json["columns"]}["ssn"] == "sealed"
    assert sealed(*base, "--bloom-filter", "nowhere").code == 2
    assert sealed(*base, "--column-key", "nowhere=pii").code == 2
    assert sealed(*base, "--column-key", "ssn=unknown").code == 2
    assert sealed("keyring", "disable", "health").code == 0
    disabled = sealed(*base, "--column-key", "ssn=health")
    assert disabled.code == 2
    assert "disabled" in disabled.err
    assert not (folder / "out.parquet").exists()


def test_write_refuses_plaintext_that_nobody_asked_for(run: Run, folder: Path) -> None:
    refused = run("write", "people.csv", "out.parquet", "--bloom-filter", "ssn")
    assert refused.code == 2
    assert "--plaintext" in refused.err
    assert not (folder / "out.parquet").exists()
    for said in (
        ["--footer-key", "kf"],
        ["--algorithm", "AES_GCM_V1"],
        ["--key-bits", "256"],
        ["--no-store-aad-prefix"],
    ):
        both = run("write", "people.csv", "out.parquet", "--plaintext", *said)
        assert (both.code, "exclude one another" in both.err) == (2, True)
    asked = run("write", "people.csv", "out.parquet", "--bloom-filter", "ssn", "--plaintext", "--format", "json")
    assert asked.code == 0
    assert {c["column"]: c["filter"] for c in asked.json["columns"]}["ssn"] == "in clear"
    assert pq.read_table("out.parquet").num_rows == 4


def test_write_holds_the_aad_prefix_against_readers(sealed: Run) -> None:
    base = ("--footer-key", "footer", "--aad-prefix", "people/1", "--no-store-aad-prefix")
    assert sealed("write", "people.csv", "out.parquet", *base).code == 0
    assert sealed("verify", "out.parquet").code == 2
    assert sealed("verify", "out.parquet", "--aad-prefix", "people/2").code == 2
    assert sealed("verify", "out.parquet", "--aad-prefix", "people/1").code == 0


def test_hidden_sizes_are_all_alike_and_refuse_to_overflow(sealed: Run) -> None:
    base = ("write", "people.csv", "out.parquet", "--footer-key", "footer", "--row-group-size", "3")
    assert sealed(*base, "--bloom-filter", "ssn:ndv=1000,hide_size").code == 0
    with bs.open_file("out.parquet", decryption=bs.DecryptionSpec(bs.Keyring("keys.json"))) as opened:
        sizes = {opened.filter(group, "ssn").num_bytes for group in range(2)}  # type: ignore[union-attr]
    assert len(sizes) == 1
    assert sealed(*base, "--bloom-filter", "ssn:hide_size").code == 2


def test_explicit_keys_from_files_and_environment(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "footer.key").write_text("00112233445566778899aabbccddeeff\n")
    monkeypatch.setenv("SSN_KEY", "/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+8=")
    keys = ("--key-file", "footer=footer.key", "--key-env", "ssn=SSN_KEY")
    assert run("write", "people.csv", "out.parquet", *keys, "--bloom-filter", "ssn").code == 0
    assert run("probe", "out.parquet", "ssn", "078-05-1120", *keys, "-q").code == 0
    assert run("verify", "out.parquet", *keys).code == 0
    assert run("verify", "out.parquet", "--key-file", "footer=footer.key", "--format", "json").json[
        "inaccessible"
    ].keys() == {"ssn"}
    ids = ("--key-file", "id:kf=footer.key", "--key-env", "id:k1=SSN_KEY")
    done = run("write", "people.csv", "ids.parquet", *ids, "--footer-key", "id:kf", "--column-key", "ssn=id:k1")
    assert (done.code, done.err) == (0, "")
    assert run("read", "ids.parquet", *ids, "--format", "csv").code == 0
    assert "id kf" in run("show", "ids.parquet").out


def test_parquet_testing_files_open_with_keys_by_id(
    run: Run, parquet_test_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The keys that apache/parquet-testing publishes for its files.
    for name, key in (("KF", "0123456789012345"), ("KC1", "1234567890123450"), ("KC2", "1234567890123451")):
        monkeypatch.setenv(name, f"text:{key}")
    path = str(parquet_test_data / "encrypt_columns_and_footer_bloom_filter.parquet.encrypted")
    keys = [word for name in ("kf", "kc1", "kc2") for word in ("--key-env", f"id:{name}={name.upper()}")]
    assert run("probe", path, "double_field", "7.5", *keys).code == 0
    assert run("probe", path, "float_field", "7.26", *keys).code == 1
    assert run("verify", path, *keys).code == 0


def test_keyring_life(run: Run, folder: Path) -> None:
    ring = ("--keyring", "keys.json", "--format", "json")
    made = run("keyring", "create", "pii", *ring, "--bits", "128")
    assert made.json == [
        {
            "key": "pii",
            "version": 1,
            "state": "enabled",
            "bits": 128,
            "created": made.json[0]["created"],
            "wraps": True,
            "kind": "aes",
        }
    ]
    assert "no passphrase" in made.err
    assert stat.S_IMODE((folder / "keys.json").stat().st_mode) == 0o600
    assert run("keyring", "create", *ring).code == 2
    assert run("keyring", "add", "pii", *ring).code == 2
    assert [key["bits"] for key in run("keyring", "add", "footer", *ring).json] == [256]
    assert [key["wraps"] for key in run("keyring", "rotate", "pii", *ring).json] == [False, True]
    assert run("keyring", "disable", "pii", "--version", "1", *ring).json[0]["state"] == "disabled"
    assert run("keyring", "enable", "pii", *ring).json[0]["state"] == "enabled"
    assert (
        run("keyring", "destroy", "pii", "--version", "1", "--yes", "--without-evidence", *ring).json[0]["state"]
        == "destroyed"
    )
    assert run("keyring", "enable", "pii", "--version", "1", *ring).code == 2
    assert [key["key"] for key in run("keyring", "list", *ring).json] == ["footer", "pii", "pii"]
    assert "enabled" in run("keyring", "list", "--keyring", "keys.json").out


def test_destroying_asks_first(sealed: Run) -> None:
    refused = bloomseal("keyring", "destroy", "pii", "--without-evidence", input="n\n")
    assert refused.returncode == 130
    assert sealed("probe", "people.parquet", "ssn", "078-05-1120", "-q").code == 0
    assert bloomseal("keyring", "destroy", "pii", "--without-evidence", input="y\n").returncode == 0
    gone = sealed("probe", "people.parquet", "ssn", "078-05-1120")
    assert gone.code == 2
    assert "destroyed" in gone.err


def test_a_passphrase_from_file_or_environment(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "secret").write_text("correct horse\n")
    base = ("--keyring", "keys.json")
    made = run("keyring", "create", "footer", *base, "--passphrase-file", "secret")
    assert (made.code, made.err) == (0, "")
    assert run("keyring", "list", *base).code == 2
    assert (
        run("write", "people.csv", "out.parquet", *base, "--passphrase-file", "secret", "--footer-key", "footer").code
        == 0
    )
    monkeypatch.setenv("BLOOMSEAL_KEYRING_PASSPHRASE", "correct horse")
    assert run("verify", "out.parquet", *base).code == 0
    monkeypatch.setenv("BLOOMSEAL_KEYRING_PASSPHRASE", "wrong horse")
    wrong = run("verify", "out.parquet", *base)
    assert wrong.code == 2
    assert "horse" not in wrong.err


def test_one_key_is_exported(sealed: Run, folder: Path) -> None:
    (folder / "theirs").write_text("theirs")
    export = ("keyring", "export", "--only", "pii", "--output", "partner.json")
    refused = sealed(*export)
    assert refused.code == 2
    assert "--new-passphrase-file PATH, or --no-passphrase" in refused.err
    done = sealed(*export, "--new-passphrase-file", "theirs", "--format", "json")
    assert (done.code, [key["key"] for key in done.json]) == (0, ["pii"])
    assert done.err == "pii: version 1 copied to partner.json\n"
    assert sealed(*export, "--new-passphrase-file", "theirs").code == 2
    partner = ("--keyring", "partner.json", "--passphrase-file", "theirs")
    assert sealed("read", "people.parquet", *partner).code == 2  # the footer's key is not theirs
    assert [key["key"] for key in sealed("keyring", "list", *partner, "--format", "json").json] == ["pii"]


def test_a_passphrase_is_changed_and_removed_by_its_own_command_only(run: Run, folder: Path) -> None:
    for name in ("first", "second"):
        (folder / name).write_text(name)
    assert "no passphrase" in run("keyring", "create", "pii", "--keyring", "k.json").err
    change = ("keyring", "passphrase", "--keyring", "k.json")
    assert run("keyring", "rotate", "pii", "--keyring", "k.json", "--passphrase-file", "first").code == 2
    assert run(*change, "--new-passphrase-file", "first").code == 0
    assert run("keyring", "list", "--keyring", "k.json").code == 2
    assert run(*change, "--passphrase-file", "first", "--new-passphrase-file", "second").code == 0
    assert run(*change, "--passphrase-file", "first", "--remove").code == 2
    assert run(*change, "--remove", "--new-passphrase-file", "first").code == 2
    assert json.loads((folder / "k.json").read_text())["protection"] is not None
    removed = run(*change, "--passphrase-file", "second", "--remove")
    assert removed.code == 0
    assert "no passphrase" in removed.err
    assert run("keyring", "list", "--keyring", "k.json").code == 0


def test_a_kms_uri_instead_of_a_keyring_file(sealed: Run, folder: Path) -> None:
    del os.environ["BLOOMSEAL_KEYRING"]
    assert sealed("verify", "people.parquet", "--kms", f"keyring://{folder}/keys.json").code == 0
    assert sealed("verify", "people.parquet", "--kms", "nowhere://x").code == 2


def test_verbose_tells_what_the_kms_was_asked(sealed: Run) -> None:
    told = sealed("probe", "people.parquet", "ssn", "078-05-1120", "--verbose")
    assert "KMS: " in told.err
    assert "unwraps 2" in told.err  # the footer's key and pii's
    as_json = sealed("verify", "people.parquet", "-v", "--format", "json")
    assert json.loads(as_json.err)["kms"]["unwraps"] == 2


def test_every_command_is_listed_and_explains_itself(run: Run) -> None:
    listing = run("--help")
    assert listing.code == 0
    for name in cli.list_commands(None):  # type: ignore[arg-type]
        assert name in listing.out
        assert "Example" in run(name, "--help").out
    assert run("--version").out.strip() == f"bloomseal, version {bs.__version__}"


def test_usage_errors_are_errors_not_answers(sealed: Run) -> None:
    for arguments in (
        ["probe", "people.parquet"],
        ["probe", "people.parquet", "ssn"],
        ["nonsense"],
        ["verify", "--nonsense", "x"],
    ):
        assert sealed(*arguments).code == 2
        told = json.loads(sealed(*arguments, "--format", "json").err)
        assert told["error"] == "UsageError"
        assert told["hint"]


def test_moments_beyond_nanoseconds_name_the_option_that_reads_them(run: Run, folder: Path) -> None:
    (folder / "old.parquet").write_bytes(int96_files.file_of([int96_files.of(int96_files.FAR)]))
    refused = run("read", "old.parquet")
    assert (refused.code, refused.out) == (2, "")
    assert "--int96-unit us" in refused.err
    assert "9999-12-31" in run("read", "old.parquet", "--int96-unit", "us").out


def test_a_closed_output_is_an_error(sealed: Run, folder: Path) -> None:
    command = f"'{sys.executable}' -m bloomseal inspect people.parquet >&-"
    done = subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, "closed" in done.stderr) == (2, True)


def test_write_refuses_an_encrypted_input(sealed: Run) -> None:
    refused = sealed("write", "people.parquet", "out.parquet", "--footer-key", "footer")
    assert refused.code == 2
    assert "the input is an encrypted file" in refused.err


def test_write_holds_a_bounded_part_of_its_input(sealed: Run, folder: Path) -> None:
    def peak(rows: int) -> int:
        with open("long.csv", "w") as file:
            file.write("id,text\n")
            file.writelines(f"{i},some text to make the line longer {i:040d}\n" for i in range(rows))
        script = (
            "import resource; from bloomseal.cli.main import main\n"
            "assert main(['write', 'long.csv', 'long.parquet', '--footer-key', 'footer', '--row-group-size', '50000']) == 0\n"
            "print('peak', resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        unit = 1 if sys.platform == "darwin" else 1024
        return int(done.stdout.split()[-1]) * unit

    few, size = peak(1_000_000), (folder / "long.csv").stat().st_size
    many, longer = peak(2_250_000), (folder / "long.csv").stat().st_size
    assert many - few < (longer - size) / 2


def test_the_package_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "bloomseal", "--help"], capture_output=True, text=True, check=True)
    assert "Usage: bloomseal" in done.stdout


def test_no_option_takes_the_place_of_another() -> None:
    """Options of one name in Python are one to click: the last word would count for both."""

    def every(group: click.Group) -> Iterator[click.Command]:
        for name in group.list_commands(click.Context(group)):
            command = group.get_command(click.Context(group), name)
            assert command is not None
            yield from every(command) if isinstance(command, click.Group) else (command,)

    for command in every(cli):
        names = [one.name for one in command.params if one.expose_value]
        assert len(names) == len(set(names)), command.name


def test_a_recipient_writes_for_a_reader_and_keys_are_handed_over(run: Run, folder: Path) -> None:
    reader, partner = ("--keyring", "reader.json"), ("--keyring", "partner.json")
    assert run("keyring", "create", "pii", "--kind", "hpke", *reader).code == 0
    assert run("keyring", "create", "me", "--kind", "x25519", *partner).code == 0
    told = run("keyring", "recipient", "pii", *reader, "--format", "json").json
    assert told["recipient"] == run("keyring", "recipient", "pii", *reader).out.strip()
    assert (told["algorithm"], told["post_quantum"]) == ("ML-KEM-768+X25519", True)
    (folder / "me").write_text(run("keyring", "recipient", "me", *partner).out)
    handed = ("keyring", "export", "--only", "pii", "--output", "pii.sealed", *reader)
    assert run(*handed, "--recipient", "me", "--no-passphrase").code == 2
    assert run(*handed, "--recipient", "nowhere").code == 2
    assert run(*handed, "--recipient", "me").code == 0
    assert run("keyring", "import", "pii.sealed", *reader).code == 2
    assert run("keyring", "import", "pii.sealed", *partner, "--format", "json").json[0]["kind"] == "hpke"
    policy = f'version = 1\nkeys.pii.recipients = ["{told["recipient"]}"]\ntables.t.footer_key = "pii"\n'
    (folder / "w.toml").write_text(policy)
    (folder / "rows.csv").write_text("a,b\n1,2\n")
    assert run("write", "rows.csv", "t.parquet", "--policy", "w.toml").code == 0
    refused = run("head", "t.parquet", "--policy", "w.toml")
    assert refused.code == 2
    assert "this policy only writes" in refused.err
    assert "1" in run("head", "t.parquet", "--policy", "w.toml", *partner).out
    checks = run("doctor", "--policy", "w.toml", "--format", "json").json
    assert [one["state"] for one in checks["checks"] if "recipients" in one["found"]] == ["ok"]
