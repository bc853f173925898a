"""Commands on tables: folders, patterns and policies wherever a file is taken."""

from __future__ import annotations

import csv
import gzip
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bloomseal as bs

from .conftest import Run

POLICY = """\
version = 1
kms = "keyring:FOLDER/keys.json"
[tables.people]
footer_key = "footer"
partition_by = ["country"]
aad_prefix = "{table}/{path}/"
store_aad_prefix = false
complete = true
[tables.people.columns.ssn]
key = "pii"
filter = true
[tables.plain]
footer_key = "footer"
[tables.mixed]
footer_key = "footer"
[tables.mixed.columns.ssn]
key = "pii"
[tables.other]
footer_key = "pii"
"""
NAMED = ("--policy", "policy.toml", "--table", "people")


@pytest.fixture
def lake(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run`, beside policy.toml, keys.json, and the folder lake: three countries, the last with a column more."""
    assert run("keyring", "create", "--keyring", "keys.json", "footer", "pii").code == 0
    (folder / "policy.toml").write_text(POLICY.replace("FOLDER", str(folder)))
    for number, country in enumerate(["DE", "FR", "XX"]):
        rows = [{"id": number * 10 + i, "ssn": f"{number * 10 + i:03d}-11-0000"} for i in range(10)]
        late = [row | {"late": f"l{row['id'] % 3}"} for row in rows] if number == 2 else rows
        text = folder / "part.ndjson"
        text.write_text("".join(json.dumps(row) + "\n" for row in late))
        path = folder / "lake" / f"country={country}"
        path.mkdir(parents=True)
        done = run(
            "write", "part.ndjson", str(path / "0.parquet"), *NAMED, "--table-root", "lake", "--row-group-size", "5"
        )
        assert (done.code, done.err) == (0, "")
    return run


def test_read_takes_a_table_with_its_folders_columns(lake: Run) -> None:
    done = lake("read", "lake", *NAMED, "--where", "id in (3, 25) or country = 'FR' and id < 12", "--format", "json")
    assert (done.code, done.err) == (0, "")
    assert done.rows == [
        {"id": 3, "ssn": "003-11-0000", "late": None, "country": "DE"},
        {"id": 10, "ssn": "010-11-0000", "late": None, "country": "FR"},
        {"id": 11, "ssn": "011-11-0000", "late": None, "country": "FR"},
        {"id": 25, "ssn": "025-11-0000", "late": "l1", "country": "XX"},
    ]
    pattern = lake("read", "lake/*/0.parquet", *NAMED, "--table-root", "lake", "--where", "ssn = '025-11-0000'",
                   "--columns", "id", "--stats", "--format", "csv")  # fmt: skip
    assert pattern.out == '"id"\n25\n'
    assert pattern.err == "6 row groups: 5 ruled out by statistics, 0 by filters, 1 decoded; 1 row\n"


def test_a_file_below_the_table_needs_the_tables_folder(lake: Run) -> None:
    file = "lake/country=DE/0.parquet"
    refused = lake("read", file, *NAMED)
    assert refused.code == 2
    assert "--table-root FOLDER" in refused.err
    assert len(lake("read", file, *NAMED, "--table-root", "lake", "--format", "json").rows) == 10
    # A file in another one's place has another prefix.
    Path("lake/country=FR/0.parquet").write_bytes(Path(file).read_bytes())
    assert lake("read", "lake", *NAMED).code == 2


@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz", "out.ndjson", "out.arrow", "out.parquet"])
def test_a_table_streams_into_every_kind_of_file(lake: Run, name: str) -> None:
    done = lake("read", "lake", *NAMED, "--output", name)
    assert (done.code, done.err) == (0, f"30 rows written in plaintext to {name}\n")
    path = Path(name)
    if "csv" in name:
        with gzip.open(path, "rt") if name.endswith(".gz") else path.open() as file:
            rows = [{key: value or None for key, value in row.items()} for row in csv.DictReader(file)]
    elif name.endswith("ndjson"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
    elif name.endswith("arrow"):
        rows = pa.ipc.open_file(path).read_all().to_pylist()
    else:
        assert pq.ParquetFile(path).num_row_groups == 1
        rows = pq.read_table(path).to_pylist()
    assert [int(row["id"]) for row in rows] == list(range(30))
    assert [row["late"] for row in rows[19:22]] == [None, "l2", "l0"]
    assert rows[0]["country"] == "DE"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_limit_ends_the_stream(lake: Run) -> None:
    bad = Path("lake/country=XX/0.parquet")
    data = bytearray(bad.read_bytes())
    data[40] ^= 1
    bad.write_bytes(data)
    # Nobody reads as far as the broken last file.
    for chosen in ((), ("--where", "id >= 0"), ("--stats",)):
        few = lake("read", "lake", *NAMED, *chosen, "--limit", "3", "--format", "json")
        assert (few.code, len(few.rows)) == (0, 3)
        assert "the first 3 rows" in lake("read", "lake", *NAMED, *chosen, "--limit", "3").err
    assert lake("read", "lake", *NAMED, "--format", "json").code == 2


def test_rows_of_a_table_are_counted(lake: Run) -> None:
    assert lake("count", "lake", *NAMED).out == "30\n"
    assert lake("count", "lake", *NAMED, "--where", "country = 'FR' or late = 'l1'").out == "13\n"
    assert lake("count", "lake", *NAMED, "--where", "country = 'FR'").out == "10\n"


def test_a_bad_file_is_an_error_and_leaves_no_output(lake: Run) -> None:
    bad = Path("lake/country=XX/0.parquet")
    data = bytearray(bad.read_bytes())
    data[40] ^= 1
    bad.write_bytes(data)
    done = lake("read", "lake", *NAMED, "--output", "out.parquet")
    assert done.code == 2
    assert str(bad) in done.err
    assert not [path for path in Path().iterdir() if "out" in path.name]


def test_probe_counts_the_files_to_read(lake: Run) -> None:
    done = lake("probe", "lake", "ssn", "025-11-0000", "025-11-000x", *NAMED, "--format", "json")
    assert done.code == 0
    first, second = done.json["values"]
    assert (done.json["files"], done.json["row_groups"], done.json["maybe_present"]) == (3, 6, True)
    assert first == {
        "value": "025-11-0000", "verdict": "maybe present", "files_to_read": 1, "row_groups_to_read": 1,
    }  # fmt: skip
    assert (second["verdict"], second["files_to_read"]) == ("absent", 0)
    files = lake("probe", "lake", "ssn", "025-11-0000", *NAMED, "--per-file", "--format", "json").json["values"][0]
    assert files["files"] == {"lake/country=XX/0.parquet": ["absent", "maybe present"]}
    told = lake("probe", "lake", "ssn", "025-11-0000", *NAMED).out
    assert re.search(r"^  files +3 *$", told, re.MULTILINE)
    assert re.search(r"025-11-0000 +maybe present +1 +1 *$", told, re.MULTILINE)
    assert "country=XX" in lake("probe", "lake", "ssn", "025-11-0000", *NAMED, "--per-file").out
    Path("values.txt").write_text("025-11-000x\n000-00-0000\n")
    assert lake("probe", "lake", "ssn", "--values-from", "values.txt", *NAMED, "--quiet").code == 1
    assert lake("probe", "lake", "country", "DE", *NAMED).code == 2
    assert lake("probe", "lake", "id", "3", *NAMED, "--format", "json").json["values"][0] == {
        "value": "3", "verdict": "no filter", "files_to_read": 3, "row_groups_to_read": 6,
    }  # fmt: skip


def test_verify_and_attach_take_tables(lake: Run) -> None:
    assert all(one["complete"] for one in lake("verify", "lake", *NAMED, "--format", "json").json)
    attached = lake("attach", "lake", "--bloom-filter", "id", *NAMED, "--format", "json")
    assert [one["path"] for one in attached.json] == [f"lake/country={name}/0.parquet" for name in ("DE", "FR", "XX")]
    assert lake("probe", "lake", "id", "77", *NAMED, "--quiet").code == 1


def test_show_sums_a_table_up(lake: Run) -> None:
    seen = lake("show", "lake", *NAMED, "--format", "json").json
    assert (seen["files"], seen["rows"], seen["row_groups"], seen["folders"]) == (3, 30, 6, ["country"])
    by_name = {column["column"]: column for column in seen["columns"]}
    assert (by_name["ssn"]["protection"], by_name["ssn"]["filter"]) == ("column key", "sealed")
    assert by_name["late"]["files"] == 1
    assert by_name["ssn"]["index"] is None
    assert lake("index", "build", "lake", "--column", "ssn", *NAMED).code == 0
    for file in Path("lake").rglob("*.parquet"):
        assert file.stat().st_size > 0
    again = lake("show", "lake", *NAMED, "--files", "--format", "json").json
    assert {column["column"]: column["index"] for column in again["columns"]}["ssn"] == "covers 3 of 3 files"
    assert [one["num_rows"] for one in again["inspections"]] == [10, 10, 10]
    nobody = lake("show", "lake", "--format", "json").json
    assert (nobody["rows"], nobody["columns"]) == (None, [])
    assert nobody["hidden"] == [f"footer encrypted: 3 files, {seen['bytes']:,} bytes: rows and columns are in it"]
    Path("lake/country=XX/0.parquet").write_bytes(b"PAR1 no file at all PAR1")
    pq.write_table(pa.table({"id": [1]}), "lake/country=DE/1.parquet")
    partly = lake("show", "lake", *NAMED, "--format", "json").json
    assert (partly["files"], partly["rows"], len(partly["refused"])) == (4, 21, 2)


def test_hints_about_one_file_of_a_table_speak_of_options(lake: Run, folder: Path) -> None:
    """They spoke Python: DecryptionSpec(allow_plaintext=True)."""
    pq.write_table(pa.table({"id": [1]}), folder / "lake" / "country=DE" / "1.parquet")
    keys = ("--keyring", "keys.json")
    for arguments in (("verify", "lake", *keys), ("verify", "lake", *keys, "--format", "json")):
        done = lake(*arguments)
        assert (done.code, "DecryptionSpec" in done.out) == (1, False)
        assert "--allow-plaintext, or no keys" in done.out
    Path("keys.json").unlink()
    done = lake("doctor", "lake", "--policy", "policy.toml", "--format", "json")
    hints = [one["hint"] for one in done.json["checks"] if one.get("hint")]
    assert "bloomseal keyring create --keyring PATH" in hints


def test_a_policy_is_used_whole(lake: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    # A plaintext file, a file without the column's own key, and one under another footer key are refused.
    for path, more in (("clear", ["--plaintext"]), ("uniform", ["--footer-key", "footer"])):
        keys = [] if "--plaintext" in more else ["--keyring", "keys.json"]
        Path(path).mkdir()
        assert lake("write", "part.ndjson", f"{path}/0.parquet", *more, *keys).code == 0
    ours, mixed = (("--policy", "policy.toml", "--table", name) for name in ("plain", "mixed"))
    Path("mixed").mkdir()
    assert lake("write", "part.ndjson", "mixed/0.parquet", *mixed).code == 0
    assert lake("read", "uniform", *ours, "--limit", "1").code == 0
    for refused in (("read", "clear", *ours), ("read", "uniform", *NAMED),
                    ("read", "uniform", "--policy", "policy.toml", "--table", "other"),
                    ("probe", "clear", "ssn", "x", *ours), ("attach", "clear", "--bloom-filter", "id", *ours)):  # fmt: skip
        done = lake(*refused)
        assert (done.code, done.out) == (2, ""), refused
    # Options may ask for more than the policy does, and can't take back what it demands.
    assert lake("read", "clear", *ours, "--allow-plaintext", "--limit", "1").code == 2
    assert lake("read", "mixed", *mixed, "--limit", "1").code == 0
    assert lake("read", "mixed", *mixed, "--encrypted-column", "id").code == 2
    assert lake("read", "lake", *NAMED, "--int96-utc", "--limit", "1").code == 0
    monkeypatch.setenv("KEY", "00" * 16)
    for wrong in (
        ("read", "lake", "--policy", "policy.toml"),
        ("read", "lake", *NAMED, "--key-env", "footer=KEY"),
        ("read", "lake", "--table-root", "lake"),
        ("write", "part.ndjson", "x.parquet", *NAMED, "--footer-key", "footer"),
        ("write", "part.ndjson", "x.parquet", *NAMED, "--plaintext"),
        ("write", "part.ndjson", "x.parquet", *NAMED),
        ("write", "part.ndjson", "-", *NAMED, "--table-root", "."),
    ):
        assert lake(*wrong).code == 2, wrong
    assert not Path("x.parquet").exists()


def test_a_written_file_is_the_policys(lake: Run) -> None:
    policy = bs.Policy.load("policy.toml").for_table("people", root="lake")
    with bs.open_file("lake/country=DE/0.parquet", decryption=policy) as file:
        assert file.filter(0, "ssn") is not None
    dry = lake(
        "write", "part.ndjson", "lake/1.parquet", *NAMED, "--table-root", "lake", "--dry-run", "--format", "json"
    )
    assert [(one["column"], one["protection"], one["filter"]) for one in dry.json["columns"]] == [
        ("id", "footer key", "none"), ("ssn", "column key pii", "sealed"), ("late", "footer key", "none"),
    ]  # fmt: skip
    assert lake("keyring", "disable", "--keyring", "keys.json", "pii").code == 0
    refused = lake("write", "part.ndjson", "lake/1.parquet", *NAMED, "--table-root", "lake", "--dry-run")
    assert refused.code == 2
    assert "pii is disabled" in refused.err


def test_versions_of_a_delta_table(run: Run, folder: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    for start in (0, 5):
        deltalake.write_deltalake(str(folder / "delta"), pa.table({"id": range(start, start + 5)}), mode="append")
    assert len(run("read", "delta", "--format", "json").rows) == 10
    assert [row["id"] for row in run("read", "delta", "--version", "0", "--format", "json").rows] == list(range(5))
    assert run("probe", "delta", "id", "3", "--version", "0", "--format", "json").json["files"] == 1
    assert run("read", "people.csv", "--version", "0").code == 2


def test_write_fills_a_folder(lake: Run, folder: Path) -> None:
    lines = "".join(f"{i},{i:03d}-22-0000,{'DE' if i % 3 else 'FR'}\n" for i in range(60))
    (folder / "new.csv").write_text("id,ssn,country\n" + lines)
    split = ("--partition-by", "country", "--rows-per-file", "25")
    dry = lake("write", "new.csv", "new", *NAMED, *split, "--dry-run", "--format", "json")
    assert dry.json["columns"][2]["protection"] == "folders' names"
    assert not Path("new").exists()
    done = lake("write", "new.csv", "new/", *NAMED, *split, "--format", "json")
    assert (done.code, done.err) == (0, "")
    assert done.json["rows"] == 60
    assert len(done.json["files"]) == 3
    assert all(Path(path).is_file() for path in done.json["files"])
    found = lake("read", "new", *NAMED, "--where", "country = 'FR' and id > 50", "--format", "json")
    assert sorted(row["id"] for row in found.rows) == [51, 54, 57]
    assert lake("probe", "new", "ssn", "059-22-000x", *NAMED, "--quiet").code == 1
    for wrong in (
        ("write", "new.csv", "new", *NAMED, *split),
        ("write", "new.csv", "other", *NAMED, "--partition-by", "ssn"),
        ("write", "new.csv", "other", *NAMED, "--partition-by", "ssn", "--dry-run"),
        ("write", "new.csv", "-", *NAMED, *split),
        ("write", "new.csv", "other/", *NAMED),
        ("write", "new.csv", "x.parquet", *NAMED, "--table-root", ".", "--mode", "append"),
    ):
        assert lake(*wrong).code == 2, wrong
    assert not Path("other").exists()
    assert "--mode append or overwrite" in lake("write", "new.csv", "new", *NAMED, *split).err
    assert lake("write", "new.csv", "new", *NAMED, *split, "--mode", "append").code == 0
    assert len(lake("read", "new", *NAMED, "--format", "json").rows) == 120
    (folder / "new.csv").write_text("id,ssn,country\n1,a,DE\n2,b\n")
    bad = lake("write", "new.csv", "bad", *NAMED, *split)
    assert bad.code == 2
    assert "line 3" in bad.err
    assert not [*Path("bad").rglob("*.parquet")]


def test_write_takes_several_inputs_of_one_schema(run: Run, folder: Path) -> None:
    (folder / "1.csv").write_text("id,late,name\n1,,a\n2,,b\n")
    (folder / "2.csv").write_text("id,late,name\n3,07,c\n")
    with gzip.open(folder / "3.csv.gz", "wt") as file:
        file.write("id,late,name\n4,8,d\n")
    done = run(
        "write", "1.csv", "2.csv", "3.csv.gz", "all.parquet", "--plaintext", "--type", "late=string", "--format", "json"
    )
    assert (done.code, json.loads(done.out)["input"]) == (0, ["1.csv", "2.csv", "3.csv.gz"])
    assert pq.read_table(folder / "all.parquet").to_pydict() == {
        "id": [1, 2, 3, 4], "late": ["", "", "07", "8"], "name": ["a", "b", "c", "d"],
    }  # fmt: skip
    # A column without values takes the type that another input tells, and empty text is what it is in one file.
    assert run("write", "1.csv", "2.csv", "parts", "--plaintext", "--rows-per-file", "2").code == 0
    assert bs.read_table(folder / "parts")["late"].to_pylist() == ["", "", "07"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id,name\n1,a\n", "without late"),
        ("id,late,name,more\n1,,a,b\n", "with more"),
        ("late,id,name\n1,2,a\n", "the order is id, late, name"),
        ("id,late,name\nx,2,a\n", "string here and int64 in 1.csv"),
    ],
)
def test_inputs_that_differ_are_refused_and_nothing_is_written(run: Run, folder: Path, text: str, said: str) -> None:
    (folder / "1.csv").write_text("id,late,name\n1,,a\n")
    (folder / "2.csv").write_text(text)
    done = run("write", "1.csv", "2.csv", "all.parquet", "--plaintext")
    assert done.code == 2
    assert said in done.err
    assert "2.csv" in done.err
    assert not (folder / "all.parquet").exists()
    done = run("write", "1.csv", "-", "all.parquet", "--plaintext", "--input-format", "csv")
    assert (done.code, "stands alone" in done.err) == (2, True)


def test_a_plaintext_table_is_an_input(run: Run, tmp_path: Path) -> None:
    for number, country in enumerate(("DE", "FR")):
        path = tmp_path / "lake" / f"country={country}" / "a.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.table({"id": [number, number + 10], "ssn": ["x", country]}), path)
    keys = ("--keyring", "ring.json", "--footer-key", "footer", "--column-key", "ssn=pii")
    assert run("keyring", "create", "--keyring", "ring.json", "footer", "pii").code == 0
    lake, sealed = str(tmp_path / "lake"), str(tmp_path / "sealed")
    assert run("write", lake, sealed, "--partition-by", "country", "--rows-per-file", "1", *keys).code == 0
    ring = bs.Keyring(Path("ring.json"))
    found = bs.open_table(sealed, decryption=bs.DecryptionSpec(ring, partition_by=["country"])).read()
    assert found.sort_by("id").to_pylist() == bs.read_table(lake).sort_by("id").to_pylist()
    assert len(bs.open_table(sealed)) == 4
    refused = run("write", sealed, str(tmp_path / "b.parquet"), *keys)
    assert (refused.code, "encrypted" in refused.err) == (2, True), refused.err
    assert not (tmp_path / "b.parquet").exists()
    assert run("write", f"{lake}/none-*.parquet", str(tmp_path / "b.parquet"), *keys).code == 2


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_master_key_to_leave_that_no_file_is_under_is_told(run: Run, folder: Path, dry: tuple[str, ...]) -> None:
    run("keyring", "create", "--keyring", "keys.json", "footer", "pii")
    keyed = ("--keyring", "keys.json", "--footer-key", "footer", "--column-key", "name=pii")
    (folder / "lake").mkdir()
    assert run("write", "people.csv", "lake/a.parquet", *keyed).code == 0
    misspelt = run("rewrap", "lake", "--keyring", "keys.json", "--from", "piii", "--to", "footer", *dry)
    assert (misspelt.code, misspelt.err) == (0, "no key in these files is under piii\n")
    assert run("rewrap", "lake", "--keyring", "keys.json", "--from", "pii", "--to", "footer", *dry).err == ""
    assert run("rewrap", "lake", "--keyring", "keys.json", *dry).err == ""


def test_a_rekey_tells_that_no_key_was_under_the_one_to_leave(run: Run, folder: Path) -> None:
    run("keyring", "create", "--keyring", "keys.json", "footer", "pii")
    keys = ("--keyring", "keys.json")
    (folder / "lake").mkdir()
    assert run("write", "people.csv", "lake/a.parquet", *keys, "--footer-key", "footer").code == 0
    for dry in (("--dry-run",), ()):
        misspelt = run("rekey", "lake", *keys, "--from", "foter", "--to", "pii", *dry)
        assert (misspelt.code, misspelt.err) == (0, "no key in these files is under foter\n")
    assert run("rekey", "lake", *keys, "--from", "footer", "--to", "pii").err == ""


def test_a_dry_run_of_every_verb_asks_for_its_master_keys(run: Run, folder: Path) -> None:
    run("keyring", "create", "--keyring", "keys.json", "footer", "pii")
    keys = ("--keyring", "keys.json")
    pq.write_table(pa.table({"id": [1]}), "plain.parquet")
    sealed = ("write", "people.csv", "a.parquet", *keys, "--footer-key", "footer", "--column-key", "name=pii")
    assert run(*sealed, "--complete").code == 0
    for command in (
        ("write", "people.csv", "b.parquet", *keys, "--footer-key", "gone"),
        ("seal", "plain.parquet", *keys, "--footer-key", "footer", "--column-key", "id=gone"),
        ("rekey", "a.parquet", *keys, "--footer-key", "gone"),
        ("rekey", "a.parquet", *keys, "--from", "pii", "--to", "gone"),
        ("rewrap", "a.parquet", *keys, "--from", "pii", "--to", "gone"),
        ("index", "build", ".", "--column", "name", *keys, "--footer-key", "footer", "--column-key", "gone"),
    ):
        refused = run(*command, "--dry-run")
        assert refused.code in (1, 2), command
        assert "no master key 'gone'" in refused.out + refused.err, command
    run("keyring", "disable", *keys, "pii")
    for verb in (("unseal", "--in-place"), ("rekey",), ("attach", "--bloom-filter", "name")):
        refused = run(verb[0], "a.parquet", *verb[1:], *keys, "--dry-run")
        assert refused.code in (1, 2), verb
        assert "is disabled" in refused.out + refused.err, verb


def test_hints_name_what_helps_here(run: Run, folder: Path) -> None:
    run("keyring", "create", "--keyring", "keys.json", "footer", "pii")
    (folder / "policy.toml").write_text(POLICY.replace("FOLDER", str(folder)))
    (folder / "t" / "country=DE").mkdir(parents=True)
    file = "t/country=DE/a.parquet"
    assert run("write", "people.csv", file, *NAMED, "--table-root", "t").code == 0
    keyed = run("verify", file, "--keyring", "keys.json").err
    assert keyed.index("--policy FILE") < keyed.index("--table-root FOLDER") < keyed.index("--aad-prefix")
    assert "--table-root FOLDER" in run("verify", "t/country=DE", *NAMED).out
    pq.write_table(pa.table({"id": [1]}), "t/plain.parquet")
    assert "bloomseal seal" in run("verify", "t/plain.parquet", *NAMED, "--table-root", "t").err
    assert run("write", "people.csv", "t/b.parquet", "--keyring", "keys.json", "--footer-key", "footer").code == 0
    assert "bloomseal rekey" in run("verify", "t/b.parquet", *NAMED, "--table-root", "t").err
    assert f"Try: {file}\n" in run("read", "t/country=DE/b.parquet", *NAMED).err
    assert "bloomseal write" in run("verify", "people.csv").err


def test_the_environment_names_the_policy_and_its_table(lake: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLOOMSEAL_POLICY", "policy.toml")
    several = lake("read", "lake", "--limit", "1", "--format", "json")
    assert (several.code, "--table" in several.err) == (2, True)
    monkeypatch.setenv("BLOOMSEAL_TABLE", "people")
    assert len(lake("read", "lake", "--columns", "ssn", "--format", "json").rows) == 30
    # What the policy says is asked for, too, of whoever forgot that there is one.
    for more in (("--plaintext",), ("--footer-key", "footer", "--keyring", "keys.json")):
        refused = lake("write", "part.ndjson", "out.parquet", *more)
        assert (refused.code, "BLOOMSEAL_POLICY" in refused.err) == (2, True)
    monkeypatch.delenv("BLOOMSEAL_POLICY")
    alone = lake("verify", "lake")
    assert (alone.code, "BLOOMSEAL_POLICY" in alone.err) == (2, True)


def test_a_part_of_a_table_is_read_where_the_policy_says_the_root(lake: Run, folder: Path) -> None:
    where = "country = 'FR'"
    part = ("read", "lake/country=FR", "--policy", "policy.toml", "--columns", "id", "--format", "json")
    assert lake(*part, "--table", "people").code == 2
    text = (folder / "policy.toml").read_text()
    (folder / "policy.toml").write_text(text.replace("[tables.people]", '[tables.people]\nroot = "lake"'))
    whole = lake("read", "lake", "--policy", "policy.toml", "--where", where, "--columns", "id", "--format", "json")
    assert len(whole.rows) == 10
    assert lake(*part).rows == whole.rows
    assert lake("verify", "lake/country=FR/0.parquet", "--policy", "policy.toml", "--strict").code == 0
    assert lake("rekey", "lake/country=FR", "--policy", "policy.toml", "--dry-run").code == 0
